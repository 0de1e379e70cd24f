"""``verdict`` and ``nextCommand`` of queues, addresses, connections and consumers: state, sentence, command."""

import shlex

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from .admin_server import ANYCAST, AdminServer, path

CONSUMERS = "consumer list --sort=-deliveringCount --queue=q"
BROWSE = "message browse --headers --limit=5 q"
#: Verdicts of a queue ``q``: its attributes, the methods of `Steps` that are called, the sentence, the command.
QUEUES = {
    "empty": ({}, "", "No message waits: no consumers.", None),
    "idle": ({}, "subscribe 1", "No message waits: 1 consumer.", None),
    "no consumers": ({}, "send 2", "2 messages wait, and the queue has no consumers.", BROWSE),
    "one message": ({}, "send 1", "1 message waits, and the queue has no consumers.", BROWSE),
    "paused": (
        {},
        "subscribe 1;pause queues;send 2",
        "2 messages wait: the queue is paused.",
        "queue resume q",
    ),
    "address paused": (
        {},
        "pause addresses;send 2",
        "2 messages wait: the address is paused.",
        "address resume q",
    ),
    "paused and empty": ({}, "pause queues", "No message waits; the queue is paused.", "queue resume q"),
    "disabled": (
        {"enabled": False},
        "",
        "The queue is disabled and gets no messages.",
        "queue update --enabled q",
    ),
    "selector": (
        {},
        "subscribe 1 selector=a=1;send 3",
        "3 messages wait, and its consumer takes none: its selector matches none of the messages.",
        BROWSE,
    ),
    "prefetch": (
        {},
        "subscribe 1 ack=client prefetch-count=1;send 3",
        "2 messages wait, and its consumer takes none: prefetch used up, and no ACK.",
        CONSUMERS,
    ),
    "several": (
        {},
        "subscribe 1 ack=client prefetch-count=1;subscribe 2 ack=client prefetch-count=1;"
        "subscribe 3 selector=a=1;send 3",
        "1 message waits, and none of its 3 consumers takes one: prefetch used up, and no ACK (2), its selector "
        "matches none of the messages (1).",
        CONSUMERS,
    ),
    "groups": (
        {},
        "subscribe 1 ack=client prefetch-count=1;subscribe 2;group 3",
        "2 messages wait, and none of its 2 consumers takes one: prefetch used up, and no ACK (1), all waiting "
        "messages belong to groups of other consumers (1).",
        CONSUMERS,
    ),
    "exclusive": (
        {"exclusive": True},
        "subscribe 1 ack=client prefetch-count=1;subscribe 2;send 2",
        "1 message waits, and none of its 2 consumers takes one: prefetch used up, and no ACK (1), stands by for the "
        "consumer that an exclusive queue serves (1).",
        CONSUMERS,
    ),
    "deaf": (
        {},
        "subscribe 1;deaf;send 300 big",
        "62 messages wait, and its consumer takes none: the client does not read.",
        CONSUMERS,
    ),
    "before dispatch": (
        {"consumers_before_dispatch": 2},
        "subscribe 1;send 1",
        "1 message waits: delivery begins with 2 consumers (consumers-before-dispatch), and 1 subscribed.",
        "queue update --consumers-before-dispatch=0 q",
    ),
    "scheduled": (
        {},
        "scheduled 2",
        "No message waits: 2 messages scheduled and not due, no consumers.",
        "message browse --scheduled --limit=5 q",
    ),
    "delivered": (
        {},
        "subscribe 1 ack=client;send 2",
        "No message waits: 2 messages delivered and not acknowledged (no ACK arrives), 1 consumer.",
        CONSUMERS,
    ),
    "ring": (
        {"ring_size": 2},
        "wait 1;send 12;wait 1",
        "2 messages wait, and the queue has no consumers; the full ring evicts 5.0/s.",
        BROWSE,
    ),
    "slower": (
        {},
        "subscribe 1 ack=client-individual prefetch-count=10;send 60;wait 1;ack 10;wait 1",
        "40 messages wait: consumers are slower than producers (30/s arrive, 5.0/s are acknowledged).",
        CONSUMERS,
    ),
    "keeps up": (
        {},
        "send 60;wait 12;subscribe 1 ack=client-individual prefetch-count=10;ack 10;wait 1",
        "40 messages wait, and consumers keep up with producers (0/s arrive, 1.0/s are acknowledged).",
        None,
    ),
    "kept": (
        {"non_destructive": True},
        "subscribe 1;send 2",
        "No message waits: 2 messages kept for later consumers, 1 consumer.",
        None,
    ),
}


class Steps:
    """What clients and operators do, as words: ``subscribe 1 ack=client;deaf;send 3``."""

    def __init__(self, server):
        self.server = server
        server.service.sampler.start()
        self.clients = []

    def run(self, steps):
        for step in filter(None, steps.split(";")):
            verb, *words = step.split()
            getattr(self, verb)(*words)

    def send(self, number, *big, **headers):
        sender = self.server.stomp()
        for _ in range(int(number)):
            sender.put(b"x" * (1000 if big else 1), **headers)

    def group(self, number):
        self.send(number, JMSXGroupID="g")

    def scheduled(self, number):
        self.send(number, AMQ_SCHEDULED_DELAY="60000")

    def subscribe(self, id, *headers):
        client = self.server.stomp()
        client.subscribe(id=id, **dict(each.split("=", 1) for each in headers))
        self.clients.append(client)

    def ack(self, number):
        for each in self.clients[-1].acks[: int(number)]:
            self.clients[-1].send("ACK", id=each)

    def deaf(self):
        self.clients[-1].session.outbox.pause()

    def wait(self, seconds):
        for _ in range(int(seconds)):
            self.server.advance(1)
            self.server.advance()

    def create(self, *attributes):
        self.server.queue(**dict(each.split("=", 1) for each in attributes))

    def fill(self):
        for _ in range(301):
            self.clients[-1].put()

    def pause(self, kind):
        self.server.done("PATCH", path(kind, "q"), {"paused": True})


def verdict(shown):
    command = shown["nextCommand"]
    return shown["verdict"], command and command.removeprefix("stompring ")


@pytest.mark.parametrize("state", QUEUES)
def test_of_a_queue(server, state):
    attributes, steps, *expected = QUEUES[state]
    server.queue(**attributes)
    Steps(server).run(steps)
    assert [*verdict(server.shown())] == expected


#: Verdicts of the address ``q``: its settings, steps, the sentence, the command.
LARGEST = "queue list --sort=-persistentSize --address=q"
ADDRESSES = {
    "no queue": ({}, "", "It has no queues: messages go to no consumer.", None),
    "takes": ({}, "create;send 1", "It takes messages.", None),
    "unrouted": (
        {},
        "create filter=x=1;send 2",
        "It takes messages; since the start 2 messages not routed.",
        "queue list --address=q",
    ),
    "paused": ({}, "create;pause addresses", "Its queues are paused.", "address resume q"),
    **{
        policy: (
            {"max_size_messages": 1, "address_full_policy": policy},
            "create;send 3",
            f"{sentence}: address q is full: max-size-messages 1.",
            LARGEST,
        )
        for policy, sentence in {
            "DROP": "Messages are dropped",
            "FAIL": "Messages are rejected",
            "BLOCK": "Producers are blocked (1)",
            "PAGE": "Producers are blocked (1)",
        }.items()
    },
}


@pytest.mark.parametrize("state", ADDRESSES)
def test_of_an_address(state):
    settings, steps, *expected = ADDRESSES[state]
    server = AdminServer({"q": {"auto_create_queues": False, **settings}})
    server.directory.create_address("q", frozenset({ANYCAST}))
    Steps(server).run(steps)
    assert [*verdict(server.get(path("addresses", "q")))] == expected


def test_of_a_queue_whose_address_is_full():
    server = AdminServer({"q": {"max_size_messages": 1, "address_full_policy": "BLOCK"}})
    server.queue()
    Steps(server).run("send 2")
    assert verdict(server.shown()) == (
        "1 message waits, and the queue has no consumers; producers are blocked (1): address q is full: "
        "max-size-messages 1.",
        BROWSE,
    )


def test_of_a_full_disk(server):
    server.queue()
    server.broker.disk.set_fault("the disk is 91 % full")
    assert verdict(server.get(path("addresses", "q"))) == (
        "Producers are blocked: address q rejects durable messages: the disk is 91 % full.",
        "status",
    )


#: Verdicts of a connection that subscribes as ``1``: the steps, its sentence, and that of its consumer.
CONNECTIONS = {
    "idle": ("subscribe 1", "It is read, and its client reads.", "No message waits for it."),
    "busy": ("subscribe 1;send 2", "It is read, and its client reads.", "No message waits for it."),
    "prefetch": (
        "subscribe 1 ack=client prefetch-count=1;send 2",
        "Prefetch used up, and no ACK, for 1 of 1 subscription.",
        "Prefetch used up, and no ACK for 1 message.",
    ),
    "selector": (
        "subscribe 1 selector=a=1;send 2",
        "It is read, and its client reads.",
        "Its selector matches none of 2 waiting messages.",
    ),
    "paused": ("subscribe 1;pause queues", "It is read, and its client reads.", "The queue is paused."),
    "held": (
        "subscribe 1 ack=client;send 2",
        "It is read, and its client reads.",
        "No message waits for it, and no ACK for 2 messages.",
    ),
    "browser": (
        "subscribe 1 browser=true",
        "It is read, and its client reads.",
        "It gets copies of the messages, which stay in the queue.",
    ),
    "blocked": (
        "subscribe 1;pause queues;fill",
        "It is not read, because its SEND to q waits: producers are blocked (1): address q is full: "
        "max-size-messages 300.",
        "The queue is paused.",
    ),
    "deaf": (
        "subscribe 1;deaf;send 299 big",
        "The client does not read: 262,276 bytes wait, and no messages follow.",
        "The client does not read: its outbox is full.",
    ),
}


@pytest.mark.parametrize("state", CONNECTIONS)
def test_of_a_connection_and_its_consumer(state):
    steps, *expected = CONNECTIONS[state]
    server = AdminServer({"q": {"max_size_messages": 300, "address_full_policy": "BLOCK"}})
    server.queue()
    run = Steps(server)
    run.run(steps)
    shown = server.get(path("connections", run.clients[0].session.number))
    assert [shown["verdict"], shown["subscriptions"][0]["verdict"]] == expected


def test_names_in_commands_are_quoted(server):
    for name, expected in {
        "a b": "'a b'",
        "it's": "'it'\"'\"'s'",
        "-x": "-- -x",
        "$(reboot)": "'$(reboot)'",
    }.items():
        server.queue(name).pause()
        assert server.shown(name)["nextCommand"] == f"stompring queue resume {expected}"


@pytest.mark.parametrize(
    "command", sorted({row[3] for row in (*QUEUES.values(), *ADDRESSES.values()) if row[3]})
)
def test_commands_exist_with_their_options(command):
    ran = CliRunner().invoke(main, [*shlex.split(command), "--help"])
    assert ran.exit_code == 0 and "no such option" not in ran.output.lower(), ran.output
