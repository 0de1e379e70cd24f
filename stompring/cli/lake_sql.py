"""``stompring lake sql`` and ``lake tables``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from stompring.cli import lake_option

if TYPE_CHECKING:
    from stompring.pipeline.lake.lake import Lake


@click.command()
@click.argument("query")
@lake_option.where
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How rows are shown; json is one object a line.",
)
@click.option("--limit", type=click.IntRange(min=1), help="No more rows than these.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="What answers: duckdb needs no Java and begins at once. The SQL is that of the engine.",
)
@lake_option.at
@lake_option.with_spark
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
    """Show what a QUERY in SQL gives: over messages, events, samples and the views of the lake.

    \b
    stompring lake sql --lake lake "select queue, event, count(*) from events group by all order by 1, 2"
    """
    found = lake_option.existing(lake)
    versions = lake_option.versions(found, version, as_of)
    if engine == "duckdb":
        if master is not None or conf:
            raise click.UsageError("--master and --conf are for --engine spark")
        _by_duckdb(found, query, format_, limit, versions)
        return
    with lake_option.session(master, conf, found) as spark:
        found.register(spark, versions)
        frame = spark.sql(query)
        if limit is not None:
            frame = frame.limit(limit)
        _by_spark(frame, format_)


def _by_spark(frame: Any, format_: str) -> None:
    from stompring.pipeline.session import json_rows, plain_value, without_zones

    if format_ == "json":
        for row in json_rows(frame):
            click.echo(row)
        return
    rows = (list(map(plain_value, row)) for row in without_zones(frame).toLocalIterator())
    _show(frame.columns, rows, format_)


def _by_duckdb(
    lake: Lake, text: str, format_: str, limit: int | None, versions: Mapping[str, int] | None
) -> None:
    from stompring.pipeline.lake.duck import query

    with query(lake, text, limit, versions) as result:
        if format_ == "json":
            for told in result.objects():
                click.echo(json.dumps(told, ensure_ascii=False, separators=(",", ":")))
            return
        _show(result.columns, result.rows(), format_)


def _show(columns: list[str], rows: Iterator[list[Any]], format_: str) -> None:
    """Rows as they come: those of a long result are never all in memory, but for a table's widths."""
    if format_ == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_plain(value) for value in row])
        return
    shown = [[_shown(value) for value in row] for row in rows]
    for line in _table(columns, shown):
        click.echo(line)
    click.echo(f"({len(shown)} {'row' if len(shown) == 1 else 'rows'})", err=True)


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return _told(value)
    return json.dumps(value, default=_told) if isinstance(value, (dict, list)) else value


def _told(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _shown(value: Any) -> str:
    """On one line, so that no message draws on a terminal."""
    text = "" if value is None else str(_plain(value))
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in [columns, *rows]) for place in range(len(columns))]
    lines = ["  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)).rstrip()]
    lines.append("  ".join("-" * width for width in widths))
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return lines


@click.command()
@lake_option.where
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of a text.")
@lake_option.at
@lake_option.without_spark
def tables(lake: str, as_json: bool, version: int | None, as_of: str | None) -> None:
    """Show the tables of a lake: their rows, files and columns, and its brokers. Needs no Java."""
    found = lake_option.existing(lake)
    versions = lake_option.versions(found, version, as_of) or {}
    about = {name: table.about(versions.get(name)) for name, table in found.tables.items()}
    losses = found.losses()
    brokers = {
        name: {"identity": broker.identity, "data": broker.data} for name, broker in found.brokers().items()
    }
    if as_json:
        click.echo(json.dumps({"tables": about, "brokers": brokers, "losses": losses}, indent=2))
        return
    for name, told in about.items():
        click.echo(
            f"{name}: {told['rows']:,} rows in {told['files']:,} files, {told['bytes'] / 1e6:,.1f} MB, "
            f"version {told['version']}, {told['buckets']} buckets"
        )
        for column, type_ in told["columns"].items():
            click.echo(f"  {column}  {type_}")
    for name, one in brokers.items():
        click.echo(
            f"broker {name}: {one['identity'] or 'identity not known'}, at {one['data'] or 'a place not known'}"
        )
    for line in losses:
        click.echo(f"not ingested: {line}")
