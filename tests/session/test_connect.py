"""CONNECT, STOMP and DISCONNECT."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompring.session.connect import Login

from .session_fixture import Server, frame


@pytest.mark.parametrize(
    ("asked", "spoken", "told"),
    [
        (None, b"1.0", "1.0"),
        ("1.0", b"1.0", "1.0"),
        ("1.0,1.1,1.3", b"1.1", "1.1"),
        ("1.2,1.1,1.0", b"1.2", "1.2"),
        ("1.0, 1.1 , 1.2", b"1.2", "1.2"),
    ],
)
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_versions(command, asked, spoken, told):
    client = Server().client(None)
    headers = {} if asked is None else {"accept_version": asked}
    client.say(command, **headers)
    connected = client.one("CONNECTED")
    assert connected.headers.get("version") == told
    assert client.session.version == spoken
    assert "ActiveMQ" in connected["server"] and connected["session"]


def test_no_common_version():
    client = Server().client(None)
    client.say("CONNECT", accept_version="1.3,2.0")
    error = client.error()
    assert error["version"] == "1.0,1.1,1.2" and "1.3,2.0" in error["message"]


def test_something_else_first():
    client = Server().client(None)
    client.say("SEND", destination="/queue/q", receipt="r")
    error = client.error()
    assert "not CONNECT" in error["message"] and error["receipt-id"] == "r"


def test_request_id_and_receipt():
    client = Server().client(None)
    client.say("CONNECT", accept_version="1.1", request_id="7", receipt="r")
    connected, receipt = client.read()
    assert connected["response-id"] == "7" and receipt["receipt-id"] == "r"


def test_the_server_header_may_be_switched_off():
    client = Server(acceptor={"disable_stomp_server_header": True}).client(None)
    client.say("CONNECT", accept_version="1.2")
    assert "server" not in client.one("CONNECTED").headers


@pytest.mark.parametrize("receipt", [{}, {"receipt": "bye"}])
def test_disconnect(receipt):
    client = Server().client()
    client.say("DISCONNECT", **receipt)
    assert [got.headers.get("receipt-id") for got in client.read()] == list(receipt.values())
    assert client.wire.closed


def test_a_message_that_is_due_comes_before_the_receipt_of_disconnect():
    client = Server().client()
    client.write(
        frame("SUBSCRIBE", destination="/queue/q", id="1")
        + frame("SEND", b"x", destination="/queue/q")
        + frame("DISCONNECT", receipt="bye")
    )
    assert [got.command for got in client.read()] == ["MESSAGE", "RECEIPT"]


class Slow:
    """Answers when the test wants it."""

    def __init__(self):
        self.asked: list[tuple[str | None, str | None]] = []
        self.answer: Callable[[Login | None, str], None] = lambda login, reason: None

    def authenticate(self, credentials, answer):
        self.asked.append((credentials.login, credentials.passcode))
        self.answer = answer


def test_a_login_that_takes_time():
    slow = Slow()
    server = Server(authenticator=slow)
    client = server.client(None)
    client.write(
        frame("CONNECT", accept_version="1.2", login="me", passcode="pass:word")
        + frame("SEND", b"1", destination="/queue/q", receipt="r")
    )
    assert slow.asked == [("me", "pass:word")]
    assert client.read() == [] and not client.wire.reading
    slow.answer(Login("me"), "")
    server.world.pass_time(0)
    assert [got.command for got in client.read()] == ["CONNECTED", "RECEIPT"]
    assert client.wire.reading and client.session.login.user == "me"


def test_a_login_that_is_wrong():
    slow = Slow()
    server = Server(authenticator=slow)
    client = server.client(None)
    connect = frame("CONNECT", accept_version="1.2", login="me", passcode="no")
    client.write(connect + frame("SEND", destination="/queue/q"))
    slow.answer(None, "Security Error occurred: no")
    server.world.pass_time(0)
    assert client.error()["message"] == "Security Error occurred: no"
    assert not server.world.directory.queues


def test_an_answer_after_the_connection_was_lost():
    slow = Slow()
    client = Server(authenticator=slow).client(None)
    client.say("CONNECT", accept_version="1.2", login="me", passcode="x")
    client.lose()
    slow.answer(Login("me"), "")
    assert not client.session.connected and client.wire.written == b""
