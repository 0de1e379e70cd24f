"""``stompring subscribe`` as a process, against a real broker: what it prints, writes and acknowledges."""

import json
import os
import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest

from stompring.cli.output import one_line, printable

from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..certificates import Authority
from ..stomp_client import StompClient
from ..waiting import LONGEST
from .command import on_terminal, pipe, run, start

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eevil\r\b"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("subscribe"))
    made.issue("broker.pem")
    return made


@pytest.fixture(scope="module")
def broker(authority):
    config = authority.directory / "broker.xml"
    secure = '<acceptor name="tls">ssl://127.0.0.1:0?keyStorePath=broker.pem</acceptor>'
    config.write_text(broker_xml(acceptors=secure))
    with BrokerProcess(config) as process:
        yield process


def put(client, destination, *bodies, **headers):
    for body in bodies:
        length = len(body if isinstance(body, bytes) else body.encode())
        client.put(destination, body, content_length=length, **headers)


def test_a_pipe_gets_bodies_as_they_are(client, to, queue):
    put(client, queue, b'{"a": 1}', b"\x00\xff\x1b")
    done = run(f"subscribe {queue} --count 2 {to}")
    assert done.stdout == b'{"a": 1}\n\x00\xff\x1b\n'
    assert done.stderr == b""


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_printed_messages_are_settled_and_no_others(client, management, to, queue, mode):
    put(client, queue, *map(str, range(5)))
    assert run(f"subscribe {queue} --count 2 --ack {mode} {to}").stdout == b"0\n1\n"
    if mode == "auto":  # what was sent is gone
        return
    again = run(f"subscribe {queue} --count 3 --timeout 20s --json {to}")
    found = [json.loads(line) for line in again.stdout.splitlines()]
    assert [each["body"] for each in found] == ["2", "3", "4"]
    assert management.queue(queue)["messageCount"] == 0


def test_an_end_without_acknowledgement_is_no_failed_attempt(client, management, to, queue):
    put(client, queue, "a", "b", "c")
    for _ in range(12):  # more often than max-delivery-attempts
        run(f"subscribe {queue} --browse {to}")
    run(f"subscribe {queue} --count 1 {to}")
    (following, _) = management.ask("GET", f"/queues/{queue}/messages")["data"]
    assert following["failedAttempts"] == 0


def test_json_lines_are_what_send_reads(client, to, queue):
    put(client, queue, "text", b"\xff\x00", note="a:b\nc")
    lines = run(f"subscribe {queue} --count 2 --json {to}").stdout
    assert [json.loads(line)["encoding"] for line in lines.splitlines()] == ["text", "base64"]
    pipe(f"send {queue} --json-lines {to}", stdin=lines)
    again = run(f"subscribe {queue} --count 2 --json {to}").stdout
    found = [json.loads(line) for line in again.splitlines()]
    assert [(each["body"], each["headers"]["note"]) for each in found] == [
        ("text", "a:b\nc"),
        ("/wA=", "a:b\nc"),
    ]


def test_a_selector_leaves_the_others(client, management, to, queue):
    put(client, queue, "small", amount=1)
    put(client, queue, "large", amount=1000)
    done = run(f"subscribe {queue} --selector 'amount > 100' --timeout 500ms {to}")
    assert done.stdout == b"large\n"
    assert management.queue(queue)["messageCount"] == 1


def test_browsing_takes_nothing(client, management, to, queue):
    put(client, queue, "a", "b")
    assert run(f"subscribe {queue} --browse {to}").stdout == b"a\nb\n"
    assert management.queue(queue)["messageCount"] == 2


def test_too_few_messages_are_a_failure(to, queue):
    done = run(f"subscribe {queue} --count 1 --timeout 200ms {to}", code=1)
    assert done.stderr == b"Error: 0 of 1 messages came before --timeout\n"
    assert run(f"subscribe {queue} --timeout 200ms {to}").stdout == b""


def test_bodies_and_headers_go_to_files(client, to, queue, tmp_path):
    put(client, queue, '{"a": 1}', b"\xff", "plain", path="../../etc/passwd")
    for count in ("2", "1"):
        done = run(f"subscribe {queue} --count {count} --output {tmp_path}/out {to}")
        assert f"wrote {count} messages to {tmp_path / 'out'}" in done.stderr.decode()
    index = [json.loads(line) for line in (tmp_path / "out" / "messages.jsonl").read_text().splitlines()]
    assert [Path(each["file"]).suffix for each in index] == [".json", ".bin", ".txt"]
    assert [(tmp_path / "out" / each["file"]).read_bytes() for each in index] == [
        b'{"a": 1}',
        b"\xff",
        b"plain",
    ]
    assert len(list((tmp_path / "out").iterdir())) == 4
    assert index[0]["headers"]["path"] == "../../etc/passwd"


def test_a_message_that_cannot_be_written_stays(client, management, to, queue, tmp_path):
    put(client, queue, "x")
    (tmp_path / "file").touch()
    done = run(f"subscribe {queue} --output {tmp_path}/file/below --count 1 {to}", code=1)
    assert b"--output" in done.stderr
    assert management.queue(queue)["messageCount"] == 1


def test_a_durable_subscription_collects_until_it_is_deleted(client, management, to, queue):
    durable = f"subscribe /topic/{queue} --durable desk --client-id ada --timeout 300ms {to}"
    run(durable)
    put(client, f"/topic/{queue}", "news")
    assert run(durable).stdout == b"news\n"
    assert management.queue("ada.desk")["consumerCount"] == 0
    run(durable, "--unsubscribe")
    assert management.ask("GET", "/queues", name="ada.desk")["count"] == 0


@pytest.mark.parametrize(
    "options, text",
    [
        ("--json --raw", "mutually exclusive"),
        ("--durable x", "--durable needs --client-id"),
        ("--unsubscribe", "name it with --durable"),
        ("--durable x --client-id y --browse", "use one of them"),
        ("--count 0", "--count"),
        ("-H x", "NAME=VALUE"),
    ],
)
def test_contradictions_are_usage_errors(to, options, text):
    assert text in run(f"subscribe q {options} {to}", code=2).stderr.decode()


def test_a_selector_that_is_none_is_reported(to):
    done = run(f"subscribe q --selector 'amount >' {to}", code=1)
    assert b"refuses: " in done.stderr and b"(0 messages received)" in done.stderr


def test_ctrl_c_ends_it_without_an_error(client, management, to, queue):
    following = start(f"subscribe /queue/{queue} {to}")
    management.until(lambda: management.ask("GET", "/queues", name=queue)["count"])
    put(client, queue, "x")
    assert following.stdout.readline() == b"x\n"
    following.send_signal(signal.SIGINT)
    stdout, stderr = following.communicate(timeout=LONGEST * PATIENCE)
    assert (following.returncode, stdout, stderr) == (130, b"", b"")
    assert management.queue(queue)["messageCount"] == 0


def test_a_reader_that_ends_early_leaves_what_was_not_written(client, management, to, queue):
    put(client, queue, *("x" * 100_000 for _ in range(20)))  # more than a pipe buffers
    following = start(f"subscribe {queue} {to}")
    assert os.read(following.stdout.fileno(), 10) == b"x" * 10
    following.stdout.close()
    assert following.wait(PATIENCE) == 0
    assert following.stderr.read() == b""
    # the first one may have been written as a whole
    assert management.queue(queue)["messageCount"] in (19, 20)
    assert management.queue(queue)["deliveringCount"] == 0


def test_a_lost_broker_is_an_error(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as broker:
        following = start(f"subscribe q --broker 127.0.0.1:{broker.port}")
        with closing(StompClient(broker.port)) as client:
            client.connect()
            put(client, "q", "x")
        assert following.stdout.readline() == b"x\n"
    _, stderr = following.communicate(timeout=LONGEST * PATIENCE)
    assert following.returncode in (1, 5)
    assert b"(1 messages received)" in stderr


def test_tls_checks_the_certificate(broker, authority, queue):
    url = f"stomp+ssl://localhost:{broker.ports['tls']}"
    run(f"send {queue} secret --broker {url} --ca {authority.file}")
    done = run(f"subscribe {queue} --count 1 --broker {url} --ca {authority.file}")
    assert done.stdout == b"secret\n"
    refused = run(f"subscribe {queue} --broker {url}", code=5)
    assert b"certificate verify failed" in refused.stderr.lower()


def test_nothing_hostile_reaches_a_terminal(client, to, queue):
    put(client, queue, HOSTILE, '{"text": "\\u001b[2J"}', b"\x1b\xff", HOSTILE.replace("\x1b", "x"))
    put(client, queue, "x", note=HOSTILE)
    for options in ("", "--raw", "--json"):
        code, output = on_terminal(f"subscribe {queue} --timeout 1 --browse {options} {to}")
        # without what click writes for bold, colours and reset
        for own in (b"\x1b[1m", b"\x1b[36m", b"\x1b[0m"):
            output = output.replace(own, b"")
        assert code == 0
        assert not any(byte in output for byte in (b"\x1b", b"\x07", b"\x08", b"\xc2\x9b", "\u202e".encode()))
        assert b"evil" in output


def test_a_terminal_shows_headers_and_indented_json(client, to, queue):
    put(client, f"/queue/{queue}", '{"id":1}', type="order", content_type="application/json")
    code, output = on_terminal(f"subscribe /queue/{queue} --count 1 {to}")
    text = output.decode().replace("\r\n", "\n")
    assert code == 0
    assert f"#1 /queue/{queue}" in text and "8 bytes  application/json" in text
    assert "type\x1b[0m: order\n" in text
    assert '{\n  "id": 1\n}\n' in text


def test_bodies_on_a_terminal(client, to, queue):
    """JSON is indented, and what is no text has sixteen bytes per line."""
    digits = b"0123456789abcdef"
    shown = {
        b"plain\n\ttext": "plain\n\ttext",
        b"[1,2]": "[\n  1,\n  2\n]",
        b"{broken": "{broken",
        b'{"beyond": 1e999}': '{"beyond": 1e999}',
        "grüße €".encode(): "grüße €",
        b"a\x1b[0m\r": "a\\x1b[0m\\x0d",
        b"\x00\x01": "00000000  00 01                                            |..|",
        digits + b"\xff": f"00000000  {digits.hex(' ')}  |{digits.decode()}|\n00000010  ff ",
        b"[" * 10_000: "[" * 10_000,
    }
    put(client, queue, *shown)
    code, output = on_terminal(f"subscribe {queue} --count {len(shown)} {to}")
    text = output.decode().replace("\r\n", "\n")
    assert code == 0
    for body in shown.values():
        assert f"\n{body}" in text


def test_no_control_character_is_printable():
    every = "".join(
        map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2028, 0x2066, 0xFEFF, 0xE0041, 0xD800])
    )
    assert printable(every).replace("\t", "").replace("\n", "").isprintable()
    assert one_line(every).isprintable()
    assert one_line("a\nb\tc") == "a\\nb\\tc"


def test_browsing_takes_nothing_from_a_broker_that_cannot_browse(client, queue):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        browsing = start(f"subscribe {queue} --browse --broker 127.0.0.1:{listener.getsockname()[1]}")
        with listener.accept()[0] as connection, connection.makefile("rwb") as stream:
            frames = iter(lambda: b"".join(iter(lambda: stream.read(1), b"\0")), b"")
            next(frames)
            stream.write(b"CONNECTED\nversion:1.2\n\n\0")
            stream.flush()
            assert b"\nack:client-individual\n" in next(frames)
        browsing.communicate(timeout=LONGEST * PATIENCE)
