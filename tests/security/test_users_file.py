"""The text of a users file: what may stand there, and how it is changed."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.errors import ConfigurationError
from stompring.security.accounts import USERS_FILE, UsersEdit, check_name, edit_users, parse_users, read_lines

from .hashers import QUICK

HASH = QUICK.hash("secret")
OTHER = QUICK.hash("other")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.properties"


@pytest.mark.parametrize(
    "lines, expected",
    [
        ([], {}),
        (["", "   ", "# a comment", "  # another = one"], {}),
        ([f"ada = {HASH}"], {"ada": HASH}),
        ([f"ada={HASH}"], {"ada": HASH}),
        ([f"  ada\t=\t{HASH}  "], {"ada": HASH}),
        ([f"Ada King = {HASH}", "", f"ädä = {OTHER}"], {"Ada King": HASH, "ädä": OTHER}),
    ],
)
def test_lines_that_are_understood(lines, expected):
    assert parse_users(lines, "users") == expected


@pytest.mark.parametrize(
    "lines, message",
    [
        (["ada"], "users:1: a line must be 'name = hash', or begin with '#'"),
        (["# c", "", f"= {HASH}"], "users:3: a user name cannot be empty"),
        ([f"a#b = {HASH}"], "users:1: user name 'a#b' contains '#', which is reserved in users files"),
        ([f"a\x07b = {HASH}"], r"users:1: user name 'a\x07b' contains the control character '\x07'"),
        (
            ["ada = lovelace"],
            "users:1: user 'ada': value is not an argon2 hash; "
            "remove the line and set a password with: stompring user add ada",
        ),
        (["ada ="], "users:1: user 'ada': value is not an argon2 hash; remove the line"),
        (
            ["ada = ENC(1024:AB)"],
            "users:1: user 'ada': value is not a password hash of Artemis, ENC(iterations:salt:hash), as 'artemis "
            "mask --hash' prints it; remove the line and set the password with: stompring user add ada",
        ),
        ([f"ada = {HASH}", "#", f"ada = {OTHER}"], "users:3: user 'ada' is already in line 1"),
    ],
)
def test_errors_are_reported_with_their_line(lines, message):
    with pytest.raises(ConfigurationError) as caught:
        parse_users(lines, "users")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("secret", ["lovelace", "ENC(1024:AB)"])
def test_errors_never_contain_a_possible_password(secret):
    with pytest.raises(ConfigurationError) as caught:
        parse_users([f"ada = {secret}"], "users")
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "content, lines",
    [
        (b"", []),
        (b"a\n", ["a"]),
        (b"a", ["a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\n", ["a", ""]),
        ("a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc"]),
    ],
)
def test_read_lines(path, content, lines):
    path.write_bytes(content)
    assert read_lines(path, USERS_FILE) == lines


def test_invalid_utf_8_is_reported_with_its_line(path):
    path.write_bytes(b"# fine\n\nad\xe4 = x\n")
    with pytest.raises(ConfigurationError, match=r"users\.properties:3: the users file must be UTF-8 text"):
        read_lines(path, USERS_FILE)


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        read_lines(tmp_path, USERS_FILE)


@pytest.mark.parametrize(
    "name", ["", " ada", "ada ", "a=b", "#ada", "a\nb", "a\tb", "a\x7fb", "a\0b", "\ud800"]
)
def test_names_that_may_not(name):
    with pytest.raises(ValueError, match="user name"):
        check_name(name)


@given(st.text())
def test_every_name_that_is_allowed_comes_back_from_the_file(name):
    try:
        check_name(name)
    except ValueError:
        return
    assert parse_users([f"{name} = {HASH}"], "users") == {name: HASH}


def test_a_new_file_is_for_its_owner_alone(path):
    with edit_users(path, QUICK) as edit:
        edit.put("ada", "lovelace")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name], "nothing temporary stays behind"


def test_put_and_remove_leave_everything_else_as_it_is(path):
    path.write_text(f"# operators\nada = {HASH}\n\n# programs\n  grace={HASH}\nlast = {HASH}")
    with edit_users(path, QUICK) as edit:
        edit.put("ada", "countess")
        edit.remove("last")
        edit.put("new", "word")
    lines = path.read_text().splitlines()
    assert lines[0] == "# operators"
    assert lines[1].startswith("ada = $argon2id$") and lines[1] != f"ada = {HASH}"
    assert lines[2:5] == ["", "# programs", f"  grace={HASH}"]
    assert lines[5].startswith("new = $argon2id$")
    assert len(lines) == 6
    assert QUICK.verify(lines[1].partition(" = ")[2], "countess")


def test_a_comment_is_not_a_user():
    edit = UsersEdit(["# ada = x"], QUICK)
    assert "ada" not in edit and "# ada" not in edit and None not in edit
    with pytest.raises(KeyError):
        edit.remove("ada")


def test_invalid_edit_is_refused_before_any_write(path):
    for name, password in [("a=b", "x"), ("ada", ""), ("ada", "a\nb")]:
        with pytest.raises(ValueError), edit_users(path, QUICK) as edit:
            edit.put("fine", "fine")
            edit.put(name, password)
    assert not path.exists()


def test_a_file_with_a_fault_is_not_changed(path):
    path.write_text("rubbish\n")
    with pytest.raises(ConfigurationError, match=r"users\.properties:1: "), edit_users(path, QUICK):
        pytest.fail("must not be reached")
    assert path.read_text() == "rubbish\n"


def test_nothing_is_written_when_nothing_changed(path):
    path.write_text(f"ada = {HASH}")
    before = path.stat()
    with edit_users(path, QUICK):
        pass
    after = path.stat()  # but for the time of access: reading is allowed
    for each in ("st_ino", "st_mtime_ns", "st_ctime_ns"):
        assert getattr(after, each) == getattr(before, each)
    with edit_users(path.with_name("never"), QUICK):
        pass
    assert not path.with_name("never").exists()


def test_a_failed_write_leaves_the_old_file_and_no_other(path, monkeypatch):
    path.write_text(f"ada = {HASH}\n")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with (
        pytest.raises(ConfigurationError, match="cannot be written: No space left"),
        edit_users(path, QUICK) as edit,
    ):
        edit.remove("ada")
    assert path.read_text() == f"ada = {HASH}\n"
    assert os.listdir(path.parent) == [path.name]


def test_missing_directory_is_an_error(tmp_path):
    with (
        pytest.raises(ConfigurationError, match="cannot be written: No such file"),
        edit_users(tmp_path / "no" / "users"),
    ):
        pytest.fail("must not be reached")


def test_a_symbolic_link_stays_one(path):
    real = path.with_name("real")
    real.touch()
    path.symlink_to("real")
    with edit_users(path, QUICK) as edit:
        edit.put("ada", "x")
    assert path.is_symlink()
    assert "ada" in real.read_text()


def test_edits_at_the_same_time_lose_nothing(path):
    def add(number):
        with edit_users(path, QUICK) as edit:
            edit.put(f"user{number}", "x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert set(parse_users(read_lines(path, USERS_FILE), "users")) == {
        f"user{number}" for number in range(40)
    }
