"""``stompring lake replay``: what was kept, to a broker once more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import click

from stompring.cli import lake_option

if TYPE_CHECKING:
    from stompring.pipeline.lake.replay import Replay

#: Seconds between two lines about a long replay.
PAUSE = 5.0


@click.command()
@lake_option.where
@click.option(
    "--where",
    metavar="CONDITION",
    help="Only messages for which this is true: SQL over the columns of 'messages', as \"queue = 'x' and "
    "headers['colour'] = 'red'\", or a selector as for a subscription, as \"colour = 'red'\".",
)
@lake_option.period
@lake_option.broker
@lake_option.at
@click.option(
    "--to",
    metavar="[ssl://]HOST:PORT",
    help="The broker, any that speaks STOMP 1.2, with ssl:// over TLS. Not needed with --dry-run.",
)
@click.option(
    "--destination",
    metavar="NAME",
    help="Where all of them go.  [default: each to the address that it came from]",
)
@click.option(
    "--rate",
    type=lake_option.FiniteRange(min=0.1),
    metavar="N",
    help="No more than so many messages a second.",
)
@click.option(
    "--parts",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Connections that send at once. The messages of an address are all in one of them.",
)
@click.option(
    "--name", default="", metavar="NAME", help="Send once more what a replay with another name has sent."
)
@click.option("--user", metavar="NAME", help="Who logs in.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file whose first line is the password. Tasks read it: on a cluster it must be there for them.",
)
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificates (PEM) to check that of the broker against, for ssl://. Tasks read it.  [default: the system's]",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be sent.")
@lake_option.with_spark
def replay(
    lake: str,
    where: str | None,
    since: str | None,
    until: str | None,
    address: tuple[str, ...],
    broker: str | None,
    version: int | None,
    as_of: str | None,
    to: str | None,
    destination: str | None,
    rate: float | None,
    parts: int,
    name: str,
    user: str | None,
    password_file: Path | None,
    ca_file: Path | None,
    dry_run: bool,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Send messages of a lake to a broker again, in order for each address, with receipts, each once.

    One that was stopped or killed goes on where it was when the same is asked again. Each message has a duplicate id
    (_AMQ_DUPL_ID), by which the broker drops what it has already got.
    """
    from stompring.pipeline.lake.chosen import Choice
    from stompring.pipeline.lake.replay import Plan, Replay
    from stompring.pipeline.stomp.endpoint import Endpoint, parse_address
    from stompring.pipeline.stomp.options import SinkOptions

    found = lake_option.existing(lake)
    begin, end = lake_option.times(since, until)
    if to is None and not dry_run:
        raise click.UsageError("--to HOST:PORT is missing: the broker to send to")
    try:
        host, port, tls = ("", 0, False) if to is None else parse_address(to)
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint="--to") from None
    if ca_file is not None and not tls:
        raise click.UsageError("--ca-file is for a broker over TLS: --to ssl://HOST:PORT")
    name_of_broker = lake_option.broker_of(found, broker)
    versions = lake_option.versions(found, version, as_of)
    choice = Choice(where, begin, end, lake_option.patterns(address))
    at = None if versions is None else versions["messages"]
    plan = Plan(choice, f"{host}:{port}", destination, name, parts=parts, broker=name_of_broker, at=at)
    with lake_option.session(master, conf) as spark:
        work = Replay(spark, found, plan)
        if dry_run:
            _tell(work)
            return
        if work.complete is not None:
            click.echo(
                f"this was done before: {work.complete:,} messages were sent; --name NAME sends them once more"
            )
            return
        if work.resumed:
            click.echo(f"going on behind the {work.sent():,} messages that were sent before", err=True)
        endpoint = Endpoint(
            host,
            port,
            user=user,
            password_file=password_file,
            tls=tls,
            ca_file=ca_file and ca_file.absolute(),
        )
        began = time.monotonic()
        with _progress(work):
            sent, before = work.run(SinkOptions(endpoint, destination), rate)
    seconds = time.monotonic() - began
    earlier = f", {before:,} before" if before else ""
    click.echo(
        f"sent {sent:,} messages in {seconds:.1f} s ({sent / max(seconds, 1e-3):,.0f} a second){earlier}"
    )


def _tell(work: Replay) -> None:
    rows = work.summary()
    for row in rows:
        click.echo(
            f"{row.address}: {row.messages:,} messages, {row.bytes or 0:,} bytes, {row.first} to {row.last}"
        )
    click.echo(f"{sum(row.messages for row in rows):,} messages would be sent")


@contextmanager
def _progress(work: Replay) -> Iterator[None]:
    """A line now and then on how far it is."""
    over = Event()

    def watch() -> None:
        before = -1
        while not over.wait(PAUSE):
            sent = work.sent()
            if sent != before:
                click.echo(f"{sent:,} messages sent", err=True)
                before = sent

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
