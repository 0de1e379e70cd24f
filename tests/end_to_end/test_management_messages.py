"""Management by messages, beside Artemis 2.44: the same requests over STOMP, and replies of the same form.

`REPLIES` was recorded from Artemis: requests in their order, and the bodies of the replies. Values differ where the
brokers do; their types may not, and of objects every member that the table has must be there.
"""

import json

import pytest

from .steps import begin

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(
        settings={
            "#": {"dead-letter-address": "DLQ", "expiry-address": "ExpiryQueue"},
            "paged.#": {"max-size-messages": 3},
            "nowhere.#": {"dead-letter-address": "missing"},
        }
    ),
]

ADDRESS = "activemq.management"
JSON_QUEUE = '{"name":"made","address":"made","routing-type":"ANYCAST","durable":true}'
QUEUE_JSON = {
    "name": "made", "address": "made", "routing-type": "ANYCAST", "durable": True, "max-consumers": -1,
    "exclusive": False, "non-destructive": False, "purge-on-no-consumers": False, "consumers-before-dispatch": 0,
    "delay-before-dispatch": -1, "auto-delete": False, "ring-size": -1, "configuration-managed": False,
    "temporary": False, "auto-create-address": True, "internal": False,
}  # fmt: skip
MESSAGE = {"a": "2", "durable": True, "address": "x", "messageID": 1061, "expiration": 0, "type": 3, "priority": 0,
           "timestamp": 1795417083210}  # fmt: skip
CONNECTION = {"connectionID": "71b79261", "clientAddress": "127.0.0.1:47266", "creationTime": 1795417083155,
              "implementation": "StompConnection", "sessionCount": 1}  # fmt: skip
MADE = "Address [name=made, routingTypes={ANYCAST}, autoCreated=false]"
SEND = ("sendMessage", {"a": "2"}, 3, "hello", True, None, None)
VOID = "an empty body"
ANY = "any value"


class Refused(str):
    """The words of a request that fails."""


#: A resource with attributes and their values, or with operations: name, parameters, and the element of the JSON array
#: in the body of the reply. Strings that hold JSON are written as ``("json", value)``.
REPLIES = [
    ("broker", {
        "Version": "2.44.0", "version": "2.44.0", "Started": True,
    }),
    ("broker", [
        ("getVersion", "2.44.0"), ("isStarted", True), ("createAddress", "made", "ANYCAST", MADE),
        ("createAddress", "made", "ANYCAST", Refused("exists already")),
        ("createAddress", "made2", "NOPE", Refused("NOPE")),
        ("createQueue", JSON_QUEUE, ("json", QUEUE_JSON)),
        ("createQueue", "made", "made", "ANYCAST", Refused("exists already")),
        ("createQueue", '{"nam":"q3"}', Refused("name")), ("createQueue", "x", Refused("JSON")),
        ("createQueue", "made3", "made3", VOID),
        ("updateQueue", '{"name":"made","max-consumers":5}', ("json", {**QUEUE_JSON, "max-consumers": 5})),
        ("updateQueue", '{"name":"nope","max-consumers":5}', Refused("does not exist")),
    ]),
    ("broker", {
        "QueueNames": ["made"], "AddressNames": ["made"],
    }),
    ("broker", [
        ("getQueueNames", "ANYCAST", ["made"]), ("getAddressInfo", "made", MADE),
        ("listAddresses", ",", "DLQ,made"),
        ("listQueues", '{"field":"name","operation":"CONTAINS","value":"nothing"}', 1, 10, ("json",
            {"data": [], "count": 0})),
        ("listQueues", '{"field":"name","operation":"EQUALS","value":"made"}', 1, 10, ("json",
            {"data": [{"name": "made", "address": "made", "durable": "true", "paused": "false", "filter": "",
            "consumerCount": "0", "maxConsumers": "5", "routingType": "ANYCAST", "messageCount": "0",
            "messagesAcked": "0"}], "count": 1})), ("listConnectionsAsJSON", ("json", [CONNECTION])),
        ("listConnectionIDs", ["71b79261"]), ("listRemoteAddresses", ["127.0.0.1:47266"]),
        ("listAllConsumersAsJSON", ("json", [{"connectionID": "71b79261", "sessionID": "3a28",
            "queueName": "replies", "browseOnly": False, "creationTime": 1795417083171, "deliveringCount": 0,
            "messagesInTransit": 0, "messagesDelivered": 3, "messagesAcknowledged": 3, "status": "OK"}])),
        ("listConsumersAsJSON", "nobody", ("json", [])),
        ("listAllSessionsAsJSON", ("json", [{"sessionID": "3a28", "creationTime": 1795417083165,
            "consumerCount": 1}])),
    ]),
    ("broker", {
        "UptimeMillis": 53395, "Uptime": "53.381 seconds", "TotalMessageCount": 0, "TotalConsumerCount": 1,
        "ConnectionCount": 1, "QueueCount": 5, "AddressCount": 7, "GlobalMaxSize": 268435456,
        "AddressMemoryUsage": 0, "DiskStoreUsage": 0.7073867825061324, "Backup": False, "Clustered": False,
        "ConnectorsAsJSON": ("json", []), "ManagementAddress": "activemq.management",
        "ManagementNotificationAddress": "activemq.notifications", "DivertNames": [], "BridgeNames": [],
    }),
    ("broker", [
        ("closeConnectionWithID", "nope", False), ("closeConnectionsForUser", "nobody", False),
        ("closeConnectionsForAddress", "1.2.3.4", False), ("closeConsumerConnectionsForAddress", "x", False),
        ("getAddressSettingsAsJSON", "x", ("json", {"addressFullMessagePolicy": "PAGE",
            "maxSizeMessages": -1, "redeliveryDelay": 0, "deadLetterAddress": "DLQ",
            "expiryAddress": "ExpiryQueue", "autoCreateQueues": True, "managementBrowsePageSize": 200})),
    ]),
    ("queue.made", {
        "Name": "made", "Address": "made", "Filter": VOID, "Durable": True, "Paused": False,
        "Temporary": False, "messageCount": 0, "ConsumerCount": 0, "DeliveringCount": 0, "ScheduledCount": 0,
        "PersistentSize": 0, "MessagesAdded": 0, "MessagesAcknowledged": 0, "MessagesExpired": 0,
        "MessagesKilled": 0, "DeadLetterAddress": "DLQ", "ExpiryAddress": "ExpiryQueue",
        "RoutingType": "ANYCAST", "MaxConsumers": 5, "LastValue": False, "RingSize": -1, "ID": 38,
        "FirstMessageAge": VOID, "FirstMessageAsJSON": ("json", [{}]), "ConfigurationManaged": False,
        "Nope": Refused("no attribute"),
    }),
    ("queue.made", [
        ("countMessages", 0), ("countMessages", None, 0), ("countMessages", "a=1", 0),
        ("countMessages", "a==", Refused("filter")), (*SEND, ANY), ("countMessages", "a = '2'", 1),
        ("countMessages", None, "a", ("json", {"2": 1})), ("countMessages", "a = '9'", "a", ("json", {})),
        ("countMessages", None, None, ("json", {"null": 1})), ("countDeliveringMessages", None, 0),
        ("countDeliveringMessages", "a = '2'", 0), ("getMessageCount", 1), ("listMessages", "", [MESSAGE]),
        ("listMessagesAsJSON", None, ("json", [MESSAGE])),
    ]),
    ("queue.made", {
        "FirstMessageAsJSON": ("json", [MESSAGE]), "FirstMessageAge": 957,
    }),
    ("queue.made", [
        ("listScheduledMessages", []), ("listScheduledMessagesAsJSON", ("json", [])),
        ("listConsumersAsJSON", ("json", [])), ("pause", VOID), ("isPaused", True), ("resume", VOID),
        ("pause", True, VOID), ("resume", VOID), ("pause", 1, 2, 3, Refused("pause")),
        ("nope", Refused("nope")), ("disable", VOID), ("enable", VOID), ("resetAllGroups", VOID),
        ("resetGroup", "a", VOID),
    ]),
    ("queue.made", {
        "GroupCount": 0,
    }),
    ("queue.made", [
        ("removeMessage", 123, False), ("changeMessagePriority", 123, 9, False),
        ("changeMessagePriority", 123, 10, Refused("9")), ("changeMessagesPriority", "a='2'", 9, 1),
        ("changeMessagesPriority", None, -1, Refused("9")), ("sendMessageToDeadLetterAddress", 123, False),
        ("sendMessagesToDeadLetterAddress", "a='9'", 0), ("removeMessage", "123", Refused("removeMessage")),
        ("copyMessage", 1, "made3", False), ("moveMessages", "a='9'", "other", Refused("other")),
        ("moveMessages", "a='9'", "made3", 0), ("moveMessages", "a='2'", "made3", True, 1),
    ]),
    ("queue.made3", [
        ("moveMessages", 1, "", "made", False, 1),
    ]),
    ("queue.made", [
        ("removeMessages", "a='1'", 0), ("removeMessages", None, 1), ("expireMessages", "a='0'", 0),
        ("retryMessages", 0), ("removeAllMessages", 0),
    ]),
    ("address.made", {
        "Address": "made", "QueueNames": ["made"], "AllQueueNames": ["made"], "RemoteQueueNames": [],
        "BindingNames": ["made"], "RoutingTypes": ["ANYCAST"], "RoutingTypesAsJSON": ("json", ["ANYCAST"]),
        "RolesAsJSON": ANY, "AddressSize": 0, "NumberOfMessages": 0, "NumberOfPages": 0,
        "NumberOfBytesPerPage": 10485760, "Paging": False, "Paused": False, "RoutedMessageCount": 5,
        "UnRoutedMessageCount": 0, "AutoCreated": False, "Temporary": False,
    }),
    ("address.made", [
        (*SEND, ANY), ("pause", VOID), ("resume", VOID), ("purge", 1), ("clearDuplicateIdCache", False),
    ]),
    ("acceptor.stomp", {"Name": "stomp", "Started": True, "Parameters": {"host": "0.0.0.0", "port": "63213"}}),
    ("acceptor.stomp", [("isStarted", True)]),
    ("acceptor.nope", {"Name": Refused("does not exist")}),
    ("queue.nope", {"MessageCount": Refused("does not exist")}),
    ("nothere", {"x": Refused("_AMQ_ResourceName")}),
    ("broker", [
        ("destroyQueue", "made3", VOID), ("destroyQueue", "made3", Refused("does not exist")),
        ("deleteAddress", "made", Refused("has queues")), ("destroyQueue", "made", True, VOID),
        ("updateAddress", "made", "ANYCAST,MULTICAST",
            "Address [name=made, routingTypes={MULTICAST,ANYCAST}, autoCreated=false]"),
        ("deleteAddress", "made", VOID),
        ("deleteAddress", "made", Refused("does not exist")),
    ]),
]  # fmt: skip


class Manager:
    """A client that sends requests and waits for each reply."""

    def __init__(self, client, replies):
        self.client = client
        self.replies = replies
        self._numbers = 0
        client.subscribe(replies, ack="auto", id="replies")

    def send(self, resource, what, **headers):
        """Send a request; returns its correlation-id."""
        self._numbers += 1
        named = {
            "destination": ADDRESS,
            "reply-to": self.replies,
            "correlation-id": f"c{self._numbers}",
            "_AMQ_ResourceName": resource,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = b""
        if isinstance(what, list):
            named["_AMQ_OperationName"], parameters = what
            body = parameters if isinstance(parameters, bytes) else json.dumps(parameters).encode()
        else:
            named["_AMQ_Attribute"] = what
        self.client.send("SEND", {name: value for name, value in named.items() if value is not None}, body)
        return f"c{self._numbers}"

    def reply(self, correlation):
        """The next message, which must be the reply to that request."""
        message = self.client.message()
        assert message["correlation-id"] == correlation, message.raw
        return message

    def ask(self, resource, what, **headers):
        """Whether a request succeeded, and its result; `VOID` without one."""
        message = self.reply(self.send(resource, what, **headers))
        if not message.body:
            return message["_AMQ_OperationSucceeded"] == "true", VOID
        (result,) = json.loads(message.body)
        return message["_AMQ_OperationSucceeded"] == "true", result

    def value(self, resource, what):
        """The result of a request that succeeds."""
        succeeded, result = self.ask(resource, what)
        assert succeeded, result
        return result


@pytest.fixture
def manager(connect, name):
    yield Manager(connect(), f"/queue/{name}-replies")


def check_form(found, recorded, where):
    """``found`` has the types of what was recorded, and every member of its objects."""
    if recorded is ANY:
        return
    if isinstance(recorded, tuple):
        assert isinstance(found, str), where
        check_form(json.loads(found), recorded[1], where)
    elif isinstance(recorded, dict):
        assert isinstance(found, dict) and recorded.keys() <= found.keys(), (where, found)
        for name, value in recorded.items():
            check_form(found[name], value, f"{where} {name}")
    elif isinstance(recorded, list):
        assert isinstance(found, list) and bool(found) == bool(recorded), (where, found)
        for item in found if recorded else ():
            check_form(item, recorded[0], where)
    else:
        assert type(found) is type(recorded), (where, found)


def test_replies_have_the_form_of_artemis(connect):
    manager = Manager(connect(), "/queue/replies")
    for resource, replies in REPLIES:
        if isinstance(replies, dict):
            requests = replies.items()
        else:
            requests = [([name, parameters], recorded) for name, *parameters, recorded in replies]
        for what, recorded in requests:
            where = f"{resource} {what}"
            succeeded, result = manager.ask(resource, what)
            assert succeeded is not isinstance(recorded, Refused), (where, result)
            if recorded is VOID or result is VOID:
                assert recorded in (VOID, ANY) and result is VOID, where
            elif succeeded:
                check_form(result, recorded, where)
            else:
                assert recorded in result, where


def test_a_reply_has_success_and_correlation_id_and_no_reply_to(manager):
    reply = manager.reply(manager.send("broker", "Started"))
    assert reply["destination"] == manager.replies and reply["persistent"] == "false"
    assert reply.body == b"[true]" and reply.get("reply-to") is None


@pytest.mark.parametrize("where", ["memory", "paged"])
def test_lists_counts_priorities_and_dead_letters_as_artemis(connect, name, where):
    """The values were recorded from Artemis."""
    manager, consumer = Manager(connect(), f"/queue/{name}-replies"), connect()
    client, queue = manager.client, f"{where}.{name}"
    for number in range(6):
        colour = ("red", "blue")[number % 2]
        client.put(f"/queue/{queue}", str(number), colour=colour, priority=number, persistent="true")
    client.put(f"/queue/{queue}", "later", colour="red", AMQ_SCHEDULED_DELAY=6_000_000, persistent="true")
    consumer.subscribe(f"/queue/{queue}", prefetch_count=1)
    held = consumer.message("5")
    resource = f"queue.{queue}"

    def listed():
        found = manager.value(resource, ["browse", []])
        return [(each["text"], each["priority"]) for each in found]

    assert listed() == [("4", 4), ("3", 3), ("2", 2), ("1", 1), ("0", 0)]
    assert len(manager.value(resource, ["listMessages", [None]])) == 5
    for parameters, count in (([], 7), ([""], 7), (["colour = 'red'"], 3), (["colour = 'blue'"], 2)):
        assert manager.value(resource, ["countMessages", parameters]) == count
    groups = json.loads(manager.value(resource, ["countMessages", [None, "colour"]]))
    assert groups == {"red": 3, "blue": 2}
    assert json.loads(manager.value(resource, ["countMessages", ["", "nothing"]])) == {"null": 5}
    assert manager.value(resource, ["countDeliveringMessages", ["colour = 'blue'"]]) == 1

    held_number = int(held["message-id"].partition("-")[2])
    assert not manager.value(resource, ["changeMessagePriority", [held_number, 9]])
    assert manager.value(resource, ["changeMessagesPriority", ["colour = 'red'", 7]]) == 3
    assert listed() == [("4", 7), ("2", 7), ("0", 7), ("3", 3), ("1", 1)]
    last = manager.value(resource, ["listMessages", [None]])[-1]["messageID"]
    assert manager.value(resource, ["changeMessagePriority", [last, 9]])

    first = manager.value(resource, ["listMessages", [None]])[0]["messageID"]
    manager.value(
        "broker", ["createQueue", ['{"name":"DLQ","address":"DLQ","routing-type":"ANYCAST"}', True]]
    )
    assert manager.value(resource, ["sendMessageToDeadLetterAddress", [first]])
    assert not manager.value(resource, ["sendMessageToDeadLetterAddress", [held_number]])
    assert manager.value(resource, ["sendMessagesToDeadLetterAddress", ["colour = 'red'"]]) == 4
    assert listed() == [("3", 3)] and manager.value(resource, "ScheduledCount") == 0
    origin = f"_AMQ_ORIG_QUEUE = '{queue}'"
    assert json.loads(manager.value("queue.DLQ", ["countMessages", [origin, "colour"]])) == {
        "blue": 1,
        "red": 4,
    }
    assert manager.value("queue.DLQ", ["retryMessages", [origin]]) == 5
    assert listed() == [("1", 9), ("4", 7), ("2", 7), ("0", 7), ("later", 4), ("3", 3)]
    assert manager.value(resource, ["countMessages", [f"{origin} AND _AMQ_ORIG_REASON = 'management'"]]) == 5


def test_a_message_that_no_dead_letter_queue_takes_stays(manager, name):
    manager.client.put(f"/queue/nowhere.{name}", "1")
    succeeded, reason = manager.ask(f"queue.nowhere.{name}", ["sendMessagesToDeadLetterAddress", [None]])
    assert not succeeded and "dead-letter-address missing has no queue" in reason
    assert manager.value(f"queue.nowhere.{name}", "MessageCount") == 1


def test_an_operation_is_carried_out_before_the_receipt_of_its_request(client, management, name):
    client.put(
        ADDRESS,
        json.dumps([name, name, "ANYCAST"]).encode(),
        _AMQ_ResourceName="broker",
        _AMQ_OperationName="createQueue",
    )
    assert management.queue(name)["durable"]
    client.nothing()


def test_nothing_is_stored_on_the_management_address(manager, client, management):
    client.subscribe(f"/topic/{ADDRESS}", ack="auto")
    manager.value("broker", "Started")
    manager.client.ask(
        "SEND", {"destination": ADDRESS, "_AMQ_ResourceName": "broker", "_AMQ_Attribute": "Started"}
    )
    client.nothing()
    queues = management.ask("GET", "/queues", address=ADDRESS)["data"]
    assert [queue["messagesAdded"] for queue in queues] == [0]


def test_a_request_in_a_transaction_is_carried_out_by_its_commit(manager, name):
    client = manager.client
    for end in ("ABORT", "COMMIT"):
        begin(client, end)
        correlation = manager.send("broker", ["createQueue", [name, name, "ANYCAST"]], transaction=end)
        client.nothing()
        assert name not in manager.value("broker", "QueueNames")
        client.ask(end, {"transaction": end})
    manager.reply(correlation)
    assert name in manager.value("broker", "QueueNames")


def test_a_reply_comes_to_a_temporary_queue_without_a_subscription(manager):
    manager.send("broker", "Started", reply_to="/temp-queue/answers")
    assert manager.client.message()["subscription"] == "/temp-queue/answers"


@pytest.mark.parametrize("body", [b"{", b'{"a":1}', b'"x"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_array_is_answered_with_the_reason(manager, body):
    request = ["getQueueNames", body]
    reply = manager.reply(manager.send("broker", request, content_length=len(body)))
    assert reply["_AMQ_OperationSucceeded"] == "false" and "JSON array" in json.loads(reply.body)[0]


def test_a_reply_to_the_management_address_is_refused(manager):
    manager.send("broker", "Started", reply_to=ADDRESS)
    assert "reply-to" in manager.client.expect("ERROR")["message"]


def test_a_client_cannot_forge_the_success_of_a_reply(client, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(f"/queue/{name}", "x", _AMQ_OperationSucceeded="true")
    assert client.message().get("_AMQ_OperationSucceeded") is None


def test_a_change_is_an_event_and_a_line_of_the_log(manager, broker, management, name):
    manager.value("broker", ["createQueue", [name, name, "ANYCAST"]])
    manager.value(f"queue.{name}", ["pause", []])
    events = management.ask("GET", "/events")["data"]
    assert any(event["type"] == "MANAGEMENT" and f"queue.{name} pause" in event["text"] for event in events)
    assert any(f"queue.{name} pause" in line and "succeeded" in line for line in broker.log)


def test_what_a_reply_confirmed_survives_a_kill(lasting):
    manager = Manager(lasting.start().connect(), "/queue/replies")
    text = json.dumps({"name": "kept", "routing-type": "ANYCAST", "ring-size": 5})
    manager.value("broker", ["createQueue", [text]])
    manager.value("queue.kept", ["pause", []])
    manager.client.put("/queue/kept", "a", "b", persistent="true")
    manager.value("queue.kept", ["removeMessages", [None]])
    lasting.again("kill")
    queue = lasting.management.queue("kept")
    assert (queue["ringSize"], queue["paused"], queue["messageCount"]) == (5, True, 0)


def test_a_temporary_topic_does_not_outlast_the_broker(lasting):
    client = lasting.start(settings={"#": {"auto-delete-addresses": "true"}}).connect()
    client.subscribe("/temp-topic/news")
    (address,) = lasting.management.ask("GET", "/addresses", temporary="true")["data"]
    assert address["name"].startswith("temp-topic.") and address["routingTypes"] == ["MULTICAST"]
    lasting.again("kill")
    management = lasting.management
    management.until(
        lambda: all(each["name"] != address["name"] for each in management.ask("GET", "/addresses")["data"])
    )
