"""``stompring message``: browse, show, send, delete, expire, deliver, download and upload messages over HTTP."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

import click

from .options import (
    HEADERS,
    ROUTING_TYPES,
    YES,
    argument,
    command,
    header_pair,
    message_headers,
    option,
    provided,
)
from .output import (
    UNREACHABLE,
    USAGE,
    Column,
    CommandFailed,
    Interrupted,
    JsonObject,
    age_text,
    bytes_text,
    columns,
    confirm,
    count_text,
    counted,
    echo_json,
    encoded,
    every,
    fields,
    human_text,
    indented,
    is_terminal,
    plain_text,
    print_fields,
    print_table,
    printable,
    progress,
    time_text,
    warn,
    without_none,
)
from .queue import DETACH, QUEUE, TARGET, Selection, bulk
from .remote import Remote, running

#: Maximum number of bytes shown of a body: in a list on a terminal, and by a command for one message.
PREVIEW, WHOLE = 200, 1024 * 1024

#: Number of bytes per read from an answer.
CHUNK = 65536

#: Maximum number of bytes in one request of an upload. The limit of the API is 1 MiB.
UPLOAD_SIZE = 512 * 1024

COLUMNS = columns(
    messageID=(0, "ID"),
    state=1,
    timestamp=(2, "AGE", age_text),
    priority=(6, count_text),
    deliveryCount=(5, "DELIVERIES"),
    bodySize=(3, "SIZE"),
    dueTime=4,
    expires=(7, time_text),
    user=7,
    reason=5,
    originQueue=(5, "FROM"),
    body=3,
)


@click.group()
def message() -> None:
    """Browse, show, send, delete, expire, download and upload messages.

    \b
    Examples:
      stompring message browse orders --filter "colour = 'red'"
      stompring message show orders 7-1201
      stompring message download DLQ dead.jsonl.gz
    """


ID = argument("ID")
FILTER = option("--filter", "SELECTOR", "Only messages that match this selector.")


@command(message)
def browse(
    name: str = QUEUE,
    selector: str | None = FILTER,
    limit: int = option("N", "At most N messages.", default=50, min=1),
    scheduled: bool = option("Scheduled messages only, by due time."),
    headers: bool = option("Show all headers and the beginning of each body."),
    columns: str | None = option("FIELD,…", "Show these fields of the API (docs/http-api.md)."),
    remote: Remote = running,
) -> None:
    """List the messages of a queue: pending in order of delivery, then scheduled, then delivering. Nothing changes.

    \b
    Examples:
      stompring message browse orders
      stompring message browse orders --filter "colour = 'red' AND priority > 4" --limit 10 --headers
      stompring message browse orders --scheduled
      stompring message browse orders --json | jq -r '.data[].body'
    """
    if scheduled and selector is not None:
        raise click.UsageError("--scheduled and --filter are mutually exclusive")
    kind = "scheduled" if scheduled else "messages"
    query = {"filter": selector, "bodyLimit": PREVIEW if is_terminal() and not remote.json else None}
    answer = remote.pages("queues", name, kind, limit=limit, sized=False, **query)
    if remote.json:
        echo_json(answer)
        return
    if headers:
        for each in answer["data"]:
            _print_message(each)
            click.echo()
    else:
        print_table(answer["data"], COLUMNS, columns, f"queue {human_text(name)} has no such messages")
    if (left := answer["count"] - len(answer["data"])) > 0:
        warn(f"{count_text(left)} more (--limit)")


_FIELDS = fields(
    timestamp=("sent", time_text),
    expires=time_text,
    dueTime="due",
    size=("memory", bytes_text),
    bodySize="body size",
)


def _print_message(record: JsonObject) -> None:
    """Print fields, headers and body of a message."""
    body, encoding, truncated = record["body"], record["encoding"], record["bodyTruncated"]
    hidden = ("headers", "body", "encoding", "bodyTruncated")
    shown = {name: value for name, value in without_none(record).items() if name not in hidden}
    headers = {f"header.{name}": value for name, value in record["headers"].items()}
    sections = {
        "Message": every(shown, _FIELDS),
        "Headers": [Column(name, name.removeprefix("header.")) for name in headers],
    }
    print_fields({**shown, **headers}, sections)
    if not is_terminal():
        click.echo(f"encoding\t{encoding}\nbody\t{plain_text(body)}")
        return
    readable = encoding in ("text", "json")
    click.secho("Body" if readable else f"Body ({encoding})", bold=True)
    if not isinstance(body, str):
        body = json.dumps(body, ensure_ascii=False, indent=2)
    elif readable and not truncated:
        body = indented(body)
    click.echo(printable(body))
    if truncated:
        size = bytes_text(record["bodySize"])
        warn(f"(the beginning of {size}; the whole body: --output FILE)")


@command(message)
def show(
    name: str = QUEUE,
    message_id: str = ID,
    only_body: bool = option(
        "--body", "Print the bytes of the body, whole and unchanged. Not to a terminal."
    ),
    output: Path | None = option("FILE", "Write the bytes of the body to FILE."),
    remote: Remote = running,
) -> None:
    """Show one message with its headers and body.

    \b
    Examples:
      stompring message show orders 7-1201
      stompring message show orders 7-1201 --body | jq .
      stompring message show orders 7-1201 --output body.bin
    """
    path = ("queues", name, "messages", message_id)
    if only_body or output:
        if output is None and is_terminal():
            raise click.UsageError("--body writes bytes as they are: redirect it, or use --output FILE")
        answer = remote.open("GET", (*path, "body"))
        with _writing(str(output or "-")) as stream:
            for piece in remote.stream(partial(answer.read, CHUNK)):
                stream.write(piece)
        return
    record = remote.get(*path, bodyLimit=None if remote.json else WHOLE)
    if remote.json:
        echo_json(record)
    else:
        _print_message(record)


@contextmanager
def _writing(output: str) -> Iterator[IO[bytes]]:
    """Context manager: yield standard output, or a temporary file that gets its name when it is complete."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    file = Path(output)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as raw:
            if file.name.endswith(".gz"):
                with gzip.GzipFile("", "wb", fileobj=raw) as stream:
                    yield stream  # type: ignore[misc]  # as a stream of bytes
            else:
                yield raw
        temporary.replace(file)
    except OSError as fault:
        raise CommandFailed(f"cannot write {file}: {fault.strerror or fault}") from None
    finally:
        temporary.unlink(missing_ok=True)


@command(message)
def send(
    address: str = TARGET,
    body: str | None = argument(),
    file: Path | None = option("FILE", "Body: the bytes of FILE.", exists=True),
    headers: tuple[str, ...] = HEADERS,
    count: int = option("Send it N times.", default=1, min=1, max=10_000),
    non_persistent: bool = option("The message need not survive a restart."),
    priority: int | None = option("Priority.", min=0, max=9),
    expires: float | None = option("DURATION", "It expires after so long."),
    delay: float | None = option("DURATION", "Deliver it after so long."),
    cron: str | None = option("TEXT", "Deliver a copy at the times of this cron expression."),
    period: float | None = option("DURATION", "Repeat it with this period."),
    repeat: int | None = option("N", "Repeat it N times, -1 without end."),
    routing_type: str | None = option("Routing type of an address that is created.", choices=ROUTING_TYPES),
    remote: Remote = running,
) -> None:
    """Send a message over HTTP, with the body BODY, from --file or from standard input.

    "stompring send" sends over STOMP: faster, many messages, with a rate.

    \b
    Examples:
      stompring message send orders '{"id": 1}' -H content-type=application/json
      stompring message send orders --delay 10m "wake up"
      stompring message send orders::orders.eu --file order.bin --priority 9
      date | stompring message send log
    """
    sent = dict(map(header_pair, headers)) | message_headers(priority, delay, period, repeat, cron)
    if not non_persistent:
        sent.setdefault("persistent", "true")
    if expires is not None:
        sent["expires"] = str(int((time.time() + expires) * 1000))
    if body is not None and file:
        raise click.UsageError("BODY and --file are mutually exclusive")
    if body is not None:
        raw = os.fsencode(body)
    elif file:
        raw = file.read_bytes()
    elif sys.stdin.isatty():
        raise click.UsageError("no body: give BODY, --file FILE, or standard input; '' is an empty body")
    else:
        raw = sys.stdin.buffer.read()
    text, encoding = encoded(raw)
    target, _, queue = address.partition("::")
    request = {
        "address": target or queue,
        "headers": sent,
        "count": count,
        "queue": queue or None,
        "routingType": routing_type,
        "body": text,
        "encoding": encoding,
    }
    answer = remote.post("messages", body=without_none(request))
    if answer["unrouted"]:
        warn(f"{count_text(answer['unrouted'])} of them were accepted by no queue of {address}")
    remote.report(answer, f"{counted(answer['sent'], 'message')} sent to {address}")
    if rejected := answer["rejected"]:
        raise CommandFailed(f"{counted(rejected, 'message')} rejected: {answer['reason']}")


# ---- many messages


@dataclass(frozen=True)
class Chosen:
    """The options of a command that deletes or expires messages: they select the messages."""

    ids: tuple[str, ...] = argument("[ID]...", required=False)
    selector: str | None = option("--filter", "SELECTOR", "Messages that match this selector.")
    everything: bool = option("--all", "All pending and scheduled messages.")
    limit: int | None = option("N", "At most N messages.", min=1)
    detach: bool = DETACH
    yes: bool = YES

    def work(self, remote: Remote, operation: str, verb: str, name: str) -> None:
        """Ask for confirmation, and run an operation on the selected messages."""
        ids, selector = self.ids, self.selector
        if (bool(ids), selector is not None, self.everything).count(True) != 1:
            raise click.UsageError(
                "select messages by ID, by --filter or with --all", click.get_current_context()
            )
        if ids:
            which = counted(len(ids), "message") if len(ids) > 1 else f"message {ids[0]}"
        else:
            which = "all messages" if self.everything else f"all messages that match {selector}"
        confirm(f"{operation.capitalize()} {which} of queue {name}?", self.yes)
        bulk(
            remote,
            name,
            operation,
            f"{verb} queue {name}",
            Selection(selector, ids, self.limit, self.detach),
        )


chosen_messages = provided(Chosen)


@command(message)
def delete(name: str = QUEUE, chosen: Chosen = chosen_messages, remote: Remote = running) -> None:
    """Delete messages of a queue, by ID, by a selector, or all. They count as acknowledged.

    Messages in delivery are skipped. Ctrl-C cancels the work: deleted messages stay deleted.

    \b
    Examples:
      stompring message delete orders 7-1201 7-1202
      stompring message delete orders --filter "colour = 'red'" --limit 100 --yes
      stompring message delete orders --all --yes
    """
    chosen.work(remote, "remove", "deleted from", name)


@command(message)
def expire(name: str = QUEUE, chosen: Chosen = chosen_messages, remote: Remote = running) -> None:
    """Expire messages of a queue now: each goes to the expiry address, if there is one.

    Messages in delivery are skipped. Ctrl-C cancels the work: expired messages stay expired.

    \b
    Examples:
      stompring message expire orders 7-1201
      stompring message expire orders --filter "day < 20" --yes
    """
    chosen.work(remote, "expire", "expired in", name)


@command(message)
def deliver(name: str = QUEUE, message_id: str = ID, remote: Remote = running) -> None:
    """Deliver a scheduled message now. If it recurs, a copy is delivered, and the schedule continues.

    \b
    Examples:
      stompring message deliver orders 7-1201
    """
    remote.report(
        remote.post("queues", name, "scheduled", message_id, "deliver"),
        f"message {message_id} of queue {name} is due",
    )


# ---- files


@command(message)
def download(
    name: str = QUEUE,
    file: str = argument("FILE", type=click.Path(dir_okay=False)),
    selector: str | None = FILTER,
    replace: bool = option("Overwrite FILE if it exists."),
    remote: Remote = running,
) -> None:
    """Write the messages of a queue to FILE as JSON lines, compressed if FILE ends in .gz; - is standard output.

    Nothing changes in the queue. Ctrl-C leaves no file.

    \b
    Examples:
      stompring message download DLQ dead.jsonl.gz
      stompring message download orders - --filter "colour = 'red'" | head -1
    """
    if file != "-" and Path(file).exists() and not replace:
        raise CommandFailed(f"{file} exists; use --replace to overwrite it")
    answer = remote.open("GET", ("queues", name, "export"), query={"filter": selector})
    count = 0
    last = b"\n"
    with _writing(file) as stream, progress(f"download {name}") as step:
        for piece in remote.stream(partial(answer.read, CHUNK)):
            stream.write(piece)
            count += piece.count(b"\n")
            last = piece[-1:]
            step(count, None)
        if last != b"\n":
            raise CommandFailed(f"download of queue {name} is incomplete: the last line has no end")
    if not remote.json:
        click.echo(printable(f"{counted(count, 'line')} of queue {name} written to {file}"), err=file == "-")
    elif file != "-":
        echo_json({"file": file, "lines": count})


@command(message)
def upload(
    name: str = QUEUE,
    file: str = argument("FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True)),
    skip: int = option("N", "Skip the first N lines: resume.", default=0, show_default=False, min=0),
    remote: Remote = running,
) -> None:
    """Add the messages of FILE to a queue; - is standard input.

    FILE has the format of "message download". Its lines are sent in requests of at most 512 KiB. The broker imports
    all lines of a request or none. Ctrl-C or an invalid line ends the command, which then prints the number of
    imported lines; --skip with that number continues.

    \b
    Examples:
      stompring message upload orders dead.jsonl.gz
      stompring message upload orders dead.jsonl --skip 2000
    """
    done = skip
    imported = 0
    try:
        with _lines(file) as lines, progress(f"upload {name}") as step:
            for group, size in _groups(lines, skip):
                kind = {"Content-Type": "application/x-ndjson"}
                answer = remote.json_of(remote.open("POST", ("queues", name, "import"), group, headers=kind))
                done += size
                imported += answer["imported"]
                step(done, None)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted after {counted(imported, 'message')}; the request under way may have been imported: "
            f"check the queue, then continue with --skip {done}"
        ) from None
    except CommandFailed as fault:
        if fault.exit_code == USAGE:
            raise
        line = getattr(fault, "problem", {}).get("line")
        where = f"line {done + line}: " if isinstance(line, int) else ""
        unknown = "; the request under way may have been imported" if fault.exit_code == UNREACHABLE else ""
        raise CommandFailed(
            f"{where}{fault.message}; {counted(imported, 'message')} imported{unknown}; continue with --skip {done}",
            fault.exit_code,
        ) from None
    text = f"{counted(imported, 'message')} of {file} added to queue {name}"
    remote.report({"imported": imported, "lines": done}, text)


@contextmanager
def _lines(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with gzip.open(file, "rb") if file.endswith(".gz") else open(file, "rb") as stream:
            yield stream  # type: ignore[misc]  # a GzipFile reads as any stream
    except (OSError, EOFError) as fault:
        raise CommandFailed(f"cannot read {file}: {getattr(fault, 'strerror', None) or fault}") from None


def _groups(lines: IO[bytes], skip: int) -> Iterator[tuple[bytes, int]]:
    """Yield groups of lines with at most `UPLOAD_SIZE` bytes, and the number of lines in each group.

    A longer line is a group of its own.
    """
    group: list[bytes] = []
    size = 0
    for line in islice(lines, skip, None):
        if not line.endswith(b"\n"):
            line += b"\n"
        if group and size + len(line) > UPLOAD_SIZE:
            yield b"".join(group), len(group)
            group, size = [], 0
        group.append(line)
        size += len(line)
    if group:
        yield b"".join(group), len(group)
