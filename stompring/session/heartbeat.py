"""Heart-beats and the time a silent connection may live (STOMP 1.1 and 1.2, "Heart-beating"; Artemis's numbers)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stompring.broker.clock import Clock, Timer
from stompring.errors import ProtocolError
from stompring.settings.acceptor import StompAcceptor

from .outbox import Outbox

#: The fastest the broker beats, ms (Artemis).
MIN_BEAT = 500

#: A beat goes out when this share of the promised interval has passed without a write, so that it arrives in time.
EARLY = 0.9


@dataclass(frozen=True, slots=True)
class HeartbeatIntervals:
    """What was agreed: the broker beats every ``send`` ms (0 = never), asks for beats every ``expect`` ms (0 = it
    does not), and closes a connection that was silent for ``ttl`` ms (0 = never)."""

    send: int
    expect: int
    ttl: int


def agree(header: str | None, acceptor: StompAcceptor, ttl_override: int) -> HeartbeatIntervals:
    """The pace for a ``heart-beat`` header (None = there was none). Raises `ProtocolError`.

    A client that promises no beats is closed for silence only where a TTL is configured: ``connectionTtl`` of the
    acceptor, or ``connection-ttl-override``.
    """
    client_sends, client_wants = _parse(header)
    modifier = acceptor.heart_beat_to_connection_ttl_modifier
    ttl = acceptor.connection_ttl or max(ttl_override, 0)
    if client_sends:
        ttl = max(int(client_sends * modifier), acceptor.connection_ttl_min)
        if acceptor.connection_ttl_max is not None:
            ttl = min(ttl, acceptor.connection_ttl_max)
    send = max(client_wants, MIN_BEAT) if client_wants else 0
    return HeartbeatIntervals(send, int(ttl / modifier), ttl)


def _parse(header: str | None) -> tuple[int, int]:
    if header is None:
        return 0, 0
    parts = [part.strip(" \t") for part in header.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ProtocolError(
            f"heart-beat must be two numbers of milliseconds, as 1000,1000, not '{header[:100]}'"
        )
    sends, wants = (_interval(part.lstrip("0") or "0") for part in parts)
    return sends, wants


def _interval(digits: str) -> int:
    return MAX_INTERVAL if len(digits) > len(str(MAX_INTERVAL)) else min(int(digits), MAX_INTERVAL)


#: Longer intervals than a day mean "practically never", and would overflow timers.
MAX_INTERVAL = 24 * 3600 * 1000


def _nobody() -> None:
    """Whom a closed connection calls."""


class Heartbeat:
    """Keeps the pace of one connection with at most two timers, neither of which is touched by traffic.

    ``last_read`` is kept by the session, the time of the last write by the outbox; all in milliseconds of the steady
    ``clock``. After a pause of the whole process (SIGSTOP, a step that took long) timers ring before sockets are read:
    so a connection that seems silent is looked at once more, after what waits in its socket was read.
    """

    __slots__ = (
        "_beat",
        "_clock",
        "_last_look",
        "_outbox",
        "_pace",
        "_silent",
        "_timers",
        "last_read",
        "suspended",
    )

    def __init__(
        self, clock: Clock, outbox: Outbox, beat: Callable[[], None], silent: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._outbox = outbox
        self._beat = beat
        self._silent = silent
        self._pace = HeartbeatIntervals(0, 0, 0)
        self._timers: dict[str, Timer] = {}
        self._last_look = False  # it seemed silent, and what waits in the socket is read now
        self.last_read = clock.now
        self.suspended = False  # the broker itself does not read: silence is not the client's fault

    def start(self, pace: HeartbeatIntervals) -> None:
        """Begin, or change pace."""
        self.stop()
        self._pace = pace
        self.last_read = now = self._clock.now
        if pace.send:
            self._timers["send"] = self._clock.call_at(now + int(pace.send * EARLY), self._may_beat)
        if pace.ttl:
            self._timers["ttl"] = self._clock.call_at(now + pace.ttl, self._may_end)

    def stop(self) -> None:
        """No more beats, no more waiting for them."""
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        self._timers.clear()

    def break_cycles(self) -> None:
        """Forget whom to call: the connection is closed."""
        self.stop()
        self._beat, self._silent = _nobody, lambda ttl: None

    def _may_beat(self) -> None:
        interval = int(self._pace.send * EARLY)
        now = self._clock.refresh()
        last = self._outbox.last_write
        if now - last >= interval:
            self._beat()
            last = now
        self._timers["send"] = self._clock.call_at(last + interval, self._may_beat)

    def _may_end(self) -> None:
        now = self._clock.refresh()
        if self.suspended or self._outbox.reading.stopped:
            self.last_read = now
        seems_silent = now - self.last_read >= self._pace.ttl
        if seems_silent and self._last_look:
            self._timers.pop("ttl", None)
            self._silent(self._pace.ttl)
            return
        self._last_look = seems_silent
        self._timers["ttl"] = self._clock.call_at(self.last_read + self._pace.ttl, self._may_end)
