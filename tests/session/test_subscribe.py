"""SUBSCRIBE and UNSUBSCRIBE, the ack modes, windows, durable subscriptions, browsing."""

import pytest

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server


def filled(number, **acceptor):
    server = Server({"#": {"auto_delete_queues": False}}, acceptor=acceptor)
    client = server.client()
    for each in range(number):
        client.send(b"%d" % each)
    return server, client


def settle(client, command, message, version="1.2", **headers):
    if version == "1.2":
        client.say(command, id=message["ack"], **headers)
    elif version == "1.1":
        client.say(command, message_id=message["message-id"], subscription="s", **headers)
    else:
        client.say(command, message_id=message["message-id"], **headers)


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_cumulative_answer_frees_the_bytes_of_all_it_covers(command, transaction):
    server, client = filled(0)
    sizes = [100, 2000, 10, 1500, 700, 3000]
    for size in sizes * 4:
        client.send(b"x" * size)
    client.subscribe(ack="client", consumer_window_size="10000")
    (subscription,) = client.session.subscriptions.values()
    got = client.read()
    assert len(got) > 6 and subscription.credit_bytes <= 0
    headers = {"transaction": "t"} if transaction else {}
    if transaction:
        client.begin()
    server.queue().pause()  # so that nothing takes credit again
    settle(client, command, got[-2], **headers)
    (last,) = subscription.unsettled_references()
    assert subscription.credit_bytes == 10_000 - len(last.message.tail)
    if transaction:
        client.abort()
        assert subscription.credit_bytes <= 0 and subscription.unsettled_count == len(got)
        settle(client, command, got[-1])
        assert subscription.credit_bytes == 10_000
    server.queue().resume()
    server.pass_time()
    assert len(client.read()) >= len(sizes)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_without_an_id_a_subscription_is_known_by_its_destination(server, version):
    client = server.client(version)
    client.say("SUBSCRIBE", destination="/queue/q", ack="client-individual")
    client.send(b"1")
    message = client.one("MESSAGE")
    assert message["subscription"] == message["destination"] == "/queue/q"
    client.say("NACK", id=message["message-id"], message_id=message["message-id"], subscription="/queue/q")
    again = client.one("MESSAGE")
    client.ack(again["message-id"], message_id=again["message-id"], subscription="/queue/q")
    client.say("UNSUBSCRIBE", destination="/queue/q")
    assert not client.session.subscriptions and not server.queue().consumers
    assert_nothing_held(server.world)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("first", [{}, {"id": "/queue/q"}], ids=["without an id", "by the same name"])
def test_a_destination_is_subscribed_to_once_without_an_id(server, version, first):
    client = server.client(version)
    client.say("SUBSCRIBE", destination="/queue/q", **first)
    client.say("SUBSCRIBE", destination="/queue/q", receipt="r", **first)
    assert "already is a subscription for id" in client.error()["message"]
    assert not server.queue().consumers


def test_subscribing_to_replies_by_any_name_ends_the_subscription_that_was_made_for_them(server, client):
    for more in ({}, {"id": "/temp-queue/r"}, {"id": "s", "destination": "/temp-queue/r"}):
        client.send(b"", "/queue/q", reply_to="/temp-queue/r")
        client.say("SUBSCRIBE", **{"destination": "/temp-queue/r", **more})
        assert len(client.session.subscriptions) == 1
        assert len(server.queue("temp-queue.1.r").consumers) == 1
        (subscription,) = client.session.subscriptions.values()
        client.say("UNSUBSCRIBE", id=subscription.terms.id.decode())
    client.send(b"", "/queue/q", reply_to="/temp-queue/r")
    client.subscribe("/queue/other", "/temp-queue/r")
    assert not server.queue("temp-queue.1.r").consumers, "nobody could end it any more"


def test_unsubscribe_by_a_destination_that_has_an_id_is_an_error(client):
    client.subscribe()
    client.say("UNSUBSCRIBE", destination="/queue/q")
    assert "no subscription exists for id '/queue/q'" in client.error()["message"]


def test_a_queue_is_not_deleted_as_a_durable_subscription(server):
    server.client().send(b"1", "/queue/me.mine")
    client = server.client(client_id="me")
    client.say("UNSUBSCRIBE", id="s", durable_subscription_name="mine")
    assert client.error()["message"] == "me.mine is not a durable subscription but a queue of address me.mine"
    assert bodies(server.directory.queues["me.mine"]) == [b"1"]


def test_a_durable_subscription_wants_its_own_messages_or_not_as_it_said_last():
    client = Server().client(client_id="me")
    for more, got in (({}, [b"x"]), ({"no_local": "true"}, []), ({}, [b"x"])):
        client.subscribe("/topic/t", durable_subscription_name="mine", **more)
        client.send(destination="/topic/t")
        assert client.bodies() == got
        client.say("UNSUBSCRIBE", id="s")


def test_every_subscription_of_a_temporary_topic_gets_what_others_send_to_it(server):
    owner, other = server.client(), server.client()
    owner.subscribe("/temp-topic/news", id="1")
    owner.subscribe("/temp-topic/news", id="2", selector="n = 2")
    owner.send(b"own", "/temp-topic/news", n=1)
    other.send(b"other", "/remote-temp-topic/1.news", n=2)
    got = [(frame["subscription"], frame.body) for frame in owner.read() if frame.command == "MESSAGE"]
    assert sorted(got) == [("1", b"other"), ("1", b"own"), ("2", b"other")]


def test_a_temporary_topic_lasts_as_long_as_its_connection(server):
    owner, other = server.client(), server.client()
    owner.subscribe("/temp-topic/news")
    owner.say("UNSUBSCRIBE", id="s")
    other.send(b"nobody reads it", "/remote-temp-topic/1.news")
    assert not other.session.closed
    address = server.directory.address("temp-topic.1.news")
    assert address.temporary and not address.queues
    owner.lose()
    assert not [name for name in server.directory.addresses if name.startswith("temp-topic.")]
    other.send(b"late", "/remote-temp-topic/1.news")
    assert "Temporary topic temp-topic.1.news does not exist" in other.error()["message"]


def test_replies_to_a_temporary_topic_need_no_subscription(server):
    asker, answerer = server.client(), server.client()
    answerer.subscribe("/queue/questions")
    for _ in range(2):
        asker.send(b"?", "/queue/questions", reply_to="/temp-topic/answers")
    reply_to = answerer.read()[-1]["reply-to"]
    assert reply_to == "/remote-temp-topic/1.answers"
    answerer.send(b"!", reply_to)
    answer = asker.one("MESSAGE")
    assert (answer.body, answer["subscription"]) == (b"!", "/temp-topic/answers")


def test_a_temporary_topic_has_no_durable_subscriptions():
    client = Server().client(client_id="c")
    client.subscribe("/temp-topic/news", durable_subscription_name="d")
    assert "has no durable subscriptions" in client.error()["message"]
