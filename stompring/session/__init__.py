"""The STOMP session of one client, without I/O: frames in, calls of the broker, frames out."""
