"""The output of a connection: frames to write, heart-beats, back-pressure, and limits on connections.

Header values as text, and the limit on the length of identifiers that clients choose.

Connection limits: how many connections an acceptor and the broker accept, and from which hosts and origins.

A slot is taken when a connection is accepted, before anything else is made for it, and released when it ends.

A browser lets a page of any site open a WebSocket to any host; the ``Origin`` header that it adds is the only
protection (cross-site WebSocket hijacking). A site whose name was made to resolve to this machine (DNS rebinding) is
recognised by the name in ``Host``, as in `stompring.admin.api`. Programs send no ``Origin`` and are accepted.

Heart-beats and the time a silent connection may live (STOMP 1.1 and 1.2, "Heart-beating"; Artemis's numbers).

Back-pressure: when a connection is not read, which frames wait, and which clients do not read.

What waits to be written to a client: gathered during one read of any socket, then written in one piece.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from stompring.broker.address import Address
from stompring.broker.clock import Clock, Timer, cancel
from stompring.broker.directory import MAX_NAME
from stompring.broker.limits import MemoryLimit
from stompring.errors import LimitReached, ProtocolError, Refused
from stompring.settings.model import StompAcceptor, WebSocketSettings
from stompring.settings.network import (
    ANY_ORIGIN,
    NULL_ORIGIN,
    host_name,
    is_local,
    is_loopback,
    is_this_machine,
    normal_origin,
    origin_host,
    source_network,
)


@overload
def text_of(value: bytes) -> str: ...
@overload
def text_of(value: None) -> None: ...
def text_of(value: bytes | None) -> str | None:
    """The text of a header value; what is not UTF-8 in it is replaced. None stays None."""
    return None if value is None else value.decode("utf-8", "replace")


def shortened(value: bytes) -> str:
    """A header value for an error message, cut at 100 bytes."""
    return text_of(value[:100])


def printable(text: str, most: int = 100) -> str:
    """Text from a client for one line of a log or an answer: no control characters, at most ``most`` characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:most])


def check_identifier_length(header: str, name: bytes) -> bytes:
    """The name, which is in that header. Raises `Refused` for one that is longer than names of queues may be.

    A header line may be 64 KiB: ten thousand subscriptions, or the ids that one address remembers, would be a gigabyte.
    """
    if len(name) > MAX_NAME:
        raise Refused(f"The header {header} is longer than {MAX_NAME} bytes", status=400)
    return name


class ConnectionCounter:
    """Open connections, in all and by source network (`source_network`)."""

    def __init__(self) -> None:
        self.total = 0
        self.by_network: Counter[str] = Counter()

    def add(self, network: str) -> None:
        """Count a connection that was opened."""
        self.total += 1
        self.by_network[network] += 1

    def remove(self, network: str) -> None:
        """Count one that was closed."""
        self.total -= 1
        self.by_network[network] -= 1
        if self.by_network[network] <= 0:
            del self.by_network[network]


@dataclass(slots=True)
class GlobalConnectionLimit:
    """``global-max-connections``: of all STOMP acceptors together. -1: no limit."""

    limit: int = -1
    count: int = 0


class ConnectionLimit:
    """The limits of one STOMP acceptor, over TCP and WebSocket alike."""

    def __init__(self, acceptor: StompAcceptor, overall: GlobalConnectionLimit) -> None:
        self._acceptor = acceptor
        self._overall = overall
        self._open = ConnectionCounter()

    def acquire(self, host: str) -> str:
        """Count a connection from ``host``; returns what to `release` at its end. Raises `LimitReached`."""
        overall, acceptor, counter = self._overall, self._acceptor, self._open
        allowed = acceptor.connections_allowed
        network = source_network(host)
        if 0 <= overall.limit <= overall.count:
            raise LimitReached(
                f"More than {overall.limit} connections to this broker (global-max-connections)",
                "global-max-connections",
            )
        if 0 <= allowed <= counter.total:
            raise LimitReached(
                f"More than {allowed} connections to acceptor {acceptor.name} (connectionsAllowed)",
                "connectionsAllowed",
            )
        per_host = acceptor.connections_allowed_per_host
        if per_host is None:  # half, so that one machine cannot shut out all others
            per_host = -1 if overall.limit < 0 or is_this_machine(network) else max(1, overall.limit // 2)
        if 0 <= per_host <= counter.by_network[network]:
            raise LimitReached(
                f"More than {per_host} connections from {network} to acceptor {acceptor.name} "
                "(connectionsAllowedPerHost)",
                "connectionsAllowedPerHost",
            )
        overall.count += 1
        counter.add(network)
        return network

    def release(self, network: str) -> None:
        """A connection has ended."""
        self._overall.count -= 1
        self._open.remove(network)


#: STOMP subprotocols of WebSocket, the best first.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")


class HandshakeRejected(Exception):
    """The request for a WebSocket is answered with an error: the reason and the status of HTTP."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class OriginPolicy:
    """Which requests for a WebSocket one acceptor accepts; it listens on the host ``listens_on``."""

    def __init__(self, settings: WebSocketSettings, listens_on: str) -> None:
        self._path = settings.path
        self._allowed = frozenset(settings.web_socket_allowed_origins)
        self._names = frozenset(filter(None, map(origin_host, self._allowed)))
        self._local = is_loopback(listens_on)

    def check(self, path: str, host: str, origin: str | None, subprotocols: Sequence[str]) -> str | None:
        """The subprotocol to speak, None where none was offered. Raises `HandshakeRejected`.

        ``host`` and ``origin`` are the headers of these names.
        """
        if self._path and path.removesuffix("/") != self._path:
            raise HandshakeRejected(f"No WebSocket at {printable(path)}; the path is {self._path}", 404)
        name = host_name(host)
        if self._local and not (is_local(name) or name in self._names or ANY_ORIGIN in self._allowed):
            raise HandshakeRejected(
                f"Host {printable(host)} is not allowed: this listener is local and accepts localhost and the hosts of "
                "webSocketAllowedOrigins",
                403,
            )
        if origin is not None and not self._origin_allowed(origin, name):
            raise HandshakeRejected(
                f"Origin {printable(origin)} is not allowed (webSocketAllowedOrigins)",
                403,
            )
        if not subprotocols:
            return None
        for spoken in SUBPROTOCOLS:
            if spoken in subprotocols:
                return spoken
        offered = printable(", ".join(subprotocols))
        raise HandshakeRejected(
            f"Unsupported subprotocols: {offered}; supported: {', '.join(SUBPROTOCOLS)}", 400
        )

    def _origin_allowed(self, origin: str, name: str) -> bool:
        if ANY_ORIGIN in self._allowed:
            return True
        try:
            origin = normal_origin(origin)
        except ValueError:  # file:// for one
            origin = NULL_ORIGIN
        page = origin_host(origin)
        same = page == name or (is_local(page) and is_local(name))
        return origin in self._allowed or bool(same and page)


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
    client_sends = client_wants = 0
    if header is not None:
        parts = [part.strip(" \t") for part in header.split(",")]
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ProtocolError(
                f"heart-beat must be two numbers of milliseconds, as 1000,1000, not '{header[:100]}'"
            )
        # nine digits are more than `MAX_INTERVAL` has: int() would refuse 4301
        client_sends, client_wants = (min(int(part.lstrip("0")[:9] or "0"), MAX_INTERVAL) for part in parts)
    modifier = acceptor.heart_beat_to_connection_ttl_modifier
    ttl = acceptor.connection_ttl or max(ttl_override, 0)
    if client_sends:
        ttl = max(int(client_sends * modifier), acceptor.connection_ttl_min)
        if acceptor.connection_ttl_max is not None:
            ttl = min(ttl, acceptor.connection_ttl_max)
    send = max(client_wants, MIN_BEAT) if client_wants else 0
    return HeartbeatIntervals(send, int(ttl / modifier), ttl)


#: Longer intervals than a day mean "practically never", and would overflow timers.
MAX_INTERVAL = 24 * 3600 * 1000


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
            cancel(timer)
        self._timers.clear()

    def break_cycles(self) -> None:
        """Forget whom to call: the connection is closed."""
        self.stop()
        self._beat, self._silent = _nothing, lambda ttl: None

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


class Reading:
    """Stops and starts the reading of one wire for three reasons, any of which is enough to stop.

    The session pauses it while it is blocked or a login is checked. A client that sends frames with receipts and reads
    none of the answers is ``choked`` by its outbox until it has taken them, so that they cannot fill the memory. One
    whose frames took long is ``resting`` while it is the turn of others.
    """

    __slots__ = ("_paused", "_wire", "throttled", "suspended")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._paused = False
        self.throttled = False
        self.suspended = False

    @property
    def stopped(self) -> bool:
        """Whether the client could not be heard even if it said something, for a reason that is not the session's."""
        return self.throttled or self.suspended

    def pause(self) -> None:
        """The session waits."""
        self._paused = True
        self._wire.pause_reading()

    def resume(self) -> None:
        """The session goes on."""
        self._paused = False
        self._read_again()

    def throttle(self) -> None:
        """There are too many answers that the socket has not taken."""
        self.throttled = True
        self._wire.pause_reading()

    def unthrottle(self) -> None:
        """They were taken."""
        self.throttled = False
        self._read_again()

    def suspend(self) -> None:
        """It is the turn of others."""
        self.suspended = True
        self._wire.pause_reading()

    def unsuspend(self) -> None:
        """It is its own turn again."""
        self.suspended = False
        self._read_again()

    def end(self) -> None:
        """The connection is closed: it is not read any more, whoever still means to let it."""
        self._paused = True

    def _read_again(self) -> None:
        if not (self._paused or self.throttled or self.suspended):
            self._wire.resume_reading()


log = logging.getLogger(__name__)

#: Milliseconds for which a full outbox may be stuck before its client is slow. A pause of the network, or of a client
#: that collects its garbage, is over by then.
SLOW = 10_000


class SlowReaders:
    """The outboxes whose sockets take nothing for now. One timer for all, which runs only while there are such."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Outbox, int] = {}  # ms of the steady clock
        self._known: set[Outbox] = set()  # slow, and told
        self._timer: Timer | None = None

    @property
    def count(self) -> int:
        """Connections that are slow now."""
        return sum(map(self.is_slow, self._since))

    def is_slow(self, outbox: Outbox) -> bool:
        """Whether the client of an outbox has read nothing for `SLOW` milliseconds while that was full."""
        since = self._since.get(outbox)
        return since is not None and outbox.capacity <= 0 and self._clock.now - since >= SLOW

    def enter(self, outbox: Outbox) -> None:
        """Its socket takes no more."""
        self._since[outbox] = self._clock.now
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now + SLOW, self._look)

    def leave(self, outbox: Outbox) -> None:
        """Its socket has taken everything."""
        self._since.pop(outbox, None)
        self._known.discard(outbox)

    def forget(self, outbox: Outbox) -> None:
        """It is closed."""
        self.leave(outbox)
        if not self._since:
            cancel(self._timer)
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._clock.refresh()
        new = [outbox for outbox in self._since if self.is_slow(outbox) and outbox not in self._known]
        self._known.update(new)
        if new:
            first = new[0]
            more = f", and {len(new) - 1} others" if len(new) > 1 else ""
            log.warning(
                "%s%s: slow reader: %d bytes unread for %d s",
                first.wire.peer,
                more,
                first.size - first.capacity,
                (now - self._since[first]) // 1000,
                extra={"peer": first.wire.peer},
            )
        if self._since:
            self._timer = self._clock.call_at(now + SLOW, self._look)


class InProgress(Exception):
    """What a frame asks for is done in slices; the next frame is looked at when that is done."""


class Blocked(Exception):
    """A frame cannot be processed yet; it is tried again when ``limit`` is no longer full, or after ``milliseconds``.

    ``offered`` is a SEND that policies have begun to evaluate: it continues from there.
    """

    def __init__(
        self,
        address: Address,
        limit: MemoryLimit | None,
        milliseconds: int = 0,
        offered: Any = None,
    ) -> None:
        super().__init__()
        assert limit is not None or milliseconds > 0, "there must be an end to it"
        self.address = address
        self.limit = limit
        self.milliseconds = milliseconds
        self.offered = offered


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
    """What a closed connection does when its socket is full or free, or it is time for a heart-beat."""


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
