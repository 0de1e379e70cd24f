"""Bridges between real brokers: stompring, which is killed meanwhile, and RabbitMQ and Artemis where they are there."""

import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from benchmarks.brokers.artemis import Artemis
from benchmarks.brokers.rabbitmq import RabbitMQ

from ..artemis import artemis_home
from ..broker_document import anycast
from ..broker_process import PATIENCE
from ..ports import free_port
from ..stomp_client import StompClient
from .lasting import DURABLE, LastingBroker, numbers
from .secured import PREFIXES, Secured
from .steps import several


def bridge(name="b", queue="q", connector="c", **elements):
    """A ``<bridge>``; ``elements`` with ``_`` for ``-``."""
    given = {"queue_name": queue, "retry_interval": 100, "max_retry_interval": 100, **elements}
    inside = "".join(
        f"<{key.replace('_', '-')}>{value}</{key.replace('_', '-')}>" for key, value in given.items()
    )
    reference = f"<static-connectors><connector-ref>{connector}</connector-ref></static-connectors>"
    return f'<bridge name="{name}">{inside}{reference}</bridge>'


def core(url, *bridges, connector="c"):
    """The sections of one connector and its bridges."""
    connectors = f'<connectors><connector name="{connector}">{url}</connector></connectors>'
    return f"{connectors}<bridges>{''.join(bridges)}</bridges>"


def until(what, patience=PATIENCE):
    """Wait until something is true."""
    deadline = time.monotonic() + patience
    while not what():
        assert time.monotonic() < deadline, "time is over"
        time.sleep(0.02)


@contextmanager
def broker(directory):
    """A broker with a data directory, not yet started."""
    directory.mkdir()
    with ExitStack() as opened:
        made = LastingBroker(directory, opened)
        yield made
        made.stop()


def count(broker, queue):
    """The messages of a queue; 0 while it does not exist."""
    queues = broker.management.ask("GET", "/queues", search=queue)
    return sum(each["messageCount"] for each in queues["data"] if each["name"] == queue)


@pytest.mark.parametrize("detection", ["true", "false"])
def test_nothing_is_lost_and_the_order_is_kept_when_either_broker_is_killed(tmp_path, detection):
    port, total = free_port(), 800
    fixed = f'<acceptor name="fixed">tcp://127.0.0.1:{port}</acceptor>'
    url = f"tcp://127.0.0.1:{port}"
    forward = bridge(
        forwarding_address="far", use_duplicate_detection=detection, confirmation_window_size="4K"
    )
    with broker(tmp_path / "far") as far, broker(tmp_path / "near") as near:
        near.start(core=core(url, forward), addresses=anycast("q"))
        near.connect().put("q", *numbers(1, total // 2), **DURABLE)
        far.start(acceptors=fixed, addresses=anycast("far"))
        until(lambda: count(far, "far") > 30)
        far.kill()
        far.start()
        until(lambda: count(far, "far") > 120)
        near.kill()
        near.start()
        near.connect().put("q", *numbers(total // 2 + 1, total), **DURABLE)
        until(lambda: count(far, "far") > total // 2)
        far.kill()
        far.start()
        until(lambda: count(near, "q") == 0)
        got = far.drain("far")
    if detection == "true":
        assert got == numbers(1, total)
    else:
        assert list(dict.fromkeys(got)) == numbers(1, total)


def test_a_bridge_over_http_and_reload(tmp_path):
    with broker(tmp_path / "far") as far, broker(tmp_path / "near") as near:
        far.start(secure=False, addresses=anycast("far") + anycast("other"))
        url = f"tcp://127.0.0.1:{far.process.port}"
        first = core(url, bridge(forwarding_address="far"))
        near.start(core=first, addresses=anycast("q"))
        ask = near.management.ask
        until(lambda: ask("GET", "/bridges/b")["state"] == "CONNECTED")
        client = near.connect()
        client.put("q", "1", **DURABLE)
        until(lambda: count(far, "far") == 1)
        ask("POST", "/bridges/b/stop")
        until(lambda: ask("GET", "/bridges/b")["state"] == "STOPPED")
        client.put("q", "2", **DURABLE)
        assert near.management.queue("q")["consumerCount"] == 0
        ask("POST", "/bridges/b/start")
        until(lambda: count(far, "far") == 2)
        assert ask("POST", "/bridges/b/pause")["paused"]
        client.put("q", "3", **DURABLE)
        ask("POST", "/bridges/b/resume")
        until(lambda: count(far, "far") == 3)
        until(lambda: ask("GET", "/bridges/b")["messagesForwarded"] == 3)
        shown = ask("GET", "/bridges")["data"][0]
        assert (shown["remote"], shown["inFlight"]) == (url.removeprefix("tcp://"), 0)
        assert 'stompring_bridge_messages_forwarded_total{bridge="b",queue="q"} 3' in near.management.text(
            "/metrics"
        )

        near.process.reload(near.document(core=core(url, bridge(forwarding_address="other"))))
        assert any("bridge b changed" in line for line in near.process.log)
        client.put("q", "4", **DURABLE)
        until(lambda: count(far, "other") == 1)
        near.process.reload(near.document(core=""))
        assert any("bridge b removed" in line for line in near.process.log)
        until(lambda: near.management.queue("q")["consumerCount"] == 0)


def test_a_stop_of_the_broker_waits_for_confirmations_and_pages_are_forwarded_in_order(tmp_path):
    with broker(tmp_path / "far") as far, broker(tmp_path / "near") as near:
        far.start(addresses=anycast("far"))
        url = f"tcp://127.0.0.1:{far.process.port}"
        forward = bridge(forwarding_address="far", use_duplicate_detection="false")
        paged = {"q": {"max-size-messages": "20", "page-size-bytes": "4K"}}
        near.start(core=core(url, forward), addresses=anycast("q"), settings=paged)
        near.connect().put("q", *numbers(1, 500), **DURABLE)
        near.again("stop")
        until(lambda: count(near, "q") == 0)
        assert far.drain("far") == numbers(1, 500)


def test_a_rejected_message_becomes_a_dead_letter_and_the_others_arrive(tmp_path):
    settings = {"q": {"dead-letter-address": "dead", "max-delivery-attempts": "2"}}
    with broker(tmp_path / "far") as far, broker(tmp_path / "near") as near:
        far.start(parameters="maxBodyLength=1000", addresses=anycast("far"))
        url = f"tcp://127.0.0.1:{far.process.port}"
        forward = bridge(forwarding_address="far")
        near.start(core=core(url, forward), addresses=anycast("q") + anycast("dead"), settings=settings)
        near.connect().put("q", "1", "2", "3 " + "x" * 5000, "4", **DURABLE)
        until(lambda: count(near, "dead") == 1 and count(near, "q") == 0)
        assert far.drain("far") == ["1", "2", "4"] and near.drain("dead") == ["3"]


def test_tls_and_logins(tmp_path):
    (tmp_path / "far").mkdir()
    urls = {
        "stomp": f"ssl://127.0.0.1:0?keyStorePath=broker.pem;trustStorePath=authority.pem;needClientAuth=true;{PREFIXES}",
        "elsewhere": f"ssl://127.0.0.1:0?keyStorePath=elsewhere.pem;{PREFIXES}",
        "stranger": f"ssl://127.0.0.1:0?keyStorePath=strangers/broker.pem;{PREFIXES}",
        "http": "https://127.0.0.1:0?keyStorePath=broker.pem",
    }
    secured = Secured(tmp_path / "far", urls)
    trusting = f"trustStorePath={secured.authority.file}"
    with secured.start() as far, broker(tmp_path / "near") as near:
        targets = {
            "good": f"ssl://127.0.0.1:{far.ports['stomp']}?{trusting};keyStorePath={secured.anna}",
            "named": f"ssl://127.0.0.1:{far.ports['elsewhere']}?{trusting};sniHost=elsewhere.example",
            "wrong": f"ssl://127.0.0.1:{far.ports['elsewhere']}?{trusting}",
            "unverified": f"ssl://127.0.0.1:{far.ports['elsewhere']}?{trusting};verifyHost=false",
            "untrusted": f"ssl://127.0.0.1:{far.ports['stranger']}?{trusting}",
            "plain": f"tcp://127.0.0.1:{far.ports['elsewhere']}?connect-timeout-millis=500",
        }
        connectors = "".join(f'<connector name="{name}">{url}</connector>' for name, url in targets.items())
        bridges = "".join(bridge(name, connector=name) for name in targets)
        near.start(
            core=f"<connectors>{connectors}</connectors><bridges>{bridges}</bridges>", addresses=anycast("q")
        )

        def shown():
            return {each["name"]: each for each in near.management.ask("GET", "/bridges")["data"]}

        def settled():
            return all(each["state"] == "CONNECTED" or each["lastError"] for each in shown().values())

        until(settled)
        errors = {name: each["lastError"] or "" for name, each in shown().items()}
        assert errors["good"] == errors["named"] == errors["unverified"] == ""
        assert "is not for 127.0.0.1; set verifyHost=false" in errors["wrong"]
        assert "certificate verify failed" in errors["untrusted"]
        assert errors["plain"]


@contextmanager
def running(kind):
    """Another broker, started for the test; skipped without it."""
    home = artemis_home()
    if kind is Artemis and home is not None:
        os.environ.setdefault("ARTEMIS_HOME", str(home))
    if (missing := kind.missing()) is not None:
        pytest.skip(f"{kind.__name__} is not installed: {missing}")
    with kind() as made:
        yield made


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [RabbitMQ, Artemis])
def test_messages_reach_another_broker_once_and_in_order(kind, tmp_path):
    login = {"user": kind.login, "password": kind.passcode} if kind.login else {}
    with running(kind) as far, broker(tmp_path / "near") as near:
        url = f"tcp://127.0.0.1:{far.port}?virtualHost=/"
        forward = bridge(forwarding_address="/queue/far", routing_type="STRIP", **login)
        near.start(core=core(url, forward), addresses=anycast("q"))
        until(lambda: near.management.ask("GET", "/bridges/b")["state"] == "CONNECTED")
        sent = near.connect()
        sent.put(
            "q",
            *numbers(1, 300),
            priority=6,
            correlation_id="a:1",
            **{"content-type": "text/plain", **DURABLE},
        )
        until(lambda: near.management.ask("GET", "/bridges/b")["messagesForwarded"] == 300)
        client = StompClient(far.port)
        headers = {"login": kind.login, "passcode": kind.passcode} if kind.login else {}
        client.send("CONNECT", {"accept-version": "1.2", "host": "/", **headers})
        client.expect("CONNECTED")
        client.send("SUBSCRIBE", {"id": "1", "destination": "/queue/far", "ack": "auto"})
        frames = several(client, 300)
        assert [frame.body.decode() for frame in frames] == numbers(1, 300)
        wanted = {
            "priority": "6",
            "correlation-id": "a:1",
            "content-type": "text/plain",
            "persistent": "true",
        }
        assert {name: frames[0].get(name) for name in wanted} == wanted
        client.close()


class Remote(threading.Thread):
    """A remote broker that a test plays: it answers the CONNECT of each connection with ``answer`` and nothing else."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer = answer
        self.received = []
        self._open = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.start()

    def run(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self.received.append(connection.recv(4096))
                connection.sendall(self.answer)

    def close(self):
        self._listener.close()
        for each in self._open:
            each.close()


def test_faults_of_remote_brokers_are_named_and_a_silent_one_is_given_up(tmp_path):
    connected = b"CONNECTED\nversion:1.2\nheart-beat:%d,0\n\n\0"
    answers = {
        "silent": connected % 100,
        "mute": b"",
        "old": b"CONNECTED\nversion:1.0\n\n\0",
        "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\nnot a frame\0",
        "refusing": b"ERROR\nmessage:Bad CONNECT\n\nno such user\0",
    }
    errors = {
        "silent": "no heart-beat within 0.2 s",
        "mute": "no connection within 400 ms (connect-timeout-millis)",
        "old": "speaks STOMP 1.0 only; 1.1 or 1.2 is required",
        "garbage": "does not speak STOMP; it answers 'HTTP/1.1 400 Bad Request'",
        "refusing": "ERROR: Bad CONNECT: no such user",
        "nobody": "Connection refused",
    }
    remotes = {name: Remote(answer) for name, answer in answers.items()}
    ports = {name: remote.port for name, remote in remotes.items()} | {"nobody": free_port()}
    connectors = "".join(
        f'<connector name="{name}">tcp://127.0.0.1:{port}?virtualHost=v;connect-timeout-millis=400</connector>'
        for name, port in ports.items()
    )
    login = {"user": "u", "password": "p:w", "client_id": "me", "check_period": 100, "connection_ttl": 800}
    bridges = "".join(bridge(name, connector=name, **login) for name in ports)
    with broker(tmp_path / "near") as near:
        near.start(
            core=f"<connectors>{connectors}</connectors><bridges>{bridges}</bridges>", addresses=anycast("q")
        )

        def shown():
            found = near.management.ask("GET", "/bridges")["data"]
            return {each["name"]: each["lastError"] or "" for each in found}

        until(lambda: all(errors[name] in text for name, text in shown().items()))
        until(lambda: all(len(remote.received) > 1 for remote in remotes.values()))  # tried again
        lines = remotes["old"].received[0].decode().split("\n")
        assert lines[0] == "CONNECT"
        assert {"host:v", "login:u", "passcode:p:w", "client-id:me", "heart-beat:400,100"} <= set(lines)
        assert "accept-version:1.1,1.2" in lines
        warnings = [line for line in near.process.log if "WARNING" in line and "bridge old:" in line]
        assert len(warnings) == 1 and "p:w" not in "".join(near.process.log)
    for remote in remotes.values():
        remote.close()
