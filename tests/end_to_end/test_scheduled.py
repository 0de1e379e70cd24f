"""Scheduled messages: delay, time, period and repeat, cron; their order; what management can do with them.

Nothing here waits for longer than a few seconds, and nothing fails because a machine was slow: a message may come late,
never early.
"""

import pytest

from .steps import begin, commit, receive

pytestmark = pytest.mark.in_memory


def test_a_delayed_message_comes_late_and_whole(client, version, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    due = client.in_ms(1000)
    headers = {
        "correlation_id": "c",
        "type": "t",
        "priority": 3,
        "persistent": "true",
        "JMSXGroupID": "g",
        "own": "o",
    }
    client.put(f"/queue/{name}", "later", AMQ_SCHEDULED_DELAY=1000, **headers)
    client.nothing()
    message = client.message("later")
    assert client.in_ms(0) >= due
    for header, value in headers.items():
        assert message[header.replace("_", "-")] == str(value)
    assert not [key for key, _ in message.headers if key.startswith("AMQ_SCHEDULED")]
    assert message["redelivered"] == "false"


def test_a_time_is_absolute_and_beats_a_delay(client, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    due = client.in_ms(500)
    client.put(f"/queue/{name}", "x", AMQ_SCHEDULED_TIME=due, AMQ_SCHEDULED_DELAY=600_000)
    client.message("x")
    assert client.in_ms(0) >= due


@pytest.mark.parametrize("header", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"])
@pytest.mark.parametrize("value", ["0", "-5"])
def test_nothing_or_less_means_now(client, name, header, value):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(f"/queue/{name}", "x", **{header: value})
    assert client.inbox  # it came before the receipt
    client.message("x")


def test_a_time_that_is_past_jumps_the_line(client, name, management):
    client.put(f"/queue/{name}", "1", "2")
    client.put(f"/queue/{name}", "past", AMQ_SCHEDULED_TIME=client.in_ms(-10_000))
    management.expect(name, messageCount=3, scheduledCount=0)
    receive(client, f"/queue/{name}", "past", "1", "2")


def test_due_times_order_messages_and_put_them_first(client, name, management):
    """m1@10 m2 m3@11 m4 m5@12 is delivered as m2 m4 m1 m3 m5 to who is there, and due ones first to who comes later."""
    base = client.in_ms(1500)
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(f"/queue/{name}", "m1", AMQ_SCHEDULED_TIME=base)
    client.put(f"/queue/{name}", "m2")
    client.put(f"/queue/{name}", "m5", AMQ_SCHEDULED_TIME=base + 200)
    client.put(f"/queue/{name}", "m4")
    client.put(f"/queue/{name}", "m3", AMQ_SCHEDULED_TIME=base + 100)
    client.messages("m2", "m4", "m1", "m3", "m5")


def test_what_falls_due_goes_to_the_head(client, name, management):
    client.put(f"/queue/{name}", "scheduled", AMQ_SCHEDULED_DELAY=300)
    client.put(f"/queue/{name}", "waiting", "urgent but later")
    management.expect(name, messageCount=3, scheduledCount=0)
    receive(client, f"/queue/{name}", "scheduled", "waiting", "urgent but later")


def test_the_same_time_keeps_the_order_of_sending(client, name):
    due = client.in_ms(400)
    client.put(f"/queue/{name}", *(str(n) for n in range(10)), AMQ_SCHEDULED_TIME=due)
    receive(client, f"/queue/{name}", *(str(n) for n in range(10)))


def test_a_scheduled_send_waits_for_commit(client, name, management):
    client.put(f"/queue/{name}", "first, so that the queue is there")
    begin(client)
    client.put(f"/queue/{name}", "x", transaction="t", AMQ_SCHEDULED_DELAY=60_000)
    management.expect(name, scheduledCount=0)
    commit(client)
    management.expect(name, scheduledCount=1, messageCount=2)


def test_every_subscriber_of_a_topic_gets_its_delayed_copy(connect, name):
    first, second, sender = connect(), connect(), connect()
    for client in (first, second):
        client.subscribe(f"/topic/{name}", ack="auto")
    sender.put(f"/topic/{name}", "x", AMQ_SCHEDULED_DELAY=1000)
    first.nothing()
    first.message("x")
    second.message("x")


def test_period_and_repeat(client, name, management):
    client.subscribe(f"/queue/{name}", ack="auto")
    began = client.in_ms(0)
    client.put(
        f"/queue/{name}", "x", AMQ_SCHEDULED_DELAY=200, AMQ_SCHEDULED_PERIOD=150, AMQ_SCHEDULED_REPEAT=3
    )
    ids = {client.message("x")["message-id"] for _ in range(4)}
    assert client.in_ms(0) - began >= 200 + 3 * 150
    assert len(ids) == 4
    management.expect(name, messageCount=0, scheduledCount=0, messagesAcknowledged=4)
    client.nothing()


def test_repeat_without_end_goes_on_until_it_is_cancelled(client, name, management):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(
        f"/queue/{name}", "x", AMQ_SCHEDULED_DELAY=50, AMQ_SCHEDULED_PERIOD=100, AMQ_SCHEDULED_REPEAT=-1
    )
    client.messages(*"xxxxx")
    (waiting,) = management.ask("GET", f"/queues/{name}/scheduled")["data"]
    assert waiting["recurrence"]["repeat"] == -1
    management.ask("DELETE", f"/queues/{name}/scheduled/{waiting['messageID']}")
    management.expect(name, scheduledCount=0)


def test_cron_is_scheduled_for_a_whole_minute(client, name, management):
    client.put(f"/queue/{name}", "x", AMQ_SCHEDULED_CRON="*/5 * * * *")
    (waiting,) = management.ask("GET", f"/queues/{name}/scheduled")["data"]
    assert waiting["recurrence"]["cron"] == "*/5 * * * *"
    assert waiting["dueTime"] % 300_000 == 0
    assert 0 < waiting["dueTime"] - client.in_ms(0) <= 300_000
    client.subscribe(f"/queue/{name}", ack="auto")
    management.ask("POST", f"/queues/{name}/scheduled/{waiting['messageID']}/deliver")
    client.message("x")
    management.expect(name, scheduledCount=1)  # it goes on as its expression says


def test_a_message_expires_not_before_it_is_due(client, name, management):
    """Whether a scheduled message is too old is looked at when it falls due (Artemis)."""
    client.put(f"/queue/{name}", "x", AMQ_SCHEDULED_DELAY=500, expires=client.in_ms(100))
    client.subscribe(f"/queue/{name}", ack="auto")
    management.expect(name, messageCount=0, messagesExpired=1, messagesAcknowledged=0)
    client.nothing()
