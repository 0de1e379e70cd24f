"""``stompring lake report``: one HTML page on what went through a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from stompring.cli import lake_option


@click.command()
@lake_option.where
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page, a file that needs no other.",
)
@lake_option.period
@lake_option.broker
@lake_option.at
@click.option(
    "--keep",
    metavar="PERCENT",
    type=lake_option.FiniteRange(0, 100),
    default=99.0,
    show_default=True,
    help="Advice for rings: of what they threw away unread so much should have been kept.",
)
@click.option(
    "--unpaged",
    metavar="PERCENT",
    type=lake_option.FiniteRange(0, 100),
    default=99.0,
    show_default=True,
    help="Advice for max-size-bytes: so much of the time an address should not have paged.",
)
@click.option(
    "--compare/--no-compare",
    default=True,
    show_default=True,
    help="Compare the headline with the period before, which is as long. It needs --since.",
)
@click.option(
    "--plots",
    type=click.Choice(["static", "interactive", "both"]),
    default="static",
    show_default=True,
    help="Interactive plots make the page 5 MB larger, and need scripts; static ones need none.",
)
@lake_option.with_spark
def report(
    lake: str,
    out: Path,
    since: str | None,
    until: str | None,
    address: tuple[str, ...],
    broker: str | None,
    version: int | None,
    as_of: str | None,
    keep: float,
    unpaged: float,
    compare: bool,
    plots: str,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Write a page with plots: depths, times to acknowledge, rates, what rings threw away, and advice on sizes."""
    found = lake_option.existing(lake)
    begin, end = lake_option.times(since, until)
    if broker is not None:
        lake_option.broker_of(found, broker)
    versions = lake_option.versions(found, version, as_of)
    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"{out.absolute().parent} is not a directory", param_hint="--out")
    with lake_option.session(master, conf, found) as spark:
        from stompring.pipeline.report import Lake, Period, write_report

        frames = found.frames(spark, versions=versions)
        tables = Lake(frames["messages"], frames["events"], frames["samples"])
        period = Period(_moment(begin), _moment(end))
        something = write_report(
            tables,
            out,
            period,
            lake_option.patterns(address),
            keep=keep,
            unpaged=unpaged,
            brokers=() if broker is None else (broker,),
            compare=compare,
            plots=plots,
            progress=lambda part: click.echo(f"{part} …", err=True),
        )
    if not something:
        click.echo("there is nothing in the lake for that", err=True)
    click.echo(f"wrote {out}")


def _moment(time: int | None) -> datetime | None:
    return None if time is None else datetime.fromtimestamp(time / 1000, UTC)
