"""stompring: a STOMP 1.0/1.1/1.2 message broker on Twisted."""

__version__ = "0.1.0"
