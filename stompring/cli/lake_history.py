"""``stompring lake history`` and ``lake restore``."""

from __future__ import annotations

import json

import click

from stompring.cli import lake_option


@click.command()
@lake_option.where
@click.option(
    "--table",
    type=click.Choice(["messages", "events", "samples", "all"]),
    default="messages",
    show_default=True,
    help="Whose versions: those of 'messages' are the versions of the lake.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest of these.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line in place of a text.")
@lake_option.without_spark
def history(lake: str, table: str, limit: int | None, as_json: bool) -> None:
    """Show the versions of a lake, the newest first: their times, and what made them. Needs no Java.

    --version and --as-of of other commands read the lake as it was then.
    """
    from stompring.pipeline.lake.history import commits, moment

    found = lake_option.existing(lake)
    chosen = list(found.tables.values()) if table == "all" else [found.tables[table]]
    every = [commit for each in chosen for commit in commits(each).values()]
    for one in sorted(every, key=lambda one: (one.time, one.table, one.version), reverse=True)[:limit]:
        told = {
            "table": one.table,
            "version": one.version,
            "time": moment(one.time),
            "operation": one.operation,
            "batch": one.batch,
            "rows": one.rows,
            "broker": one.broker,
            "restored": one.restored,
        }
        if as_json:
            click.echo(json.dumps(told))
            continue
        more = "" if one.batch is None else f"batch {one.batch} of {one.broker}"
        more += "" if one.rows is None else f", {one.rows:,} rows"
        more += "" if one.restored is None else f"version {one.restored}"
        click.echo(f"{one.table}  {one.version}  {told['time']}  {one.operation}  {more}".rstrip())


@click.command()
@lake_option.where
@lake_option.at
@lake_option.without_spark
def restore(lake: str, version: int | None, as_of: str | None) -> None:
    """Let a lake be as it was at a version or a time. Needs no Java.

    What was ingested since is ingested again by the next 'lake ingest', as far as the broker still has it. The versions
    in between stay, and can be restored too, until 'lake vacuum' deletes their files.
    """
    found = lake_option.existing(lake)
    with found.locked():
        found.migrate()
        versions = lake_option.versions(found, version, as_of)
        if versions is None:
            raise click.UsageError("--version N or --as-of TIME is missing: what is to be restored")
        found.restore(versions)
        found.migrate()
    for name, each in versions.items():
        click.echo(f"{name}: as it was at version {each}")
