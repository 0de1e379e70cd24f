"""``stompring lake view`` and ``lake views``: typed columns of bodies and headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stompring.cli import lake_option

if TYPE_CHECKING:
    from stompring.pipeline.lake.lake import Lake
    from stompring.pipeline.lake.views import Definition, View

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("name")
@lake_option.where
@click.option(
    "--address",
    multiple=True,
    metavar="PATTERN",
    help="The messages of these addresses; * is one word, # any number of them. May be given several times.",
)
@click.option("--where", metavar="SELECTOR", help="Of these, only messages that a selector is true for.")
@click.option(
    "--header",
    multiple=True,
    metavar="NAME[:TYPE]",
    help="A column of a header: string, int, long, double, boolean, date or timestamp.  [default type: string]",
)
@click.option("--json-schema", metavar="FILE", type=_FILE, help="Columns by the JSON Schema of the bodies.")
@click.option("--infer", is_flag=True, help="Columns by the bodies that are there now, which are JSON.")
@click.option(
    "--avro", metavar="FILE", type=_FILE, help="Columns by the Avro schema that the bodies were written with."
)
@click.option("--materialize", is_flag=True, help="Keep the rows in a table, to which each ingest adds.")
@click.option(
    "--refresh",
    is_flag=True,
    help="Of a materialized view: add the rows of new messages, and do nothing else.",
)
@click.option("--drop", is_flag=True, help="Delete the view instead, with its table.")
@lake_option.without_spark
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
    """Make a view NAME of messages, with columns of their bodies and headers. Needs no Java.

    \b
    stompring lake view orders --lake lake --address orders.# --json-schema order.json --header region
    stompring lake sql --lake lake "select region, sum(price) from orders group by 1"
    """
    from stompring.pipeline.lake.views import Views

    found = lake_option.existing(lake)
    known = Views(found)
    if refresh or drop:
        if (refresh and drop) or address or where or header or json_schema or infer or avro or materialize:
            raise click.UsageError("--refresh and --drop go alone with a name")
        if drop:
            known.drop(name)
            click.echo(f"dropped {name}")
        else:
            _refresh(known.named(name))
        return
    if not address:
        raise click.UsageError("--address is needed: of which messages the view is")
    if sum((json_schema is not None, infer, avro is not None)) > 1:
        raise click.UsageError("only one of --json-schema, --infer and --avro")
    definition = _definition(found, name, address, where, header, json_schema, infer, avro, materialize)
    made = known.create(definition)
    for column, type_ in definition.shown():
        click.echo(f"  {column}  {type_}")
    for column, origin, _ in definition.columns():
        if column != origin.removeprefix("header ").removeprefix("/"):
            click.echo(f"{column} is {origin}, whose own name is taken", err=True)
    if materialize:
        rows, bad = made.counts()
        click.echo(f"{name}: {rows:,} rows, {bad:,} of them did not fit (column _bad)")


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
) -> Definition:
    from stompring.pipeline.lake.schemas import BadSchema, from_avro, from_json_schema
    from stompring.pipeline.lake.views import HEADER_TYPES, Definition

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
    addresses = lake_option.patterns(address)
    fields: list[dict[str, Any]] = []
    schema = None
    try:
        if json_schema is not None:
            fields = from_json_schema(json_schema.read_bytes())
        elif avro is not None:
            text = avro.read_bytes()
            fields, schema = from_avro(text), text.decode()
    except BadSchema as reason:
        raise click.ClickException(f"{json_schema or avro}: {reason}") from None
    if infer:
        fields = _infer(lake, addresses)
    return Definition(name, addresses, where, tuple(headers), tuple(fields), schema, materialize)


def _infer(lake: Lake, addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    from stompring.pipeline.lake.schemas import Inference
    from stompring.pipeline.lake.views import bodies

    seen = Inference()
    for body in bodies(lake.tables["messages"], addresses):
        seen.add(body)
    fields, notes = seen.fields()
    for note in notes:
        click.echo(f"wider: {note}", err=True)
    if seen.bad:
        click.echo(f"{seen.bad:,} of {seen.bodies:,} bodies are no JSON objects", err=True)
    return fields


def _refresh(view: View) -> None:
    from stompring.pipeline.lake.views import ViewError

    if not view.definition.materialized:
        raise ViewError(f"{view.name} has no table to refresh: it is always as the messages are")
    done = view.refresh()
    whole = ", all anew" if done.whole else ""
    click.echo(f"{view.name}: {done.rows:,} rows more{whole}, {done.bad:,} of them did not fit (column _bad)")


@click.command()
@lake_option.where
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of a text.")
@lake_option.without_spark
def views(lake: str, as_json: bool) -> None:
    """Show the views of a lake and their columns. Needs no Java."""
    from stompring.pipeline.lake.views import Views

    told: dict[str, Any] = {}
    for each in Views(lake_option.existing(lake)).every():
        one = each.definition
        told[each.name] = {
            "addresses": list(one.addresses),
            "where": one.where,
            "materialized": one.materialized,
            "columns": dict(one.shown()),
        }
        if one.materialized:
            rows, bad = each.counts()
            told[each.name] |= {"rows": rows, "bad": bad}
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    for name, about in told.items():
        counts = f": {about['rows']:,} rows, {about['bad']:,} did not fit" if about["materialized"] else ""
        where = f" where {about['where']}" if about["where"] else ""
        click.echo(f"{name} of {', '.join(about['addresses'])}{where}{counts}")
        for column, type_ in about["columns"].items():
            click.echo(f"  {column}  {type_}")
