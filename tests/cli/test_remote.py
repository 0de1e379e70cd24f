"""How commands find a broker, log in, and fail: exit statuses and texts for every kind of failure."""

import inspect
import itertools
import json
import signal
import socket
import stat
import sys
import time

import click
import pytest

from stompring.cli.output import Interrupted, to_json
from stompring.cli.output import one_line as printable
from stompring.cli.remote import Login, Remote, parse_server

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..certificates import Authority
from ..end_to_end.test_permissions import add
from .remote_cli import Cli, answering

PERMISSIONS = '<security-setting match="#"><permission type="view" roles="viewers"/></security-setting>'
CERTIFICATE = "keyStorePath=broker.pem"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="module")
def broker(directory):
    """With security, and TLS beside plain HTTP."""
    Authority(directory).issue("broker.pem")
    config = directory / "broker.xml"
    files = "<users-file>users.properties</users-file><roles-file>roles.properties</roles-file>"
    acceptor = f'<acceptor name="https">https://127.0.0.1:0?{CERTIFICATE}</acceptor>'
    config.write_text(broker_xml(secure=True, permissions=PERMISSIONS, core=files, acceptors=acceptor))
    add(config, "ada", "viewers", password="secret ü")
    add(config, "bob", password="builder")
    with BrokerProcess(config) as process:
        yield process


def test_login(cli, tmp_path):
    nobody = cli.run("queue list", status=4)
    assert nobody.stderr == f"Error: {cli.server} requires a login: use --user NAME or a context\n"
    missing = cli.run("queue list --user ada", status=4)
    assert "no password for user 'ada': set STOMPRING_PASSWORD" in missing.stderr
    cli.run("queue list --user ada", STOMPRING_PASSWORD="secret ü")
    cli.run("queue list", STOMPRING_USER="ada", STOMPRING_PASSWORD="secret ü")
    file = tmp_path / "password"
    file.write_text("secret ü\n")
    cli.run(f"queue list --user ada --password-file {file}")
    wrong = cli.run("queue list --user ada", STOMPRING_PASSWORD="wrong", status=4)
    assert "rejected the login of user 'ada'" in wrong.stderr
    denied = cli.run("queue list --user bob", STOMPRING_PASSWORD="builder", status=4)
    assert "'VIEW'" in denied.stderr and "activemq.management" in denied.stderr
    assert "'EDIT'" in cli.run("queue create x --user ada", STOMPRING_PASSWORD="secret ü", status=4).stderr


def test_options_before_the_command_are_those_of_the_command(cli, tmp_path):
    file = tmp_path / "password"
    file.write_text("secret ü\n")
    login = f"--user ada --password-file {file}"
    server, cli.environment["STOMPRING_SERVER"] = cli.server, "http://127.0.0.1:1"
    listed = cli.run(f"--server {server} --json {login} queue list", STOMPRING_USER="bob")
    assert json.loads(listed.stdout)["data"] == []
    assert "127.0.0.1:1:" in cli.run(f"{login} queue list", status=5).stderr
    options = f"--server=http://127.0.0.1:2 --user=bob --password-file {file}"
    cli.run(f"{options} queue list --server {server} --user ada")
    assert cli.run(f"--server {server} {login} dead-letters").rows == []
    cli.run(f"--server {server} {login} dead-letters list")
    cli.run(f"context add prod --server {server} --user ada --password-file {file}")
    cli.run("--context prod queue list", STOMPRING_SERVER="")
    assert "prod2" in cli.run("--context prod queue list --context prod2", status=3).stderr


@pytest.mark.parametrize(
    "line, text",
    [
        ("--json run", "stompring run has no option --json"),
        ("--server http://127.0.0.1:1 bench", "stompring bench has no option --server"),
        ("--user ada data print", "stompring data print has no option --user"),
        ("--json queue lsit", "No such command 'lsit'"),
        ("--json queu list", "did you mean 'queue'?"),
        ("--server", "Option '--server' requires an argument"),
        ("--password-file /no/such/file status", "'/no/such/file' does not exist"),
    ],
)
def test_options_before_a_command_that_lacks_them_are_an_error(cli, line, text):
    failed = cli.run(line, status=2)
    assert text in failed.stderr and failed.stdout == ""


def test_password_prompt_on_a_terminal_does_not_echo(cli):
    with cli.terminal("queue list --user ada") as terminal:
        terminal.expect("Password of ada: ")
        terminal.type("secret ü\n")
        text = terminal.wait()
    assert "NAME" in text or "no queues" in text
    assert "secret" not in text


def test_tls(broker, cli, directory):
    secure = f"https://127.0.0.1:{broker.ports['https']}"
    login = {"STOMPRING_USER": "ada", "STOMPRING_PASSWORD": "secret ü"}
    untrusted = cli.run(f"queue list --server {secure}", status=5, **login)
    assert "is not trusted" in untrusted.stderr and "--ca FILE" in untrusted.stderr
    ca = str(directory / "authority.pem")
    cli.run(f"queue list --server {secure} --ca {ca}", **login)
    cli.run(f"queue list --server {secure}", STOMPRING_CA=ca, **login)
    plain = cli.run("queue list --server", secure.replace("https", "http"), status=5, **login)
    assert "use https://" in plain.stderr
    wrong = cli.run("queue list --server", cli.server.replace("http", "https"), status=5, **login)
    assert "use http://" in wrong.stderr
    bad = cli.run(f"queue list --server {secure} --ca {directory}/broker.xml", status=1, **login)
    assert "broker.xml" in bad.stderr


@pytest.mark.parametrize(
    "answer, text",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "status 200, text/html"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nnginx", "status 404, no content type"),
        (b"HTTP/1.1 500 Oops\r\n\r\n[1]", "status 500"),
        (b"SSH-2.0-OpenSSH_9\r\n", "does not answer in HTTP"),
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "lost"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "is not the management API"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"9" * 5001, "is not the management API"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "is not the management API"),
        (b"9" * 5001, "does not answer in HTTP"),
    ],
)
def test_wrong_server(cli, answer, text):
    with answering(answer) as url:
        ran = cli.run(f"queue show orders --server {url}", status=5)
    assert text in ran.stderr and ran.stderr.startswith("Error: ")


def test_connection_refused(cli):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ran = cli.run(f"queue list --server http://127.0.0.1:{port}", status=5)
    assert (
        f"cannot connect to http://127.0.0.1:{port}: connection refused; is the broker running?" in ran.stderr
    )


def test_stomp_port_is_named(broker, cli):
    ran = cli.run(f"queue list --server http://127.0.0.1:{broker.port}", status=5)
    assert "is a STOMP acceptor" in ran.stderr


@pytest.mark.parametrize(
    "url, parsed",
    [
        ("http://broker:8161", "http://broker:8161"),
        ("https://broker", "https://broker:443"),
        ("http://broker/", "http://broker:80"),
        ("broker", "http://broker:8161"),
        ("broker:9000", "http://broker:9000"),
        ("http://[::1]:8161/proxied/", "http://[::1]:8161/proxied"),
    ],
)
def test_urls(url, parsed):
    assert str(parse_server(url)) == parsed


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://", "http://u:p@x", "stomp://x:61613", "http://x:99999", "http://x?y=1"]
)
def test_invalid_urls(url):
    with pytest.raises(click.UsageError):
        parse_server(url)


# ---- contexts


def test_contexts(cli, directory):
    cli.environment["STOMPRING_SERVER"] = ""
    added = cli.run(
        f"context add prod --server {cli.server} --user ada --save-password",
        typed="secret ü\n",
    )
    assert "current context: prod" in added.stdout
    file = cli.home / "stompring" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    password = cli.home / "stompring" / "prod.password"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600 and "secret" not in file.read_text()
    cli.run("queue list")
    other = cli.run("context add other --server http://127.0.0.1:1 --json").json
    assert other == {"name": "other", "current": False, "server": "http://127.0.0.1:1"}
    cli.run("queue list")
    cli.run("queue list --context other", status=5)
    cli.run("queue list", status=5, STOMPRING_CONTEXT="other")
    cli.run("context use other")
    cli.run("queue list", status=5)
    assert cli.run("context show --json").json["name"] == "other"
    listed = cli.run("context list").rows
    assert [(row["name"], row["current"]) for row in listed] == [("other", "true"), ("prod", "false")]
    assert "--replace" in cli.run("context add prod", status=1).stderr
    cli.run("context add prod --replace --broker stomp://127.0.0.1:61613")
    assert json.loads(file.read_text())["contexts"]["prod"]["user"] == "ada"
    assert "there is no context 'nix'" in cli.run("queue list --context nix", status=3).stderr
    cli.run("context delete prod", status=2)
    cli.run("context delete prod --yes")
    assert not password.exists()
    assert cli.run("context use --none --json").json == {"current": None}
    assert cli.run("context show", status=3).stderr.startswith("Error: there is no current context")


def test_password_of_the_current_context_is_not_sent_to_another_server(cli):
    cli.environment["STOMPRING_SERVER"] = ""
    add = ["context", "add", "prod", "--server", "http://127.0.0.1:1", "--user", "ada", "--save-password"]
    cli.run(*add, typed="secret ü\n")
    assert "requires a login" in cli.run(f"queue list --server {cli.server}", status=4).stderr
    cli.run(f"queue list --server {cli.server} --context prod")
    other = cli.run(f"queue list --server {cli.server} --context prod --user bob", status=4)
    assert "no password for user 'bob'" in other.stderr


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"contexts": {"a": {"server": 1}}}', '{"contexts": {"a": {"sever": ""}}}', "\xff"]
)
def test_damaged_contexts_file_is_named(cli, text):
    file = cli.home / "stompring" / "contexts.json"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="latin-1")
    assert str(file) in cli.run("queue list", status=1).stderr


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 65, "-x"])
def test_context_names_are_file_names(cli, name):
    assert "letters, digits" in cli.run("context add --", name, status=2).stderr


def test_an_empty_name_is_an_error(cli):
    assert cli.run("queue show", "", status=2).stderr == "Error: a name must not be empty\n"


# ---- text


@pytest.mark.parametrize(
    "text, shown",
    [
        ("orders", "orders"),
        ("ü €", "ü €"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("\x9b\x7f\r\n\t", "\\x9b\\x7f\\x0d\\n\\t"),
        ("\u202e\u2066\ufeff", "\\u202e\\u2066\\ufeff"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown
    assert json.loads(to_json({"a": text})) == {"a": text}
    assert to_json({"a": text}).replace("\n", "").isprintable()


# ---- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(cli, shell):
    assert "_STOMPRING_COMPLETE" in cli.run("completion", shell).stdout


def completed(cli, *words, **environment):
    ran = cli.run(
        "",
        COMP_WORDS=" ".join(["stompring", *words]),
        COMP_CWORD=str(len(words)),
        _STOMPRING_COMPLETE="bash_complete",
        **environment,
    )
    return [line.partition(",")[2] for line in ran.stdout.split()]


def test_commands_are_completed(cli):
    assert "queue" in completed(cli, "qu")
    assert "purge" in completed(cli, "queue", "pu")
    assert "purge" in completed(cli, "--server", "http://127.0.0.1:1", "queue", "pu")
    assert "retry" in completed(cli, "dead-letters", "")
    assert "--limit" in completed(cli, "--user", "ada", "queue", "list", "--li")
    assert completed(cli, "queue", "show", "D") == [], "without a login nothing is offered and nothing asked"


def test_names_that_a_shell_would_interpret_are_not_completed(tmp_path):
    config = tmp_path / "broker.xml"
    names = ("cc.orders", "cc.$(id)", "cc.`id`", "cc.a b", "cc.;x", "cc.a/b")
    queues = "".join(
        f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>' for name in names
    )
    config.write_text(broker_xml(addresses=queues))
    with BrokerProcess(config) as process:
        cli = Cli(process.http_port, tmp_path)
        assert completed(cli, "queue", "show", "cc") == ["cc.orders", "cc.a/b"]
        assert completed(cli, "address", "show", "cc") == ["cc.orders", "cc.a/b"]


class Tasks(Remote):
    """A broker with one task, which has ended when it is looked at for the third time, or is cancelled."""

    state, looks = "", 0

    def post(self, *path, **_):
        self.state = "running"
        return {"taskID": 1}

    def get(self, *path, **_):
        self.looks += 1
        if self.looks == 3 and self.state == "running":
            self.state = "completed"
        return {"state": self.state}

    def delete(self, *path, **_):
        self.state = "cancelled"
        return None


def test_an_interrupt_at_any_time_ends_the_task(monkeypatch):
    """At each instruction of the functions that start a task and follow it (each line with Python 3.12)."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    source, states = inspect.getsourcefile(Remote), set()
    for instruction in itertools.count():
        tasks = Tasks(parse_server("http://broker"), Login(None, None))
        now = iter([*itertools.repeat(False, instruction), True])

        def trace(frame, event, _, now=now):
            if frame.f_code.co_filename != source:
                return None
            frame.f_trace_opcodes = True
            if event in ("line", "opcode") and next(now, False):
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
            return trace

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(trace)
        try:
            tasks.run_task("move", ("queues", "a", "move"), {}, False)
        except (Interrupted, KeyboardInterrupt):
            states.add(tasks.state)
        else:
            assert sys.gettrace() is trace, f"the interrupt at instruction {instruction} is lost"
            break
        finally:
            sys.settrace(None)
            signal.signal(signal.SIGINT, before)
        assert tasks.state != "running", f"interrupted at instruction {instruction}"
    assert states == {"", "cancelled", "completed"}
