"""A SparkSession for the tests that need one; they are skipped where it cannot be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ..end_to_end.lasting import LastingBroker

ROOT = Path(__file__).resolve().parents[2]

QUIET = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark run in one process, where tests run in several: a session takes memory and time to start."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session, that knows the format ``stompring``."""
    for library in ("pyspark", "pyarrow", "numpy"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: pip install 'stompring[spark]'")
    from pyspark.sql import SparkSession

    from stompring.pipeline import register
    from stompring.pipeline.java import NoJava, find_java

    directory = tmp_path_factory.mktemp("spark")
    try:
        java = find_java(directory / "java")
    except NoJava as reason:
        pytest.skip(str(reason))
    logging = directory / "log4j2.properties"
    logging.write_text(QUIET, encoding="utf-8")
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", paths)
        builder = SparkSession.builder.master("local[1]").appName("stompring")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Dlog4j.configurationFile={logging} -XX:TieredStopAtLevel=1",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        register(session)
        yield session
        session.stop()


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[LastingBroker]:
    """A broker with a data directory of its own, not yet started; it is stopped after the test, and must stop well."""
    with ExitStack() as opened:
        broker = LastingBroker(tmp_path, opened)
        yield broker
        broker.stop()
