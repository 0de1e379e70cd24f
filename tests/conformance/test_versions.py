"""Version negotiation (STOMP 1.1 and 1.2, "Protocol Negotiation")."""

import pytest


@pytest.mark.parametrize(
    "offered, agreed",
    [
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.2", "1.2"),
        ("1.0,1.1", "1.1"),
        ("1.2,1.1,1.0", "1.2"),
        ("1.0, 1.1 , 1.2", "1.2"),
        (" 1.1", "1.1"),
        ("1.1,9.9", "1.1"),
        ("1.0,1.1,1.3", "1.1"),
        ("10.1,1.0", "1.0"),
    ],
)
@pytest.mark.every_carrier
def test_the_best_common_version_is_agreed_on(connect, offered, agreed):
    client = connect(greet=False)
    client.send("CONNECT", {"accept-version": offered, "host": "h"})
    client.expect("CONNECTED", version=agreed)


@pytest.mark.parametrize("offered", ["1.3", "2.0,3.0", "", "1", "1.20", "one"])
def test_no_common_version_is_an_error_that_lists_what_is_spoken(connect, offered):
    client = connect(greet=False)
    client.send("CONNECT", {"accept-version": offered, "host": "h"})
    error = client.error("version", "1.0", "1.1", "1.2", offered)
    assert error["version"] == "1.0,1.1,1.2"
    assert error["content-type"].startswith("text/plain")


def test_unsupported_version_answers_the_receipt(connect):
    client = connect(greet=False)
    client.send("CONNECT", {"accept-version": "7.0", "receipt": "r"})
    client.error("7.0", receipt="r")


def test_frames_behind_connect_are_read_in_the_version_agreed_on(connect, name):
    client = connect(greet=False)
    client.raw(
        b"CONNECT\naccept-version:1.2\nhost:h\n\n\0\n"
        + f"SUBSCRIBE\r\nid:1\r\ndestination:/queue/{name}\r\n\r\n\0".encode()
        + f"SEND\ndestination:/queue/{name}\nescaped:a\\cb\\rc\n\nx\0".encode()
    )
    client.expect("CONNECTED", version="1.2")
    assert client.message("x")["escaped"] == "a:b\rc"


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_second_connect_is_an_error(client, version, command):
    client.send(command, {"accept-version": version, "host": "h", "receipt": "r"})
    client.error(command, "already", receipt="r")


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "DISCONNECT", "HELLO"])
def test_the_first_frame_must_be_connect(connect, command):
    client = connect(greet=False)
    client.send(command, {"destination": "/queue/x", "id": "1"})
    client.error("Connection has not been established", command)


def test_a_stranger_who_speaks_http_is_told_and_closed(connect):
    client = connect(greet=False)
    client.raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n\0")  # GET may become a WebSocket
    client.error()
