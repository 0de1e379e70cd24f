"""Names of addresses and queues that are made to be mistaken: for a path, for another name, for nothing."""

import unicodedata
from urllib.parse import quote

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from .conftest import HOSTILE

NAMES = [
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "~",
    "%2e%2e%2f",
    "Orders",
    "orders",
    "ORDERS",
    "--help",
    "nul.txt",
    "a.",
    "a ,b",
    unicodedata.normalize("NFC", "Zürich"),
    unicodedata.normalize("NFD", "Zürich"),
    "\u202egnp.exe",
    "zero\u200bwidth",
    "ﬁ",
    "fi",
    "İ",
    "ß",
    "SS",
    "💥",
    "a*b",
    "`id`",
    "x" * 255,
    "x" * 2048,
    "x" * 2047 + "y",
    "ä" * 1024,
    "000000001",
    "broker.lock",
]
REFUSED = {
    "nothing": "",
    "too long": "x" * 2049,
    "ten thousand bytes": "x" * 10_000,
    "too long in bytes": "ä" * 1025,
    "a line": "two\nlines",
    "a carriage return": "a\rb",
    "a tab": "a\tb",
    "blanks before": " a",
    "blanks behind": "a ",
    "escape": "\x1b[2J",
    "delete": "\x7f",
}

PAGING = {"#": {"max-size-messages": 0, "page-size-bytes": "1K", "max-read-page-bytes": -1}}


def test_each_name_is_its_own_after_a_restart(tmp_path):
    """Every address pages, so that there is a directory for it; each gets its own messages back, and no others."""
    home = tmp_path / "home"
    home.mkdir()
    config, data = home / "broker.xml", home / "data"
    config.write_text(broker_xml(settings=PAGING))
    with BrokerProcess(config, data) as broker:
        client = StompClient(broker.port)
        client.connect()
        for number, name in enumerate(NAMES):
            client.put(f"/queue/{name}", f"{number} a", f"{number} b", persistent="true")
        client.close()
        here = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")}
    strange = [
        each
        for each in here
        if not each.startswith("home/data/") and each not in ("home", "home/broker.xml", "home/data")
    ]
    assert strange == [], "nothing is made outside of the data directory"
    directories = [each for each in (data / "paging").iterdir() if each.is_dir()]
    assert len(directories) == len(NAMES), "each address has a directory of its own"
    assert all(each.name.isascii() and len(each.name) < 64 for each in directories)
    with BrokerProcess(config, data) as broker:
        client = StompClient(broker.port)
        client.connect()
        for number, name in enumerate(NAMES):
            client.subscribe(f"/queue/{name}", id=str(number), ack="client")
            assert client.message(f"{number} a")["destination"] == f"/queue/{name}"
            client.answer("ACK", client.message(f"{number} b"))
            client.ask("UNSUBSCRIBE", {"id": number})
        client.close()
        management = Management(broker.http_port)
        for name in ("../../etc/passwd", "a/b", "Orders", "x" * 2048):
            management.expect(name, messageCount=0, messagesAcknowledged=2)


@HOSTILE
@pytest.mark.parametrize("kind", REFUSED)
def test_names_that_cannot_be(kind, connect, management):
    name = REFUSED[kind]
    client = connect()
    client.send("SEND", {"destination": f"/queue/{name}"}, b"x")
    error = client.error("destination" if kind == "nothing" else "name")
    assert len(error["message"]) < 3 * 10_000 and "\x1b" not in error["message"]
    client = connect()
    client.send("SUBSCRIBE", {"destination": f"/topic/ok::{name}", "id": "1"})
    client.error()
    assert management.ask("GET", "/queues", search="two\n")["count"] == 0


@HOSTILE
def test_nul_in_a_name(connect, management):
    """NUL cannot come in a header; over HTTP it can."""
    client = connect()
    client.raw(b"SEND\ndestination:/queue/a\0b\n\nx\0")
    client.error("ends with NUL")
    with pytest.raises(AssertionError, match="control character"):
        management.ask("POST", "/queues", {"name": "a\0b"})


@HOSTILE
def test_names_over_http_are_those_of_stomp(connect, management):
    """What is percent-encoded is decoded once, and only between slashes."""
    client = connect()
    for name in (name for name in NAMES if len(name.encode()) < 2000):
        client.put(f"/queue/h.{name}", "x")
        assert management.queue(f"h.{name}")["messageCount"] == 1
        management.ask("DELETE", f"/queues/{quote(f'h.{name}', safe='')}")
