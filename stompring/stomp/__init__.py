"""STOMP 1.0, 1.1 and 1.2: bytes to frames and back, without I/O. Standard library only."""
