"""The load generator's own checks: a server that answers wrongly must be found out."""

import shutil
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from benchmarks import load
from benchmarks.brokers import Relay, Stompring
from benchmarks.brokers.process import HOST, Broker

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="a C compiler is not installed"
)


def message(producer, serial, redelivered=False):
    """A MESSAGE as it comes when stompload sent it with -C."""
    body = f"{0:019d} {producer:04d} {serial:012d} xx"
    again = f"redelivered:{'true' if redelivered else 'false'}\n"
    head = (
        f"MESSAGE\nsubscription:0\nmessage-id:1\n{again}destination:/queue/a\ncontent-length:{len(body)}\n\n"
    )
    return head.encode() + body.encode() + b"\0"


class Scripted(Broker):
    """No broker: sends what it was given to whoever subscribes, and keeps what it was sent."""

    name = "scripted"

    def __init__(self, *frames):
        super().__init__()
        self.sent = []
        self.subscribed = []
        self._frames = frames
        self._listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    @classmethod
    def missing(cls):
        return None

    def version(self):
        return "0"

    def prepare(self):
        raise AssertionError("it is not started")

    def close(self):
        """Accept nobody any more."""
        self._listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client):
        unread = b""
        while read := client.recv(65536):
            unread += read
            *frames, unread = unread.split(b"\0")
            for frame in frames:
                self._answer(client, frame.lstrip())
        client.close()

    def _answer(self, client, frame):
        command = frame.split(b"\n", 1)[0]
        if command == b"CONNECT":
            client.sendall(b"CONNECTED\nversion:1.2\n\n\0")
        elif command == b"SUBSCRIBE":
            self.subscribed.append(frame)
            client.sendall(b"".join(self._frames))
        elif command == b"SEND":
            self.sent.append(frame)
            head = dict(line.split(b":", 1) for line in frame.split(b"\n\n", 1)[0].split(b"\n")[1:])
            if b"receipt" in head:
                client.sendall(b"RECEIPT\nreceipt-id:" + head[b"receipt"] + b"\n\n\0")


@pytest.fixture
def serve():
    """Makes servers that send these frames; all are closed after the test."""
    with ExitStack() as opened:

        def server(*frames, kind=Scripted):
            made = kind(*frames)
            opened.callback(made.close)
            return made

        yield server


@pytest.fixture
def scripted(serve):
    """A server without frames."""
    return serve()


@pytest.mark.parametrize(
    "messages, expected",
    [
        ([(0, 0), (0, 1), (0, 2), (0, 3)], (4, 0, 0, 0)),
        ([(0, 0), (0, 1), (0, 1), (0, 2)], (3, 1, 0, 0)),
        ([(0, 0), (0, 2), (0, 1), (0, 0)], (3, 1, 2, 0)),
        ([(0, 70_000), (0, 140_000), (0, 70_000)], (2, 1, 1, 0)),
        ([(0, 0), (1, 0), (1, 1), (0, 1)], (4, 0, 0, 0)),  # of two producers
        ([(0, 0), (0, 1, True)], (2, 0, 0, 1)),
    ],
)
def test_repeated_disordered_and_redelivered_messages_are_counted(serve, messages, expected):
    server, count = serve(*(message(*each) for each in messages)), len(messages)
    numbers = load.run(server, "-m", "consume", "-C", "1", "-n", str(count), "-T", "5")
    assert numbers["received"] == count
    kinds = ("distinct", "repeated", "disordered", "redelivered")
    assert tuple(numbers[kind] for kind in kinds) == expected


def test_each_subscriber_of_a_topic_may_have_each_message_once(serve):
    server = serve(message(0, 0), message(0, 1))
    numbers = load.run(server, "-m", "consume", "-C", "1", "-t", "1", "-c", "2", "-n", "2", "-T", "5")
    assert (numbers["received"], numbers["distinct"], numbers["repeated"]) == (4, 4, 0)


def test_a_message_that_does_not_come_is_a_failure(scripted):
    with pytest.raises(load.LoadFailed, match="ended with 3"):
        load.run(scripted, "-m", "consume", "-n", "1", "-T", "1")


def test_a_body_without_a_number_is_a_failure(serve):
    server = serve(b"MESSAGE\nmessage-id:1\n\nhello\0")
    with pytest.raises(load.LoadFailed, match="no number"):
        load.run(server, "-m", "consume", "-C", "1", "-n", "1", "-T", "5")


def test_producers_number_their_bodies(scripted):
    load.run(scripted, "-m", "produce", "-C", "1", "-n", "3", "-r", "1", "-s", "20")
    bodies = [frame.split(b"\n\n", 1)[1] for frame in scripted.sent]
    assert [body[20:38] for body in bodies] == [b"0000 %012d " % serial for serial in range(3)]


def test_progress_is_told_after_every_so_many_messages(scripted):
    with load.Running(scripted, "-m", "produce", "-n", "10", "-r", "1", "-i", "4") as running:
        done = [told["done"] for told in running.lines()]
        assert running.finish()["sent"] == 10
    assert done == [4, 8]


def test_a_stuck_consumer_reads_nothing_until_it_is_released(serve):
    server = serve(*(message(0, serial) for serial in range(10)))
    with load.Running(server, "-m", "consume", "-k", "1", "-C", "1", "-n", "10", "-i", "10") as running:
        told = running.lines()
        assert next(told) == {"stuck": 1}
        running.release()
        assert next(told)["done"] == 10
        assert running.finish()["distinct"] == 10


def test_an_interrupted_run_tells_what_it_did(serve):
    server = serve(message(0, 0), message(0, 1))
    with load.Running(server, "-m", "consume", "-n", "5", "-i", "2") as running:
        next(running.lines())
        running.interrupt()
        assert running.finish()["received"] == 2


def test_processes_that_build_at_once_find_a_whole_program_and_build_it_once(monkeypatch, tmp_path):
    source = tmp_path / "small.c"
    source.write_text("int main(void) { return 7; }\n")
    monkeypatch.setattr(load, "SOURCE", source)
    monkeypatch.setattr(load, "BUILD", tmp_path)
    with ThreadPoolExecutor(8) as pool:
        statuses = pool.map(lambda _: subprocess.run([load.build()]).returncode, range(8))
        assert set(statuses) == {7}
    built = load.build().stat().st_mtime_ns
    assert load.build().stat().st_mtime_ns == built


class SpeaksNats(Scripted):
    """As much of NATS as a run needs: what is published goes to all subscriptions."""

    protocol = "nats"

    def __init__(self):
        self._receivers = []
        super().__init__()

    def _talk(self, client):
        client.sendall(b"INFO {}\r\n")
        with client.makefile("rb") as lines:
            for line in lines:
                words = line.split()
                if words[0] == b"PING":
                    client.sendall(b"PONG\r\n")
                elif words[0] == b"SUB":
                    self._receivers.append((client, words[2]))
                elif words[0] == b"PUB":
                    body = lines.read(int(words[2]) + 2)
                    self.sent.append(words[1])
                    for receiver, number in self._receivers:
                        receiver.sendall(b"MSG %b %b %d\r\n%b" % (words[1], number, len(body) - 2, body))


def test_it_speaks_nats(serve):
    server = serve(kind=SpeaksNats)
    numbers = load.run(server, "-n", "5", "-C", "1", "-d", "bench", "-T", "5")
    assert (numbers["received"], numbers["distinct"], numbers["repeated"]) == (5, 5, 0)
    assert server.sent == [b"bench.0"] * 5


def destinations(frames):
    return [frame.split(b"destination:", 1)[1].split(b"\n", 1)[0] for frame in frames]


def test_destinations_are_sent_to_in_turn_and_each_is_subscribed_to(scripted):
    names = [b"/queue/q.%06d" % number for number in range(3)]
    load.run(scripted, "-m", "produce", "-Q", "3", "-n", "4", "-r", "1", "-d", "/queue/q")
    assert destinations(scripted.sent) == [*names, names[0]]
    with pytest.raises(load.LoadFailed, match="not subscribed after"):
        load.run(scripted, "-Q", "3", "-n", "1", "-O", "0.2", "-d", "/queue/q")
    assert destinations(scripted.subscribed) == names


@pytest.fixture(scope="module")
def broker():
    """One broker with listeners for TCP, WebSocket and TLS."""
    with Stompring(tls=True) as started:
        yield started


def over(transport, broker, *options):
    """Run stompload over a transport, if OpenSSL's program and headers are installed for it."""
    if broker.transport_port(transport) is None:
        pytest.skip("openssl is not installed")
    try:
        return load.run(broker, "-E", transport, *options)
    except load.LoadFailed as failure:
        if "built without TLS" not in str(failure):
            raise
        pytest.skip("OpenSSL is not installed with its headers")


@pytest.mark.parametrize("body", ["128", "100000"])
@pytest.mark.parametrize("transport", ["tcp", "ws", "tls"])
def test_every_message_arrives_over_each_transport(broker, transport, body):
    options = ["-C", "1", "-s", body, "-n", "60", "-a", "client-individual", "-r", "1"]
    numbers = over(transport, broker, *options, "-d", f"/queue/{transport}.{body}", "-T", "20")
    assert (numbers["received"], numbers["distinct"], numbers["disordered"]) == (60, 60, 0)


def test_a_run_over_many_destinations_loses_nothing(broker):
    numbers = load.run(broker, "-Q", "7", "-p", "2", "-c", "3", "-C", "1", "-n", "100", "-d", "/queue/many")
    assert (numbers["received"], numbers["distinct"], numbers["repeated"]) == (100, 100, 0)


def test_it_runs_without_a_broker():
    numbers = load.alone("-n", "50", "-C", "1")
    assert (numbers["received"], numbers["distinct"], numbers["disordered"]) == (50, 50, 0)


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_the_relay_passes_on_what_producers_send(transport):
    with Relay() as relay:
        numbers = over(transport, relay, "-n", "50", "-C", "1", "-c", "2", "-t", "1", "-T", "20")
    assert (numbers["received"], numbers["distinct"]) == (100, 100)
