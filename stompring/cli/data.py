"""The commands ``stompring data print``, ``verify``, ``export`` and ``import``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stompring.cli import config_option
from stompring.errors import StoreError
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.data_directory import DataDirectory, data_directory
from stompring.settings.model import BrokerConfiguration, queue_defaults
from stompring.settings.options import camel_case

if TYPE_CHECKING:
    from stompring.cli.data_import_online import Endpoints, OnlineImport
    from stompring.store.summary import QueueCounts, Summary


def directory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The two options."""
    config = click.option(
        "--config",
        metavar="FILE",
        help=f"The broker.xml that says where the data is.  [default: {config_option.DEFAULT}]",
    )
    data = click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="The data directory itself, as for 'stompring run'.",
    )
    return data(config(command))


def configuration(config: str | None, data: str | None) -> BrokerConfiguration:
    """The configuration that is meant; an empty one where a data directory is named and no broker.xml."""
    if config is None and data is not None:
        return BrokerConfiguration()
    return read_broker_xml(config_option.existing(config))


def resolve_directory(config: str | None, data: str | None) -> DataDirectory:
    """The data directory that the options name."""
    return data_directory(configuration(config, data), data)


#: Seconds between two looks of the bar: drawing it costs more than reading a thousand records.
REDRAW_INTERVAL = 0.1


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of each step; ``length`` is what they add up to."""
    if not sys.stderr.isatty() or length <= 0:
        yield _nothing
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        waiting, shown = 0, 0.0

        def step(size: int) -> None:
            nonlocal waiting, shown
            waiting += size
            now = time.monotonic()
            if now - shown >= REDRAW_INTERVAL:
                shown = now
                bar.update(waiting)
                waiting = 0

        yield step
        bar.update(waiting)


def _nothing(size: int) -> None:
    """Nobody looks."""


@click.command("print")
@directory_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of a text.")
def print_data(config: str | None, data: str | None, as_json: bool) -> None:
    """Show what a data directory holds.

    Its files with what is live in them, its addresses and queues with all their attributes, and how many messages
    each queue has. Only what is durable is counted: that is what a broker finds there when it starts. Nothing is
    changed, and a broker may be running on it. Damage is passed over here; 'stompring data verify' tells of it.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.store.inspection import DirectoryContents, Snapshot, ignore
    from stompring.store.summary import summarize

    try:
        with (
            Snapshot(resolve_directory(config, data)) as snapshot,
            progress("reading", snapshot.bytes) as step,
        ):
            summary = summarize(DirectoryContents(snapshot, ignore, step))
    except StoreError as fault:
        raise click.ClickException(str(fault)) from None
    if as_json:
        click.echo(json.dumps(summary.fields(), indent=2))
    else:
        for line in lines(summary):
            click.echo(line)


def lines(summary: Summary) -> Iterator[str]:
    """The same for people."""
    yield f"{summary.root}: {_count(summary.messages, 'message')}, {_count(len(summary.queues), 'queue')}"
    if summary.running:
        yield "a broker is running on it: this is how it was a moment ago"
    yield ""
    yield from _table(
        ("journal", "bytes", "records", "live messages", "live bytes", ""),
        [
            (each.file, each.bytes, each.records, each.live, each.live_bytes, "" if each.sealed else "open")
            for each in summary.segments
        ],
    )
    yield from _table(
        ("paging", "address", "pages", "bytes", "messages", "live", "not durable"),
        [
            (each.folder, each.address, each.pages, each.bytes, each.written, each.live, each.lost)
            for each in summary.pages
        ],
    )
    yield from _table(
        ("address", "routing types"),
        [(each.name, " ".join(sorted(each.routing_types)) + _flags(each)) for each in summary.addresses],
    )
    yield from _table(
        ("queue", "address", "messages", "paged", "scheduled", "delivered", "attributes"),
        [_queue_row(each) for each in summary.queues],
    )
    yield from _table(
        ("address", "duplicate ids"),
        [(each.address, each.count) for each in summary.duplicate_ids],
    )
    for path in summary.set_aside:
        yield f"set aside because it was damaged: {path}"


def _queue_row(counts: QueueCounts) -> Sequence[object]:
    queue = counts.queue
    shown = [queue.attributes["routing_type"], *_attributes(queue.fields())]
    return (
        queue.name,
        queue.address,
        counts.messages,
        counts.paged,
        counts.scheduled,
        counts.delivered,
        " ".join(shown),
    )


#: Values of queue options that are not shown.
DEFAULTS = {camel_case(name): value for name, value in queue_defaults().items()}


def _attributes(fields: dict[str, object]) -> Iterator[str]:
    configured = fields.pop("asConfigured")
    if isinstance(configured, dict):
        fields["asConfigured"] = {
            name: value for name, value in configured.items() if value != fields[name]
        } or None
    for name, value in fields.items():
        if name in ("name", "address", "routingType") or value == DEFAULTS.get(name, -1) or value is None:
            continue
        if name not in DEFAULTS and value is False:
            continue
        yield name if value is True else f"{name}={json.dumps(value)}"


def _flags(address: object) -> str:
    names = {"auto_created": "autoCreated", "configured": "configured", "paused": "paused"}
    return "".join(f" {shown}" for name, shown in names.items() if getattr(address, name))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Columns as wide as they must be; numbers to the right. Nothing where there are no rows."""
    if not rows:
        return
    texts = [[str(cell) for cell in row] for row in rows]
    right = [isinstance(cell, int) for cell in rows[0]]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    for line in (heads, *texts):
        cells = zip(line, widths, right, strict=True)
        yield "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in cells
        ).rstrip()
    yield ""


@click.command()
@directory_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of lines.")
@click.pass_context
def verify(context: click.Context, config: str | None, data: str | None, as_json: bool) -> None:
    """Look for damage in a data directory.

    Every record, block and reference from one record to another is checked, and nothing is changed. Each finding is
    one line, FILE:POSITION: what. The exit status is 1 where there is any.

    A broker may be running on it. What it is just writing is no finding then; without one, a record that is cut off
    at the end of the newest file is: the broker was killed, and its next start cuts that off.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.store.inspection import Snapshot
    from stompring.store.verification import Verification

    try:
        with (
            Snapshot(resolve_directory(config, data)) as snapshot,
            progress("verifying", 2 * snapshot.bytes) as step,
        ):
            found = Verification(snapshot, step)
    except StoreError as fault:
        raise click.ClickException(str(fault)) from None
    if as_json:
        click.echo(json.dumps(found.fields(), indent=2))
    else:
        for finding in found.findings:
            click.echo(str(finding))
        for note in (*found.notes, found.summary()):
            click.echo(note, err=True)
    if found.findings:
        context.exit(1)


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@directory_options
@click.option("--replace", is_flag=True, help="Write FILE even where it exists already.")
@click.pass_context
def export_data(
    context: click.Context, file: Path, config: str | None, data: str | None, replace: bool
) -> None:
    """Write addresses, queues and messages of a data directory to FILE.

    FILE has one JSON object a line, and is gzipped where its name ends in .gz. Messages come with all their headers,
    delivery counts and due times. What is exported is what a broker finds when it starts: durable messages in durable
    queues. A broker may be running on the directory; it goes on undisturbed, and the file shows one moment of it.

    Where something cannot be read the rest is exported, each finding is told, and the exit status is 1.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.store.export import export
    from stompring.store.inspection import DirectoryContents, Snapshot

    if file.exists() and not replace:
        raise click.ClickException(f"{file} exists already; --replace writes over it")
    findings: list[str] = []

    def found(damaged: Path, position: int, text: str) -> None:
        findings.append(f"{damaged}:{position}: {text}")

    try:
        with (
            Snapshot(resolve_directory(config, data)) as snapshot,
            progress("exporting", snapshot.bytes) as step,
        ):
            counts = export(DirectoryContents(snapshot, found, step), file, int(time.time() * 1000), found)
    except StoreError as fault:
        raise click.ClickException(str(fault)) from None
    except OSError as fault:
        raise click.ClickException(f"cannot write {fault.filename or file}: {fault.strerror}") from None
    for finding in findings:
        click.echo(finding, err=True)
    running = ", of a running broker" if snapshot.running else ""
    click.echo(
        f"messages {counts['message']}, queues {counts['queue']}, addresses {counts['address']}{running}: "
        f"all in {file}"
    )
    if findings:
        context.exit(1)


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@directory_options
@click.option(
    "--stomp",
    metavar="[ssl://]HOST:PORT",
    help="Where the running broker speaks STOMP, if the broker.xml does not tell.",
)
@click.option("--http", metavar="URL", help="Where its HTTP is.")
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificates (PEM) to check those of the broker against, where it speaks TLS.  [default: the system's]",
)
@click.option(
    "--user", metavar="NAME", help="Who logs in there, where security is on; a password is asked for."
)
@click.option(
    "--password-stdin", is_flag=True, help="Take the password from standard input instead of asking."
)
@click.option(
    "--again", is_flag=True, help="Import FILE once more into a directory that has had all of it before."
)
def import_data(
    file: Path,
    config: str | None,
    data: str | None,
    stomp: str | None,
    http: str | None,
    ca_file: Path | None,
    user: str | None,
    password_stdin: bool,
    again: bool,
) -> None:
    """Bring the addresses, queues and messages of FILE into a broker.

    Where no broker runs on the data directory, they are written there, with everything that FILE says of them. Into
    one that runs they go over HTTP and STOMP: then messages are new ones in a few respects (docs/data.md).

    What is there already stays. A queue that is there gets the attributes that FILE says, and the messages of FILE
    after its own. An import that was interrupted is simply begun again: it goes on where it stopped.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.cli.data_import_offline import OfflineImport
    from stompring.cli.data_import_online import Endpoints
    from stompring.cli.data_transfer import transfer
    from stompring.store.datadir import is_locked
    from stompring.store.export import InvalidExport

    meant = BrokerConfiguration() if stomp and http else configuration(config, data)
    directory = data_directory(meant, data)
    try:
        if stomp or http or is_locked(directory.root):
            doors = Endpoints(stomp, http, ca_file)
            with _running(meant, doors, _login(user, password_stdin)) as running:
                _report(file, *transfer(file, running))
                running.finish()
            return
        if not meant.persistence_enabled:
            raise click.ClickException(
                f"{meant.file} says that the broker keeps nothing: persistence-enabled is false"
            )
        stopped = OfflineImport(directory, meant, again=again)
        try:
            _report(file, *transfer(file, stopped))
            stopped.finish()
        finally:
            stopped.close()
    except (StoreError, InvalidExport) as fault:
        raise click.ClickException(str(fault)) from None


def _report(file: Path, count: int, before: int) -> None:
    earlier = f", {before} of them by an earlier import that was interrupted" if before else ""
    click.echo(f"all {count} messages of {file} are there{earlier}")


def _running(meant: BrokerConfiguration, doors: Endpoints, login: tuple[str, str] | None) -> OnlineImport:
    from stompring.cli.data_import_online import ManagementApi, OnlineImport
    from stompring.cli.data_stomp import StompConnection

    doors = doors.completed(meant)
    host, port, secure = doors.stomp_place()
    context = doors.context()
    tls = context if secure else None
    api = ManagementApi(doors.http_root(), login, context)
    return OnlineImport(api, lambda client: StompConnection(host, port, client, login, tls))


def _login(user: str | None, password_stdin: bool) -> tuple[str, str] | None:
    if user is None:
        if password_stdin:
            raise click.UsageError("--password-stdin needs --user NAME")
        return None
    if password_stdin:
        return user, sys.stdin.readline().rstrip("\r\n")
    return user, str(click.prompt(f"Password of {user}", hide_input=True, err=True))


@click.group()
def data() -> None:
    """Look at the data directory of a broker, and take what is in it elsewhere.

    The directory is the one that the broker.xml names, or --data DIR. docs/data.md tells more.
    """


data.add_command(print_data)
data.add_command(verify)
data.add_command(export_data)
data.add_command(import_data)
