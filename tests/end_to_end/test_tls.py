"""TLS between a broker process and clients: stomp.py, the pipeline's own, urllib, and a dialogue that hides nothing."""

import logging
import os
import queue
import socket
import ssl
import threading
import time

import pytest
import stomp

from stompring.pipeline.stomp.connection import Connection, ConnectionFailed, Endpoint
from stompring.stomp.client import frame

from ..broker_process import PATIENCE
from ..cli.command import run
from ..stomp_client import StompClient
from ..waiting import until
from ..websocket_client import WebSocketClient, WebSocketDialogue
from .secured import Secured
from .steps import receive, say

LOCAL = "127.0.0.1"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    found = Secured(tmp_path_factory.mktemp("tls"))
    with found.start():
        yield found


@pytest.fixture
def seen(secured):
    """How many lines the log has before the test."""
    return len(secured.broker.log)


# ---- stomp.py


class Ears(stomp.ConnectionListener):
    """Bodies of messages, in their order."""

    def __init__(self):
        self.bodies = queue.Queue()

    def on_message(self, frame):
        self.bodies.put(frame.body)


def stomp_py(secured, acceptor="stomp", client=None, **more):
    """Connected, or `stomp.exception.ConnectFailedException`."""
    place = (LOCAL, secured.broker.ports[acceptor])
    connection = stomp.Connection12([place], reconnect_attempts_max=1)
    own = None if client is None else str(client)
    connection.set_ssl(
        for_hosts=[place], ca_certs=str(secured.authority.file), cert_file=own, key_file=own, **more
    )
    connection.set_listener("ears", Ears())
    connection.connect(wait=True)
    return connection


@pytest.mark.parametrize("acceptor", ["stomp", "artemis", "hidden", "old", "new"])
def test_stomp_py(secured, acceptor):
    connection = stomp_py(secured, acceptor)
    connection.subscribe(f"/queue/stomp.py.{acceptor}", id="1", ack="auto")
    for number in range(20):
        connection.send(f"/queue/stomp.py.{acceptor}", f"zażółć {number}")
    ears = connection.get_listener("ears")
    assert [ears.bodies.get(timeout=PATIENCE) for _ in range(20)] == [f"zażółć {n}" for n in range(20)]
    connection.disconnect()


class Settling(stomp.ConnectionListener):
    """Acknowledges in the thread that reads, as most programs do, until a number of messages has come."""

    def __init__(self, connection, ack, expected):
        self.connection = connection
        self.ack = ack
        self.left = expected
        self.done = threading.Event()

    def on_message(self, frame):
        if self.ack != "auto":
            self.connection.ack(frame.headers["ack"])
        self.left -= 1
        if not self.left:
            self.done.set()


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_stomp_py_settles_while_it_reads(secured, ack):
    """Over TLS stomp.py 9 queues an ACK in a socket pair that takes 278 of them on Linux, then blocks the one thread
    that would write them: the default window must be smaller."""
    queue, count = f"settled.{ack}", 20_000
    with Connection(Endpoint(LOCAL, secured.broker.ports["plain"])) as sender:
        sender.send(frame("SEND", [("destination", f"/queue/{queue}")], b"x") * count)
        sender.close()
    connection = stomp_py(secured)
    settling = Settling(connection, ack, count)
    connection.set_listener("ears", settling)
    connection.subscribe(f"/queue/{queue}", id="1", ack=ack)
    # a client that hangs blocks whoever talks to it: nothing more is said to it
    left = count
    while not settling.done.wait(PATIENCE):
        assert settling.left < left, f"{left} of {count} messages have not come"
        left = settling.left
    connection.disconnect(receipt="end")
    assert secured.get(f"/api/v1/queues/{queue}")["messageCount"] == 0


def refused(secured, caplog, acceptor, client=None):
    """What stomp.py logs where it does not get through."""
    caplog.set_level(logging.DEBUG, "stomp")
    with pytest.raises(stomp.exception.ConnectFailedException):
        stomp_py(secured, acceptor, client)
    return caplog.text


@pytest.mark.parametrize(
    "acceptor, expected",
    [
        ("elsewhere", "IP address mismatch"),
        ("expired", "certificate has expired"),
        ("stranger", "unable to get local issuer certificate"),
    ],
)
def test_stomp_py_does_not_trust(secured, caplog, seen, acceptor, expected):
    before = secured.metric("stompring_tls_failures_total", acceptor)
    assert expected in refused(secured, caplog, acceptor)
    secured.broker.wait_for_log(
        rf"acceptor {acceptor}: connection from {LOCAL}:\d+ closed: TLS handshake failed", seen
    )
    assert secured.metric("stompring_tls_failures_total", acceptor) > before


CLIENTS = [
    ("none", "peer did not return a certificate"),
    ("late", "CN=late,O=Example rejected: expired"),
    ("early", "CN=early,O=Example rejected: not yet valid"),
    ("mallory", "CN=mallory,O=Example rejected: no issuer in trustStorePath"),
    ("server", "CN=broker,O=Example rejected: not valid for clients"),
]


@pytest.mark.parametrize("who, expected", CLIENTS)
def test_clients_that_are_not_taken(secured, seen, who, expected):
    shown = {"none": None, "server": secured.directory / "broker.pem"}
    client = shown[who] if who in shown else getattr(secured, who)
    with pytest.raises((ssl.SSLError, ConnectionResetError, AssertionError)):
        # with TLS 1.3 a client learns of it when it reads
        secured.enter("need", client)
    secured.broker.wait_for_log(rf"acceptor need: .*TLS handshake failed: .*{expected}", seen)


def test_a_certificate_that_is_wanted(secured, seen):
    secured.enter("want")
    secured.enter("want", secured.anna)
    with pytest.raises((ssl.SSLError, ConnectionResetError, AssertionError)):
        secured.enter("want", secured.mallory)
    secured.broker.wait_for_log("acceptor want: .*CN=mallory", seen)


def test_a_session_is_not_resumed_where_certificates_are_asked_for(secured):
    for acceptor in ("need", "stomp"):
        context = secured.authority.trusting(secured.anna)
        first = secured.enter(acceptor, context=context)
        first.put("/queue/resumed", "x")
        session = first.socket.session
        raw = socket.create_connection((LOCAL, secured.broker.ports[acceptor]), timeout=PATIENCE)
        with context.wrap_socket(raw, server_hostname="localhost", session=session) as again:
            assert bool(again.session_reused) == (acceptor == "stomp")


# ---- versions, names, addresses


def version_of(secured, acceptor, version):
    context = secured.authority.trusting()
    context.minimum_version = context.maximum_version = version
    return secured.open(acceptor, context=context).socket.version()


def test_versions(secured):
    two, three = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    assert version_of(secured, "stomp", two) == version_of(secured, "old", two) == "TLSv1.2"
    assert version_of(secured, "stomp", three) == version_of(secured, "new", three) == "TLSv1.3"
    for acceptor, version in (("old", three), ("new", two)):
        with pytest.raises(ssl.SSLError):
            version_of(secured, acceptor, version)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions(secured, seen, version):
    context = secured.authority.trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError):
        secured.open(context=context)
    secured.broker.wait_for_log("acceptor stomp: .*TLS handshake failed: unsupported protocol", seen)


def test_cipher_suites(secured):
    cipher = secured.open("new").socket.cipher()
    assert cipher[0] == "TLS_CHACHA20_POLY1305_SHA256"
    weak = secured.authority.trusting()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA256")  # not authenticated with its text
    with pytest.raises(ssl.SSLError):
        secured.open(context=weak)


@pytest.mark.parametrize(
    "asked, shown",
    [
        *(("a.example", "a"), ("A.Example", "a"), ("x.b.example", "b"), (LOCAL, "broker")),
        *((other, "broker") for other in ("b.example", "x.y.b.example", "nobody.example", None)),
    ],
)
def test_names(secured, asked, shown):
    context = secured.authority.trusting()
    context.check_hostname = shown != "broker"
    certificate = secured.open(context=context, host=asked).socket.getpeercert()
    assert (("commonName", shown),) in certificate["subject"]


def test_over_ipv6(secured):
    raw = socket.create_connection(("::1", secured.broker.ports["six"]), timeout=PATIENCE)
    with secured.trusting.wrap_socket(raw, server_hostname="localhost") as link:
        link.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert link.recv(1000).startswith(b"CONNECTED\n")


# ---- STOMP over it


@pytest.mark.parametrize("version, megabytes", [("1.0", 1), ("1.1", 2), ("1.2", 16)])
def test_large_messages(secured, version, megabytes):
    body = os.urandom(1 << 20) * megabytes
    client = secured.enter(version=version)
    client.put("/queue/large", body, content_length=len(body))
    client.subscribe("/queue/large", ack="auto")
    assert client.message().body == body
    client.disconnect()


def test_a_reader_that_rests_is_not_written_to(secured):
    sender, reader = secured.enter(), secured.enter()
    number = 600
    sender.put("/queue/rest", *(b"x" * 100_000 for _ in range(number)))
    reader.subscribe("/queue/rest", ack="auto")

    def left():
        return int(secured.get("/api/v1/queues/rest")["messageCount"])

    before, now = -1, left()
    while now != before:
        time.sleep(0.3)
        before, now = now, left()
    assert now > number // 3, "what the sockets hold is gone from the queue, and not more"
    for _ in range(number):
        assert len(reader.message().body) == 100_000


@pytest.mark.parametrize("acceptor, before", [("stomp", b""), ("proxy-tls", b"PROXY UNKNOWN\r\n")])
def test_a_blocked_producer_that_is_gone(secured, seen, acceptor, before):
    """Nothing is read from it, and yet the broker notices."""
    taken, full = f"taken.{acceptor}", f"full.{acceptor}"
    sender, other = secured.enter(acceptor, before=before), secured.enter()
    sender.put(f"/queue/{taken}", "x")
    sender.subscribe(f"/queue/{taken}", ack="client")
    sender.message("x")
    sender.put(f"/queue/{full}", "1")
    say(sender, f"/queue/{full}", b"2")
    until(lambda: secured.get(f"/api/v1/addresses/{full}")["blockedProducers"], "nobody is blocked")
    sender.socket.close()
    secured.broker.wait_for_log("closed by the client while blocked", seen)
    other.subscribe(f"/queue/{taken}")
    assert other.message("x")["redelivered"] == "true"
    receive(other, f"/queue/{full}", "1", "2", id="2")


def test_a_client_that_ends_tls_but_not_tcp(secured):
    client = secured.enter()
    number = client.connected["session"]
    client.socket.unwrap()

    def known():
        return {one["connectionID"] for one in secured.get("/api/v1/connections")["data"]}

    until(lambda: number not in known(), known)


def test_a_client_that_ends_tls_takes_nothing_along(secured):
    """It says that it is done with TLS while much is on its way to it, and reads on."""
    number = 600
    sender = secured.enter()
    sender.put("/queue/kept", *(b"x" * 100_000 for _ in range(number)))
    link = socket.create_connection((LOCAL, secured.broker.ports["stomp"]), timeout=PATIENCE)
    come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = secured.trusting.wrap_bio(come, go, server_hostname="localhost")

    def step(what, *arguments):
        while True:
            try:
                what(*arguments)
            except ssl.SSLWantReadError:
                link.sendall(go.read())
                come.write(link.recv(1 << 16))
                continue
            link.sendall(go.read())
            return

    step(tls.do_handshake)
    step(tls.write, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    step(tls.write, b"SUBSCRIBE\ndestination:/queue/kept\nid:1\nack:auto\n\n\0")
    before, now = number + 1, number
    while now == number or now != before:
        time.sleep(0.3)
        before, now = now, int(secured.get("/api/v1/queues/kept")["messageCount"])
    assert now > number // 3
    with pytest.raises(ssl.SSLWantReadError):
        tls.unwrap()
    link.sendall(go.read())
    try:
        while link.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    assert secured.get("/api/v1/queues/kept")["messageCount"] == now


def test_what_is_not_tls_in_the_midst_of_it(secured, seen):
    client = secured.enter()
    os.write(client.socket.fileno(), b"\0" * 100)
    secured.broker.wait_for_log(r"acceptor stomp: .*TLS error: ", seen)


# ---- what is no handshake


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"CONNECT\naccept-version:1.2\n\n\0", r"no TLS; the first bytes are b'CONNECT\\na"),
        (b"GET / HTTP/1.1\r\n\r\n", "no TLS; the first bytes are b'GET / HTTP"),
        (b"\0" * 5000, "no TLS; the first bytes are b'.x00"),
        (
            b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n",
            "unexpected PROXY header: set proxyProtocolEnabled=true",
        ),
        (b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000, "TLS handshake failed: "),
        (b"\x16\x03\x01\0\x05\x01\0\0\x01\0", "TLS handshake failed: "),
    ],
)
def test_other_protocols(secured, seen, data, expected):
    client = StompClient(secured.broker.ports["stomp"])
    client.raw(data)
    while client.wire.receive(PATIENCE):
        pass
    secured.broker.wait_for_log(f"acceptor stomp: .*{expected}", seen)


@pytest.mark.parametrize("acceptor", ["plain", "http-plain"])
def test_tls_where_there_is_none(secured, seen, acceptor):
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        secured.open(acceptor)
    secured.broker.wait_for_log(
        rf"acceptor {acceptor}: connection from {LOCAL}:\d+ closed: TLS on an acceptor without TLS", seen
    )


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_goes_on_for_ever(secured, data):
    counter = ("stompring_refusals_total", "handshake-timeout", "limit")
    before = secured.metric(*counter)
    client = StompClient(secured.broker.ports["hurried"])
    client.raw(data)
    assert client.wire.receive(PATIENCE) == b""
    assert secured.metric(*counter) == before + 1


def test_more_connections_than_allowed(secured):
    """Who is one too many is told so, after the handshake that it needs to read it."""
    first = secured.enter("few")
    secured.open("few").error("More than 1 connections to acceptor few")
    first.put("/queue/few", "x")


@pytest.mark.parametrize("acceptor", ["web", "stomp"])
def test_websocket_over_tls(secured, acceptor):
    """On an acceptor of its own, and by upgrade on one for STOMP over TLS."""
    client = WebSocketDialogue(secured.broker.ports[acceptor], context=secured.trusting)
    client.connect()
    client.ask("SUBSCRIBE", {"id": "1", "destination": f"/queue/{acceptor}", "ack": "auto"})
    body = os.urandom(1 << 20)
    client.put(f"/queue/{acceptor}", body, **{"content-length": len(body)})
    client.message(body)
    (found,) = (
        each
        for each in secured.get("/api/v1/connections")["data"]
        if each["acceptor"] == acceptor and each["subscriptionCount"]
    )
    assert found["protocol"] == "STOMP 1.2 over WebSocket"
    client.ask("DISCONNECT")


def test_a_browser_on_another_site_is_refused_over_tls_too(secured):
    client = WebSocketClient(secured.broker.ports["web"], secured.trusting)
    assert client.ask(origin="https://elsewhere.example").status == 403
    client.close()


def test_who_only_looks_whether_it_is_there_is_not_told_of(secured, seen):
    before = secured.metric("stompring_tls_failures_total", "stomp")
    socket.create_connection((LOCAL, secured.broker.ports["stomp"]), timeout=PATIENCE).close()
    client = secured.enter()
    client.put("/queue/looked", "x")
    assert not [line for line in secured.broker.log[seen:] if "acceptor stomp: " in line]
    assert secured.metric("stompring_tls_failures_total", "stomp") == before


# ---- HTTP


def test_http(secured):
    assert secured.metric("stompring_certificate_expiry_timestamp_seconds", "stomp") > time.time()
    assert secured.metric("stompring_certificate_expiry_timestamp_seconds", "expired") < time.time()
    listeners = {one["acceptor"]: one["port"] for one in secured.get("/api/v1/broker")["listeners"]}
    assert listeners == secured.broker.ports


def test_http_agrees_on_its_version(secured):
    context = secured.authority.trusting()
    for offered, agreed in ((["h2", "http/1.1"], "http/1.1"), (["h2"], None)):
        context.set_alpn_protocols(offered)
        link = secured.open("http", context=context).socket
        assert link.selected_alpn_protocol() == agreed


# ---- the pipeline's client


def test_transfer_over_tls(secured):
    client = secured.enter()
    bodies = [str(number) * 20_000 for number in range(50)]
    client.put("/queue/secret", *bodies)
    url, ca = f"stomp+ssl://localhost:{secured.broker.ports['stomp']}", str(secured.authority.file)
    words = ("transfer", "/queue/secret", "--from", url, "--to", url, "--to-destination", "/queue/moved")
    run(*words, "--timeout", "0.5", code=5)
    run(*words, "--timeout", "0.5", "--from-ca", ca, "--to-ca", ca)
    receive(client, "/queue/moved", *bodies)
    client.close()


def endpoint(secured, acceptor, **more):
    port = secured.broker.ports[acceptor]
    return Endpoint(LOCAL, port, tls=True, ca_file=secured.authority.file, timeout=PATIENCE, **more)


def test_the_pipelines_client(secured):
    with Connection(endpoint(secured, "stomp")) as connection:
        body = os.urandom(100_000) * 20
        for _ in range(10):
            headers = [("destination", "/queue/pipeline"), ("content-length", str(len(body)))]
            connection.say("SEND", headers, body)
        connection.subscribe("/queue/pipeline")
        left = 10
        while left:
            for head, received in connection.receive(PATIENCE):
                assert received == body
                connection.acknowledge(head)
                left -= 1
        connection.close()
    assert secured.get("/api/v1/queues/pipeline")["messageCount"] == 0


@pytest.mark.parametrize("acceptor", ["elsewhere", "expired", "stranger", "plain"])
def test_whom_the_pipelines_client_does_not_trust(secured, acceptor):
    with pytest.raises(ConnectionFailed, match="does not speak TLS with us"):
        Connection(endpoint(secured, acceptor))
