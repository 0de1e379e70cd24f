"""In which order and to whom: priorities, groups, exclusive queues, consumer limits."""

import pytest

from ..broker_document import anycast, multicast


def test_messages_of_one_priority_keep_their_order(client, version, name):
    bodies = [str(n) for n in range(1000)]
    client.put(f"/queue/{name}", *bodies)
    client.subscribe(f"/queue/{name}", ack="auto")
    client.messages(*bodies)


def test_higher_priorities_come_first(client, version, name):
    for priority in (4, 0, 9, 5, 9, 1):
        client.put(f"/queue/{name}", str(priority), priority=priority)
    client.put(f"/queue/{name}", "none")
    client.subscribe(f"/queue/{name}", ack="auto")
    got = client.messages("9", "9", "5", "4", "none", "1", "0")
    assert [message["priority"] for message in got] == ["9", "9", "5", "4", "4", "1", "0"]


def test_a_group_stays_with_one_consumer(connect, name):
    first, second = connect(), connect()
    first.subscribe(f"/queue/{name}")
    second.subscribe(f"/queue/{name}")
    sender = connect()
    for n in range(6):
        sender.put(f"/queue/{name}", f"a{n}", JMSXGroupID="a")
        sender.put(f"/queue/{name}", f"b{n}", JMSXGroupID="b")
    owner, other = (first, second) if first.message().body == b"a0" else (second, first)
    owner.messages(*(f"a{n}" for n in range(1, 6)))
    for n in range(6):
        assert other.message(f"b{n}")["JMSXGroupID"] == "b"


def test_a_group_moves_when_its_consumer_goes(connect, name):
    first, sender = connect(), connect()
    first.subscribe(f"/queue/{name}")
    sender.put(f"/queue/{name}", "1", "2", JMSXGroupID="g")
    first.answer("ACK", first.messages("1", "2")[0])
    second = connect()
    second.subscribe(f"/queue/{name}")
    sender.put(f"/queue/{name}", "3", JMSXGroupID="g")
    first.message("3")
    second.nothing()
    first.kill()
    second.messages("2", "3")


def test_a_group_waits_for_its_busy_consumer_and_others_do_not(connect, name):
    busy, free, sender = connect(), connect(), connect()
    busy.subscribe(f"/queue/{name}", prefetch_count=1)
    sender.put(f"/queue/{name}", "a1", JMSXGroupID="a")
    held = busy.message("a1")
    free.subscribe(f"/queue/{name}", prefetch_count=10)
    sender.put(f"/queue/{name}", "a2", JMSXGroupID="a")
    sender.put(f"/queue/{name}", "b1", JMSXGroupID="b")
    free.message("b1")
    free.nothing()
    busy.answer("ACK", held)
    busy.message("a2")


def test_a_group_can_be_closed(connect, name):
    first, second, sender = connect(), connect(), connect()
    for client in (first, second):
        client.subscribe(f"/queue/{name}")
    sender.put(f"/queue/{name}", "1", JMSXGroupID="g")
    owner = first if first.waiting() else second
    sender.put(f"/queue/{name}", "last", JMSXGroupID="g", JMSXGroupSeq="-1")
    owner.messages("1", "last")
    owner.ask("UNSUBSCRIBE", {"id": "s"})
    rest = second if owner is first else first
    rest.messages("1", "last")


@pytest.mark.broker(
    addresses=anycast("alone", 'exclusive="true"')
    + anycast("pair", 'max-consumers="2"')
    + anycast("patient", 'consumers-before-dispatch="2"')
    + anycast("patient.for.a.while", 'consumers-before-dispatch="5" delay-before-dispatch="1000"')
    + anycast("volatile", 'purge-on-no-consumers="true"')
    + multicast("filtered", inside="<filter string=\"keep = 'yes'\"/>", queue="wanted")
)
class TestConfiguredQueues:
    """What the attributes of a configured queue do."""

    def test_exclusive_serves_one_until_it_goes(self, connect):
        first, second, sender = connect(), connect(), connect()
        first.subscribe("alone", prefetch_count=1)
        second.subscribe("alone", prefetch_count=1)
        sender.put("alone", "1", "2")
        first.message("1")
        second.nothing()
        first.kill()
        second.answer("ACK", second.message("1"))
        second.answer("ACK", second.message("2"))

    def test_max_consumers(self, connect):
        clients = [connect() for _ in range(3)]
        for client in clients[:2]:
            client.subscribe("pair")
        clients[2].send("SUBSCRIBE", {"destination": "pair", "id": "1", "receipt": "r"})
        clients[2].error("pair", "max-consumers", "2", receipt="r")
        clients[0].disconnect()
        connect().subscribe("pair")

    def test_consumers_before_dispatch(self, connect):
        first, second = connect(), connect()
        first.put("patient", "1", "2")
        first.subscribe("patient", prefetch_count=1)
        first.nothing()
        second.subscribe("patient", prefetch_count=1)
        assert {first.message().body, second.message().body} == {b"1", b"2"}

    def test_delay_before_dispatch(self, client):
        client.put("patient.for.a.while", "x")
        client.subscribe("patient.for.a.while", ack="auto")
        client.nothing()
        client.message("x")

    def test_purge_on_no_consumers(self, client, management):
        client.subscribe("volatile")
        client.put("volatile", "x")
        client.message("x")
        client.ask("UNSUBSCRIBE", {"id": "s"})
        management.expect("volatile", messageCount=0, messagesKilled=1)
        client.put("volatile", "to nobody")
        management.expect("volatile", messageCount=0, messagesAdded=1)

    def test_a_filter_lets_in_what_it_names(self, client, management):
        client.put("filtered", "1", keep="yes")
        client.put("filtered", "2", keep="no")
        client.put("filtered", "3")
        management.expect("wanted", messageCount=1, messagesAdded=1)
        management.expect_address("filtered", routedMessageCount=1, unRoutedMessageCount=2)


def test_a_paused_queue_keeps_what_comes(client, name, management):
    client.subscribe(f"/queue/{name}", ack="auto")
    management.update(name, paused=True)
    client.put(f"/queue/{name}", "1", "2")
    client.nothing()
    management.expect(name, messageCount=2, paused=True)
    management.update(name, paused=False)
    client.messages("1", "2")


@pytest.mark.broker(base={})
def test_an_auto_created_queue_goes_with_its_last_consumer(client, name, management):
    client.put(f"/queue/{name}", "x")
    client.subscribe(f"/queue/{name}")
    message = client.message("x")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    management.expect(name, messageCount=1)  # not while it holds something
    client.subscribe(f"/queue/{name}")
    message = client.message("x")
    client.answer("ACK", message)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    management.gone(name)


@pytest.mark.broker(settings={"#": {"auto-delete-queues": "true", "auto-delete-queues-delay": 1500}})
def test_auto_delete_waits_its_delay(client, name, management):
    client.subscribe(f"/queue/{name}")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert management.queue(name)["consumerCount"] == 0
    management.gone(name)


def test_a_subscriber_is_told_when_its_queue_is_deleted(client, name, management):
    client.subscribe(f"/queue/{name}", id="mine")
    management.ask("DELETE", f"/queues/{name}", force="true")
    client.error("mine", name, "deleted")
