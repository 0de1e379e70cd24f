"""``stompring user add|rm|list``, by a users file and by a broker.xml that names one."""

import pytest
from click.testing import CliRunner

from stompring.cli.main import main
from stompring.security import users
from stompring.security.users import Users

from ..security.hashers import QUICK

BROKER_XML = """<configuration><core>
  <persistence-enabled>false</persistence-enabled>
  <security-enabled>{secure}</security-enabled>
  {users}
</core></configuration>
"""


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch):
    """Cheap hashes for everything that edits here."""

    def put_quickly(edit, name, password):
        edit._hasher = QUICK
        put(edit, name, password)

    put = users.UsersEdit.put
    monkeypatch.setattr(users.UsersEdit, "put", put_quickly)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "users.properties"


def user(*arguments, typed=""):
    return CliRunner().invoke(main, ["user", *map(str, arguments)], input=typed)


def add(path, name, password):
    assert user("add", name, "--password-stdin", "--users", path, typed=password).exit_code == 0


def test_add_prompts_twice_and_echoes_nothing(path):
    result = user("add", "ada", "--users", path, typed="lovelace\nlovelace\n")
    assert result.exit_code == 0
    assert "Password of ada:" in result.output and f"user 'ada' saved in {path}" in result.output
    assert "lovelace" not in result.output
    assert Users(path).verify("ada", "lovelace")


def test_add_prompts_again_for_different_or_invalid_passwords(path):
    result = user("add", "ada", "--users", path, typed="one\ntwo\nthree\nthree\n")
    assert result.exit_code == 0
    assert "do not match" in result.output
    assert Users(path).verify("ada", "three")


def test_add_writes_nothing_when_the_question_is_left(path):
    assert user("add", "ada", "--users", path, typed="lovelace\n").exit_code == 130
    assert not path.exists()


@pytest.mark.parametrize(
    ("typed", "password"),
    [
        ("lovelace", "lovelace"),
        ("lovelace\n", "lovelace"),
        ("lovelace\r\n", "lovelace"),
        ("  two words ", "  two words "),
    ],
)
def test_add_takes_the_password_from_standard_input(path, typed, password):
    result = user("add", "ada", "--password-stdin", "--users", path, typed=typed)
    assert result.exit_code == 0
    assert "Password of" not in result.output
    assert Users(path).verify("ada", password)


@pytest.mark.parametrize(("typed", "reason"), [("", "empty"), ("\n", "empty"), ("one\ntwo\n", "line end")])
def test_a_password_on_standard_input_that_cannot_be_is_refused(path, typed, reason):
    result = user("add", "ada", "--password-stdin", "--users", path, typed=typed)
    assert result.exit_code == 1
    assert "on standard input: a password cannot" in result.stderr and reason in result.stderr
    assert not path.exists()


def test_a_password_on_standard_input_must_be_text(path):
    arguments = ["user", "add", "ada", "--password-stdin", "--users", str(path)]
    result = CliRunner().invoke(main, arguments, input=b"l\xf6velace\n")
    assert result.exit_code == 1
    assert "not UTF-8" in result.stderr
    assert not path.exists()


def test_the_password_cannot_be_an_argument(path):
    assert user("add", "ada", "lovelace", "--users", path).exit_code == 2
    assert user("add", "ada", "--password", "lovelace", "--users", path).exit_code == 2
    assert not path.exists()


@pytest.mark.parametrize("name", ["", " ada", "ada ", "a=b", "#ada", "a\nb"])
@pytest.mark.parametrize("command", ["add", "rm"])
def test_names_that_cannot_be_are_refused(path, command, name):
    result = user(command, "--users", path, "--", name)
    assert result.exit_code == 2
    assert "user name" in result.stderr
    assert not path.exists()


def test_existing_user_is_replaced_only_with_the_option(path):
    add(path, "ada", "first")
    result = user("add", "ada", "--users", path)  # no input: it must not come to the question
    assert result.exit_code == 1
    assert (
        result.stderr == f"Error: user 'ada' exists already in {path}; replace the password with --replace\n"
    )
    assert Users(path).verify("ada", "first")
    assert user("add", "ada", "--replace", "--password-stdin", "--users", path, typed="second").exit_code == 0
    assert Users(path).verify("ada", "second")
    assert Users(path).names() == ["ada"]


def test_rm(path):
    add(path, "ada", "x")
    add(path, "grace", "y")
    result = user("rm", "ada", "--users", path)
    assert (result.exit_code, result.output) == (0, f"user 'ada' removed from {path}\n")
    assert Users(path).names() == ["grace"]
    result = user("rm", "ada", "--users", path)
    assert (result.exit_code, result.stderr) == (1, f"Error: no user 'ada' in {path}\n")


def test_list_prints_names_and_nothing_else(path):
    add(path, "grace", "x")
    add(path, "ada", "y")
    result = user("list", "--users", path)
    assert (result.exit_code, result.stdout) == (0, "grace\nada\n")
    assert "password hash of 'ada' has outdated parameters" in result.stderr  # QUICK is weak indeed


@pytest.mark.parametrize("command", [["list"], ["rm", "ada"]])
def test_missing_file_is_an_error_with_advice(path, command):
    result = user(*command, "--users", path)
    assert result.exit_code == 1
    assert "No such file or directory; create it with: stompring user add NAME" in result.stderr
    assert not path.exists()


@pytest.mark.parametrize("command", [["list"], ["rm", "ada"], ["add", "ada", "--password-stdin"]])
def test_error_in_the_file_is_reported_with_its_line(path, command):
    path.write_text("# users\nada = lovelace\n")
    result = user(*command, "--users", path, typed="x")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {path}:2: user 'ada': value is not an argon2 hash")
    assert path.read_text() == "# users\nada = lovelace\n"


def test_the_broker_xml_says_where_the_users_are(path):
    config = path.parent / "elsewhere" / "broker.xml"
    config.parent.mkdir()
    config.write_text(BROKER_XML.format(secure="true", users="<users-file>people</users-file>"))
    result = user("add", "ada", "--password-stdin", "--config", config, typed="lovelace")
    assert result.exit_code == 0, result.output
    assert Users(config.parent / "people").names() == ["ada"]
    assert user("list", "--config", config).stdout == "ada\n"


def test_default_broker_xml_is_used_without_options(path):
    assert "--config FILE" in user("list").stderr
    config = path.parent / "config" / "broker.xml"
    config.parent.mkdir()
    config.write_text(BROKER_XML.format(secure="true", users="<users-file>people</users-file>"))
    add(config.with_name("people"), "ada", "x")
    assert user("list").stdout == "ada\n"


def test_disabled_security_without_users_file_is_an_error_with_advice(path):
    config = path.with_name("broker.xml")
    config.write_text(BROKER_XML.format(secure="false", users=""))
    result = user("list", "--config", config)
    assert result.exit_code == 1
    assert f"{config}: security is disabled and there is no <users-file>" in result.stderr
    assert "<security-enabled>" in result.stderr and "--users FILE" in result.stderr


def test_users_may_be_added_before_security_is_switched_on(path):
    config = path.with_name("broker.xml")
    config.write_text(BROKER_XML.format(secure="false", users="<users-file>people</users-file>"))
    result = user("add", "ada", "--password-stdin", "--config", config, typed="x")
    assert result.exit_code == 0
    assert f"security is disabled in {config}" in result.stderr
    assert Users(path.with_name("people")).names() == ["ada"]


def test_config_and_users_exclude_each_other(path):
    result = user("list", "--config", "broker.xml", "--users", path)
    assert result.exit_code == 2
    assert "are mutually exclusive" in result.stderr


def test_broken_broker_xml_is_reported_with_its_line(path):
    config = path.with_name("broker.xml")
    config.write_text("<configuration>\n<kore/></configuration>")
    result = user("list", "--config", config)
    assert result.exit_code == 1
    assert f"{config}:2: " in result.stderr


# ---- roles


@pytest.fixture
def config(path):
    config = path.with_name("broker.xml")
    config.write_text(BROKER_XML.format(secure="true", users=""))
    return config


def test_add_gives_roles_and_list_shows_them(config):
    roles = ["--role", "clerks", "--role", "admins"]
    result = user("add", "ada", "--password-stdin", *roles, "--config", config, typed="x")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1:] == [
        "role 'clerks' granted to user 'ada'",
        "role 'admins' granted to user 'ada'",
    ]
    assert user("add", "bob", "--password-stdin", "--config", config, typed="x").exit_code == 0
    assert config.with_name("roles.properties").read_text() == "clerks = ada\nadmins = ada\n"
    assert user("list", "--config", config).stdout == "ada\tadmins, clerks\nbob\n"


def test_grant_and_revoke(config):
    user("add", "ada", "--password-stdin", "--config", config, typed="x")
    assert user("grant", "ada", "a", "b", "--config", config).exit_code == 0
    assert user("grant", "ada", "b", "--config", config).exit_code == 0, "once more is no fault"
    assert user("revoke", "ada", "a", "--config", config).stdout == "role 'a' revoked from user 'ada'\n"
    assert user("list", "--config", config).stdout == "ada\tb\n"


def test_rm_takes_the_roles_too(config):
    user("add", "ada", "--password-stdin", "--role", "a", "--config", config, typed="x")
    result = user("rm", "ada", "--config", config)
    assert result.exit_code == 0 and "role 'a' revoked from user" in result.stdout
    assert config.with_name("roles.properties").read_text() == ""


def test_invalid_grants_and_revocations_are_errors(config):
    user("add", "ada", "--password-stdin", "--role", "a", "--config", config, typed="x")
    nobody = user("grant", "bob", "a", "--config", config)
    assert nobody.exit_code == 1 and "no user 'bob'" in nobody.stderr
    lacking = user("revoke", "ada", "a", "b", "--config", config)
    assert lacking.exit_code == 1 and "does not have the role 'b'; no change was made" in lacking.stderr
    assert user("list", "--config", config).stdout == "ada\ta\n"
    for name in ("a=b", " a", ""):
        assert user("grant", "ada", name, "--config", config).exit_code == 2
    comma = user("add", "x,y", "--password-stdin", "--role", "a", "--config", config, typed="x")
    assert comma.exit_code == 2 and "is reserved in roles files" in comma.stderr
    assert user("list", "--config", config).stdout == "ada\ta\n", "nothing was added"


def test_roles_beside_a_users_file_alone_must_be_named(path):
    result = user("add", "ada", "--password-stdin", "--role", "a", "--users", path, typed="x")
    assert result.exit_code == 2 and "--roles FILE" in result.stderr and not path.exists()
    roles = path.with_name("who")
    named = ["--users", path, "--roles", roles]
    assert user("add", "ada", "--password-stdin", "--role", "a", *named, typed="x").exit_code == 0
    assert user("list", *named).stdout == "ada\ta\n" and user("list", "--users", path).stdout == "ada\n"


def test_broken_roles_file_is_reported_before_any_change(config):
    roles = config.with_name("roles.properties")
    roles.write_text("broken\n")
    result = user("add", "ada", "--password-stdin", "--role", "a", "--config", config, typed="x")
    assert result.exit_code == 1 and f"{roles}:1: a line must be" in result.stderr
    assert not config.with_name("users.properties").exists()
