"""Which function deals with which command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompring.errors import ProtocolError
from stompring.stomp.frames import Head

from .acknowledge import on_ACK, on_NACK
from .connect import on_CONNECT, on_DISCONNECT
from .send import on_SEND
from .subscribe import on_SUBSCRIBE, on_UNSUBSCRIBE
from .text import shortened
from .transact import on_ABORT, on_BEGIN, on_COMMIT

if TYPE_CHECKING:
    from .session import Session

Verb = Callable[["Session", Head, bytes], None]

VERBS: dict[bytes, Verb] = {
    b"SEND": on_SEND,
    b"ACK": on_ACK,
    b"NACK": on_NACK,
    b"SUBSCRIBE": on_SUBSCRIBE,
    b"UNSUBSCRIBE": on_UNSUBSCRIBE,
    b"BEGIN": on_BEGIN,
    b"COMMIT": on_COMMIT,
    b"ABORT": on_ABORT,
    b"DISCONNECT": on_DISCONNECT,
}


def opening_command(head: Head, connected: bool) -> Verb:
    """For frames that `VERBS` is not for: the first one of a connection, and unknown commands."""
    command = shortened(head.command)
    if head.command in (b"CONNECT", b"STOMP"):
        if connected:
            raise ProtocolError(f"{command} on a connection that is already connected")
        return on_CONNECT
    if not connected:
        raise ProtocolError(f"Connection has not been established: the first frame is {command}, not CONNECT")
    raise ProtocolError(f"Unknown command {command!r}")
