"""A SparkSession for the tests that need one; they are skipped where it cannot be."""

from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from ..end_to_end.lasting import LastingBroker

#: For a Java that is started by a test: what is compiled well is compiled too late.
QUICK = {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


@pytest.fixture(scope="session")
def spark():
    """One session, that knows our formats."""
    for library in ("pyspark", "pyarrow", "numpy", "pandas", "deltalake"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: pip install 'stompring[spark]'")
    from stompring.pipeline.session import JAVA_OPTIONS, JavaNotFound, fetched_jars, spark_session

    settings = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    if connector := fetched_jars():  # what tests with lakes on S3 need
        settings["spark.jars"] = ",".join(map(str, connector))
    try:
        # what is compiled well is compiled too late for tests
        options = f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1"
        session = spark_session("local[2]", settings=settings, java_options=options)
    except JavaNotFound as reason:
        pytest.skip(f"java is not installed: {reason}")
    yield session
    session.stop()


@pytest.fixture
def lasting(tmp_path):
    """A broker with a data directory of its own, not yet started; it is stopped after the test, and must stop well."""
    with ExitStack() as opened:
        broker = LastingBroker(tmp_path, opened)
        yield broker
        broker.stop()


def pytest_collection_modifyitems(items):
    """What uses Spark may take longer than other tests."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))
