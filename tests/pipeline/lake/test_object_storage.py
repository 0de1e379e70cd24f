"""A lake on a store of the S3 protocol: the same rows as on a disk, over kills and with two ingests at once."""

import re
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..broker_files import broker_files, write_files
from ..test_source_stream import write_segment
from .ingesting import done, events, messages
from .kill_campaign import PATIENCE, Command
from .traffic import event_counts, retained_messages

pytest.importorskip("deltalake")

from stompring.pipeline import session as session_module
from stompring.pipeline.backlog import Limit
from stompring.pipeline.files import DataFiles
from stompring.pipeline.lake.ingest import Ingest
from stompring.pipeline.lake.lake import Lake
from stompring.pipeline.session import ConnectorNotFound, fetched_jars, settings
from stompring.pipeline.storage import S3Config
from stompring.store.datadir import Busy

pytestmark = pytest.mark.spark

#: Seconds after which a lease of a killed command is taken over.
LEASE = "3"


@pytest.fixture
def place(spark, bucket, object_server):
    """The URL of a lake, with a session that reaches it."""
    context = spark.sparkContext
    told = S3Config.of().for_hadoop()
    hadoop = {name.removeprefix("spark.hadoop."): value for name, value in told.items() if ".hadoop." in name}
    for name, value in hadoop.items():
        spark.conf.set(name, value)
    before = dict(context.environment)
    context.environment.update(object_server.environment)  # of the processes of tasks
    yield f"{bucket}/some/lake"
    context.environment.clear()
    context.environment.update(before)
    for name in hadoop:
        spark.conf.unset(name)


def upkeep(lake, want):
    """Nothing but what the tables name, and what an ingest must remember, is there in the end."""
    table = lake.tables["messages"]
    table.folder.write(
        "date=2026-07-01/bucket=0/part-000000-never-committed.parquet", b"of a task that was killed"
    )
    made, gone = table.compact(1 << 20)
    assert made >= 0 and (gone > made or not gone)
    (broker,) = lake.brokers().values()
    lake.state_folder(broker).write("copies/000000099/left.parquet", b"of an owner that was stopped")
    done("vacuum", "--lake", lake, "--hours", "0")
    assert f"messages: {len(want):,} rows" in done("tables", "--lake", str(lake).replace("s3:", "s3a:"))
    assert messages(lake) == want
    there = {one.name for one in lake.folder.entries(deep=True) if one.name.endswith(".parquet")}
    named = {
        uri.partition("/some/lake/")[2] for each in lake.tables.values() for uri in each.open().file_uris()
    }
    assert there == named


@pytest.mark.long
def test_two_ingests_without_a_lease_put_each_message_there_once(spark, place, tmp_path):
    """As when an owner was stopped for long, and both are at work at the same batches; some messages are copies."""
    if not fetched_jars():
        pytest.skip("Hadoop's connector to S3 was not fetched: stompring.pipeline.session.settings({}) does")
    data = write_files(tmp_path / "data", broker_files(journal_file_size=2000))
    end = max(int(path.stem) for path in data.rglob("*.journal"))
    write_segment(data, end + 1, [-5001, 5002])
    write_segment(data, end + 2, [-5001, -5002, 5003])
    Lake(place).create(2)
    lakes = [Lake(place) for _ in range(3)]

    def ingest(lake):
        found = []
        try:
            for batch in Ingest(
                spark, DataFiles(str(data)), lake, Limit(files=7), task_bytes=1 << 30
            ).batches():
                found.append(batch.number)
        except Busy as fault:
            assert "another process is ingesting" in str(fault)
        return found

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(ingest, lakes[:2]))
    last = ingest(lakes[2])
    numbers = sorted({number for each in (*both, last) for number in each})
    assert numbers == list(range(len(numbers))) and len(numbers) > 2
    want = retained_messages(data)
    assert messages(lakes[2]) == want
    told = event_counts(events(lakes[2]))
    # those of address "all" are retained, durable or not
    entered = [row for row in want if row["durable"] or row["address"] == "all"]
    assert sum(each["added"] for each in told.values()) == len(entered)
    upkeep(lakes[2], want)


# ---- the connector


@pytest.fixture
def no_connector(tmp_path, monkeypatch):
    """A Spark without it, and an empty cache; the program that would fetch it."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "jars" / "hadoop-client-api-3.5.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session_module, "find_java", lambda directory: directory)
    return home / "bin" / "spark-submit"


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


FETCHES = """
for word do case "$word" in spark.jars.ivy=*) place=${word#spark.jars.ivy=} ;; esac done
mkdir -p "$place/jars"
echo "$@" > "$place/jars/org.apache.hadoop_hadoop-aws-3.5.0.jar"
"""


def test_connector_is_fetched_once_and_without_the_bundle(no_connector, tmp_path):
    program(no_connector, FETCHES)
    jar = tmp_path / "cache/stompring/hadoop-aws-3.5.0/org.apache.hadoop_hadoop-aws-3.5.0.jar"
    assert settings({"spark.jars.repositories": "http://mirror"}) == {"spark.jars": str(jar)}
    words = jar.read_text().split()
    wanted, excluded = words[words.index("--packages") + 1], words[words.index("--exclude-packages") + 1]
    assert wanted.startswith("org.apache.hadoop:hadoop-aws:3.5.0,software.amazon.awssdk:s3-transfer-manager:")
    assert "software.amazon.awssdk:bundle" in excluded and "spark.jars.repositories=http://mirror" in words
    program(no_connector, "exit 1")
    assert settings({}) == {"spark.jars": str(jar)}
    assert [path.name for path in jar.parents[1].iterdir()] == ["hadoop-aws-3.5.0"]


@pytest.mark.parametrize(
    "output, reason",
    [
        ("  Host repo not found. url=http://repo/x\nmore", "Host repo not found. url=http://repo/x"),
        (
            ":: org.apache.hadoop#hadoop-aws;3.5.0: not found ::",
            "org.apache.hadoop#hadoop-aws;3.5.0: not found",
        ),
        ("java.lang.IllegalStateException: that is so", "java.lang.IllegalStateException: that is so"),
    ],
)
def test_connector_that_cannot_be_fetched_is_told(no_connector, output, reason):
    program(no_connector, f"echo '{output}' >&2\nexit 1")
    with pytest.raises(ConnectorNotFound) as fault:
        settings({})
    assert f"Spark could not fetch hadoop-aws 3.5.0: {reason}; where Maven Central cannot" in str(fault.value)
    assert "--conf spark.jars=DIRECTORY/*.jar" in str(fault.value)
    assert not fetched_jars()


def test_jars_that_a_user_has_are_used(no_connector):
    program(no_connector, "exit 1")
    assert settings({"spark.jars": "/opt/jars/*.jar"}) == {}
    (no_connector.parents[1] / "jars" / "hadoop-aws-3.5.0.jar").touch()
    assert settings({}) == {}


# ---- commands, in processes of their own


@pytest.fixture
def command():
    """Starts one; what is left of them is killed."""
    begun = []

    def begin(*words):
        begun.append(Command(*words))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.kill()


def fails(command):
    """What it says when it has failed, as it must."""
    assert command.process.wait(PATIENCE) == 1, command.output()
    assert "Traceback" not in command.output()
    return command.output()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("processes of Spark")
def test_commands_over_kills(bucket, tmp_path, command):
    data = write_files(tmp_path / "data", broker_files())
    place = f"{bucket.replace('s3:', 's3a:')}/lake"
    words = ("ingest", "--data", str(data), "--lake", place, "--lease", LEASE)
    follow = command(*words, "--follow", "--max-bytes", "2000")
    follow.wait_for(r"batch 1")
    assert "another process is ingesting: process" in fails(command(*words))
    follow.kill()
    follow = command(*words, "--follow", "--max-bytes", "2000")
    follow.wait_for(r"batch \d+")
    follow.process.send_signal(signal.SIGSTOP)  # the owner is stopped, and its Java is at work
    time.sleep(float(LEASE) + 1)
    assert "taking over the lease of process" in command(*words).finish()
    follow.process.send_signal(signal.SIGCONT)
    assert re.search("lost the lease|another process is ingesting", fails(follow))
    assert messages(Lake(place.replace("s3a:", "s3:"))) == retained_messages(data)
    count = len(retained_messages(data))
    assert f"{count}" in command("sql", "--lake", place, "select count(*) from messages").finish()
    page = tmp_path / "report.html"
    command("report", "--lake", place, "--out", str(page)).finish()
    assert f"{count}" in page.read_text()


@pytest.mark.long
@pytest.mark.xdist_group("processes of Spark")
def test_command_without_the_connector_writes_nothing(bucket, tmp_path, monkeypatch, command):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = tmp_path / "ivy.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/none/[artifact].jar"/></filesystem></resolvers></ivysettings>'
    )
    fetching = ["--lake", f"{bucket}/lake", "--conf", f"spark.jars.ivySettings={settings}"]
    data = write_files(tmp_path / "data", broker_files(count=2))
    assert "Error: Spark could not fetch hadoop-aws" in fails(
        command("ingest", "--data", str(data), *fetching)
    )
    assert not Lake(f"{bucket}/lake").folder.is_directory()
    Lake(f"{bucket}/lake").create()
    assert "Error: Spark could not fetch hadoop-aws" in fails(command("sql", "select 1", *fetching))
