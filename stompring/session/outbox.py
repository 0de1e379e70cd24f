"""The output of a connection: frames to write, heart-beats, back-pressure, and limits on connections.

Connection limits: the number of connections to an acceptor and the broker, and the hosts and origins that may connect.
A connection counts from the moment it is accepted until it ends.

A browser lets a page of any site open a WebSocket to any host; the ``Origin`` header that it adds is the only
protection (cross-site WebSocket hijacking). The ``Host`` header reveals a site whose name was made to resolve to this
machine (DNS rebinding), as in `stompring.admin.api`. Programs send no ``Origin`` and are accepted.

Heart-beats and the TTL of silent connections: STOMP 1.1 and 1.2, "Heart-beating", with the defaults of Artemis.

Back-pressure: `Reading` pauses a connection, `SlowReaders` logs clients that do not read. An `Outbox` gathers the
frames for a client during one read of any socket, and writes them together.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, overload

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
    """Decode a header value; invalid UTF-8 is replaced. None stays None."""
    return None if value is None else value.decode("utf-8", "replace")


def shortened(value: bytes) -> str:
    """Decode a header value for an error message, cut at 100 bytes."""
    return text_of(value[:100])


def printable(text: str, most: int = 100) -> str:
    """Return a client's text for one line of a log or an answer: ``most`` characters at most, all printable."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:most])


def check_identifier_length(header: str, name: bytes) -> bytes:
    """Return ``name``, the value of ``header``. Raises `Refused` if it is longer than a queue name may be. A header
    line may have 64 KiB: 20,000 duplicate ids of this length, the default maximum of an address, would take 1.3 GB.
    """
    if len(name) > MAX_NAME:
        raise Refused(f"The header {header} is longer than {MAX_NAME} bytes", status=400)
    return name


class ConnectionCounter:
    """The number of open connections, in total and by source network (`source_network`)."""

    def __init__(self) -> None:
        self.total = 0
        self.by_network: Counter[str] = Counter()

    def add(self, network: str) -> None:
        self.total += 1
        self.by_network[network] += 1

    def remove(self, network: str) -> None:
        self.total -= 1
        self.by_network[network] -= 1
        if self.by_network[network] <= 0:
            del self.by_network[network]


@dataclass(slots=True)
class GlobalConnectionLimit:
    """``global-max-connections``: the limit for all STOMP acceptors together. -1: no limit."""

    limit: int = -1
    count: int = 0


class ConnectionLimit:
    """The connection limits of one STOMP acceptor, for TCP and WebSocket together."""

    def __init__(self, acceptor: StompAcceptor, overall: GlobalConnectionLimit) -> None:
        self._acceptor = acceptor
        self._overall = overall
        self._open = ConnectionCounter()

    def acquire(self, host: str) -> str:
        """Count a connection from ``host``. Returns the network of the host, for `release`. Raises `LimitReached`."""
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
        if per_host is None:  # half of all connections, so that one machine cannot shut out the others
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
        """Stop counting a connection from ``network``, as `acquire` returned it."""
        self._overall.count -= 1
        self._open.remove(network)


#: WebSocket subprotocols of STOMP, best first.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")


class HandshakeRejected(Exception):
    """A WebSocket handshake is rejected. The answer has the reason and the HTTP status."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class OriginPolicy:
    """Decides which WebSocket handshakes an acceptor accepts. ``listens_on`` is the host of its listener."""

    def __init__(self, settings: WebSocketSettings, listens_on: str) -> None:
        self._path = settings.path
        self._allowed = frozenset(settings.web_socket_allowed_origins)
        self._names = frozenset(filter(None, map(origin_host, self._allowed)))
        self._local = is_loopback(listens_on)

    def check(self, path: str, host: str, origin: str | None, subprotocols: Sequence[str]) -> str | None:
        """Return the subprotocol, None if the client offers none. Raises `HandshakeRejected`.

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
        except ValueError:  # such as file://
            origin = NULL_ORIGIN
        page = origin_host(origin)
        same = page == name or (is_local(page) and is_local(name))
        return origin in self._allowed or bool(same and page)


#: Shortest interval between heart-beats of the broker, ms (Artemis).
MIN_BEAT: Final = 500

#: Fraction of the promised interval after which the broker sends a heart-beat if nothing else was sent.
EARLY: Final = 0.9


@dataclass(frozen=True, slots=True)
class HeartbeatIntervals:
    """The agreed intervals in ms, 0 for never. ``send``: interval of the broker's heart-beats. ``expect``: interval of
    the client's heart-beats, as the broker requests them. ``ttl``: silence after which the broker closes a connection.
    """

    send: int
    expect: int
    ttl: int


def agree(header: str | None, acceptor: StompAcceptor, ttl_override: int) -> HeartbeatIntervals:
    """Return the intervals for a ``heart-beat`` header (None if absent). Raises `ProtocolError`.

    The broker closes a silent client that promises no heart-beats only if a TTL is configured: ``connectionTtl`` of
    the acceptor, or ``connection-ttl-override``.
    """
    client_sends = client_wants = 0
    if header is not None:
        parts = [part.strip(" \t") for part in header.split(",")]
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ProtocolError(
                f"heart-beat must be two numbers of milliseconds, as 1000,1000, not '{header[:100]}'"
            )
        # nine digits are enough to exceed `MAX_INTERVAL`; int() would raise an error for 4301 digits
        client_sends, client_wants = (min(int(part.lstrip("0")[:9] or "0"), MAX_INTERVAL) for part in parts)
    modifier = acceptor.heart_beat_to_connection_ttl_modifier
    ttl = acceptor.connection_ttl or max(ttl_override, 0)
    if client_sends:
        ttl = max(int(client_sends * modifier), acceptor.connection_ttl_min)
        if acceptor.connection_ttl_max is not None:
            ttl = min(ttl, acceptor.connection_ttl_max)
    send = max(client_wants, MIN_BEAT) if client_wants else 0
    return HeartbeatIntervals(send, int(ttl / modifier), ttl)


#: Maximum interval in ms: one day. Clients mean "practically never" by longer ones, which would overflow timers.
MAX_INTERVAL: Final = 24 * 3600 * 1000


class Heartbeat:
    """Sends the heart-beats of one connection and detects its silence, with two timers that traffic does not reset.

    The session updates ``last_read``, and the outbox updates ``last_write``, both in ms of the steady ``clock``. After
    a pause of the whole process (SIGSTOP, a long step) timers run before sockets are read. So a connection that seems
    silent is checked again after its socket was read.
    """

    __slots__ = (
        "_beat",
        "_clock",
        "_last_check",
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
        # whether the connection seemed silent at the last check: the next check then decides
        self._last_check = False
        self.last_read = clock.now
        self.suspended = False  # whether reading is paused: a client that sends then seems silent

    def start(self, pace: HeartbeatIntervals) -> None:
        """Start the timers with these intervals, or change the intervals."""
        self.stop()
        self._pace = pace
        self.last_read = now = self._clock.now
        if pace.send:
            self._timers["send"] = self._clock.call_at(now + int(pace.send * EARLY), self._may_beat)
        if pace.ttl:
            self._timers["ttl"] = self._clock.call_at(now + pace.ttl, self._may_end)

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            cancel(timer)
        self._timers.clear()

    def break_cycles(self) -> None:
        """The connection is closed: stop, and drop the callbacks."""
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
        if seems_silent and self._last_check:
            self._timers.pop("ttl", None)
            self._silent(self._pace.ttl)
            return
        self._last_check = seems_silent
        self._timers["ttl"] = self._clock.call_at(self.last_read + self._pace.ttl, self._may_end)


class Reading:
    """Pauses and resumes reading from one connection. Reading pauses while at least one of three reasons applies.

    The session pauses reading while it is blocked or a login is checked. The outbox sets ``throttled`` while a client
    that requests receipts does not read them, so that receipts cannot fill the memory. ``suspended`` is set while other
    connections are served, after a time slice of this connection.
    """

    __slots__ = ("_paused", "_wire", "throttled", "suspended")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._paused = False
        self.throttled = False
        self.suspended = False

    @property
    def stopped(self) -> bool:
        """Whether the outbox or a time slice pauses reading. False if only the session does."""
        return self.throttled or self.suspended

    def pause(self) -> None:
        """Pause while the session waits."""
        self._paused = True
        self._wire.pause_reading()

    def resume(self) -> None:
        """End `pause`."""
        self._paused = False
        self._read_again()

    def throttle(self) -> None:
        """Pause while the outbox holds too many answers."""
        self.throttled = True
        self._wire.pause_reading()

    def unthrottle(self) -> None:
        """End `throttle`."""
        self.throttled = False
        self._read_again()

    def suspend(self) -> None:
        """Pause while other connections have their time slice."""
        self.suspended = True
        self._wire.pause_reading()

    def unsuspend(self) -> None:
        """End `suspend`."""
        self.suspended = False
        self._read_again()

    def end(self) -> None:
        """The connection is closed: `unthrottle` and `unsuspend` do not resume it."""
        self._paused = True

    def _read_again(self) -> None:
        if not (self._paused or self.throttled or self.suspended):
            self._wire.resume_reading()


log = logging.getLogger(__name__)

#: Milliseconds for which a full outbox may be stuck before its client counts as slow: longer than a pause of the
#: network or of a garbage collector.
SLOW: Final = 10_000


class SlowReaders:
    """The outboxes whose sockets accept no data. One timer checks all of them; without such outboxes it stops."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Outbox, int] = {}  # when the socket stopped accepting data (ms, steady clock)
        self._known: set[Outbox] = set()  # slow connections that were logged
        self._timer: Timer | None = None

    @property
    def count(self) -> int:
        """The number of slow connections."""
        return sum(map(self.is_slow, self._since))

    def is_slow(self, outbox: Outbox) -> bool:
        """Return whether the outbox is full and its client has not read everything for `SLOW` milliseconds."""
        since = self._since.get(outbox)
        return since is not None and outbox.capacity <= 0 and self._clock.now - since >= SLOW

    def enter(self, outbox: Outbox) -> None:
        """Add an outbox whose socket accepts no more data."""
        self._since[outbox] = self._clock.now
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now + SLOW, self._check)

    def leave(self, outbox: Outbox) -> None:
        """Remove an outbox whose socket has accepted all data."""
        self._since.pop(outbox, None)
        self._known.discard(outbox)

    def forget(self, outbox: Outbox) -> None:
        """Remove the outbox of a closed connection."""
        self.leave(outbox)
        if not self._since:
            cancel(self._timer)
            self._timer = None

    def _check(self) -> None:
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
            self._timer = self._clock.call_at(now + SLOW, self._check)


class InProgress(Exception):
    """The work of a frame runs in time slices. The session processes the next frame when this work is complete."""


class Blocked(Exception):
    """A frame cannot be processed yet: the session retries it when ``limit`` is no longer full, or after
    ``milliseconds``. ``offered``: for a SEND, its unfinished evaluation by policies, which the retry continues.
    """

    def __init__(
        self,
        address: Address,
        limit: MemoryLimit | None,
        milliseconds: int = 0,
        offered: Any = None,
    ) -> None:
        super().__init__()
        assert limit is not None or milliseconds > 0, "neither a limit nor a time to wait for"
        self.address = address
        self.limit = limit
        self.milliseconds = milliseconds
        self.offered = offered


#: Default of ``outboxSize``: bytes buffered for a client's socket at which deliveries to its subscriptions pause. Large
#: enough that a fast client never waits; small enough that ten thousand stuck clients do not fill the memory, and that
#: a deep queue is delivered in time slices of a few milliseconds.
ROOM: Final = 256 * 1024


#: Minimum bytes in an outbox whose long parts are written without a copy, and minimum bytes of a long part.
SCATTER: Final = 64 * 1024
LONG_PART: Final = 32 * 1024


def joined(parts: list[bytes]) -> list[bytes]:
    """Return ``parts`` with runs of short ones joined, and the long ones as they are."""
    found: list[bytes] = []
    short: list[bytes] = []
    for part in parts:
        if len(part) < LONG_PART:
            short.append(part)
            continue
        if short:
            found.append(b"".join(short))
            short = []
        found.append(part)
    if short:
        found.append(b"".join(short))
    return found


class Wire(Protocol):
    """The connection as a session sees it. The server implements it."""

    @property
    def peer(self) -> str:
        """Host and port of the client, for messages and logs."""

    @property
    def host(self) -> str:
        """Host of the client, without its port: common to all connections of a client."""

    @property
    def certificate(self) -> str | None:
        """The subject of the verified client certificate (RFC 4514), None without one."""

    @property
    def carrier(self) -> str:
        """The transport of STOMP: TCP or WebSocket."""

    def write(self, data: bytes) -> None:
        """Send bytes. The wire calls `Outbox.pause` and `Outbox.resume` when the socket is slow."""

    def close(self) -> None:
        """Send the written bytes, then close."""

    def pause_reading(self) -> None:
        """Stop reading from the client."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""


class Outgoing:
    """The outboxes with unwritten frames."""

    def __init__(self, clock: Clock) -> None:
        """``clock`` is the steady clock."""
        self.dirty: list[Outbox] = []
        self.within_read = False  # whether a read is in progress: `flush` is called at its end
        self.clock = clock
        self.slow = SlowReaders(clock)
        self._soon_asked = False

    def flush_soon(self) -> None:
        """Schedule a flush of frames written outside of a read."""
        if not self._soon_asked:
            self._soon_asked = True
            self.clock.soon(self.flush)

    def gather(self, call: Callable[[], None]) -> None:
        """Call ``call``. Then write the frames that it has sent, with one write for each connection."""
        within, self.within_read = self.within_read, True
        try:
            call()
        finally:
            self.within_read = within
            if not within:
                self.flush()

    def flush(self) -> None:
        """Write all frames, with one write for each connection."""
        self._soon_asked = False
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for outbox in dirty:
                outbox.flush()


def _nothing() -> None:
    """Replaces the callbacks of a closed connection, so that they have no effect."""


class Outbox:
    """The unwritten frames for one client, in parts, and the capacity for more.

    Deliveries of MESSAGEs pause when the capacity is used up (``on_full``). Other frames answer the client: if more
    than ``size`` bytes of them wait for a slow socket, the client is not read until the socket has accepted them.
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
        self._answers = 0  # bytes of frames other than MESSAGE that were added since the socket became slow
        self.outgoing = outgoing
        self.on_full = on_full
        self.on_capacity = on_room
        self.parts: list[bytes] = []
        #: joins the parts for a write, and adds the headers of WebSocket; None on other connections
        self.join: Callable[[list[bytes]], bytes] | None = None
        self.dirty = False
        self.paused = False  # whether the send buffer of the socket is full
        # bytes until the outbox is full; code that appends a part subtracts the length of the part
        self.capacity = size
        self.last_write = outgoing.clock.now  # ms of the steady clock, for heart-beats

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
        """Schedule a flush of the parts."""
        self.dirty = True
        outgoing = self.outgoing
        outgoing.dirty.append(self)
        if not outgoing.within_read:
            outgoing.flush_soon()

    def flush(self) -> None:
        """Write all parts."""
        self.dirty = False
        parts = self.parts
        if parts:
            self.last_write = self.outgoing.clock.now
            wire = self.wire
            if self.join is not None:
                wire.write(self.join(parts))
            elif self.size - self.capacity < SCATTER:
                wire.write(b"".join(parts))
            else:
                for data in joined(parts):
                    wire.write(data)
            parts.clear()
            if not self.paused and self.capacity < self.size:
                full = self.capacity <= 0
                self.capacity = self.size
                if full:
                    self.on_capacity()

    def pause(self) -> None:
        """The socket is slow: a flush does not restore the capacity until `resume`."""
        if not self.paused:
            self.paused = True
            self.outgoing.slow.enter(self)

    def resume(self) -> None:
        """The socket has accepted all data: restore the capacity, and read the client again."""
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
        """The connection is closed: drop all callbacks."""
        self.on_full = self.on_capacity = _nothing
        self.reading.end()
        self.outgoing.slow.forget(self)
