"""docs/protocol.md describes every header and every ERROR that exists, and no others."""

import re

from stompring.server.protocol import LINGER
from stompring.session.commands import VERBS
from stompring.session.connect import VERSIONS
from stompring.session.outbox import MIN_BEAT, SUBPROTOCOLS, HandshakeRejected
from stompring.settings.model import StompAcceptor

from ..server.test_websocket import (
    MAX_CONTROL_FRAMES,
    MAX_REQUEST_SIZE,
    MAX_SHORT_FRAGMENTS,
    SHORT_FRAGMENT,
)
from .pages import text_of
from .protocol_reference import error_texts
from .source import PACKAGE, errors_in_source, header_names, modules, source_of, texts_of_calls

TEXT = text_of("docs/protocol.md")

CLIENT_FRAMES = {"CONNECT", "STOMP", *(command.decode() for command in VERBS)}
SERVER_FRAMES = {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}

#: Whose tables have the headers.
TITLES = (
    "CONNECT and STOMP",
    "CONNECTED",
    "SEND",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "ACK and NACK",
    "BEGIN, COMMIT, ABORT and DISCONNECT",
    "MESSAGE",
    "RECEIPT and ERROR",
)

#: Bytes that look like names of headers and are values of them.
VALUES = {"true", "false", "ANYCAST", "MULTICAST"}


def section(title, text=TEXT):
    """The text below a heading of the second level, up to the next one of its level or above."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^##? |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def first_cells(text):
    """The texts between backticks in the first column of the tables of a section."""
    return {name for row in rows(text) for name in re.findall("`([^`]+)`", row[0])}


def rows(text):
    """The cells of all table rows below a head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = [place - 1 for place, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for place, row in enumerate(cells) if place not in heads and place - 1 not in heads]


# ---- headers


def test_every_header_has_a_row_and_none_is_documented_that_is_not_there():
    """Every header that some module of the session, or a message, reads or writes."""
    paths = [*modules("session"), PACKAGE / "broker" / "message.py"]
    known = {name for path in paths for name in header_names(path)} - CLIENT_FRAMES - SERVER_FRAMES - VALUES
    assert {"destination", "receipt-id", "AMQ_SCHEDULED_CRON", "activemq.prefetchSize", "timestamp"} <= known
    documented = set().union(*(first_cells(section(title)) for title in TITLES))
    assert known - documented == set()
    # the session reads none of them, and people look for them
    passed_on = {"content-type", "correlation-id", "type", "_AMQ_LVQ_NAME"}
    ignored = {"host", "content-length"}  # of CONNECT
    assert documented - known - passed_on - ignored == set()


def test_every_frame_has_its_table():
    assert {word for title in TITLES for word in re.findall("[A-Z]+", title)} == CLIENT_FRAMES | SERVER_FRAMES
    for title in TITLES:
        table = rows(section(title))
        assert table, title
        for row in table:
            assert len(row) == 6 and all(row), f"{title}: {row}"


# ---- errors


def test_every_error_that_is_explained_exists():
    text = section("ERROR texts")
    for row in rows(text):
        assert len(row) == 3 and all(row), row
    assert len(first_cells(text)) > 30 and first_cells(text) - errors_in_source() == set()


def test_every_error_is_listed():
    assert {"Unknown command …", "Address … is full: max-size-bytes …"} <= errors_in_source()
    assert error_texts() in TEXT


# ---- numbers


def test_heart_beat_numbers():
    text = section("Heart-beats")
    acceptor = StompAcceptor("a", "127.0.0.1", 0)
    assert f"the larger of cy and {MIN_BEAT}" in text
    assert f"`heartBeatToConnectionTtlModifier` ({acceptor.heart_beat_to_connection_ttl_modifier:g})" in text
    assert f"`connectionTtlMin` ({acceptor.connection_ttl_min} ms)" in text


def test_who_is_refused_a_websocket():
    told = section("WebSocket")
    for text in (
        *texts_of_calls(source_of(HandshakeRejected), {HandshakeRejected.__name__}),
        f"The request is longer than {MAX_REQUEST_SIZE} bytes",
        f"More than {MAX_CONTROL_FRAMES} pings and pongs within a second",
        f"More than {MAX_SHORT_FRAGMENTS} fragments of less than {SHORT_FRAGMENT} bytes within a second",
    ):
        assert f"| `{text}` |" in told
    assert all(f"`{subprotocol}`" in told for subprotocol in SUBPROTOCOLS)
    assert f"{LINGER:.0f} s to answer" in told


def test_versions():
    assert f"`{','.join(sorted(version.decode() for version in VERSIONS))}`" in section("RECEIPT and ERROR")
