"""``stompring transfer`` between real brokers, and to a target that refuses: nothing is lost, whatever stops."""

import json
import re
import signal
import socket
import threading
from contextlib import suppress

import pytest

from stompring.cli.transfer import DuplicateIds, Interrupts, Plan, Transfer, send_frame
from stompring.pipeline.stomp.connection import Endpoint
from stompring.stomp.client import StompClient as Reader

from ..artemis_instance import free_port
from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from ..waiting import LONGEST
from .command import environment, run, start

LOCAL = "127.0.0.1"


class Side:
    """A broker that keeps its port and its data when it is started again."""

    def __init__(self, directory):
        directory.mkdir()
        self.port = free_port()
        document = broker_xml(settings={"full.#": {"max-size-messages": 3, "address-full-policy": "FAIL"}})
        stomp = re.compile(rf"tcp://{LOCAL}:0")
        self.config = directory / "broker.xml"
        self.config.write_text(stomp.sub(f"tcp://{LOCAL}:{self.port}", document, count=1))
        self.start()

    def start(self):
        self.broker = BrokerProcess(self.config)
        self.broker.__enter__()

    def kill(self):
        self.broker.terminate(signal.SIGKILL)
        self.broker.exit_code()

    @property
    def url(self):
        return f"stomp://{LOCAL}:{self.port}"

    @property
    def management(self):
        return Management(self.broker.http_port)

    def client(self):
        client = StompClient(self.port)
        client.connect()
        return client

    def put(self, queue, *bodies, **headers):
        client = self.client()
        client.put(f"/queue/{queue}", *bodies, **headers)
        client.close()

    def take(self, queue, ack="auto"):
        """The bodies of all messages; with another ``ack`` they stay."""
        count = self.management.queue(queue)["messageCount"]
        client = self.client()
        client.subscribe(f"/queue/{queue}", ack=ack, prefetch_count=-1)
        bodies = [client.message().body.decode() for _ in range(count)]
        client.close()
        return bodies


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    directory = tmp_path_factory.mktemp("transfer")
    both = Side(directory / "a"), Side(directory / "b")
    yield both
    for side in both:
        side.broker.stop()


def words(queue, source, target, more=""):
    return f"transfer /queue/{queue} --from {source.url} --to {target.url} --timeout 0.3 {more}"


class Refusing(threading.Thread):
    """A broker of a few lines whose answer to a SEND is a RECEIPT where ``verdict`` is empty, else an ERROR with it."""

    def __init__(self, verdict, version="1.2", stall=0.0):
        super().__init__(daemon=True)
        self.verdict, self.version = verdict, version
        self.stall = stall  # seconds in which it reads nothing after CONNECT
        self.seen = 0
        self.accepted = []
        self._listener = socket.create_server((LOCAL, 0))
        self.url = f"stomp://{LOCAL}:{self._listener.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            connection, _ = self._listener.accept()
            with suppress(OSError), connection:
                self._talk(connection)

    def _talk(self, connection):
        rest = b""
        while data := connection.recv(1 << 22):
            *frames, rest = (rest + data).split(b"\0")
            for each in frames:
                head, _, body = each.lstrip(b"\n").partition(b"\n\n")
                found = re.search(rb"\nreceipt:(.*)", head)
                receipt = b"" if found is None else found[1]
                answer = ""
                if head.startswith(b"CONNECT"):
                    connection.sendall(f"CONNECTED\nversion:{self.version}\nheart-beat:0,0\n\n\0".encode())
                    threading.Event().wait(self.stall)
                    continue
                if head.startswith(b"SEND"):
                    self.seen += 1
                    answer = self.verdict(self.seen)
                if answer:
                    connection.sendall(b"ERROR\nreceipt-id:%b\nmessage:%b\n\n\0" % (receipt, answer.encode()))
                    connection.shutdown(socket.SHUT_WR)
                    return
                if head.startswith(b"SEND"):
                    self.accepted.append(body.decode())
                if receipt:
                    connection.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt)


def test_all_messages_with_their_headers(sides, queue):
    a, b = sides
    body = "zażółć\0 🐢" * 20_000
    own = {"x-a": "1:2\\\n", "content-type": "text/plain", "content-length": len(body.encode())}
    a.put(queue, "")
    a.put(queue, body, **own)
    a.put(queue, "kept", persistent="true", priority=7, expires=253402300799998, JMSXGroupID="g", type="t")
    done = run(words(queue, a, b, f"--to-destination /queue/{queue}.new --json -H x-b=2"))
    assert json.loads(done.stdout)["transferred"] == 3
    assert f"transferred 3 messages to /queue/{queue}.new" in done.stderr.decode()
    assert a.management.queue(queue)["messageCount"] == 0
    client = b.client()
    client.subscribe(f"/queue/{queue}.new", ack="auto")
    kept, empty, text = client.message("kept"), client.message(""), client.message(body)
    client.close()
    for name, value in {"persistent": "true", "priority": "7", "JMSXGroupID": "g", "type": "t"}.items():
        assert kept[name] == value
    assert kept["expires"] == "253402300799998" and empty["expires"] == "0"
    assert (text["x-a"], text["x-b"], text["content-type"]) == ("1:2\\\n", "2", "text/plain")
    assert text["persistent"] == "false" and text["redelivered"] == "false"


def test_some_messages(sides, queue):
    a, b = sides
    for n in range(6):
        a.put(queue, str(n), n=n)
    run(words(queue, a, b, "--count 2 --selector 'n > 1'"))
    assert b.take(queue) == ["2", "3"]
    client = a.client()
    client.subscribe(f"/queue/{queue}", ack="auto")
    # returned by UNSUBSCRIBE: no failed attempt, and in order
    assert [client.message().body for _ in range(4)] == [b"0", b"1", b"4", b"5"]
    client.close()


@pytest.mark.parametrize("killed", ["command", "interrupted", "source", "target"])
def test_nothing_is_lost_whatever_stops(sides, queue, killed):
    a, b = sides
    expected = [str(n) for n in range(2000)]
    a.put(queue, *expected, persistent="true")
    watcher = b.client()
    watcher.subscribe(f"/queue/{queue}", ack="client", prefetch_count=50)
    command = words(queue, a, b, "--window 20")
    process = start(command)
    for _ in range(50):
        watcher.message()
    if killed in ("command", "interrupted"):
        process.send_signal(signal.SIGKILL if killed == "command" else signal.SIGINT)
    else:
        (a if killed == "source" else b).kill()
    stderr = process.communicate(timeout=LONGEST * PATIENCE)[1].decode()
    watcher.close()
    assert process.returncode == {"command": -signal.SIGKILL, "interrupted": 130}.get(killed, 5), stderr
    if killed == "interrupted":
        transferred = int(re.findall(r"transferred ([\d,]+) messages", stderr)[0].replace(",", ""))
        assert b.management.queue(queue)["messageCount"] == transferred
        assert a.management.queue(queue)["messageCount"] == 2000 - transferred
    elif killed != "command":
        lost = a if killed == "source" else b
        assert f"{LOCAL}:{lost.port} " in stderr and "run the command again" in stderr
        lost.start()
    run(command)
    assert a.management.queue(queue)["messageCount"] == 0
    found = b.take(queue)
    assert sorted(found, key=int) == expected, "a duplicate id makes a repeat no second message"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_target_that_refuses_every_third(sides, queue, version):
    a, _ = sides
    expected = [str(n) for n in range(10)]
    a.put(queue, *expected, persistent="true")
    target = Refusing(lambda n: "" if n % 3 else "not this one", version)
    for round_ in range(4):
        text = run(words(queue, a, target), code=1).stderr.decode()
        assert "refuses: not this one (message " in text and "was refused; 2 messages transferred" in text
        assert a.take(queue, ack="client") == expected[2 * (round_ + 1) :]
    run(words(queue, a, target))
    assert target.accepted == expected
    assert a.management.queue(queue)["messageCount"] == 0


def test_a_full_target_is_the_reason(sides, queue):
    a, b = sides
    a.put(queue, *"12345")
    done = run(words(queue, a, b, f"--to-destination /queue/full.{queue}"), code=1)
    assert "full" in done.stderr.decode() and "3 messages transferred" in done.stderr.decode()
    assert a.take(queue) == ["4", "5"] and b.take(f"full.{queue}") == ["1", "2", "3"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_source_of_an_earlier_version(sides, queue, version):
    a, b = sides
    a.put(queue, "1", "2", **{"x": "a:b\\c"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stompring.cli.transfer.ANY_VERSION", version)
        assert transfer(queue, a, b) == 2
    assert a.management.queue(queue)["messageCount"] == 0
    client = b.client()
    client.subscribe(f"/queue/{queue}", ack="auto")
    assert [client.message(body)["x"] for body in ("1", "2")] == ["a:b\\c"] * 2
    client.close()


def transfer(queue, source, target, heart_beat=0, timeout=0.3):
    """Within this process; returns the number of messages."""
    work = Transfer(Plan(f"/queue/{queue}", f"/queue/{queue}", None, None, timeout, 100), Interrupts(), True)
    port = int(target.url.rpartition(":")[2])
    ends = Endpoint(LOCAL, source.port, heart_beat=heart_beat), Endpoint(LOCAL, port, heart_beat=heart_beat)
    assert work.run(*ends) == 0
    return work.transferred


def test_the_source_gets_heart_beats_while_the_target_reads_nothing(sides, queue):
    a, _ = sides
    body = "x" * 20_000_000  # more than sockets hold
    a.put(queue, body)
    # several times the heart-beats that were agreed on with the source
    target = Refusing(lambda _: "", stall=3.0)
    assert transfer(queue, a, target, heart_beat=200, timeout=5.0) == 1
    assert target.accepted == [body] and a.management.queue(queue)["messageCount"] == 0


def test_a_target_that_does_not_answer(sides, queue):
    a, _ = sides
    a.put(queue, "1")
    ever = threading.Event()
    target = Refusing(lambda _: "late" if ever.wait(PATIENCE) else "")
    done = run(words(queue, a, target, "--connect-timeout 0.5"), code=5)
    assert "sends no RECEIPT for 0.5 s (0 messages transferred; all others stay" in done.stderr.decode()
    ever.set()
    assert a.take(queue) == ["1"]


def test_the_source_is_not_the_target(sides, queue):
    a, _ = sides
    a.put(queue, "1", "2", "3")
    done = run(words(queue, a, a), code=2)
    assert "are the same broker" in done.stderr.decode()
    done = run(words(queue, a, a, f"--to-destination {queue}"), code=1)
    assert "has returned" in done.stderr.decode()
    assert sorted(a.take(queue)) == ["1", "2", "3"]


def test_there_and_back_with_duplicate_ids(sides, queue):
    a, b = sides
    a.put(queue, "1", _AMQ_DUPL_ID="own")
    for source, target in ((a, b), (b, a), (a, b)):
        run(words(queue, source, target))
        assert source.management.queue(queue)["messageCount"] == 0
        assert target.management.queue(queue)["messageCount"] == 1
    a.put(queue, "2", _AMQ_DUPL_ID="other")
    run(words(queue, a, b, "--keep-duplicate-id"))
    b.put(queue, "2", _AMQ_DUPL_ID="other")
    assert b.take(queue) == ["1", "2"]
    done = run(words(queue, a, a, "--to-destination x --keep-duplicate-id"), code=2)
    assert "needs two brokers" in done.stderr.decode()


def test_each_end_has_its_own_login(sides, queue, tmp_path):
    a, b = sides
    named = a.url.replace("//", "//ada@")
    shared = environment(tmp_path, STOMPRING_PASSWORD="secret")
    done = run(f"transfer /queue/{queue} --from {named} --to {b.url}", env=shared, code=2)
    assert "set STOMPRING_FROM_PASSWORD, or use --from-password-file" in done.stderr.decode()
    contexts = tmp_path / "no" / "stompring"
    contexts.mkdir(parents=True)
    (tmp_path / "password").write_text("p\n")
    old = {"broker": named, "user": "ada", "password_file": str(tmp_path / "password")}
    (contexts / "contexts.json").write_text(json.dumps({"contexts": {"old": old}}))
    env = environment(tmp_path, XDG_CONFIG_HOME=str(contexts.parent), STOMPRING_TO_PASSWORD="x")
    a.put(queue, "1")
    new = b.url.replace("//", "//bob@")
    run(f"transfer /queue/{queue} --from old --to", new, "--timeout", "0.3", env=env)
    assert b.take(queue) == ["1"]


def message(body=b"x", **headers):
    lines = {"message-id": "q-1", "destination": "/queue/q", "subscription": "0", "timestamp": "5", **headers}
    block = "".join(f"{name}:{value}\n" for name, value in lines.items())
    reader = Reader()
    reader.receive(b"CONNECTED\nversion:1.2\n\n\0MESSAGE\n" + block.encode() + b"\n" + body + b"\0")
    return reader.messages[0]


@pytest.mark.parametrize(
    "headers, kept",
    [
        ({"ack": "q-1", "redelivered": "true", "JMSXDeliveryCount": "2"}, ""),
        ({"AMQ_SCHEDULED_DELAY": "9", "AMQ_SCHEDULED_CRON": "* * * * *", "_AMQ_SCHED_DELIVERY": "5"}, ""),
        ({"destination-type": "MULTICAST", "_AMQ_ROUTING_TYPE": "0", "transaction": "t", "receipt": "r"}, ""),
        ({"expires": "0", "reply-to": "/temp-queue/answers"}, ""),
        ({"expires": "9", "reply-to": "/queue/answers"}, "expires:9\nreply-to:/queue/answers\n"),
        ({"persistent": "true", "priority": "3"}, "persistent:true\npriority:9\n"),
        ({"content-length": "1"}, "content-length:1\n"),  # else a text message of JMS, which stays one
    ],
)
def test_headers_that_are_forwarded(headers, kept):
    own, fixed = [(b"destination", b"d")], [(b"priority", b"9")] if "priority" in headers else []
    found = send_frame(own, fixed, *message(**headers), b"1.2").decode()
    assert sorted(found.splitlines()) == sorted(f"SEND\ndestination:d\n{kept}\nx\0".splitlines())


def test_a_duplicate_id_is_of_one_message_and_of_each_of_its_deliveries():
    ids, artemis = DuplicateIds("a", "ours"), DuplicateIds("a", "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis …")
    first = ids.of(*message(redelivered="false"))
    assert first == ids.of(*message(redelivered="true", **{"message-id": "q-1"}))
    others = [
        DuplicateIds("b", "ours").of(*message()),
        ids.of(*message(b"y")),
        ids.of(*message(timestamp="6")),
        ids.of(*message(**{"message-id": "q-2"})),
        ids.of(*message(**{"message-id": "85171,85168"})),
        ids.of(*message(**{"message-id": "85181,85168"})),
        artemis.of(*message(**{"message-id": "85171,85168"})),
    ]
    assert len({first, *others}) == 8
    assert artemis.of(*message(**{"message-id": "85181,85168"})) == others[-1]
