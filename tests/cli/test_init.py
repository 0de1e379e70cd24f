"""``stompring init``: an instance that starts, whose secrets nobody else can read, and that nothing overwrites."""

import json
import shlex
import shutil
import ssl
import stat
import subprocess
from base64 import b64encode
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import stomp

from stompring.security.accounts import Users

from .. import ports
from ..broker_process import PATIENCE, BrokerProcess
from ..certificates import Authority
from ..waiting import LONGEST
from .command import environment, run


def free_ports():
    """As options."""
    first, second = ports.free_ports(2)
    return f"--stomp-port {first} --http-port {second}"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def status_with(port, login, scheme="http", trusted=None):
    """The broker's name, as the management API has it for a user."""
    headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    request = Request(f"{scheme}://127.0.0.1:{port}/api/v1/broker", headers=headers)
    with urlopen(request, timeout=PATIENCE, context=trusted) as answer:
        return str(json.loads(answer.read())["name"])


def test_the_instance_starts_and_its_admin_logs_in(tmp_path):
    made = json.loads(run(f"init {tmp_path}/orders --json {free_ports()}").stdout)
    password = made["password"]
    config = tmp_path / "orders" / "etc" / "broker.xml"
    with BrokerProcess(config, tmp_path / "orders" / "data") as broker:
        assert status_with(broker.http_port, f"admin:{password}") == "orders"
        client = stomp.Connection12([("127.0.0.1", broker.port)])
        client.connect("admin", password, wait=True)
        client.disconnect()
        env = environment(STOMPRING_PASSWORD=password)
        url = made["broker"]
        run(f"send /queue/a hello --broker {url} --user admin", env=env)
        done = run(f"subscribe /queue/a --count 1 --broker {url} --user admin", env=env)
        assert done.stdout == b"hello\n"
        run(f"send /queue/a x --broker {url}", code=4)
    assert (tmp_path / "orders" / "data" / "journal").is_dir()


def test_the_next_commands_are_those_that_work(tmp_path):
    made = json.loads(run(f"init {free_ports()} --json --user 'grace hopper'", tmp_path / "my orders").stdout)
    start, context, _ = (shlex.split(command) for command in made["next"])
    assert start == ["stompring", "run", "--config", str(tmp_path / "my orders" / "etc" / "broker.xml")]
    env = environment(tmp_path / "home")
    run(*context[1:], stdin=made["password"].encode(), env=env)
    with BrokerProcess(Path(start[3])):
        done = run("send /queue/a hello", env=env)
    assert b"1 confirmed" in done.stderr


def test_secrets_are_readable_by_their_owner_only_and_the_password_is_shown_once(tmp_path):
    done = run(f"init {tmp_path}/a --tls {free_ports()}")
    shown = [line for line in done.stdout.decode().splitlines() if line.startswith("user admin, password ")]
    password = shown[0].rpartition(" ")[2]
    etc = tmp_path / "a" / "etc"
    for file in ("users.properties", "roles.properties", "tls/broker.key"):
        assert mode(etc / file) == 0o600, file
    for directory in (tmp_path / "a", etc, tmp_path / "a" / "data"):
        assert mode(directory) == 0o700
    assert Users(etc / "users.properties").verify("admin", password)
    assert len(password) >= 20
    assert [
        file
        for file in (tmp_path / "a").rglob("*")
        if file.is_file() and password.encode() in file.read_bytes()
    ] == []
    again = run(f"init {tmp_path}/b {free_ports()}").stdout.decode()
    assert password not in again


def test_tls_with_its_own_certificate(tmp_path):
    made = json.loads(run(f"init {tmp_path}/a --tls --json {free_ports()}").stdout)
    with BrokerProcess(Path(made["configuration"])) as broker:
        trusted = ssl.create_default_context(cafile=made["ca"])
        assert status_with(broker.http_port, f"admin:{made['password']}", "https", trusted) == "a"
        env = environment(STOMPRING_PASSWORD=made["password"])
        command = f"send /queue/a x --broker {made['broker']} --user admin"
        run(command, "--ca", made["ca"], env=env)
        assert b"self-signed certificate" in run(command, env=env, code=5).stderr


@pytest.mark.parametrize("apart", [False, True])
def test_tls_with_a_certificate_of_the_user(tmp_path, apart):
    (tmp_path / "ca; mine? 100%").mkdir()
    authority = Authority(tmp_path / "ca; mine? 100%")
    certificate = authority.issue("site.pem", key_apart=apart)
    key = ("--key", certificate.with_suffix(".key")) if apart else ()
    made = json.loads(run(f"init {free_ports()} --json --cert", certificate, *key, tmp_path / "a").stdout)
    assert made["ca"] is None
    with BrokerProcess(Path(made["configuration"])):
        env = environment(STOMPRING_PASSWORD=made["password"])
        run(f"send /queue/a x --broker {made['broker']} --user admin --ca", authority.file, env=env)


def test_a_password_from_standard_input_is_not_shown(tmp_path):
    done = run(f"init {tmp_path}/a --user ada --password-stdin {free_ports()}", stdin=b"correct horse\n")
    assert b"correct horse" not in done.stdout + done.stderr
    assert Users(tmp_path / "a" / "etc" / "users.properties").verify("ada", "correct horse")


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "empty").mkdir()
    run(f"init {tmp_path}/empty {free_ports()}")
    before = {file: file.read_bytes() for file in (tmp_path / "empty").rglob("*") if file.is_file()}
    done = run(f"init {tmp_path}/empty", code=1)
    assert b"is not empty: nothing was created or changed" in done.stderr
    assert {file: file.read_bytes() for file in (tmp_path / "empty").rglob("*") if file.is_file()} == before
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        assert b"is not a directory: nothing was created" in run("init", tmp_path / name, code=1).stderr


def test_a_failure_leaves_nothing_behind(tmp_path):
    (tmp_path / "no.pem").write_text("no certificate")
    done = run(f"init {tmp_path}/a --cert {tmp_path}/no.pem", code=1)
    assert f"{tmp_path}/a/etc/broker.xml: acceptor 'stomp': {tmp_path}/no.pem" in done.stderr.decode()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["no.pem"]


@pytest.mark.parametrize(
    "options, text",
    [
        ("--key /dev/null", "--key"),
        ("--host 'a b'", "host name or an IP address"),
        ("--host x?y", "host name or an IP address"),
        ("--user a=b", "reserved in users files"),
        ("--user a,b", "','"),
        ("--name '<a>'", "a name has 1 to 64 letters"),
        ("--stomp-port 8161", "cannot share port 8161"),
        ("--stomp-port 70000", "70000"),
    ],
)
def test_bad_options_are_named(tmp_path, options, text):
    assert text in run(f"init {tmp_path}/a {options}", code=2).stderr.decode()
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    directory = tmp_path / "my $orders"
    run(f"init --service-user root {free_ports()}", directory)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(directory / "stompring.service")],
        capture_output=True,
        text=True,
        timeout=LONGEST * PATIENCE,
        check=False,
    )
    assert "stompring.service" not in done.stderr, done.stderr


def test_the_unit_names_the_files_of_the_instance(tmp_path):
    run(f"init {tmp_path}/a --service-user ada {free_ports()}")
    lines = (tmp_path / "a" / "stompring.service").read_text().splitlines()
    (command,) = (line for line in lines if line.startswith("ExecStart="))
    config = tmp_path / "a" / "etc" / "broker.xml"
    assert command.endswith(f" run --config {config} --data {tmp_path / 'a' / 'data'}")
    assert "User=ada" in lines and f'ReadWritePaths="{tmp_path / "a"}"' in lines
    assert not any(
        "/etc/stompring" in line or "/var/lib/stompring" in line for line in lines if line[:1] != "#"
    )
