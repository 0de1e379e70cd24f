"""SUBSCRIBE and UNSUBSCRIBE, the ack modes, windows, durable subscriptions, browsing."""

import pytest

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server


def send(client, body=b"x", destination="/queue/q", **headers):
    client.say("SEND", body, destination=destination, **headers)


def subscribe(client, destination="/queue/q", id="s", **headers):
    client.say("SUBSCRIBE", destination=destination, id=id, **headers)


def filled(number, **acceptor):
    server = Server({"#": {"auto_delete_queues": False}}, acceptor=acceptor)
    client = server.client()
    for each in range(number):
        send(client, b"%d" % each)
    return server, client


def test_messages_flow_after_the_receipt():
    _, client = filled(1)
    subscribe(client, receipt="r")
    assert [got.command for got in client.read()] == ["RECEIPT", "MESSAGE"]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_client_mode_is_cumulative(version):
    server, _ = filled(50)
    client = server.client(version)
    subscribe(client, ack="client")
    got = client.read()
    assert len(got) == 50
    settle(client, "ACK", got[48], version)
    assert (server.queue().delivering, server.queue().messages_acknowledged) == (1, 49)
    settle(client, "ACK", got[49], version)
    assert_nothing_held(server.world)


def settle(client, command, message, version="1.2", **headers):
    if version == "1.2":
        client.say(command, id=message["ack"], **headers)
    elif version == "1.1":
        client.say(command, message_id=message["message-id"], subscription="s", **headers)
    else:
        client.say(command, message_id=message["message-id"], **headers)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_client_individual_speaks_of_one(version):
    server, _ = filled(4)
    client = server.client(version)
    subscribe(client, ack="client-individual")
    got = client.read()
    settle(client, "ACK", got[3], version)
    settle(client, "ACK", got[1], version)
    client.say("UNSUBSCRIBE", id="s")
    assert bodies(server.queue()) == [b"0", b"2"]


def test_an_ack_with_all_three_headers():
    server, client = filled(1)
    subscribe(client, ack="client")
    (message,) = client.read()
    client.say("ACK", id=message["ack"], message_id=message["message-id"], subscription="s", receipt="r")
    client.one("RECEIPT")
    assert_nothing_held(server.world)


def test_a_second_ack_is_an_error_and_loses_nothing():
    server, client = filled(2)
    subscribe(client, ack="client-individual")
    first, _ = client.read()
    settle(client, "ACK", first)
    settle(client, "ACK", first, receipt="r")
    assert client.error()["receipt-id"] == "r"
    assert bodies(server.queue()) == [b"1"]


def test_the_wrong_subscription_leaves_the_message_where_it_is():
    server, _ = filled(1)
    client = server.client("1.1")
    subscribe(client, ack="client")
    (message,) = client.read()
    client.say("ACK", message_id=message["message-id"], subscription="other")
    assert "does not match" in client.error()["message"]
    assert bodies(server.queue()) == [b"0"]


def test_nack_brings_a_message_again():
    _, client = filled(1)
    subscribe(client, ack="client")
    (first,) = client.read()
    settle(client, "NACK", first)
    (again,) = client.read()
    assert again["message-id"] == first["message-id"] and again["redelivered"] == "true"


@pytest.mark.parametrize(
    ("headers", "first"),
    [
        ({"prefetch_count": "3"}, 3),
        ({"activemq.prefetchSize": "2"}, 2),
        ({"consumer_window_size": "0"}, 1),
        ({"consumer_window_size": "-1"}, 110),
        ({"prefetch_count": "3", "consumer_window_size": "-1"}, 3),
        ({}, 100),
    ],
)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_windows(headers, first, mode):
    server, client = filled(110)
    subscribe(client, ack=mode, **headers)
    got = client.read()
    assert len(got) == first
    settle(client, "ACK", got[0])
    assert len(client.read()) == min(1, 110 - first)
    assert server.queue().delivering == min(first, 109)


def test_a_window_in_bytes_is_soft():
    _, client = filled(10)
    subscribe(client, ack="client", consumer_window_size="1")
    got = client.read()
    assert len(got) == 1
    settle(client, "NACK", got[0])
    assert len(client.read()) == 1


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_cumulative_answer_frees_the_bytes_of_all_it_covers(command, transaction):
    server, client = filled(0)
    sizes = [100, 2000, 10, 1500, 700, 3000]
    for size in sizes * 4:
        send(client, b"x" * size)
    subscribe(client, ack="client", consumer_window_size="10000")
    (subscription,) = client.session.subscriptions.values()
    got = client.read()
    assert len(got) > 6 and subscription.credit_bytes <= 0
    headers = {"transaction": "t"} if transaction else {}
    if transaction:
        client.say("BEGIN", transaction="t")
    server.queue().pause()  # so that nothing takes credit again
    settle(client, command, got[-2], **headers)
    (last,) = subscription.unsettled_references()
    assert subscription.credit_bytes == 10_000 - len(last.message.tail)
    if transaction:
        client.say("ABORT", transaction="t")
        assert subscription.credit_bytes <= 0 and subscription.unsettled_count == len(got)
        settle(client, command, got[-1])
        assert subscription.credit_bytes == 10_000
    server.queue().resume()
    server.world.pass_time(0)
    assert len(client.read()) >= len(sizes)


def test_the_window_of_the_acceptor():
    _, client = filled(10, stomp_prefetch_count=4)
    subscribe(client, ack="client")
    assert len(client.read()) == 4


def test_auto_has_no_window():
    _, client = filled(10, stomp_prefetch_count=4, stomp_consumer_window_size=1)
    subscribe(client)
    assert len(client.read()) == 10


def test_the_same_id_twice():
    client = Server().client()
    subscribe(client)
    subscribe(client, receipt="r")
    assert "already is a subscription for id 's'" in client.error()["message"]


def test_1_0_needs_no_id():
    server = Server()
    client = server.client("1.0")
    client.say("SUBSCRIBE", destination="/queue/q")
    send(client, b"1")
    message = client.one("MESSAGE")
    assert message["subscription"] == "subscription//queue/q"
    client.say("UNSUBSCRIBE", destination="/queue/q")
    assert not client.session.subscriptions


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_without_an_id_a_subscription_is_known_by_its_destination(version):
    server = Server({"#": {"auto_delete_queues": False}})
    client = server.client(version)
    client.say("SUBSCRIBE", destination="/queue/q", ack="client-individual")
    send(client, b"1")
    message = client.one("MESSAGE")
    assert message["subscription"] == message["destination"] == "/queue/q"
    client.say("NACK", id=message["message-id"], message_id=message["message-id"], subscription="/queue/q")
    again = client.one("MESSAGE")
    client.say("ACK", id=again["message-id"], message_id=again["message-id"], subscription="/queue/q")
    client.say("UNSUBSCRIBE", destination="/queue/q")
    assert not client.session.subscriptions and not server.queue().consumers
    assert_nothing_held(server.world)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("first", [{}, {"id": "/queue/q"}], ids=["without an id", "by the same name"])
def test_a_destination_is_subscribed_to_once_without_an_id(version, first):
    server = Server({"#": {"auto_delete_queues": False}})
    client = server.client(version)
    client.say("SUBSCRIBE", destination="/queue/q", **first)
    client.say("SUBSCRIBE", destination="/queue/q", receipt="r", **first)
    assert "already is a subscription for id" in client.error()["message"]
    assert not server.queue().consumers


def test_subscribing_to_replies_by_any_name_ends_the_subscription_that_was_made_for_them():
    server = Server({"#": {"auto_delete_queues": False}})
    client = server.client()
    for more in ({}, {"id": "/temp-queue/r"}, {"id": "s", "destination": "/temp-queue/r"}):
        send(client, b"", "/queue/q", reply_to="/temp-queue/r")
        client.say("SUBSCRIBE", **{"destination": "/temp-queue/r", **more})
        assert len(client.session.subscriptions) == 1
        assert len(server.queue("temp-queue.1.r").consumers) == 1
        (subscription,) = client.session.subscriptions.values()
        client.say("UNSUBSCRIBE", id=subscription.terms.id.decode())
    send(client, b"", "/queue/q", reply_to="/temp-queue/r")
    client.say("SUBSCRIBE", id="/temp-queue/r", destination="/queue/other")
    assert not server.queue("temp-queue.1.r").consumers, "nobody could end it any more"


def test_unsubscribe_by_a_destination_that_has_an_id_is_an_error():
    client = Server().client()
    subscribe(client)
    client.say("UNSUBSCRIBE", destination="/queue/q")
    assert "no subscription exists for id '/queue/q'" in client.error()["message"]


def test_selectors():
    server, client = filled(0)
    subscribe(client, selector="colour = 'red' AND size > 3")
    for colour, size in (("red", 4), ("red", 2), ("blue", 9)):
        send(client, f"{colour}{size}".encode(), colour=colour, size=size)
    assert client.bodies() == [b"red4"]
    assert bodies(server.queue()) == [b"red2", b"blue9"]


def test_topics_reach_everybody_and_leave_no_queue():
    server = Server()
    clients = [server.client() for _ in range(3)]
    for client in clients:
        subscribe(client, "/topic/t")
    send(clients[0], b"1", "/topic/t")
    assert [client.bodies() for client in clients] == [[b"1"]] * 3
    clients[0].say("UNSUBSCRIBE", id="s")
    clients[1].say("DISCONNECT")
    clients[2].lose()
    assert not server.world.directory.queues and not server.world.directory.addresses


def test_wildcards_show_the_senders_destination():
    server = Server()
    client = server.client()
    subscribe(client, "/topic/news.#")
    send(client, b"1", "/topic/news.europe")
    send(client, b"2", "/topic/sport")
    message = client.one("MESSAGE")
    assert (message.body, message["destination"]) == (b"1", "/topic/news.europe")


@pytest.mark.parametrize(
    "name", ["durable_subscription_name", "durable_subscriber_name", "activemq.subscriptionName"]
)
def test_durable_subscriptions(name):
    server = Server()
    producer = server.client()
    client = server.client(client_id="me")
    subscribe(client, "/topic/t", **{name: "mine"})
    client.lose()
    send(producer, b"meanwhile", "/topic/t")
    again = server.client(client_id="me")
    subscribe(again, "/topic/t", **{name: "mine"})
    assert again.bodies() == [b"meanwhile"]
    again.say("UNSUBSCRIBE", id="s", **{name: "mine"})
    assert not server.world.directory.queues


def test_a_queue_is_not_deleted_as_a_durable_subscription():
    server = Server({"#": {"auto_delete_queues": False}})
    send(server.client(), b"1", "/queue/me.mine")
    client = server.client(client_id="me")
    client.say("UNSUBSCRIBE", id="s", durable_subscription_name="mine")
    assert client.error()["message"] == "me.mine is not a durable subscription but a queue of address me.mine"
    assert bodies(server.world.directory.queues["me.mine"]) == [b"1"]


def test_durable_without_client_id():
    client = Server().client()
    subscribe(client, "/topic/t", durable_subscription_name="mine")
    assert "needs a client-id" in client.error()["message"]


def test_no_local():
    server = Server()
    one, two = server.client(), server.client()
    subscribe(one, "/topic/t", no_local="true")
    subscribe(two, "/topic/t")
    send(one, b"mine", "/topic/t")
    send(two, b"other", "/topic/t")
    assert one.bodies() == [b"other"]
    assert two.bodies() == [b"mine", b"other"]


def test_browsing_shows_and_leaves():
    server, client = filled(3)
    subscribe(client, browser="true", ack="client")
    *messages, end = client.read()
    assert [message.body for message in messages] == [b"0", b"1", b"2"]
    assert end["browser"] == "end"
    assert (server.queue().message_count, server.queue().delivering) == (3, 0)
    client.say("UNSUBSCRIBE", id="s", receipt="r")
    client.one("RECEIPT")


def test_max_consumers():
    server = Server({"q": {"default_max_consumers": 1}})
    subscribe(server.client())
    second = server.client()
    subscribe(second, receipt="r")
    error = second.error()
    assert "max-consumers of 1" in error["message"] and error["receipt-id"] == "r"


def test_more_subscriptions_than_allowed():
    client = Server(acceptor={"subscriptions_allowed": 2}).client()
    for number in range(3):
        subscribe(client, id=str(number))
    assert "subscriptionsAllowed" in client.error()["message"]


def test_every_subscription_of_a_temporary_topic_gets_what_others_send_to_it():
    server = Server()
    owner, other = server.client(), server.client()
    subscribe(owner, "/temp-topic/news", id="1")
    subscribe(owner, "/temp-topic/news", id="2", selector="n = 2")
    send(owner, b"own", "/temp-topic/news", n=1)
    send(other, b"other", "/remote-temp-topic/1.news", n=2)
    got = [(frame["subscription"], frame.body) for frame in owner.read() if frame.command == "MESSAGE"]
    assert sorted(got) == [("1", b"other"), ("1", b"own"), ("2", b"other")]


def test_a_temporary_topic_lasts_as_long_as_its_connection():
    server = Server()
    owner, other = server.client(), server.client()
    subscribe(owner, "/temp-topic/news")
    owner.say("UNSUBSCRIBE", id="s")
    send(other, b"nobody reads it", "/remote-temp-topic/1.news")
    assert not other.session.closed
    address = server.world.directory.address("temp-topic.1.news")
    assert address.temporary and not address.queues
    owner.lose()
    assert not [name for name in server.world.directory.addresses if name.startswith("temp-topic.")]
    send(other, b"late", "/remote-temp-topic/1.news")
    assert "Temporary topic temp-topic.1.news does not exist" in other.error()["message"]


def test_replies_to_a_temporary_topic_need_no_subscription():
    server = Server()
    asker, answerer = server.client(), server.client()
    subscribe(answerer, "/queue/questions")
    for _ in range(2):
        send(asker, b"?", "/queue/questions", reply_to="/temp-topic/answers")
    reply_to = answerer.read()[-1]["reply-to"]
    assert reply_to == "/remote-temp-topic/1.answers"
    send(answerer, b"!", reply_to)
    answer = asker.one("MESSAGE")
    assert (answer.body, answer["subscription"]) == (b"!", "/temp-topic/answers")


def test_a_temporary_topic_has_no_durable_subscriptions():
    client = Server().client(client_id="c")
    subscribe(client, "/temp-topic/news", durable_subscription_name="d")
    assert "has no durable subscriptions" in client.error()["message"]


def test_temporary_queues_and_replies():
    server = Server()
    asker, answerer = server.client(), server.client()
    subscribe(answerer, "/queue/questions")
    send(asker, b"?", "/queue/questions", reply_to="/temp-queue/answers")
    reply_to = answerer.one("MESSAGE")["reply-to"]
    assert reply_to.startswith("/remote-temp-queue/")
    send(answerer, b"!", reply_to)
    answer = asker.one("MESSAGE")
    assert (answer.body, answer["subscription"]) == (b"!", "/temp-queue/answers")
    asker.lose()
    send(answerer, b"!", reply_to)
    assert "its connection is closed" in answerer.error()["message"]
    assert not [name for name in server.world.directory.queues if name.startswith("temp-queue.")]
