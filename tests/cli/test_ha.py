"""``stompring ha``: the log is created once, its state shown, and the active broker changed."""

import json
import threading

import pytest

from stompring.cli import ha
from stompring.replication import engines
from stompring.replication.log import (
    Beat,
    FileChange,
    LogMissing,
    LogUnavailable,
    Operation,
    UnsafeLog,
    encode_beat,
)
from stompring.replication.role import START_FAILED
from stompring.store.datadir import MARKER, DataLock

from ..replication.memory_log import MemoryEngine, MemoryLog
from .command import invoke

BROKER_XML = (
    "<configuration><core><security-enabled>false</security-enabled><ha-policy>"
    '<replicated-log url="nats://a:4222" stream="orders" user="u" password="hills" broker="cli"/>'
    "</ha-policy></core></configuration>"
)


class Cluster:
    """The engine that the commands see. ``missing``: the log was not created; ``unsafe``: why it is not safe."""

    def __init__(self):
        self.engine = MemoryEngine()
        self.missing = False
        self.unsafe = None
        self.unavailable = False
        self.created = []

    def open(self, settings):
        assert settings.stream == "orders"
        return _Log(self)

    def create(self, settings, max_bytes):
        if not self.missing:
            raise UnsafeLog("stream orders exists already; nothing was changed")
        self.missing = False
        self.created.append(max_bytes)


class _Log(MemoryLog):
    def __init__(self, cluster):
        super().__init__(cluster.engine)
        self._cluster = cluster

    def connect(self):
        if self._cluster.unavailable:
            raise LogUnavailable("no answer")
        if self._cluster.missing:
            raise LogMissing("stream orders does not exist: make it with 'stompring ha init'")
        if self._cluster.unsafe is not None:
            raise UnsafeLog(self._cluster.unsafe)
        return super().connect()


class FakeBroker:
    """A broker of the log: as a standby it claims after a RELEASE that allows it, active it beats and steps down."""

    def __init__(self, cluster, name, number, *, active=False):
        self.name, self._number = name, number
        self.log = MemoryLog(cluster.engine, name)
        self.log.connect()
        self.left = False
        self._stop = threading.Event()
        self._after = 0
        self._active = active
        if active:
            assert self._claim()
        self._step()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join(10)
        self.log.close()

    def wait_until_left(self):
        for _ in range(1000):
            if self.left:
                return
            self._stop.wait(0.02)
        raise AssertionError("the request did not arrive")

    def _run(self):
        while not self._stop.wait(0.02):
            self._step()

    def _entry(self, operation, **more):
        return FileChange(operation, data=encode_beat(Beat(self.name, "host", 7, 1000, "1.0", **more)))

    def _claim(self):
        found = self.log.claim(self._number, self.log.status().last, self._entry(Operation.CLAIM))
        return found is not None

    def _step(self):
        for request in self.log.requests(self.name, active=self._active):
            command, _, successor = request.partition(" ")
            if command in ("leave", "release") and self._active:
                self.log.append([self._entry(Operation.RELEASE, reason=command, successor=successor)])
                self._active = False
            self.left |= command == "leave"
        if self._active:
            self.log.append([self._entry(Operation.BEAT)])
            return
        for entry in self.log.read(self._after, 0):
            self._after = entry.sequence
            if entry.change.operation is not Operation.RELEASE:
                continue
            found = json.loads(bytes(entry.change.data))
            if found["broker"] != self.name and found.get("successor", self.name) in ("", self.name):
                self._active = self._claim()


@pytest.fixture
def cluster(monkeypatch):
    found = Cluster()
    monkeypatch.setattr(engines, "open_log", found.open)
    monkeypatch.setattr(engines, "create_log", found.create)
    monkeypatch.setattr(ha, "BEAT_WAIT", 0.5)
    monkeypatch.setattr(ha, "CONNECT_TIMEOUT", 0.1)
    return found


@pytest.fixture
def start(cluster):
    started = []

    def begin(name, *, active=False):
        started.append(FakeBroker(cluster, name, len(started) + 1, active=active))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


@pytest.fixture
def run(tmp_path):
    file = tmp_path / "broker.xml"
    file.write_text(BROKER_XML)

    def call(line, **more):
        result = invoke(f"ha {line} --config {file}", **more)
        assert "hills" not in result.output
        return result

    return call


def status(run):
    return json.loads(run("status --json", code=None).stdout)


def test_without_a_log_in_broker_xml_the_fault_says_what_to_write(tmp_path):
    file = tmp_path / "broker.xml"
    file.write_text("<configuration><core/></configuration>")
    assert "has no <ha-policy><replicated-log" in invoke(f"ha status --config {file}", code=1).stderr


# ---- init


def test_init_creates_the_log_with_its_limit(cluster, run):
    cluster.missing = True
    result = run("init --max-bytes 50GB")
    assert cluster.created == [50 * 1024**3]
    assert result.stdout == "created log orders at nats://a:4222\n" and not result.stderr


def test_init_without_a_limit_is_a_warning(cluster, run):
    cluster.missing = True
    assert "--max-bytes" in run("init").stderr
    assert cluster.created == [-1]


def test_init_refuses_an_existing_log(cluster, run):
    assert "exists already; nothing was changed" in run("init", code=1).stderr
    assert not cluster.created


@pytest.mark.parametrize("size", ["10MB", "x", "-1"])
def test_init_refuses_a_limit_that_is_none(cluster, run, size):
    run(f"init --max-bytes {size}", code=2)
    assert not cluster.created


def test_dry_run_of_init_creates_nothing(cluster, run):
    cluster.missing = True
    result = run("init --dry-run --max-bytes 1GB")
    assert result.stdout == "would create log orders at nats://a:4222, of at most 1.0 GiB\n"
    assert not cluster.created


@pytest.mark.parametrize("unsafe", [None, "2 replicas"])
def test_dry_run_of_init_refuses_an_existing_log(cluster, run, unsafe):
    cluster.unsafe = unsafe
    result = run("init --dry-run", code=1)
    assert "exists" in result.stderr and (unsafe or "") in result.stderr


def data_directory(folder):
    data = folder / "data"
    (data / "journal").mkdir(parents=True)
    (data / "journal" / "000000001.journal").write_bytes(b"x" * 300_000)
    (data / "schema-version").write_text("3\n")
    return data


def test_init_uploads_a_data_directory(cluster, run, tmp_path):
    cluster.missing = True
    data_directory(tmp_path)
    assert (
        f"would upload {tmp_path}/data\n" in run("init --from-data --dry-run").stdout and not cluster.created
    )
    result = run("init --from-data --max-bytes 1GB")
    assert f"uploaded 293 KiB of {tmp_path}/data, which is a local copy of the log now" in result.stdout
    written = sum(
        len(entry.change.data)
        for entry in cluster.engine.entries()
        if entry.change.path.startswith("journal/")
    )
    assert written == 300_000
    assert status(run)["problems"] == ["no broker is active: cli has stepped down (stopped)"]


def test_init_refuses_a_data_directory_in_use(cluster, run, tmp_path):
    cluster.missing = True
    lock = DataLock(data_directory(tmp_path))
    try:
        result = run("init --from-data", code=1)
    finally:
        lock.release()
    assert "a broker runs on" in result.stderr and not cluster.created


def test_init_refuses_a_data_directory_that_is_not_there(cluster, run):
    cluster.missing = True
    assert "there is no data directory" in run("init --from-data", code=1).stderr and not cluster.created


def test_failed_upload_says_what_to_do(cluster, run, tmp_path):
    cluster.missing = True
    cluster.engine.max_bytes = 100_000
    data_directory(tmp_path)
    result = run("init --from-data", code=1)
    assert "is incomplete, and no broker starts with it" in result.stderr
    assert "Delete the log, and begin again: nats stream rm orders\n" in result.stderr


# ---- status


def test_status_is_0_with_an_active_broker(cluster, run, start):
    start("b1", active=True)
    found = status(run)
    assert (found["healthy"], found["problems"], found["activeBroker"]) == (True, [], "b1")
    assert (found["host"], found["pid"], found["version"], found["safe"]) == ("host", 7, "1.0", True)
    result = run("status")
    assert "log orders at nats://a:4222: healthy" in result.stdout
    assert "active broker\tb1\n" in result.stdout
    assert found["copiedSequence"] is None and "copy on this machine" not in result.stdout


def test_status_shows_how_far_the_copy_of_this_machine_is(cluster, run, start, tmp_path):
    start("b1", active=True).stop()
    last = cluster.engine.last
    marker = tmp_path / "data" / MARKER
    marker.parent.mkdir()
    marker.write_text(json.dumps({"engine": "memory", "log": "1", "sequence": last // 2}))
    assert status(run)["copiedSequence"] == last // 2
    part = 100 * (last // 2) // last
    text = f"copy on this machine\tup to entry {last // 2} of {last}, {part} %\n"
    assert text in run("status", code=1).stdout
    assert text in run(f"status --data {marker.parent}", code=1).stdout
    assert text not in run(f"status --data {tmp_path}", code=1).stdout
    marker.write_text(json.dumps({"engine": "memory", "log": "2", "sequence": 1}))
    assert status(run)["copiedSequence"] is None


def test_status_is_1_without_a_broker(cluster, run):
    assert "no broker is active: none has used this log yet" in run("status", code=1).stdout


def test_status_is_1_when_the_active_broker_is_silent(cluster, run, start):
    start("b1", active=True).stop()
    found = status(run)
    assert found["problems"] == ["no broker is active: b1 is silent"]
    assert found["activeBroker"] is None and found["lastBeatBroker"] == "b1"


def test_status_is_1_after_a_release(cluster, run, start):
    broker = start("b1", active=True)
    run("leave")
    broker.wait_until_left()
    assert status(run)["problems"] == ["no broker is active: b1 has stepped down (leave)"]


def test_status_shows_that_brokers_cannot_start(cluster, run):
    log = MemoryLog(cluster.engine, "b1")
    log.connect()
    data = encode_beat(Beat("b1", reason=START_FAILED, failures=2))
    assert log.claim(1, 0, FileChange(Operation.CLAIM, data=encode_beat(Beat("b1"))))
    log.append([FileChange(Operation.RELEASE, data=data)])
    (problem,) = status(run)["problems"]
    assert "2 in a row became active and could not start, b1 the last one" in problem


def test_status_shows_why_a_log_is_not_safe(cluster, run):
    cluster.unsafe = "stream orders has 1 replica, at least 3 are needed"
    assert "not safe: stream orders has 1 replica" in run("status", code=1).stdout
    assert status(run)["safe"] is False


def test_status_without_a_log_or_an_engine(cluster, run):
    cluster.missing = True
    assert "stompring ha init" in run("status", code=1).stderr
    cluster.unavailable = True
    assert "the engine does not answer: no answer" in run("status", code=5).stderr


def test_an_almost_full_log_is_a_problem(cluster, run, start):
    start("b1", active=True)
    cluster.engine.max_bytes = 100_000_000
    assert status(run)["healthy"] is True
    cluster.engine.bytes = 95_000_000
    assert "the log is almost full" in status(run)["problems"][0]


# ---- promote and leave


def test_promote_waits_until_another_broker_is_active(cluster, run, start):
    start("b1", active=True)
    start("b2")
    assert run("promote --timeout 20s").stdout == "b2 is active; b1 has stepped down\n"
    assert status(run)["activeBroker"] == "b2"


def test_promote_names_the_standby_that_takes_over(cluster, run, start):
    for name in ("b1", "b2", "b3"):
        start(name, active=name == "b1")
    assert run("promote b3").stdout.startswith("b3 is active")


def test_promote_of_the_active_broker_changes_nothing(cluster, run, start):
    start("b1", active=True)
    assert run("promote b1").stdout == "b1 is active already\n"


def test_promote_of_a_broker_that_is_not_there_changes_nothing(cluster, run, start):
    start("b1", active=True)
    assert "no standby b9 follows the log: nothing was changed" in run("promote b9", code=1).stderr
    assert status(run)["activeBroker"] == "b1"


def test_promote_without_an_active_broker_is_a_fault(cluster, run):
    assert "no broker is active" in run("promote", code=1).stderr


def test_promote_ends_after_its_timeout(cluster, run, start):
    start("b1", active=True)
    assert "no broker became active in 1 seconds" in run("promote --timeout 1s", code=1).stderr


def test_leave_stops_the_named_broker(cluster, run, start):
    active, standby = start("b1", active=True), start("b2")
    assert run("leave b2").stdout == "b2 stops\n"
    standby.wait_until_left()
    assert not active.left


def test_leave_of_a_broker_that_is_not_there_is_a_fault(cluster, run):
    assert "b9 did not receive the request" in run("leave b9", code=1).stderr
