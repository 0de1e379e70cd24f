"""Who may open a WebSocket, and who may not."""

import subprocess
import sys

import pytest

from stompring.session.outbox import HandshakeRejected, OriginPolicy
from stompring.settings.model import WebSocketSettings

HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"


def test_the_websocket_library_is_imported_when_it_is_needed():
    """By a ws:// acceptor at the start, by others with the first client that asks: it takes time and memory."""
    program = "import sys, stompring.server.service; print('websockets' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def status(
    host="127.0.0.1:61614", origin=None, *, path="/", only_path="", listens_on=HERE, allowed=(), offered=()
):
    """101, or with what the client is refused."""
    policy = OriginPolicy(WebSocketSettings(path=only_path, web_socket_allowed_origins=allowed), listens_on)
    try:
        policy.check(path, host, origin, offered)
    except HandshakeRejected as refusal:
        return refusal.status
    return 101


@pytest.mark.parametrize(
    "path, only, expected",
    [("/", "", 101), ("/any/thing", "", 101), ("/stomp", "/stomp", 101), ("/stomp/", "/stomp", 101)]
    + [("/", "/stomp", 404), ("/stomp/x", "/stomp", 404), ("/Stomp", "/stomp", 404)],
)
def test_paths(path, only, expected):
    assert status(path=path, only_path=only) == expected


@pytest.mark.parametrize(
    "host, listens_on, expected",
    [
        ("localhost:61614", HERE, 101),
        ("LOCALHOST", HERE, 101),
        ("app.localhost:1", HERE, 101),
        ("[::1]:61614", HERE, 101),
        ("evil.example:61614", HERE, 403),
        ("localhost.evil.example", HERE, 403),
        ("127.0.0.1.evil.example", HERE, 403),
        ("user@evil.example", HERE, 403),
        ("[::1", HERE, 403),
        ("", HERE, 403),
        ("broker.example:61614", EVERYWHERE, 101),
        ("10.0.0.7", EVERYWHERE, 101),
    ],
)
def test_names_of_the_broker(host, listens_on, expected):
    """A name that was made to point at this machine (DNS rebinding) is in Host, and in Origin too."""
    assert status(host, listens_on=listens_on) == expected
    if host and "@" not in host and host != "[::1":
        assert status(host, f"http://{host}", listens_on=listens_on) == expected


@pytest.mark.parametrize(
    "listens_on, local",
    [
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.example.org", False),
        ("128.0.0.1", False),
    ],
)
def test_a_listener_of_this_machine_has_no_other_name(listens_on, local):
    assert status("broker.example:61614", listens_on=listens_on) == (403 if local else 101)


@pytest.mark.parametrize(
    "origin, host, expected",
    [
        (None, "broker.example:61614", 101),
        ("https://broker.example", "broker.example:61614", 101),
        ("http://broker.example:8080", "BROKER.example:61614", 101),
        ("http://localhost:3000", "127.0.0.1:61614", 101),
        ("http://127.0.0.1:3000", "localhost:61614", 101),
        ("https://evil.example", "broker.example:61614", 403),
        ("https://evil.broker.example", "broker.example:61614", 403),
        ("https://broker.example.evil", "broker.example:61614", 403),
        ("https://broker.example@evil.example", "broker.example:61614", 403),
        ("http://localhost", "broker.example:61614", 403),
        ("null", "broker.example:61614", 403),
        ("file://", "broker.example:61614", 403),
        ("file://", "", 403),
        ("nonsense", "broker.example:61614", 403),
        ("http://[", "broker.example:61614", 403),
        ("http://[::1]:3000", "localhost:61614", 101),
        ("https://app.example", "broker.example:61614", 101),
        ("https://APP.example:443", "broker.example:61614", 101),
        ("http://app.example", "broker.example:61614", 403),
        ("https://app.example:8443", "broker.example:61614", 403),
    ],
)
def test_origins(origin, host, expected):
    assert status(host, origin, listens_on=EVERYWHERE, allowed=("https://app.example",)) == expected


def test_pages_without_an_origin_may_be_allowed():
    assert status(origin="null", allowed=("null",)) == 101
    assert status(origin="file://", allowed=("null",)) == 101
    assert status(origin="https://evil.example", allowed=("null",)) == 403


def test_all_pages_may_be_allowed():
    for origin in ("https://evil.example", "null", "file://"):
        assert status("anything", origin, allowed=("*",)) == 101


def test_a_broker_behind_a_proxy_is_called_by_its_name():
    allowed = ("https://app.example",)
    assert status("app.example", "https://app.example", allowed=allowed) == 101
    assert status("app.example", allowed=allowed) == 101
    assert status("other.example", "https://app.example", allowed=allowed) == 403


@pytest.mark.parametrize(
    "offered, spoken",
    [
        ((), None),
        (("v12.stomp",), "v12.stomp"),
        (("v10.stomp", "mqtt", "v11.stomp"), "v11.stomp"),
        (("v10.stomp", "v11.stomp", "v12.stomp"), "v12.stomp"),
    ],
)
def test_subprotocols(offered, spoken):
    policy = OriginPolicy(WebSocketSettings(), HERE)
    assert policy.check("/", "localhost", None, offered) == spoken


def test_only_unknown_subprotocols():
    assert status(offered=("mqtt", "v13.stomp")) == 400


def test_a_reason_is_fit_for_a_log():
    with pytest.raises(HandshakeRejected) as caught:
        OriginPolicy(WebSocketSettings(), HERE).check("/", "evil\x1b[2J\n" + "x" * 1000, None, ())
    assert caught.value.reason.isprintable() and len(caught.value.reason) < 300
