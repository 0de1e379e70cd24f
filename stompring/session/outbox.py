"""What waits to be written to a client: gathered during one read of any socket, then written in one piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stompring.broker.clock import Clock

from .backpressure import Reading, SlowReaders

#: ``outboxSize`` where nobody says otherwise: bytes that may be on their way to a client's socket before its
#: subscriptions rest. Large enough that a fast client never waits, small enough that ten thousand stuck ones do not
#: fill the memory with copies, and that a deep queue is handed out in turns of a few milliseconds.
ROOM = 256 * 1024


class Wire(Protocol):
    """The connection as a session sees it. The server gives it one."""

    @property
    def peer(self) -> str:
        """Where the client is, with its port, for messages and logs."""

    @property
    def host(self) -> str:
        """Where the client is, without its port: what several connections of one client have in common."""

    @property
    def certificate(self) -> str | None:
        """The subject of the client's certificate (RFC 4514), where it showed one that was verified."""

    @property
    def carrier(self) -> str:
        """What STOMP is spoken over: TCP or WebSocket."""

    def write(self, data: bytes) -> None:
        """Send bytes; the outbox is told by `Outbox.pause` and `Outbox.resume` when the socket is slow."""

    def close(self) -> None:
        """Send what was written, then close."""

    def pause_reading(self) -> None:
        """Read no more from the client."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""


class Outgoing:
    """The outboxes that have something to write."""

    __slots__ = ("_soon_asked", "clock", "dirty", "slow", "within_read")

    def __init__(self, clock: Clock) -> None:
        """``clock`` is the steady one."""
        self.dirty: list[Outbox] = []
        self.within_read = False  # whoever reads flushes at the end
        self.clock = clock
        self.slow = SlowReaders(clock)
        self._soon_asked = False

    def flush_soon(self) -> None:
        """Somebody has written outside of a read."""
        if not self._soon_asked:
            self._soon_asked = True
            self.clock.soon(self.flush)

    def gather(self, call: Callable[[], None]) -> None:
        """Make one write for each connection of all that ``call`` sends."""
        within, self.within_read = self.within_read, True
        try:
            call()
        finally:
            self.within_read = within
            if not within:
                self.flush()

    def flush(self) -> None:
        """One write for each connection."""
        self._soon_asked = False
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for outbox in dirty:
                outbox.flush()


def _nothing() -> None:
    """What a closed connection does when its socket is full or free."""


class Outbox:
    """The parts of frames for one client, and how much room there is for more.

    Of MESSAGEs no more come when the room is used up (``on_full``). Other frames answer what the client sends: when
    those that a slow socket has not taken are more than ``size`` bytes, the client is not read until it has.
    """

    __slots__ = (
        "_answers",
        "dirty",
        "join",
        "last_write",
        "outgoing",
        "parts",
        "paused",
        "reading",
        "capacity",
        "size",
        "on_full",
        "on_capacity",
        "wire",
    )

    def __init__(
        self,
        wire: Wire,
        outgoing: Outgoing,
        on_full: Callable[[], None],
        on_room: Callable[[], None],
        size: int = ROOM,
    ) -> None:
        self.wire = wire
        self.reading = Reading(wire)
        self.size = size
        self._answers = 0  # bytes of other frames than MESSAGEs since the socket became slow
        self.outgoing = outgoing
        self.on_full = on_full
        self.on_capacity = on_room
        self.parts: list[bytes] = []
        self.join: Callable[[list[bytes]], bytes] = b"".join  # WebSocket puts something around each frame
        self.dirty = False
        self.paused = False  # the socket takes no more for now
        self.capacity = size  # falls with every part; kept by the senders of parts
        self.last_write = outgoing.clock.now  # for the heart-beat

    def send(self, frame: bytes) -> None:
        """Add a whole frame."""
        self.parts.append(frame)
        self.capacity -= len(frame)
        if self.paused:
            self._answers += len(frame)
            if self._answers > self.size and not self.reading.throttled:
                self.reading.throttle()
        if not self.dirty:
            self.mark()

    def mark(self) -> None:
        """There is something to write."""
        self.dirty = True
        outgoing = self.outgoing
        outgoing.dirty.append(self)
        if not outgoing.within_read:
            outgoing.flush_soon()

    def flush(self) -> None:
        """Write everything gathered."""
        self.dirty = False
        parts = self.parts
        if parts:
            data = self.join(parts)
            parts.clear()
            self.last_write = self.outgoing.clock.now
            self.wire.write(data)
            if not self.paused and self.capacity < self.size:
                full = self.capacity <= 0
                self.capacity = self.size
                if full:
                    self.on_capacity()

    def pause(self) -> None:
        """The socket is slow: what is written from now on uses up the room."""
        if not self.paused:
            self.paused = True
            self.outgoing.slow.enter(self)

    def resume(self) -> None:
        """The socket has taken everything."""
        self.paused = False
        self.outgoing.slow.leave(self)
        self._answers = 0
        full = self.capacity <= 0
        self.capacity = self.size
        if full:
            self.on_capacity()
        if self.reading.throttled:
            self.reading.unthrottle()

    def break_cycles(self) -> None:
        """The connection is closed: nobody is called any more."""
        self.on_full = self.on_capacity = _nothing
        self.reading.end()
        self.outgoing.slow.forget(self)
