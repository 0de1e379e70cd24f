"""``POST /api/v1/queues/{name}/move``, ``copy``, ``retry``, ``remove``, ``expire``, and ``/api/v1/tasks``."""

import pytest

from stompring.broker.message import Message, Traits
from stompring.settings.model import PermissionType, RoutingType

from .admin_server import BEGIN, AdminServer, path, pick
from .test_permissions import basic, server_where

MULTICAST = RoutingType.MULTICAST
HUNDRED = [b"%d" % number for number in range(100)]
DEAD = {"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1, "expiry_address": "late"}}


@pytest.fixture
def server():
    server = AdminServer(DEAD)
    for name in ("q", "p", "DLQ", "late"):
        server.queue(name)
    return server


def send(client, *bodies, to="q", **headers):
    for body in bodies:
        client.put(body, f"/queue/{to}", **headers)


def bodies(server, queue="q"):
    return [each["body"] for each in server.messages(queue)]


def ids(server, queue="q"):
    """Message ids by body."""
    return {each["body"]: each["messageID"] for each in server.messages(queue)}


def do(server, operation, queue="q", **body):
    reply = server.ask("POST", path("queues", queue, operation), body)
    assert reply.status in (200, 202), (reply.status, reply.body)
    return reply.json


def again(server, task):
    return server.get(path("tasks", task["taskID"]))


def counts(task):
    return task["state"], task["done"], task["skipped"], task["failed"]


def reject(server, destination="/queue/q", number=1):
    """Consume and reject so many messages: each is a dead letter."""
    consumer = server.stomp()
    consumer.subscribe(destination, ack="client-individual", prefetch_count=str(number))
    for ack in consumer.acks[:number]:
        consumer.send("NACK", id=ack)
    consumer.send("DISCONNECT")


def retried(server):
    """The counts of a retry of all dead letters."""
    return counts(do(server, "retry", queue="DLQ"))


def subscriptions(server):
    """Two queues of one address."""
    for name in ("one", "two"):
        server.queue(name, "news", MULTICAST)


def with_full_target(policy):
    """Three messages in ``q``, and room for two in ``p``."""
    server = AdminServer({"p": {"max_size_messages": 2, "address_full_policy": policy}})
    server.queue("q")
    server.queue("p")
    send(server.stomp(), b"a", b"b", b"c")
    return server


# ---- move and copy


def test_moves_all_in_order_and_counts_as_acknowledged(server, client):
    send(client, b"a", b"b", priority="3")
    later = BEGIN * 1000 + 60_000
    kept = {"priority": "7", "colour": "red", "persistent": "true", "JMSXGroupID": "g"}
    send(client, b"c", expires=str(later), **kept)
    task = do(server, "move", address="p")
    assert counts(task) == ("completed", 3, 0, 0)
    assert pick(task, "operation", "queue", "total", "error") == ("move", "q", 3, None)
    assert bodies(server) == [] and bodies(server, "p") == ["c", "a", "b"]
    moved = server.messages("p")[0]
    assert (moved["priority"], moved["durable"], moved["headers"]["colour"]) == (7, True, "red")
    assert pick(moved, "expires", "group") == (later, "g")
    assert not any(name.startswith("_AMQ_ORIG") for name in moved["headers"])
    assert server.shown()["messagesAcknowledged"] == 3


@pytest.mark.parametrize(
    "selection, moved",
    [
        ({"filter": "n = '2'"}, ["2"]),
        ({"filter": "n > 1", "limit": 2}, ["2", "3"]),
        ({"limit": 1}, ["1"]),
        ({"limit": -1}, ["1", "2", "3", "4"]),
        ({"filter": "n = '9'"}, []),
        ({"messages": []}, []),
    ],
)
def test_selection(server, client, selection, moved):
    for number in "1234":
        send(client, number.encode(), n=number)
    assert do(server, "move", address="p", **selection)["done"] == len(moved)
    assert bodies(server, "p") == moved
    assert bodies(server) == [each for each in "1234" if each not in moved]


def test_messages_by_id_are_moved_and_unknown_ones_skipped(server, client):
    send(client, b"a", b"b", b"c")
    known = ids(server)
    task = do(server, "move", address="p", messages=[known["c"], known["a"], "999999"])
    assert counts(task) == ("completed", 2, 1, 0)
    assert bodies(server, "p") == ["a", "c"] and bodies(server) == ["b"]


def test_messages_in_delivery_are_skipped(server, client):
    send(client, b"a", b"b")
    consumer = server.stomp()
    consumer.subscribe(ack="client", prefetch_count="1")
    taken = next(each for each in server.messages() if each["state"] == "delivering")
    assert counts(do(server, "move", address="p")) == ("completed", 1, 1, 0)
    assert counts(do(server, "remove", messages=[taken["messageID"]])) == ("completed", 0, 1, 0)
    assert bodies(server) == ["a"]


def test_scheduled_messages_stay_scheduled_with_their_recurrence(server, client):
    send(client, b"later", AMQ_SCHEDULED_DELAY="5000", AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="3")
    (before,) = server.get("/api/v1/queues/q/scheduled")["data"]
    do(server, "move", address="p")
    (after,) = server.get("/api/v1/queues/p/scheduled")["data"]
    assert pick(after, "dueTime", "recurrence") == pick(before, "dueTime", "recurrence")
    assert server.shown()["scheduledCount"] == 0


def test_a_copy_leaves_the_original(server, client):
    send(client, b"a", b"b")
    assert counts(do(server, "copy", address="p", filter="TRUE")) == ("completed", 2, 0, 0)
    assert bodies(server) == bodies(server, "p") == ["a", "b"]
    assert not set(ids(server).values()) & set(ids(server, "p").values())


def test_a_target_address_is_created_as_for_a_send(server, client):
    send(client, b"a")
    do(server, "move", address="new", routingType="ANYCAST")
    assert bodies(server, "new") == ["a"]


def test_one_queue_of_an_address_is_a_target(server, client):
    subscriptions(server)
    send(client, b"a")
    do(server, "move", address="news")
    send(client, b"b")
    server.done("POST", "/api/v1/queues/q/move", {"queue": "two"})
    assert bodies(server, "one") == ["a"] and bodies(server, "two") == ["a", "b"]


@pytest.mark.parametrize(
    "body, status, named",
    [
        ({"address": "q"}, 409, "leads back to queue q"),
        ({"queue": "q"}, 409, "bound to address"),
        ({"address": "a.#"}, 400, "wildcards"),
        ({"filter": "n ="}, 400, "filter"),
        ({"messages": "1"}, 400, "messages"),
        ({"messages": [1]}, 400, "messages"),
        ({"messages": ["7-1"]}, 404, "7-1"),
        ({"messages": ["x"]}, 404, "x"),
        ({"messages": ["1"] * 10_001}, 400, "10000"),
        ({"messages": ["1"], "filter": "TRUE"}, 400, "one of them"),
        ({"limit": 0}, 400, "limit"),
        ({"wait": 1}, 400, "wait"),
    ],
)
def test_invalid_requests_change_nothing(server, client, body, status, named):
    send(client, b"a")
    problem = server.refused(status, "POST", "/api/v1/queues/q/move", {"address": "p", **body})
    assert named in problem["detail"], problem
    assert bodies(server) == ["a"] and bodies(server, "p") == []


@pytest.mark.parametrize(
    "body, status, named",
    [
        ({}, 400, "address"),
        ({"queue": "q"}, 409, "name another one"),
        ({"queue": "nowhere"}, 404, "nowhere"),
    ],
)
def test_invalid_targets(server, body, status, named):
    assert named in server.refused(status, "POST", "/api/v1/queues/q/move", body)["detail"]


def test_a_queue_whose_filter_does_not_match_keeps_the_message_where_it_is(server, client):
    server.queue("red", filter="colour = 'red'")
    send(client, b"a", colour="red")
    send(client, b"b", colour="blue")
    task = do(server, "move", address="red")
    assert counts(task) == ("completed", 1, 0, 1)
    assert "address red has no queue" in task["error"]
    assert bodies(server, "red") == ["a"] and bodies(server) == ["b"]


@pytest.mark.parametrize("full", ["FAIL", "DROP"])
def test_a_full_target_loses_nothing(full):
    server = with_full_target(full)
    problem = server.refused(409, "POST", "/api/v1/queues/q/move", {"address": "p"})
    assert "max-size-messages 2" in problem["detail"] and "stay in queue q" in problem["detail"]
    assert pick(problem, "done", "skipped", "failed") == (2, 0, 0)
    assert bodies(server, "p") == ["a", "b"] and bodies(server) == ["c"]
    assert again(server, problem)["state"] == "failed"


def test_a_full_ring_evicts_its_oldest(server, client):
    server.queue("ring", ring_size=2)
    send(client, b"a", b"b", b"c")
    assert do(server, "move", address="ring")["done"] == 3
    assert bodies(server, "ring") == ["b", "c"]
    assert server.shown("ring")["messagesReplaced"] == 1


def test_a_broker_that_is_full_lets_messages_move_within_its_memory():
    server = AdminServer({"#": {"address_full_policy": "FAIL"}}, global_max_messages=3)
    server.queue("q")
    server.queue("p")
    send(server.stomp(), b"a", b"b", b"c")
    assert do(server, "move", address="p")["done"] == 3
    assert bodies(server, "p") == ["a", "b", "c"]
    problem = server.refused(409, "POST", "/api/v1/queues/p/copy", {"address": "q"})
    assert "global-max-messages" in problem["detail"]


def test_a_moved_message_was_never_delivered(server, client):
    server = AdminServer({"#": {"max_delivery_attempts": 10, "redelivery_delay": 60_000}})
    server.queue("q")
    server.queue("p")
    send(server.stomp(), b"a")
    reject(server)
    (waiting,) = server.messages()
    assert pick(waiting, "state", "deliveryCount") == ("scheduled", 1)
    do(server, "move", address="p")
    (moved,) = server.messages("p")
    assert pick(moved, "state", "deliveryCount", "failedAttempts") == ("pending", 0, 0)


# ---- dead letters and priorities by management


def test_messages_are_sent_to_the_dead_letters(server, client):
    send(client, b"a", b"b", colour="red")
    send(client, b"c")
    send(client, b"d", colour="red", AMQ_SCHEDULED_DELAY="60000")
    assert counts(do(server, "dead-letter", filter="colour = 'red'")) == ("completed", 3, 0, 0)
    assert (bodies(server), bodies(server, "DLQ")) == (["c"], ["a", "b", "d"])
    (letter, *_) = server.messages("DLQ")
    assert pick(letter, "reason", "originQueue", "dueTime") == ("management", "q", None)
    assert server.shown()["messagesKilled"] == 3
    retried(server)
    assert bodies(server) == ["c", "a", "b", "d"]


def test_messages_stay_where_no_queue_takes_the_dead_letter(server, client):
    send(client, b"a")
    server.directory.delete_queue("DLQ", force=True)
    task = do(server, "dead-letter")
    assert counts(task) == ("completed", 0, 0, 1) and "has no queue for message" in task["error"]
    assert bodies(server) == ["a"]
    other = AdminServer()
    other.queue()
    detail = other.refused(409, "POST", "/api/v1/queues/q/dead-letter")["detail"]
    assert detail == "Address q has no dead-letter-address: set one, or move the messages"
    detail = server.refused(409, "POST", path("queues", server.queue("DLQ").name, "dead-letter"))["detail"]
    assert "is its own dead-letter-address" in detail


def test_priorities_are_changed(server, client):
    send(client, b"a", b"b", colour="red", persistent="true", expires=str((BEGIN + 60) * 1000))
    send(client, b"c", priority="7")
    send(client, b"d", AMQ_SCHEDULED_DELAY="60000")
    before = server.messages()
    assert counts(do(server, "priority", priority=7, filter="colour = 'red'")) == ("completed", 2, 0, 0)
    after = server.messages()
    assert [pick(each, "body", "priority") for each in after] == [("c", 7), ("a", 7), ("b", 7), ("d", 4)]
    kept = ("timestamp", "expires", "durable", "user", "size")
    assert [before[1][name] for name in kept] == [after[1][name] for name in kept]
    assert after[1]["headers"]["priority"] == "7" and after[1]["headers"]["colour"] == "red"
    assert counts(do(server, "priority", priority=0)) == ("completed", 3, 1, 0), (
        "the scheduled one is skipped"
    )
    for wrong in (-1, 10, "high", None):
        server.refused(400, "POST", "/api/v1/queues/q/priority", {"priority": wrong})


# ---- retry


def test_a_retry_may_keep_the_headers_of_the_origin(server, client):
    send(client, b"a")
    do(server, "dead-letter")
    server.refused(400, "POST", "/api/v1/queues/DLQ/retry", {"keepOrigin": 1})
    assert "running" not in [task["state"] for task in server.get("/api/v1/tasks")["data"]]
    assert counts(do(server, "retry", queue="DLQ", keepOrigin=True)) == ("completed", 1, 0, 0)
    (back,) = server.messages()
    assert back["headers"]["_AMQ_ORIG_QUEUE"] == "q" and back["headers"]["_AMQ_ORIG_MESSAGE_ID"]
    assert counts(do(server, "retry")) == ("completed", 0, 0, 0), "it is where it came from"
    do(server, "dead-letter")
    (letter,) = server.messages("DLQ")
    assert list(letter["headers"]).count("_AMQ_ORIG_QUEUE") == 1


def test_a_dead_letter_goes_back_without_a_trace(server, client):
    send(client, b"a", colour="red", persistent="true")
    (sent,) = server.messages()
    reject(server)
    (letter,) = server.messages("DLQ")
    assert letter["headers"]["_AMQ_ORIG_REASON"] == "max-delivery-attempts"
    assert retried(server) == ("completed", 1, 0, 0)
    assert bodies(server, "DLQ") == []
    (back,) = server.messages()
    for name in ("messageID", "timestamp"):
        del sent[name], back[name]
    assert back == sent


def test_only_messages_with_an_origin_are_retried(server, client):
    send(client, b"letter")
    reject(server)
    send(client, b"sent here", to="DLQ")
    task = do(server, "retry", queue="DLQ", messages=[ids(server, "DLQ")["sent here"]])
    assert counts(task) == ("completed", 0, 0, 1) and "is not a dead letter" in task["error"]
    assert retried(server) == ("completed", 1, 0, 0)
    assert bodies(server, "DLQ") == ["sent here"] and bodies(server) == ["letter"]


def test_an_expired_message_goes_back_and_does_not_expire_again(server, client):
    send(client, b"a", expires=str(BEGIN * 1000 + 60_000))
    assert counts(do(server, "expire")) == ("completed", 1, 0, 0)
    (late,) = server.messages("late")
    assert late["headers"]["_AMQ_ORIG_REASON"] == "expired"
    do(server, "retry", queue="late")
    (back,) = server.messages()
    assert back["expires"] == 0 and "_AMQ_ACTUAL_EXPIRY" not in back["headers"]


def test_a_dead_letter_of_one_subscription_goes_back_to_that_one(server, client):
    subscriptions(server)
    client.put(b"a", "news", destination_type="MULTICAST")
    reject(server, "news::one")
    assert bodies(server, "one") == [] and bodies(server, "DLQ") == ["a"]
    retried(server)
    assert bodies(server, "one") == ["a"] and bodies(server, "two") == ["a"]


def test_a_dead_letter_goes_to_its_address_if_its_queue_is_gone(server, client):
    server.queue("old", "news", MULTICAST)
    client.put(b"a", "news")
    reject(server, "news::old")
    server.directory.delete_queue("old")
    server.queue("new", "news", MULTICAST)
    assert retried(server) == ("completed", 1, 0, 0)
    assert bodies(server, "new") == ["a"]


def test_a_message_without_a_route_is_retried_to_its_address(client):
    server = AdminServer({"#": {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}})
    server.queue("DLQ")
    server.directory.create_address("news", frozenset({MULTICAST}))
    server.stomp().put(b"a", "news", destination_type="MULTICAST")
    (letter,) = server.messages("DLQ")
    assert letter["headers"]["_AMQ_ORIG_REASON"] == "no-route"
    task = do(server, "retry", queue="DLQ")
    assert counts(task) == ("completed", 0, 0, 1) and "address news has no queue" in task["error"]
    server.queue("reader", "news", MULTICAST)
    assert retried(server) == ("completed", 1, 0, 0)
    assert bodies(server, "reader") == ["a"]


def test_a_retry_is_not_taken_for_a_duplicate(server, client):
    send(client, b"a", _AMQ_DUPL_ID="once")
    reject(server)
    retried(server)
    assert bodies(server) == ["a"]


# ---- remove, expire


def test_remove_and_expire_what_matches(server, client):
    for number in "1234":
        send(client, number.encode(), n=number)
    assert do(server, "remove", filter="n = '1'")["done"] == 1
    assert do(server, "expire", filter="n > 2")["done"] == 2
    assert bodies(server) == ["2"] and bodies(server, "late") == ["3", "4"]
    assert pick(server.shown(), "messagesAcknowledged", "messagesExpired") == (1, 2)


# ---- tasks


def test_a_task_that_nobody_waits_for(server, client):
    send(client, b"a")
    reply = server.ask("POST", "/api/v1/queues/q/move", {"address": "p", "wait": False})
    assert reply.status == 202 and reply.json["state"] == "running"
    location = reply.headers["location"]
    assert location == f"/api/v1/tasks/{reply.json['taskID']}"
    server.advance(0, 5)
    task = server.get(location)
    assert counts(task) == ("completed", 1, 0, 0)
    assert pick(task, "started", "ended", "user") == (BEGIN * 1000, BEGIN * 1000, None)
    assert server.get("/api/v1/tasks?state=completed")["data"] == [task]
    server.refused(409, "DELETE", location)


@pytest.mark.parametrize("operation", ["purge", "retry", "remove", "expire", "dead-letter", "priority"])
def test_more_tasks_than_may_run_are_refused(server, operation):
    for _ in range(100):
        server.service.tasks.new("purge", "q", None)
    body = {"priority": 1} if operation == "priority" else None
    server.refused(409, "POST", path("queues", "q", operation), body)


def test_a_task_is_cancelled_between_slices():
    server = with_full_target("BLOCK")
    location = path("tasks", do(server, "move", address="p", wait=False)["taskID"])
    server.advance(0.05)
    assert counts(server.get(location)) == ("running", 2, 0, 0)
    server.done("DELETE", location)
    server.advance(0.05)
    assert counts(server.get(location)) == ("cancelled", 2, 0, 0)
    assert bodies(server) == ["c"] and bodies(server, "p") == ["a", "b"]


def test_a_task_whose_queue_is_deleted_fails(server, client):
    send(client, *HUNDRED)
    task = do(server, "move", address="p", wait=False)
    server.directory.delete_queue("q")
    server.advance(0, 20)
    shown = again(server, task)
    assert shown["state"] in ("failed", "completed") and shown["done"] == 0


def test_a_purge_is_a_task(server, client):
    send(client, b"a", b"b")
    assert server.ask("POST", "/api/v1/queues/q/purge").json == {"removed": 2}
    (task,) = server.get("/api/v1/tasks")["data"]
    assert pick(task, "operation", "done", "state") == ("purge", 2, "completed")
    send(client, b"x", b"x", b"x")
    reply = server.ask("POST", "/api/v1/queues/q/purge", {"wait": False})
    assert (reply.status, reply.json["operation"], reply.json["total"]) == (202, "purge", 3)
    assert reply.headers["location"] == path("tasks", reply.json["taskID"])
    server.advance(0, 5)
    assert pick(again(server, reply.json), "state", "done") == ("completed", 3)
    selected = server.ask("POST", "/api/v1/queues/q/purge", {"wait": False, "filter": "a = 1"})
    assert selected.json["total"] is None
    assert server.refused(400, "POST", "/api/v1/queues/q/purge", {"wait": "no"})["field"] == "wait"


def test_the_last_hundred_tasks_stay(server):
    for _ in range(105):
        do(server, "remove")
    page = server.get("/api/v1/tasks?size=1000")
    assert page["count"] == 100 and page["data"][-1]["taskID"] == "105"
    server.refused(404, "GET", "/api/v1/tasks/1")
    server.refused(404, "GET", "/api/v1/tasks/x")


def test_a_target_that_stays_full_fails_the_task():
    server = with_full_target("BLOCK")
    location = path("tasks", do(server, "move", address="p", wait=False)["taskID"])
    server.advance(0.05, 100)
    assert server.get(location)["state"] == "running"
    server.advance(0.05, 1000)
    shown = server.get(location)
    assert counts(shown) == ("failed", 2, 0, 0) and "max-size-messages 2" in shown["error"]
    assert bodies(server) == ["c"] and bodies(server, "p") == ["a", "b"]


def test_a_slow_disk_is_waited_for(server, client):
    send(client, b"a", persistent="true")
    limit = server.broker.storage.write_limit
    limit.set_fault("disk gone")
    task = do(server, "remove", wait=False)
    server.advance(0.05, 50)
    assert again(server, task)["state"] == "running"
    limit.set_fault(None)
    server.advance(0.05, 5)
    assert counts(again(server, task)) == ("completed", 1, 0, 0)


def test_a_task_belongs_to_its_user(tmp_path):
    server = server_where(tmp_path, (PermissionType.EDIT, "a"))
    purge = server.ask("POST", "/api/v1/queues/q/remove", {"wait": False}, headers=basic())
    assert (purge.status, purge.json["user"]) == (202, "anna")
    other = server.service.tasks.new("purge", "q", "berta")
    own = path("tasks", purge.json["taskID"])
    server.done("GET", own, headers=basic())
    assert server.ask("DELETE", own, headers=basic()).status in (204, 409)
    for method in ("GET", "DELETE"):
        server.refused(403, method, path("tasks", str(other.number)), headers=basic())
    server.refused(403, "GET", "/api/v1/tasks", headers=basic())


def test_a_retry_needs_send_where_the_message_goes(tmp_path):
    server = server_where(tmp_path, (PermissionType.EDIT, "a"))
    origin = {"_AMQ_ORIG_ADDRESS": "secret", "_AMQ_ORIG_QUEUE": "secret"}
    block = b"".join(b"%b:%b\n" % (name.encode(), value.encode()) for name, value in origin.items())
    address = server.directory.addresses["a"]
    message = Message(server.broker.next_message_number(), address, Traits(block), b"x", BEGIN * 1000)
    server.directory.queue("q").enqueue(message)
    server.queue("secret")
    reply = server.ask("POST", "/api/v1/queues/q/retry", headers=basic())
    assert counts(reply.json) == ("completed", 0, 0, 1)
    assert "permission='SEND'" in reply.json["error"]
    assert server.directory.queue("q").count == 1 and server.directory.queue("secret").count == 0


def test_a_broker_that_stops_ends_its_tasks(server, client):
    send(client, *HUNDRED)
    task = do(server, "move", address="p", wait=False)
    server.service.tasks.stop()
    server.advance(0, 5)
    assert counts(again(server, task)) == ("cancelled", 0, 0, 0)
