"""TLS on a transport in memory: what a session and an HTTP request learn of the client, and what strangers write."""

import ssl

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.resource import Resource

from stompring.admin.http import IDLE, AdminSite, HttpConnectionLimit
from stompring.server.protocol import StompFactory
from stompring.session.connect import Login
from stompring.settings.model import HttpAcceptor, StompAcceptor, Tls

from ..certificates import Authority
from .test_listeners import service_of
from .transport import TcpTransport

LOST = Failure(ConnectionDone())


class Transport(TcpTransport):
    """TLS asks for the end of TCP before it lets go of the producer."""

    def loseConnection(self):
        self.disconnecting = True

    def abortConnection(self):
        self.aborted = True  # TCP's own tells of its end in the next turn of the reactor


class Client:
    """The other end: Python's own TLS, with bytes carried to and fro by hand."""

    def __init__(self, protocol, context, name="localhost"):
        self.protocol = protocol
        self.transport = Transport(Clock())
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)
        self._until_done(self._tls.do_handshake)

    def say(self, data):
        self._tls.write(data)
        self._carry()

    def end(self):
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._carry()

    def hear(self):
        self._carry()
        heard = b""
        while True:
            try:
                some = self._tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return heard
            if not some:
                return heard
            heard += some

    def _until_done(self, step):
        for _ in range(10):
            try:
                step()
            except ssl.SSLWantReadError:
                self._carry()
                continue
            finally:
                self._carry()
            return
        raise AssertionError("the handshake does not end")

    def _carry(self):
        if self._out.pending:
            self.protocol.dataReceived(self._out.read())
        self._in.write(self.transport.value())
        self.transport.clear()


class Asked:
    """An authenticator that lets everybody in and notes them."""

    def __init__(self):
        self.credentials = []

    def authenticate(self, credentials, answer):
        """See Authenticator."""
        self.credentials.append(credentials)
        answer(Login(None), "")


@pytest.fixture
def authority(tmp_path):
    found = Authority(tmp_path)
    found.issue("broker.pem")
    return found


def secured(authority):
    broker, trust = (str(authority.directory / name) for name in ("broker.pem", "authority.pem"))
    return Tls((broker,), trust_store_path=trust, want_client_auth=True)


def stomp(authority, clock=None):
    clock, asked = clock or Clock(), Asked()
    acceptor = StompAcceptor("s", "127.0.0.1", 0, anycast_prefix=("/queue/",), tls=secured(authority))
    service = service_of(acceptor, clock)
    factory = StompFactory(service.broker, acceptor, asked, service.connections, service.outgoing, clock)
    return service.listener_stack.wrap(acceptor, factory), asked


CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:someone\n\n\0"


@pytest.mark.parametrize("who", ["anna", None])
def test_a_session_knows_the_certificate(authority, who):
    factory, asked = stomp(authority)
    shown = None if who is None else authority.issue("client.pem", common=who, client=True)
    client = Client(factory.buildProtocol(None), authority.trusting(shown))
    client.say(CONNECT)
    assert client.hear().startswith(b"CONNECTED\n")
    (credentials,) = asked.credentials
    assert credentials.certificate == (None if who is None else "CN=anna,O=Example")
    wire = client.protocol.wrappedProtocol
    client.protocol.connectionLost(LOST)
    assert wire.certificate is None


def test_a_client_that_ends_tls_gets_no_more(authority):
    factory, _ = stomp(authority)
    client = Client(factory.buildProtocol(None), authority.trusting())
    client.say(CONNECT + b"SUBSCRIBE\ndestination:/queue/q\nid:1\nack:auto\n\n\0")
    session = client.protocol.wrappedProtocol.session
    queue = session.broker.directory.queue("q")
    assert len(queue.consumers) == 1
    client.transport.producer.pauseProducing()
    assert client.hear().startswith(b"CONNECTED\n")
    client.end()
    assert not queue.consumers and session.closed
    assert client.transport.disconnecting and client.transport.producer is None
    clock = factory.reactor
    clock.advance(4)
    assert not client.transport.aborted
    clock.advance(1)
    assert client.transport.aborted


@pytest.mark.parametrize("name", ["localhost", "a.example"])
def test_a_chain_is_shown_whole(authority, tmp_path, name):
    """Clients need not know who stands between the broker and the authority that they trust."""
    between = Authority(tmp_path, "between", authority)
    paths = [between.issue("one.pem"), between.issue("two.pem", ("a.example",))]

    def meet():
        factory = http(Tls(tuple(map(str, paths))))
        Client(factory.buildProtocol(None), authority.trusting(), name)

    with pytest.raises(ssl.SSLCertVerificationError):
        meet()
    for path in paths:
        path.write_bytes(path.read_bytes() + between.file.read_bytes())
    meet()


class Page(Resource):
    """Shows the certificate of whom it is for."""

    isLeaf = True

    def render(self, request):
        return str(request.certificate).encode()


def http(tls, clock=None):
    """A listener with that page."""
    clock = clock or Clock()
    found = AdminSite(Page(), timeout=IDLE, reactor=clock)
    found.connection_limit = HttpConnectionLimit(lambda *_: None)
    acceptor = HttpAcceptor("h", "127.0.0.1", 0, tls=tls)
    return service_of(acceptor, clock).listener_stack.wrap(acceptor, found)


@pytest.mark.parametrize("who", ["anna", None])
def test_a_request_knows_the_certificate(authority, who):
    factory = http(secured(authority))
    shown = None if who is None else authority.issue("client.pem", common=who, client=True)
    client = Client(factory.buildProtocol(None), authority.trusting(shown))
    client.say(b"GET / HTTP/1.0\r\n\r\n")
    assert client.hear().endswith(b"\r\n\r\n" + (b"None" if who is None else b"CN=anna,O=Example"))
    client.protocol.connectionLost(LOST)


def test_a_handshake_that_does_not_come_over_http(authority):
    clock = Clock()
    protocol = http(secured(authority), clock).buildProtocol(None)
    transport = Transport(clock)
    transport.protocol = protocol
    protocol.makeConnection(transport)
    for data in (b"\x16", b"\x03", b"\x01"):  # which is not enough to go on
        clock.advance(IDLE / 3)
        assert transport.aborted == (data == b"\x01")
        if not transport.aborted:
            protocol.dataReceived(data)


def test_a_request_without_tls_has_none(authority):
    protocol = http(None).buildProtocol(None)
    transport = TcpTransport(Clock())
    protocol.makeConnection(transport)
    protocol.dataReceived(b"GET / HTTP/1.0\r\n\r\n")
    assert transport.value().endswith(b"\r\n\r\nNone")
    protocol.connectionLost(LOST)


def test_what_strangers_write_stays_on_one_line(authority, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    (tmp_path / "strangers").mkdir()
    stranger = Authority(tmp_path / "strangers")
    name = x509.Name([*long_name(), x509.NameAttribute(NameOID.COMMON_NAME, "x\n2026 ERROR all is lost")])
    monkeypatch.setattr("tests.certificates.name_of", lambda _: name)
    mallory = stranger.issue("mallory.pem", client=True)
    factory, _ = stomp(authority)
    with pytest.raises(ssl.SSLError):
        Client(factory.buildProtocol(None), authority.trusting(mallory)).hear()
        raise ssl.SSLError  # with TLS 1.3 the client may not have heard of it yet
    for protocol in list(factory.protocols):
        protocol.connectionLost(LOST)
    assert all("\n" not in line for line in caplog.messages)
    (line,) = (line for line in caplog.messages if line.startswith("acceptor"))
    assert "x?2026 ERROR all is lost" in line and len(line) < 500


def long_name():
    return [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "y" * 60) for _ in range(50)]


class Rounds(Clock):
    """A clock with rounds that the test ends."""

    def __init__(self):
        super().__init__()
        self._at_end = []

    def call_at_round_end(self, call):
        """See RoundsReactor."""
        self._at_end.append(call)

    def end_round(self):
        """The end of a round."""
        calls, self._at_end = self._at_end, []
        for call in calls:
            call()


def record_sizes(data):
    """The bytes of data in each TLS record of data of an application, without those that OpenSSL adds."""
    found = []
    while data:
        assert data[0] == 0x17
        length = int.from_bytes(data[3:5])
        found.append(length - 17)
        data = data[5 + length :]
    return found


@pytest.fixture
def rounds(authority):
    """The ends of a connection that writes in rounds: the broker's, and the client's after its CONNECT."""
    reactor = Rounds()
    factory, _ = stomp(authority, reactor)
    client = Client(factory.buildProtocol(None), authority.trusting())
    client.say(CONNECT)
    reactor.end_round()
    assert client.hear().startswith(b"CONNECTED\n")
    return client.protocol.wrappedProtocol, client, reactor


def test_data_of_a_round_is_one_record(rounds):
    wire, client, reactor = rounds
    wire.write(b"a")
    wire.write(b"b")
    assert client.transport.value() == b""
    reactor.end_round()
    assert record_sizes(client.transport.value()) == [2]
    assert client.hear() == b"ab"


def test_much_data_is_encrypted_at_once_in_full_records(rounds):
    wire, client, _ = rounds
    wire.write(b"a")
    wire.write(bytes(70_000))
    assert record_sizes(client.transport.value()) == [16_384] * 4 + [70_001 - 4 * 16_384]
    assert len(client.hear()) == 70_001


def test_a_close_within_a_round_comes_after_its_data(rounds):
    wire, client, reactor = rounds
    wire.write(b"a")
    wire.close()
    wire.write(b"b")
    assert record_sizes(client.transport.value()) == [1, 2]  # the second is the alert that ends TLS
    assert client.hear() == b"a"
    reactor.end_round()
    assert client.hear() == b""


def test_a_connection_that_is_aborted_within_a_round_sends_no_data(rounds, caplog):
    caplog.set_level("INFO")
    wire, client, reactor = rounds
    wire.write(b"a")
    wire.transport.abortConnection()
    reactor.end_round()
    assert client.hear() == b"" and client.transport.aborted
    client.protocol.connectionLost(LOST)
    assert "TLS error" not in caplog.text
