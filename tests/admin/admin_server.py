"""A whole broker service in memory: its HTTP and STOMP listeners, a clock turned by hand, no socket."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.client import HTTPResponse
from io import BytesIO
from types import SimpleNamespace
from urllib.parse import quote

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from stompring.admin.http import admin_site
from stompring.server.protocol import StompFactory
from stompring.server.service import BrokerService
from stompring.settings.model import (
    AddressSettingEntry,
    BrokerConfiguration,
    HttpAcceptor,
    QueueConfiguration,
    RoutingType,
    StompAcceptor,
)

from ..security.hashers import QUICK
from ..websocket_client import BINARY, piece_bytes
from .described import check

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST
STOMP_PORT, HTTP_PORT = 61613, 8161

#: Seconds since the epoch at which the clock begins.
BEGIN = 1_700_000_000


class Threads:
    """A thread pool that does everything at once."""

    def callInThreadWithCallback(self, done, work, *a):
        """See IThreadPool."""
        try:
            result = work(*a)
        except Exception:
            done(False, Failure())
        else:
            done(True, result)


class TestReactor(MemoryReactorClock):
    """Listeners and time in memory."""

    __test__ = False

    def getThreadPool(self):
        """See IReactorThreads."""
        return Threads()

    def callFromThread(self, call, *arguments):
        """See IReactorThreads."""
        call(*arguments)


class Wire(StringTransport):
    """A transport with the parts of TCP that the listeners ask for."""

    def __init__(self, port):
        super().__init__(
            hostAddress=IPv4Address("TCP", "127.0.0.1", port),
            peerAddress=IPv4Address("TCP", "127.0.0.1", 50_000),
        )

    def setTcpNoDelay(self, enabled):
        """See ITCPTransport."""

    def setTcpKeepAlive(self, enabled):
        """See ITCPTransport."""


@dataclass(frozen=True)
class Reply:
    """An answer that came back over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()


class _Received:
    """What http.client wants of a socket."""

    def __init__(self, data):
        self._data = data

    def makefile(self, mode):
        return BytesIO(self._data)


@dataclass
class StoreFigures:
    """What a store and its dispatch say about themselves, without doing anything: each number another one."""

    failing: str | None = "cannot write"
    failures: int = 1
    waiting_bytes: int = 2
    batches: int = 3
    bytes_written: int = 4
    disk_seconds: float = 0.005
    segments: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    bytes: int = 7
    live_bytes: int = 8
    lost_bytes: int = 23
    bytes_read: int = 10
    damaged_pages: int = 11
    lost_messages: int = 12
    limit: int = 13
    used: int = 14
    pending_cache_bytes: int = 15
    head_cache_bytes: int = 16
    direct_entries: int = 17
    reference_entries: int = 18
    watermark_lag: int = 19
    blocks_read: int = 20
    usage: float = 0.21
    free: int = 22

    @property
    def itself(self):
        """Whatever part is asked for."""
        return self

    writer = journal = reads = budget = reading = itself
    compaction = SimpleNamespace(segments=24, rewritten=9)
    retention = SimpleNamespace(files=25, bytes=26, deleted=27, deleted_not_ingested=28)


class AdminServer:
    """The service, and words for what tests ask of it."""

    def __init__(self, settings=None, hasher=QUICK, **configuration):
        self.reactor = TestReactor()
        self.reactor.advance(BEGIN)
        base = BrokerConfiguration(
            security_enabled=False,
            persistence_enabled=False,
            stomp_acceptors=(StompAcceptor("stomp", "127.0.0.1", STOMP_PORT, anycast_prefix=("/queue/",)),),
            http_acceptors=(HttpAcceptor("http", "127.0.0.1", HTTP_PORT),),
            address_settings=tuple(
                AddressSettingEntry(match, values) for match, values in (settings or {}).items()
            ),
        )
        self.service = BrokerService(replace(base, **configuration), self.reactor, hasher=hasher)
        self.broker = self.service.broker
        self.figures = StoreFigures()
        authenticator = self.service.authenticator()
        self._stomp = StompFactory(
            self.broker,
            base.stomp_acceptors[0],
            authenticator,
            self.service.connections,
            self.service.outgoing,
            self.reactor,
        )
        self._http = admin_site(self.service)
        self._other_site = False  # which answers otherwise than the OpenAPI document says
        for name, port, factory in (("stomp", STOMP_PORT, self._stomp), ("http", HTTP_PORT, self._http)):
            self.service.ports.append(self.reactor.listenTCP(port, factory, interface="127.0.0.1"))
            self.service.listening.append((name, "127.0.0.1", port))
        self._stomp.requests = self.service.management
        self.directory = self.broker.directory
        self.headers = {}  # of every request

    def set_store_figures(self):
        """As with persistence, as far as numbers go."""
        figures = self.figures
        service = self.service
        service.store = service.paging = service.dispatch = service.disk_monitor = figures

    def set_listener_figures(self):
        """As with TLS and the PROXY protocol, as far as numbers go."""
        certificate = SimpleNamespace(
            file="b.pem", subject="CN=broker", not_after=datetime.fromtimestamp(BEGIN, UTC)
        )
        listeners = SimpleNamespace(
            tls_failures={"stomp": 29},
            proxy_failures={"stomp": 30},
            identities=lambda: [("stomp", certificate)],
        )
        self.service.listener_stack = listeners

    def queue(self, name="q", address=None, routing_type=ANYCAST, **more):
        return self.directory.create_queue(QueueConfiguration(name, address or name, routing_type, **more))

    def advance(self, seconds=0, times=1):
        """Let time pass, so many times."""
        for _ in range(times):
            self.reactor.advance(seconds)

    # ---- HTTP

    def serve(self, site):
        """Answer requests by another site from now on."""
        self._http, self._other_site = site, True

    def channel(self):
        """A new connection to the HTTP listener."""
        wire, channel = Wire(HTTP_PORT), self._http.buildProtocol(None)
        channel.makeConnection(wire)
        return channel, wire

    def begin(self, method, path, body=None, *, raw=None, headers=None):
        """A connection with a request that has come whole; see `ask`."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {"Host": "localhost", "Connection": "close"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if content:
            sent["Content-Length"] = str(len(content))
        sent |= {**self.headers, **(headers or {})}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in sent.items() if value is not None),
        ]
        channel, wire = self.channel()
        channel.dataReceived("\r\n".join([*lines, "", ""]).encode() + content)
        return channel, wire

    def ask(self, method, path, body=None, *, raw=None, headers=None, step=0):
        """The answer to a request; ``body`` goes as JSON, ``raw`` as it is; a header of ``None`` is left out.

        The answer must be as the OpenAPI document describes it.

        The clock advances by ``step`` seconds with each turn.
        """
        channel, wire = self.begin(method, path, body, raw=raw, headers=headers)
        for _ in range(100_000):
            if wire.disconnecting:
                channel.connectionLost(Failure(ConnectionDone()))
                reply = self.parse(wire.value(), method)
                if not self._other_site:
                    check(method, path, reply)
                return reply
            self.reactor.advance(step)
        raise AssertionError(f"no whole answer to {method} {path}: {wire.value()[:2000]!r}")

    @staticmethod
    def parse(data, method="GET"):
        """One whole answer; what follows it is a fault."""
        response = HTTPResponse(_Received(data), method=method)  # type: ignore[arg-type]
        response.begin()
        body = response.read()
        assert response.fp is None or response.fp.read() == b"", "bytes after the end of the answer"
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def done(self, method, path, body=None, **more):
        """The answer to a request, which succeeds as the OpenAPI document says."""
        reply = self.ask(method, path, body, **more)
        assert reply.status < 300, (reply.status, reply.body)
        return reply

    def get(self, path, **more):
        """The JSON of a successful GET."""
        return self.done("GET", path, **more).json

    def shown(self, queue="q"):
        """A queue."""
        return self.get(path("queues", queue))

    def messages(self, queue="q"):
        """The messages of a queue."""
        return self.get(path("queues", queue, "messages"))["data"]

    def refused(self, status, method, path, body=None, **more):
        """The problem document of a request that is refused so."""
        reply = self.ask(method, path, body, **more)
        assert reply.status == status, (reply.status, reply.body)
        assert reply.headers["content-type"] == "application/problem+json"
        problem = reply.json
        assert problem["status"] == status
        assert problem["instance"] == path
        return problem

    # ---- STOMP

    def stomp(self, websocket=False, /, **headers):
        """A connected client."""
        protocol, wire = self._stomp.buildProtocol(None), Wire(STOMP_PORT)
        protocol.makeConnection(wire)
        client = Stomp(self.reactor, protocol, wire, websocket)
        client.send("CONNECT", **{"accept-version": "1.2", "host": "/", **headers})
        return client


#: How a WebSocket begins.
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n"
)


class Stomp:
    """A STOMP client in memory."""

    def __init__(self, reactor, protocol, wire, websocket=False):
        self.reactor = reactor
        self.protocol = protocol
        self.wire = wire
        self.websocket = websocket
        if websocket:
            protocol.dataReceived(HANDSHAKE)

    @property
    def session(self):
        return self.protocol.session

    def send(self, command, body=b"", **headers):
        """Send a frame; ``_`` in the name of a header is ``-``."""
        named = {
            name.replace("_", "-") if "AMQ" not in name else name: value for name, value in headers.items()
        }
        if body:
            named["content-length"] = str(len(body))
        lines = "".join(f"{name}:{value}\n" for name, value in named.items())
        frame = f"{command}\n{lines}\n".encode() + body + b"\0"
        self.protocol.dataReceived(piece_bytes(BINARY, frame) if self.websocket else frame)
        self.reactor.advance(0)

    def put(self, body=b"x", to="/queue/q", **headers):
        """SEND."""
        self.send("SEND", body, destination=to, **headers)

    def subscribe(self, destination="/queue/q", id="1", **headers):
        """SUBSCRIBE."""
        self.send("SUBSCRIBE", destination=destination, id=id, **headers)

    @property
    def acks(self):
        """The ``ack`` headers of all messages so far."""
        return re.findall(r"\nack:(\S+)\n", self.received.decode("latin-1"))

    def close(self):
        """The connection is gone."""
        self.protocol.connectionLost(Failure(ConnectionDone()))
        self.reactor.advance(0)

    @property
    def received(self):
        """Everything that came so far."""
        return self.wire.value()


def secured(directory, passwords, roles, *entries, **more):
    """A server with these users, and these lines in its file of roles."""
    users, granted = directory / "users.properties", directory / "roles.properties"
    users.write_text("".join(f"{name} = {QUICK.hash(each)}\n" for name, each in passwords.items()))
    granted.write_text(roles)
    return AdminServer(
        security_enabled=True,
        users_file=str(users),
        roles_file=str(granted),
        security_settings=entries,
        **more,
    )


def login_header(user, password):
    """The header of a request by a user."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def path(*segments):
    """A path of the API with its names encoded."""
    return "/api/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def pick(shown, *names):
    """Some values of what was answered."""
    return tuple(shown[name] for name in names)
