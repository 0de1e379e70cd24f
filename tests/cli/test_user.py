"""``stompring user add|rm|list``, by a users file and by a broker.xml that names one."""

import pytest

from stompring.security import accounts
from stompring.security.accounts import Users

from ..security.hashers import QUICK
from .command import invoke

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

    put = accounts.UsersEdit.put
    monkeypatch.setattr(accounts.UsersEdit, "put", put_quickly)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "users.properties"


def user(line, *others, **more):
    return invoke(f"user {line}", *others, **more)


def add(path, name, password):
    user("add", name, "--password-stdin", "--users", path, typed=password)


def test_add_prompts_twice_and_echoes_nothing(path):
    result = user(f"add ada --users {path}", typed="lovelace\nlovelace\n")
    assert "Password of ada:" in result.output and f"user 'ada' saved in {path}" in result.output
    assert "lovelace" not in result.output
    assert Users(path).verify("ada", "lovelace")


def test_add_prompts_again_for_different_or_invalid_passwords(path):
    assert "do not match" in user(f"add ada --users {path}", typed="one\ntwo\nthree\nthree\n").output
    assert Users(path).verify("ada", "three")


def test_add_writes_nothing_when_the_question_is_left(path):
    user(f"add ada --users {path}", typed="lovelace\n", code=130)
    assert not path.exists()


@pytest.mark.parametrize(
    "typed, password",
    [
        ("lovelace", "lovelace"),
        ("lovelace\n", "lovelace"),
        ("lovelace\r\n", "lovelace"),
        ("  two words ", "  two words "),
    ],
)
def test_add_takes_the_password_from_standard_input(path, typed, password):
    assert "Password of" not in user(f"add ada --password-stdin --users {path}", typed=typed).output
    assert Users(path).verify("ada", password)


@pytest.mark.parametrize("typed, reason", [("", "empty"), ("\n", "empty"), ("one\ntwo\n", "line end")])
def test_a_password_on_standard_input_that_cannot_be_is_refused(path, typed, reason):
    result = user(f"add ada --password-stdin --users {path}", typed=typed, code=1)
    assert "on standard input: a password cannot" in result.stderr and reason in result.stderr
    assert not path.exists()


def test_a_password_on_standard_input_must_be_text(path):
    assert (
        "not UTF-8" in user("add ada --password-stdin --users", path, typed=b"l\xf6velace\n", code=1).stderr
    )
    assert not path.exists()


def test_the_password_cannot_be_an_argument(path):
    user(f"add ada lovelace --users {path}", code=2)
    user(f"add ada --password lovelace --users {path}", code=2)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", " ada", "ada ", "a=b", "#ada", "a\nb"])
@pytest.mark.parametrize("command", ["add", "rm"])
def test_names_that_cannot_be_are_refused(path, command, name):
    assert "user name" in user(command, "--users", path, "--", name, code=2).stderr
    assert not path.exists()


def test_existing_user_is_replaced_only_with_the_option(path):
    add(path, "ada", "first")
    result = user(f"add ada --users {path}", code=1)  # no input: it must not come to the question
    assert (
        result.stderr == f"Error: user 'ada' exists already in {path}; replace the password with --replace\n"
    )
    assert Users(path).verify("ada", "first")
    user(f"add ada --replace --password-stdin --users {path}", typed="second")
    assert Users(path).verify("ada", "second")
    assert Users(path).names() == ["ada"]


def test_rm(path):
    add(path, "ada", "x")
    add(path, "grace", "y")
    assert user(f"rm ada --users {path}").output == f"user 'ada' removed from {path}\n"
    assert Users(path).names() == ["grace"]
    assert user(f"rm ada --users {path}", code=1).stderr == f"Error: no user 'ada' in {path}\n"


def test_list_prints_names_and_nothing_else(path):
    add(path, "grace", "x")
    add(path, "ada", "y")
    result = user(f"list --users {path}")
    assert result.stdout == "grace\nada\n"
    assert "password hash of 'ada' has outdated parameters" in result.stderr  # QUICK is weak indeed


@pytest.mark.parametrize("command", [["list"], ["rm", "ada"]])
def test_missing_file_is_an_error_with_advice(path, command):
    result = user(*command, "--users", path, code=1)
    assert "No such file or directory; create it with: stompring user add NAME" in result.stderr
    assert not path.exists()


@pytest.mark.parametrize("command", [["list"], ["rm", "ada"], ["add", "ada", "--password-stdin"]])
def test_error_in_the_file_is_reported_with_its_line(path, command):
    path.write_text("# users\nada = lovelace\n")
    result = user(*command, "--users", path, typed="x", code=1)
    assert result.stderr.startswith(f"Error: {path}:2: user 'ada': value is not an argon2 hash")
    assert path.read_text() == "# users\nada = lovelace\n"


def test_the_broker_xml_says_where_the_users_are(path):
    config = path.parent / "elsewhere" / "broker.xml"
    config.parent.mkdir()
    config.write_text(BROKER_XML.format(secure="true", users="<users-file>people</users-file>"))
    user(f"add ada --password-stdin --config {config}", typed="lovelace")
    assert Users(config.parent / "people").names() == ["ada"]
    assert user(f"list --config {config}").stdout == "ada\n"


def test_default_broker_xml_is_used_without_options(path):
    assert "--config FILE" in user("list", code=1).stderr
    config = path.parent / "config" / "broker.xml"
    config.parent.mkdir()
    config.write_text(BROKER_XML.format(secure="true", users="<users-file>people</users-file>"))
    add(config.with_name("people"), "ada", "x")
    assert user("list").stdout == "ada\n"


def test_disabled_security_without_users_file_is_an_error_with_advice(path):
    config = path.with_name("broker.xml")
    config.write_text(BROKER_XML.format(secure="false", users=""))
    result = user(f"list --config {config}", code=1)
    assert f"{config}: security is disabled and there is no <users-file>" in result.stderr
    assert "<security-enabled>" in result.stderr and "--users FILE" in result.stderr


def test_users_may_be_added_before_security_is_switched_on(path):
    config = path.with_name("broker.xml")
    config.write_text(BROKER_XML.format(secure="false", users="<users-file>people</users-file>"))
    result = user(f"add ada --password-stdin --config {config}", typed="x")
    assert f"security is disabled in {config}" in result.stderr
    assert Users(path.with_name("people")).names() == ["ada"]


def test_config_and_users_exclude_each_other(path):
    assert "are mutually exclusive" in user(f"list --config broker.xml --users {path}", code=2).stderr


def test_broken_broker_xml_is_reported_with_its_line(path):
    config = path.with_name("broker.xml")
    config.write_text("<configuration>\n<kore/></configuration>")
    assert f"{config}:2: " in user(f"list --config {config}", code=1).stderr


# ---- roles


@pytest.fixture
def config(path):
    config = path.with_name("broker.xml")
    config.write_text(BROKER_XML.format(secure="true", users=""))
    return config


def test_add_gives_roles_and_list_shows_them(config):
    roles = ["--role", "clerks", "--role", "admins"]
    result = user("add ada --password-stdin", *roles, "--config", config, typed="x")
    assert result.stdout.splitlines()[1:] == [
        "role 'clerks' granted to user 'ada'",
        "role 'admins' granted to user 'ada'",
    ]
    user(f"add bob --password-stdin --config {config}", typed="x")
    assert config.with_name("roles.properties").read_text() == "clerks = ada\nadmins = ada\n"
    assert user(f"list --config {config}").stdout == "ada\tadmins, clerks\nbob\n"


def test_faults_that_are_not_about_users(config):
    text = config.read_text()
    config.write_text(text.replace("</core>", "<nonsense/></core>"))
    added = user(f"add ada --password-stdin --role a --config {config}", typed="x")
    assert "unknown element <nonsense>" in added.stderr and "users can be changed" in added.stderr
    assert user(f"list --config {config}").stdout == "ada\ta\n"
    config.write_text(text.replace("</core>", "<user-file/></core>"))
    assert "unknown element <user-file>" in user(f"list --config {config}", code=1).stderr


def test_grant_and_revoke(config):
    user(f"add ada --password-stdin --config {config}", typed="x")
    user(f"grant ada a b --config {config}")
    user(f"grant ada b --config {config}")
    assert user(f"revoke ada a --config {config}").stdout == "role 'a' revoked from user 'ada'\n"
    assert user(f"list --config {config}").stdout == "ada\tb\n"


def test_rm_takes_the_roles_too(config):
    user(f"add ada --password-stdin --role a --config {config}", typed="x")
    assert "role 'a' revoked from user" in user(f"rm ada --config {config}").stdout
    assert config.with_name("roles.properties").read_text() == ""


def test_invalid_grants_and_revocations_are_errors(config):
    user(f"add ada --password-stdin --role a --config {config}", typed="x")
    assert "no user 'bob'" in user(f"grant bob a --config {config}", code=1).stderr
    lacking = user(f"revoke ada a b --config {config}", code=1)
    assert "does not have the role 'b'; no change was made" in lacking.stderr
    assert user(f"list --config {config}").stdout == "ada\ta\n"
    for name in ("a=b", " a", ""):
        user("grant ada", name, "--config", config, code=2)
    comma = user(f"add x,y --password-stdin --role a --config {config}", typed="x", code=2)
    assert "is reserved in roles files" in comma.stderr
    assert user(f"list --config {config}").stdout == "ada\ta\n", "nothing was added"


def test_roles_beside_a_users_file_alone_must_be_named(path):
    result = user(f"add ada --password-stdin --role a --users {path}", typed="x", code=2)
    assert "--roles FILE" in result.stderr and not path.exists()
    named = ["--users", path, "--roles", path.with_name("who")]
    user("add ada --password-stdin --role a", *named, typed="x")
    assert user("list", *named).stdout == "ada\ta\n" and user(f"list --users {path}").stdout == "ada\n"


def test_broken_roles_file_is_reported_before_any_change(config):
    roles = config.with_name("roles.properties")
    roles.write_text("broken\n")
    result = user(f"add ada --password-stdin --role a --config {config}", typed="x", code=1)
    assert f"{roles}:1: a line must be" in result.stderr
    assert not config.with_name("users.properties").exists()
