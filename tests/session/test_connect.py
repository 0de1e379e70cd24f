"""CONNECT, STOMP and DISCONNECT."""

from stompring.session.connect import Login

from .session_fixture import Server, frame


class Slow:
    """Answers when the test wants it."""

    def __init__(self):
        self.asked = []
        self.answer = lambda login, reason: None

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
    server.pass_time()
    assert [got.command for got in client.read()] == ["CONNECTED", "RECEIPT"]
    assert client.wire.reading and client.session.login.user == "me"


def test_a_login_that_is_wrong():
    slow = Slow()
    server = Server(authenticator=slow)
    client = server.client(None)
    connect = frame("CONNECT", accept_version="1.2", login="me", passcode="no")
    client.write(connect + frame("SEND", destination="/queue/q"))
    slow.answer(None, "Security Error occurred: no")
    server.pass_time()
    assert client.error()["message"] == "Security Error occurred: no"
    assert not server.directory.queues


def test_an_answer_after_the_connection_was_lost():
    slow = Slow()
    client = Server(authenticator=slow).client(None)
    client.say("CONNECT", accept_version="1.2", login="me", passcode="x")
    client.lose()
    slow.answer(Login("me"), "")
    assert not client.session.connected and client.wire.written == b""
