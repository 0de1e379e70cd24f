"""``stompring top`` on a terminal: tables, keys, sizes, lost connections, and a terminal that is restored."""

import os
import signal
from contextlib import closing

import pytest

from stompring.cli.output import ASCII, BLOCKS, sparkline, symbols_of

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..stomp_client import StompClient
from .remote_cli import Cli

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = tmp_path_factory.mktemp("top") / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as process:
        with closing(StompClient(process.port)) as client:
            client.connect()
            client.put("/queue/few", "1")
            client.put("/queue/many[bold]\u202e", *("x" for _ in range(1234)))
        yield process


def test_keys_sort_and_switch_tables_and_q_restores_the_terminal(cli, client):
    with cli.terminal("top --interval 200ms") as terminal:
        client.subscribe("/queue/few", "client", "watcher")
        at = terminal.expect(r"many\[bold\]\\u202e\s+1,234[^\n]*\nfew")
        at = terminal.expect(r"by -messageCount", at)
        terminal.type("n")
        at = terminal.expect(r"few [^\n]*\nmany[^$]*by name", at)
        terminal.type("r")
        at = terminal.expect(r"many[^\n]*\nfew[^$]*by -name", at)
        terminal.type("3")
        at = terminal.expect(r"CONSUMER\s[^$]*/watcher[^$]*consumers 1, page 1", at)
        terminal.type("2")
        at = terminal.expect(r"CONNECTION\s[^$]*connections 1", at)
        terminal.type("1\x1b[6~")
        at = terminal.expect(r"no queues[^$]*page 2", at)
        terminal.type(
            "\x1bOA\x1b[A"
        )  # Escape alone would end it, and the first of these sequences is no key of top
        at = terminal.expect(r"1,234[^$]*page 1", at)
        terminal.type(" ")
        at = terminal.expect(r"ready\s+paused", at)
        terminal.type("q")
        terminal.wait()
    assert ENTER in terminal.output and terminal.output.rstrip().endswith(LEAVE) or LEAVE in terminal.output
    assert terminal.output.rindex(LEAVE) > terminal.output.rindex(ENTER)
    assert "\u202e" not in terminal.output


def test_it_adapts_to_the_size_of_the_window(cli):
    with cli.terminal("top --interval 10s", columns=150, rows=30) as terminal:
        at = terminal.expect(r"SCHEDULED[^$]*q:quit")
        terminal.resize(50, 14)
        at = terminal.expect(r"by -messageCount  m:messages i:i\n", at)
        terminal.type("r")
        end = terminal.expect(r"NAME\s+MESSAGES[^$]*by messageCount  ", at)
        terminal.type("\x03")
        terminal.wait()
    frame = terminal.text[at:end].splitlines()[1:]
    assert all(len(line) <= 50 for line in frame), frame
    assert not any("SCHEDULED" in line for line in frame)


def test_sigterm_restores_the_terminal(cli):
    with cli.terminal("top") as terminal:
        terminal.expect("q:quit")
        os.kill(terminal.pid, signal.SIGTERM)
        terminal.wait(143)
    assert LEAVE in terminal.output


def test_lost_connection_is_shown_and_tried_again(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as first:
        port = first.http_port
        terminal = Cli(port, tmp_path).terminal("top --interval 100ms", columns=200)
        terminal.expect("ready")
        terminal.expect("q:quit")
    with terminal:
        at = terminal.expect("cannot connect|lost|closed")
        document = broker_xml().replace("http://127.0.0.1:0", f"http://127.0.0.1:{port}")
        config.write_text(document)
        with BrokerProcess(config):
            terminal.expect(r"up \d+(ms|s)\s+ready\s*\n", at)
            terminal.type("q")
            terminal.wait()


def test_without_a_terminal(cli):
    assert "needs a terminal" in cli.run("top", status=2).stderr
    rows = cli.run("top --once").rows
    assert (rows[0]["name"], rows[0]["messageCount"]) == ("many[bold]\\u202e", "1234")
    found = cli.run("top --once --json --view addresses").json
    assert found["ready"] is True and {"few"} <= {each["name"] for each in found["addresses"]}
    assert "sort" in cli.run("top --once --sort nonsense", status=1).stderr


def test_a_broker_that_is_not_there_is_an_error_without_a_screen(tmp_path):
    with Cli(1, tmp_path).terminal("top") as terminal:
        assert "connection refused" in terminal.wait(5)
    assert ENTER not in terminal.output


@pytest.mark.parametrize(
    "values, line",
    [
        ([], "    "),
        ([0, 0], "  ▁▁"),
        ([1, 2, 4, 8], "▂▃▅█"),
        ([None, 8, None, 0], " █ ▁"),
        ([9, 9, 9, 1, 2, 3, 4], "▃▅▆█"),
        ([-1, 4], "  ▁█"),
    ],
)
def test_sparkline(values, line):
    assert sparkline(values, 4) == line


def test_sparkline_has_symbols_that_the_terminal_can_show():
    assert symbols_of("utf-8") == BLOCKS and symbols_of("latin-1") == ASCII == symbols_of(None)
