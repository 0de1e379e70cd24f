"""Roles files: what they say, and how they are changed."""

import pytest

from stompring.errors import ConfigurationError
from stompring.security.accounts import Roles, edit_roles


@pytest.fixture
def path(tmp_path):
    return tmp_path / "roles.properties"


def test_content_of_a_file(path):
    path.write_text("# who\nadmins = ada\n\nclerks=ada,  grace , 山田\nnobody =\n")
    roles = Roles(path)
    assert roles.of("ada") == {"admins", "clerks"} and roles.of("山田") == {"clerks"}
    assert roles.of("stranger") == frozenset()


@pytest.mark.parametrize(
    "line, fault",
    [
        ("admins", "a line must be 'role = user, user'"),
        (" = ada", "a role name cannot be empty"),
        ("a = ada,,bob", "empty user name between commas"),
        ("a = ada, ada", "lists user 'ada' twice"),
        ("ok = x", "role 'ok' is already in line 1"),
        ("a = b = c", "contains '='"),
        ("a\x07 = b", "control character"),
    ],
)
def test_errors_are_reported_with_their_line(path, line, fault):
    path.write_text(f"ok = ada\n{line}\n")
    with pytest.raises(ConfigurationError, match=f"^{path}:2: .*{fault}"):
        Roles(path)


def test_changes(path):
    with edit_roles(path) as edit:
        assert edit.grant("clerks", "ada") and edit.grant("clerks", "bob") and edit.grant("admins", "ada")
        assert not edit.grant("clerks", "bob")
    assert path.read_text() == "clerks = ada, bob\nadmins = ada\n"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# mine\n" + path.read_text())
    with edit_roles(path) as edit:
        assert edit.revoke("clerks", "bob") and not edit.revoke("clerks", "bob")
        assert not edit.revoke("none", "bob")
    assert path.read_text() == "# mine\nclerks = ada\nadmins = ada\n"
    with edit_roles(path) as edit:
        assert edit.revoke_all("ada") == ["clerks", "admins"] and edit.revoke_all("ada") == []
    assert path.read_text() == "# mine\n"


@pytest.mark.parametrize("role, user", [("", "ada"), ("a=b", "ada"), ("a", "b,c"), ("a", ""), ("a", " b")])
def test_names_that_cannot_be(path, role, user):
    with pytest.raises(ValueError), edit_roles(path) as edit:
        edit.grant(role, user)
    assert not path.exists()


def test_a_broken_file_is_not_changed(path):
    path.write_text("broken\n")
    with pytest.raises(ConfigurationError), edit_roles(path) as edit:
        edit.grant("a", "b")
    assert path.read_text() == "broken\n"
