"""The archive of classes by which Spark's Java starts sooner: used where it is whole and fits, else nothing happens."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from stompring.pipeline import session
from stompring.pipeline.session import ArchiveError, ClassArchive, JavaNotFound, cache_directory, find_java

from ..cli.command import invoke


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A Java home, Spark's directory and a cache; a Java that writes an archive without running anything."""
    home, spark, cache = tmp_path / "java", tmp_path / "spark", tmp_path / "cache"
    for file in (home / "lib/server/libjvm.so", home / "lib/server/classes.jsa", spark / "jars/a.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")

    def exercise(options, work):
        (name,) = (each.partition("=")[2] for each in options if "ArchiveClassesAtExit" in each)
        Path(name).write_bytes(b"classes")

    monkeypatch.setattr(session, "_train", exercise)
    return home, spark, cache


@pytest.fixture
def java(tmp_path):
    """The home of one that is there."""
    try:
        return find_java(tmp_path / "launcher")
    except JavaNotFound as reason:
        pytest.skip(f"java is not installed: {reason}")


def archive_of(places):
    home, spark, cache = places
    return ClassArchive(home, cache, spark)


@pytest.fixture
def archive(places):
    return archive_of(places)


def test_archive_is_used_once_it_is_made(places, archive):
    assert archive.options() == () and not archive.exists()
    assert archive.create() == len(b"classes")
    path = archive.path
    assert path.parent == places[2] and oct(path.stat().st_mode)[-3:] == "400"
    assert archive_of(places).options()[0] == f"-XX:SharedArchiveFile={path}"
    assert not list(places[2].glob("new-*")) and oct(places[2].stat().st_mode)[-3:] == "700"
    assert archive.remove() and not archive.exists() and not archive.remove()
    assert [one.name for one in places[2].iterdir()] == ["lock"]


def cut(path):
    path.chmod(0o600)
    path.write_bytes(b"clas")


def changed(path):
    path.chmod(0o600)
    path.write_bytes(b"CLASSES")
    os.utime(path, ns=(1, 1))


def writable_by_others(path):
    path.chmod(0o622)


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def without_seal(path):
    path.with_name(f"{path.name}.seal").unlink()


def seal_is_broken(path):
    path.with_name(f"{path.name}.seal").write_text("{")


@pytest.mark.parametrize("damage", [cut, changed, writable_by_others, link, without_seal, seal_is_broken])
def test_damaged_archive_is_ignored_and_replaced(damage, archive):
    archive.create()
    damage(archive.path)
    assert archive.options() == ()
    archive.create()
    assert archive.options() != ()


def test_another_jar_or_java_needs_another_archive_and_the_old_one_goes(places, archive):
    archive.create()
    first = archive.path
    (places[1] / "jars/b.jar").write_bytes(b"more")
    other = archive_of(places)
    assert other.path != first and other.options() == ()
    other.create()
    assert not first.exists() and other.exists()
    (places[0] / "lib/server/libjvm.so").write_bytes(b"updated")
    assert archive_of(places).path not in (first, other.path)


def test_archives_of_other_installations_stay(places, tmp_path):
    archive_of(places).create()
    shutil.copytree(places[1], tmp_path / "second")
    second = ClassArchive(places[0], places[2], tmp_path / "second")
    second.create()
    assert second.exists() and archive_of(places).exists()


def test_one_process_makes_it_at_a_time(places):
    places[2].mkdir()
    with open(places[2] / "lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ArchiveError, match="another process is creating an archive in "):
            archive_of(places).create()
        assert not archive_of(places).has_failed()
    (places[2] / "new-left").mkdir()  # of one that was killed
    archive_of(places).create()
    assert not (places[2] / "new-left").exists()


def test_failure_is_remembered_until_it_works(places, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(session, "_train", lambda options, work: None)
        with pytest.raises(
            ArchiveError, match="wrote no archive: a directory with files on Spark's class path"
        ):
            archive_of(places).create()
    archive = archive_of(places)
    assert archive.has_failed() and not archive.exists()
    archive.create()
    assert not archive.has_failed()


def test_java_without_archive_of_its_own_gets_one_below(places, monkeypatch):
    (places[0] / "lib/server/classes.jsa").unlink()

    def run(command):
        (name,) = (each.partition("=")[2] for each in map(str, command) if "SharedArchiveFile" in each)
        Path(name).write_bytes(b"base")

    monkeypatch.setattr(session, "_run", run)
    archive = archive_of(places)
    assert archive.create() == len(b"base" + b"classes")
    path = archive.path
    assert archive.options()[0] == f"-XX:SharedArchiveFile={path.with_suffix('.base.jsa')}:{path}"
    path.with_suffix(".base.jsa").unlink()
    assert archive.options() == ()


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/stompring"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/cache"}, "/cache/stompring"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "relative"}, "/home/a/.cache/stompring"),
        ({"HOME": "/home/a", "STOMPRING_CLASS_ARCHIVE": "/some/where"}, "/some/where"),
        ({"HOME": "/home/a", "STOMPRING_CLASS_ARCHIVE": "off"}, None),
        ({}, None),
    ],
)
def test_cache_directory(environment, expected):
    assert cache_directory(environment) == (None if expected is None else Path(expected))


def test_switched_off_or_not_writable(places, monkeypatch, tmp_path):
    monkeypatch.setenv("STOMPRING_CLASS_ARCHIVE", "off")
    off = ClassArchive(places[0], None, places[1])
    assert off.options() == () and off.path is None
    with pytest.raises(ArchiveError, match="STOMPRING_CLASS_ARCHIVE disables archives"):
        off.create()
    assert ClassArchive(places[0], tmp_path / "a:b", places[1]).path is None  # Java separates archives by it
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        ClassArchive(places[0], tmp_path / "file" / "below", places[1]).create()


def test_java_says_nothing_of_an_archive_that_is_none(places, java):
    """Not even on standard output, where a query's rows go."""
    archive_of(places).create()
    options = archive_of(places).options()
    told = subprocess.run(
        [java / "bin" / "java", *options, "-version"], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0 and told.stdout == "" and "version" in told.stderr
    assert "archive" not in told.stderr.lower()


@pytest.mark.spark
@pytest.mark.long
def test_warm_makes_an_archive_that_java_uses(tmp_path, java):
    environment = {**os.environ, "STOMPRING_CLASS_ARCHIVE": str(tmp_path / "cache")}
    words = [sys.executable, "-m", "stompring", "lake", "warm"]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    archive = ClassArchive(java, tmp_path / "cache")
    assert archive.exists() and f"created {archive.path}, " in told.stdout
    script = (
        "from pyspark import SparkContext\n"
        "from stompring.pipeline.session import spark_session\n"
        "spark = spark_session('local[1]')\n"
        "print(open(f'/proc/{SparkContext._gateway.proc.pid}/maps').read())\n"
        "print(spark.sql('select 1').first())\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=200
    )
    assert told.returncode == 0 and str(archive.path) in told.stdout, told.stderr
    assert told.stdout.endswith("Row(1=1)\n")


def test_warm_tells_why_not(java, monkeypatch):
    monkeypatch.setenv("STOMPRING_CLASS_ARCHIVE", "off")
    assert invoke("lake warm", code=1).output.startswith("Error: STOMPRING_CLASS_ARCHIVE disables")
    assert invoke("lake warm --remove").output == "no archive to remove\n"


def test_values_of_numpy_are_known_without_pandas():
    numpy = pytest.importorskip("numpy")
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    from stompring.pipeline.session import _skip_pandas

    _skip_pandas()
    for value, scalar, array in [
        (numpy.int64(1), True, False),
        (numpy.zeros(2), False, True),
        (numpy.zeros((2, 2)), False, False),
        ("text", False, False),
    ]:
        assert NumpyScalarConverter().can_convert(value) == scalar
        assert NumpyArrayConverter().can_convert(value) == array
