"""``stompring user`` with ``--server``: the users of a running broker."""

import pytest

from ..broker_document import EVERYBODY, broker_xml
from ..broker_process import BrokerProcess
from ..end_to_end.test_permissions import add
from .remote_cli import Cli


@pytest.fixture
def cli(tmp_path):
    config = tmp_path / "broker.xml"
    files = "<users-file>users.properties</users-file><roles-file>roles.properties</roles-file>"
    config.write_text(broker_xml(secure=True, core=files))
    cli = Cli(0, tmp_path / "home")
    cli.environment["STOMPRING_SERVER"] = ""
    add(config, "root", EVERYBODY, password="secret")
    with BrokerProcess(config) as process:
        cli.port = process.http_port
        cli.environment |= {"STOMPRING_USER": "root", "STOMPRING_PASSWORD": "secret"}
        yield cli


def test_users_of_a_running_broker(cli):
    server = ["--server", f"http://127.0.0.1:{cli.port}"]
    added = cli.run("user add ada --password-stdin --role viewers", *server, typed="lovelace\n")
    assert "user 'ada' saved on http://127.0.0.1:" in added.stdout
    assert "--replace" in cli.run("user add ada --password-stdin", *server, typed="x", status=1).stderr
    cli.run("user grant ada admins", EVERYBODY, *server)
    cli.run("user revoke ada viewers", *server)
    rows = cli.run("user list", *server).rows
    assert rows == [
        {"name": "root", "roles": EVERYBODY},
        {"name": "ada", "roles": f"admins,{EVERYBODY}"},
    ] or rows == [{"name": "ada", "roles": f"admins,{EVERYBODY}"}, {"name": "root", "roles": EVERYBODY}]
    assert "no change was made" in cli.run("user revoke ada viewers", *server, status=1).stderr
    cli.run("user add ada --replace --password-stdin", *server, typed="byron")
    cli.run("queue list --user ada", *server, STOMPRING_PASSWORD="byron")
    cli.run("user rm ada", *server)
    assert "ada" not in cli.run("user list --json", *server).stdout
    assert "ada" in cli.run("user grant ada x", *server, status=3).stderr


def test_files_stay_the_default_and_exclude_a_server(cli, tmp_path):
    url = f"http://127.0.0.1:{cli.port}"
    config = str(tmp_path / "broker.xml")
    assert "exclude" in cli.run(f"user list --config {config} --server {url}", status=2).stderr
    assert cli.run(f"user list --config {config}", STOMPRING_SERVER=url).stdout == f"root\t{EVERYBODY}\n"
    assert cli.run(f"user list --config {config} --json").json == [{"name": "root", "roles": [EVERYBODY]}]
    cli.run(f"context add here --server {url}")
    assert "config/broker.xml" in cli.run("user list", status=None).stderr, "the current context is not used"
    assert "root" in cli.run("user list --context here").stdout
    assert "root" in cli.run("user list", STOMPRING_SERVER=url).stdout


def test_changes_of_files_as_json(tmp_path):
    cli = Cli(0, tmp_path)
    cli.environment["STOMPRING_SERVER"] = ""
    where = ["--users", str(tmp_path / "users"), "--roles", str(tmp_path / "roles"), "--json"]

    def run(*words):
        return cli.run("user", *words, *where, typed="secret").json

    added = {"name": "ada", "saved": str(tmp_path / "users"), "rolesGranted": ["a"]}
    assert run("add", "ada", "--role", "a", "--password-stdin") == added
    assert run("grant", "ada", "b", "c") == {"name": "ada", "rolesGranted": ["b", "c"]}
    assert run("revoke", "ada", "c") == {"name": "ada", "rolesRevoked": ["c"]}
    assert run("list") == [{"name": "ada", "roles": ["a", "b"]}]
    assert run("rm", "ada") == {"name": "ada", "removed": str(tmp_path / "users")}
