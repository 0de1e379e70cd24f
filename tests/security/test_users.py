"""Logging in against a users file, and the file changing under a running broker."""

import os
import re

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from stompring.errors import ConfigurationError
from stompring.security.accounts import Users, edit_users

from .hashers import QUICK, QUICK_BUT_OTHER


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "users.properties"
    with edit_users(path, QUICK) as edit:
        edit.put("ada", "lovelace")
        edit.put("grace", "hopper")
    return path


@pytest.mark.parametrize(
    "name, password, right",
    [
        ("ada", "lovelace", True),
        ("grace", "hopper", True),
        ("ada", "hopper", False),
        ("ada", "", False),
        ("ada", "lovelace ", False),
        ("ada", "\ud800", False),
        ("Ada", "lovelace", False),
        ("", "", False),
        ("nobody", "lovelace", False),
    ],
)
def test_verify(path, name, password, right):
    assert Users(path, QUICK).verify(name, password) is right


def test_an_unknown_user_costs_a_verification_of_the_same_parameters(path):
    class Watched(PasswordHasher):
        """Records the hashes that it verifies."""

        def verify(self, hash, password):
            hashes.append(str(hash))
            return super().verify(hash, password)

    hashes = []
    users = Users(path, Watched(time_cost=1, memory_cost=8, parallelism=1))
    assert not users.verify("nobody", "x")
    assert not users.verify("ada", "x")
    unknown, known = hashes
    assert unknown.rsplit("$", 2)[0] == known.rsplit("$", 2)[0]


def test_failure_to_compute_a_hash_is_not_a_wrong_password(path):
    class NoMemory(PasswordHasher):
        """What argon2 says on a machine whose memory is used up."""

        def verify(self, hash, password):
            raise VerificationError("Memory allocation error")

    with pytest.raises(
        ConfigurationError, match=r"users\.properties: .*'ada' cannot be verified: Memory alloc"
    ):
        Users(path, NoMemory()).verify("ada", "lovelace")


def test_needs_rehash_tells_other_parameters(path):
    assert not Users(path, QUICK).needs_rehash("ada")
    assert Users(path, QUICK_BUT_OTHER).needs_rehash("ada")
    with pytest.raises(KeyError):
        Users(path).needs_rehash("nobody")


def test_missing_file_is_an_error_with_advice(tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent: .*No such file.*stompring user add"):
        Users(tmp_path / "absent")


def test_refresh_sees_a_change_and_only_a_change(path):
    users = Users(path, QUICK)
    assert not users.refresh()
    with edit_users(path, QUICK) as edit:
        edit.put("ada", "countess")
        edit.remove("grace")
    assert users.refresh()
    assert not users.refresh()
    assert users.verify("ada", "countess")
    assert not users.verify("ada", "lovelace")
    assert not users.verify("grace", "hopper")


def test_refresh_sees_a_change_in_place_by_its_time(path):
    users = Users(path, QUICK)
    first, second = path.read_text().splitlines()
    path.write_text(f"{second}\n{first}\n")  # same inode, same size
    later = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(later, later))
    assert users.refresh()
    assert users.names() == ["grace", "ada"]


def spoil(path):
    path.write_text("rubbish\n")
    return r"users\.properties:1: a line must be"


def remove(path):
    path.unlink()
    return r"users\.properties: .*No such file"


@pytest.mark.parametrize("harm", [spoil, remove])
def test_a_file_that_breaks_leaves_the_old_users_in_force(path, harm, caplog):
    users = Users(path, QUICK)
    good = path.read_text()
    fault = harm(path)
    for _ in range(2):  # refresh raises each time
        with pytest.raises(ConfigurationError, match=fault):
            users.refresh()
    for _ in range(3):
        assert users.verify("ada", "lovelace")
    assert len(caplog.messages) == 1, "logged once, not at every login"
    assert re.search(fault, caplog.text) and "stay in effect" in caplog.text
    path.write_text(good + "# mended\n")
    assert users.refresh()
    assert not users.refresh()
    harm(path)
    assert users.verify("grace", "hopper")
    path.write_text(good)
    assert users.verify("grace", "hopper")
    harm(path)
    assert users.verify("grace", "hopper")
    assert len(caplog.messages) == 3, "a recurring error is logged again"
