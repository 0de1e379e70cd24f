"""What a lake has kept goes to a broker once more: in order, once, over kills; the commands as a user has them."""

from pathlib import Path

import pytest

from ...end_to_end.lasting import DURABLE, LastingBroker
from ...end_to_end.secured import Secured

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'stompring[spark]'")

from stompring.pipeline.lake import replay as replay_module
from stompring.pipeline.lake.lake import Lake
from stompring.pipeline.lake.replay import Replay, ReplayPlan
from stompring.pipeline.lake.selection import InvalidCondition, MessageSelection, address_regex
from stompring.pipeline.stomp.connection import ConnectionFailed
from stompring.pipeline.stomp.endpoint import Endpoint
from stompring.pipeline.stomp.options import SinkOptions
from stompring.settings.match import Pattern

from ...broker_document import anycast
from ...end_to_end.test_retention import retention
from .ingesting import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

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
        assert "451 messages" not in result.output and "452 messages" in result.output
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


def test_it_goes_on_where_it_was(spark, made_once, lasting, monkeypatch):
    """The broker goes away in the middle; what is sent twice then has the same id, and is there once."""
    to = target(lasting)
    monkeypatch.setattr(replay_module, "RECEIPT_MESSAGES", 10)
    lake = Lake(str(made_once))
    plan = ReplayPlan(MessageSelection(addresses=("other",)), to, "again", "resumed")
    host, _, port = to.partition(":")
    options = SinkOptions(Endpoint(host, int(port), timeout=5), "again")
    sender = replay_module._Sender(lake.state.folder(f"replays/{plan.id}"), options, "again", "x", None)
    rows = Replay(spark, lake, plan).selected()
    names = ["message_id", "timestamp", "address", "priority", "headers", "body"]
    batches = rows.select(*names).sort("message_id").toArrow().to_batches()
    whole = [batches[0].slice(0, 60)]

    def dying():
        yield from whole
        raise RuntimeError("killed")

    monkeypatch.setattr(replay_module, "CHECKPOINT_MESSAGES", 20)
    with pytest.raises(RuntimeError):
        sender._send(0, dying())
    number, sent = replay_module._checkpoint_of(sender._state, 0)
    assert 0 < sent < 60 and number > 0
    assert sender._send(0, iter(batches)) == (150 - sent, sent)
    lasting.management.expect("again", messageCount=150)
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


def test_a_broker_that_is_not_there(made_once):
    result = run("replay", "--lake", str(made_once), "--to", "127.0.0.1:1", "--address", "other")
    assert result.exit_code == 1, result.output
    assert "127.0.0.1:1 cannot be reached" in result.output and "Traceback" not in result.output
    assert issubclass(ConnectionFailed, OSError)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--to", "nowhere"], "--to: must be HOST:PORT"),
        ([], "--to HOST:PORT is required"),
        (["--to", "h:1", "--since", "yesterday"], "--since: must be a time as"),
        (["--to", "h:1", "--since", "2026-01-02", "--until", "2026-01-01"], "must be later than --since"),
        (["--to", "h:1", "--ca-file", __file__], "--ca-file requires TLS: --to ssl://HOST:PORT"),
        (["--to", "h:1", "--conf", "x"], "--conf: must be NAME=VALUE"),
    ],
)
def test_wrong_words(made_once, words, text):
    result = run("replay", "--lake", str(made_once), *words)
    assert result.exit_code == 2 and text in result.output


def test_the_other_commands(made_once, tmp_path):
    lake = ["--lake", str(made_once)]
    result = run("sql", "select queue, count(*) as n from messages group by queue order by queue", *lake)
    assert result.output.splitlines()[:4] == [
        "queue      n",
        "---------  ---",
        "b1         1",
        "b2         1",
    ]
    result = run("sql", "select body, headers from messages where queue = 'b1'", *lake, "--format", "csv")
    assert result.output.splitlines()[0] == "body,headers" and result.output.splitlines()[1].startswith(
        "one,"
    )
    result = run("sql", "select queue from messages where queue = 'b1'", *lake, "--format", "json")
    assert '{"queue":"b1"}' in result.output
    result = run("sql", "select nothing from messages", *lake)
    assert result.exit_code == 1 and "nothing" in result.output and "Traceback" not in result.output
    result = run("tables", *lake)
    assert "messages: 452 rows" in result.output and "  headers  MAP<STRING,STRING>" in result.output
    result = run("sql", "select 1", "--lake", str(tmp_path / "none"))
    assert result.exit_code == 1 and "is not a lake" in result.output


def test_compaction_and_vacuum_keep_every_row(spark, lasting, tmp_path):
    where = tmp_path / "lake"
    lasting.start(core=retention(), addresses=anycast("q"))
    client = lasting.connect()
    for number in range(3):
        client.put("q", *[f"{number} {each}" for each in range(20)], **DURABLE)
        run("ingest", "--data", str(lasting.data), "--lake", str(where))
    lake = Lake(str(where))
    before = lake.tables["messages"].about()
    assert before["files"] >= 3 and before["rows"] == 60
    orphan = (
        Path(lake.tables["messages"].folder.where) / "date=2020-01-01" / "bucket=0" / "part-orphan.parquet"
    )
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"of a batch that was killed")
    assert (
        f"messages: compacted {before['files']} files into 1" in run("compact", "--lake", str(where)).output
    )
    assert "would be deleted" in run("vacuum", "--lake", str(where), "--hours", "0", "--dry-run").output
    assert orphan.exists()
    assert run("vacuum", "--lake", str(where), "--hours", "0").exit_code == 0
    assert not orphan.exists()
    lake = Lake(str(where))
    assert lake.tables["messages"].about()["rows"] == 60
    rows = lake.frames(spark)["messages"].collect()
    assert sorted(bytes(row.body).decode() for row in rows) == sorted(
        f"{number} {each}" for number in range(3) for each in range(20)
    )
    client.put("q", "more", **DURABLE)
    assert "1 messages" in run("ingest", "--data", str(lasting.data), "--lake", str(where)).output


@pytest.mark.parametrize("address", ["a", "a.b", "a.b.c", "b", "x", "a-b", "ä.b", ""])
@pytest.mark.parametrize("words", ["a", "a.*", "a.#", "#", "*", "#.b", "a.*.c", "*.b", "a-b", "ä.#"])
def test_patterns_are_those_of_address_settings(words, address):
    import re

    expression = re.sub(
        r"\\x\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), address_regex((words,))
    )
    assert bool(re.match(expression, f"{address}.")) == Pattern(words).matches(address)


def test_a_bad_condition_is_one(spark, made_once):
    messages = Lake(str(made_once)).frames(spark)["messages"]
    with pytest.raises(InvalidCondition):
        MessageSelection("x = = 1").of(messages)
    assert MessageSelection("queue LIKE 'orders%' AND priority = 7").of(messages).count() == 300
    assert MessageSelection("JMSPriority = 7 AND n = 50").of(messages).count() == 150
