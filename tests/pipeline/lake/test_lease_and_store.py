"""Folders, leases and commits on a store of the S3 protocol."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

pytest.importorskip("deltalake")

from stompring.pipeline.lake.data_files import NewFile
from stompring.pipeline.lake.delta import LakeTable
from stompring.pipeline.lake.lake import Intent, IntentLog, Lake, Lease, LeaseLost
from stompring.pipeline.storage import (
    Entry,
    Folder,
    ObjectStoreError,
    S3Config,
    resolve_location,
)
from stompring.store.datadir import Busy, Position

from ...waiting import PATIENCE, until
from .ingesting import run

# ---- how a store is reached


def test_environment_reaches_each_library():
    config = S3Config.of(
        {
            "AWS_ENDPOINT_URL": "http://store:9000/",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_SESSION_TOKEN": "token",
            "HOME": "/nowhere",
        }
    )
    assert "'key'" not in repr(config) and "token'" not in repr(config)
    assert config.for_delta() == {
        "aws_endpoint_url": "http://store:9000",
        "aws_region": "us-east-1",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "key",
        "aws_session_token": "token",
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
        "aws_allow_http": "true",
    }
    told = config.for_hadoop()
    hadoop = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in told.items()}
    assert hadoop["endpoint"] == "http://store:9000" and hadoop["path.style.access"] == "true"
    assert (hadoop["access.key"], hadoop["secret.key"], hadoop["session.token"]) == ("id", "key", "token")
    assert hadoop["aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")
    tasks = {name.removeprefix("spark.executorEnv."): value for name, value in told.items()}
    assert S3Config.of({**tasks, "HOME": "/nowhere"}) == config
    system = config.for_arrow()
    assert (system.type_name, system.region) == ("s3", "us-east-1")


def test_virtual_hosts_and_no_keys():
    config = S3Config.of({"AWS_REGION": "eu-west-3", "HOME": "/nowhere"})
    assert config == S3Config(None, "eu-west-3") and not config.path_style
    assert "aws_allow_http" not in config.for_delta()
    assert not any("key" in name or "provider" in name for name in config.for_hadoop())
    given = {
        "AWS_ENDPOINT_URL_S3": "https://store",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "HOME": "/nowhere",
    }
    config = S3Config.of(given)
    assert not config.path_style and config.for_hadoop()["spark.hadoop.fs.s3a.path.style.access"] == "false"


def test_profiles_are_behind_the_environment(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[profile lake]\nregion = eu-north-1\nendpoint_url = http://s:1\n"
    )
    (tmp_path / ".aws" / "credentials").write_text(
        "[lake]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    given = {"HOME": str(tmp_path), "AWS_PROFILE": "lake"}
    assert S3Config.of(given) == S3Config("http://s:1", "eu-north-1", "a", "b", None, True)
    given |= {"AWS_ACCESS_KEY_ID": "c", "AWS_SECRET_ACCESS_KEY": "d", "AWS_REGION": "eu-west-1"}
    assert S3Config.of(given) == S3Config("http://s:1", "eu-west-1", "c", "d", None, True)
    (tmp_path / ".aws" / "config").write_text("no section = 1\n")
    with pytest.raises(ObjectStoreError, match=r"cannot read .*\.aws/config"):
        S3Config.of(given)


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"AWS_ENDPOINT_URL": "store:9000"}, "AWS_ENDPOINT_URL must be http://HOST:PORT"),
        ({"AWS_ENDPOINT_URL": "http://store/path"}, "AWS_ENDPOINT_URL must be http://HOST:PORT"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY is not set"),
        ({"AWS_SECRET_ACCESS_KEY": "a"}, "AWS_ACCESS_KEY_ID is not set"),
    ],
)
def test_wrong_settings_are_named(given, reason):
    with pytest.raises(ObjectStoreError, match=reason):
        S3Config.of({**given, "HOME": "/nowhere"})


def test_urls_of_both_schemes_are_one_place():
    assert resolve_location("s3a://b/lake/") == resolve_location("s3://b/lake") == "s3://b/lake"
    for wrong in ("s3://", "s3://b/a b", "s3://b/a//b", "s3://b/a%20b", "s3://b/../c d"):
        with pytest.raises(ValueError, match="must be s3://BUCKET/PATH"):
            resolve_location(wrong)


# ---- folders


def test_folder(bucket):
    folder = Folder(f"{bucket}/some/where")
    assert not folder.is_directory() and not folder.exists("a/b") and list(folder.entries()) == []
    folder.write("a/b", b"first")
    folder.write("a/b", b"second one")
    folder.write("a/c/d", b"")
    folder.folder("a2").write("e", b"not below a")
    assert (
        folder.read("a/b") == b"second one"
        and folder.read("a/b", 7) == b"one"
        and folder.read("a/b", 99) == b""
    )
    assert folder.size("a/b") == 10 and folder.size("a") is None
    assert folder.exists("a") and folder.exists("a/b") and folder.is_directory()
    assert list(folder.entries("a")) == [Entry("a/b", 10)]
    assert sorted(folder.entries("a", deep=True)) == [Entry("a/b", 10), Entry("a/c/d", 0)]
    assert list(folder.folder("a").entries()) == [Entry("b", 10)]
    with pytest.raises(FileNotFoundError, match=r"some/where/nothing does not exist"):
        folder.read("nothing")
    with pytest.raises(FileNotFoundError):
        folder.read("nothing", 5)
    folder.remove("a/b")
    folder.remove("a/b")
    folder.remove_all("a")
    assert [one.name for one in folder.entries(deep=True)] == ["a2/e"]


@pytest.mark.parametrize("where", ["bucket", "tmp_path"])
def test_of_many_that_create_a_file_one_does(where, request):
    folder = Folder(f"{request.getfixturevalue(where)}/folder")

    def create(number):
        try:
            folder.create("new", b"%d" % number)
        except FileExistsError as fault:
            assert "new was written by another process" in str(fault)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(create, range(8)))
    assert sum(made) == 1 and folder.read("new") == b"%d" % made.index(True)
    assert [one.name for one in folder.entries()] == ["new"]


def test_store_that_cannot_be_used_is_named(bucket, monkeypatch):
    with pytest.raises(OSError, match="bucket does not exist"):
        Folder("s3://no-such-bucket-here/x").write("a", b"")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("stompring.pipeline.storage.RETRY_TIMEOUT", 1)
    with pytest.raises(OSError, match=r"/lake/a: cannot reach the object store \(AWS_ENDPOINT_URL\)"):
        Folder(f"{bucket}/lake").read("a")


# ---- leases


class Time:
    """The clock of one process: a sleep moves it on, when ``meanwhile`` has been done."""

    def __init__(self, meanwhile=lambda: None):
        self.now = 0.0
        self._meanwhile = meanwhile

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self._meanwhile()
        self.now += seconds


class Store:
    """The object store, of which answers are lost, or which is away."""

    def __init__(self, objects, *faults):
        self._objects = objects
        self.faults = list(faults)

    def __getattr__(self, name):
        return getattr(self._objects, name)

    def replace(self, name, data, tag):
        fault = self.faults.pop(0) if self.faults else None
        if fault == "away":
            raise ObjectStoreError("away")
        if fault == "lost":  # the library asks again, and is told that it is not as it was
            self._objects.replace(name, data, tag)
        return self._objects.replace(name, data, tag)


def lease(bucket, time=None, *faults):
    objects, time = Store(Folder(f"{bucket}/lake").objects, *faults), time or Time()
    return Lease(objects, 30, clock=time, sleep=time.sleep)


def test_second_owner_is_refused_while_the_first_lives(bucket):
    time = Time()
    first = lease(bucket, time)
    first.acquire()

    def renewed():
        time.now += 31
        first.check()

    refused = "another process is ingesting: process .* holds s3://.*/lake/ingest.lease"
    waiting = Time(renewed)
    with pytest.raises(Busy, match=refused):
        lease(bucket, waiting).acquire()
    assert waiting.now < 30
    first.check()
    first.release()
    third = Time()
    second = lease(bucket, third)
    second.acquire()
    assert third.now == 0  # it waits for none that has released it
    second.check()


def test_lease_that_is_held_is_renewed(bucket):
    folder = Folder(f"{bucket}/lake")
    with Lease(folder.objects, 0.3).acquired() as check:
        until(lambda: json.loads(folder.read("ingest.lease"))["renewal"] >= 3, "renewed three times")
        check()
    assert json.loads(folder.read("ingest.lease"))["owner"] is None


def test_killed_owner_is_followed_and_a_stopped_one_ends(bucket):
    before, after = Time(), Time()
    stopped, second = lease(bucket, before), lease(bucket, after)
    stopped.acquire()  # and renews nothing, as a process that was killed or stopped
    second.acquire()
    assert 30 <= after.now < 31
    before.now += 31
    with pytest.raises(LeaseLost, match="lost the lease: process .* took it over"):
        stopped.check()
    stopped.release()
    after.now += 31
    second.check()  # is not released by who has lost it


def test_of_many_that_take_over_one_does(bucket):
    """All of them have seen the same owner, which is dead."""
    lease(bucket).acquire()
    ready = Barrier(6)

    def take(_):
        try:
            lease(bucket, Time(lambda: ready.wait(PATIENCE))).acquire()
        except Busy:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(take, range(6))) == 1


def test_answer_that_is_lost_does_not_lose_the_lease(bucket):
    time = Time()
    one = lease(bucket, time, "lost", "lost")
    one.acquire()
    for _ in range(3):
        time.now += 31
        one.check()
    one.release()
    time = Time()
    lease(bucket, time).acquire()
    assert time.now == 0  # it was released


def test_store_that_is_away_for_longer_loses_the_lease_to_nobody(bucket):
    time = Time()
    one = lease(bucket, time, "away")
    with one.acquired() as check:
        time.now += 31
        with pytest.raises(OSError, match="away"):
            check()
        check()


# ---- batches and commits


def test_batch_is_begun_by_one_process(bucket):
    states = [Folder(f"{bucket}/lake") for _ in range(2)]
    first, second = (IntentLog(state) for state in states)
    begun = Intent(0, {}, {})
    first.write(begun)
    with pytest.raises(Busy, match="it started batch 0"):
        second.write(Intent(0, {}, {"journal": Position(2, 0)}))
    assert second.last() == begun
    second.write(Intent(1, {}, {}))
    assert first.last() == Intent(1, {}, {})


class Together(LakeTable):
    """Each opens it before any commits: what they look at does not tell them of another one."""

    opened: Barrier | None = None

    def open(self, version=None):
        found, opened, self.opened = super().open(version), self.opened, None
        if opened:
            opened.wait(30)
        return found


@pytest.mark.parametrize("where", ["bucket", "tmp_path"])
def test_batch_is_committed_once_by_many_at_once(where, request):
    place = f"{request.getfixturevalue(where)}/lake"
    Lake(place).create(2)
    tables = [Together(Folder(place), "samples") for _ in range(4)]
    opened = Barrier(4)
    for table in tables:
        table.opened = opened

    def commit(number):
        file = NewFile(
            f"date=2026-07-01/bucket=0/{number}.parquet", 1, 5, "2026-07-01", 0, '{"numRecords": 5}'
        )
        return tables[number].commit([file], "writer", 0, "main")

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(commit, range(4)))
    assert sum(done) == 1
    table = Lake(place).tables["samples"]
    assert [uri.rpartition("/")[2] for uri in table.open().file_uris()] == [f"{done.index(True)}.parquet"]
    assert table.committed("writer") == 0
    assert table.commit([], "another", 3, "main") and not table.commit([], "writer", 0, "main")


def test_lake_that_many_make_at_once_is_one(bucket):
    lakes = [Lake(f"{bucket}/lake") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda lake: lake.create(3), lakes))
    assert len({lake.id for lake in lakes}) == 1
    assert {table.buckets for lake in lakes for table in lake.tables.values()} == {3}


def test_one_compaction_at_a_time_beside_an_ingest(tmp_path):
    """Two that began at one version would both be done by delta-rs, and each row would be there twice."""
    lake = Lake(str(tmp_path / "lake"))
    lake.create(1)
    with lake.rewriting():
        done = run("compact", "--lake", lake)
        assert done.exit_code == 1 and "another process" in done.output and "Traceback" not in done.output
    with lake.locked():
        assert run("compact", "--lake", lake).exit_code == 0


def test_compaction_and_ingest_have_leases_of_their_own(bucket):
    lake = Lake(f"{bucket}/lake")
    with lake.locked(5), lake.rewriting():
        lake.check_lock()
    assert {one.name for one in lake.state.entries()} == {"ingest.lease", "rewrite.lease"}
