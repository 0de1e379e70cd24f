"""``stompring send`` as a process, against a real broker: what arrives there, and what it says when something fails."""

import json
import signal
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..waiting import LONGEST
from .command import environment, on_terminal, pipe, run, start

pytestmark = pytest.mark.broker(settings={"strict.#": {"auto-create-addresses": "false"}})


def bodies(management, queue):
    return [each["body"] for each in management.messages(queue)]


def test_a_body_from_the_command_line_arrives(management, to, queue):
    done = run(f"send /queue/{queue} grüße {to}")
    assert bodies(management, queue) == ["grüße"]
    assert done.stderr.decode() == f"sent 1 message to /queue/{queue}, 1 confirmed\n"
    assert done.stdout == b""


@pytest.mark.parametrize(
    "options, stdin, expected",
    [
        ("", b"all of\nit\n", ["all of\nit\n"]),
        ("--lines", b"one\r\ntwo\n\nlast", ["one", "two", "", "last"]),
        ("--count 3", b"x", ["x", "x", "x"]),
        ("--json-lines", b'{"body": "a"}\n\n{"body": {"b": [1]}}\n', ["a", '{"b": [1]}']),
        ("--json-lines", b'{"body": "YWI=", "encoding": "base64"}', ["ab"]),
        ("--json-lines", b'{"body": "6162", "encoding": "hex"}', ["ab"]),
    ],
)
def test_standard_input_becomes_messages(management, to, queue, options, stdin, expected):
    pipe(f"send {queue} {options} {to}", stdin=stdin)
    assert bodies(management, queue) == expected


def test_several_files_are_sent_in_their_order_as_often_as_asked(management, to, queue, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    run(f"send {queue} --file {tmp_path}/a --file {tmp_path}/b {to}")
    run(f"send {queue} --file {tmp_path}/b --lines --count 2 {to}")
    assert bodies(management, queue) == ["a1\na2\n", "b1\nb2\n", "b1", "b2", "b1", "b2"]


def test_options_become_headers(client, to, queue):
    client.subscribe(queue)
    before = time.time() * 1000
    run(f"send {queue} x -H type=order --persistent --priority 7 --expires 1h {to} -H", "note=a=b:c\n")
    headers = dict(client.message().headers)
    expected = {"type": "order", "note": "a=b:c\n", "persistent": "true", "priority": "7"}
    assert {name: headers[name] for name in expected} == expected
    assert before + 3_600_000 <= int(headers["expires"]) <= time.time() * 1000 + 3_600_000


def test_schedules_are_those_of_the_options(management, to, queue):
    run(f"send {queue} later --delay 2h --period 90s --repeat 3 {to}")
    run(f"send {queue} daily --cron '0 6 * * *' {to}")
    found = {each["body"]: each["state"] for each in management.messages(queue)}
    assert found == {"daily": "scheduled", "later": "scheduled"}


def test_lines_are_sent_while_the_input_is_still_open(client, to, queue):
    client.subscribe(queue)
    sending = start(f"send {queue} --lines {to}")
    for text in ("first", "second"):
        sending.stdin.write(text.encode() + b"\n")
        sending.stdin.flush()
        assert client.message().body == text.encode()
    _, stderr = sending.communicate(timeout=LONGEST * PATIENCE)
    assert b"sent 2 messages" in stderr


def test_the_summary_as_json(to, queue):
    summary = json.loads(run(f"send {queue} x --count 1234 --json {to}").stdout)
    assert (summary["sent"], summary["confirmed"]) == (1234, 1234)


def test_a_rate_is_not_exceeded(to, queue):
    summary = json.loads(run(f"send {queue} x --count 6 --rate 20 --json {to}").stdout)
    assert summary["seconds"] >= 5 / 20


def test_without_receipts_everything_arrives_too(management, to, queue):
    run(f"send {queue} x --count 5000 --no-receipt {to}")
    assert management.queue(queue)["messageCount"] == 5000


@pytest.mark.parametrize(
    "arguments, stdin, code, text",
    [
        ("x --file a", b"", 2, "mutually exclusive"),
        ("x --lines", b"", 2, "BODY is one message"),
        ("--lines --count 2", b"a\n", 2, "cannot repeat the lines of standard input"),
        ("x --repeat 2", b"", 2, "--repeat needs --period"),
        ("x -H novalue", b"", 2, "must be NAME=VALUE"),
        ("x -H receipt=1", b"", 2, "is set by this command"),
        ("x --priority 10", b"", 2, "10 is not in the range"),
        ("x --delay soon", b"", 2, "is not a duration"),
        ("x --rate nan", b"", 2, "--rate"),
        ("--file /no/such/file", b"", 1, "/no/such/file does not exist: nothing was sent"),
        ("--json-lines", b'{"body": 1}\nnonsense\n', 1, "standard input, line 2: not JSON"),
        ("--json-lines", b'{"text": 1}', 1, 'line 1: must be a JSON object with "body"'),
        ("--json-lines", b'{"body": 1, "header": {}}', 1, "unknown field 'header'"),
        ("--json-lines", b'{"body": "zz", "encoding": "hex"}', 1, "body is not hex"),
        ("x --cron nonsense", b"", 1, "AMQ_SCHEDULED_CRON"),
    ],
)
def test_bad_input_is_named(to, queue, arguments, stdin, code, text):
    done = (pipe if stdin else run)(f"send {queue} {arguments} {to}", stdin=stdin, code=code)
    assert text in done.stderr.decode()


def test_an_address_that_must_not_be_created_is_not_found(to):
    done = run(f"send /queue/strict.orders x {to}", code=3)
    assert b"Destination strict.orders does not exist" in done.stderr
    assert b"(0 messages confirmed; whether further 1 arrived is not known)" in done.stderr


def test_nobody_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        done = run(f"send q x --broker stomp://127.0.0.1:{port}", code=5)
    assert done.stderr.decode() == f"Error: 127.0.0.1:{port} cannot be reached: Connection refused\n"


@contextmanager
def stub(*answers):
    """A listener that answers each read of its one client with the next of some bytes, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            client, _ = listener.accept()
            with client:
                for answer in answers:
                    client.recv(1 << 20)
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(PATIENCE)


CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"


@pytest.mark.parametrize(
    "answers, code, text",
    [
        ([CONNECTED, b"RECEIPT\nreceipt-id:1\n\n\0"], 5, "(100 messages confirmed; whether further"),
        ([CONNECTED], 5, "(0 messages confirmed"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], 5, "has closed the connection"),
        ([b"ERROR\nmessage:no\x1b[2Jway\n\n\0"], 1, "refuses: no\\x1b[2Jway"),
        ([b"ERROR\nmessage:Access refused\n\n\0"], 4, "log in with --user"),
    ],
)
def test_a_broker_that_fails_is_reported_with_what_was_confirmed(answers, code, text):
    with stub(*answers) as port:
        done = run(f"send q x --count 400 --broker 127.0.0.1:{port}", code=code)
    assert text in done.stderr.decode()
    assert b"\x1b" not in done.stderr


def test_ctrl_c_reports_how_many_were_confirmed(management, to, queue):
    sending = start(f"send {queue} x --count 1000000 --rate 200 {to}")
    management.until(
        lambda: (
            management.ask("GET", "/queues", name=queue)["count"] and management.queue(queue)["messageCount"]
        )
    )
    sending.send_signal(signal.SIGINT)
    _, stderr = sending.communicate(timeout=LONGEST * PATIENCE)
    assert sending.returncode == 130
    there = management.queue(queue)["messageCount"]
    assert f"interrupted: sent {there:,} message" in stderr.decode()
    assert f", {there:,} confirmed" in stderr.decode()


def test_progress_is_one_line_of_the_terminal(to, queue):
    code, output = on_terminal(f"send {queue} x --count 20 --rate 25 {to}")
    assert code == 0
    assert b"\rsent " in output
    assert b"sent 20 messages" in output.rpartition(b"\r\x20")[2]


def test_a_login_from_environment_file_and_url(tmp_path):
    config = tmp_path / "broker.xml"
    core = "<users-file>users.properties</users-file><roles-file>roles.properties</roles-file>"
    config.write_text(broker_xml(secure=True, core=core))
    run(f"user add ada --password-stdin --role everybody --config {config}", stdin=b"a b:c")
    run(f"user add bob --password-stdin --config {config}", stdin=b"other")
    secret = tmp_path / "secret"
    secret.write_text("a b:c\n")
    with BrokerProcess(config) as broker:
        url = f"stomp://127.0.0.1:{broker.port}"
        cases = [
            ("--user ada", {"STOMPRING_PASSWORD": "a b:c"}, 0, "1 confirmed"),
            (f"--user ada --password-file {secret}", {}, 0, "1 confirmed"),
            ("", {"STOMPRING_USER": "ada", "STOMPRING_PASSWORD": "a b:c"}, 0, "1 confirmed"),
            ("", {}, 4, "log in with --user NAME"),
            ("--user ada", {"STOMPRING_PASSWORD": "wrong"}, 4, "User name [ada] or password is invalid"),
            ("--user ada", {}, 2, "no password for user 'ada': set STOMPRING_PASSWORD"),
            ("--user bob", {"STOMPRING_PASSWORD": "other"}, 4, "User bob does not have permission='SEND'"),
            ("--user ada --password-file /no/file", {}, 2, "--password-file /no/file cannot be read"),
        ]
        for options, env, code, text in cases:
            done = run(f"send q x --broker {url} {options}", env=environment(**env), code=code)
            assert text in done.stderr.decode(), (options, done.stderr)
        run("send q x --broker", url.replace("://", "://ada@"), env=environment(STOMPRING_PASSWORD="a b:c"))
        refused = run("send q x --broker", url.replace("://", "://ada:secret@"), code=2)
        assert b"must not have a password in it" in refused.stderr and b"secret@" not in refused.stderr


def test_a_context_names_broker_user_and_password_file(broker, management, queue, tmp_path):
    (tmp_path / "stompring").mkdir()
    contexts = {"current": "here", "contexts": {"here": {"broker": f"stomp://127.0.0.1:{broker.port}"}}}
    (tmp_path / "stompring" / "contexts.json").write_text(json.dumps(contexts))
    env = environment(tmp_path)
    run(f"send {queue} 'in use'", env=env)
    run(f"send {queue} 'by name' --context here", env=env)
    assert bodies(management, queue) == ["in use", "by name"]
    assert b"there is no context 'away'" in run(f"send {queue} x --context away", env=env, code=3).stderr
