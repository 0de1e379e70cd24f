"""``stompring lake tables``, ``sql``, ``view``, ``views``, ``compact``, ``vacuum``, ``history`` and ``restore``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import lake_options
from .output import echo_json

if TYPE_CHECKING:
    from stompring.pipeline.lake.lake import Lake
    from stompring.pipeline.lake.views import View, ViewDefinition


@click.command()
@lake_options.lake_option
@click.option(
    "--target-size",
    type=click.IntRange(min=1 << 20),
    default=128 << 20,
    show_default=True,
    help="Approximate size of the compacted files in bytes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@lake_options.without_spark
def compact(lake: str, target_size: int, as_json: bool) -> None:
    """Compact small files into large ones.

    Readers see either the small files or the large ones. 'lake vacuum' deletes the small files later. Needs no Java.

    \b
    Examples:
      stompring lake compact --lake lake
    """
    from stompring.pipeline.lake.views import Views

    found = lake_options.existing_lake(lake)
    done: dict[str, dict[str, Any]] = {"tables": {}, "views": {}}

    def compacted(kind: str, name: str, made: int, gone: int) -> None:
        done[kind][name] = {"removed": gone, "added": made}
        if not as_json:
            _show_compacted(f"view {name}" if kind == "views" else name, made, gone)

    with found.rewriting():
        for name, table in found.tables.items():
            compacted("tables", name, *table.compact(target_size))
    for view in Views(found).materialized():
        compacted("views", view.name, *view.compact(target_size))
    if as_json:
        echo_json(done)


def _show_compacted(name: str, made: int, gone: int) -> None:
    click.echo(f"{name}: compacted {gone:,} files into {made:,}" if gone else f"{name}: nothing to compact")


@click.command()
@lake_options.lake_option
@click.option(
    "--hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    help="Minimum age of unreferenced files: queries and replays that began earlier may still read them.",
)
@click.option("--dry-run", is_flag=True, help="List the files, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@lake_options.without_spark
def vacuum(lake: str, hours: int, dry_run: bool, as_json: bool) -> None:
    """Delete files that no table references any more, including those of killed ingests. Needs no Java.

    \b
    Examples:
      stompring lake vacuum --lake lake --dry-run
    """
    from stompring.pipeline.lake.views import Views

    found = lake_options.existing_lake(lake)
    done: dict[str, dict[str, Any]] = {"tables": {}, "views": {}}

    def deleted(kind: str, name: str, gone: list[str]) -> None:
        done[kind][name] = gone
        if not as_json:
            _show_deleted(f"view {name}" if kind == "views" else name, gone, dry_run)

    with found.locked():  # the files of a batch that is under way are named by no commit yet
        if not dry_run:
            found.remove_copies()
        for name, table in found.tables.items():
            deleted("tables", name, table.vacuum(hours, dry_run=dry_run))
        for view in Views(found).materialized():
            deleted("views", view.name, view.vacuum(hours, dry_run=dry_run))
    if as_json:
        echo_json({"dryRun": dry_run, **done})


def _show_deleted(name: str, gone: list[str], dry_run: bool) -> None:
    for path in gone if dry_run else ():
        click.echo(f"  {path}")
    click.echo(f"{name}: {len(gone):,} files {'would be ' if dry_run else ''}deleted")


@click.command()
@lake_options.lake_option
@click.option(
    "--table",
    type=click.Choice(["messages", "events", "samples", "all"]),
    default="messages",
    show_default=True,
    help="Table; the versions of 'messages' are the versions of the lake.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of versions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@lake_options.without_spark
def history(lake: str, table: str, limit: int | None, as_json: bool) -> None:
    """List the versions of a lake, newest first, with their times and operations. Needs no Java.

    --version and --as-of of other commands read the lake as of a version or a time.

    \b
    Examples:
      stompring lake history --lake lake --limit 10
    """
    from stompring.pipeline.lake.delta import commits, iso_time

    found = lake_options.existing_lake(lake)
    selected = list(found.tables.values()) if table == "all" else [found.tables[table]]
    every = [commit for each in selected for commit in commits(each).values()]
    for one in sorted(every, key=lambda one: (one.time, one.table, one.version), reverse=True)[:limit]:
        document = {
            "table": one.table,
            "version": one.version,
            "time": iso_time(one.time),
            "operation": one.operation,
            "batch": one.batch,
            "rows": one.rows,
            "broker": one.broker,
            "restored": one.restored,
        }
        if as_json:
            click.echo(json.dumps(document))
            continue
        more = "" if one.batch is None else f"batch {one.batch} of {one.broker}"
        more += "" if one.rows is None else f", {one.rows:,} rows"
        more += "" if one.restored is None else f"version {one.restored}"
        click.echo(f"{one.table}  {one.version}  {document['time']}  {one.operation}  {more}".rstrip())


@click.command()
@lake_options.lake_option
@lake_options.version_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@lake_options.without_spark
def restore(lake: str, version: int | None, as_of: str | None, as_json: bool) -> None:
    """Restore a lake to a version or a time. Needs no Java.

    The next 'lake ingest' ingests later messages again, as far as the broker still has them. Later versions can be
    restored too, until 'lake vacuum' deletes their files.

    \b
    Examples:
      stompring lake restore --lake lake --version 12
    """
    found = lake_options.existing_lake(lake)
    with found.locked():
        found.complete_restore()
        versions = lake_options.selected_versions(found, version, as_of)
        if versions is None:
            raise click.UsageError("--version N or --as-of TIME is required")
        found.restore(versions)
    if as_json:
        echo_json({"versions": versions})
        return
    for name, each in versions.items():
        click.echo(f"{name}: restored to version {each}")


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("name")
@lake_options.lake_option
@click.option(
    "--address",
    multiple=True,
    metavar="PATTERN",
    help="Address pattern; * matches one word, # any number of words. Repeatable.",
)
@click.option("--where", metavar="SELECTOR", help="Selector: only messages that match it.")
@click.option(
    "--header",
    multiple=True,
    metavar="NAME[:TYPE]",
    help="Column from a header; types: string, int, long, double, boolean, date, timestamp.  [default type: string]",
)
@click.option("--json-schema", metavar="FILE", type=_FILE, help="Columns from a JSON Schema of the bodies.")
@click.option("--infer", is_flag=True, help="Columns inferred from the JSON bodies in the lake.")
@click.option("--avro", metavar="FILE", type=_FILE, help="Columns from the Avro schema of the bodies.")
@click.option(
    "--materialize", is_flag=True, help="Store the rows in a Delta table, to which each ingest adds."
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Add the rows of new messages to a materialized view.",
)
@click.option("--drop", is_flag=True, help="Delete the view and its table.")
@lake_options.without_spark
def view(
    name: str,
    lake: str,
    address: tuple[str, ...],
    where: str | None,
    header: tuple[str, ...],
    json_schema: Path | None,
    infer: bool,
    avro: Path | None,
    materialize: bool,
    refresh: bool,
    drop: bool,
) -> None:
    """Create a view NAME of messages, with typed columns from bodies and headers. Needs no Java.

    \b
    stompring lake view orders --lake lake --address orders.# --json-schema order.json --header region
    stompring lake sql --lake lake "select region, sum(price) from orders group by 1"

    \b
    Examples:
      stompring lake view orders --lake lake --address 'orders.#' --infer
      stompring lake view orders --lake lake --drop
    """
    from stompring.pipeline.lake.views import Views

    found = lake_options.existing_lake(lake)
    known = Views(found)
    if refresh or drop:
        if (refresh and drop) or address or where or header or json_schema or infer or avro or materialize:
            raise click.UsageError("--refresh and --drop take no other option than --lake")
        if drop:
            known.drop(name)
            click.echo(f"dropped {name}")
        else:
            _refresh(known.get(name))
        return
    if not address:
        raise click.UsageError("--address is required: the addresses of the view")
    if sum((json_schema is not None, infer, avro is not None)) > 1:
        raise click.UsageError("--json-schema, --infer and --avro cannot be combined")
    definition = _definition(found, name, address, where, header, json_schema, infer, avro, materialize)
    made = known.create(definition)
    for column, type_ in definition.shown():
        click.echo(f"  {column}  {type_}")
    for column, origin, _ in definition.columns():
        if column != origin.removeprefix("header ").removeprefix("/"):
            click.echo(f"column {column} is {origin}: that name is in use", err=True)
    if materialize:
        rows, bad = made.counts()
        click.echo(f"{name}: {rows:,} rows, {bad:,} of them not decoded (column _bad)")


def _definition(
    lake: Lake,
    name: str,
    address: tuple[str, ...],
    where: str | None,
    header: tuple[str, ...],
    json_schema: Path | None,
    infer: bool,
    avro: Path | None,
    materialize: bool,
) -> ViewDefinition:
    from stompring.pipeline.lake.views import (
        HEADER_TYPES,
        InvalidSchema,
        ViewDefinition,
        from_avro,
        from_json_schema,
    )

    headers = []
    for each in header:
        key, colon, type_ = each.rpartition(":")
        key, type_ = (key, type_) if colon else (each, "string")
        if not key or type_ not in HEADER_TYPES:
            raise click.BadParameter(
                f"must be NAME or NAME:TYPE with one of {', '.join(HEADER_TYPES)}, not {each!r}",
                param_hint="--header",
            )
        headers.append((key, HEADER_TYPES[type_]))
    addresses = lake_options.patterns(address)
    fields: list[dict[str, Any]] = []
    schema = None
    try:
        if json_schema is not None:
            fields = from_json_schema(json_schema.read_bytes())
        elif avro is not None:
            text = avro.read_bytes()
            fields, schema = from_avro(text), text.decode()
    except InvalidSchema as reason:
        raise click.ClickException(f"{json_schema or avro}: {reason}") from None
    if infer:
        fields = _infer(lake, addresses)
    return ViewDefinition(name, addresses, where, tuple(headers), tuple(fields), schema, materialize)


def _infer(lake: Lake, addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    from stompring.pipeline.lake.views import Inference, bodies

    seen = Inference()
    for body in bodies(lake.tables["messages"], addresses):
        seen.add(body)
    fields, notes = seen.fields()
    for note in notes:
        click.echo(f"mixed types: {note}", err=True)
    if seen.bad:
        click.echo(f"{seen.bad:,} of {seen.bodies:,} bodies are not JSON objects", err=True)
    return fields


def _refresh(view: View) -> None:
    from stompring.pipeline.lake.views import ViewError

    if not view.definition.materialized:
        raise ViewError(f"view {view.name} is not materialized: it has no table to refresh")
    done = view.refresh()
    whole = ", rebuilt" if done.whole else ""
    click.echo(
        f"{view.name}: added {done.rows:,} rows{whole}, {done.bad:,} of them not decoded (column _bad)"
    )


@click.command()
@lake_options.lake_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@lake_options.without_spark
def views(lake: str, as_json: bool) -> None:
    """List the views of a lake and their columns. Needs no Java.

    \b
    Examples:
      stompring lake views --lake lake
    """
    from stompring.pipeline.lake.views import Views

    document: dict[str, Any] = {}
    for each in Views(lake_options.existing_lake(lake)).every():
        one = each.definition
        document[each.name] = {
            "addresses": list(one.addresses),
            "where": one.where,
            "materialized": one.materialized,
            "columns": dict(one.shown()),
        }
        if one.materialized:
            rows, bad = each.counts()
            document[each.name] |= {"rows": rows, "bad": bad}
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for name, about in document.items():
        counts = f": {about['rows']:,} rows, {about['bad']:,} not decoded" if about["materialized"] else ""
        where = f" where {about['where']}" if about["where"] else ""
        click.echo(f"{name} of {', '.join(about['addresses'])}{where}{counts}")
        for column, type_ in about["columns"].items():
            click.echo(f"  {column}  {type_}")


@click.command()
@click.argument("query")
@lake_options.lake_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format; json prints one object per line.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of rows.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="Query engine and its SQL dialect; duckdb starts at once and needs no Java.",
)
@lake_options.version_options
@lake_options.with_spark
def sql(
    query: str,
    lake: str,
    format_: str,
    limit: int | None,
    engine: str,
    version: int | None,
    as_of: str | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Run a QUERY in SQL over the tables messages, events and samples and the views of a lake.

    \b
    stompring lake sql --lake lake "select queue, event, count(*) from events group by all order by 1, 2"

    \b
    Examples:
      stompring lake sql --lake lake "select count(*) from messages"
      stompring lake sql --lake lake --engine duckdb --format csv "select address, count(*) from messages group by 1"
    """
    found = lake_options.existing_lake(lake)
    versions = lake_options.selected_versions(found, version, as_of)
    if engine == "duckdb":
        if master is not None or conf:
            raise click.UsageError("--master and --conf require --engine spark")
        _by_duckdb(found, query, format_, limit, versions)
        return
    with lake_options.session(master, conf, found) as spark:
        found.register(spark, versions)
        frame = spark.sql(query)
        if limit is not None:
            frame = frame.limit(limit)
        _by_spark(frame, format_)


def _by_spark(frame: Any, format_: str) -> None:
    from stompring.pipeline.session import as_utc, json_rows, plain_value

    if format_ == "json":
        for row in json_rows(frame):
            click.echo(row)
        return
    rows = (list(map(plain_value, row)) for row in as_utc(frame).toLocalIterator())
    _show(frame.columns, rows, format_)


def _by_duckdb(
    lake: Lake, text: str, format_: str, limit: int | None, versions: Mapping[str, int] | None
) -> None:
    from stompring.pipeline.lake.duckdb_query import query

    with query(lake, text, limit, versions) as result:
        if format_ == "json":
            for document in result.objects():
                click.echo(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
            return
        _show(result.columns, result.rows(), format_)


def _show(columns: list[str], rows: Iterator[list[Any]], format_: str) -> None:
    """Rows as they come: those of a long result are never all in memory, but for a table's widths."""
    if format_ == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_plain_value(value) for value in row])
        return
    shown = [[_cell_text(value) for value in row] for row in rows]
    for line in _table(columns, shown):
        click.echo(line)
    click.echo(f"({len(shown)} {'row' if len(shown) == 1 else 'rows'})", err=True)


def _plain_value(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return _value_text(value)
    return json.dumps(value, default=_value_text) if isinstance(value, (dict, list)) else value


def _value_text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _cell_text(value: Any) -> str:
    """On one line, so that no message draws on a terminal."""
    text = "" if value is None else str(_plain_value(value))
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    lines = ["  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)).rstrip()]
    lines.append("  ".join("-" * width for width in widths))
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return lines


@click.command()
@lake_options.lake_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@lake_options.version_options
@lake_options.without_spark
def tables(lake: str, as_json: bool, version: int | None, as_of: str | None) -> None:
    """List the tables of a lake with rows, files and columns, and its brokers. Needs no Java.

    \b
    Examples:
      stompring lake tables --lake lake --json
    """
    found = lake_options.existing_lake(lake)
    versions = lake_options.selected_versions(found, version, as_of) or {}
    about = {name: table.about(versions.get(name)) for name, table in found.tables.items()}
    losses = found.losses()
    brokers = {
        name: {"identity": broker.identity, "data": broker.data} for name, broker in found.brokers().items()
    }
    if as_json:
        click.echo(json.dumps({"tables": about, "brokers": brokers, "losses": losses}, indent=2))
        return
    for name, document in about.items():
        click.echo(
            f"{name}: {document['rows']:,} rows in {document['files']:,} files, {document['bytes'] / 1e6:,.1f} MB, "
            f"version {document['version']}, {document['buckets']} buckets"
        )
        for column, type_ in document["columns"].items():
            click.echo(f"  {column}  {type_}")
    for name, one in brokers.items():
        click.echo(
            f"broker {name}: identity {one['identity'] or 'unknown'}, data directory {one['data'] or 'unknown'}"
        )
    for line in losses:
        click.echo(f"not ingested: {line}")
