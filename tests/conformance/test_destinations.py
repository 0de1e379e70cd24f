"""Where messages go: queues and topics, prefixes, qualified names, wildcards, temporary queues."""

import pytest

from ..broker_document import anycast, multicast


@pytest.mark.parametrize(
    "form", ["/queue/{}", "queue/{}", "{}", "/queue/{}/with/slashes", "/queue/{}.with.dots"]
)
def test_a_queue_keeps_what_comes_before_its_subscriber(connect, version, name, form):
    destination = form.format(name)
    client = connect(version)
    client.put(destination, "early")
    client.subscribe(destination, ack="auto")
    assert client.message("early")["destination"] == destination


@pytest.mark.parametrize("form", ["/topic/{}", "topic/{}"])
def test_a_topic_reaches_who_is_there(connect, version, name, form):
    destination = form.format(name)
    client, first, second = connect(version), connect(version), connect(version)
    client.put(destination, "early")
    first.subscribe(destination, ack="auto")
    second.subscribe(destination, ack="client")
    client.put(destination, "on time")
    assert first.message("on time")["destination"] == destination
    second.message("on time")
    first.nothing()


def test_destination_is_as_the_subscriber_wrote_it(client, name):
    client.subscribe(name, ack="auto")
    client.put(f"/queue/{name}", "x")
    assert client.message("x")["destination"] == name


def test_the_queue_of_a_topic_subscription_goes_with_it(client, name, management):
    before = management.ask("GET", "/broker")["queueCount"]
    client.subscribe(f"/topic/{name}", ack="auto")
    assert management.ask("GET", "/broker")["queueCount"] == before + 1
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert management.ask("GET", "/broker")["queueCount"] == before


@pytest.mark.parametrize(
    "header, value", [("destination-type", "MULTICAST"), ("subscription-type", "MULTICAST")]
)
def test_the_type_may_be_said_by_header(client, name, header, value):
    client.ask("SUBSCRIBE", {"destination": name, "id": "1", header: value})
    client.ask("SUBSCRIBE", {"destination": name, "id": "2", header: value})
    client.put(name, "x", destination_type="MULTICAST")
    assert {client.message("x")["subscription"] for _ in range(2)} == {"1", "2"}


def test_an_untyped_frame_takes_the_type_that_the_address_has(client, name, management):
    client.subscribe(f"/topic/{name}", ack="auto", id="1")
    client.put(name, "x")
    client.message("x")
    assert management.address(name)["routingTypes"] == ["MULTICAST"]


@pytest.mark.broker(base={})
def test_artemis_s_default_type_holds_where_nothing_is_said(client, name):
    client.subscribe(name, id="1", ack="auto")
    client.subscribe(name, id="2", ack="auto")
    client.put(name, "to both")
    assert {client.message("to both")["subscription"] for _ in range(2)} == {"1", "2"}


def test_a_typed_send_reaches_queues_of_its_type_only(client, name):
    client.subscribe(f"/queue/{name}", id="queue", ack="auto")
    client.subscribe(f"/topic/{name}", id="topic", ack="auto")
    client.put(f"/topic/{name}", "for the topic")
    assert client.message("for the topic")["subscription"] == "topic"
    client.put(f"/queue/{name}", "for the queue")
    assert client.message("for the queue")["subscription"] == "queue"
    client.put(name, "for both")
    assert {client.message("for both")["subscription"] for _ in range(2)} == {"queue", "topic"}


@pytest.mark.broker(
    addresses=f"<address name='two'><anycast><queue name='left'/><queue name='right'/></anycast></address>"
    "<address name='bare'><anycast/></address>"
    f"{multicast('news', queue='copies')}{anycast('fixed')}",
    settings={
        "fixed": {"auto-create-addresses": "false"},
        "bare": {"auto-create-queues": "false"},
        "closed.#": {"auto-create-queues": "false", "auto-create-addresses": "false"},
    },
)
class TestConfiguredAddresses:
    """Addresses that are there from the start."""

    def test_anycast_queues_take_turns(self, client):
        for queue in ("left", "right"):
            client.subscribe(f"two::{queue}", id=queue, ack="auto")
        client.put("two", *"1234")
        found = [(message["subscription"], message.body) for message in (client.message() for _ in range(4))]
        assert sorted(found) == [("left", b"1"), ("left", b"3"), ("right", b"2"), ("right", b"4")]

    def test_a_qualified_name_reaches_one_queue(self, client):
        client.put("two::right", "1", "2")
        client.subscribe("two::right", id="r", ack="auto")
        client.messages("1", "2")

    def test_a_multicast_queue_is_read_by_its_qualified_name(self, client):
        client.put("news", "kept without a subscriber")
        client.subscribe("news::copies", ack="auto")
        client.message("kept without a subscriber")

    def test_the_queue_alone_is_enough(self, client):
        client.put("two::left", "x")
        client.subscribe("::left", ack="auto")
        client.message("x")

    @pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
    def test_another_type_is_refused_where_addresses_are_fixed(self, client, command):
        client.send(command, {"destination": "/topic/fixed", "id": "1", "receipt": "r"})
        client.error("MULTICAST", "fixed", receipt="r")

    @pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
    @pytest.mark.parametrize("destination", ["/queue/closed.a", "/topic/closed.a", "closed.a::b"])
    def test_nothing_is_made_where_auto_create_is_off(self, client, command, destination):
        client.send(command, {"destination": destination, "id": "1", "receipt": "r"})
        client.error("closed.a", "auto-create", receipt="r")

    @pytest.mark.parametrize("destination", ["bare", "bare::made"])
    def test_no_queue_is_made_where_auto_create_queues_is_off(self, client, destination):
        client.put("bare", "an address is enough")
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        client.error("auto-create-queues is off")

    @pytest.mark.parametrize(
        "destination, words",
        [
            ("news::left", "left is bound to address two, not to news"),
            ("/topic/two::left", "left is ANYCAST, not MULTICAST"),
        ],
    )
    def test_a_qualified_name_must_name_the_right_address_and_type(self, client, destination, words):
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        client.error(words)


def test_a_qualified_name_makes_what_it_names(client, name, management):
    client.put(f"/topic/{name}::{name}.copy", "x")
    assert management.queue(f"{name}.copy")["address"] == name
    assert management.queue(f"{name}.copy")["routingType"] == "MULTICAST"
    client.subscribe(f"{name}::{name}.copy", ack="auto")
    client.message("x")


@pytest.mark.parametrize(
    "pattern, hit, miss",
    [
        ("{}.#", ["{}.a", "{}.a.b", "{}"], ["{}x", "other.{}"]),
        ("{}.*", ["{}.a", "{}.b"], ["{}", "{}.a.b"]),
        ("{}.*.end", ["{}.a.end"], ["{}.end", "{}.a.b.end"]),
        ("{}.#.end", ["{}.end", "{}.a.b.end"], ["{}.end.not"]),
    ],
)
def test_wildcard_subscriptions(client, version, name, pattern, hit, miss):
    client.subscribe("/topic/" + pattern.format(name), ack="auto")
    for form in miss + hit:
        client.put("/topic/" + form.format(name), form)
    for form in hit:
        assert client.message(form)["destination"] == "/topic/" + form.format(name)
    client.nothing()


def test_a_wildcard_subscription_sees_addresses_made_later(client, name):
    client.subscribe(f"/topic/{name}.#", ack="client-individual")
    for n in range(3):
        client.put(f"/topic/{name}.{n}", "x")
        client.answer("ACK", client.message("x"))


def test_replies_by_temporary_queue_in_reply_to(connect, version, name):
    """As in RabbitMQ: naming it in reply-to is enough, no SUBSCRIBE is needed."""
    asking, answering = connect(version), connect(version)
    answering.subscribe(f"/queue/{name}", ack="auto")
    asking.put(f"/queue/{name}", "question", reply_to="/temp-queue/answers")
    address = answering.message("question")["reply-to"]
    assert address != "/temp-queue/answers"
    answering.put(address, "answer")
    reply = asking.message("answer")
    assert reply["destination"] == reply["subscription"] == "/temp-queue/answers"


def test_a_temporary_queue_may_be_subscribed_to(connect, version, name):
    asking, answering = connect(version), connect(version)
    asking.subscribe("/temp-queue/mine", id="7", ack="auto")
    answering.subscribe(f"/queue/{name}", ack="auto")
    asking.put(f"/queue/{name}", "question", reply_to="/temp-queue/mine")
    answering.put(answering.message("question")["reply-to"], "answer")
    assert asking.message("answer")["subscription"] == "7"


def test_temporary_queues_of_two_connections_are_two(connect):
    first, second = connect(), connect()
    first.subscribe("/temp-queue/same", ack="auto")
    second.subscribe("/temp-queue/same", ack="auto")
    first.put("/temp-queue/same", "mine")
    first.message("mine")
    second.nothing()


def test_a_temporary_queue_goes_with_its_connection(connect, name):
    asking, answering = connect(), connect()
    answering.subscribe(f"/queue/{name}", ack="auto")
    asking.put(f"/queue/{name}", "question", reply_to="/temp-queue/answers")
    address = answering.message("question")["reply-to"]
    asking.disconnect()
    answering.send("SEND", {"destination": address, "receipt": "r"}, b"too late")
    answering.error("does not exist", receipt="r")


def test_a_client_sends_to_many_destinations(client, name):
    for _ in range(2):
        for number in range(600):
            client.send("SEND", {"destination": f"/queue/{name}.{number}"}, b"x")
    client.put(f"/queue/{name}.7", "last")
    client.subscribe(f"/queue/{name}.7", ack="auto")
    assert [client.message(body)["destination"] for body in ("x", "x", "last")] == [f"/queue/{name}.7"] * 3
