"""``stompring data print``: what a data directory holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from stompring.cli.data_option import located, where
from stompring.cli.data_progress import progress
from stompring.errors import StoreError

if TYPE_CHECKING:
    from stompring.store.inspection_summary import QueueCounts, Summary


@click.command("print")
@where
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of a text.")
def print_data(config: str | None, data: str | None, as_json: bool) -> None:
    """Show what a data directory holds.

    Its files with what is live in them, its addresses and queues with all their attributes, and how many messages
    each queue has. Only what is durable is counted: that is what a broker finds there when it starts. Nothing is
    changed, and a broker may be running on it. Damage is passed over here; 'stompring data verify' tells of it.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.store.inspection_contents import Contents, ignore
    from stompring.store.inspection_files import Snapshot
    from stompring.store.inspection_summary import summarize

    try:
        with Snapshot(located(config, data)) as snapshot, progress("reading", snapshot.bytes) as step:
            summary = summarize(Contents(snapshot, ignore, step))
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


#: What goes without saying.
USUAL = {
    "durable": True,
    "enabled": True,
    "ringPolicy": "DISCARD",
    "consumersBeforeDispatch": 0,
}


def _attributes(fields: dict[str, object]) -> Iterator[str]:
    configured = fields.pop("asConfigured")
    if isinstance(configured, dict):
        fields["asConfigured"] = {
            name: value for name, value in configured.items() if value != fields[name]
        } or None
    for name, value in fields.items():
        if name in ("name", "address", "routingType") or value == USUAL.get(name, -1) or value is None:
            continue
        if name not in USUAL and value is False:
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
