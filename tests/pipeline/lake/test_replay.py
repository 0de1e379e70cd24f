"""What a lake has kept goes to a broker once more: in order, once, over kills; the commands as a user has them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...end_to_end.lasting import DURABLE, LastingBroker
from ...end_to_end.secured import Secured

pytest.importorskip("deltalake")

from stompring.settings.match import Pattern

from ...broker_document import anycast
from ...end_to_end.test_retention import retention
from .ingesting import done, run
from .lake_fixture import LakeFixture

pytestmark = pytest.mark.spark

SENT = {
    name: [f"{name} {number:04d}" for number in range(150)] for name in ("orders.eu", "orders.us", "other")
}


@pytest.fixture(scope="module")
def made_once(spark, tmp_path_factory):
    """A lake with messages of three addresses, of which the last one went to two queues."""
    from contextlib import ExitStack

    root = tmp_path_factory.mktemp("replay")
    with ExitStack() as opened:
        broker = LastingBroker(root, opened)
        both = '<address name="both"><multicast><queue name="b1"/><queue name="b2"/></multicast></address>'
        broker.start(core=retention(), addresses="".join(map(anycast, SENT)) + both)
        client = broker.connect()
        for at in range(0, 150, 50):
            for name, bodies in SENT.items():
                colour = "red" if at else "blue"
                client.put(name, *bodies[at : at + 50], colour=colour, n=at, priority=7, **DURABLE)
        client.put("/topic/both", "one", **DURABLE)
        broker.stop()
        result = run("ingest", "--data", str(broker.data), "--lake", str(root / "lake"))
        assert result.exit_code == 0, result.output
        assert ", 452 messages, " in result.output
    return root / "lake"


def target(lasting):
    lasting.start(addresses=anycast("again") + "".join(map(anycast, SENT)))
    return f"127.0.0.1:{lasting.process.port}"


def test_in_order_and_once(made_once, lasting):
    to = target(lasting)
    where = ["--lake", str(made_once), "--address", "orders.*"]
    result = run("replay", *where, "--dry-run")
    assert (
        "orders.eu: 150 messages, 2,100 bytes" in result.output and "300 messages would be" in result.output
    )
    result = run("replay", *where, "--to", to, "--parts", "3")
    assert result.exit_code == 0 and "sent 300 messages" in result.output, result.output
    for name in ("orders.eu", "orders.us"):
        client = lasting.connect()
        client.subscribe(name, ack="auto")
        got = [client.message() for _ in SENT[name]]
        assert [message.body.decode() for message in got] == SENT[name]
        assert got[60]["colour"] == "red" and got[60]["priority"] == "7"
        assert got[60]["original-timestamp"].isdigit()
        assert got[60]["_AMQ_DUPL_ID"].endswith(got[60]["original-message-id"])
    assert lasting.management.queue("other")["messagesAdded"] == 0
    result = run("replay", *where, "--to", to, "--parts", "3")
    assert "replay is already complete: 300 messages sent" in result.output
    result = run("replay", *where, "--to", to, "--name", "once more", "--destination", "again")
    assert "sent 300 messages" in result.output
    lasting.management.expect("again", messageCount=300)


def test_sql_selectors_times_and_a_message_of_two_queues(made_once, lasting):
    to = target(lasting)
    some = ["replay", "--lake", str(made_once), "--to", to, "--destination", "again", "--where"]
    assert "sent 1 messages" in run(*some, "address = 'both'").output
    assert "sent 100 messages" in run(*some, "colour = 'red' AND AMQAddress = 'other'").output
    result = run(*some, "address = 'other' and headers['n'] = '0'", "--rate", "100")
    assert "sent 50 messages" in result.output
    assert "sent 0 messages" in run(*some, "address = 'other'", "--until", "2001-01-01").output
    lasting.management.expect("again", messageCount=151)
    result = run(*some, "colour === 'red'")
    assert result.exit_code == 1 and "is neither SQL" in result.output and "nor a selector" in result.output
    assert "Traceback" not in result.output


def test_it_goes_on_where_it_was(made_once, lasting):
    """It loses its connection in the middle; what is sent twice then has the same id, and is there once."""
    words = ["replay", "--lake", str(made_once), "--to", target(lasting), "--address", "other"]
    words += ["--destination", "again", "--parts", "1", "--rate", "40"]
    management = lasting.management

    def cut():
        management.until(lambda: management.queue("again")["messagesAdded"] > 60)
        for each in management.ask("GET", "/connections")["data"]:
            management.ask("DELETE", f"/connections/{each['connectionID']}")

    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut)
        assert run(*words).exit_code == 1
        cutting.result()
    output = run(*words[:-2]).output
    (before,), (sent,) = (re.findall(rf"{text} (\d+) messages", output) for text in ("after", "sent"))
    assert int(before) + int(sent) == 150 and int(before) > 0
    management.expect("again", messageCount=150)
    client = lasting.connect()
    client.subscribe("again", ack="auto")
    assert [client.message().body.decode() for _ in range(150)] == SENT["other"]


def test_to_a_broker_over_tls(made_once, tmp_path):
    doors = {
        name: f"{scheme}://127.0.0.1:0?keyStorePath=broker.pem"
        for name, scheme in (("stomp", "ssl"), ("http", "https"))
    }
    secured = Secured(tmp_path, doors)
    with secured.start() as broker:
        words = ["--lake", str(made_once), "--address", "other", "--destination", "tls"]
        words += ["--to", f"ssl://localhost:{broker.port}"]
        refused = run("replay", *words)
        assert refused.exit_code == 1 and "certificate" in refused.output, refused.output
        done = run("replay", *words, "--ca-file", str(secured.authority.file))
        assert done.exit_code == 0, done.output
        assert secured.get("/api/v1/queues/tls")["messageCount"] == len(SENT["other"])


@pytest.mark.parametrize(
    "words, text",
    [
        ("--to 127.0.0.1:1 --address other", "127.0.0.1:1 cannot be reached"),
        ("--to nowhere", "--to: must be HOST:PORT"),
        ("", "--to HOST:PORT is required"),
        ("--to h:1 --since yesterday", "--since: must be a time as"),
        ("--to h:1 --since 2026-01-02 --until 2026-01-01", "must be later than --since"),
        (f"--to h:1 --ca-file {__file__}", "--ca-file requires TLS: --to ssl://HOST:PORT"),
        ("--to h:1 --conf x", "--conf: must be NAME=VALUE"),
    ],
)
def test_wrong_words(made_once, words, text):
    result = run("replay", "--lake", str(made_once), *words.split())
    assert result.exit_code == (1 if "reached" in text else 2), result.output
    assert text in result.output and "Traceback" not in result.output


def test_patterns_are_those_of_address_settings(spark, tmp_path):
    filled = LakeFixture(tmp_path / "lake")
    names = ["a", "a.b", "a.b.c", "b", "x", "a-b", "ä.b", ""]
    for name in names:
        filled.add(b"x", address=name)
    for words in ("a", "a.*", "a.#", "#", "*", "#.b", "a.*.c", "*.b", "a-b", "ä.#"):
        told = json.loads(done("replay", "--lake", filled.lake, "--address", words, "--dry-run", "--json"))
        found = {each["address"] for each in told["addresses"]}
        assert found == {name for name in names if Pattern(words).matches(name)}, words
