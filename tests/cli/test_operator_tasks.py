"""Ten tasks of an operator with the command line alone; seventeen commands in all."""

import json
import shlex
from contextlib import closing, contextmanager

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..stomp_client import StompClient

DLQ = '<address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>'
SETTINGS = {"#": {"max-delivery-attempts": 1, "dead-letter-address": "DLQ"}}


@contextmanager
def broker_with_work(config):
    """Orders of which two are dead letters, and a consumer that holds one message of another queue."""
    config.write_text(broker_xml(settings=SETTINGS, addresses=DLQ))
    with BrokerProcess(config) as process, closing(StompClient(process.port)) as client:
        client.connect()
        client.put("/queue/orders", "dead 1", "dead 2")
        client.subscribe("/queue/orders", "client-individual", "s")
        for _ in range(2):
            client.answer("NACK", client.message())
        client.ask("UNSUBSCRIBE", {"id": "s"})
        client.put("/queue/orders", *(f"order {number}" for number in range(8)), colour="red")
        client.put("/queue/held", "held")
        client.subscribe("/queue/held", "client-individual", "holder")
        client.message()
        yield process


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_with_work(tmp_path_factory.mktemp("operator") / "broker.xml") as process:
        yield process


def count(cli, queue):
    return int(cli.management.queue(queue)["messageCount"])


#: Task, commands, and whether it is done, from the broker and the outputs.
TASKS = [
    ("is the broker healthy", ["status"], lambda cli, out: "ready" in out[0]),
    (
        "which queue is the fullest",
        ["queue list --sort=-messageCount --limit 1 -q"],
        lambda cli, out: out[0] == "orders\n",
    ),
    (
        "who holds unacknowledged messages",
        ["consumer list --sort=-deliveringCount --limit 1 --columns queue,deliveringCount,remoteAddress"],
        lambda cli, out: out[0].splitlines()[1].startswith("held\t1\t127.0.0.1:"),
    ),
    (
        "retry the dead letters of a queue",
        ["dead-letters list", "dead-letters retry --from orders"],
        lambda cli, out: (count(cli, "DLQ"), count(cli, "orders")) == (0, 10),
    ),
    (
        "move what matches to another queue",
        ["queue move orders parked --filter \"colour = 'red'\""],
        lambda cli, out: (count(cli, "orders"), count(cli, "parked")) == (2, 8),
    ),
    (
        "save a queue, empty it, and load it again",
        [
            "message download parked {home}.jsonl.gz",
            "queue purge parked --yes",
            "message upload parked {home}.jsonl.gz",
        ],
        lambda cli, out: count(cli, "parked") == 8,
    ),
    (
        "make a queue a ring and evict what is too much",
        ["queue update parked --ring-size 5", "queue trim parked --yes"],
        lambda cli, out: count(cli, "parked") == 5,
    ),
    (
        "send a message for later and see it",
        ["message send orders --delay 1h reminder", "message browse orders --scheduled"],
        lambda cli, out: "reminder" in out[1],
    ),
    (
        "pause a queue during a repair",
        ["queue pause orders", "queue resume orders"],
        lambda cli, out: cli.management.queue("orders")["paused"] is False,
    ),
    (
        "close the connection of a stuck client",
        ["consumer list --queue held --columns connectionID --json", "connection close {connection} --yes"],
        lambda cli, out: cli.management.expect("held", consumerCount=0)["deliveringCount"] == 0,
    ),
]


def test_ten_tasks_of_an_operator(cli):
    steps = {}
    for task, commands, is_done in TASKS:
        outputs = []
        for command in commands:
            connection = ""
            if "{connection}" in command:
                connection = json.loads(outputs[-1])["data"][0]["connectionID"]
            words = shlex.split(command.format(home=cli.home / "saved", connection=connection))
            cli.home.mkdir(exist_ok=True)
            outputs.append(cli.run(*words).stdout)
        assert is_done(cli, outputs), (task, outputs)
        steps[task] = len(commands)
    assert len(steps) == 10 and sum(steps.values()) == 17, steps
