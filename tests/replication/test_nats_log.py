"""The replicated log on NATS: faults of servers and connections, what is checked, and how it connects."""

import asyncio
import base64
import hashlib
import json
import os
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from stompring.replication.engines import create_log
from stompring.replication.log import FileChange, LogMissing, LogStatus, LogUnavailable, Operation, UnsafeLog
from stompring.settings.model import ReplicatedLogSettings

from ..certificates import Authority
from ..nats_cluster import (
    MIN_VERSION,
    NatsCluster,
    NatsNode,
    installed,
    server_version,
    wait_until,
)
from ..ports import free_ports
from .engines import CLAIM, PATIENCE, append, read_all

pytest.importorskip("nats", reason="nats-py is not installed: pip install stompring[ha]")

from stompring.replication.nats_log import (  # noqa: E402  # noqa: E402
    NatsConnection,
    NatsLog,
    NatsUrl,
    is_local_address,
    stream_configuration,
    unsafe_configuration,
)

pytestmark = pytest.mark.xdist_group("nats")

STREAMS = count(1)


@pytest.fixture
def settings(cluster):
    """Of a log of its own, which exists."""
    found = ReplicatedLogSettings(url=cluster.url, stream=f"faults{next(STREAMS)}", broker="a")
    create_log(found, -1)
    return found


@pytest.fixture
def opened(settings):
    """Opens logs of the stream, each by a broker: ``a``, or ``writer`` where it claims the log."""
    with ExitStack() as stack:

        def open_one(writer=0, url=settings.url):
            log = NatsLog(replace(settings, url=url, broker="writer" if writer else "a"))
            stack.callback(log.close)
            status = log.connect()
            if writer:
                assert log.claim(writer, status.last, CLAIM) == status.last + 1
            return log

        yield open_one


def write(at, data=b"x"):
    return FileChange(Operation.WRITE, "journal/1", at, data)


def written(log):
    """The places of all writes in the log, in its order."""
    return [entry.change.at for entry in read_all(log) if entry.change.operation == Operation.WRITE]


class Relay:
    """Passes connections on to a node, until they are cut."""

    def __init__(self, node):
        self._node = node
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                pair = (
                    self._listener.accept()[0],
                    socket.create_connection((self._node.address, self._node.port)),
                )
                self._sockets += pair
                for ends in (pair, pair[::-1]):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        self._end(source, target)

    def _end(self, *sockets):
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self._end(*self._sockets)

    def close(self):
        self._listener.close()
        self.cut()


@contextmanager
def appending(log):
    """Something appends all the time; the list has what is confirmed."""
    confirmed = []
    stop = threading.Event()
    faults = []

    def run():
        at = 0
        try:
            while not stop.is_set():
                append(log, *(write(at + more) for more in range(3)))
                confirmed.extend(range(at, at + 3))
                at += 3
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield confirmed
    finally:
        stop.set()
        thread.join()
    assert not faults


def wait_for_more(confirmed):
    before = len(confirmed)
    wait_until(lambda: len(confirmed) > before + 6, "entries are confirmed", PATIENCE)


def test_entries_are_stored_once_and_in_order_though_connections_are_lost(opened, cluster):
    with closing(Relay(cluster.nodes[0])) as relay:
        log = opened(7, f"nats://{relay.address}?monitor={cluster.monitors}")
        reader = opened()
        with appending(log) as confirmed:
            for _ in range(10):
                relay.cut()
                wait_for_more(confirmed)
        assert written(reader) == confirmed


@pytest.mark.long
def test_appends_go_on_when_the_leader_is_killed(opened, cluster, settings):
    log, reader = opened(7), opened()
    leader = cluster.leader(settings.stream)
    with appending(log) as confirmed:
        wait_for_more(confirmed)
        leader.kill()
        leader.wipe()
        try:
            wait_for_more(confirmed)
        finally:
            leader.start()
        wait_for_more(confirmed)
    cluster.wait_current(settings.stream)
    assert written(reader) == confirmed


def test_appends_go_on_when_the_server_of_the_connection_stands_still(opened, cluster, settings):
    log, reader = opened(7), opened()
    with appending(log) as confirmed:
        wait_for_more(confirmed)
        node = cluster.serving("stompring writer")
        node.suspend()
        try:
            wait_for_more(confirmed)
        finally:
            node.resume()
        wait_for_more(confirmed)
    cluster.wait_current(settings.stream)
    assert written(reader) == confirmed


def test_without_a_majority_nothing_is_confirmed_claimed_or_taken_for_silence(opened, cluster, settings):
    log, standby = opened(7), opened()
    end = append(log, write(0))
    lost = [node for node in cluster.nodes if node is not cluster.leader(settings.stream)]
    for node in lost:
        node.kill()
    try:
        with pytest.raises(LogUnavailable):
            log.append([write(1)])

        def refuses():
            try:
                standby.read(end, 0)
            except LogUnavailable:
                return True
            return False

        wait_until(refuses, "the end of the log is not vouched for without a majority")
        with pytest.raises(LogUnavailable):
            standby.claim(8, end, CLAIM)
        with pytest.raises(LogUnavailable):
            log.append([])
    finally:
        for node in lost:
            node.start()
        cluster.wait_ready()
    append(log, write(2))
    assert written(standby) == [0, 1, 2]


def test_stream_that_is_deleted_is_fatal(opened, settings, cluster):
    log, standby = opened(7), opened()
    cluster.api(f"STREAM.DELETE.{settings.stream}")

    def fault(use, *arguments):
        with pytest.raises(LogMissing) as raised:
            use(*arguments)
        return str(raised.value)

    with ThreadPoolExecutor(2) as threads:  # each of them doubts it for a while
        faults = threads.submit(fault, append, log, write(0)), threads.submit(fault, read_all, standby)
        assert ["does not exist" in each.result() for each in faults] == [True, True]


def test_stream_that_is_made_anew_is_fatal(opened, settings, cluster):
    log, standby = opened(7), opened()
    append(log, write(0))
    cluster.api(f"STREAM.DELETE.{settings.stream}")
    create_log(settings, -1)
    with pytest.raises(UnsafeLog, match="created again"):
        append(log, write(1))
    with pytest.raises(UnsafeLog, match="created again"):
        standby.claim(8, 0, CLAIM)
    assert opened().status().last == 0


def test_stream_that_holds_less_than_it_confirmed_is_fatal(opened, cluster, tmp_path):
    """All nodes come back with the directories of an earlier time."""
    log = opened(7)
    append(log, write(0))
    cluster.stop()
    for node in cluster.nodes:
        shutil.copytree(node.store, tmp_path / node.name)
    cluster.start()
    append(log, *(write(at) for at in range(1, 6)))
    cluster.stop()
    for node in cluster.nodes:
        node.wipe()
        shutil.copytree(tmp_path / node.name, node.store)
    cluster.start()
    with pytest.raises(UnsafeLog, match="ends at 2, but 7 was confirmed"):
        append(log, write(6))


def test_stream_with_one_replica_is_refused(settings, cluster):
    cluster.api("STREAM.CREATE.one", stream_configuration("one", -1) | {"num_replicas": 1})
    with closing(NatsLog(replace(settings, stream="one"))) as other:
        with pytest.raises(UnsafeLog, match="num_replicas is 1, 3 or more is required"):
            other.connect()
    cluster.api("STREAM.DELETE.one")


def test_server_before_2_10_is_refused(tmp_path):
    """Debian 12 has one; its clusters were seen to lose confirmed entries."""
    program = shutil.which("nats-server")
    if program is None or server_version(program) >= MIN_VERSION:
        pytest.skip("no nats-server before 2.10 in PATH")
    with NatsCluster(tmp_path, program=program) as cluster:
        settings = ReplicatedLogSettings(url=cluster.url, stream="s", confirmed_sync=True)
        with pytest.raises(UnsafeLog, match="2.10 or later is required"):
            create_log(settings, -1)


def test_identity_is_the_same_for_every_leader(opened, cluster, settings):
    log = opened(7)
    before = log.status()
    cluster.api(f"STREAM.LEADER.STEPDOWN.{settings.stream}")

    def moved():
        try:
            return log.status().leader not in ("", before.leader)
        except LogUnavailable:
            return False

    wait_until(moved, "another leader")
    assert log.status().identity == before.identity


def assert_leader_stays(log, leader):
    """A log that would move it does so with the first of these requests, and sees that with the others."""
    assert {log.status().leader for _ in range(30)} == {leader}


def test_leader_on_the_machine_of_the_active_broker_is_moved(settings, cluster):
    leader = cluster.leader(settings.stream)
    log = NatsLog(settings, is_local=lambda address: address.endswith(f":{leader.monitor_port}"))
    with closing(log):
        end = log.connect().last
        assert_leader_stays(log, leader.name)  # of a standby
        assert log.claim(7, end, CLAIM) == end + 1
        wait_until(lambda: log.status().leader not in ("", leader.name), "another leader", PATIENCE)
        assert append(log, write(1)) == end + 2


def test_leader_stays_where_all_nodes_are_on_one_machine(opened, cluster, settings):
    assert_leader_stays(opened(7), cluster.leader(settings.stream).name)


def test_address_of_another_machine_is_not_local():
    assert is_local_address("127.0.0.1:4222")
    assert is_local_address("[::1]:4222")
    assert not is_local_address("192.0.2.1:4222")  # RFC 5737: of documentation
    assert not is_local_address("[2001:db8::1]:4222")  # RFC 3849
    assert not is_local_address(":4222:")


def test_closed_log_leaves_no_thread(opened):
    before = set(threading.enumerate())
    log = opened()
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "replicated-log")
    log.close()
    assert not thread.is_alive()


def test_call_under_way_ends_when_the_log_is_closed(opened, cluster, settings):
    log = opened()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(log.read, 0, 600)
        information = f"STREAM.INFO.{settings.stream}"
        wait_until(lambda: cluster.api(information)["state"]["consumer_count"] > 0, "the log is read")
        log.close()
        with pytest.raises(LogUnavailable, match="^the replicated log is closed$"):
            call.result(30)
    with pytest.raises(LogUnavailable, match="closed"):
        log.status()


# What is checked


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_replicas", 2),
        ("storage", "memory"),
        ("discard", "old"),
        ("retention", "workqueue"),
        ("max_age", 1),
        ("max_msgs", 10),
        ("max_msgs_per_subject", 1),
        ("max_msg_size", 1000),
        ("mirror", {"name": "other"}),
        ("sources", [{"name": "other"}]),
        ("no_ack", True),
        ("sealed", True),
        ("deny_purge", True),
        ("subject_transform", {"src": ">"}),
        ("persist_mode", "async"),
        ("subjects", ["s.>"]),
    ],
)
def test_unsafe_stream_is_named(name, value):
    configuration = stream_configuration("s", 1000)
    assert unsafe_configuration("s", configuration) == []
    [reason] = unsafe_configuration("s", configuration | {name: value})
    assert reason.startswith(f"{name} is {value!r}, ")


def varz(name, **jetstream):
    return {"server_name": name, "jetstream": {"config": jetstream}}


SYNCED = {"sync_interval": 120_000_000_000, "sync_always": True}
LAZY = {"sync_interval": 120_000_000_000}


@pytest.mark.parametrize(
    "pages, confirmed, reason",
    [
        ([varz("n0", **SYNCED), varz("n1", **SYNCED), varz("n2", **SYNCED)], False, None),
        ([varz("n0", **SYNCED), {}, {}], False, None),
        ([varz("n0", **SYNCED), varz("n1", **LAZY), {}], False, "n1 syncs every 120 s"),
        ([varz("n0", **SYNCED), varz("n1", **LAZY), {}], True, "n1 syncs every 120 s"),
        ([varz("other", **LAZY)], False, "no monitor"),
        ([varz("other", **SYNCED)], False, "no monitor"),
        ([varz("n0", store_dir="/")], False, "no monitor"),
        ([varz("n0", store_dir="/")], True, None),
        ([varz("n0", **SYNCED), varz("n1", **SYNCED) | {"version": "2.9.10"}], True, "n1 has version 2.9.10"),
        ([varz("n0", **SYNCED) | {"version": "2.15.2"}], False, None),
        ([{}, {}, {}], False, "no monitor"),
        ([{}, {}, {}], True, None),
        ([], False, "no monitor"),
    ],
)
def test_servers_must_sync_before_they_confirm(pages, confirmed, reason, cluster, synced):
    with serving(pages) as monitors:
        url = f"{cluster.url.partition('?')[0]}?monitor={','.join(monitors)}"
        with closing(NatsLog(replace(synced, url=url, confirmed_sync=confirmed))) as log:
            if reason is None:
                log.connect()
            else:
                with pytest.raises(UnsafeLog, match=reason):
                    log.connect()


@pytest.fixture(scope="module")
def synced(cluster):
    """Of a log that exists."""
    found = ReplicatedLogSettings(url=cluster.url, stream="synced", broker="a")
    create_log(found, -1)
    return found


@contextmanager
def serving(pages):
    """Monitors that show these pages instead of the nodes' own."""

    class Monitor(BaseHTTPRequestHandler):
        def do_GET(self):
            page = pages[int(self.path.split("/")[1])]
            self.send_response(200 if page else 404)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Monitor) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield [f"http://127.0.0.1:{server.server_port}/{at}" for at in range(len(pages))]
        server.shutdown()


@pytest.mark.parametrize(
    "url, servers, monitors",
    [
        ("nats://a", ["nats://a:4222"], ["http://a:8222"]),
        ("tls://a:1,b", ["tls://a:1", "tls://b:4222"], ["http://a:8222", "http://b:8222"]),
        ("nats://a,b?monitor=80", ["nats://a:4222", "nats://b:4222"], ["http://a:80", "http://b:80"]),
        ("nats://[::1]:7?monitor=https://m:1/x/", ["nats://[::1]:7"], ["https://m:1/x"]),
        ("nats://a?monitor=", ["nats://a:4222"], []),
    ],
)
def test_urls(url, servers, monitors):
    parsed = NatsUrl.parse(url)
    assert (list(parsed.servers), list(parsed.monitors)) == (servers, monitors)
    assert parsed.is_tls == url.startswith("tls")


@pytest.mark.parametrize(
    "url",
    ["http://a", "nats://", "nats:a", "nats://a,,b", "nats://a:x", "nats://u:p@a", "nats://a?moniter=1",
     "nats://a?monitor=b:1"],
)  # fmt: skip
def test_urls_that_are_refused(url):
    with pytest.raises(UnsafeLog, match="url"):
        NatsUrl.parse(url)


@pytest.mark.parametrize("stream", ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "x" * 256])
def test_stream_names_that_are_refused(stream):
    with pytest.raises(UnsafeLog, match="stream"):
        NatsLog(ReplicatedLogSettings(url="nats://a", stream=stream))


# Security


@contextmanager
def server(directory, configuration):
    """One server without JetStream."""
    directory.mkdir(exist_ok=True)
    node = NatsNode("one", installed(), directory, "127.0.0.1", (*free_ports(2), 0), ())
    node.configuration.write_text(
        f"listen: 127.0.0.1:{node.port}\nhttp: 127.0.0.1:{node.monitor_port}\n{configuration}"
    )
    node.start()
    try:
        wait_until(lambda: node.get("/varz") is not None, "the server is ready")
        yield node
    finally:
        node.kill()


def fault_of(settings):
    """Why no connection is made; empty when it is."""

    async def connect():
        connection = NatsConnection(settings)
        connection.start()
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end:
                try:
                    await connection.link(0.2)
                    return ""
                except LogUnavailable as fault:
                    if connection.fault:
                        return str(fault)
        finally:
            await connection.close()
        raise AssertionError("no answer")

    return asyncio.run(connect())


#: As in docs/high-availability.md.
PERMISSIONS = """{
  publish: [
    "s.>", "_INBOX.>", "$JS.API.STREAM.INFO.s", "$JS.API.STREAM.MSG.GET.s", "$JS.API.STREAM.PURGE.s",
    "$JS.API.CONSUMER.CREATE.s", "$JS.API.CONSUMER.MSG.NEXT.s.*", "$JS.API.CONSUMER.DELETE.s.*",
    "$JS.API.STREAM.CREATE.s"
  ]
  subscribe: ["s.request.>", "_INBOX.>"]
}"""


def test_log_over_tls_with_a_client_certificate_and_a_password(tmp_path):
    authority = Authority(tmp_path)
    here, broker = authority.issue("server.pem"), authority.issue("client.pem", client=True)
    tls = f'tls {{ cert_file: "{here}", key_file: "{here}", ca_file: "{authority.file}", verify: true }}'
    nothing = '{ publish: "s.>", subscribe: "_INBOX.>" }'
    users = (
        f"authorization {{ users: [ {{ user: broker, password: secret, permissions: {PERMISSIONS} }},"
        f" {{ user: stranger, password: secret, permissions: {nothing} }} ] }}"
    )
    with NatsCluster(tmp_path / "cluster", configuration=f"{tls}\n{users}") as cluster:
        settings = ReplicatedLogSettings(
            url=cluster.url.replace("nats://", "tls://"),
            stream="s",
            user="broker",
            password="secret",
            ca=str(authority.file),
            certificate=str(broker),
            key=str(broker),
        )
        create_log(settings, -1)
        log = NatsLog(settings)
        try:
            assert isinstance(log.connect(), LogStatus)
            assert log.claim(7, 0, CLAIM) == 1
            assert append(log, write(0, b"x" * 100_000)) == 2
            assert len(read_all(log)) == 2
            log.purge("journal/1", 2)
            assert log.last("journal/1") is None
            other = NatsLog(replace(settings, broker="b"))
            other.connect()
            log.requests("a", active=True)
            wait_until(lambda: other.request("release", ""), "the request is answered")
            assert log.requests("a", active=True) == ["release"]
            other.close()
        finally:
            log.close()
        assert fault_of(settings) == ""
        forbidden = NatsLog(replace(settings, user="stranger"))
        with pytest.raises(LogUnavailable, match="permissions violation"):
            forbidden.connect()
        forbidden.close()
        assert "uthorization" in fault_of(replace(settings, password="wrong"))
        stranger = Authority(tmp_path, "stranger")
        assert "certificate" in fault_of(replace(settings, ca=str(stranger.file)))
        assert fault_of(replace(settings, certificate=None, key=None))


def test_password_is_not_sent_in_the_clear_where_tls_is_demanded():
    """A server, or somebody between, that does not offer TLS gets nothing."""
    got = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(2):
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(b'INFO {"server_id":"x","version":"2.15.2","max_payload":1048576}\r\n')
                    peer.settimeout(20)
                    got.append(peer.recv(1000))
                    peer.sendall(b"PONG\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        settings = ReplicatedLogSettings(
            url=f"tls://127.0.0.1:{port}", stream="s", user="u", password="secret"
        )
        assert "does not offer TLS" in fault_of(settings)
        fault_of(replace(settings, url=f"nats://127.0.0.1:{port}"))
        thread.join(20)
    assert got[0] == b""
    assert b"secret" in got[1], "the test sees what a client sends"


def test_files_that_cannot_be_read_are_refused(tmp_path):
    for name in ("ca", "certificate"):
        settings = replace(
            ReplicatedLogSettings(url="nats://a", stream="s"), **{name: str(tmp_path / "missing.pem")}
        )
        with pytest.raises(UnsafeLog, match="certificates"):
            NatsLog(settings)


def encoded(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def token(issuer, subject, name, nats):
    """A JWT of NATS, signed with an nkey."""
    claims = {"iss": issuer.public_key.decode(), "sub": subject, "name": name, "iat": 1, "nats": nats}
    claims["jti"] = (
        base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
    )
    text = f"{encoded({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{encoded(claims)}"
    signature = issuer.sign(text.encode())
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def test_credentials_file_of_an_operator(tmp_path):
    import nkeys

    seeds = [
        nkeys.encode_seed(os.urandom(32), prefix)
        for prefix in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    ]
    operator, account, user = (nkeys.from_seed(bytearray(seed)) for seed in seeds)
    name = account.public_key.decode()
    operator_jwt = token(operator, operator.public_key.decode(), "o", {"type": "operator", "version": 2})
    limits = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1}
    account_jwt = token(operator, name, "a", {"type": "account", "version": 2, "limits": limits})
    grants = {"type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    user_jwt = token(account, user.public_key.decode(), "u", grants)
    credentials = tmp_path / "broker.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seeds[2].decode()}\n------END USER NKEY SEED------\n",
        encoding="ascii",
    )
    nothing = tmp_path / "nothing.creds"
    nothing.write_text("nothing\n", encoding="ascii")
    configuration = (
        f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{ {name}: {account_jwt} }}\n"
    )
    with server(tmp_path / "server", configuration) as node:
        settings = ReplicatedLogSettings(url=node.url, stream="s", credentials=str(credentials))
        assert fault_of(settings) == ""
        assert "uthorization" in fault_of(replace(settings, credentials=None))
        assert "not a credentials file" in fault_of(replace(settings, credentials=str(nothing)))
        assert "No such file" in fault_of(replace(settings, credentials=str(tmp_path / "missing")))
