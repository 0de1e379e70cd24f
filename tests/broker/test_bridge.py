"""Bridges without I/O: what is sent, when it is acknowledged, what happens after faults of the remote broker."""

import logging
from dataclasses import replace

import pytest

from stompring.broker.bridge import Bridges, BridgeState
from stompring.settings.model import (
    BridgeConfiguration,
    ComponentRoutingType,
    Connector,
    Property,
    RoutingType,
    TransformerConfiguration,
)

from .broker_fixture import BrokerFixture

ONE, TWO = Connector("one", "one", 1), Connector("two", "two", 2)


class Remote:
    """A connection to a broker that a test plays."""

    def __init__(self, worker, connector):
        self.worker = worker
        self.connector = connector
        self.frames = []
        self.closed = False

    def write(self, data):
        while data:
            head, _, rest = data.partition(b"\n\n")
            command, *lines = head.decode().split("\n")
            assert command == "SEND"
            headers = dict(line.split(":", 1) for line in reversed(lines))
            length = int(headers["content-length"])
            self.frames.append((headers, rest[:length]))
            assert rest[length : length + 2] == b"\0\n"
            data = rest[length + 2 :]

    def close(self):
        self.closed = True

    @property
    def bodies(self):
        return [body for _, body in self.frames]

    def accept(self, server="test"):
        self.worker.on_connected(b"1.2", server)
        return self

    def confirm(self, count=1):
        """Confirm the first messages that are in flight."""
        for receipt in list(self.worker.in_flight)[:count]:
            self.worker.on_receipt(receipt)


class Fixture(BrokerFixture):
    """A broker with one bridge."""

    def __init__(self, settings=None, **more):
        super().__init__(settings)
        self.q = self.queue("q")
        self.remotes = []
        values = {"name": "b", "connectors": (ONE,), "queue_name": "q"}
        self.configuration = BridgeConfiguration(**(values | more))
        self.bridges = Bridges(self.broker, b"id", self.connect)
        self.bridges.apply([self.configuration])
        self.bridge.start()

    @property
    def bridge(self):
        return self.bridges.by_name["b"]

    @property
    def remote(self):
        return self.remotes[-1]

    def connect(self, worker, connector):
        self.remotes.append(Remote(worker, connector))
        return self.remote

    def send_all(self, *bodies, **traits):
        for body in bodies:
            self.send("q", body, **traits)
        self.settle_down()

    def lose(self, reason="lost"):
        self.remote.worker.on_closed(reason)
        self.settle_down()

    def dead_letters(self):
        return [ref.message.body for ref in self.directory.queues["dead"].dispatcher.pending]


def test_a_receipt_that_nobody_asked_for_changes_nothing():
    world = Fixture()
    world.remote.accept()
    world.send_all(b"a")
    world.remote.worker.on_receipt(b"999")
    assert world.q.messages_acknowledged == 0
    world.remote.confirm()
    world.remote.worker.on_receipt(b"1")
    assert world.q.messages_acknowledged == 1


@pytest.mark.parametrize(
    "routing, sent, forwarded",
    [
        (ComponentRoutingType.PASS, None, None),
        (ComponentRoutingType.PASS, RoutingType.ANYCAST, "ANYCAST"),
        (ComponentRoutingType.STRIP, RoutingType.ANYCAST, None),
        (ComponentRoutingType.MULTICAST, RoutingType.ANYCAST, "MULTICAST"),
    ],
)
def test_routing_type(routing, sent, forwarded):
    world = Fixture(routing_type=routing)
    world.remote.accept()
    world.send_all(b"a", routing_type=sent, headers={"destination-type": "MULTICAST", "x": "1"})
    headers, _ = world.remote.frames[0]
    assert headers.get("destination-type") == forwarded and headers["x"] == "1"


def test_headers_of_this_broker_are_not_forwarded():
    world = Fixture(forwarding_address="far:away")
    world.remote.accept()
    expires = world.now + 5000
    block = {"priority": "7", "persistent": "true", "content-type": "text/plain", "correlation-id": "1\\c2"}
    world.send_all(b"a\0b", expires=expires, headers=block)
    headers, body = world.remote.frames[0]
    number = headers["receipt"]
    assert body == b"a\0b"
    assert headers == {
        **block,
        "destination": "far\\caway",
        "receipt": number,
        "content-length": "3",
        "expires": str(expires),
        "_AMQ_DUPL_ID": f"id-{world.q.number}-{number}",
    }


def test_the_id_of_a_client_is_kept_and_none_is_added_without_duplicate_detection():
    world = Fixture()
    world.remote.accept()
    world.send_all(b"a", headers={"_AMQ_DUPL_ID": "own"})
    assert world.remote.frames[0][0]["_AMQ_DUPL_ID"] == "own"
    world = Fixture(use_duplicate_detection=False)
    world.remote.accept()
    world.send_all(b"a")
    assert "_AMQ_DUPL_ID" not in world.remote.frames[0][0]


def test_a_transformer_sets_and_removes_headers():
    added = (Property("branch", "7"), Property("priority", "9"))
    world = Fixture(transformer=TransformerConfiguration(added, ("secret",)))
    world.remote.accept()
    world.send_all(b"a", headers={"priority": "4", "persistent": "false", "secret": "x", "y": "1"})
    headers, _ = world.remote.frames[0]
    assert {name: headers.get(name) for name in ("branch", "priority", "persistent", "secret", "y")} == {
        "branch": "7", "priority": "9", "persistent": None, "secret": None, "y": "1",
    }  # fmt: skip


def test_rabbitmq_gets_the_time_that_is_left():
    world = Fixture()
    world.remote.accept("RabbitMQ/3.10.8")
    world.send_all(b"a", expires=world.now + 5000)
    headers, _ = world.remote.frames[0]
    assert headers["expiration"] == "5000" and "expires" not in headers


def test_stomp_1_1_has_other_escapes():
    world = Fixture()
    world.remote.worker.on_connected(b"1.1", "")
    world.send_all(b"a", headers={"x": "1\\r\\c2"})
    assert world.remote.frames[0][0]["x"] == "1\r\\c2"


def test_nothing_is_taken_from_the_queue_beyond_the_window():
    world = Fixture(confirmation_window_size=3000)
    world.remote.accept()
    world.send_all(*[b"x" * 1000] * 10)
    assert len(world.remote.frames) == 3 and world.q.count == 7
    world.remote.confirm()
    world.settle_down()
    assert len(world.remote.frames) == 4 and world.bridge.in_flight == 3


def test_a_slow_socket_pauses_the_bridge():
    world = Fixture()
    world.remote.accept()
    world.remote.worker.on_unwritable()
    world.send_all(b"a")
    assert world.remote.frames == [] and world.q.count == 1
    world.remote.worker.on_writable()
    world.settle_down()
    assert world.remote.bodies == [b"a"]


def test_pause_and_resume_leave_the_connection_open():
    world = Fixture()
    world.remote.accept()
    world.bridge.set_paused(True)
    world.send_all(b"a")
    assert world.remote.frames == [] and world.bridge.state is BridgeState.CONNECTED
    world.bridge.set_paused(False)
    world.settle_down()
    assert world.remote.bodies == [b"a"] and len(world.remotes) == 1


def test_connectors_are_tried_in_order_then_after_a_delay_that_grows():
    world = Fixture(
        connectors=(ONE, TWO), retry_interval=1000, retry_interval_multiplier=2, max_retry_interval=3000
    )
    begin, tried = world.now, []
    for _ in range(5):
        for connector in (ONE, TWO):
            assert world.remote.connector is connector
            tried.append(world.now - begin)
            world.lose("refused")
        world.pass_time(world.remote.worker.retry_delay())
    assert tried == [0, 0, 1000, 1000, 3000, 3000, 6000, 6000, 9000, 9000]


def test_a_connection_that_worked_is_replaced_at_once_beginning_with_the_first_connector():
    world = Fixture(connectors=(ONE, TWO), retry_interval=1000)
    world.lose("refused")
    world.remote.accept()
    world.pass_time(1000)
    assert world.remote.connector is TWO
    world.lose()
    assert world.remote.connector is ONE and len(world.remotes) == 3


@pytest.mark.parametrize(
    "limits, attempts",
    [({"initial_connect_attempts": 3}, 3), ({"initial_connect_attempts": 1}, 1)],
)
def test_initial_connect_attempts(limits, attempts):
    world = Fixture(**limits)
    for _ in range(attempts):
        world.pass_time(2000)
        assert world.bridge.state is BridgeState.CONNECTING
        world.lose("refused")
    world.pass_time(100_000)
    assert world.bridge.state is BridgeState.FAILED and len(world.remotes) == attempts
    assert world.bridge.start() and world.bridge.state is BridgeState.CONNECTING


@pytest.mark.parametrize("attempts", [0, 2])
def test_reconnect_attempts(attempts):
    world = Fixture(reconnect_attempts=attempts)
    world.remote.accept()
    world.pass_time(2000)
    world.lose()
    for _ in range(attempts):
        assert world.bridge.state is BridgeState.CONNECTING
        world.lose("refused")
        world.pass_time(2000)
    assert world.bridge.state is BridgeState.FAILED and len(world.remotes) == 1 + attempts


def rejecting(world, poison, name_it, rounds):
    """Play a remote broker that rejects one body: what it has accepted, and when connections began."""
    accepted = []
    begun = []
    for _ in range(rounds):
        if world.bridge.state is not BridgeState.CONNECTING:
            world.pass_time(250)
            continue
        begun.append(world.now)
        remote = world.remote.accept()
        at = 0
        while not remote.closed:
            world.settle_down()
            if at == len(remote.frames):
                break
            headers, body = remote.frames[at]
            at += 1
            if body == poison:
                remote.worker.on_error(headers["receipt"].encode() if name_it else None, "too large")
            else:
                accepted.append(body)
                remote.worker.on_receipt(headers["receipt"].encode())
    return accepted, begun


@pytest.mark.parametrize("name_it", [True, False])
def test_a_message_that_the_remote_broker_rejects_becomes_a_dead_letter_and_the_others_arrive(name_it):
    world = Fixture({"q": {"dead_letter_address": "dead", "max_delivery_attempts": 3}})
    world.queue("dead")
    world.send_all(b"a", b"b", b"poison", b"c", b"d")
    accepted, begun = rejecting(world, b"poison", name_it, 60)
    assert accepted == [b"a", b"b", b"c", b"d"] and world.dead_letters() == [b"poison"]
    assert world.q.message_count == 0
    # one connection for each failed delivery, one to find the message where it is not named, one for what follows
    assert len(begun) == 4 + (not name_it)
    assert all(later - earlier >= 2000 for earlier, later in zip(begun, begun[1:], strict=False))


@pytest.mark.parametrize("settings", [{}, {"q": {"dead_letter_address": "missing"}}])
def test_without_a_place_for_dead_letters_a_rejected_message_is_retained_and_retried_slowly(settings, caplog):
    caplog.set_level(logging.WARNING)
    world = Fixture(settings)
    world.send_all(b"poison", b"b")
    accepted, begun = rejecting(world, b"poison", True, 300)
    assert accepted == [] and world.q.message_count == 2
    assert (
        all(later - earlier >= 2000 for earlier, later in zip(begun, begun[1:], strict=False))
        and len(begun) > 20
    )
    rejections = [record for record in caplog.records if "rejected: too large" in record.getMessage()]
    assert len(rejections) == 1 and "dead-letter-address" in rejections[0].getMessage()


def test_each_fault_is_logged_once_until_a_connection_works(caplog):
    caplog.set_level(logging.INFO)
    world = Fixture(connectors=(ONE, TWO))
    for _ in range(10):
        world.lose("refused")
        world.lose("host not found")
        world.pass_time(2000)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "bridge b: one:1: refused; trying again every 2000 ms",
        "bridge b: two:2: host not found; trying again every 2000 ms",
    ]
    world.remote.accept()
    world.pass_time(5000)
    assert "connected to one:1" in caplog.records[-1].getMessage()


def test_a_missing_queue_is_waited_for():
    world = Fixture(queue_name="later")
    assert world.bridge.state is BridgeState.WAITING and world.remotes == []
    assert "queue later does not exist" in str(world.bridge.last_error)
    world.queue("later")
    world.pass_time(2000)
    assert world.bridge.state is BridgeState.CONNECTING


def test_a_deleted_queue_ends_the_connection():
    world = Fixture()
    world.remote.accept()
    world.send_all(b"a")
    world.directory.delete_queue("q", force=True)
    world.settle_down()
    assert world.remote.closed and world.bridge.in_flight == 0 and world.bridge.state is BridgeState.WAITING


def test_a_non_destructive_queue_is_not_bridged():
    world = Fixture(queue_name="all")
    world.queue("all", non_destructive=True)
    world.pass_time(4000)
    assert world.remotes == [] and "non-destructive" in str(world.bridge.last_error)


def test_a_bridge_that_is_started_while_it_stops_begins_again_when_it_has_stopped():
    world = Fixture()
    world.remote.accept()
    world.send_all(b"a")
    world.bridge.stop()
    assert world.bridge.start() and len(world.remotes) == 1
    world.remote.confirm()
    assert len(world.remotes) == 2 and world.bridge.state is BridgeState.CONNECTING and world.bridge.started


def test_stop_waits_no_longer_than_the_timeout():
    world = Fixture(pending_ack_timeout=5000)
    world.remote.accept()
    world.send_all(b"a")
    done = []
    world.bridge.stop(lambda: done.append(True))
    world.pass_time(5000)
    assert done and world.remote.closed and world.q.count == 1


def test_a_reload_replaces_what_has_changed_and_leaves_the_others_alone():
    world = Fixture()
    other = replace(world.configuration, name="other")
    world.bridges.start()
    world.bridges.apply([world.configuration, other])
    kept = world.bridge
    changed = replace(other, forwarding_address="x")
    assert world.bridges.apply([world.configuration, changed]) == ["bridge other changed"]
    assert world.bridge is kept and world.bridges.by_name["other"].configuration is changed
    assert world.bridges.apply([world.configuration]) == ["bridge other removed"]
    assert list(world.bridges.by_name) == ["b"] and kept.started


def test_several_workers_share_the_queue():
    world = Fixture(concurrency=2)
    for remote in world.remotes:
        remote.accept()
    world.send_all(b"a", b"b", b"c", b"d")
    assert [len(remote.frames) for remote in world.remotes] == [2, 2] and world.bridge.in_flight == 4


def test_notifications():
    world = Fixture()
    world.remote.accept()
    world.pass_time(2000)
    world.lose()
    world.bridge.stop()
    kinds = [event.type for event in world.broker.notifications.events if event.type.startswith("BRIDGE")]
    assert kinds == ["BRIDGE_STARTED", "BRIDGE_CONNECTED", "BRIDGE_DISCONNECTED", "BRIDGE_STOPPED"]
