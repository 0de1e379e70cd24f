"""``stompring lake …``: the group of commands, with ``replay`` and ``report``."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import click

from . import lake_options
from .lake_ingest import ingest
from .lake_options import warm
from .lake_tables import compact, history, restore, sql, tables, vacuum, view, views
from .output import echo_json

if TYPE_CHECKING:
    from stompring.pipeline.lake.replay import Replay

#: Seconds between two lines about a long replay.
PROGRESS_INTERVAL = 5.0


@click.command()
@lake_options.lake_option
@click.option(
    "--where",
    metavar="CONDITION",
    help="Select messages by a condition: SQL over the columns of 'messages', as \"queue = 'x' and "
    "headers['colour'] = 'red'\", or a selector as for a subscription, as \"colour = 'red'\".",
)
@lake_options.period_options
@lake_options.broker_option
@lake_options.version_options
@click.option(
    "--to",
    metavar="[ssl://]HOST:PORT",
    help="Target broker, any STOMP 1.2 broker; ssl:// for TLS. Not required with --dry-run.",
)
@click.option(
    "--destination",
    metavar="NAME",
    help="Destination of all messages.  [default: the address of each message]",
)
@click.option(
    "--rate",
    type=lake_options.FiniteRange(min=0.1),
    metavar="N",
    help="Maximum rate in messages per second.",
)
@click.option(
    "--parts",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Parallel connections. All messages of an address use the same connection.",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of the replay: another name sends the same messages again.",
)
@click.option("--user", metavar="NAME", help="User name for the login.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the password in its first line. Tasks read it: it must exist on each machine of a cluster.",
)
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA certificates (PEM) to verify the broker's certificate, for ssl://. Tasks read it.  "
    "[default: the system's]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@lake_options.with_spark
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
    as_json: bool,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Send messages of a lake to a broker again: in order per address, with receipts, each message once.

    The same command resumes a replay that was stopped or killed. Each message has a duplicate id (_AMQ_DUPL_ID), by
    which the broker drops messages that it already has.

    \b
    Examples:
      stompring lake replay --lake lake --since 2026-07-01 --to localhost:61613 --dry-run
      stompring lake replay --lake lake --address 'orders.#' --to localhost:61613 --destination orders
    """
    from stompring.pipeline.lake.replay import MessageSelection, Replay, ReplayPlan
    from stompring.pipeline.stomp.endpoint import Endpoint, parse_address
    from stompring.pipeline.stomp.options import SinkOptions

    found = lake_options.existing_lake(lake)
    begin, end = lake_options.time_range(since, until)
    if to is None and not dry_run:
        raise click.UsageError("--to HOST:PORT is required: the target broker")
    try:
        host, port, tls = ("", 0, False) if to is None else parse_address(to)
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint="--to") from None
    if ca_file is not None and not tls:
        raise click.UsageError("--ca-file requires TLS: --to ssl://HOST:PORT")
    name_of_broker = lake_options.broker_of(found, broker)
    versions = lake_options.selected_versions(found, version, as_of)
    choice = MessageSelection(where, begin, end, lake_options.patterns(address))
    at = None if versions is None else versions["messages"]
    plan = ReplayPlan(choice, f"{host}:{port}", destination, name, parts=parts, broker=name_of_broker, at=at)
    with lake_options.session(master, conf) as spark:
        work = Replay(spark, found, plan)
        if dry_run:
            _show_plan(work, as_json)
            return
        if work.complete is not None and as_json:
            echo_json({"sent": 0, "earlier": work.complete, "seconds": 0.0})
            return
        if work.complete is not None:
            click.echo(
                f"replay is already complete: {work.complete:,} messages sent; --name NAME sends them again"
            )
            return
        if work.resumed:
            click.echo(f"resuming after {work.sent():,} messages already sent", err=True)
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
    if as_json:
        echo_json({"sent": sent, "earlier": before, "seconds": round(seconds, 3)})
        return
    earlier = f", {before:,} before" if before else ""
    click.echo(
        f"sent {sent:,} messages in {seconds:.1f} s ({sent / max(seconds, 1e-3):,.0f} messages/s){earlier}"
    )


def _show_plan(work: Replay, as_json: bool) -> None:
    rows = work.summary()
    if as_json:
        addresses = [
            {
                "address": row.address,
                "messages": row.messages,
                "bytes": row.bytes or 0,
                "first": str(row.first),
                "last": str(row.last),
            }
            for row in rows
        ]
        echo_json({"dryRun": True, "messages": sum(row.messages for row in rows), "addresses": addresses})
        return
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
        while not over.wait(PROGRESS_INTERVAL):
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


@click.command()
@lake_options.lake_option
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="HTML file to write; it needs no other file.",
)
@lake_options.period_options
@lake_options.broker_option
@lake_options.version_options
@click.option(
    "--keep",
    metavar="PERCENT",
    type=lake_options.FiniteRange(0, 100),
    default=99.0,
    show_default=True,
    help="Advice for ring-size: share of the replaced messages that the ring should have kept.",
)
@click.option(
    "--unpaged",
    metavar="PERCENT",
    type=lake_options.FiniteRange(0, 100),
    default=99.0,
    show_default=True,
    help="Advice for max-size-bytes: share of the time in which an address should not have paged.",
)
@click.option(
    "--compare/--no-compare",
    default=True,
    show_default=True,
    help="Compare the headline with the previous period of the same length. Requires --since.",
)
@click.option(
    "--plots",
    type=click.Choice(["static", "interactive", "both"]),
    default="static",
    show_default=True,
    help="Kind of plots: interactive plots add 5 MB and need scripts, static plots need none.",
)
@lake_options.with_spark
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
    """Write an HTML report: queue depths, times to acknowledge, rates, messages replaced by rings, sizing advice.

    \b
    Examples:
      stompring lake report --lake lake --out report.html
      stompring lake report --lake lake --out july.html --since 2026-07-01 --until 2026-08-01
    """
    found = lake_options.existing_lake(lake)
    begin, end = lake_options.time_range(since, until)
    if broker is not None:
        lake_options.broker_of(found, broker)
    versions = lake_options.selected_versions(found, version, as_of)
    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"{out.absolute().parent} is not a directory", param_hint="--out")
    with lake_options.session(master, conf, found) as spark:
        from stompring.pipeline.report import Lake, Period, write_report

        frames = found.frames(spark, versions=versions)
        tables = Lake(frames["messages"], frames["events"], frames["samples"])
        period = Period(_as_datetime(begin), _as_datetime(end))
        something = write_report(
            tables,
            out,
            period,
            lake_options.patterns(address),
            keep=keep,
            unpaged=unpaged,
            brokers=() if broker is None else (broker,),
            compare=compare,
            plots=plots,
            progress=lambda part: click.echo(f"{part} …", err=True),
        )
    if not something:
        click.echo("the lake has no data for this selection", err=True)
    click.echo(f"wrote {out}")


def _as_datetime(time: int | None) -> datetime | None:
    return None if time is None else datetime.fromtimestamp(time / 1000, UTC)


#: What the extra brings, by the names under which it is imported.
REQUIRED_LIBRARIES = (
    "pyspark",
    "pyarrow",
    "numpy",
    "deltalake",
    "duckdb",
    "fastavro",
    "obstore",
    "jinja2",
    "matplotlib",
)


class _Commands(click.Group):
    """Faults that a user can do something about become a message and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        if any(word in ctx.help_option_names for word in ctx.args) or "--help" in sys.argv:
            return super().invoke(ctx)
        missing = [name for name in REQUIRED_LIBRARIES if find_spec(name) is None]
        if missing:
            raise click.ClickException(
                f"missing libraries for lake: {', '.join(missing)}: pip install 'stompring[spark]'"
            )
        logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO, stream=sys.stderr)
        logging.getLogger("py4j").setLevel(logging.ERROR)
        try:
            return super().invoke(ctx)
        except click.ClickException:
            raise
        except Exception as fault:
            text = _error_text(fault)
            if text is None:
                raise
            raise click.ClickException(text) from None


def _error_text(fault: Exception) -> str | None:
    """What to tell of a fault without a traceback; None where that is a mistake of ours."""
    from stompring.errors import StoreError
    from stompring.pipeline.backlog import DataLoss, DirectoryReplaced
    from stompring.pipeline.lake import delta
    from stompring.pipeline.lake.delta import VersionNotFound
    from stompring.pipeline.lake.duckdb_query import QueryError
    from stompring.pipeline.lake.lake import LakeNotFound
    from stompring.pipeline.lake.replay import InvalidCondition
    from stompring.pipeline.lake.views import InvalidSchema, ViewError
    from stompring.pipeline.options import OptionError
    from stompring.pipeline.session import ConnectorNotFound, JavaNotFound, is_spark_error
    from stompring.pipeline.workers import worker_message
    from stompring.store.datadir import Busy

    ours = (
        JavaNotFound,
        ConnectorNotFound,
        LakeNotFound,
        VersionNotFound,
        InvalidCondition,
        OptionError,
        DataLoss,
        DirectoryReplaced,
        Busy,
    )
    of_views = (QueryError, InvalidSchema, ViewError)
    if isinstance(fault, (*ours, *of_views, StoreError, OSError)):
        return str(fault)
    if delta.is_delta_error(fault):
        return f"cannot read or write a table of the lake: {fault}"
    if is_spark_error(fault):
        return worker_message(str(fault)) or _task_error(str(fault))
    return None


def _task_error(text: str) -> str:
    """Of what Spark says when a task fails, the line of the exception that the task raised."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last):" in text:
        tail = text.rpartition("Traceback (most recent call last):")[2].splitlines()
        raised = [line for line in tail if line and not line[0].isspace()]
        if raised:
            return raised[0]
    return lines[0].removeprefix("An exception was thrown from the Python worker. ")


@click.group(cls=_Commands)
def lake() -> None:
    """Delta tables, reports and replays of the messages that a broker retained.

    A broker with journal-retention-directory in its broker.xml retains all messages. 'lake ingest' writes them to a
    lake: the Delta tables 'messages', 'events' and 'samples', for Spark, DuckDB, Polars and pandas.

    Requires pip install 'stompring[spark]'.

    \b
    Examples:
      stompring lake ingest --data data --lake lake
      stompring lake report --lake lake --out report.html
    """


for command in (ingest, tables, sql, report, replay, compact, vacuum, history, restore, view, views, warm):
    lake.add_command(command)
