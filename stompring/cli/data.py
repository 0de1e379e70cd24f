"""The commands ``stompring data print``, ``verify``, ``export`` and ``import``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.machine import DataDirectory, data_directory
from stompring.settings.model import BrokerConfiguration, camel_case, queue_defaults

from .options import JSON_OBJECT, argument, command, option, provided
from .output import (
    DEFAULT,
    CommandFailed,
    aligned,
    byte_progress,
    counted,
    echo_json,
    existing,
    warn,
)
from .remote import ServerOptions, server_options

if TYPE_CHECKING:
    from stompring.store.verification import Summary

# The functions import the store: an import at the top of this module would delay help and the other commands.


@click.group()
def data() -> None:
    """Inspect, export and import the data directory of a broker.

    The directory is the one in broker.xml, or --data DIR. See docs/data.md.

    \b
    Examples:
      stompring data print --data /var/lib/stompring/data
      stompring data export backup.jsonl.gz
    """


CONFIG = option("FILE", f"The broker.xml with the data directories.  [default: {DEFAULT}]")
DATA = option("DIR", "The data directory, as for 'stompring run'.")


def configuration(config: str | None, data: str | None) -> BrokerConfiguration:
    """The configuration in broker.xml; the default one if the options only name a data directory."""
    if config is None and data is not None:
        return BrokerConfiguration()
    return read_broker_xml(existing(config))


@provided
def the_directory(data: str | None = DATA, config: str | None = CONFIG) -> DataDirectory:
    """The data directory that the options name."""
    return data_directory(configuration(config, data), data)


@command(data, "print")
def print_data(directory: DataDirectory = the_directory, as_json: bool = JSON_OBJECT) -> None:
    """Show the contents of a data directory.

    Prints its files with their live messages, its addresses and queues with their attributes, and the number of
    messages in each queue. Only durable messages in durable queues are counted: these survive a restart. Nothing is
    changed; a broker may be running. Damage is skipped; 'stompring data verify' reports it.

    \b
    Examples:
      stompring data print
      stompring data print --data /var/lib/stompring/data --json
    """
    from stompring.store.inspection import DirectoryContents, Snapshot, ignore
    from stompring.store.verification import summarize

    with Snapshot(directory) as snapshot, byte_progress("reading", snapshot.bytes) as step:
        summary = summarize(DirectoryContents(snapshot, ignore, step))
    if as_json:
        echo_json(summary.fields(), ascii=True)
    else:
        for line in lines(summary):
            click.echo(line)


def lines(summary: Summary) -> Iterator[str]:
    """Format the summary of a data directory as lines of text."""
    yield f"{summary.root}: {counted(summary.messages, 'message', str)}, {counted(len(summary.queues), 'queue', str)}"
    if summary.running:
        yield "a broker is running: this is a snapshot"
    yield ""
    yield from _table(
        ("journal", "bytes", "records", "live messages", "live bytes", ""),
        [
            (
                each.file,
                each.bytes,
                each.records,
                each.live_messages,
                each.live_bytes,
                "" if each.sealed else "open",
            )
            for each in summary.segments
        ],
    )
    yield from _table(
        ("paging", "address", "pages", "bytes", "messages", "live", "not durable"),
        [
            (
                each.folder,
                each.address,
                each.pages,
                each.bytes,
                each.messages,
                each.live_messages,
                each.volatile_messages,
            )
            for each in summary.pages
        ],
    )
    yield from _table(
        ("address", "routing types"),
        [(each.name, " ".join(sorted(each.routing_types)) + _flags(each)) for each in summary.addresses],
    )
    yield from _table(
        ("queue", "address", "messages", "paged", "scheduled", "delivered", "attributes"),
        [
            (
                each.queue.name,
                each.queue.address,
                each.message_count,
                each.paged_count,
                each.scheduled_count,
                each.delivered_count,
                " ".join([each.queue.attributes["routing_type"], *_attributes(each.queue.fields())]),
            )
            for each in summary.queues
        ],
    )
    yield from _table(
        ("address", "duplicate ids"), [(each.address, each.count) for each in summary.duplicate_ids]
    )
    for path in summary.set_aside:
        yield f"set aside because of damage: {path}"


#: Default values of queue options. The text shows only attributes with other values.
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
        if name in DEFAULTS or value is not False:
            yield name if value is True else f"{name}={json.dumps(value)}"


def _flags(address: object) -> str:
    return "".join(
        f" {camel_case(name)}" for name in ("auto_created", "configured", "paused") if getattr(address, name)
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Format a table with numbers aligned to the right. Yields nothing if there are no rows."""
    if not rows:
        return
    texts = [[str(cell) for cell in row] for row in rows]
    yield from aligned([heads, *texts], [isinstance(cell, int) for cell in rows[0]])
    yield ""


@command(data)
def verify(directory: DataDirectory = the_directory, as_json: bool = JSON_OBJECT) -> None:
    """Check a data directory for damage.

    Checks every record, block and reference between records. Nothing is changed. Each finding is one line,
    FILE:POSITION: TEXT. The exit status is 1 if there are findings.

    A broker may be running; incomplete records that it is writing are not reported. Without a broker, a truncated
    record at the end of the newest file is reported: the broker was killed, and its next start removes that record.

    \b
    Examples:
      stompring data verify
      stompring data verify --data /var/lib/stompring/data --json
    """
    from stompring.store.inspection import Snapshot
    from stompring.store.verification import Verification

    with Snapshot(directory) as snapshot, byte_progress("verifying", 2 * snapshot.bytes) as step:
        found = Verification(snapshot, step)
    if as_json:
        echo_json(found.fields(), ascii=True)
    else:
        for finding in found.findings:
            click.echo(str(finding))
        for note in (*found.notes, found.summary()):
            warn(note)
    if found.findings:
        raise SystemExit(1)


@command(data, "export")
def export_data(
    file: Path,
    directory: DataDirectory = the_directory,
    replace: bool = option("Overwrite FILE if it exists."),
    as_json: bool = JSON_OBJECT,
) -> None:
    """Write addresses, queues and messages of a data directory to FILE.

    FILE has one JSON object per line and is compressed if its name ends in .gz. Messages are exported with all their
    headers, delivery counts and due times. Only durable messages in durable queues are exported: these survive a
    restart. A broker may be running; the file is a snapshot.

    Damaged records are skipped and reported; the exit status is 1 if there are any.

    \b
    Examples:
      stompring data export backup.jsonl.gz
      stompring data export backup.jsonl.gz --data /var/lib/stompring/data --replace
    """
    from stompring.store.export import export
    from stompring.store.inspection import DirectoryContents, Snapshot

    if file.exists() and not replace:
        raise CommandFailed(f"{file} exists; use --replace to overwrite it")
    findings: list[str] = []

    def found(damaged: Path, position: int, text: str) -> None:
        findings.append(f"{damaged}:{position}: {text}")

    try:
        with Snapshot(directory) as snapshot, byte_progress("exporting", snapshot.bytes) as step:
            counts = export(DirectoryContents(snapshot, found, step), file, int(time.time() * 1000), found)
    except OSError as fault:
        raise CommandFailed(f"cannot write {fault.filename or file}: {fault.strerror}") from None
    if as_json:
        echo_json(
            {
                "file": str(file),
                "messages": counts["message"],
                "queues": counts["queue"],
                "addresses": counts["address"],
                "running": snapshot.running,
                "findings": findings,
            }
        )
    else:
        for finding in findings:
            warn(finding)
        running = " of a running broker" if snapshot.running else ""
        click.echo(
            f"exported {counted(counts['message'], 'message', str)}, {counted(counts['queue'], 'queue', str)}, "
            f"{counted(counts['address'], 'address', str)}{running} to {file}"
        )
    if findings:
        raise SystemExit(1)


@command(data, "import")
def import_data(
    file: Path = argument(exists=True),
    data: str | None = DATA,
    config: str | None = CONFIG,
    source: str = option(
        "--from",
        "Who wrote FILE: 'stompring data export', or 'artemis data exp' of Artemis.",
        exact=["stompring", "artemis-xml"],
        default="stompring",
    ),
    broker: str | None = option(
        "URL",
        "STOMP acceptor of the running broker: stomp://HOST:PORT, or stomp+ssl:// for TLS.  [default: that of the "
        "context, else from broker.xml]",
    ),
    options: ServerOptions = server_options,
    password_stdin: bool = option("Read the password from standard input."),
    again: bool = option("Import FILE again into a directory that it was imported into before."),
    as_json: bool = JSON_OBJECT,
) -> None:
    """Import the addresses, queues and messages of FILE into a broker.

    If no broker is running on the data directory, they are written into it with all their properties. Otherwise they
    are sent to the running broker over HTTP and STOMP, which loses some properties of messages (docs/data.md).

    Existing messages stay. An existing queue gets the attributes in FILE, and the messages of FILE after its own. To
    resume an interrupted import, run it again.

    With --from artemis-xml, FILE is the output of 'artemis data exp', compressed or not. It has only the address, the
    filter and the routing type of a queue: a missing queue is created as broker.xml describes it, an existing one is
    not changed (docs/tutorials/from-artemis.md).

    \b
    Examples:
      stompring data import backup.jsonl.gz
      stompring data import --from artemis-xml artemis-export.xml
      stompring data import backup.jsonl.gz --broker stomp://localhost:61613 --server http://localhost:8161
      stompring data import backup.jsonl.gz --context prod
    """
    from stompring.store.artemis_export import ArtemisExportReader
    from stompring.store.datadir import is_locked
    from stompring.store.export import ExportReader, InvalidExport

    from .data_import import OfflineImport, OnlineImport, online_import, transfer
    from .endpoint import FAILURES

    meant = (
        BrokerConfiguration()
        if options.context or (broker and options.server)
        else configuration(config, data)
    )
    directory = data_directory(meant, data)
    try:
        with (ArtemisExportReader if source == "artemis-xml" else ExportReader)(file) as reader:
            receiver: OfflineImport | OnlineImport
            if broker or options.server or options.context or is_locked(directory.root):
                receiver = online_import(meant, broker, options, password_stdin)
            elif meant.persistence_enabled:
                receiver = OfflineImport(directory, meant, again=again)
            else:
                raise CommandFailed(
                    f"{meant.file}: persistence-enabled is false: the broker has no data directory to import into"
                )
            with closing(receiver):
                count, before = transfer(reader, receiver)
                more: dict[str, dict[str, int]] = {}
                if isinstance(reader, ArtemisExportReader):
                    more = {"skipped": dict(reader.skipped), "javaBodies": dict(reader.java_bodies)}
                if as_json:
                    echo_json({"file": str(file), "messages": count, "earlier": before, **more})
                else:
                    _report(file, count, before, more)
                receiver.finish()
    except (InvalidExport, *FAILURES, CommandFailed) as fault:
        raise CommandFailed(str(fault)) from None


def _report(file: Path, count: int, before: int, more: dict[str, dict[str, int]]) -> None:
    for reason, number in more.get("skipped", {}).items():
        warn(f"skipped {counted(number, 'message', str)} {reason}")
    for kind, number in more.get("javaBodies", {}).items():
        warn(
            f"{counted(number, 'message', str)} of type {kind}: the body is in Artemis's own format, as STOMP clients "
            "of Artemis receive it"
        )
    earlier = f", {before} of them by an earlier, interrupted import" if before else ""
    click.echo(f"imported {counted(count, 'message', str)} of {file}{earlier}")
