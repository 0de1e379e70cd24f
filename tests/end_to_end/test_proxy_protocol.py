"""Clients behind a proxy that says where they are, and those that say so without being one."""

import http.client
import re
import socket
import struct
from ipaddress import ip_address

import pytest

from ..broker_process import PATIENCE
from ..stomp_client import StompClient
from .secured import PREFIXES, Secured
from .steps import receive

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"

URLS = {
    "proxy": f"tcp://127.0.0.1:0?proxyProtocolEnabled=true;{PREFIXES}",
    "proxy-tls": f"ssl://127.0.0.1:0?proxyProtocolEnabled=true;keyStorePath=broker.pem;{PREFIXES}",
    "hurried": "tcp://127.0.0.1:0?proxyProtocolEnabled=true;handshake-timeout=1",
    "trusted": "tcp://127.0.0.1:0?proxyProtocolEnabled=true;proxyProtocolTrusted=127.0.0.0/8",
    "elsewhere": "tcp://127.0.0.1:0?proxyProtocolEnabled=true;proxyProtocolTrusted=192.0.2.0/24",
    "plain": "tcp://127.0.0.1:0",
    "http": "https://127.0.0.1:0?keyStorePath=broker.pem",
    "http-proxy": "http://127.0.0.1:0?proxyProtocolEnabled=true",
    "http-proxy-tls": "https://127.0.0.1:0?proxyProtocolEnabled=true;keyStorePath=broker.pem",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    found = Secured(tmp_path_factory.mktemp("proxy"), URLS)
    with found.start():
        yield found


@pytest.fixture
def seen(secured):
    """How many lines the log has before the test."""
    return len(secured.broker.log)


def version_1(source, port):
    kind, here = ("TCP6", "::1") if ":" in source else ("TCP4", "10.0.0.1")
    return f"PROXY {kind} {source} {here} {port} 61613\r\n".encode()


def version_2(source, port):
    address = ip_address(source)
    body = address.packed + ip_address("::1" if address.version == 6 else "10.0.0.1").packed
    body += struct.pack("!HH", port, 61613) + b"\x03\x00\x04abcd"
    return SIGNATURE + struct.pack("!BBH", 0x21, 0x21 if address.version == 6 else 0x11, len(body)) + body


def remote(secured, client):
    """Where the broker says that a client is."""
    return str(secured.get(f"/api/v1/connections/{client.connected['session']}")["remoteAddress"])


@pytest.mark.parametrize("make", [version_1, version_2])
@pytest.mark.parametrize("acceptor", ["proxy", "proxy-tls", "trusted"])
@pytest.mark.parametrize(
    "source, expected", [("192.0.2.7", "192.0.2.7:4711"), ("2001:db8::7", "2001:db8::7:4711")]
)
def test_the_client_is_where_the_proxy_says(secured, make, acceptor, source, expected, seen):
    context = secured.trusting if acceptor == "proxy-tls" else None
    header = make(source, 4711)
    client = StompClient(secured.broker.ports[acceptor], context=context, before=header)
    client.connect()
    assert remote(secured, client) == expected
    client.put("/queue/proxied", "x")
    receive(client, "/queue/proxied", "x")
    client.provoke()
    secured.broker.wait_for_log(rf"\({re.escape(expected)}\) closed: .*ABORT", seen)


@pytest.mark.parametrize(
    "header", [b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\x00\0\0", SIGNATURE + b"\x21\x00\0\0"]
)
def test_a_header_about_nobody(secured, header):
    client = StompClient(secured.broker.ports["proxy"], before=header)
    client.connect()
    assert remote(secured, client) == "{}:{}".format(*client.socket.getsockname())


def test_a_header_in_pieces_and_with_what_follows_in_one(secured):
    data = version_1("192.0.2.9", 1) + b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
    client = StompClient(secured.broker.ports["proxy"])
    for place in range(len(data)):
        client.raw(data[place : place + 1])
    client.expect("CONNECTED")
    StompClient(secured.broker.ports["proxy"], before=data).expect("CONNECTED")


WRONG = [
    (b"CONNECT\n\n\0", "no PROXY header"),
    (b"\x16\x03\x01\x02\0", "no PROXY header"),
    (b"PROXY TCP4 localhost 10.0.0.1 1 2\r\n", "PROXY header with an invalid address"),
    (b"PROXY TCP4 " + b"9" * 200, "PROXY header longer than 107 bytes"),
    (SIGNATURE + b"\x21\x11\xff\xff" + b"x" * 70_000, "PROXY header longer than 4096 bytes"),
    (SIGNATURE + b"\x21\x13\0\0", "PROXY header for something other than TCP"),
]


@pytest.mark.parametrize("acceptor", ["proxy", "proxy-tls", "http-proxy"])
@pytest.mark.parametrize("data, expected", WRONG)
def test_wrong_headers(secured, seen, acceptor, data, expected):
    before = secured.metric("stompring_proxy_failures_total", acceptor)
    gone(secured, acceptor, data)
    secured.broker.wait_for_log(
        rf"acceptor {acceptor}: connection from 127.0.0.1:\d+ closed: {expected}", seen
    )
    assert secured.metric("stompring_proxy_failures_total", acceptor) == before + 1


def gone(secured, acceptor, data):
    """The broker closes a connection that begins so, and says nothing."""
    place = ("127.0.0.1", secured.broker.ports[acceptor])
    try:
        with socket.create_connection(place, timeout=PATIENCE) as link:
            link.sendall(data)
            assert link.recv(1000) == b""
    except (ConnectionResetError, BrokenPipeError):
        pass


@pytest.mark.parametrize("data", [b"", b"PROXY TCP4 192.0.2.1"])
def test_a_header_that_does_not_come(secured, seen, data):
    gone(secured, "hurried", data)
    secured.broker.wait_for_log(r"acceptor hurried: .*no PROXY header within 1 s", seen)


def test_only_those_who_are_trusted(secured, seen):
    gone(secured, "elsewhere", version_1("192.0.2.1", 1))
    secured.broker.wait_for_log("acceptor elsewhere: .*address not in proxyProtocolTrusted", seen)


def test_where_no_header_is_expected(secured, seen):
    client = StompClient(secured.broker.ports["plain"], before=version_1("192.0.2.1", 1))
    client.raw(b"CONNECT\n\n\0")
    client.expect("ERROR")
    secured.broker.wait_for_log(
        "acceptor plain: .*unexpected PROXY header: set proxyProtocolEnabled=true", seen
    )


@pytest.mark.parametrize("acceptor", ["http-proxy", "http-proxy-tls"])
def test_http(secured, acceptor):
    link = socket.create_connection(("127.0.0.1", secured.broker.ports[acceptor]), timeout=PATIENCE)
    link.sendall(version_2("192.0.2.1", 1))
    if acceptor.endswith("tls"):
        link = secured.trusting.wrap_socket(link, server_hostname="localhost")
    for _ in range(2):
        link.sendall(b"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = http.client.HTTPResponse(link)
        answer.begin()
        assert answer.status == 200 and b'"data"' in answer.read()
    link.close()
