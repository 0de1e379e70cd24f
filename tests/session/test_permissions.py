"""What a session lets its user do: every operation, and the permissions that it asks for."""

from collections import Counter

import pytest

from stompring.session.connect import Login
from stompring.session.destination import CACHED_ANSWERS, CREATE_QUEUE, Authorizer
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType

from .session_fixture import Client, Server

P = PermissionType


class Allowing:
    """Rights that are a set. What was asked for is noted, refused or not."""

    def __init__(self, *lacking):
        self.rejections = Counter()
        self.generation = 0
        self.lacking = set(lacking)
        self.asked = []

    def allows(self, user, permission, address, queue=None):
        self.asked.append((permission.value, address, queue))
        return permission not in self.lacking

    def revoke(self, *lacking):
        self.lacking |= set(lacking)
        self.generation += 1


class Users:
    """An authenticator that lets everybody in, with some rights."""

    def __init__(self, rights):
        self.rights = rights

    def authenticate(self, credentials, answer):
        answer(Login("ada", Authorizer("ada", self.rights)), "")


class Scene:
    """A server whose rights can be changed."""

    def __init__(self, *lacking, **more):
        self.rights = Allowing(*lacking)
        self.server = Server(authenticator=Users(self.rights), **more)
        directory = self.server.directory
        directory.create_queue(QueueConfiguration("there", "there", RoutingType.ANYCAST))
        directory.create_queue(QueueConfiguration("q1", "several", RoutingType.ANYCAST))
        directory.create_address("topic", frozenset({RoutingType.MULTICAST}))

    def client(self):
        return self.server.client(client_id="c")

    def changed(self, *lacking):
        """As the server does when permissions are others."""
        self.rights.revoke(*lacking)
        self.server.directory.invalidate_plans()


CASES = [
    (
        "send to a new queue",
        Client.send,
        {"destination": "/queue/new"},
        [(P.SEND, "new", None), (P.CREATE_ADDRESS, "new", None), (P.CREATE_DURABLE_QUEUE, "new", None)],
    ),
    (
        "send to a new topic",
        Client.send,
        {"destination": "/topic/new"},
        [(P.SEND, "new", None), (P.CREATE_ADDRESS, "new", None)],
    ),
    (
        "send to an address of another type",
        Client.send,
        {"destination": "/topic/there"},
        [(P.SEND, "there", None), (P.CREATE_ADDRESS, "there", None)],
    ),
    ("send to a queue alone", Client.send, {"destination": "::q1"}, [(P.SEND, "several", "q1")]),
    (
        "send to a new queue of an address",
        Client.send,
        {"destination": "/queue/several::q2"},
        [(P.SEND, "several", "q2"), (P.CREATE_DURABLE_QUEUE, "several", "q2")],
    ),
    ("by its address", Client.subscribe, {"destination": "/queue/several"}, [(P.CONSUME, "several", "q1")]),
    (
        "browse a queue",
        Client.subscribe,
        {"destination": "/queue/there", "browser": "true"},
        [(P.BROWSE, "there", "there")],
    ),
    (
        "subscribe to a new queue",
        Client.subscribe,
        {"destination": "/queue/new"},
        [(P.CONSUME, "new", "new"), (P.CREATE_ADDRESS, "new", None), (P.CREATE_DURABLE_QUEUE, "new", None)],
    ),
    (
        "subscribe to a new topic",
        Client.subscribe,
        {"destination": "/topic/new"},
        [
            (P.CONSUME, "new", None),
            (P.CREATE_ADDRESS, "new", None),
            (P.CREATE_NON_DURABLE_QUEUE, "new", None),
        ],
    ),
    (
        "make a temporary queue",
        Client.subscribe,
        {"destination": "/temp-queue/t"},
        [
            (P.CONSUME, "temp-queue.1.t", None),
            (P.CREATE_ADDRESS, "temp-queue.1.t", None),
            (P.CREATE_NON_DURABLE_QUEUE, "temp-queue.1.t", None),
        ],
    ),
    (
        "send to a new temporary topic",
        Client.send,
        {"destination": "/temp-topic/t"},
        [(P.SEND, "temp-topic.1.t", None), (P.CREATE_ADDRESS, "temp-topic.1.t", None)],
    ),
    (
        "make a temporary topic",
        Client.subscribe,
        {"destination": "/temp-topic/t"},
        [
            (P.CONSUME, "temp-topic.1.t", None),
            (P.CREATE_ADDRESS, "temp-topic.1.t", None),
            (P.CREATE_NON_DURABLE_QUEUE, "temp-topic.1.t", None),
        ],
    ),
    (
        "ask for replies",
        Client.send,
        {"destination": "/queue/there", "reply_to": "/temp-queue/t"},
        [
            (P.SEND, "there", None),
            (P.CONSUME, "temp-queue.1.t", None),
            (P.CREATE_ADDRESS, "temp-queue.1.t", None),
            (P.CREATE_NON_DURABLE_QUEUE, "temp-queue.1.t", None),
        ],
    ),
]


@pytest.mark.parametrize("what, act, headers, needed", CASES, ids=[case[0] for case in CASES])
def test_what_is_asked(what, act, headers, needed):
    scene = Scene()
    client = scene.client()
    act(client, **headers)
    assert not client.session.closed, client.read()
    assert scene.rights.asked == needed


def lacking():
    for what, act, headers, needed in CASES:
        for permission, address, queue in needed:
            yield pytest.param(act, headers, permission, address, queue, id=f"{what} without {permission}")


@pytest.mark.parametrize("act, headers, permission, address, queue", list(lacking()))
def test_without_it(act, headers, permission, address, queue):
    scene = Scene(permission)
    directory = scene.server.directory
    before = set(directory.queues), {name: a.routing_types for name, a in directory.addresses.items()}
    client = scene.client()
    act(client, **headers)
    error = client.error()
    on = f"address {address}" if queue in (None, address) else f"queue {queue} on address {address}"
    assert error["message"].startswith(f"User ada does not have permission='{permission.name}' ")
    if queue not in (None, address) and permission in CREATE_QUEUE:
        on += f" (also required on address {queue})"
    assert error["message"].endswith(on)
    assert scene.rights.rejections == {permission: 1}
    left = {name for name in directory.queues if not name.startswith("c.")}  # a durable one may stay
    assert left == before[0], "nothing is made for who may not"
    assert {name: a.routing_types for name, a in directory.addresses.items()} == before[1]
    assert directory.queues["there"].message_count == 0


def test_it_asks_once_for_what_repeats():
    scene = Scene()
    client = scene.client()
    for number in range(5):
        client.send(destination="/queue/there", unique=str(number))
        client.send(destination="/queue/there", receipt=str(number))
    assert scene.rights.asked == [("send", "there", None)]


def test_acknowledging_what_was_delivered_is_asked_of_nobody():
    scene = Scene()
    client = scene.client()
    client.send(destination="/queue/there")
    client.subscribe(destination="/queue/there", ack="client")
    scene.rights.revoke(P.CONSUME)
    client.ack(client.read()[-1]["ack"], receipt="r")
    client.one("RECEIPT")
    assert scene.server.queue("there").message_count == 0


def test_who_may_not_consume_any_more_is_closed_when_it_changes():
    scene = Scene()
    reader, writer = scene.client(), scene.client()
    reader.subscribe(destination="/queue/there")
    writer.send(destination="/queue/there")
    reader.read()
    scene.changed(P.CONSUME)
    for client in (reader, writer):
        client.session.close_if_revoked()
    assert reader.error()["message"] == "User ada does not have permission='CONSUME' on address there"
    assert not writer.session.closed
    writer.send(b"y", "/queue/there")
    assert scene.server.queue("there").message_count == 1


def test_who_browses_needs_to_browse_when_it_changes():
    scene = Scene()
    client = scene.client()
    client.subscribe(destination="/queue/there", browser="true")
    scene.changed(P.CONSUME)
    client.session.close_if_revoked()
    assert not client.session.closed
    scene.changed(P.BROWSE)
    client.session.close_if_revoked()
    assert client.session.closed


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("form", ["/remote-temp-{0}/1.t", "/{0}/temp-{0}.1.t", "temp-{0}.1.t::temp-{0}.1.t"])
def test_what_is_temporary_is_read_by_its_own_connection_alone(kind, form):
    scene = Scene()
    owner, other = scene.client(), scene.client()
    owner.subscribe(destination=f"/temp-{kind}/t")
    other.subscribe(destination=form.format(kind))
    assert other.error()["message"] == f"Temporary {kind} temp-{kind}.1.t belongs to another connection"
    scene.client().send(destination=f"/remote-temp-{kind}/1.t")
    assert owner.bodies() == [b"x"]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("pattern", ["#", "*.1.t", "temp-topic.#", "temp-topic.1.#"])
def test_no_wildcard_address_of_others_gets_what_is_temporary(secure, pattern):
    server = Scene().server if secure else Server()
    directory = server.directory
    directory.create_queue(QueueConfiguration(pattern, pattern, RoutingType.MULTICAST))
    owner, replier = server.client(), server.client()
    owner.subscribe(destination="/temp-topic/t")
    number = owner.session.number
    replier.send(b"reply", f"/remote-temp-topic/{number}.t")
    replier.send(b"news", "/topic/1.1.t")
    assert owner.bodies() == [b"reply"]
    expected = (pattern in ("#", "*.1.t")) + pattern.startswith(f"temp-topic.{number}.")
    assert directory.queue(pattern).message_count == expected


@pytest.mark.parametrize("destination", ["mine::temp-queue.2.t", "/queue/temp-queue.2.t"])
def test_nobody_takes_the_name_of_a_temporary_queue_before_its_connection(destination):
    scene = Scene()
    thief, owner = scene.client(), scene.client()
    thief.subscribe(destination=destination)
    assert "belongs to another connection" in thief.error()["message"]
    owner.send(destination="/queue/there", **{"reply-to": "/temp-queue/t"})
    assert not owner.session.closed
    assert "temp-queue.2.t" in scene.server.directory.addresses


def test_no_durable_subscription_has_an_internal_name():
    client = Scene().server.client(client_id="$.artemis")
    client.subscribe(destination="/topic/topic", durable_subscription_name="internal.a.address.retro")
    assert client.error()["message"].startswith("$.artemis.internal.a.address.retro is internal")


def test_remembered_answers_are_bounded():
    authorizer = Authorizer("ada", Allowing())
    for number in range(CACHED_ANSWERS * 3):
        authorizer.check(P.SEND, f"a{number}")
    assert len(authorizer._answers) <= CACHED_ANSWERS + 1


def test_long_names_are_cut():
    client = Scene(P.SEND).client()
    client.send(destination="/queue/" + "n" * 5000)
    assert len(client.error()["message"]) < 500
