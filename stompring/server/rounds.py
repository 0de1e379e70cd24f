"""The reactor of the broker: sockets are read and written in rounds.

Some private names of Twisted are needed: attributes of an `EPollReactor` that stay the same objects after its
constructor. Where the installed Twisted lacks one, the broker runs on the stock reactor.

The broker's own reactor: Twisted's epoll reactor with another poll round, and TCP transports that fit it.

A *round* is one poll with the handling of its events, or one run of the due timers and of the calls from threads. What
is written within a round goes to the sockets at its end: one write a connection, straight to the socket. Only what a
socket does not accept waits for EPOLLOUT. The stock reactor registers each writer with epoll and writes in the next
iteration, which costs two calls of epoll_ctl(2) and one of epoll_wait(2) for each answer.

Accepted TCP connections work so. All else that Twisted has (clients, UNIX sockets, processes, wakers) is as ever.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from select import EPOLLIN
from typing import Any

from twisted import __version__ as twisted_version
from twisted.internet import tcp
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.logger import Logger

#: The names, and whether what has a name can be used.
PRIVATE_NAMES: dict[str, Callable[[object], bool]] = {
    "_poller": lambda found: hasattr(found, "poll"),  # the epoll object: polled once a round
    "_selectables": lambda found: isinstance(found, dict),  # what is read or written, by descriptor
    "_doReadOrWrite": callable,  # handles every event but the plain EPOLLIN of an accepted connection
    "_internalReaders": lambda found: isinstance(found, set),  # the waker
    "_disconnectSelectable": callable,  # ends a connection, or one half of it, after a failed read or write
}


class UnknownTwisted(Exception):
    """The installed Twisted lacks private names."""


#: ``select.epoll.poll``: seconds and most events, to descriptors and events.
Poll = Callable[[float, int], list[tuple[int, int]]]


def check_names(reactor: EPollReactor) -> None:
    """Raises `UnknownTwisted` where a name is missing, or is something else than expected."""
    missing = [name for name, usable in PRIVATE_NAMES.items() if not usable(getattr(reactor, name, None))]
    if missing:
        raise UnknownTwisted(f"Twisted {twisted_version} lacks {', '.join(missing)}")


def call_before_events(reactor: Any, call: Callable[[], object]) -> None:
    """Have a stock reactor call ``call`` before each event that it handles, and before its timers."""
    handle, run = getattr(reactor, "_doReadOrWrite", None), reactor.runUntilCurrent

    def handle_after(*arguments: Any) -> Any:
        call()
        assert handle is not None
        return handle(*arguments)

    def run_after() -> None:
        call()
        run()

    if handle is not None:
        reactor._doReadOrWrite = handle_after
    reactor.runUntilCurrent = run_after


log = Logger()

#: Events of one round. epoll hands out ready descriptors in turn: what is left comes first in the next round.
MAX_EVENTS = 64

#: Bytes that one round reads, shared by its events, and what each connection may read at least: a client that floods
#: the broker delays the others by a round, and eight of them by a round that is not eight times as long.
ROUND_READ, MIN_READ = 128 * 1024, 16 * 1024

#: How a connection waits to write: not at all, for the end of the round, for EPOLLOUT.
IDLE, ROUND, SOCKET = 0, 1, 2


class RoundsReactor(EPollReactor):
    """See the module. `stompring.server.reactor.use_reactor` installs it."""

    def __init__(self) -> None:
        """Raises `UnknownTwisted`."""
        super().__init__()  # type: ignore[no-untyped-call]
        check_names(self)
        self._at_end: list[Callable[[], object]] = []
        self.unwritten: list[RoundsConnection] = []  # those that have written since the end of the last round
        self.read_share = ROUND_READ  # bytes that a connection may read in this round
        self._poll: Poll = self._poller.poll

    def dispose(self) -> None:
        """Close the descriptors of a reactor that was not run."""
        for reader in self._internalReaders:
            reader.connectionLost(None)
        self._poller.close()

    # ---- rounds

    def call_at_round_end(self, call: Callable[[], object]) -> None:
        """Call ``call`` once, before the writes of this round. Not thread-safe. See `stompring.server.reactor`."""
        self._at_end.append(call)

    def call_before_rounds(self, call: Callable[[], object]) -> None:
        """Call ``call`` before the events of each poll, and the timers of each round, are handled, from now on."""
        poll, run = self._poll, self.runUntilCurrent

        def poll_first(timeout: float, most: int, /) -> list[tuple[int, int]]:
            events = poll(timeout, most)
            call()
            return events

        def call_first() -> None:
            call()
            run()

        self._poll = poll_first
        self.runUntilCurrent = call_first  # type: ignore[method-assign]

    def is_idle(self) -> bool:
        """Whether no event waits to be handled."""
        return not self._poll(0, 1)

    def doPoll(self, timeout: float | None) -> None:
        """Poll, handle the events, end the round."""
        events = self._poll(-1 if timeout is None else timeout, MAX_EVENTS)
        by_descriptor = self._selectables
        self.read_share = max(MIN_READ, ROUND_READ // (len(events) or 1))
        for descriptor, event in events:
            selectable = by_descriptor.get(descriptor)
            if selectable is None:
                continue  # removed earlier in this round
            if event == EPOLLIN and type(selectable) is RoundsConnection:
                try:
                    why = selectable.doRead()
                except BaseException as fault:  # as Twisted: logged, and the connection ends
                    why = fault
                    log.failure("while reading from {connection}", connection=selectable)
                if why:
                    self._disconnectSelectable(selectable, why, True)  # type: ignore[no-untyped-call]
            else:
                self._doReadOrWrite(selectable, descriptor, event)  # type: ignore[no-untyped-call]
        if self._at_end or self.unwritten:
            self._end_round()

    doIteration = doPoll

    def runUntilCurrent(self) -> None:
        """Run what is due: a round without a poll."""
        super().runUntilCurrent()
        if self._at_end or self.unwritten:
            self._end_round()

    def timeout(self) -> float | None:
        """Seconds for the next poll; 0 where something waits for the end of a round."""
        return 0 if self._at_end or self.unwritten else super().timeout()

    def stop(self) -> None:
        """See IReactorCore. It may come at the end of the timers' round, when only a poll lies ahead."""
        super().stop()
        self.wakeUp()

    def _end_round(self) -> None:
        """Calls first, then writes. What these bring about waits for the end of the next round, after a poll."""
        calls, self._at_end = self._at_end, []
        for call in calls:
            try:
                call()
            except BaseException:
                log.failure("at the end of a round: {call}", call=call)
        unwritten, self.unwritten = self.unwritten, []
        for connection in unwritten:
            if connection.waits != ROUND:
                continue  # aborted
            connection.waits = IDLE
            try:
                why = connection.doWrite()
            except BaseException as fault:
                why = fault
                log.failure("while writing to {connection}", connection=connection)
            if why:
                self._disconnectSelectable(connection, why, False)  # type: ignore[no-untyped-call]

    # ---- what listens

    def listenTCP(
        self, port: int, factory: IProtocolFactory, backlog: int = 50, interface: str = ""
    ) -> RoundsPort:
        listening = RoundsPort(port, factory, backlog, interface, self)
        listening.startListening()
        return listening


class RoundsConnection(tcp.Server):
    """An accepted connection that writes at the end of the round.

    ``_parts`` is what is not written yet: what `write` got, or first the rest of what the socket did not accept. What
    Twisted's class writes by itself, as TLS begun by ``startTLS``, goes through its own buffer after that.
    """

    reactor: RoundsReactor

    def __init__(self, *arguments: Any) -> None:
        self.waits = IDLE
        self._parts: list[bytes | memoryview] = []
        self._size = 0  # bytes of them
        self._half_closing = self._half_closed = False
        super().__init__(*arguments)

    def doRead(self) -> Any:
        try:
            data = self.socket.recv(min(self.bufferSize, self.reactor.read_share))
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def write(self, data: bytes) -> None:
        """See ITransport. A streaming producer is paused when more than ``bufferSize`` bytes wait."""
        if self.TLS:
            super().write(data)  # type: ignore[no-untyped-call]
            return
        if type(data) is not bytes:
            raise TypeError("Data must be bytes")
        if not data or not self.connected or self._half_closed:
            return
        self._parts.append(data)
        self._size = size = self._size + len(data)
        if self.waits == IDLE:
            self.waits = ROUND
            self.reactor.unwritten.append(self)
        if size > self.bufferSize and self.producer is not None and self.streamingProducer:
            self.producerPaused = True
            self.producer.pauseProducing()  # type: ignore[attr-defined]

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        for data in iovec:
            self.write(data)

    def doWrite(self) -> Any:
        """See IWriteDescriptor: at the end of a round, or when the socket accepts more."""
        parts = self._parts
        written = bool(parts)
        if written:
            data = parts[0]
            if len(parts) > 1 and len(data) < self.SEND_LIMIT:
                data = b"".join(parts)
                parts.clear()
                parts.append(data)
            try:
                sent = self.socket.send(data)
            except OSError as fault:
                if fault.errno not in (errno.EWOULDBLOCK, errno.ENOBUFS):
                    return CONNECTION_LOST
                sent = 0
            self._size -= sent
            if sent == len(data):
                del parts[0]
            elif sent:
                parts[0] = memoryview(data)[sent:]
            if parts:
                self._await_socket()
                return None
        resumes = self.producer is not None and (self.producerPaused or not self.streamingProducer)
        if written and not (resumes or self.disconnecting or self._half_closing):
            if self.waits == SOCKET:
                self.stopWriting()
            return None
        # Twisted's own buffer, and what follows when everything is written: a producer resumes, a connection ends
        why = super().doWrite()  # type: ignore[no-untyped-call]
        if self.dataBuffer:
            self._await_socket()
        elif self._half_closing and not resumes and not self.disconnecting:
            self._half_closed = True
        return why

    def _await_socket(self) -> None:
        if self.waits != SOCKET:
            self.waits = SOCKET
            self.reactor.addWriter(self)  # type: ignore[no-untyped-call]

    def startWriting(self) -> None:
        """Write at the end of this round."""
        if self.waits == IDLE:
            self.waits = ROUND
            self.reactor.unwritten.append(self)

    def stopWriting(self) -> None:
        """Write nothing more for now."""
        if self.waits == SOCKET:
            self.reactor.removeWriter(self)  # type: ignore[no-untyped-call]
        self.waits = IDLE

    def loseWriteConnection(self) -> None:
        """See IHalfCloseableDescriptor: close this direction when everything is written."""
        self._half_closing = True
        super().loseWriteConnection()  # type: ignore[no-untyped-call]


class RoundsPort(tcp.Port):
    """A listening socket whose connections are `RoundsConnection`."""

    transport = RoundsConnection  # type: ignore[assignment]
