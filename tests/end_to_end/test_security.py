"""Logins: the users file, `stompring user`, right and wrong passwords."""

import subprocess
import sys

import pytest

from ..broker_document import EVERYBODY, broker_xml
from ..broker_process import PATIENCE, ROOT, BrokerProcess
from ..stomp_client import StompClient
from .steps import written


def stompring(*arguments, stdin=""):
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "stompring", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )


def add_user(config, user, password, *options):
    """Let somebody in."""
    done = stompring(
        *("user", "add", user, "--password-stdin", "--role", EVERYBODY, "--config", str(config), *options),
        stdin=password,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker that lets in alice and bob."""
    config = written(tmp_path_factory.mktemp("secured"), secure=True)
    add_user(config, "alice", "wonderland 🐇")
    add_user(config, "bob", "builder")
    with BrokerProcess(config) as broker:
        yield broker


def login(broker, version="1.2", **headers):
    """A connection that has sent its CONNECT."""
    client = StompClient(broker.port, version)
    client.send("CONNECT", {"accept-version": version, "host": "h", **headers})
    return client


def test_the_right_password(secured, version, name):
    client = login(secured, version, login="alice", passcode="wonderland 🐇")
    client.expect("CONNECTED")
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(f"/queue/{name}", "x")
    client.message("x")
    client.disconnect()


@pytest.mark.parametrize(
    "headers, words",
    [
        ({"login": "alice", "passcode": "wrong"}, ["alice", "password is invalid"]),
        ({"login": "alice", "passcode": ""}, ["alice", "password is invalid"]),
        ({"login": "nobody", "passcode": "builder"}, ["nobody", "password is invalid"]),
        ({"login": "alice"}, ["passcode"]),
        ({"passcode": "builder"}, ["login"]),
        ({}, ["login", "passcode"]),
    ],
)
def test_anything_else_is_refused(secured, version, headers, words):
    login(secured, version, receipt="r", **headers).error("Security", *words, receipt="r")


def test_frames_sent_along_wait_for_the_login(secured, name):
    """Checking a password takes its time; what the client sends in the meantime is neither lost nor done unasked."""
    whole = (
        "CONNECT\naccept-version:1.2\nhost:h\nlogin:{}\npasscode:{}\n\n\0"
        f"SUBSCRIBE\nid:1\ndestination:/queue/{name}\n\n\0SEND\ndestination:/queue/{name}\n\nx\0"
    )
    stranger = StompClient(secured.port)
    stranger.raw(whole.format("bob", "wrong").encode())
    stranger.error("Security")
    client = StompClient(secured.port)
    client.raw(whole.format("bob", "builder").encode())
    client.expect("CONNECTED")
    client.message("x")
    client.nothing()
    client.disconnect()


def test_many_logins_at_once(secured):
    clients = [login(secured, login="bob", passcode="builder") for _ in range(10)]
    for client in clients:
        client.expect("CONNECTED")
        client.close()


def test_changes_count_from_the_next_login_on(secured):
    add_user(secured.config, "carol", "first")
    client = login(secured, login="carol", passcode="first")
    client.expect("CONNECTED")
    add_user(secured.config, "carol", "second", "--replace")
    login(secured, login="carol", passcode="first").error("Security")
    login(secured, login="carol", passcode="second").expect("CONNECTED")
    assert stompring("user", "rm", "carol", "--config", str(secured.config)).returncode == 0
    login(secured, login="carol", passcode="second").error("Security")
    client.nothing()  # who is in stays in
    client.close()


def test_a_listener_for_all_without_security_does_not_start(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml().replace("tcp://127.0.0.1:0", "tcp://0.0.0.0:0"))
    refused = stompring("run", "--config", str(config))
    assert refused.returncode != 0
    assert f"{config}:" in refused.stderr and "security-enabled" in refused.stderr
    assert "Traceback" not in refused.stderr
