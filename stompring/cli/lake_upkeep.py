"""``stompring lake compact`` and ``lake vacuum``."""

from __future__ import annotations

import click

from stompring.cli import lake_option


@click.command()
@lake_option.where
@click.option(
    "--target-size",
    type=click.IntRange(min=1 << 20),
    default=128 << 20,
    show_default=True,
    help="Bytes of the files that are made, about.",
)
@lake_option.without_spark
def compact(lake: str, target_size: int) -> None:
    """Put small files together to large ones.

    Readers see the one or the other. The small ones are there until 'lake vacuum' deletes them. Needs no Java.
    """
    from stompring.pipeline.lake.views import Views

    found = lake_option.existing(lake)
    with found.rewriting():
        for name, table in found.tables.items():
            _tell_compacted(name, *table.compact(target_size))
    for view in Views(found).materialized():
        _tell_compacted(f"view {view.name}", *view.compact(target_size))


def _tell_compacted(name: str, made: int, gone: int) -> None:
    click.echo(f"{name}: {gone:,} files became {made:,}" if gone else f"{name}: nothing to put together")


@click.command()
@lake_option.where
@click.option(
    "--hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    help="How long a file must have been of no use: a query or a replay that began earlier may still read it.",
)
@click.option("--dry-run", is_flag=True, help="Only tell which files would go.")
@lake_option.without_spark
def vacuum(lake: str, hours: int, dry_run: bool) -> None:
    """Delete files that no table needs any more, and those of ingests that were killed. Needs no Java."""
    from stompring.pipeline.lake.views import Views

    found = lake_option.existing(lake)
    with found.locked():  # the files of a batch that is under way are named by no commit yet
        if not dry_run:
            found.remove_copies()
        for name, table in found.tables.items():
            _tell_deleted(name, table.vacuum(hours, dry_run=dry_run), dry_run)
        for view in Views(found).materialized():
            _tell_deleted(f"view {view.name}", view.vacuum(hours, dry_run=dry_run), dry_run)


def _tell_deleted(name: str, gone: list[str], dry_run: bool) -> None:
    for path in gone if dry_run else ():
        click.echo(f"  {path}")
    click.echo(f"{name}: {len(gone):,} files {'would be ' if dry_run else ''}deleted")
