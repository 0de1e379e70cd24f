"""``stompring send``: messages from arguments, standard input and files to any STOMP 1.2 broker."""

from __future__ import annotations

import base64
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from stompring.pipeline.stomp.connection import Endpoint
from stompring.stomp.client import frame

from .endpoint import (
    FAILURES,
    CommandConnection,
    Interrupts,
    WaitInterrupted,
    connected,
    failure,
    stomp_broker,
)
from .options import HEADERS, argument, command, header_pair, message_headers, option
from .output import INTERRUPTED, CommandFailed, Interrupted, RateLine, warn

#: Headers that the command sets itself.
RESERVED = ("destination", "receipt", "content-length", "transaction")

#: Standard input as a file.
STDIN = Path("-")

#: Maximum number of bytes that one read of an input returns.
CHUNK = 1 << 16

#: Seconds to wait for outstanding receipts after SIGINT.
INTERRUPT_GRACE = 5.0

#: Maximum number of bytes of a line, a file or standard input: the maximum length of a body.
MAX_BODY = 1 << 31

Headers = tuple[tuple[str, str], ...]


class Item(NamedTuple):
    """One message to send, with its body and its own headers."""

    body: bytes
    headers: Headers = ()


#: A function that is called while an input has no data, to service the connection.
Idle = Callable[[], None]


@command()
def send(
    destination: str = argument("DEST"),
    body: str | None = argument(),
    files: tuple[Path, ...] = option(
        "--file",
        "FILE",
        "Send the content of FILE; '-' is standard input. Can be given several times.",
        dir_okay=True,
    ),
    lines: bool = option("Send each line of the input as a message."),
    json_lines: bool = option(
        "Send each line of the input, a JSON object with body, headers and encoding (text, base64, hex), as "
        "'subscribe --json' prints it."
    ),
    count: int = option("N", "Send everything N times.", default=1, show_default=False, min=1),
    rate: float | None = option("N", "Send at most N messages per second.", min=0, min_open=True),
    headers: tuple[str, ...] = HEADERS,
    persistent: bool = option("Durable: on disk before the receipt (persistent:true)."),
    priority: int | None = option("0-9", "Priority; 4 is the default of brokers.", min=0, max=9),
    expires: float | None = option("DURATION", "Expire after this time."),
    delay: float | None = option("DURATION", "Deliver after this time (AMQ_SCHEDULED_DELAY)."),
    period: float | None = option("DURATION", "Time between repeats (AMQ_SCHEDULED_PERIOD)."),
    repeat: int | None = option("N", "Repeats after the first delivery; -1: no limit.", min=-1),
    cron: str | None = option("EXPRESSION", "Deliver at these times, five fields (AMQ_SCHEDULED_CRON)."),
    window: int = option("N", "Messages without a receipt at any time.", default=1000, min=1),
    no_receipt: bool = option("Ask for no receipts but the last one, that of DISCONNECT."),
    quiet: bool = option("-q", "--quiet", "No progress and no summary."),
    as_json: bool = option("--json", "Print the summary as JSON on standard output."),
    endpoint: Endpoint = stomp_broker,
) -> None:
    """Send messages to DEST, with the body BODY, from files, or from standard input.

    Works with any STOMP 1.2 broker. Each message is confirmed by a receipt. Ctrl-C stops, waits for outstanding
    receipts and reports the number of confirmed messages; press it again to stop at once. Scheduling options need
    stompring or ActiveMQ.

    \b
    Examples:
      stompring send /queue/orders '{"id": 1}' -H content-type=application/json
      stompring send /queue/orders --file a.json --file b.json --persistent
      tail -f access.log | stompring send /topic/access --lines
      stompring send /queue/load 'hello' --count 100000 --rate 5000
      stompring send /queue/reminders 'tea is ready' --delay 3m
      stompring send /queue/reports 'daily' --cron '0 6 * * 1-5'
      stompring subscribe /queue/a --browse --json | stompring send /queue/b --json-lines

    Durations: 500ms, 10s, 5m, 2h, 7d; a number alone is seconds.
    """
    if body is not None and files:
        raise click.UsageError("BODY and --file are mutually exclusive")
    if lines and json_lines:
        raise click.UsageError("--lines and --json-lines are mutually exclusive")
    if body is not None and (lines or json_lines):
        raise click.UsageError("BODY is one message: --lines and --json-lines read --file or standard input")
    if repeat is not None and period is None:
        raise click.UsageError("--repeat needs --period, the time between two deliveries")
    from_stdin = body is None and (not files or STDIN in files)
    if count > 1 and from_stdin and (lines or json_lines):
        raise click.UsageError("--count cannot repeat the lines of standard input: use --file")
    fixed = [("destination", destination)]
    fixed += [("persistent", "true")] if persistent else []
    fixed += message_headers(priority, delay, period, repeat, cron).items()
    fixed += [header_pair(text, RESERVED) for text in headers]
    source = _Source(body, files or (STDIN,), lines, json_lines, count)
    source.check()
    interrupts = Interrupts()
    with interrupts.handled(), connected(endpoint, interrupts) as connection:
        sender = Sender(
            connection, interrupts, tuple(fixed), expires, window, not no_receipt, rate, RateLine(quiet)
        )
        code = sender.run(source)
    if as_json:
        seconds = round(sender.progress.seconds, 3)
        click.echo(json.dumps({"sent": sender.sent, "confirmed": sender.confirmed, "seconds": seconds}))
    if not quiet or code:
        text = sender.summary_text(destination)
        if code:
            raise Interrupted(f"interrupted: {text}")
        warn(text)


@dataclass
class _Source:
    """The messages of the arguments, in their order, ``count`` times."""

    body: str | None
    files: Sequence[Path]
    lines: bool
    json_lines: bool
    count: int
    _stdin: bytes | None = None

    def check(self) -> None:
        """Report unreadable files before anything is sent. Raises `CommandFailed`."""
        for file in self.files if self.body is None else ():
            if file == STDIN:
                if sys.stdin.isatty():
                    warn("reading from the terminal; Ctrl-D ends the input")
            elif file.is_dir() or not os.access(file, os.R_OK):
                why = (
                    "is a directory"
                    if file.is_dir()
                    else "cannot be read"
                    if file.exists()
                    else "does not exist"
                )
                raise CommandFailed(f"--file {file} {why}: nothing was sent")

    def items(self, idle: Idle) -> Iterator[list[Item]]:
        """Yield the messages in groups. Each group contains messages that the input has without a further wait."""
        if self.body is not None or not (self.lines or self.json_lines):
            yield from self._whole(idle)
            return
        for _ in range(self.count):
            for file in self.files:
                yield from self._of_lines(file, idle)

    def _whole(self, idle: Idle) -> Iterator[list[Item]]:
        if self.body is not None:
            bodies: Iterable[bytes] = [os.fsencode(self.body)]
        else:
            bodies = (self._content(file, idle) for file in self.files)
        if self.count == 1:
            yield from ([Item(body)] for body in bodies)
            return
        items = [Item(body) for body in bodies]
        repeats = max(1, 1000 // len(items))
        for sent in range(0, self.count, repeats):
            yield items * min(repeats, self.count - sent)

    def _content(self, file: Path, idle: Idle) -> bytes:
        if file != STDIN:
            return b"".join(_chunks(file, idle))
        if self._stdin is None:
            self._stdin = b"".join(_chunks(file, idle))
        return self._stdin

    def _of_lines(self, file: Path, idle: Idle) -> Iterator[list[Item]]:
        name, number, part = "standard input" if file == STDIN else str(file), 0, b""
        for chunk in _chunks(file, idle):
            *complete, part = (part + chunk).split(b"\n")
            if len(part) > MAX_BODY:
                raise CommandFailed(
                    f"{name}: line {number + len(complete) + 1} is longer than {MAX_BODY} bytes"
                )
            group = []
            for line in complete:
                number += 1
                group += self._item(line, name, number)
            if group:
                yield group
        if part:
            yield self._item(part, name, number + 1)

    def _item(self, line: bytes, name: str, number: int) -> list[Item]:
        text = line.removesuffix(b"\r")
        if not self.json_lines:
            return [Item(text)]
        if not text.strip():
            return []
        try:
            return [parse_json_line(text)]
        except ValueError as fault:
            raise CommandFailed(f"{name}, line {number}: {fault}") from None


def _chunks(file: Path, idle: Idle) -> Iterator[bytes]:
    """Yield the content of a file, a pipe or standard input as it arrives. Raises `CommandFailed`."""
    stdin = file == STDIN
    try:
        stream = open(sys.stdin.fileno() if stdin else file, "rb", buffering=0, closefd=not stdin)
    except OSError as fault:
        raise CommandFailed(f"--file {file} cannot be read: {fault.strerror}") from None
    with stream:
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        while True:
            while not poll.poll(100):
                idle()
            data = os.read(stream.fileno(), CHUNK)
            if not data:
                return
            yield data


#: Headers of a received message that are not copied into a SEND: the broker or the command sets them.
NOT_SENT = {
    "ack",
    "content-length",
    "destination",
    "expires",
    "message-id",
    "receipt",
    "redelivered",
    "subscription",
    "timestamp",
    "transaction",
}


def parse_json_line(text: bytes) -> Item:
    """A message from a JSON object: ``body``, ``headers`` and ``encoding``. Raises `ValueError`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"not JSON: {fault}") from None
    if not isinstance(given, dict) or "body" not in given:
        raise ValueError('must be a JSON object with "body"')
    unknown = sorted(given.keys() - {"body", "headers", "encoding", "number"})
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}: known are body, headers and encoding")
    body, encoding = given["body"], given.get("encoding", "text")
    if isinstance(body, str) and encoding in ("base64", "hex"):
        try:
            data = base64.b64decode(body, validate=True) if encoding == "base64" else bytes.fromhex(body)
        except ValueError as fault:
            raise ValueError(f"body is not {encoding}: {fault}") from None
    elif encoding in ("text", "json"):
        is_text = isinstance(body, str) and encoding == "text"
        data = (body if is_text else json.dumps(body, ensure_ascii=False)).encode("utf-8", "surrogatepass")
    else:
        raise ValueError(f'encoding must be "text", "json", "base64" or "hex", not {encoding!r}')
    headers = given.get("headers", {})
    if not isinstance(headers, dict):
        raise ValueError("headers must be an object")
    pairs = []
    for name, value in headers.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"header {name!r} must be text or a number")
        if name not in NOT_SENT:
            pairs.append((name, str(value)))
    return Item(data, tuple(pairs))


@dataclass
class Sender:
    """Sends messages, at most ``window`` of them unconfirmed, and counts the confirmed messages."""

    connection: CommandConnection
    interrupts: Interrupts
    fixed: Headers
    expires: float | None
    window: int
    receipts: bool
    rate: float | None
    progress: RateLine
    sent: int = 0
    confirmed: int = 0
    _outstanding: deque[int] = field(
        default_factory=deque
    )  # for each outstanding receipt: number of messages sent up to its SEND

    @property
    def _group(self) -> int:
        return max(1, min(100, self.window // 4))

    def run(self, source: _Source) -> int:
        """Send everything. Returns the exit code; raises `CommandFailed` with the number of confirmed messages."""
        try:
            for group in source.items(self._idle):
                for start in range(0, len(group), self._group):
                    self._send(group[start : start + self._group])
            self.connection.await_receipts()
            self.connection.close()
            self._outstanding.clear()
            self.confirmed = self.sent
        except WaitInterrupted:
            self._drain()
            return INTERRUPTED
        except FAILURES as fault:
            self._count()
            raise failure(fault, self._state()) from None
        finally:
            self.progress.clear()
        return 0

    def summary_text(self, destination: str) -> str:
        """A summary of the sent messages for people."""
        plural = "" if self.sent == 1 else "s"
        text = f"sent {self.sent:,} message{plural} to {destination}, {self.confirmed:,} confirmed"
        text += self.progress.rate(self.sent)
        left = self.sent - self.confirmed
        return text if not left else f"{text}; whether the last {left:,} arrived is not known"

    def _send(self, group: Sequence[Item]) -> None:
        self.interrupts.check()
        if self.rate is None:
            self._write(group)
            return
        for item in group:
            due = self.progress.started + self.sent / self.rate
            # skip a wait of less than a millisecond: the wait before a later message includes it
            if (wait := due - time.monotonic()) > 0.001:
                self.connection.receive(wait)
            self._write([item])
            self.interrupts.check()

    def _write(self, group: Sequence[Item]) -> None:
        self.connection.write(self._frames(group))
        self._count()
        while self.sent - self.confirmed > self.window - self._group and self._outstanding:
            self.connection.await_receipts(len(self._outstanding) - 1)
            self._count()
        self._draw()

    def _frames(self, group: Sequence[Item]) -> Iterator[bytes]:
        """Yield the SEND of each message. After the last SEND, add the size of the group to ``sent``."""
        fixed = {name for name, _ in self.fixed}
        for number, item in enumerate(group, 1):
            # headers from options override the headers of a line
            headers = [*self.fixed, *(pair for pair in item.headers if pair[0] not in fixed)]
            if self.expires is not None:
                headers.append(("expires", str(round((time.time() + self.expires) * 1000))))
            if number == len(group) and self.receipts:
                headers.append(("receipt", self.connection.next_receipt()))
            try:
                yield frame("SEND", headers, item.body)
            except UnicodeEncodeError:
                raise CommandFailed("a header is not UTF-8 text", 2) from None
        self.sent += len(group)
        if self.receipts:
            self._outstanding.append(self.sent)

    def _drain(self) -> None:
        """Count the outstanding receipts that arrive after an interrupt, until the next interrupt."""
        self.progress.clear()
        if self._outstanding:
            waiting = self.sent - self.confirmed
            warn(f"interrupted: waiting for {waiting:,} receipts; Ctrl-C again stops at once")
        deadline = time.monotonic() + INTERRUPT_GRACE
        try:
            while self._outstanding and time.monotonic() < deadline:
                self.connection.receive(0.05)
                self._count()
        except (WaitInterrupted, *FAILURES):
            self._count()

    def _count(self) -> None:
        while len(self._outstanding) > self.connection.unconfirmed:
            self.confirmed = self._outstanding.popleft()

    def _idle(self) -> None:
        self.interrupts.check()
        self.connection.receive(0.0)
        self._count()
        self._draw()

    def _draw(self) -> None:
        self.progress.update(f"sent {self.sent:,}, confirmed {self.confirmed:,}", self.sent)

    def _state(self) -> str:
        left = self.sent - self.confirmed
        more = f"; whether further {left:,} arrived is not known" if left else ""
        return f" ({self.confirmed:,} messages confirmed{more})"
