"""A broker service in memory: listeners without sockets, a store, and a clock that the test turns.

`World` is the reactor: its time passes only while somebody waits for something. `Service` is a broker in it, made by
`BrokerService` from a broker.xml; it can be stopped, killed and started again on the same data. Clients are the same as
those of a broker process.
"""

from __future__ import annotations

import gc
import logging
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IPushProducer, ITransport
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from stompring.server.persistence import Persistence
from stompring.server.service import BrokerService
from stompring.settings.broker_xml import read_broker_xml
from stompring.store.datadir import DataLock
from stompring.store.files import Files

from .management import Management
from .stomp_client import StompClient
from .websocket_client import WebSocketDialogue

#: Bytes on the way to a client that does not read, as the buffers of its socket have room for them.
ROOM = 1 << 20

#: The most bytes of one read of a socket.
READ = 1 << 16

_client_ports = count(50_000)


class ThreadPool:
    """A pool whose work is done at once."""

    def callInThreadWithCallback(
        self, done: Callable[[bool, object], None], work: Callable[..., object], *a: object, **k: object
    ) -> None:
        """See IThreadPool."""
        try:
            result = work(*a, **k)
        except Exception:
            done(False, Failure())
        else:
            done(True, result)


class Port:
    """A listener."""

    def __init__(self, world: World, number: int, factory: Any) -> None:
        self._world = world
        self.number = number
        self.factory = factory

    def getHost(self) -> IPv4Address:
        """See IListeningPort."""
        return IPv4Address("TCP", "127.0.0.1", self.number)

    def stopListening(self) -> Deferred[None]:
        """See IListeningPort."""
        self._world.ports.pop(self.number, None)
        return succeed(None)


class World(Clock):
    """Time, ports and threads of services in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.rightNow = time.time()
        self.ports: dict[int, Port] = {}
        self.connections: list[Transport] = []
        self._thread = threading.get_ident()
        self.settle: list[Callable[[], None]] = []  # each waits for the disk of a service
        self._from_threads: deque[Callable[[], object]] = deque()
        self._numbers = count(40_000)

    # ---- see Time

    def now(self) -> float:
        """Epoch seconds."""
        return self.seconds()

    def steady(self) -> float:
        """The same: nobody sets this clock."""
        return self.seconds()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.until(lambda: False, seconds)

    # ---- time passes

    def turn(self) -> None:
        """All happens that is due now."""
        assert threading.get_ident() == self._thread, "a service in memory has one thread"
        while True:
            self.advance(0)
            for settle in list(self.settle):
                settle()
            while self._from_threads:
                self._from_threads.popleft()()
            due = self._next()
            if due is None or due > self.rightNow:
                return

    def until(self, happened: Callable[[], object], seconds: float) -> bool:
        """Let time pass, at most ``seconds``, until something has happened; whether it has."""
        end = self.rightNow + max(0.0, seconds)
        while True:
            self.turn()
            if happened():
                return True
            if self.rightNow >= end:
                return False
            due = self._next()
            self.rightNow = end if due is None else min(due, end)

    def _next(self) -> float | None:
        return min((call.getTime() for call in self.getDelayedCalls()), default=None)

    # ---- see IReactorTCP, IReactorThreads

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Port:
        """See IReactorTCP."""
        number = port or next(self._numbers)
        factory.doStart()
        self.ports[number] = Port(self, number, factory)
        return self.ports[number]

    def getThreadPool(self) -> ThreadPool:
        """See IReactorThreads."""
        return ThreadPool()

    def callFromThread(self, call: Callable[..., object], *arguments: object) -> None:
        """See IReactorThreads."""
        self._from_threads.append(lambda: call(*arguments))

    # ---- clients

    def connect(self, port: int) -> MemoryWire:
        """A connection to a port of a service."""
        if port not in self.ports:
            raise ConnectionRefusedError(f"nobody listens on {port}")
        self.connections = [each for each in self.connections if not each.lost]
        self.connections.append(Transport(self, self.ports[port]))
        return MemoryWire(self, self.connections[-1])


@implementer(ITransport, IConsumer, IPushProducer)
class Transport:
    """The service's end of a connection. ``unread`` is on its way to the client."""

    def __init__(self, world: World, port: Port) -> None:
        self._world = world
        self._port = port
        self._peer = IPv4Address("TCP", "127.0.0.1", next(_client_ports))
        self._arrived = bytearray()
        self._reading = True
        self._gone: Exception | None = None  # the client has closed, or the connection is lost
        self._closing = False
        self._producer: Any = None
        self._paused = False  # that producer
        self.unread = bytearray()
        self.lost = False
        self.disconnecting = False
        self.protocol = port.factory.buildProtocol(self._peer)
        if self.protocol is None:
            self.lost = True
        else:
            self.protocol.makeConnection(self)

    def getPeer(self) -> IPv4Address:
        return self._peer

    def getHost(self) -> IPv4Address:
        return self._port.getHost()

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def setTcpKeepAlive(self, enabled: bool) -> None:
        pass

    def getHandle(self) -> Transport:
        """The socket, as far as its state is asked for."""
        return self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """TCP_INFO begins with the state: established, or closed by the client."""
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        return bytes((1 if self._gone is None else 8,))

    # ---- to the client

    def write(self, data: bytes) -> None:
        if not self.lost:
            self.unread += data
            if len(self.unread) > ROOM and self._producer is not None and not self._paused:
                self._paused = True
                self._producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming, "what is sent here is pushed"
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None
        self._close_when_sent()

    def loseConnection(self) -> None:
        self._closing = self.disconnecting = True
        self._close_when_sent()

    def loseWriteConnection(self) -> None:
        self.loseConnection()

    def abortConnection(self) -> None:
        self.lose(ConnectionAborted())

    def _close_when_sent(self) -> None:
        if self._closing and self._producer is None and len(self.unread) <= ROOM:
            self._world.callLater(0, self.lose, ConnectionDone())

    def taken(self) -> bytes:
        """The client reads all."""
        data = bytes(self.unread)
        self.unread.clear()
        if self._paused:
            self._world.callLater(0, self._resume_producer)
        self._close_when_sent()
        return data

    def _resume_producer(self) -> None:
        self._paused = False
        if self._producer is not None and not self.lost:
            self._producer.resumeProducing()

    # ---- from the client

    def pauseProducing(self) -> None:
        self._reading = False

    def resumeProducing(self) -> None:
        self._reading = True
        self._world.callLater(0, self._read)

    def stopProducing(self) -> None:
        self.loseConnection()

    def arrive(self, data: bytes) -> None:
        """The client has sent something."""
        if self._gone is None:
            self._arrived += data
            self._world.callLater(0, self._read)

    def end(self, reason: Exception) -> None:
        """The client is gone, after all that it has sent."""
        if self._gone is None:
            self._gone = reason
            self._world.callLater(0, self._read)

    def _read(self) -> None:
        if not self._reading or self.lost:
            return
        if self._arrived:
            data = bytes(self._arrived[:READ])
            del self._arrived[:READ]
            self._world.callLater(0, self._read)
            self.protocol.dataReceived(data)
        elif self._gone is not None:
            self.lose(self._gone)

    def lose(self, reason: Exception) -> None:
        """The connection ends now."""
        if not self.lost:
            self.lost = True
            self._producer = None
            self.protocol.connectionLost(Failure(reason))


class MemoryWire:
    """The client's end of a connection; see `Wire`."""

    def __init__(self, world: World, transport: Transport) -> None:
        self._world = world
        self._transport = transport
        world.turn()

    @property
    def name(self) -> str:
        """Host and port of the client."""
        peer = self._transport.getPeer()
        return f"{peer.host}:{peer.port}"

    def send(self, data: bytes) -> None:
        self._transport.arrive(data)
        self._world.turn()

    def receive(self, seconds: float) -> bytes:
        transport = self._transport
        if not self._world.until(lambda: transport.unread or transport.lost, seconds):
            raise TimeoutError
        data = transport.taken()
        self._world.turn()
        return data

    def finish(self) -> None:
        """Send nothing more."""
        self._transport.end(ConnectionDone())
        self._world.turn()

    def kill(self) -> None:
        self._transport.end(ConnectionLost())
        self._world.turn()

    def close(self) -> None:
        """As TCP does: what was not read makes it a reset."""
        self._transport.end(ConnectionLost() if self._transport.unread else ConnectionDone())
        self._world.turn()


def _while_it_lives(name: str) -> Callable[..., None]:
    def change(files: LiveFiles, *arguments: object) -> None:
        if not files.ended:
            getattr(Files, name)(files, *arguments)

    return change


class LiveFiles(Files):
    """Files of a process that lives; what it writes after its end is nowhere. No power fails, and nothing is synced."""

    def __init__(self) -> None:
        self.ended = False

    def write(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        return len(data) if self.ended else super().write(descriptor, data, at)

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass

    truncate, remove, rename, move, remove_directory = map(
        _while_it_lives, ("truncate", "remove", "rename", "move", "remove_directory")
    )

    def replace(self, path: Path, data: bytes) -> None:
        if not self.ended:
            self.make_directory(path.parent)
            path.write_bytes(data)


class Service:
    """A broker in memory: ``start``, then `stop`, `kill`, and ``start`` again on the same ``data``.

    Its configuration is ``broker.xml`` in ``directory``. Without a ``data`` directory it has no store.
    """

    def __init__(self, directory: Path, data: Path | None = None, world: World | None = None) -> None:
        self.world = self.time = world or World()
        self.config = directory / "broker.xml"
        self.data = data
        self.may_fault = False  # a test provokes faults that are logged with their traceback
        self.ports: dict[str, int] = {}
        self.log: list[str] = []
        self._service: BrokerService | None = None
        self._persistence: Persistence | None = None
        self._files = LiveFiles()
        self._lock: DataLock | None = None
        self._handler = _Lines(self.log)

    # ---- life

    def start(self, document: str | None = None) -> Service:
        """Start on a broker.xml, or on the one before. Raises what a broker that does not start says."""
        if document is not None:
            self.config.write_text(document)
        configuration = read_broker_xml(str(self.config))
        if self.data is None:
            configuration = replace(configuration, persistence_enabled=False)
        self._handler.begin()
        self.world.sleep(0.1)  # a start takes a while
        try:
            if configuration.persistence_enabled:
                self._files = LiveFiles()
                self._lock = DataLock(Path(str(self.data)), self._files)
                self._persistence = Persistence(
                    configuration, str(self.data), self.world, self._lock, self._files
                )
                self.world.settle.append(self._settle)
            self._service = BrokerService(configuration, self.world, self._persistence)
            gc.unfreeze()  # what it sets aside for good is that of the whole process
            failures: list[Failure] = []
            self._service.start_listening().addErrback(failures.append)
            self.world.turn()
            if failures:
                failures[0].raiseException()
        except BaseException:
            self._end()
            raise
        self.ports = {name: port for name, _, port in self._service.listening}
        return self

    @property
    def service(self) -> BrokerService:
        """The one that runs."""
        assert self._service is not None, "it does not run"
        return self._service

    @property
    def running(self) -> bool:
        """Whether it does."""
        return self._service is not None

    def stop(self) -> None:
        """Stop it in good order; fails where the log tells of a fault of the broker's own."""
        if self._service is None:
            return
        stopped: list[object] = []
        self._service.stop_listening().addBoth(stopped.append)
        assert self.world.until(lambda: stopped, 30), "the broker does not stop"
        assert stopped[0] is None or not isinstance(stopped[0], Failure), stopped[0]
        self.world.sleep(1)  # connections close
        self._end()
        log = "\n".join(self.log)
        assert self.may_fault or "Traceback" not in log, log
        assert "Internal error" not in log, log

    def kill(self) -> None:
        """End it, alone in its world, as SIGKILL does: nothing is written any more, and clients are cut off."""
        self._files.ended = True
        for call in self.world.getDelayedCalls():
            call.cancel()
        self.world.ports.clear()
        for connection in self.world.connections:
            connection.lost = True
        if self._persistence is not None:
            self._persistence.pool.stop()
        self._end()

    def _end(self) -> None:
        self._handler.end()
        if self._settle in self.world.settle:
            self.world.settle.remove(self._settle)
        if self._lock is not None:
            self._lock.release()
        self._service = self._persistence = self._lock = None

    def _settle(self) -> None:
        assert self._persistence is not None
        for disk in (self._persistence.pool.reading, self._persistence.pool.writing) * 2:
            disk.finish()

    # ---- words

    @property
    def port(self) -> int:
        """Where it speaks STOMP."""
        return self.ports["stomp"]

    def client(self, version: str = "1.2", port: int | None = None, **more: Any) -> StompClient:
        """A dialogue with it, which has not said anything yet."""
        return StompClient(
            version=version, wire=self.world.connect(port or self.port), time=self.world, **more
        )

    def websocket(self, version: str = "1.2", port: int | None = None, **more: Any) -> WebSocketDialogue:
        """As `client`, over WebSocket."""
        wire = self.world.connect(port or self.port)
        return WebSocketDialogue(version=version, wire=wire, time=self.world, **more)

    def management(self, login: tuple[str, str] | None = None) -> Management:
        """Its management API."""
        return Management(
            login=login, open_wire=lambda: self.world.connect(self.ports["http"]), time=self.world
        )

    def reload(self, document: str | None = None) -> str:
        """Read the broker.xml again, another one where it is given; the line of the log that tells the outcome."""
        if document is not None:
            self.config.write_text(document)
        seen = len(self.log)
        self.service.reload()
        return self.wait_for_log(r"configuration reloaded|cannot reload the configuration", after=seen)

    def wait_for_log(self, pattern: str, after: int = 0) -> str:
        """The first line from number ``after`` on in which the regular expression is found."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [line for line in self.log[after:] if re.search(pattern, line)]
            return bool(found)

        assert self.world.until(look, 30), f"no log line matches {pattern!r}:\n" + "\n".join(self.log)
        return found[0]


class _Lines(logging.Handler):
    """Keeps what a service logs, in the format of ``stompring run``."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        self._lines = lines
        self._logger = logging.getLogger("stompring")

    def begin(self) -> None:
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        globalLogPublisher.addObserver(self._failed)

    def end(self) -> None:
        self._logger.removeHandler(self)
        globalLogPublisher.removeObserver(self._failed)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.extend(self.format(record).split("\n"))

    def _failed(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            self._lines.extend(failure.getTraceback().split("\n"))
