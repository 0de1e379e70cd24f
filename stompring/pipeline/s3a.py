"""Hadoop's S3 connector (``s3a:``), which Spark does not include: its jars, and fetching them once.

``hadoop-aws`` depends on the bundle of the whole AWS SDK, 650 MB. S3 needs 13 MB of it; Spark fetches these jars from
its package repository.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess  # nosec B404
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from stompring.pipeline.session import find_java

log = logging.getLogger(__name__)

#: The SDK that each Hadoop is built with, and the parts of it that the connector needs. For others it is the bundle.
SDKS = {"3.5.0": "2.35.4"}
PARTS = ("s3-transfer-manager", "sts", "apache-client")

#: What the parts bring and Spark has, and what is not needed.
EXCLUDED = (
    *("software.amazon.awssdk:bundle", "org.wildfly.openssl:*", "io.netty:*", "org.slf4j:*"),
    *("commons-logging:*", "commons-codec:*", "org.apache.httpcomponents:*"),
)

#: The class that Hadoop opens ``s3a:`` with.
CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"

#: Settings by which a user names jars.
JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")

#: Those by which a user says where Spark fetches packages from.
REPOSITORY_SETTINGS = ("spark.jars.repositories", "spark.jars.ivySettings")

#: Seconds that fetching may take.
FETCH_TIMEOUT = 600


class ConnectorNotFound(RuntimeError):
    """The connector is not there and cannot be fetched; the text says what to do."""


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """What a session needs for ``s3a:`` beside the settings that a user has given. Raises `ConnectorNotFound`,
    `JavaNotFound`.

    Nothing where the user names jars, or Spark's own directory has the connector. Else the jars are fetched, the first
    time, to the user's cache directory.
    """
    home = spark_home()
    if any(given.get(name) for name in JAR_SETTINGS) or list((home / "jars").glob("hadoop-aws-*.jar")):
        return {}
    if not fetched_jars():
        hadoop = hadoop_version(home)
        _fetch(home, hadoop, _directory(hadoop), given)
    return {"spark.jars": ",".join(map(str, fetched_jars()))}


def fetched_jars() -> list[Path]:
    """The jars that were fetched earlier, all of them or none. Raises `ConnectorNotFound`."""
    return sorted(_directory(hadoop_version(spark_home())).glob("*.jar"))


def _directory(hadoop: str) -> Path:
    return cache_directory() / f"hadoop-aws-{hadoop}"


def spark_home() -> Path:
    """Where Spark is: ``SPARK_HOME``, or the package."""
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    found = find_spec("pyspark")
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


def excluded_packages(hadoop: str) -> list[str]:
    """What is not fetched with it."""
    return [name for name in EXCLUDED if hadoop in SDKS or not name.startswith("software.")]


def cache_directory() -> Path:
    """What can be fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stompring"


def manual_installation(hadoop: str) -> str:
    """How a user comes to the jars otherwise."""
    names = ",".join(packages(hadoop))
    return (
        f"where Maven Central cannot be reached, name the jars (--conf spark.jars=DIRECTORY/*.jar: {names} and what "
        "they need) or another repository (--conf spark.jars.repositories=URL)"
    )


def _fetch(home: Path, hadoop: str, directory: Path, given: Mapping[str, str]) -> None:
    """Let Spark fetch the jars, all of them or none. Raises `ConnectorNotFound`."""
    log.info("fetching the Hadoop S3 connector to %s: %s", directory, ", ".join(packages(hadoop)))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        workspace = Path(temporary)
        environment = {**os.environ, "JAVA_HOME": str(find_java(workspace / "java")), "SPARK_HOME": str(home)}
        words = [str(home / "bin" / "spark-submit"), "--master", "local[1]"]
        words += [
            "--packages",
            ",".join(packages(hadoop)),
            "--exclude-packages",
            ",".join(excluded_packages(hadoop)),
        ]
        words += ["--conf", f"spark.jars.ivy={workspace / 'ivy'}"]
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
                f"Spark could not fetch hadoop-aws {hadoop} within {FETCH_TIMEOUT} s; {manual_installation(hadoop)}"
            ) from None
        jars = list((workspace / "ivy" / "jars").glob("*.jar"))
        if done.returncode or not any("hadoop-aws-" in jar.name for jar in jars):
            reason = _ivy_error(done.stderr + done.stdout)
            raise ConnectorNotFound(
                f"Spark could not fetch hadoop-aws {hadoop}: {reason}; {manual_installation(hadoop)}"
            )
        try:
            (workspace / "ivy" / "jars").rename(directory)
        except OSError:
            if not directory.is_dir():  # else another process was quicker
                raise
        shutil.rmtree(workspace / "ivy", ignore_errors=True)


def _ivy_error(output: str) -> str:
    """The line that says most of what Ivy prints."""
    lines = [line.strip(": \t") for line in output.splitlines()]
    for pattern in (
        r"Server access error.*|Host .* not found.*",
        r".*: not found",
        r".*(?:Exception|Error):.*",
    ):
        for line in lines:
            if re.fullmatch(pattern, line):
                return line
    return next((line for line in reversed(lines) if line), "no output")
