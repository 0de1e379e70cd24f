"""``stompring events``: what has happened, what happens, lost connections and restarts; ``drain`` and ``logger``."""

import json
import queue
import signal
import socket
import threading
from contextlib import closing, contextmanager

from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..stomp_client import StompClient
from ..waiting import LONGEST
from .remote_cli import Cli, answering


class Following:
    """The output of a command that runs."""

    def __init__(self, process):
        self.process = process
        self._lines = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def expect(self, text):
        """The next line with this text."""
        while True:
            line = self._lines.get(timeout=PATIENCE)
            if text in line:
                return line


@contextmanager
def following(process):
    try:
        yield Following(process)
    finally:
        process.kill()
        process.wait()


def test_events_are_followed_until_ctrl_c(cli):
    cli.run("queue create before")
    with following(cli.start("events --type binding_added --json")) as output:
        first = json.loads(output.expect("before"))
        assert (first["type"], first["queue"]) == ("BINDING_ADDED", "before")
        cli.run("queue create evil‮")
        line = output.expect("evil")
        assert "\\u202e" in line and json.loads(line)["queue"] == "evil\u202e"
        output.process.send_signal(signal.SIGINT)
        assert output.process.wait(PATIENCE) == 0


def test_events_that_have_happened(cli):
    for name in ("one", "two", "three"):
        cli.run(f"queue create happened.{name}")
    listed = cli.run("events --no-follow -n 2 --type BINDING_ADDED")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["happened.two", "happened.three"]
    events = cli.run("events --no-follow --type BINDING_ADDED --json").json
    since = cli.run("events --no-follow --since", str(events[-2]["id"]), "--type", "BINDING_ADDED", "--json")
    assert json.loads(since.stdout) == events[-1:]
    assert "unknown type" in cli.run("events --no-follow --type NONSENSE", status=1).stderr


def test_events_continue_after_a_restart(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    document = broker_xml().replace("http://127.0.0.1:0", f"http://127.0.0.1:{port}")
    config.write_text(document)
    cli = Cli(port, tmp_path)
    with BrokerProcess(config):
        process = cli.start("events --type BINDING_ADDED --type SHUTDOWN")
        output = Following(process)
        cli.run("queue create one")
        output.expect("one")
    try:
        with BrokerProcess(config):
            cli.run("queue create two")
            output.expect("EVENTS_LOST")
            output.expect("two")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            assert f"connected to http://127.0.0.1:{port} again" in process.stderr.read()
    finally:
        process.kill()


def test_of_a_stream_only_whole_events_are_shown(cli):
    """There are comments, data over two lines, and data that are no event; the stream is asked for again at its end."""
    happened = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"data": [], "count": 0}'
    stream = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        b'id: 1\nevent: A\ndata: {"id": 1}\n\n'
        b': keep-alive\n\ndata: {"id":\r\ndata:  2}\r\n\r\n'
        b'data: broken\n\ndata: [1]\n\ndata: {"id": 3}\n'
    )
    with answering(happened, stream) as url, following(cli.start(f"events --json --server {url}")) as output:
        assert [json.loads(output.expect("id"))["id"] for _ in range(4)] == [1, 2, 1, 2]


def test_reload_dry_run_changes_nothing(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as process:
        cli = Cli(process.http_port, tmp_path)
        before = cli.management.ask("GET", "/broker")["globalMaxSize"]
        config.write_text(broker_xml(core="<global-max-size>200Mi</global-max-size>"))
        assert "would apply: <global-max-size>" in cli.run("reload --dry-run").stdout
        assert cli.management.ask("GET", "/broker")["globalMaxSize"] == before
        assert "applied: <global-max-size>" in cli.run("reload").stdout


def test_settings_with_their_origin(cli):
    cli.run("queue create origin --ring-size 5")
    rows = {row["element"]: row for row in cli.run("queue settings origin").rows}
    assert (rows["ring-size"]["value"], rows["ring-size"]["source"]) == ("5", "queue")
    rows = {row["element"]: row for row in cli.run("address settings origin").rows}
    assert (rows["auto-delete-queues"]["source"], rows["auto-delete-queues"]["match"]) == (
        "address-setting",
        "#",
    )
    assert rows["max-delivery-attempts"]["source"] == "default"


def test_permissions_without_security(cli):
    assert {row["allowed"] for row in cli.run("permission check --address a").rows} == {"true"}
    assert "securityEnabled\tfalse" in cli.run("permission whoami").stdout
    assert cli.run("permission list").rows == []
    with cli.terminal("permission check", columns=120) as terminal:
        assert "Security is disabled" in terminal.wait()


def test_drain_waits_for_connections_and_undrain_ends_it(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as process:
        cli = Cli(process.http_port, tmp_path)
        assert "--yes" in cli.run("drain", status=2).stderr
        with closing(StompClient(process.port)) as client:
            client.connect()
            assert "1 connection still open" in cli.run("drain --wait --timeout 100ms --yes", status=1).stderr
            status = cli.run("status", status=1)
            assert "NOT READY" in status.stdout and "draining" in status.stdout
            waiting = cli.start("drain --wait --yes --json")
            client.disconnect()
        output, _ = waiting.communicate(timeout=LONGEST * PATIENCE)
        assert waiting.returncode == 0 and json.loads(output)["connections"] == 0
        assert cli.run("undrain").stdout == "new connections are accepted\n"
        cli.run("status --quiet")
        with closing(StompClient(process.port)) as client:
            client.connect()
            with cli.terminal("drain --wait --yes") as terminal:
                terminal.expect("open connections")
                terminal.type("\x03")
                assert "the broker continues to drain" in terminal.wait(130)
        assert cli.management.ask("GET", "/drain")["draining"] is True


def test_log_level_changes_while_the_broker_runs(cli):
    changed = cli.run("logger set stompring.session DEBUG")
    assert changed.stdout == "logger stompring.session logs debug and above\n"
    rows = {row["name"]: row for row in cli.run("logger list --where configured=false").rows}
    assert rows["stompring.session"]["level"] == "debug"
    cli.run("logger set stompring.session inherit")
    assert cli.run("logger list --where configured=false").rows == []
