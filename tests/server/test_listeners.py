"""What stands before an acceptor's protocol, on transports in memory and a clock turned by hand."""

import os
import time
from ipaddress import ip_network

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from stompring.errors import ConfigurationError
from stompring.server.protocol import TLS_HANDSHAKE_FAILURE
from stompring.server.service import BrokerService
from stompring.settings.model import BrokerConfiguration, HttpAcceptor, ProxyProtocol, StompAcceptor, Tls

from ..certificates import Authority

LOST = Failure(ConnectionDone())
DAY = 86_400

#: Seconds between two looks at the files of certificates.
FILE_CHECK_INTERVAL = 5

HEADER = b"PROXY TCP4 192.0.2.1 10.0.0.1 40000 61613\r\n"


class Inner(Protocol):
    """Notes what it is told."""

    def connectionMade(self):
        self.peer = self.transport.getPeer()
        self.got = b""
        self.lost = False

    def dataReceived(self, data):
        self.got += data

    def connectionLost(self, reason):
        self.lost = True


class InnerFactory(Factory):
    """Notes whom it is asked for."""

    def __init__(self):
        self.made = []
        self.asked = []
        self.full = False

    def buildProtocol(self, addr):
        self.asked.append(addr)
        if self.full:
            return None
        self.made.append(Inner())
        return self.made[-1]


class Transport(StringTransport):
    """One that can be aborted."""

    aborted = False

    def abortConnection(self):
        self.aborted = True


def service_of(acceptor, clock, file=None):
    """A broker with this acceptor."""
    kind = "http_acceptors" if isinstance(acceptor, HttpAcceptor) else "stomp_acceptors"
    configuration = BrokerConfiguration(
        file=file, persistence_enabled=False, security_enabled=False, **{kind: (acceptor,)}
    )
    return BrokerService(configuration, clock)


class Door:
    """One acceptor's door, and words for what comes through it."""

    def __init__(self, acceptor):
        self.clock = Clock()
        self.clock.advance(time.time())
        self.stack = service_of(acceptor, self.clock).listener_stack
        self.inner = InnerFactory()
        self.factory = self.stack.wrap(acceptor, self.inner)

    def open(self, host="127.0.0.1"):
        kind = IPv6Address if ":" in host else IPv4Address
        transport = Transport(peerAddress=kind("TCP", host, 5000))
        protocol = self.factory.buildProtocol(transport.getPeer())
        protocol.makeConnection(transport)
        return protocol, transport


def proxied(*trusted, **options):
    proxy = ProxyProtocol(tuple(ip_network(one) for one in trusted))
    return Door(StompAcceptor("s", "127.0.0.1", 0, proxy=proxy, **options))


# ---- PROXY protocol


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_the_protocol_is_made_when_the_header_is_there(size):
    door = proxied()
    protocol, transport = door.open()
    data = HEADER + b"CONNECT"
    for begin in range(0, len(data), size):
        protocol.dataReceived(data[begin : begin + size])
    (inner,) = door.inner.made
    assert inner.got == b"CONNECT"
    assert inner.peer == door.inner.asked[0] == IPv4Address("TCP", "192.0.2.1", 40000)
    protocol.dataReceived(b"more")
    assert inner.got == b"CONNECTmore"
    inner.transport.write(b"answer")
    assert transport.value() == b"answer"
    protocol.connectionLost(LOST)
    assert inner.lost
    assert door.stack.proxy_failures == {"s": 0}


def test_an_address_of_version_6():
    door = proxied()
    protocol, _ = door.open()
    protocol.dataReceived(b"PROXY TCP6 2001:db8::1 ::1 40000 61613\r\n")
    assert door.inner.made[0].peer == IPv6Address("TCP", "2001:db8::1", 40000)


def test_a_header_about_nobody_leaves_the_proxy():
    door = proxied()
    protocol, _ = door.open()
    protocol.dataReceived(b"PROXY UNKNOWN\r\n")
    assert door.inner.made[0].peer == IPv4Address("TCP", "127.0.0.1", 5000)


def test_a_wrong_header(caplog):
    caplog.set_level("INFO")
    door = proxied()
    protocol, transport = door.open()
    protocol.dataReceived(b"CONNECT\n\n\0")
    assert transport.aborted and not door.inner.asked
    protocol.dataReceived(HEADER)  # what was on its way
    protocol.connectionLost(LOST)
    assert not door.inner.asked and not door.clock.calls
    assert door.stack.proxy_failures == {"s": 1}
    assert caplog.messages == ["acceptor s: connection from 127.0.0.1:5000 closed: no PROXY header"]


def test_a_header_that_does_not_come(caplog):
    caplog.set_level("INFO")
    door = proxied(handshake_timeout=7)
    protocol, transport = door.open()
    protocol.dataReceived(b"PROXY ")
    door.clock.advance(6)
    assert not transport.aborted
    door.clock.advance(1)
    assert transport.aborted
    assert "no PROXY header within 7 s" in caplog.text


def test_for_ever_where_there_is_no_time(caplog):
    assert not proxied(handshake_timeout=0).open()[1].aborted
    door = proxied(handshake_timeout=0)
    door.open()
    assert not door.clock.calls


def test_a_connection_that_ends_before():
    door = proxied()
    for data, failures in ((b"", 0), (b"PROXY TC", 1)):
        protocol, _ = door.open()
        if data:
            protocol.dataReceived(data)
        protocol.connectionLost(LOST)
        assert door.stack.proxy_failures == {"s": failures}
        assert not door.clock.calls


@pytest.mark.parametrize(
    "host, trusted",
    [
        ("10.0.0.7", True),
        ("10.0.0.8", False),
        ("192.168.3.4", True),
        ("::ffff:10.0.0.7", True),
        ("fe80::1%eth0", True),
        ("2001:db8::1", False),
    ],
)
def test_who_may_send_one(host, trusted):
    door = proxied("10.0.0.7", "192.168.0.0/16", "fe80::/10")
    protocol, transport = door.open(host)
    assert transport.aborted != trusted
    protocol.dataReceived(HEADER)
    assert len(door.inner.made) == trusted
    assert door.stack.proxy_failures == {"s": not trusted}


@pytest.mark.parametrize(
    "host, trusted, warned",
    [("0.0.0.0", (), True), ("0.0.0.0", ("10.0.0.7",), False), ("127.0.0.1", (), False)],
)
def test_that_anybody_may_claim_to_be_anybody_is_told(caplog, host, trusted, warned):
    caplog.set_level("WARNING")
    proxy = ProxyProtocol(tuple(ip_network(one) for one in trusted))
    Door(StompAcceptor("s", host, 0, proxy=proxy)).stack.start()
    assert bool(caplog.messages) == warned
    assert all("acceptor s: any client can claim any address" in line for line in caplog.messages)


def test_a_factory_that_takes_nobody():
    door = proxied()
    door.inner.full = True
    protocol, transport = door.open()
    protocol.dataReceived(HEADER + b"CONNECT")
    assert transport.aborted
    protocol.connectionLost(LOST)


# ---- neither PROXY nor TLS


@pytest.mark.parametrize(
    "data, words",
    [
        (HEADER, "unexpected PROXY header: set proxyProtocolEnabled=true to accept it"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21", "unexpected PROXY header"),
        (b"CONNECT\n", ""),
    ],
)
def test_a_header_that_nobody_asked_for(caplog, data, words):
    caplog.set_level("INFO")
    protocol, _ = Door(StompAcceptor("s", "127.0.0.1", 0)).open()
    assert isinstance(protocol, Inner)
    protocol.dataReceived(data)
    protocol.dataReceived(data)
    assert protocol.got == data * 2
    assert not {"dataReceived", "makeConnection"} & set(vars(protocol))
    assert len(caplog.messages) == bool(words)
    assert words in caplog.text


def test_tls_where_there_is_none(caplog):
    caplog.set_level("INFO")
    protocol, transport = Door(StompAcceptor("s", "127.0.0.1", 0)).open()
    transport.registerProducer(protocol, True)
    protocol.dataReceived(b"\x16\x03\x01\x02\0\x01")
    assert (
        transport.value() == TLS_HANDSHAKE_FAILURE and transport.disconnecting and transport.producer is None
    )
    assert protocol.got == b""
    assert caplog.messages == [
        "acceptor s: connection from 127.0.0.1:5000 closed: TLS on an acceptor without TLS: use ssl:// or "
        "https://, or set sslEnabled=true"
    ]


def test_a_factory_that_takes_nobody_without_proxy(tmp_path):
    Authority(tmp_path).issue("b.pem")
    for tls in (None, Tls((str(tmp_path / "b.pem"),))):
        door = Door(StompAcceptor("s", "127.0.0.1", 0, tls=tls))
        door.inner.full = True
        assert door.factory.buildProtocol(None) is None


# ---- certificates


def watched(directory, **options):
    path = Authority(directory).issue("b.pem", days=365)
    tls = Tls((str(path),), **options)
    return Door(StompAcceptor("s", "127.0.0.1", 0, tls=tls)), path


def subjects(door):
    return [identity.subject for _, identity in door.stack.identities()]


def test_files_that_change_are_read_again(tmp_path, caplog):
    caplog.set_level("INFO")
    door, path = watched(tmp_path, ssl_auto_reload=True)
    door.stack.start()
    door.clock.advance(FILE_CHECK_INTERVAL)
    assert len(caplog.messages) == 1  # that of the start
    Authority(tmp_path).issue("b.pem", common="new")
    door.clock.advance(FILE_CHECK_INTERVAL - 1)
    assert subjects(door) == ["CN=broker,O=Example"]
    door.clock.advance(1)
    assert subjects(door) == ["CN=new,O=Example"]
    assert "acceptor s: certificate CN=new,O=Example" in caplog.messages[-1]
    path.write_text("nothing")
    for _ in range(3):
        door.clock.advance(FILE_CHECK_INTERVAL)
    assert subjects(door) == ["CN=new,O=Example"]
    wrong = [line for line in caplog.messages if "keeping the current ones" in line]
    assert len(wrong) == 1 and f"{path}: not a PEM file" in wrong[0]
    path.unlink()
    door.clock.advance(FILE_CHECK_INTERVAL)
    Authority(tmp_path).issue("b.pem", common="newest")
    door.clock.advance(FILE_CHECK_INTERVAL)
    assert subjects(door) == ["CN=newest,O=Example"]
    door.stack.stop()
    assert not door.clock.calls


def test_a_file_put_in_its_place_with_an_old_date_counts(tmp_path):
    door, path = watched(tmp_path, ssl_auto_reload=True)
    door.stack.start()
    before = path.stat()
    fresh = Authority(tmp_path).issue("c.pem", common="new")
    os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
    fresh.rename(path)
    door.clock.advance(FILE_CHECK_INTERVAL)
    assert subjects(door) == ["CN=new,O=Example"]


def test_they_are_not_looked_at_unasked(tmp_path):
    door, _ = watched(tmp_path)
    door.stack.start()
    Authority(tmp_path).issue("b.pem", common="new")
    door.clock.advance(FILE_CHECK_INTERVAL * 2)
    assert subjects(door) == ["CN=broker,O=Example"]
    door.stack.use(door.stack.read())
    assert subjects(door) == ["CN=new,O=Example"]


def test_the_end_is_spoken_of_every_day(tmp_path, caplog):
    door, _ = watched(tmp_path)
    ((_, identity),) = door.stack.identities()
    door.clock.advance(identity.not_after.timestamp() - 32.5 * DAY - door.clock.seconds())
    caplog.set_level("WARNING")
    door.stack.start()
    for _ in range(2):
        door.clock.advance(DAY)
        assert not caplog.messages
    for days in (29, 28):
        door.clock.advance(DAY)
        assert f"acceptor s: certificate {identity.subject} ({identity.file}) expires in {days} days" in (
            caplog.messages.pop()
        )
        caplog.clear()
    door.stack.stop()


def test_without_tls_nothing_is_waited_for():
    door = Door(HttpAcceptor("h", "127.0.0.1", 0))
    door.stack.start()
    assert not door.clock.calls


def test_what_is_wrong_names_the_acceptor(tmp_path):
    acceptor = StompAcceptor("s", "127.0.0.1", 0, tls=Tls((str(tmp_path / "b.pem"),)))
    with pytest.raises(ConfigurationError) as caught:
        service_of(acceptor, Clock(), "etc/broker.xml")
    assert str(caught.value) == (
        f"etc/broker.xml: acceptor 's': {tmp_path / 'b.pem'}: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    "options, expected",
    [
        (
            {"enabled_cipher_suites": ("TLS_RSA-NO",)},
            "enabledCipherSuites: OpenSSL does not have 'TLS_RSA-NO'",
        ),
        (
            {"enabled_cipher_suites": ("TLS_AES_256_GCM_SHA384", "ECDHE-NO")},
            "enabledCipherSuites: OpenSSL does not have 'ECDHE-NO'",
        ),
        ({"trust_store_path": "/no/such", "need_client_auth": True}, "/no/such: cannot be read"),
    ],
)
def test_what_openssl_does_not_take(tmp_path, options, expected):
    with pytest.raises(ConfigurationError, match=expected):
        watched(tmp_path, **options)


def test_a_certificate_that_is_too_weak(tmp_path):
    path = Authority(tmp_path).issue("b.pem", key=rsa.generate_private_key(65537, 1024))
    with pytest.raises(ConfigurationError, match=f"{path}: not usable for TLS: ee key too small"):
        Door(StompAcceptor("s", "127.0.0.1", 0, tls=Tls((str(path),))))
