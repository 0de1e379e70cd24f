"""The client connection, against a counterpart that misbehaves and against a real broker."""

import pickle
import re
import threading

import pytest

from stompring.pipeline.stomp.connection import (
    BrokerError,
    Connection,
    ConnectionFailed,
    Endpoint,
    parse_address,
)
from stompring.stomp.client import frame

from ...broker_process import PATIENCE
from ...end_to_end.lasting import DURABLE
from .scripted_broker import CONNECTED, ScriptedBroker, greet, receive_until


def near(port, timeout=PATIENCE, **more):
    return Endpoint("127.0.0.1", port, timeout=timeout, **more)


def opened(broker, **more):
    return Connection(near(broker.port, **more))


# ---- addresses, and what is hidden


@pytest.mark.parametrize(
    "text, expected",
    [
        ("localhost:61613", ("localhost", 61613, False)),
        (" tcp://10.0.0.1:1 ", ("10.0.0.1", 1, False)),
        ("[::1]:65535", ("::1", 65535, False)),
        ("ssl://[::1]:61612", ("::1", 61612, True)),
        ("stomp+ssl://b.example:61612", ("b.example", 61612, True)),
    ],
)
def test_addresses(text, expected):
    assert parse_address(text) == expected
    assert Endpoint(*expected[:2]).address == text.strip().rpartition("//")[2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "localhost:",
        ":61613",
        "::1:61613",
        "a:0",
        "a:65536",
        "a:x",
        "http://a/b:1",
        "http://a:1",
        "://a:1",
        "a:²",
        "a:" + "9" * 5001,
        "a:1_0",
        "a:+1",
    ],
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=r"must (be HOST:PORT|end in a port)"):
        parse_address(text)


def test_a_login_in_an_address_is_not_shown():
    with pytest.raises(ValueError) as caught:
        parse_address("tcp://alice:sesame@host:61613")
    assert "sesame" not in str(caught.value) and "alice" not in str(caught.value)
    shown = repr(Endpoint("host", 1, user="alice", password="sesame"))
    assert "sesame" not in shown and "alice" not in shown and "host" in shown


# ---- a counterpart


def test_login_and_errors():
    said = []

    def play(peer):
        said.append(receive_until(peer, b"\0\n"))
        peer.sendall(b"ERROR\nmessage:no entry for alice\n\nalice may not come in with sesame, malice may\0")

    with ScriptedBroker(play) as other, pytest.raises(BrokerError) as caught:
        Connection(near(other.port, user="alice", password="sesame", virtual_host="/v", client_id="me"))
    assert str(caught.value) == (
        f"127.0.0.1:{other.port} refuses: no entry for ***: *** may not come in with ***, malice may"
    )
    assert said[0].split(b"\n")[:2] == [b"CONNECT", b"accept-version:1.2"]
    assert {b"host:/v", b"heart-beat:0,0", b"login:alice", b"passcode:sesame", b"client-id:me"} <= {
        *said[0].split(b"\n")
    }
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.receipt) == (str(caught.value), None)


def test_a_password_in_a_file(tmp_path):
    file = tmp_path / "password"
    file.write_text("sesame\r\nmore\n")

    def play(peer):
        assert b"\npasscode:sesame\n" in greet(peer)

    with ScriptedBroker(play) as other:
        Connection(near(other.port, user="alice", password_file=file)).drop()
    with pytest.raises(ConnectionFailed, match="the file with the password cannot be read"):
        Connection(near(1, password_file=tmp_path / "none"))


def test_neither_side_waits_for_the_other():
    """The broker reads on only when its receipts are taken; they do not fit into the buffers of the sockets."""
    answer = b"RECEIPT\nreceipt-id:0\npadding:" + b"x" * 8000 + b"\n\n\0"
    sent = frame("SEND", [("destination", "q")], b"y" * 8000)

    def play(peer):
        greet(peer)
        for _ in range(2000):
            left = len(sent)
            while left:
                left -= len(peer.recv(left))
            peer.sendall(answer)
        peer.sendall(answer.replace(b"-id:0", b"-id:1"))

    with ScriptedBroker(play) as other, Connection(near(other.port)) as connection:
        connection.next_receipt()
        connection.send(sent * 2000)
        connection.await_receipts()


def test_silence():
    ended = threading.Event()

    def silent(peer):
        greet(peer)
        ended.wait(PATIENCE)

    with ScriptedBroker(silent) as other, Connection(near(other.port, timeout=0.2)) as connection:
        with pytest.raises(ConnectionFailed, match=r"127.0.0.1:\d+ sends no RECEIPT for 0.2 s"):
            connection.ask("SEND", [("destination", "q")])
        with pytest.raises(ConnectionFailed, match=r"takes nothing for 0.2 s"):
            connection.send(bytes(1 << 26))
        ended.set()

    def mute(peer):
        receive_until(peer, b"\0\n")
        assert peer.recv(1) == b""

    with ScriptedBroker(mute) as other, pytest.raises(ConnectionFailed, match="sends no CONNECTED for 0.2 s"):
        Connection(near(other.port, timeout=0.2))


def test_a_broker_that_leaves():
    def leaving(peer):
        greet(peer)

    with ScriptedBroker(leaving) as other, Connection(near(other.port)) as connection:
        with pytest.raises(ConnectionFailed, match=r"127.0.0.1:\d+ (has closed the connection|is gone)"):
            connection.ask("SEND", [("destination", "q")])
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{other.port} cannot be reached"):
        Connection(near(other.port))


@pytest.mark.parametrize(
    "answer, text",
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: none\r\n\r\n\0", "sends no CONNECTED|sends what is not STOMP"),
        (b"CONNECTED\nversion:1.0\n\n\0", "does not speak STOMP 1.2"),
        (b"CONNECTED\nno colon\n\n\0", "sends what is not STOMP: .*has no colon"),
    ],
)
def test_what_is_no_broker(answer, text):
    def play(peer):
        greet(peer, answer)
        assert peer.recv(1) == b""

    with ScriptedBroker(play) as other, pytest.raises(ConnectionFailed, match=text):
        Connection(near(other.port, timeout=1))


def test_no_tls_there():
    def play(peer):
        peer.recv(1000)
        peer.sendall(b"ERROR\nmessage:not STOMP\n\n\0")

    with ScriptedBroker(play) as other, pytest.raises(ConnectionFailed, match="does not speak TLS with us: "):
        Connection(near(other.port, tls=True))


@pytest.mark.parametrize("beats", [b"9" * 5001, b"1_0", b"\xd9\xa1", b"nan", b""])
def test_numbers_that_are_none(beats):
    """A broker's heart-beats that cannot be read are none, and a receipt that is no number answers nothing."""

    def play(peer):
        greet(peer, CONNECTED.replace(b"\n\n", b"\nheart-beat:%b,%b\n\n" % (beats, beats)))
        number = re.search(rb"receipt:(\d+)", receive_until(peer, b"\0"))
        peer.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0RECEIPT\nreceipt-id:%b\n\n\0" % (beats, number[1]))
        peer.recv(1)

    with ScriptedBroker(play) as other, Connection(near(other.port, heart_beat=100)) as connection:
        connection.ask("SEND", [("destination", "q")])


def test_heart_beats():
    """Both sides agreed on 100 ms. The other one beats until it has heard some, and is missed after that."""

    def play(peer):
        assert b"\nheart-beat:100,100\n" in receive_until(peer, b"\0\n")
        peer.sendall(CONNECTED.replace(b"\n\n", b"\nheart-beat:50,50\n\n"))
        for _ in range(5):
            assert set(peer.recv(100)) == {ord("\n")}
            peer.sendall(b"\n")
        while peer.recv(100):
            pass

    with ScriptedBroker(play) as other, Connection(near(other.port, heart_beat=100)) as connection:
        with pytest.raises(ConnectionFailed, match=r"sends nothing for 0.2 s, not even heart-beats"):
            while True:
                assert connection.receive(10) == []


# ---- a real broker


def test_transactions(broker, name, management):
    with opened(broker) as connection:
        connection.say("BEGIN", [("transaction", "t")])
        sends = [("destination", name), ("transaction", "t")]
        connection.send(b"".join(frame("SEND", sends, b"%d" % number) for number in range(100)))
        connection.ask("COMMIT", [("transaction", "t")])
        management.expect(name, messageCount=100)
        connection.say("BEGIN", [("transaction", "t")])
        connection.say("SEND", sends, b"never")
        connection.ask("ABORT", [("transaction", "t")])
        connection.say("BEGIN", [("transaction", "t")])
        connection.say("SEND", sends, b"never")
    with opened(broker) as connection:  # the one before was dropped
        connection.ask("SEND", [("destination", name), *DURABLE.items()], b"last")
        connection.close()
    management.expect(name, messageCount=101)


def test_refusals(broker, name):
    with opened(broker) as connection:
        with pytest.raises(BrokerError, match="refuses: COMMIT: no transaction 't' is open") as caught:
            connection.ask("COMMIT", [("transaction", "t")])
        assert caught.value.receipt == "1"
        with pytest.raises(BrokerError, match="no transaction"):
            connection.ask("SEND", [("destination", name)])
    with opened(broker) as connection, pytest.raises(BrokerError, match="no transaction 'u'"):
        connection.say("ABORT", [("transaction", "u")])
        while True:  # it is told by whatever comes next
            connection.send(frame("SEND", [("destination", name)], bytes(1 << 16)))


def test_interrupting(broker, name):
    with opened(broker) as connection:
        connection.subscribe(name)
        other = threading.Timer(0.1, connection.interrupt)
        other.start()
        with pytest.raises(ConnectionFailed):
            connection.receive(PATIENCE)
        other.join()
