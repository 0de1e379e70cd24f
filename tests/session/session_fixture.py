"""A session without a socket: what a client writes goes in, what it would read comes out as frames."""

from dataclasses import dataclass, field

from stompring.session.commands import StompSession
from stompring.session.connect import Anonymous
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.settings.model import StompAcceptor
from stompring.stomp.frames import unescape

from ..broker.broker_fixture import BrokerFixture


@dataclass
class Got:
    """A frame from the server."""

    command: str
    headers: dict[str, str]
    body: bytes

    def __getitem__(self, name):
        return self.headers[name]


def parse(data):
    """Server frames, independently of the parser under test. Bare line feeds are heart-beats."""
    frames = []
    while data:
        if data[:1] == b"\n":
            frames.append(Got("", {}, b""))
            data = data[1:]
            continue
        head, _, rest = data.partition(b"\n\n")
        command, *lines = head.split(b"\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers.setdefault(unescape(name, b"1.2").decode(), unescape(value, b"1.2").decode())
        length = headers.get("content-length")
        end = rest.index(b"\0") if length is None else int(length)
        assert rest[end : end + 2] == b"\0\n", "every frame ends in NUL and a line feed"
        frames.append(Got(command.decode(), headers, rest[:end]))
        data = rest[end + 2 :]
    return frames


@dataclass
class RecordingWire:
    """Keeps what is written; reads nothing by itself."""

    peer: str = "203.0.113.1:50000"
    host: str = "203.0.113.1"
    certificate: str | None = None
    carrier: str = "TCP"
    written: bytes = b""
    writes: int = 0
    closed: bool = False
    reading: bool = True
    calls: list[str] = field(default_factory=list)

    def write(self, data):
        self.written += data
        self.writes += 1

    def close(self):
        self.closed = True

    def pause_reading(self):
        self.reading = False
        self.calls.append("pause")

    def resume_reading(self):
        self.reading = True
        self.calls.append("resume")


class Server:
    """A broker with one acceptor, to which clients connect."""

    def __init__(self, settings=None, authenticator=None, acceptor=None, **configuration):
        self.world = BrokerFixture(settings, **configuration)
        options = {"anycast_prefix": ("/queue/",), "multicast_prefix": ("/topic/",)}
        self.acceptor = StompAcceptor("stomp", "127.0.0.1", 0, **(options | (acceptor or {})))
        self.outgoing = Outgoing(self.world.broker.clock)
        self.authenticator = authenticator or Anonymous()
        self.clients = 0

    def client(self, version="1.2", **headers):
        """A client that is connected already; ``version`` None: one that has sent nothing yet."""
        self.clients += 1
        client = Client(self, str(self.clients))
        if version is not None:
            client.say("CONNECT", accept_version=version, host="/", **headers)
            (connected,) = client.read()
            assert connected.command == "CONNECTED", connected
        return client

    @property
    def broker(self):
        return self.world.broker

    @property
    def directory(self):
        return self.world.directory

    def settle_down(self):
        self.world.settle_down()

    def one_turn(self):
        self.world.one_turn()

    def queue(self, name="q"):
        return self.directory.queues[name]

    def address(self, name="q"):
        return self.world.address(name)

    def pass_time(self, milliseconds=0):
        self.world.pass_time(milliseconds)


class Client:
    """One connection."""

    def __init__(self, server, number):
        self.server = server
        self.wire = RecordingWire()
        self.session = StompSession(
            server.world.broker,
            server.acceptor,
            Destinations(server.acceptor),
            server.authenticator,
            self.wire,
            server.outgoing,
            number,
        )

    def write(self, data):
        """One read of the server's socket."""
        self.server.world.broker.clock.refresh()
        self.server.outgoing.within_read = True
        try:
            self.session.receive(data)
        finally:
            self.server.outgoing.within_read = False
            self.server.outgoing.flush()

    def lose(self):
        """The connection breaks."""
        self.session.lost()
        self.server.world.pass_time(0)

    def say(self, command, body=b"", **headers):
        """Send a frame; ``_`` in names stands for ``-``, but not at the beginning or in capitals."""
        self.write(frame(command, body, **headers))

    def send(self, body=b"x", destination="/queue/q", **headers):
        """SEND."""
        self.say("SEND", body, destination=destination, **headers)

    def subscribe(self, destination="/queue/q", id="s", **headers):
        """SUBSCRIBE."""
        self.say("SUBSCRIBE", destination=destination, id=id, **headers)

    def begin(self, transaction="t", **headers):
        """BEGIN."""
        self.say("BEGIN", transaction=transaction, **headers)

    def commit(self, transaction="t", **headers):
        """COMMIT."""
        self.say("COMMIT", transaction=transaction, **headers)

    def abort(self, transaction="t", **headers):
        """ABORT."""
        self.say("ABORT", transaction=transaction, **headers)

    def ack(self, id, **headers):
        """ACK."""
        self.say("ACK", id=id, **headers)

    def read(self):
        """The frames that came since the last time."""
        data, self.wire.written = self.wire.written, b""
        return parse(data)

    def one(self, command):
        (got,) = self.read()
        assert got.command == command, got
        return got

    def error(self):
        """The one ERROR that came last, after which the connection was closed."""
        got = self.read()[-1]
        assert got.command == "ERROR", got
        assert self.wire.closed and self.session.closed
        return got

    def bodies(self):
        return [got.body for got in self.read() if got.command == "MESSAGE"]


def frame(command, body=b"", **headers):
    lines = [command.encode()]
    for name, value in headers.items():
        wire_name = name if name.startswith(("_", "AMQ", "JMSX")) else name.replace("_", "-")
        lines.append(f"{wire_name}:{value}".encode())
    if body:
        lines.append(b"content-length:%d" % len(body))
    return b"\n".join(lines) + b"\n\n" + body + b"\0"
