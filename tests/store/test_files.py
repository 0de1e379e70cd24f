"""The file system, the real one."""

import os

import pytest

from stompring.store.files import Files

FILES = Files()


def test_a_file_is_made_with_its_directories(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    descriptor = FILES.open(path)
    assert FILES.write(descriptor, b"hello", 0) == 5
    assert FILES.write(descriptor, memoryview(b"J"), 0) == 1
    FILES.sync(descriptor)
    FILES.close(descriptor)
    assert path.read_bytes() == b"Jello" and FILES.size(path) == 5
    again = FILES.open(path)
    FILES.write(again, b"!", 5)
    FILES.close(again)
    assert path.read_bytes() == b"Jello!"


def test_files_are_not_accessible_by_others(tmp_path):
    FILES.close(FILES.open(tmp_path / "d" / "file"))
    FILES.replace(tmp_path / "d" / "other", b"x")
    for path in (tmp_path / "d" / "file", tmp_path / "d" / "other", tmp_path / "d"):
        assert not path.stat().st_mode & 0o007


def test_parts_of_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert FILES.read(path) == b"0123456789"
    assert FILES.read(path, 3, 5) == b"34"
    assert FILES.read(path, 8, 50) == b"89"
    assert FILES.read(path, 20, 30) == b""
    with pytest.raises(FileNotFoundError):
        FILES.read(tmp_path / "none")


def test_cut_off(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    FILES.truncate(path, 4)
    assert path.read_bytes() == b"0123"


def test_deleted_renamed_replaced(tmp_path):
    path = tmp_path / "file"
    FILES.replace(path, b"one")
    FILES.replace(path, b"two")
    FILES.rename(path, tmp_path / "other")
    assert FILES.names(tmp_path) == ["other"]
    FILES.remove(tmp_path / "other")
    FILES.remove(tmp_path / "other")
    assert FILES.names(tmp_path) == [] and FILES.names(tmp_path / "none") == []


def test_a_replacement_that_fails_leaves_the_old_contents(tmp_path, monkeypatch):
    path = tmp_path / "file"
    FILES.replace(path, b"old")

    def fail(descriptor):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        FILES.replace(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_file_whose_name_is_not_safe_is_not_there(tmp_path, monkeypatch):
    """Else the next try would find it, and take its name for safe."""

    def fail(descriptor):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        FILES.open(tmp_path / "file")
    assert os.listdir(tmp_path) == []
