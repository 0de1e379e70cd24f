"""Artemis's own users and roles files: hashes of ``artemis mask --hash``, plain passwords, the syntax of Java."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.errors import ConfigurationError
from stompring.security.accounts import (
    JAVA,
    Users,
    check_users_file,
    edit_roles,
    edit_users,
    parse_roles,
    parse_users,
)
from stompring.settings.model import BrokerConfiguration

from .hashers import QUICK

#: Printed by Artemis 2.44: of "p", written by ``create``, and of "pässwörd€𝄞", by ``mask --hash``.
OF_P = (
    "ENC(1024:8F6CB0FE1ACE9F240CAE6788D33F456AE3F3BFDC339DB982AF9509D6902217D2:756C5047E7A9A8A12AC49932AFBD1E0DAAE8DB71"
    "34062DC9ACDEB7F5CC6FD3D78A5B59E3FF00916C33E526233BCD363164A3C58199FE7DF278F187044C6660F7)"
)
OF_LETTERS = (
    "ENC(1024:E04D8C2A3BAC7EC7E1768686567A7DE3249D4617C2D5436DB51175CAB2EBB4DC:C7DED5FE33A5DDB5E2734312E59B8FE48EFC1169"
    "52962427BB530793B970365FEC1E4002D77842D9CD1C8F28134D7919BE691346AD49711F4F004D2E215CC609)"
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "artemis-users.properties"
    path.write_text(
        f"# created\nu = {OF_P}\n! as Java\nö={OF_LETTERS.lower().replace('enc', 'ENC')}\nbill:activemq\n"
    )
    return path


@pytest.mark.parametrize(
    "name, password, right",
    [
        ("u", "p", True),
        ("u", "P", False),
        ("u", "", False),
        ("u", "\ud800", False),
        ("u", OF_P, False),
        ("ö", "pässwörd€𝄞", True),
        ("ö", "p", False),
        ("bill", "activemq", True),
        ("bill", "activemq ", False),
        ("bill", "", False),
        ("nobody", "p", False),
    ],
)
def test_passwords_of_artemis_are_verified(path, name, password, right):
    assert Users(path, QUICK).verify(name, password) is right


def test_hashes_of_artemis_may_be_in_any_users_file(tmp_path):
    path = tmp_path / "users.properties"
    path.write_text(f"u = {OF_P}\n")
    assert Users(path, QUICK).verify("u", "p") and not Users(path, QUICK).verify("u", "q")


def test_plain_passwords_are_refused_in_other_files_than_artemis_own():
    with pytest.raises(ConfigurationError, match="is not an argon2 hash") as caught:
        parse_users(["bill = activemq"], "etc/users.properties")
    assert "activemq" not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["", "$argon2id$broken", "ENC(-41e444299c6b0b6c)", "ENC(0:AB:CD)", "ENC(1:ABC:CD)", "ENC(1:AB:)"]
)
def test_broken_hashes_are_never_taken_for_passwords(value):
    with pytest.raises(
        ConfigurationError, match=r"^artemis-users\.properties:2: user 'u': value is not an? "
    ):
        parse_users(["# c", f"u = {value}"], "artemis-users.properties")


def test_plain_passwords_are_listed_and_all_of_artemis_need_a_rehash(path):
    users = Users(path, QUICK)
    assert users.plain_passwords() == ["bill"]
    assert all(users.needs_rehash(name) for name in users.names())


def test_changes_are_written_with_argon2_into_artemis_file(path):
    with edit_users(path, QUICK) as edit:
        edit.put("bill", "new")
        edit.put("a:b c", "other")
        edit.remove("ö")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["# created", f"u = {OF_P}", "! as Java"]
    assert lines[3].startswith("bill = $argon2id$") and lines[4].startswith("a\\:b\\ c = $argon2id$")
    users = Users(path, QUICK)
    assert users.verify("bill", "new") and users.verify("a:b c", "other") and users.verify("u", "p")


@pytest.mark.parametrize(
    "line, entry",
    [
        ("", None),
        ("  # x = y", None),
        ("! x = y", None),
        ("a = b", ("a", "b")),
        ("a:b=c", ("a", "b=c")),
        (r"r,o\ le = u", ("r,o le", "u")),
        (r"a\:b\=c = d", ("a:b=c", "d")),
        (r"a\\= b\\c", ("a\\", "b\\c")),
        (r"\u00fc = \ud834\udd1e", ("ü", "𝄞")),
        ("a b = c", ("a b", "c")),
        ("alone", ("alone", None)),
        ("a =", ("a", "")),
    ],
)
def test_lines_in_the_syntax_of_java(line, entry):
    assert JAVA.read(line) == entry


@given(
    st.text(st.characters(exclude_categories=("C", "Z"))),
    st.text(st.characters(exclude_categories=("C", "Z"))),
)
def test_what_is_written_in_the_syntax_of_java_is_read_again(name, value):
    assert JAVA.read(JAVA.write(f"a{name}", value)) == (f"a{name}", value)


def test_roles_are_read_and_edited_in_artemis_file(tmp_path):
    path = tmp_path / "artemis-roles.properties"
    path.write_text("! Artemis\nr\\ 1 = ada,bill\nempty =\n")
    assert parse_roles(path.read_text().splitlines(), str(path)) == {"r 1": ("ada", "bill"), "empty": ()}
    with edit_roles(path) as edit:
        assert edit.of("bill") == ["r 1"] and edit.grant("r 1", "cleo") and edit.revoke("r 1", "bill")
    assert path.read_text().splitlines() == ["! Artemis", "r\\ 1 = ada, cleo", "empty ="]


def test_a_start_without_users_says_what_to_do(tmp_path):
    file, users = str(tmp_path / "broker.xml"), str(tmp_path / "users.properties")
    with pytest.raises(ConfigurationError) as caught:
        check_users_file(BrokerConfiguration(file=file, users_file=users))
    text = str(caught.value)
    assert users in text and f"stompring user add NAME --role ROLE --config {file}" in text
    assert "artemis-users.properties" in text and "<security-enabled> to false" in text
    check_users_file(BrokerConfiguration(file=file, users_file=users, security_enabled=False))
