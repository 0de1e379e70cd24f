"""The reactor of the broker: Twisted's epoll reactor with reads and writes in rounds, and its TCP transports.

A *round* is one poll with the handling of its events, or one run of the due timers and of the calls from threads. At
the end of a round each connection makes one write of all data written to it within the round. Only data that the
socket does not accept waits for EPOLLOUT. The stock reactor registers each writer with epoll and writes in the next
iteration, at the cost of two calls of epoll_ctl(2) and one of epoll_wait(2) for each answer.

This applies to accepted TCP connections. Clients, UNIX sockets, processes and wakers use Twisted's own code.

The reactor needs private names of Twisted: attributes of an `EPollReactor` that stay the same objects after its
constructor. If the installed Twisted lacks one, the broker runs on the stock reactor.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from select import EPOLLIN
from time import perf_counter
from typing import Any

from twisted import __version__ as twisted_version
from twisted.internet import tcp
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.logger import Logger

#: The private names, and a check of the attribute with each name.
PRIVATE_NAMES: dict[str, Callable[[object], bool]] = {
    "_poller": lambda found: hasattr(found, "poll"),  # the epoll object: polled once a round
    "_selectables": lambda found: isinstance(found, dict),  # readers and writers by descriptor
    "_doReadOrWrite": callable,  # handles every event except the plain EPOLLIN of an accepted connection
    "_internalReaders": lambda found: isinstance(found, set),  # the waker
    "_disconnectSelectable": callable,  # ends a connection, or one half of it, after a failed read or write
}


class UnknownTwisted(Exception):
    """The installed Twisted lacks private names."""


#: ``select.epoll.poll``: takes seconds and the maximum number of events, returns descriptors and events.
Poll = Callable[[float, int], list[tuple[int, int]]]


def check_names(reactor: EPollReactor) -> None:
    """Check `PRIVATE_NAMES`. Raises `UnknownTwisted` if one is missing or has an unexpected type."""
    missing = [name for name, usable in PRIVATE_NAMES.items() if not usable(getattr(reactor, name, None))]
    if missing:
        raise UnknownTwisted(f"Twisted {twisted_version} lacks {', '.join(missing)}")


def call_before_events(reactor: Any, call: Callable[[], object]) -> None:
    """Make a stock reactor call ``call`` before each event that it handles, and before its timers."""
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

#: Maximum number of events of one round. epoll returns the remaining ready descriptors first in the next round.
MAX_EVENTS = 64

#: Bytes that one round reads, divided equally among the ready connections, and the minimum for each connection. Clients
#: that flood the broker delay other clients by one round. A round with eight such clients is as long as one with one.
ROUND_READ, MIN_READ = 128 * 1024, 16 * 1024

#: Maximum bytes of a read within a long frame, if no other connection is ready. Larger reads of many short frames would
#: delay other clients.
LONG_READ = 1024 * 1024

#: Minimum bytes of a write whose parts are not joined, and the maximum number of its parts.
SCATTER, MAX_PARTS = 128 * 1024, 512

#: Seconds for which a poll is repeated, if the poll before it has waited for less: the kernel takes as long to wake a
#: thread.
SPIN = 100e-6

#: Minimum and maximum number of polls that are neither repeated nor timed, after repeated polls without an event or a
#: poll with several events. The number doubles with each failure, and halves with each success: so 5,000 events per
#: second, which are further apart, do not keep the processor busy.
REST, MAX_REST = 32, 1024

#: Writing state of a connection: not waiting, waiting for the end of the round, waiting for EPOLLOUT.
IDLE, ROUND, SOCKET = 0, 1, 2


class RoundsReactor(EPollReactor):
    """The reactor with rounds. `stompring.server.reactor.use_reactor` installs it."""

    def __init__(self) -> None:
        """Create the reactor. Raises `UnknownTwisted`."""
        super().__init__()  # type: ignore[no-untyped-call]
        check_names(self)
        self._before: list[Callable[[], object]] = []
        self._at_end: list[Callable[[], object]] = []
        self.unwritten: list[RoundsConnection] = []  # connections that write at the end of this round
        self.read_share = ROUND_READ  # maximum bytes that each connection reads in this round
        self.poll: Poll = self._poller.poll
        self.now: Callable[[], float] = perf_counter
        self._may_spin = len(os.sched_getaffinity(0)) > 1  # on one processor it would only delay the client
        self._spins = False
        self._rest = 0  # number of further polls that are not repeated
        self._next_rest = REST  # value of ``_rest`` after the next failure

    def dispose(self) -> None:
        """Close the descriptors of a reactor that has not run."""
        for reader in self._internalReaders:
            reader.connectionLost(None)
        self._poller.close()

    # ---- rounds

    def call_at_round_end(self, call: Callable[[], object]) -> None:
        """Call ``call`` once, before the writes of this round. Not thread-safe."""
        self._at_end.append(call)

    def call_before_rounds(self, call: Callable[[], object]) -> None:
        """Call ``call`` before the events of each poll and before the timers of each round from now on."""
        self._before.append(call)

    def is_idle(self) -> bool:
        """Return whether epoll reports no event."""
        return not self.poll(0, 1)

    def doPoll(self, timeout: float | None) -> None:
        """Run a round: poll, handle the events, write."""
        wait = -1 if timeout is None else timeout
        events = self._spin(wait) if self._spins else self._wait(wait)
        for call in self._before:
            call()
        by_descriptor = self._selectables
        self.read_share = max(MIN_READ, ROUND_READ // (len(events) or 1))
        for descriptor, event in events:
            selectable = by_descriptor.get(descriptor)
            if selectable is None:
                continue  # the connection was removed earlier in this round
            if event == EPOLLIN and type(selectable) is RoundsConnection:
                try:
                    why = selectable.doRead()
                except BaseException as fault:  # as in Twisted, log the exception and end the connection
                    why = fault
                    log.failure("while reading from {connection}", connection=selectable)
                if why:
                    self._disconnectSelectable(selectable, why, True)  # type: ignore[no-untyped-call]
            else:
                self._doReadOrWrite(selectable, descriptor, event)  # type: ignore[no-untyped-call]
        if self._at_end or self.unwritten:
            self._end_round()

    doIteration = doPoll

    def _wait(self, timeout: float) -> list[tuple[int, int]]:
        """Wait for events, for at most ``timeout`` seconds, -1: without limit."""
        if self._rest:
            self._rest -= 1
            return self.poll(timeout, MAX_EVENTS)
        begun = self.now()
        events = self.poll(timeout, MAX_EVENTS)
        if len(events) > 1:  # of several clients the next poll finds more if it comes later
            self._rest = REST
        elif events:
            self._spins = self._may_spin and self.now() - begun < SPIN
        return events

    def _spin(self, timeout: float) -> list[tuple[int, int]]:
        """Look for events for `SPIN` seconds without sleep, then wait for them."""
        events = self.poll(0, MAX_EVENTS)
        if not events and timeout:
            end = self.now() + (SPIN if timeout < 0 else min(timeout, SPIN))
            while not events and self.now() < end:
                events = self.poll(0, MAX_EVENTS)
            if not events:
                self._spins = False
                self._rest, self._next_rest = self._next_rest, min(MAX_REST, 2 * self._next_rest)
                return self.poll(-1 if timeout < 0 else max(0.0, timeout - SPIN), MAX_EVENTS)
            self._next_rest = max(REST, self._next_rest // 2)
        if len(events) > 1:
            self._spins = False
            self._rest = REST
        return events

    def runUntilCurrent(self) -> None:
        """Run a round without a poll: due timers and calls from threads."""
        for call in self._before:
            call()
        super().runUntilCurrent()
        if self._at_end or self.unwritten:
            self._end_round()

    def timeout(self) -> float | None:
        """Return the timeout of the next poll in seconds: 0 if calls or writes wait for the end of a round."""
        return 0 if self._at_end or self.unwritten else super().timeout()

    def stop(self) -> None:
        super().stop()
        self.wakeUp()  # a call at the end of a round may stop the reactor: the next poll must not wait

    def _end_round(self) -> None:
        """Run the calls, then the writes. Calls and writes caused by these wait for the end of the next round."""
        calls, self._at_end = self._at_end, []
        for call in calls:
            try:
                call()
            except BaseException:
                log.failure("at the end of a round: {call}", call=call)
        unwritten, self.unwritten = self.unwritten, []
        for connection in unwritten:
            if connection.waits != ROUND:
                continue  # the connection was aborted
            connection.waits = IDLE
            try:
                why = connection.doWrite()
            except BaseException as fault:
                why = fault
                log.failure("while writing to {connection}", connection=connection)
            if why:
                self._disconnectSelectable(connection, why, False)  # type: ignore[no-untyped-call]

    # ---- listeners

    def listenTCP(
        self, port: int, factory: IProtocolFactory, backlog: int = 50, interface: str = ""
    ) -> RoundsPort:
        listening = RoundsPort(port, factory, backlog, interface, self)
        listening.startListening()
        return listening


class RoundsConnection(tcp.Server):
    """An accepted connection that writes at the end of the round.

    ``_parts``: data to write, beginning with the rest that the socket did not accept. Data that Twisted's class writes,
    such as TLS begun by ``startTLS``, goes through Twisted's own buffer after ``_parts``.
    """

    reactor: RoundsReactor
    reads_long = False  # whether the next read continues a long frame; set by the protocol in each read

    def __init__(self, *arguments: Any) -> None:
        self.waits = IDLE
        self._parts: list[bytes | memoryview] = []
        self._size = 0  # bytes of all parts together
        self._half_closing = self._half_closed = False
        super().__init__(*arguments)

    def doRead(self) -> Any:
        share = self.reactor.read_share
        if self.reads_long:
            self.reads_long = False
            size = min(LONG_READ, share * 8)
        else:
            size = min(self.bufferSize, share)
        try:
            data = self.socket.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def write(self, data: bytes) -> None:
        """Write at the end of the round. Pause a streaming producer if more than ``bufferSize`` bytes wait."""
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
        parts = self._parts
        written = bool(parts)
        if written:
            try:
                if len(parts) > 1 and self._size >= SCATTER:
                    sent = self.socket.sendmsg(parts[:MAX_PARTS])
                else:
                    if len(parts) > 1:
                        parts[:] = [b"".join(parts)]
                    sent = self.socket.send(parts[0])
            except OSError as fault:
                if fault.errno not in (errno.EWOULDBLOCK, errno.ENOBUFS):
                    return CONNECTION_LOST
                sent = 0
            self._size -= sent
            whole = 0  # number of parts that the socket has accepted
            for data in parts:
                if sent < len(data):
                    break
                sent -= len(data)
                whole += 1
            del parts[:whole]
            if sent:
                parts[0] = memoryview(parts[0])[sent:]
            if parts:
                self._await_socket()
                return None
        resumes = self.producer is not None and (self.producerPaused or not self.streamingProducer)
        if written and not (resumes or self.disconnecting or self._half_closing):
            if self.waits == SOCKET:
                self.stopWriting()
            return None
        if written and resumes and not self.TLS:
            # Twisted's method would send its own buffer first, which is empty
            self.stopWriting()
            self.producerPaused = False
            self.producer.resumeProducing()  # type: ignore[union-attr]
            return None
        # Twisted's method writes its own buffer. If it is empty then, it resumes the producer or ends the connection.
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
        if self.waits == IDLE:
            self.waits = ROUND
            self.reactor.unwritten.append(self)

    def stopWriting(self) -> None:
        if self.waits == SOCKET:
            self.reactor.removeWriter(self)  # type: ignore[no-untyped-call]
        self.waits = IDLE

    def loseWriteConnection(self) -> None:
        self._half_closing = True
        super().loseWriteConnection()  # type: ignore[no-untyped-call]


class RoundsPort(tcp.Port):
    """A listening socket whose connections are `RoundsConnection`."""

    transport = RoundsConnection  # type: ignore[assignment]
