"""Options that the lake commands share, the Spark session of a command, and ``stompring lake warm``."""

from __future__ import annotations

import os
import subprocess  # nosec B404
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompring.pipeline.lake.lake import Lake


@click.command()
@click.option("--remove", is_flag=True, help="Delete the archive instead of creating it.")
def warm(remove: bool) -> None:
    """Create the archive of Java classes that halves the start time of Spark.

    It is a file of about 170 MB in ~/.cache/stompring (XDG_CACHE_HOME; STOMPRING_CLASS_ARCHIVE names another
    directory, or is 'off'). It fits one Java and one installation of pyspark: after an update this command creates a
    new one and removes the old ones. Commands work without it.

    \b
    Examples:
      stompring lake warm
      stompring lake warm --remove
    """
    from stompring.pipeline.session import ArchiveError, ClassArchive, find_java

    with tempfile.TemporaryDirectory(prefix="stompring-java-") as directory:
        archive = ClassArchive(find_java(Path(directory)))
        if remove:
            gone = archive.remove()
            click.echo(f"removed {archive.path}" if gone else "no archive to remove")
            return
        try:
            size = archive.create()
        except ArchiveError as reason:
            raise click.ClickException(str(reason)) from None
    click.echo(f"created {archive.path}, {size / 1e6:,.0f} MB")


def warm_in_background() -> None:
    """After a short command: make the archive where there is none and none has failed, with the lowest priority."""
    from stompring.pipeline.session import ClassArchive

    if "PYSPARK_GATEWAY_PORT" in os.environ or "JAVA_HOME" not in os.environ:
        return  # Java was started by spark-submit
    archive = ClassArchive(Path(os.environ["JAVA_HOME"]))
    if archive.path is None or archive.exists() or archive.has_failed():
        return
    subprocess.Popen(  # nosec B603
        [sys.executable, "-m", "stompring", "lake", "warm"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_lower_priority,
    )
    click.echo(f"creating {archive.path} so that Spark starts faster (stompring lake warm --help)", err=True)


def _lower_priority() -> None:
    os.nice(19)


Command = Callable[..., Any]


class FiniteRange(click.FloatRange):
    """A number within a range. To click ``nan`` is in every range, and ``inf`` in those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def lake_option(command: Command) -> Command:
    """``--lake``."""
    return click.option(
        "--lake",
        required=True,
        metavar="PLACE",
        help="Directory of the lake, or a URL such as s3://BUCKET/PATH.",
    )(command)


def with_spark(command: Command) -> Command:
    """``--master`` and ``--conf``."""
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        help="Spark setting, such as spark.driver.memory=2g. Repeatable.",
    )
    master = click.option(
        "--master",
        metavar="URL",
        help="Spark master: local[N], or spark://HOST:PORT of a cluster.  "
        "[default: local[*], or that of spark-submit]",
    )
    return master(conf(command))


def without_spark(command: Command) -> Command:
    """The same two, for commands that need no Spark: who gives them to all commands may give them to these."""
    for name, several in (("--conf", True), ("--master", False)):
        command = click.option(
            name,
            multiple=several,
            expose_value=False,
            help="Accepted and ignored: this command runs without Spark.",
        )(command)
    return command


def period_options(command: Command) -> Command:
    """``--since``, ``--until`` and ``--address``."""
    address = click.option(
        "--address",
        multiple=True,
        metavar="PATTERN",
        help="Address pattern; * matches one word, # any number of words. Repeatable.",
    )
    until = click.option("--until", metavar="TIME", help="End of the period, exclusive.")
    since = click.option(
        "--since",
        metavar="TIME",
        help="Begin of the period: 2026-07-01T12:00:00Z (UTC without an offset), or milliseconds since the epoch.",
    )
    return since(until(address(command)))


def broker_option(command: Command) -> Command:
    """``--broker``."""
    return click.option(
        "--broker",
        metavar="NAME",
        help="Broker of a lake with several brokers, by the name of 'lake ingest --as'.",
    )(command)


def broker_of(lake: Lake, name: str | None) -> str | None:
    """The broker that ``--broker`` means, None where the lake has none yet. Raises `click.BadParameter`."""
    from stompring.pipeline.lake.delta import UnknownBroker

    try:
        return lake.broker(name)
    except UnknownBroker as reason:
        raise click.BadParameter(str(reason), param_hint="--broker") from None


def version_options(command: Command) -> Command:
    """``--version`` and ``--as-of``."""
    as_of = click.option(
        "--as-of",
        metavar="TIME",
        help="Read the lake as of this time: 2026-07-01T12:00:00Z (UTC without an offset), or milliseconds since "
        "the epoch.",
    )
    version = click.option(
        "--version",
        type=click.IntRange(min=0),
        metavar="N",
        help="Read the lake as of this version of 'messages'; 'lake history' lists the versions.",
    )
    return version(as_of(command))


def selected_versions(lake: Lake, version: int | None, as_of: str | None) -> dict[str, int] | None:
    """The versions of the tables that the two options mean, None without them. Raises `click.BadParameter`."""
    from stompring.pipeline.lake.delta import VersionNotFound
    from stompring.pipeline.options import OptionError, read_time

    if version is not None and as_of is not None:
        raise click.UsageError("--version and --as-of cannot be combined")
    option = "--version" if as_of is None else "--as-of"
    try:
        return lake.versions(version, read_time("as-of", as_of))
    except OptionError as reason:
        raise click.BadParameter(reason.text, param_hint=option) from None
    except VersionNotFound as reason:
        raise click.BadParameter(str(reason), param_hint=option) from None


def time_range(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """What the options mean, epoch ms. Raises `click.BadParameter`."""
    from stompring.pipeline.options import OptionError, read_time

    found = []
    for name, text in (("since", since), ("until", until)):
        try:
            found.append(read_time(name, text))
        except OptionError as reason:
            raise click.BadParameter(reason.text, param_hint=f"--{name}") from None
    if found[0] is not None and found[1] is not None and found[0] >= found[1]:
        raise click.BadParameter("must be later than --since", param_hint="--until")
    return found[0], found[1]


def existing_lake(location: str) -> Lake:
    """The lake that ``--lake`` names. Raises `LakeNotFound`."""
    found = lake_at(location)
    found.require()
    return found


def lake_at(location: str) -> Lake:
    """The same, be it there or not."""
    from stompring.pipeline.lake.lake import Lake
    from stompring.pipeline.storage import resolve_location

    try:
        return Lake(resolve_location(location))
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint="--lake") from None


#: Bytes of a lake's files up to which a command is short: it is over before Java's second compiler pays.
SHORT_COMMAND_BYTES = 64 << 20


@contextmanager
def session(master: str | None, conf: tuple[str, ...], lake: Lake | None = None) -> Iterator[Any]:
    """A session of Spark for one command; one that is there already is used, and left.

    ``lake`` is the one that the command reads and does nothing else with: a small one makes it a short command.
    """
    from stompring.pipeline.session import JAVA_OPTIONS, SHORT_OPTIONS, active_session, spark_session

    before = active_session()
    short = lake is not None and lake.bytes() <= SHORT_COMMAND_BYTES
    options = f"{JAVA_OPTIONS} {SHORT_OPTIONS}" if short else JAVA_OPTIONS
    spark = spark_session(master, settings=settings(conf), java_options=options, formats=False)
    try:
        if _s3_buckets():
            _require_connector(spark)
        yield spark
    finally:
        if before is None:
            spark.stop()
    if short and before is None and sys.stderr.isatty():
        warm_in_background()


def settings(conf: tuple[str, ...]) -> dict[str, str]:
    """The settings of Spark that ``--conf`` gives, and those for places on S3. Raises `ConnectorNotFound`.

    It fetches jars where they are needed. A command that writes calls it before that.
    """
    from stompring.pipeline.session import (
        LOOKUP_THRESHOLD,
        settings,
    )
    from stompring.pipeline.storage import S3Config

    given = {}
    for each in conf:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"must be NAME=VALUE, not {each!r}", param_hint="--conf")
        given[name] = value
    buckets = _s3_buckets()
    if not buckets:
        return given
    jars = {} if is_submitted() else settings(given)
    # to look up files takes requests there, which tasks make at the same time
    lookup = {LOOKUP_THRESHOLD: "32"}
    return {**S3Config.of().in_region(buckets[0]).for_hadoop(), **lookup, **jars, **given}


def is_submitted() -> bool:
    """Whether `spark-submit` runs this: it has the jars then, and a master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _s3_buckets() -> list[str]:
    """The buckets that options of this command name."""
    given = click.get_current_context().params
    urls = [urlsplit(str(given[name])) for name in ("lake", "data", "retention") if given.get(name)]
    return [url.netloc for url in urls if url.scheme in ("s3", "s3a")]


def _require_connector(spark: Any) -> None:
    """Raises `ConnectorNotFound` where the jars that somebody has named are not those."""
    from py4j.protocol import Py4JJavaError

    from stompring.pipeline.session import ConnectorNotFound, hadoop_version, packages, spark_home

    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    try:
        spark._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)
    except Py4JJavaError:
        names = ",".join(packages(hadoop_version(spark_home())))
        words = "--packages " if is_submitted() else "--conf spark.jars.packages="
        raise ConnectorNotFound(f"Spark has no S3 connector among its jars: {words}{names}") from None


def patterns(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``--address``, also several in one with commas."""
    return tuple(each.strip() for text in addresses for each in text.split(",") if each.strip())
