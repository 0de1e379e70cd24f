"""``stompring subscribe``: messages of any STOMP 1.2 broker on the terminal, in a pipe, or in files."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from stompring.pipeline.stomp.connection import BrokerError, ConnectionFailed, Endpoint
from stompring.stomp.client import Pairs, ack
from stompring.stomp.frames import Head

from .endpoint import (
    FAILURES,
    CommandConnection,
    Interrupts,
    WaitInterrupted,
    connected,
    failure,
    stomp_broker,
)
from .options import argument, command, header_pair, option
from .output import (
    FAILED,
    INTERRUPTED,
    CommandFailed,
    JsonObject,
    encoded,
    indented,
    is_terminal,
    one_line,
    printable,
    warn,
)

#: Maximum time in seconds of one wait for messages.
WAIT = 0.5

#: Headers that the first line of a message contains, or that only programs need.
_SHOWN_ELSEWHERE = {
    "ack",
    "content-length",
    "content-type",
    "destination",
    "message-id",
    "redelivered",
    "subscription",
    "timestamp",
}

#: Headers that are not shown if they have these default values.
_DEFAULTS = {"expires": "0", "priority": "4", "persistent": "false"}

_UNSAFE_IN_FILE = re.compile(r"[^A-Za-z0-9._-]")


@command()
def subscribe(
    destination: str = argument("DEST"),
    ack_mode: str = option(
        "--ack",
        "auto: sent messages count as consumed. Otherwise messages are acknowledged when printed or written.",
        exact=("auto", "client", "client-individual"),
        default="client-individual",
    ),
    selector: str | None = option("TEXT", "Receive only messages that match, as \"type = 'order'\"."),
    count: int | None = option("N", "End after N messages.", min=1),
    timeout: float | None = option("DURATION", "End when no message arrives within this time."),
    browse: bool = option("Show the waiting messages of a queue and leave them there (browser:true)."),
    output: Path | None = option(
        "DIR", "Write each body to a file in DIR, and all headers to DIR/messages.jsonl."
    ),
    headers: tuple[str, ...] = option("-H", "--header", "NAME=VALUE", "A header of SUBSCRIBE. Repeatable."),
    durable: str | None = option(
        "NAME",
        "Durable subscription to a topic: it collects messages while disconnected. Needs --client-id.",
    ),
    client_id: str | None = option("ID", "The client-id of CONNECT."),
    unsubscribe: bool = option("At the end, delete the durable subscription and its messages."),
    as_json: bool = option("--json", "Print each message as a JSON object on a line."),
    raw: bool = option("Print bodies only, one per line. The default in a pipe."),
    pretty: bool = option("Print headers and formatted bodies. The default on a terminal."),
    endpoint: Endpoint = stomp_broker,
) -> None:
    """Print the messages of DEST as they come, until Ctrl-C, --count or --timeout.

    Works with any STOMP 1.2 broker. JSON bodies are indented, binary bodies shown in hexadecimal; control characters
    never reach the terminal. A message is acknowledged after it has been printed, so that Ctrl-C loses none. It
    may get lost behind a pipe: move messages with 'stompring transfer'. The exit code is 1 if --count messages did not
    come before --timeout.

    \b
    Examples:
      stompring subscribe /topic/prices
      stompring subscribe /queue/orders --count 1 --timeout 10
      stompring subscribe /queue/orders --selector "amount > 100" --json | jq .body
      stompring subscribe /queue/orders --browse
      stompring subscribe /queue/scans --output scans
      stompring subscribe /topic/news --durable desk --client-id ada

    Durations: 500ms, 10s, 5m, 2h, 7d; a number alone is seconds.
    """
    if as_json + raw + pretty > 1:
        raise click.UsageError("--json, --raw and --pretty are mutually exclusive")
    if durable is not None and not client_id:
        raise click.UsageError("--durable needs --client-id: it is part of the name of the subscription")
    if unsubscribe and durable is None:
        raise click.UsageError("--unsubscribe deletes a durable subscription: name it with --durable")
    if browse and durable is not None:
        raise click.UsageError("--browse reads a queue, --durable a topic: use one of them")
    # client-individual: Artemis and RabbitMQ ignore browser:true, but keep messages in the queue that get no ACK
    fields = [("id", "0"), ("destination", destination), ("ack", "client-individual" if browse else ack_mode)]
    if selector is not None:
        fields.append(("selector", selector))
    if browse:
        fields.append(("browser", "true"))
    names = []
    if durable is not None:
        # the first header is that of Artemis and stompring, the second that of ActiveMQ Classic
        names = [("durable-subscription-name", durable), ("activemq.subscriptionName", durable)]
    fields += names
    if count is not None and ack_mode != "auto" and not browse:
        fields.append(("prefetch-count", str(min(count, 1000))))
    fields += map(header_pair, headers)
    show: Show = _print_raw if raw or not (pretty or is_terminal()) else _print_pretty
    if as_json:
        show = _print_json
    if output:
        show = _to_files(output, show if as_json else None)
    interrupts = Interrupts()
    subscriber = Subscriber(interrupts, "auto" if browse else ack_mode, show, count, timeout)
    endpoint = replace(endpoint, client_id=client_id)
    with interrupts.handled(), connected(endpoint, interrupts) as connection:
        code = subscriber.run(connection, fields, names if unsubscribe else [])
    if output:
        warn(f"wrote {subscriber.received:,} messages to {output}")
    if code == INTERRUPTED:
        raise SystemExit(INTERRUPTED)
    if code:
        raise CommandFailed(f"{subscriber.received} of {count} messages came before --timeout", code)


class Message:
    """A received message, for output to people or programs."""

    def __init__(self, number: int, head: Head, body: bytes) -> None:
        self.number = number
        self.body = body
        self.headers = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in head.headers.items()
        }

    def as_json(self) -> JsonObject:
        """The message as a JSON object for ``stompring send --json-lines``."""
        body, encoding = encoded(self.body)
        return {"number": self.number, "headers": self.headers, "encoding": encoding, "body": body}


Show = Callable[[Message], None]


def _print_json(message: Message) -> None:
    click.echo(json.dumps(message.as_json()))


def _print_raw(message: Message) -> None:
    if is_terminal():
        click.echo(body_text(message.body, reformat=False))
    else:
        sys.stdout.buffer.write(message.body + b"\n")
        sys.stdout.buffer.flush()


def _print_pretty(message: Message) -> None:
    """Print a message for people: a line with the essentials, further headers, the body."""
    headers = message.headers
    stamp = headers.get("timestamp", "")
    facts = [
        headers.get("message-id"),
        _time(int(stamp)) if stamp.isascii() and stamp.isdigit() and len(stamp) <= 13 else None,
        f"{len(message.body):,} bytes",
        headers.get("content-type"),
        "redelivered" if headers.get("redelivered") == "true" else None,
    ]
    title = f"#{message.number} {headers.get('destination', '')}"
    lines = [f"{click.style(one_line(title), bold=True)}  {one_line('  '.join(filter(None, facts)))}"]
    lines += (
        f"{click.style(one_line(name), fg='cyan')}: {one_line(value)}"
        for name, value in headers.items()
        if name not in _SHOWN_ELSEWHERE and _DEFAULTS.get(name) != value
    )
    colour = False if "NO_COLOR" in os.environ else None  # None: click shows colours only on a terminal
    click.echo("\n".join([*lines, body_text(message.body), ""]), color=colour)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _text(body: bytes) -> str | None:
    """A body as text, None if it is binary."""
    with suppress(UnicodeDecodeError):
        text = body.decode()
        return None if "\0" in text else text
    return None


def body_text(body: bytes, reformat: bool = True) -> str:
    """A body for a terminal: indented JSON, text with escapes for control characters, or a hex dump of binary data."""
    text = _text(body)
    if text is None:
        return hex_dump(body)
    return printable(indented(text) if reformat else text)


def hex_dump(data: bytes) -> str:
    """Format data like ``hexdump -C``: offset, sixteen bytes, their characters."""
    lines = []
    for offset in range(0, len(data), 16):
        part = data[offset : offset + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{offset:08x}  {part.hex(' '):<47}  |{shown}|")
    return "\n".join(lines)


def _to_files(directory: Path, also: Show | None) -> Show:
    """Return a function that writes a message: its body to a new file, its headers to ``messages.jsonl``.

    If ``also`` is not None, the function passes the message to ``also``, too. Raises `CommandFailed`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "messages.jsonl"
        first = sum(1 for _ in path.open("rb")) if path.exists() else 0
        index = path.open("a", encoding="utf-8")
    except OSError as fault:
        raise CommandFailed(f"--output {directory}: {fault.strerror}") from None

    def write(message: Message) -> None:
        identifier = _UNSAFE_IN_FILE.sub("_", message.headers.get("message-id", ""))[:80]
        name = f"{first + message.number:06}-{identifier}{_suffix(message)}"
        try:
            # creates a new file: never overwrites one, and never follows a link
            with open(directory / name, "xb") as file:
                file.write(message.body)
            index.write(json.dumps({"file": name, "headers": message.headers}) + "\n")
            index.flush()
        except OSError as fault:
            raise CommandFailed(f"cannot write {directory / name}: {fault.strerror}") from None
        if also:
            also(message)

    return write


def _suffix(message: Message) -> str:
    kind = message.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/json", "text/json") or kind.endswith("+json"):
        return ".json"
    text = _text(message.body)
    if text is None:
        return ".bin"
    with suppress(ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "["):
            json.loads(text)
            return ".json"
    return ".txt"


@dataclass
class Subscriber:
    """Receives, shows and acknowledges messages until Ctrl-C, ``count`` or ``timeout``."""

    interrupts: Interrupts
    ack_mode: str
    show: Show
    count: int | None
    timeout: float | None
    received: int = 0

    def run(self, connection: CommandConnection, fields: Pairs, durable: Pairs) -> int:
        """Receive until the end. Then delete the subscription that the headers ``durable`` name, if any.

        Returns the exit code. Raises `CommandFailed`.
        """
        try:
            connection.ask("SUBSCRIBE", fields)
            code = self._receive(connection)
        except WaitInterrupted:
            code = INTERRUPTED
        except FAILURES as fault:
            raise failure(fault, self._state()) from None
        except BrokenPipeError:
            # the reader has closed the pipe: avoids Python's error message about it at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        # UNSUBSCRIBE before the connection closes: the broker requeues messages without an ACK, and does not count a
        # failed attempt
        with suppress(WaitInterrupted, ConnectionFailed):
            try:
                connection.ask("UNSUBSCRIBE", [("id", "0"), *durable])
                connection.close()
            except BrokerError as fault:
                raise failure(fault, self._state()) from None
        return code

    def _receive(self, connection: CommandConnection) -> int:
        last = time.monotonic()
        while self.count is None or self.received < self.count:
            self.interrupts.check()
            wait = WAIT if self.timeout is None else min(WAIT, last + self.timeout - time.monotonic())
            messages = connection.receive(max(wait, 0.001))
            if messages:
                last = time.monotonic()
            elif self.timeout is not None and time.monotonic() >= last + self.timeout:
                return FAILED if self.count is not None else 0
            shown: list[Head] = []
            for head, body in messages:
                if head.headers.get(b"browser") == b"end":
                    return 0
                self.show(Message(self.received + 1, head, body))
                self.received += 1
                shown.append(head)
                if self.received == self.count:
                    break
            if self.ack_mode == "client":
                shown = shown[-1:]
            if shown and self.ack_mode != "auto":
                connection.send(b"".join(map(ack, shown)))
        return 0

    def _state(self) -> str:
        return f" ({self.received:,} messages received)"
