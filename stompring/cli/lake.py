"""``stompring lake``: ingest, tables, queries, views, reports and replays."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import signal
import subprocess  # nosec B404
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from stompring.settings.model import frozen

from . import output
from .options import JSON_OBJECT, bad_value, command, option, provided
from .output import JsonObject, Progress, aligned, echo_json, one_line, warn

if TYPE_CHECKING:
    from stompring.pipeline.lake.ingest import Batch, ContinuousIngest, Ingest, IngestMetrics
    from stompring.pipeline.lake.lake import Lake, Maintenance
    from stompring.pipeline.lake.replay import Replay
    from stompring.pipeline.lake.views import ViewDefinition


#: Import names of the libraries of the extra ``spark``.
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
    """The group of the lake commands. A fault that the user can fix ends a command with a message and exit status 1."""

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
    """The message for a fault. None for a bug, whose traceback is shown."""
    from stompring.errors import PipelineError
    from stompring.pipeline import session, workers
    from stompring.pipeline.lake.delta import DeltaError
    from stompring.store.datadir import Busy

    if isinstance(fault, (PipelineError, Busy, OSError)):
        return str(fault)
    if isinstance(fault, DeltaError):
        return f"cannot read or write a table of the lake: {fault}"
    if session.is_spark_error(fault):
        return workers.worker_message(str(fault)) or _task_error(str(fault))
    return None


def _task_error(text: str) -> str:
    """Find the line of the task's exception in Spark's error text for a failed task."""
    _, traceback, tail = text.rpartition("Traceback (most recent call last):")
    if traceback and (raised := re.search(r"^\S.*", tail, re.MULTILINE)):
        return raised[0]
    return (
        text.strip().splitlines()[0].strip().removeprefix("An exception was thrown from the Python worker. ")
    )


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


@command(lake)
def warm(remove: bool = option("Delete the archive instead of creating it.")) -> None:
    """Create the archive of Java classes that halves the start time of Spark.

    It is a file of about 170 MB in ~/.cache/stompring (XDG_CACHE_HOME; STOMPRING_CLASS_ARCHIVE names another
    directory, or is 'off'). It fits one Java and one installation of pyspark: after an update this command creates a
    new one and removes the old ones. Commands work without it.

    \b
    Examples:
      stompring lake warm
      stompring lake warm --remove
    """
    from stompring.pipeline.session import ClassArchive, find_java

    with tempfile.TemporaryDirectory(prefix="stompring-java-") as directory:
        archive = ClassArchive(find_java(Path(directory)))
        if remove:
            click.echo(f"removed {archive.path}" if archive.remove() else "no archive to remove")
            return
        size = archive.create()
    click.echo(f"created {archive.path}, {size / 1e6:,.0f} MB")


def warm_in_background() -> None:
    """Create the class archive after a short command, with the lowest priority, unless it exists or has failed."""
    from stompring.pipeline.session import ClassArchive

    if is_submitted() or "JAVA_HOME" not in os.environ:
        return  # this process has not started Java itself
    archive = ClassArchive(Path(os.environ["JAVA_HOME"]))
    if archive.path is None or archive.exists() or archive.has_failed():
        return
    subprocess.Popen(  # nosec B603
        [sys.executable, "-m", "stompring", "lake", "warm"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: os.nice(19),
    )
    warn(f"creating {archive.path} so that Spark starts faster (stompring lake warm --help)")


LAKE = option("PLACE", "Directory of the lake, or a URL such as s3://BUCKET/PATH.")


@provided
def existing_lake(lake: str = LAKE) -> Lake:
    """The lake that ``--lake`` names. Raises `LakeNotFound`."""
    found = lake_at(lake)
    found.require()
    return found


def lake_at(location: str) -> Lake:
    """Return the lake at a location, which need not exist yet."""
    from stompring.pipeline.lake.lake import Lake
    from stompring.pipeline.storage import resolve_location

    with bad_value("--lake"):
        return Lake(resolve_location(location))


#: Maximum bytes of a lake for which a command is short: it ends before Java's optimizing compiler (C2) saves time.
SHORT_COMMAND_BYTES = 64 << 20


@frozen
class Spark:
    """The options of a command that runs Spark."""

    master: str | None = option(
        "URL",
        "Spark master: local[N], or spark://HOST:PORT of a cluster.  [default: local[*], or that of spark-submit]",
    )
    conf: tuple[str, ...] = option("NAME=VALUE", "Spark setting, such as spark.driver.memory=2g. Repeatable.")

    @contextmanager
    def session(self, lake: Lake | None = None) -> Iterator[Any]:
        """Context manager: yield a session of Spark for one command. Does not stop a session that was active before.

        ``lake``: the lake of a command that only reads, else None. If the lake is small, Java gets the options for a
        short command.
        """
        from stompring.pipeline.session import JAVA_OPTIONS, SHORT_OPTIONS, active_session, spark_session

        before = active_session()
        short = lake is not None and lake.bytes() <= SHORT_COMMAND_BYTES
        options = f"{JAVA_OPTIONS} {SHORT_OPTIONS}" if short else JAVA_OPTIONS
        spark = spark_session(self.master, settings=self.settings(), java_options=options, formats=False)
        try:
            if _s3_buckets():
                _require_connector(spark)
            yield spark
        finally:
            if before is None:
                spark.stop()
        if short and before is None and sys.stderr.isatty():
            warm_in_background()

    def settings(self) -> dict[str, str]:
        """The settings of Spark from ``--conf``, and the settings for S3. Raises `ConnectorNotFound`.

        Fetches missing jars. A command that writes calls `settings` before its first write.
        """
        from stompring.pipeline.session import LOOKUP_THRESHOLD, settings
        from stompring.pipeline.storage import S3Config

        given = {}
        for each in self.conf:
            name, sign, value = each.partition("=")
            if not sign or not name:
                raise click.BadParameter(f"must be NAME=VALUE, not {each!r}", param_hint="--conf")
            given[name] = value
        buckets = _s3_buckets()
        if not buckets:
            return given
        jars = {} if is_submitted() else settings(given)
        return {
            **S3Config.of().in_region(buckets[0]).for_hadoop(),
            LOOKUP_THRESHOLD: "32",  # above 32 paths, parallel tasks list the files: each list is a request to S3
            **jars,
            **given,
        }


spark_options = provided(Spark)

_IGNORED = "Accepted and ignored: this command runs without Spark."


@provided
def without_spark(master: str | None = option(_IGNORED), conf: tuple[str, ...] = option(_IGNORED)) -> None:
    """Accept and ignore the options of `Spark`, for scripts that pass them to all commands."""


PATTERN = option(
    "--address", "PATTERN", "Address pattern; * matches one word, # any number of words. Repeatable."
)


class Period(NamedTuple):
    """A selection of messages: sent from ``begin`` until before ``end`` (epoch ms), to addresses by their patterns."""

    begin: int | None
    end: int | None
    addresses: tuple[str, ...]


@provided
def period_options(
    since: str | None = option(
        "TIME",
        "Begin of the period: 2026-07-01T12:00:00Z (UTC without an offset), or milliseconds since the epoch.",
    ),
    until: str | None = option("TIME", "End of the period, exclusive."),
    address: tuple[str, ...] = PATTERN,
) -> Period:
    """The period from the options. Raises `click.BadParameter`."""
    from stompring.pipeline.options import read_time

    with bad_value("--since"):
        begin = read_time("since", since)
    with bad_value("--until"):
        end = read_time("until", until)
    if begin is not None and end is not None and begin >= end:
        raise click.BadParameter("must be later than --since", param_hint="--until")
    return Period(begin, end, patterns(address))


BROKER = option("NAME", "Broker of a lake with several brokers, by the name of 'lake ingest --as'.")


def broker_of(lake: Lake, name: str | None) -> str | None:
    """The broker from ``--broker``, None if the lake has no broker yet. Raises `click.BadParameter`."""
    from stompring.pipeline.lake.delta import UnknownBroker

    with bad_value("--broker", UnknownBroker):
        return lake.broker(name)


@frozen
class AsAt:
    """The version of a lake that a command reads."""

    version: int | None = option(
        "N", "Read the lake as of this version of 'messages'; 'lake history' lists the versions.", min=0
    )
    as_of: str | None = option(
        "TIME",
        "Read the lake as of this time: 2026-07-01T12:00:00Z (UTC without an offset), or milliseconds since the epoch.",
    )

    def versions(self, lake: Lake) -> dict[str, int] | None:
        """Versions of the tables by ``--version`` or ``--as-of``, None without both. Raises `click.BadParameter`."""
        from stompring.pipeline.lake.delta import VersionNotFound
        from stompring.pipeline.options import OptionError, read_time

        if self.version is not None and self.as_of is not None:
            raise click.UsageError("--version and --as-of cannot be combined")
        with bad_value("--version" if self.as_of is None else "--as-of", (OptionError, VersionNotFound)):
            return lake.versions(self.version, read_time("as-of", self.as_of))


version_options = provided(AsAt)


def is_submitted() -> bool:
    """Whether `spark-submit` runs this process, and sets jars and master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _s3_buckets() -> list[str]:
    """The buckets that options of this command name."""
    given = click.get_current_context().params
    urls = [urlsplit(str(given[name])) for name in ("lake", "data", "retention") if given.get(name)]
    return [url.netloc for url in urls if url.scheme in ("s3", "s3a")]


def _require_connector(spark: Any) -> None:
    """Raise `ConnectorNotFound` if Spark has no S3 connector among its jars."""
    from py4j.protocol import Py4JJavaError

    from stompring.pipeline.session import ConnectorNotFound, hadoop_version, packages, spark_home

    try:
        spark._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            "s3a", spark.sparkContext._jsc.hadoopConfiguration()
        )
    except Py4JJavaError:
        names = ",".join(packages(hadoop_version(spark_home())))
        words = "--packages " if is_submitted() else "--conf spark.jars.packages="
        raise ConnectorNotFound(f"Spark has no S3 connector among its jars: {words}{names}") from None


def patterns(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns of ``--address``. One option may have several, separated by commas."""
    return tuple(each.strip() for text in addresses for each in text.split(",") if each.strip())


@command(lake)
def ingest(
    data: str = option("PLACE", "Data directory of the broker, as for 'stompring run', or its URL."),
    retention: str | None = option(
        "PLACE", "journal-retention-directory of the broker.  [default: retention in the data directory]"
    ),
    lake: str = LAKE,
    follow: bool = option("Continue with new messages until interrupted."),
    interval: float = option("With --follow: polling interval in seconds.", default=10.0, min=0.1),
    max_bytes: int = option(
        "Approximate size of a batch in bytes of broker files; a killed ingest repeats its batch.",
        default=1 << 30,
        min=1,
    ),
    buckets: int = option(
        "For a new lake: number of buckets of addresses per day.", default=8, min=1, max=1000
    ),
    name: str = option(
        "--as", "NAME", "Name of the broker in the lake: column 'broker' of each row.", default="main"
    ),
    compact_files: int = option(
        "N",
        "With --follow: compact a day when a bucket has more than N small files; 0: never.",
        default=64,
        min=0,
    ),
    vacuum_hours: int = option(
        "With --follow: delete files unreferenced for this many hours, once an hour.", default=168, min=0
    ),
    no_vacuum: bool = option("With --follow: never delete files."),
    attempts: int = option(
        "N",
        "With --follow: consecutive failures before the command ends; pauses between attempts grow.",
        default=10,
        min=1,
    ),
    metrics_port: int | None = option(
        "PORT",
        "With --follow: port for Prometheus metrics; 0: a free port, which is printed.",
        min=0,
        max=65535,
    ),
    metrics_host: str = option("HOST", "Address for Prometheus metrics.", default="127.0.0.1"),
    lease: float = option(
        "SECONDS",
        "For a lake on S3: time after which another ingest takes over from one that was killed.",
        default=30.0,
        min=3,
    ),
    no_mark: bool = option("Do not record the ingested positions for the broker."),
    as_json: bool = option("--json", "Print one JSON object at the end."),
    spark: Spark = spark_options,
) -> None:
    """Ingest new messages, events and samples of a data directory into a lake.

    Works while the broker runs. It may be stopped or killed at any time: the next run continues, and the lake has each
    message once. Creates the lake if it does not exist.

    \b
    Examples:
      stompring lake ingest --data data --lake lake
      stompring lake ingest --data data --lake s3a://lakes/plant --follow
    """
    from stompring.pipeline.backlog import Limit
    from stompring.pipeline.files import DataFiles
    from stompring.pipeline.lake.delta import check_name
    from stompring.pipeline.lake.ingest import Ingest, IngestMetrics
    from stompring.pipeline.lake.lake import Maintenance
    from stompring.pipeline.options import OptionError
    from stompring.pipeline.storage import resolve_location

    with bad_value("--data"):
        place = resolve_location(data)
    with bad_value("--retention"):
        files = DataFiles(place, None if retention is None else resolve_location(retention))
    try:
        files.require()
    except OptionError as reason:
        option = "--data" if reason.option == "path" else f"--{reason.option}"
        raise click.BadParameter(reason.text, param_hint=option) from None
    with bad_value("--as"):
        check_name(name)
    target = lake_at(lake)
    spark.settings()  # reports missing jars before anything is written
    if metrics_port is not None and not follow:
        raise click.UsageError("--metrics-port requires --follow")
    metrics = IngestMetrics()
    if metrics_port is not None:
        try:
            metrics_port = metrics.serve(metrics_host, metrics_port)
        except OSError as fault:
            raise click.ClickException(
                f"cannot serve metrics on {metrics_host}:{metrics_port}: {fault}"
            ) from None
        warn(f"serving metrics on http://{metrics_host}:{metrics_port}/metrics")
    target.create(buckets)
    with target.locked(lease):
        target.admit(name, files)  # before the slow start of Spark: raises for a wrong data directory
        with spark.session() as session:
            run = _Run(
                Ingest(session, files, target, Limit(bytes=max_bytes), mark=not no_mark, name=name), as_json
            )
            if follow:
                upkeep = Maintenance(target, compact_files or None, None if no_vacuum else vacuum_hours)
                run.follow(upkeep, interval, attempts, metrics)
            else:
                run.run()


class _Run:
    """Ingests batches and reports them, until no data is left or a signal arrives."""

    def __init__(self, work: Ingest, as_json: bool) -> None:
        self._work = work
        self._json = as_json
        self._stop = Event()
        self._rows: Counter[str] = Counter()
        self._bytes = self._batches = 0
        self._line = Progress()
        self.following: ContinuousIngest | None = None

    def follow(self, upkeep: Maintenance, interval: float, attempts: int, metrics: IngestMetrics) -> None:
        """Ingest new batches until a signal."""
        from stompring.pipeline.lake.ingest import ContinuousIngest

        self.following = ContinuousIngest(
            self._work, upkeep, self._stop, interval, attempts, self._done, metrics=metrics
        )
        notify_systemd("READY=1\nSTATUS=ingesting")
        try:
            with self._reported():
                self.following.run()
        finally:
            notify_systemd("STOPPING=1")

    def run(self) -> None:
        """Ingest all available batches."""
        with self._reported():
            before = time.monotonic()
            for batch in self._work.batches(until=self._stop.is_set):
                self._done(batch, time.monotonic() - before)
                before = time.monotonic()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Context manager: show the progress until a signal or the end, then the totals."""
        before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        began = time.monotonic()
        try:
            with self._line.watching(self._progress_line):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        seconds, following = time.monotonic() - began, self.following
        if self._json:
            left = {} if following is None else {"left": following.left, "lag": following.lag}
            echo_json(
                {
                    "rows": self._rows,
                    "batches": self._batches,
                    "bytes": self._bytes,
                    "seconds": round(seconds, 3),
                    **left,
                }
            )
            return
        behind = "" if following is None else f"; {_lag(following)} left"
        click.echo(
            f"ingested {_counts(self._rows) or 'no new rows'} in {seconds:.1f} s "
            f"({self._batches:,} batches, {self._bytes / 1e6:,.1f} MB{behind})"
        )

    def _on_signal(self, number: int, frame: Any) -> None:
        self._line.show("stopping after this batch; a second signal stops at once")
        self._stop.set()
        signal.signal(number, signal.SIG_DFL)

    def _progress_line(self) -> str | None:
        batch, following = self._work.batch_progress, self.following
        if batch is None:
            return None
        share = f"{batch.read / 1e6:,.1f} of {batch.bytes / 1e6:,.1f} MB, {batch.rows:,} rows"
        behind = f", {_lag(following)} behind" if following and following.left else ""
        return f"batch {batch.number}: {share}{behind}"

    def _done(self, batch: Batch, seconds: float) -> None:
        self._rows.update(batch.rows)
        self._bytes += batch.bytes
        self._batches += 1
        rate = batch.rows.get("messages", 0) / max(seconds, 1e-3)
        following = self.following
        left, lag = (self._work.left(), 0.0) if following is None else (following.left, following.lag)
        more = f", {len(batch.faults)} unreadable places" if batch.faults else ""
        more += f", {left / 1e6:,.1f} MB left" if left else ""
        more += f", {lag:,.0f} s behind" if lag else ""
        text = (
            f"batch {batch.number}: {batch.bytes / 1e6:,.1f} MB, {_counts(batch.rows) or 'no rows'} in "
            f"{seconds:.1f} s ({rate:,.0f} messages/s){more}"
        )
        self._line.show(text)
        notify_systemd(f"STATUS={text}")
        self._work.lake.views.refresh()


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(rows.items()))


def _lag(following: ContinuousIngest) -> str:
    return f"{following.left / 1e6:,.1f} MB, {following.lag:,.0f} s"


def notify_systemd(state: str) -> None:
    """Report a state to systemd (sd_notify), if it started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    from stompring.server.sd_notify import notify

    try:
        notify(address, state)
    except OSError as fault:
        logging.getLogger(__name__).warning("cannot notify the service manager at %s: %s", address, fault)


@command(lake)
def compact(
    found: Lake = existing_lake,
    target_size: int = option(
        "Approximate size of the compacted files in bytes.", default=128 << 20, min=1 << 20
    ),
    as_json: bool = JSON_OBJECT,
    ignored: None = without_spark,
) -> None:
    """Compact small files into large ones.

    Readers see either the small files or the large ones. 'lake vacuum' deletes the small files later. Needs no Java.

    \b
    Examples:
      stompring lake compact --lake lake
    """
    done: dict[str, JsonObject] = {"tables": {}, "views": {}}

    def compacted(kind: str, name: str, made: int, gone: int) -> None:
        done[kind][name] = {"removed": gone, "added": made}
        if not as_json:
            label = f"view {name}" if kind == "views" else name
            text = f"compacted {gone:,} files into {made:,}" if gone else "nothing to compact"
            click.echo(f"{label}: {text}")

    with found.rewriting():
        for name, table in found.tables.items():
            compacted("tables", name, *table.compact(target_size))
    for view in found.views.materialized():
        compacted("views", view.name, *view.compact(target_size))
    if as_json:
        echo_json(done)


@command(lake)
def vacuum(
    found: Lake = existing_lake,
    hours: int = option(
        "Minimum age of unreferenced files: queries and replays that began earlier may still read them.",
        default=168,
        min=0,
    ),
    dry_run: bool = option("List the files, and delete nothing."),
    as_json: bool = JSON_OBJECT,
    ignored: None = without_spark,
) -> None:
    """Delete files that tables no longer reference, including files of killed ingests. Needs no Java.

    \b
    Examples:
      stompring lake vacuum --lake lake --dry-run
    """
    done: dict[str, JsonObject] = {"tables": {}, "views": {}}

    def deleted(kind: str, name: str, gone: list[str]) -> None:
        done[kind][name] = gone
        if as_json:
            return
        for path in gone if dry_run else ():
            click.echo(f"  {path}")
        label = f"view {name}" if kind == "views" else name
        click.echo(f"{label}: {len(gone):,} files {'would be ' if dry_run else ''}deleted")

    with found.locked():  # protects the files of a running batch, which no commit names yet
        if not dry_run:
            found.remove_copies()
        for name, table in found.tables.items():
            deleted("tables", name, table.vacuum(hours, dry_run=dry_run))
        for view in found.views.materialized():
            deleted("views", view.name, view.vacuum(hours, dry_run=dry_run))
    if as_json:
        echo_json({"dryRun": dry_run, **done})


@command(lake)
def history(
    found: Lake = existing_lake,
    table: str = option(
        "Table; the versions of 'messages' are the versions of the lake.",
        exact=["messages", "events", "samples", "all"],
        default="messages",
    ),
    limit: int | None = option("Maximum number of versions.", min=1),
    as_json: bool = option("--json", "Print one JSON object per line."),
    ignored: None = without_spark,
) -> None:
    """List the versions of a lake, newest first, with their times and operations. Needs no Java.

    --version and --as-of of other commands read the lake as of a version or a time.

    \b
    Examples:
      stompring lake history --lake lake --limit 10
    """
    from stompring.pipeline.lake.delta import commits, iso_time

    selected = found.tables.values() if table == "all" else [found.tables[table]]
    every = [commit for each in selected for commit in commits(each).values()]
    for one in sorted(every, key=lambda one: (one.time, one.table, one.version), reverse=True)[:limit]:
        document = {**one._asdict(), "time": iso_time(one.time)}
        del document["end"]
        if as_json:
            click.echo(json.dumps(document))
            continue
        more = "" if one.batch is None else f"batch {one.batch} of {one.broker}"
        more += "" if one.rows is None else f", {one.rows:,} rows"
        more += "" if one.restored is None else f"version {one.restored}"
        click.echo(f"{one.table}  {one.version}  {document['time']}  {one.operation}  {more}".rstrip())


@command(lake)
def restore(
    found: Lake = existing_lake,
    as_at: AsAt = version_options,
    as_json: bool = JSON_OBJECT,
    ignored: None = without_spark,
) -> None:
    """Restore a lake to a version or a time. Needs no Java.

    The next 'lake ingest' ingests later messages again, as far as the broker still has them. Later versions can be
    restored too, until 'lake vacuum' deletes their files.

    \b
    Examples:
      stompring lake restore --lake lake --version 12
    """
    with found.locked():
        found.complete_restore()
        versions = as_at.versions(found)
        if versions is None:
            raise click.UsageError("--version N or --as-of TIME is required")
        found.restore(versions)
    lines = (f"{name}: restored to version {each}" for name, each in versions.items())
    output.report(as_json, {"versions": versions}, *lines)


@frozen
class ViewColumns:
    """The options that define the columns of a view."""

    header: tuple[str, ...] = option(
        "NAME[:TYPE]",
        "Column from a header; types: string, int, long, double, boolean, date, timestamp.  [default type: string]",
    )
    json_schema: Path | None = option("FILE", "Columns from a JSON Schema of the bodies.", exists=True)
    infer: bool = option("Columns inferred from the JSON bodies in the lake.")
    avro: Path | None = option("FILE", "Columns from the Avro schema of the bodies.", exists=True)

    def definition(
        self, lake: Lake, name: str, addresses: tuple[str, ...], where: str | None, materialize: bool
    ) -> ViewDefinition:
        """The definition of a view with these columns. Raises `click.ClickException`."""
        from stompring.pipeline.lake.views import (
            HEADER_TYPES,
            InvalidSchema,
            ViewDefinition,
            from_avro,
            from_json_schema,
        )

        headers = []
        for each in self.header:
            key, _, type_ = (each if ":" in each else f"{each}:string").rpartition(":")
            if not key or type_ not in HEADER_TYPES:
                raise click.BadParameter(
                    f"must be NAME or NAME:TYPE with one of {', '.join(HEADER_TYPES)}, not {each!r}",
                    param_hint="--header",
                )
            headers.append((key, type_))
        fields: list[JsonObject] = []
        schema = None
        try:
            if self.json_schema:
                fields = from_json_schema(self.json_schema.read_bytes())
            elif self.avro:
                text = self.avro.read_bytes()
                fields, schema = from_avro(text), text.decode()
        except InvalidSchema as reason:
            raise click.ClickException(f"{self.json_schema or self.avro}: {reason}") from None
        if self.infer:
            fields = _infer(lake, addresses)
        return ViewDefinition(name, addresses, where, tuple(headers), tuple(fields), schema, materialize)


view_columns = provided(ViewColumns)


@command(lake)
def view(
    name: str,
    found: Lake = existing_lake,
    address: tuple[str, ...] = PATTERN,
    where: str | None = option("SELECTOR", "Selector: only messages that match it."),
    columns: ViewColumns = view_columns,
    materialize: bool = option("Store the rows in a Delta table, to which each ingest adds."),
    refresh: bool = option("Add the rows of new messages to a materialized view."),
    drop: bool = option("Delete the view and its table."),
    ignored: None = without_spark,
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
    from stompring.pipeline.lake.views import ViewError

    known = found.views
    if refresh or drop:
        if (refresh and drop) or address or where or any(astuple(columns)) or materialize:
            raise click.UsageError("--refresh and --drop take no other option than --lake")
        if drop:
            known.drop(name)
            click.echo(f"dropped {name}")
            return
        one = known.get(name)
        if not one.definition.materialized:
            raise ViewError(f"view {name} is not materialized: it has no table to refresh")
        done = one.refresh()
        whole = ", rebuilt" if done.whole else ""
        click.echo(f"{name}: added {done.rows:,} rows{whole}, {done.bad:,} of them not decoded (column _bad)")
        return
    if not address:
        raise click.UsageError("--address is required: the addresses of the view")
    if sum(map(bool, (columns.json_schema, columns.infer, columns.avro))) > 1:
        raise click.UsageError("--json-schema, --infer and --avro cannot be combined")
    definition = columns.definition(found, name, patterns(address), where, materialize)
    made = known.create(definition)
    for column, type_ in definition.shown():
        click.echo(one_line(f"  {column}  {type_}"))
    for column, origin, _ in definition.columns():
        if column != origin.removeprefix("header ").removeprefix("/"):
            warn(f"column {column} is {origin}: that name is in use")
    if materialize:
        rows, bad = made.counts()
        click.echo(f"{name}: {rows:,} rows, {bad:,} of them not decoded (column _bad)")


def _infer(lake: Lake, addresses: tuple[str, ...]) -> list[JsonObject]:
    from stompring.pipeline.lake.views import Inference, bodies

    seen = Inference()
    for body in bodies(lake.tables["messages"], addresses):
        seen.add(body)
    fields, notes = seen.fields()
    for note in notes:
        warn(f"mixed types: {note}")
    if seen.bad:
        warn(f"{seen.bad:,} of {seen.bodies:,} bodies are not JSON objects")
    return fields


@command(lake)
def views(found: Lake = existing_lake, as_json: bool = JSON_OBJECT, ignored: None = without_spark) -> None:
    """List the views of a lake and their columns. Needs no Java.

    \b
    Examples:
      stompring lake views --lake lake
    """
    document: JsonObject = {}
    for each in found.views.every():
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
        echo_json(document, ascii=True)
        return
    for name, about in document.items():
        counts = f": {about['rows']:,} rows, {about['bad']:,} not decoded" if about["materialized"] else ""
        where = f" where {about['where']}" if about["where"] else ""
        click.echo(f"{name} of {', '.join(about['addresses'])}{where}{counts}")
        for column, type_ in about["columns"].items():
            click.echo(one_line(f"  {column}  {type_}"))


@command(lake)
def sql(
    query: str,
    found: Lake = existing_lake,
    format_: str = option(
        "--format",
        "Output format; json prints one object per line.",
        exact=["table", "json", "csv"],
        default="table",
    ),
    limit: int | None = option("Maximum number of rows.", min=1),
    engine: str = option(
        "Query engine and its SQL dialect; duckdb starts at once and needs no Java.",
        exact=["spark", "duckdb"],
        default="spark",
    ),
    as_at: AsAt = version_options,
    spark: Spark = spark_options,
) -> None:
    """Run a QUERY in SQL over the tables messages, events and samples and the views of a lake.

    \b
    stompring lake sql --lake lake "select queue, event, count(*) from events group by all order by 1, 2"

    \b
    Examples:
      stompring lake sql --lake lake "select count(*) from messages"
      stompring lake sql --lake lake --engine duckdb --format csv "select address, count(*) from messages group by 1"
    """
    versions = as_at.versions(found)
    if engine == "duckdb":
        from stompring.pipeline.lake import duckdb_query

        if spark.master is not None or spark.conf:
            raise click.UsageError("--master and --conf require --engine spark")
        with duckdb_query.query(found, query, limit, versions) as result:
            if format_ == "json":
                for document in result.objects():
                    click.echo(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
            else:
                _show(result.columns, result.rows(), format_)
        return
    from stompring.pipeline.session import as_utc, json_rows, plain_value

    with spark.session(found) as session:
        found.register(session, versions)
        frame = session.sql(query)
        if limit is not None:
            frame = frame.limit(limit)
        if format_ == "json":
            for text in json_rows(frame):
                click.echo(text)
        else:
            rows = as_utc(frame).toLocalIterator()
            _show(frame.columns, (list(map(plain_value, row)) for row in rows), format_)


def _show(columns: list[str], rows: Iterator[list[Any]], format_: str) -> None:
    """Print rows. Only the format ``table`` needs all rows in memory, for the widths of its columns."""
    if format_ == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows(map(_plain_value, row) for row in rows)
        return
    shown = [list(map(_cell_text, row)) for row in rows]
    lines = ["-" * max(map(len, column)) for column in zip(columns, *shown, strict=True)]
    for line in aligned([list(map(one_line, columns)), lines, *shown]):
        click.echo(line)
    warn(f"({len(shown)} {'row' if len(shown) == 1 else 'rows'})")


def _plain_value(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "backslashreplace")
    return json.dumps(value, default=_value_text) if isinstance(value, (dict, list)) else value


def _value_text(value: Any) -> str:
    return str(_plain_value(value))


def _cell_text(value: Any) -> str:
    """A cell on one line, with escapes for control characters."""
    text = "" if value is None else _value_text(value)
    return one_line(text)


@command(lake)
def tables(
    found: Lake = existing_lake,
    as_json: bool = JSON_OBJECT,
    as_at: AsAt = version_options,
    ignored: None = without_spark,
) -> None:
    """List the tables of a lake with rows, files and columns, and its brokers. Needs no Java.

    \b
    Examples:
      stompring lake tables --lake lake --json
    """
    versions = as_at.versions(found) or {}
    about = {name: table.about(versions.get(name)) for name, table in found.tables.items()}
    losses = found.losses()
    brokers = {
        name: {"identity": broker.identity, "data": broker.data} for name, broker in found.brokers().items()
    }
    if as_json:
        echo_json({"tables": about, "brokers": brokers, "losses": losses}, ascii=True)
        return
    for name, document in about.items():
        click.echo(
            f"{name}: {document['rows']:,} rows in {document['files']:,} files, {document['bytes'] / 1e6:,.1f} MB, "
            f"version {document['version']}, {document['buckets']} buckets"
        )
        for column, type_ in document["columns"].items():
            click.echo(one_line(f"  {column}  {type_}"))
    for name, one in brokers.items():
        click.echo(
            f"broker {name}: identity {one['identity'] or 'unknown'}, data directory {one['data'] or 'unknown'}"
        )
    for line in losses:
        click.echo(f"not ingested: {line}")


#: Seconds between two progress lines of a replay.
PROGRESS_INTERVAL = 5.0


@command(lake)
def replay(
    found: Lake = existing_lake,
    where: str | None = option(
        "CONDITION",
        "Select messages by a condition: SQL over the columns of 'messages', as \"queue = 'x' and "
        "headers['colour'] = 'red'\", or a selector as for a subscription, as \"colour = 'red'\".",
    ),
    period: Period = period_options,
    broker: str | None = BROKER,
    as_at: AsAt = version_options,
    to: str | None = option(
        "[ssl://]HOST:PORT",
        "Target broker, any STOMP 1.2 broker; ssl:// for TLS. Not required with --dry-run.",
    ),
    destination: str | None = option(
        "NAME", "Destination of all messages.  [default: the address of each message]"
    ),
    rate: float | None = option("N", "Maximum rate in messages per second.", min=0.1),
    parts: int = option(
        "Parallel connections. All messages of an address use the same connection.", default=1, min=1, max=256
    ),
    name: str = option(
        "NAME",
        "Name of the replay: another name sends the same messages again.",
        default="",
        show_default=False,
    ),
    user: str | None = option("NAME", "User name for the login."),
    password_file: Path | None = option(
        "FILE",
        "File with the password in its first line. Tasks read it: it must exist on each machine of a cluster.",
        exists=True,
    ),
    ca_file: Path | None = option(
        "FILE",
        "CA certificates (PEM) to verify the broker's certificate, for ssl://. Tasks read it.  "
        "[default: the system's]",
        exists=True,
    ),
    dry_run: bool = option("Show what would be sent, and send nothing."),
    as_json: bool = JSON_OBJECT,
    spark: Spark = spark_options,
) -> None:
    """Send messages of a lake to a broker again: in order per address, with receipts, each message once.

    The same command resumes a replay that was stopped or killed. Each message has a duplicate id (_AMQ_DUPL_ID), by
    which the broker drops messages that it already has.

    \b
    Examples:
      stompring lake replay --lake lake --since 2026-07-01 --to localhost:61613 --dry-run
      stompring lake replay --lake lake --address 'orders.#' --to localhost:61613 --destination orders
    """
    from stompring.pipeline.lake.replay import Replay, ReplayPlan
    from stompring.pipeline.lake.selection import MessageSelection
    from stompring.pipeline.stomp.connection import Endpoint, parse_address
    from stompring.pipeline.stomp.options import SinkOptions

    if to is None and not dry_run:
        raise click.UsageError("--to HOST:PORT is required: the target broker")
    with bad_value("--to"):
        host, port, tls = ("", 0, False) if to is None else parse_address(to)
    if ca_file and not tls:
        raise click.UsageError("--ca-file requires TLS: --to ssl://HOST:PORT")
    name_of_broker = broker_of(found, broker)
    versions = as_at.versions(found)
    plan = ReplayPlan(
        MessageSelection(where, *period),
        f"{host}:{port}",
        destination,
        name,
        parts=parts,
        broker=name_of_broker,
        at=None if versions is None else versions["messages"],
    )
    with spark.session() as session:
        work = Replay(session, found, plan)
        if dry_run:
            _show_plan(work, as_json)
            return
        if work.complete is not None:
            output.report(
                as_json,
                {"sent": 0, "earlier": work.complete, "seconds": 0.0},
                f"replay is already complete: {work.complete:,} messages sent; --name NAME sends them again",
            )
            return
        if work.resumed:
            warn(f"resuming after {work.sent():,} messages already sent")
        began = time.monotonic()
        with Progress(terminal=False, pause=PROGRESS_INTERVAL).watching(_sent(work)):
            sent, before = work.run(
                SinkOptions(
                    Endpoint(
                        host,
                        port,
                        user=user,
                        password_file=password_file,
                        tls=tls,
                        ca_file=ca_file and ca_file.absolute(),
                    ),
                    destination,
                ),
                rate,
            )
    seconds = time.monotonic() - began
    earlier = f", {before:,} before" if before else ""
    output.report(
        as_json,
        {"sent": sent, "earlier": before, "seconds": round(seconds, 3)},
        f"sent {sent:,} messages in {seconds:.1f} s ({sent / max(seconds, 1e-3):,.0f} messages/s){earlier}",
    )


def _show_plan(work: Replay, as_json: bool) -> None:
    rows = work.summary()
    if as_json:
        echo_json(
            {
                "dryRun": True,
                "messages": sum(row.messages for row in rows),
                "addresses": [
                    {**row.asDict(), "bytes": row.bytes or 0, "first": str(row.first), "last": str(row.last)}
                    for row in rows
                ],
            }
        )
        return
    for row in rows:
        click.echo(
            f"{row.address}: {row.messages:,} messages, {row.bytes or 0:,} bytes, {row.first} to {row.last}"
        )
    click.echo(f"{sum(row.messages for row in rows):,} messages would be sent")


def _sent(work: Replay) -> Callable[[], str | None]:
    """A function that returns the number of sent messages as text, None if it has not changed since the last call."""
    before = -1

    def text() -> str | None:
        nonlocal before
        sent, earlier = work.sent(), before
        before = sent
        return None if sent == earlier else f"{sent:,} messages sent"

    return text


@command(lake)
def report(
    found: Lake = existing_lake,
    out: Path = option("FILE", "HTML file to write; it needs no other file."),
    period: Period = period_options,
    broker: str | None = BROKER,
    as_at: AsAt = version_options,
    keep: float = option(
        "PERCENT",
        "Advice for ring-size: share of the replaced messages that the ring should have kept.",
        default=99.0,
        min=0,
        max=100,
    ),
    unpaged: float = option(
        "PERCENT",
        "Advice for max-size-bytes: share of the time in which an address should not have paged.",
        default=99.0,
        min=0,
        max=100,
    ),
    compare: bool = option(
        "--compare/--no-compare",
        "Compare the headline with the previous period of the same length. Requires --since.",
        default=True,
    ),
    plots: str = option(
        "Kind of plots: interactive plots add 5 MB and need scripts, static plots need none.",
        exact=["static", "interactive", "both"],
        default="static",
    ),
    spark: Spark = spark_options,
) -> None:
    """Write an HTML report: queue depths, times to acknowledge, rates, messages replaced by rings, sizing advice.

    \b
    Examples:
      stompring lake report --lake lake --out report.html
      stompring lake report --lake lake --out july.html --since 2026-07-01 --until 2026-08-01
    """
    times = [None if at is None else datetime.fromtimestamp(at / 1000, UTC) for at in period[:2]]
    if broker is not None:
        broker_of(found, broker)
    versions = as_at.versions(found)
    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"{out.absolute().parent} is not a directory", param_hint="--out")
    with spark.session(found) as session:
        from stompring.pipeline import report as reports

        something = reports.write_report(
            reports.Lake(**found.frames(session, versions=versions)),
            out,
            reports.Period(*times),
            period.addresses,
            keep=keep,
            unpaged=unpaged,
            brokers=() if broker is None else (broker,),
            compare=compare,
            plots=plots,
            progress=lambda part: warn(f"{part} …"),
        )
    if not something:
        warn("the lake has no data for this selection")
    click.echo(f"wrote {out}")
