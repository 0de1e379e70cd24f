"""What a client finds again after the broker was stopped or killed: messages, their order, counts, times."""

import pytest

from .lasting import DURABLE, take

pytestmark = pytest.mark.in_memory


def test_durable_messages_stay_and_others_go(lasting, how):
    client = lasting.start().connect()
    client.put("q", "1", "2", **DURABLE)
    client.put("q", "gone")
    client.put("q", "3", **DURABLE)
    lasting.again(how)
    lasting.management.expect("q", messageCount=3, deliveringCount=0)
    assert lasting.drain("q") == ["1", "2", "3"]
    lasting.again(how)
    lasting.management.expect("q", messageCount=0)


def test_what_was_acknowledged_stays_away(lasting):
    client = lasting.start().connect()
    client.put("q", *"12345", **DURABLE)
    client.subscribe("q")
    messages = client.messages(*"12345")
    client.answer("ACK", messages[3])
    client.answer("ACK", messages[0])
    assert lasting.again().drain("q") == ["2", "3", "5"]


def test_new_messages_stand_behind_old_ones_and_ids_do_not_repeat(lasting):
    client = lasting.start().connect()
    client.put("q", "1", "2", **DURABLE)
    client.subscribe("q", ack="client")
    ids = [message["message-id"] for message in client.messages("1", "2")]
    client = lasting.again().connect()
    client.put("q", "3", **DURABLE)
    client.put("other", "x", **DURABLE)
    client.subscribe("q", ack="client")
    again = [message["message-id"] for message in client.messages("1", "2", "3")]
    assert again[:2] == ids and len(set(again)) == 3


def test_schedules(lasting, how):
    client = lasting.start().connect()
    due = client.in_ms(8000)
    client.put("q", "soon", AMQ_SCHEDULED_TIME=due, **DURABLE)
    client.put("q", "overdue", AMQ_SCHEDULED_DELAY=50, **DURABLE)
    client.put("q", "far", AMQ_SCHEDULED_DELAY=600_000, **DURABLE)
    client.put("q", "at once", **DURABLE)
    (far,) = [m for m in lasting.management.messages("q", size=100) if m["body"] == "far"]
    client = lasting.again(how).connect()
    client.subscribe("q", ack="client-individual")
    assert {client.message().body for _ in range(2)} == {b"overdue", b"at once"}
    client.message("soon")
    assert client.in_ms(0) >= due
    (waiting,) = lasting.management.ask("GET", "/queues/q/scheduled")["data"]
    assert (waiting["body"], waiting["dueTime"]) == ("far", far["dueTime"])


def test_recurring_schedules_go_on(lasting, how):
    client = lasting.start().connect()
    client.put("q", "tick", AMQ_SCHEDULED_PERIOD=300, AMQ_SCHEDULED_REPEAT=1000, **DURABLE)
    client.put("q", "cron", AMQ_SCHEDULED_CRON="0 0 1 1 *", **DURABLE)
    client = lasting.again(how).connect()
    client.subscribe("q", ack="auto")
    for _ in range(4):
        client.message("tick")
    waiting = {m["body"]: m for m in lasting.management.ask("GET", "/queues/q/scheduled")["data"]}
    assert waiting["cron"]["recurrence"]["cron"] == "0 0 1 1 *"
    assert 900 < waiting["tick"]["recurrence"]["repeat"] < 1000


def test_expiry_goes_on_while_it_is_down(lasting):
    settings = {"#": {"expiry-address": "EXP"}}
    client = lasting.start(settings=settings).connect()
    client.put("EXP", "so that it is there")
    client.put("q", "short", expires=client.in_ms(300), **DURABLE)
    client.put("q", "long", expires=client.in_ms(600_000), **DURABLE)
    lasting.kill()
    client.time.sleep(0.4)
    lasting.start()
    lasting.management.expect("q", messageCount=1)
    lasting.management.expect("EXP", messageCount=1)
    lasting.again()
    assert [m["body"] for m in lasting.management.messages("EXP")] == ["short"]
    assert lasting.drain("q") == ["long"]


def test_failed_attempts_are_remembered_and_what_was_moved_is_in_one_place(lasting):
    lasting.start(settings={"#": {"max-delivery-attempts": 2, "dead-letter-address": "DLQ"}})
    lasting.connect().put("DLQ", "so that it is there")
    lasting.connect().put("q", *"123", **DURABLE)
    for _ in range(2):
        assert take(lasting.connect(), "q", 1, ack="NACK") == ["1"]
        lasting.again()
    management = lasting.management
    (dead,) = management.messages("DLQ")
    assert (dead["body"], dead["headers"]["_AMQ_ORIG_QUEUE"]) == ("1", "q")
    assert [m["body"] for m in management.messages("q")] == ["2", "3"]
