"""Limits over real sockets: each refusal is told to whom it concerns and counted, and the broker lives on."""

import re
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..broker_document import broker_xml
from ..broker_process import PATIENCE
from ..management import Answered
from ..stomp_client import StompClient, frame_bytes
from ..waiting import Deadline
from ..wire import SocketWire
from .steps import begin, commit, connected, make_queue, refused, say

SLOW = {"slow.#": {"slow-consumer-threshold": "5", "slow-consumer-check-period": "1"}}
KILLED = {"slow.#": {**SLOW["slow.#"], "slow-consumer-policy": "KILL"}}


def refusals(management):
    """How often each limit has refused something."""
    counts = management.ask("GET", "/broker")["refusals"]
    return {limit: number for limit, number in counts.items() if number}


def resident(broker):
    """Bytes of memory."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def processor_time(broker):
    """Seconds that the process has worked so far."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# ---- connections


def test_connections_in_all_by_acceptor_and_by_host(start_broker):
    broker = start_broker(
        core="<global-max-connections>4</global-max-connections>", parameters="connectionsAllowedPerHost=3"
    )
    management = broker.management()
    with ExitStack() as opened:
        clients = [broker.client() for _ in range(3)]
        for client in clients:
            opened.callback(client.close)
            client.connect()
        broker.client().error("3 connections from 127.0.0.1", "connectionsAllowedPerHost")
        elsewhere = StompClient(wire=SocketWire(broker.port, source="127.0.0.2"))
        opened.callback(elsewhere.close)
        elsewhere.connect()
        broker.client().error("4 connections to this broker", "global-max-connections")
        assert management.ask("GET", "/broker")["connectionCount"] == 4
        wanted = {"connectionsAllowedPerHost": 1, "global-max-connections": 1}
        management.until(lambda: refusals(management) == wanted)
        text = management.text("/metrics")
        assert 'stompring_refusals_total{limit="global-max-connections"} 1' in text
        assert "stompring_connections_limit 4" in text
        clients[0].disconnect()
        again = broker.client()
        opened.callback(again.close)
        again.connect()


def test_a_flood_of_connections_costs_two_lines(serve):
    broker, management, client = serve(core="<global-max-connections>1</global-max-connections>")
    before = len(broker.log)
    for _ in range(300):
        broker.client().error("global-max-connections")
    client.put("q", "still served")
    lines = [line for line in broker.log[before:] if "global-max-connections" in line]
    assert 1 <= len(lines) <= 2 + PATIENCE // 10, lines
    assert refusals(management) == {"global-max-connections": 300}
    client.disconnect()


def test_a_reload_changes_what_can_change(serve):
    broker, management, client = serve(core="<global-max-connections>1</global-max-connections>")
    broker.client().error("global-max-connections")
    broker.reload(
        broker_xml(
            core="<global-max-connections>2</global-max-connections><global-max-queues>1</global-max-queues>"
        )
    )
    second = connected(broker)
    client.put("one", "x")
    say(second, "two")
    second.error("There are 1 queues, and the limit is 1", "global-max-queues")
    with pytest.raises(Answered, match="HTTP 409: .*global-max-queues"):
        make_queue(management, "two")
    client.disconnect()


def test_a_process_without_file_descriptors_goes_on(serve):
    """Each connection that comes then is closed at once, and nothing turns in circles."""
    broker, management, client = serve()
    client.put("q", "before")  # the queue is there, and whatever files that needs
    used = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (used + 10, limits[1]))
    with ExitStack() as opened:
        crowd = [socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) for _ in range(60)]
        for one in crowd:
            opened.callback(one.close)
        closed = 0
        for one in crowd:
            one.settimeout(0.2)
            try:
                closed += not one.recv(1)
            except TimeoutError:
                pass
            except ConnectionResetError:
                closed += 1
            if closed >= 40:
                break
        assert closed >= 40
        client.put("q", "a message")
        before = processor_time(broker)
        time.sleep(2)
        assert processor_time(broker) - before < 1
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
    deadline = Deadline()
    while management.ask("GET", "/broker")["connectionCount"] > 1:
        assert not deadline.passed()
    assert management.ask("GET", "/broker")["refusals"]["open-files"] >= 40
    assert any("Open file limit reached" in line for line in broker.log)
    late = connected(broker)
    late.subscribe("q")
    late.messages("before", "a message")
    late.disconnect()
    client.disconnect()


# ---- a client that does not read


def test_who_reads_no_answers_is_not_read_and_takes_no_memory(start_broker):
    broker = start_broker(parameters="outboxSize=64K")
    greedy, other = broker.client(), broker.client()
    for client in (greedy, other):
        client.connect()
    other.put("warm", "up")
    before = resident(broker)
    frames = b"".join(
        frame_bytes("SEND", {"destination": "x", "_AMQ_ROUTING_TYPE": "0", "receipt": f"{n:060}"})
        for n in range(500)
    )
    greedy.socket.settimeout(3)
    sent, most = 0, 400 * len(frames)
    try:
        while sent < most:
            sent += greedy.socket.send(frames[sent % len(frames) :])
    except TimeoutError:
        pass
    assert sent < most, "the broker reads for ever"
    assert resident(broker) - before < 30 * 1024 * 1024
    other.put("warm", "up")
    greedy.socket.settimeout(PATIENCE)
    answers = 0
    while answers < sent // len(frames) * 500:  # all that it sent whole is answered once it reads
        data = greedy.socket.recv(1 << 18)
        assert data, "the broker has closed the connection"
        answers += data.count(b"\0")
    other.disconnect()


# ---- transactions


@pytest.mark.broker(parameters="maxTransactionBytes=100K")
def test_what_transactions_hold(client, connect, management, name):
    other = connect()
    begin(client)
    client.put(name, b"x" * 102_400, transaction="t")
    assert management.ask("GET", "/broker")["transactionSize"] > 102_400
    refused(client, name, b"x", "maxTransactionBytes", "102400", transaction="t")
    begin(other)
    other.put(name, b"x" * 102_400, transaction="t")
    commit(other)
    management.expect(name, messageCount=1)
    assert management.ask("GET", "/broker")["transactionSize"] == 0


# ---- what is not acknowledged


@pytest.mark.broker(parameters="maxUnsettledMessages=3")
def test_unsettled_messages(client, management, name):
    client.put(name, *"12345")
    client.subscribe(name, consumer_window_size="-1", prefetch_count="-1")
    first, *_ = client.messages(*"123")
    client.nothing()
    assert management.ask("GET", "/broker")["exhaustedConsumers"] == 1
    client.answer("ACK", first)
    client.message("4")
    client.nothing()


# ---- slow consumers


def test_a_slow_consumer_is_closed(serve):
    broker, management, producer = serve(settings=KILLED)
    slow, fast = broker.client(), broker.client()
    for client in (slow, fast):
        client.connect()
    slow.subscribe("slow.q", prefetch_count="10")
    fast.subscribe("slow.q", ack="auto")
    deadline = Deadline()
    while management.queue("slow.q")["consumerCount"] == 2:
        producer.put("slow.q", *["x"] * 30)
        fast.hear(0.05)
        assert not deadline.passed()
    while (frame := slow.frame()).command == "MESSAGE":
        pass
    assert frame.command == "ERROR" and "slow consumer of queue slow.q" in frame["message"], frame.raw
    assert "slow-consumer-threshold is 5 messages per second" in frame["message"]
    management.expect("slow.q", consumerCount=1)
    shown = management.ask("GET", "/broker")
    assert shown["slowConsumersKilled"] == 1 and shown["slowConsumersNotified"] == 0
    producer.put("slow.q", "end")
    while fast.message().body != b"end":
        pass
    management.expect("slow.q", messageCount=0)
    fast.disconnect()
    producer.disconnect()


def test_a_client_that_reads_nothing_is_a_slow_consumer(serve):
    """With ack:auto a message counts once it is written, and to a stuck socket nothing is."""
    broker, management, producer = serve(settings=KILLED)
    stuck = connected(broker)
    stuck.subscribe("slow.q", ack="auto")
    producer.put("slow.q", *["x" * 100_000] * 300)
    producer.put("slow.q", *["x"] * 300)
    deadline = Deadline()
    while management.ask("GET", "/broker")["slowConsumersKilled"] == 0:
        assert not deadline.passed()
        time.sleep(0.1)
    management.expect("slow.q", consumerCount=0)
    assert management.queue("slow.q")["messageCount"] > 0
    stuck.close()
    producer.disconnect()


def test_a_slow_consumer_is_told_of(serve):
    broker, management, slow = serve(settings=SLOW)
    watcher = connected(broker)
    watcher.subscribe(
        "/topic/activemq.notifications", ack="auto", selector="_AMQ_NotifType = 'CONSUMER_SLOW'"
    )
    slow.put("slow.q", *["x"] * 30)
    slow.subscribe("slow.q", id="mine", prefetch_count="1")
    told = watcher.message()
    assert told["_AMQ_Address"] == told["_AMQ_RoutingName"] == "slow.q"
    assert told["_AMQ_ConsumerName"] == "mine" and told["_AMQ_ConsumerCount"] == "1"
    host, port = slow.socket.getsockname()
    assert told["_AMQ_RemoteAddress"] == f"{host}:{port}"
    assert told["_AMQ_ConnectionName"] == told["_AMQ_SessionName"] == slow.connected["session"]
    shown = management.ask("GET", "/broker")
    assert (
        shown["slowConsumersNotified"] >= 1
        and shown["slowConsumersKilled"] == 0
        and shown["slowConsumers"] == 1
    )
    broker.wait_for_log("slow consumer of queue slow.q")
    slow.message("x")
    slow.disconnect()
    watcher.disconnect()


# ---- queues


def test_queues_of_a_user_count_after_a_restart_too(lasting):
    limits = (
        '<resource-limit-settings><resource-limit-setting match="ann"><max-sessions>1</max-sessions>'
        "<max-queues>2</max-queues></resource-limit-setting></resource-limit-settings>"
    )
    lasting.start(core=limits)
    ann = lasting.connect(login="ann")
    ann.put("one", "x")
    ann.put("two", "x")
    second = lasting.running.client()
    second.send("CONNECT", {"accept-version": "1.2", "host": "/", "login": "ann"})
    second.error("User ann has 1 sessions, and the limit is 1", "max-sessions")
    ann.disconnect()
    lasting.stop()
    lasting.start()
    management = lasting.management
    assert management.queue("one")["user"] == "ann"
    ann = lasting.connect(login="ann")
    say(ann, "three")
    ann.error("User ann has 2 queues, and the limit is 2", "max-queues")
    management.ask("DELETE", "/queues/one", force="true")
    ann = lasting.connect(login="ann")
    ann.put("three", "x")
    ann.disconnect()


# ---- HTTP
