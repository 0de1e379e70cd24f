"""``stompring message``, moves and retries, ``connection``, ``consumer``, ``task``, ``status``, ``reload``."""

import re
import time

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from .remote_cli import Cli

EVIL = "\x1b]0;owned\x07[bold]x[/bold]\u202e"


pytestmark = pytest.mark.broker(
    settings={
        "#": {
            "max-delivery-attempts": 1,
            "dead-letter-address": "DLQ",
            "auto-create-dead-letter-resources": "false",
        },
        "blocked": {"max-size-messages": 5, "address-full-policy": "BLOCK"},
    },
    addresses='<address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>',
)


def bodies(cli, queue):
    return [each["body"] for each in cli.management.messages(queue)]


def test_browse_in_a_pipe_and_on_a_terminal(cli, client):
    client.put("/queue/browsed", "one", "two\tand\nlines", colour="red")
    client.put("/queue/browsed", EVIL, colour="blue")
    rows = cli.run("message browse browsed").rows
    assert [row["body"] for row in rows[:2]] == ["one", "two\\tand\\nlines"]
    assert len(cli.run("message browse browsed --filter", "colour = 'red'").rows) == 2
    limited = cli.run("message browse browsed --limit 1")
    assert len(limited.rows) == 1 and "2 more" in limited.stderr
    listed = cli.run("message browse browsed --json").json
    assert [each["body"] for each in listed["data"]] == ["one", "two\tand\nlines", EVIL]
    for options in ((), ("--headers",)):
        with cli.terminal("message browse browsed", *options, columns=160) as terminal:
            text = terminal.wait()
        assert "\\x1b]0;owned\\x07[bold]x[/bold]\\u202e" in text
        assert "\x07" not in terminal.output and "\u202e" not in terminal.output
    assert "filter: column 4" in cli.run("message browse browsed --filter", "a =", status=1).stderr


def test_browse_reads_several_pages(cli, client):
    client.put("/queue/pages", *(str(number) for number in range(450)))
    rows = cli.run("message browse pages --limit 420 --columns messageID,body").rows
    assert [row["body"] for row in rows] == [str(number) for number in range(420)]


def test_send(cli):
    sent = cli.run(
        """message send posted '{"id": 1}' -H content-type=application/json --priority 7 --count 2 --expires 1h"""
    )
    assert sent.stdout == "2 messages sent to posted\n"
    first, second = cli.management.messages("posted")
    assert first["body"] == second["body"] == '{"id": 1}' and first["priority"] == 7 and first["durable"]
    assert first["headers"]["content-type"] == "application/json"
    assert 0 < first["expires"] - time.time() * 1000 <= 3_600_000
    cli.run("message send posted --delay 1h --non-persistent", typed="from stdin\n")
    third = cli.management.messages("posted")[2]
    assert (third["body"], third["state"], third["durable"]) == ("from stdin\n", "scheduled", False)
    assert "NAME=VALUE" in cli.run("message send posted x -H novalue", status=2).stderr


def test_deliver_makes_a_scheduled_message_due(cli, client):
    client.put("/queue/later", "wake up", AMQ_SCHEDULED_DELAY="3600000")
    (row,) = cli.run("message browse later --scheduled").rows
    cli.run("message deliver later", row["messageID"])
    assert cli.management.messages("later")[0]["state"] == "pending"


def test_show_one_message(cli, client, tmp_path):
    client.put("/queue/shown", '{"deep": {"er": [1, 2]}}', colour=EVIL)
    identifier = cli.management.messages("shown")[0]["messageID"]
    with cli.terminal(f"message show shown {identifier}", columns=100) as terminal:
        text = terminal.wait()
    assert '"er": [\n' in text and "\\x1b]0;owned" in text and "\x07" not in terminal.output
    assert cli.run(f"message show shown {identifier} --json").json["messageID"] == identifier
    file = tmp_path / "body"
    cli.run(f"message show shown {identifier} --output {file}")
    assert file.read_text() == '{"deep": {"er": [1, 2]}}'
    assert cli.run(f"message show shown {identifier} --body").stdout == '{"deep": {"er": [1, 2]}}'
    assert "no message" in cli.run("message show shown 1-999999", status=3).stderr


def test_delete_and_expire_messages(cli, client):
    client.put("/queue/removed", "a", "b", colour="red")
    client.put("/queue/removed", "c", "d", "e")
    first = cli.management.messages("removed")[0]["messageID"]
    assert "--yes" in cli.run(f"message delete removed {first}", status=2).stderr
    assert "select messages" in cli.run("message delete removed --yes", status=2).stderr
    assert cli.run(f"message delete removed {first} --yes").stdout == "1 message deleted from queue removed\n"
    cli.run("message delete removed --filter", "colour = 'red'", "--yes")
    assert bodies(cli, "removed") == ["c", "d", "e"]
    cli.run("message expire removed --all --limit 1 --yes")
    assert cli.management.queue("removed")["messagesExpired"] == 1
    cli.run("message delete removed --all --yes")
    assert bodies(cli, "removed") == []


def test_move_and_copy(cli, client):
    client.put("/queue/from", "a", "b", "c")
    ids = [each["messageID"] for each in cli.management.messages("from")]
    assert cli.run("queue move from to --message", ids[1]).stdout == "1 message moved from from to to\n"
    cli.run("queue copy from to::to --limit 1")
    assert (bodies(cli, "from"), bodies(cli, "to")) == (["a", "c"], ["b", "a"])
    task = cli.run("queue move from ::to --json").json
    assert (task["state"], task["done"]) == ("completed", 2)
    detached = cli.run("queue move to from --filter", "TRUE = TRUE", "--detach")
    number = re.search(r"task (\d+) started", detached.stdout)
    assert cli.run("task follow", number[1]).stdout == f"task {number[1]} completed: 4 messages\n"
    assert {row["state"] for row in cli.run("task list").rows} == {"completed"}
    assert "operation\tmove" in cli.run("task show", number[1]).stdout
    assert "has ended" in cli.run("task cancel", number[1], status=1).stderr
    assert "exclusive" in cli.run("queue move a b --filter x --message 1", status=2).stderr


def test_progress_is_shown_and_ctrl_c_cancels_the_task(cli, client):
    client.put("/queue/slow", *("x" for _ in range(20)))
    with cli.terminal("queue move slow blocked") as terminal:  # which is full after five
        terminal.expect(r"move slow.* 5/20")
        terminal.interrupt()
        text = terminal.wait(130)
    found = re.search(r"task (\d+) cancelled after (\d+) messages?, which stay moved", text)
    assert found is not None, text
    assert cli.management.ask("GET", f"/tasks/{found[1]}")["state"] == "cancelled"
    assert int(found[2]) == 5 == cli.management.queue("blocked")["messageCount"]
    assert cli.management.queue("slow")["messageCount"] == 15


def test_dead_letters_go_back(cli, client):
    client.put("/queue/failing", "bad", "worse")
    client.subscribe("/queue/failing", "client-individual", "dead")
    for _ in range(2):
        client.answer("NACK", client.message())
    client.ask("UNSUBSCRIBE", {"id": "dead"})
    cli.management.expect("DLQ", messageCount=2)
    retried = cli.run("queue retry DLQ --filter", "_AMQ_ORIG_QUEUE = 'failing'", "--limit", "1")
    assert retried.stdout == "1 message moved back from DLQ\n"
    cli.run("queue retry DLQ")
    assert bodies(cli, "failing") == ["bad", "worse"]


def test_dead_letters_are_listed_and_sent_back_by_group(cli, client):
    assert cli.run("dead-letters list").rows == []
    assert "no such dead letters" in cli.run("dead-letters retry DLQ", status=3).stderr
    for queue in ("first", "second"):
        client.put(f"/queue/{queue}", "bad", "worse")
        client.subscribe(f"/queue/{queue}", "client-individual", "dead")
        for _ in range(2):
            client.answer("NACK", client.message())
        client.ask("UNSUBSCRIBE", {"id": "dead"})
    cli.management.expect("DLQ", messageCount=4)
    rows = cli.run("dead-letters list").rows
    assert cli.run("dead-letters").rows == rows
    assert cli.run("dead-letters --json").json["count"] == 2
    assert [(row["queue"], row["originQueue"], row["reason"], row["count"]) for row in rows] == [
        ("DLQ", "first", "max-delivery-attempts", "2"),
        ("DLQ", "second", "max-delivery-attempts", "2"),
    ]
    assert "--all" in cli.run("dead-letters retry", status=2).stderr
    sent = cli.run("dead-letters retry --from second --reason max-delivery-attempts")
    assert sent.stdout == "2 messages sent from DLQ back to second\n"
    assert (bodies(cli, "second"), bodies(cli, "first")) == (["bad", "worse"], [])
    (task,) = cli.run("dead-letters retry --all --json").json
    assert task["done"] == 2 and bodies(cli, "first") == ["bad", "worse"]
    assert cli.run("dead-letters retry --all").stdout == ""


@pytest.mark.parametrize("name", ["saved.jsonl", "saved.jsonl.gz"])
def test_download_and_upload(cli, client, tmp_path, name):
    source, target = f"source.{name}", f"target.{name}"
    client.put(f"/queue/{source}", "one", EVIL, b"\xff\xfe", colour="red")
    client.put(f"/queue/{source}", "x" * 700_000)
    file = tmp_path / name
    saved = cli.run(f"message download {source} {file}")
    assert saved.stdout == f"4 lines of queue {source} written to {file}\n"
    assert "--replace" in cli.run(f"message download {source} {file}", status=1).stderr
    assert file.read_bytes().startswith(b"\x1f\x8b" if name.endswith(".gz") else b"{")
    cli.run(f"queue create {target} --routing-type ANYCAST")
    loaded = cli.run(f"message upload {target} {file}")
    assert loaded.stdout == f"4 messages of {file} added to queue {target}\n"
    assert bodies(cli, target) == bodies(cli, source)
    red = cli.run(f"message download {source} - --filter", "colour = 'red'")
    assert red.stdout.count("\n") == 3 and "3 lines" in red.stderr
    assert list(tmp_path.iterdir()) == [file]
    assert "1 message of" in cli.run(f"message upload {target} {file} --skip 3").stdout
    cli.pipe(f"message upload {target} -", typed=red.stdout)
    assert cli.management.queue(target)["messageCount"] == 8


def test_upload_names_the_invalid_line_and_how_to_continue(cli, client, tmp_path):
    client.put("/queue/valid", *("x" * 200_000 for _ in range(3)))
    file = tmp_path / "lines"
    cli.run(f"message download valid {file}")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, b"{broken\n"]))
    cli.run("queue create broken --routing-type ANYCAST")
    failed = cli.run(f"message upload broken {file}", status=1)
    assert "line 4: " in failed.stderr and "2 messages imported; continue with --skip 2" in failed.stderr
    assert cli.management.queue("broken")["messageCount"] == 2
    truncated = tmp_path / "truncated.gz"
    truncated.write_bytes(b"\x1f\x8b\x08\x00")
    assert "cannot read" in cli.run("message upload broken", str(truncated), status=1).stderr


def test_connections_and_consumers(cli, broker, client):
    client.subscribe("/queue/seen", "client", "watcher")
    number = client.connected["session"] if client.connected else ""
    (row,) = [row for row in cli.run("connection list").rows if row["connectionID"] == number]
    assert row["subscriptionCount"] == "1" and row["queues"] == "seen"
    assert number in cli.run(f"connection show {number}").stdout
    with cli.terminal(f"connection show {number}", columns=120) as terminal:
        assert "CONSUMER" in terminal.wait()
    (consumer,) = cli.run("consumer list --queue seen").rows
    assert consumer["ack"] == "client"
    assert "seen" in cli.run("consumer list -q").stdout.split()
    assert "--yes" in cli.run(f"connection close {number}", status=2).stderr
    cli.run(f"connection close {number} --yes")
    assert client.expect("ERROR")
    assert "does not exist" in cli.run("connection show nix", status=3).stderr


def test_a_connection_is_closed_by_its_client_id(cli, connect):
    first, second, third = (connect(**{"client-id": name}) for name in ("one", "twin", "twin"))
    assert cli.run("connection show one --json").json["connectionID"] == first.connected["session"]
    cli.run("connection close one --yes")
    assert first.expect("ERROR")
    assert "2 connections have the client-id twin" in cli.run("connection close twin --yes", status=1).stderr
    second.put("/queue/alive", "x")
    third.put("/queue/alive", "x")


def test_deletion_says_why_a_message_stays(cli, client):
    client.put("/queue/held", "a")
    client.subscribe("/queue/held", "client", "s1")
    (message,) = cli.management.messages("held")
    number = message["messageID"].partition("-")[2]
    for words, reason in {
        f"held {message['messageID']}": f"Message {number} is in delivery to a consumer",
        "held 999": "Message 999 is not in the queue",
        "held --all": "in delivery to a consumer, or gone",
    }.items():
        ran = cli.run(f"message delete {words} --yes", status=1)
        assert ran.stdout == "0 messages deleted from queue held, 1 skipped\n"
        assert f"1 message skipped: {reason}; see: stompring consumer list --queue held" in ran.stderr


def test_status_of_a_ready_broker(cli):
    shown = cli.run("status")
    assert shown.stdout.splitlines()[0].endswith(": ready") and "listener stomp" in shown.stdout
    assert cli.run("status --quiet").stdout == ""
    found = cli.run("status --json").json
    assert found["ready"] is True and found["broker"]["name"]
    with cli.terminal("status") as terminal:
        assert "uptime" in terminal.wait() and "\x1b[32m" in terminal.output
    with cli.terminal("status", NO_COLOR="1") as terminal:
        assert "uptime" in terminal.wait() and "\x1b[" not in terminal.output


def test_reload_reports_changes_and_mistakes(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as process:
        cli = Cli(process.http_port, tmp_path)
        assert "no changes" in cli.run("reload").stdout
        config.write_text(broker_xml(core="<global-max-size>200Mi</global-max-size>"))
        assert "applied: <global-max-size>" in cli.run("reload").stdout
        config.write_text("<configuration><core><no-such/></core></configuration>")
        assert "broker.xml:1" in cli.run("reload", status=1).stderr


def test_purge_shows_progress(cli, client):
    client.put("/queue/emptied", *("x" for _ in range(100)))
    with cli.terminal("queue purge emptied --yes") as terminal:
        text = terminal.wait(0)
    assert re.search(r"purge emptied .*\b100 messages removed from queue emptied", text, re.DOTALL), text
    client.put("/queue/emptied", "x")
    task = cli.run("queue purge emptied --yes --detach --json").json
    assert task["operation"] == "purge" and task["total"] == 1
    cli.management.expect("emptied", messageCount=0)
