"""docs/protocol.md tells of every header and every ERROR that there is, and of none that there is not."""

import re

import pytest

from stompring.broker.directory import MAX_NAME
from stompring.server.protocol import LINGER
from stompring.session.commands import VERBS
from stompring.session.connect import VERSIONS
from stompring.session.outbox import MAX_INTERVAL, MIN_BEAT, ROOM, SUBPROTOCOLS, HandshakeRejected, agree
from stompring.session.send import NOT_PASSED_ON, SCHEDULING
from stompring.settings.model import StompAcceptor
from stompring.stomp.headers import FIRST_FRAME, HeadLimits

from ..server.test_websocket import (
    MAX_CONTROL_FRAMES,
    MAX_FRAME_BEFORE_CONNECT,
    MAX_REQUEST_SIZE,
    MAX_SHORT_FRAGMENTS,
    SHORT_FRAGMENT,
)
from .source import (
    PACKAGE,
    ROOT,
    error_names,
    header_names,
    modules,
    returned_texts,
    source_of,
    texts_of_calls,
)

TEXT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")

CLIENT_FRAMES = {"CONNECT", "STOMP", *(command.decode() for command in VERBS)}
SERVER_FRAMES = {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}

#: Whose tables have the headers.
TITLES = (
    "CONNECT and STOMP",
    "CONNECTED",
    "SEND",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "ACK",
    "NACK",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "DISCONNECT",
    "MESSAGE",
    "RECEIPT",
    "ERROR",
)

#: Bytes that look like names of headers and are values of them.
VALUES = {"true", "false", "ANYCAST", "MULTICAST"}

#: What never reaches a client of STOMP: answers of the management API, and of `stompring check-config`.
MANAGEMENT_ONLY = {
    "a queue has no attribute …",  # a field of POST or PATCH
    "… must be -1 or at least …, not …",  # a field of POST or PATCH, or broker.xml
    "group-first-key …",  # a field of POST or PATCH, or broker.xml
    "filter: …",  # a field of POST or PATCH, or a parameter; the filter of SUBSCRIBE has been compiled before
    "Address … does not exist",  # a path of the API
    "Address … exists already",  # POST; clients find what exists
    "Address … still has queues: …",  # DELETE
    "Address … has the … queue …",  # PATCH
    "Queue … has … consumers",  # DELETE; UNSUBSCRIBE looks for consumers first and has a text of its own
    "max-consumers … is less than the … consumers that queue … has",  # PATCH
    "… of queue … cannot change while it exists",  # PATCH, or a reload
    "Queue … has no message …",  # a path of the API
    "Queue … has no scheduled message …",  # a path of the API
    "Message … of queue … is in delivery: only its consumer can settle it",  # DELETE
    "address is missing: name the address or the queue that the messages go to",  # POST …/move, …/copy
    "Address … leads back to queue …: name another address, or one of its queues",  # POST …/move, …/copy
    "Queue … is the queue of the messages itself: name another one",  # POST …/move, …/copy
    "No queue accepts message …: …",  # a task
    "Message … would come back to queue …",  # a task
    "dead-letter-address … has no queue for message …",  # a task
}


def section(title, text=TEXT):
    """The text below a heading of the second level, up to the next one of its level or above."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^##? |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def first_cells(text):
    """What stands in the first column of the tables of a section, between backticks."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def rows(text):
    """The cells of all table rows below a head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = [place - 1 for place, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for place, row in enumerate(cells) if place not in heads and place - 1 not in heads]


def errors_in_source():
    """Every text of an ERROR, management's included."""
    paths = modules("session", "stomp", "broker", "server", "policy")
    found = [text for path in paths for text in texts_of_calls(path, error_names())]
    found += [text for path in modules("server") for text in returned_texts(path, "authenticate")]
    found += returned_texts(PACKAGE / "broker" / "address.py", "describe_full")
    found += returned_texts(PACKAGE / "broker" / "publish.py", "describe")
    found += returned_texts(PACKAGE / "broker" / "publish.py", "describe_page_limit")
    return set(found)


# ---- headers


def test_every_header_has_a_row_and_none_is_documented_that_is_not_there():
    """Every header that some module of the session, or a message, reads or writes."""
    paths = [*modules("session"), PACKAGE / "broker" / "message.py"]
    known = {name for path in paths for name in header_names(path)} - CLIENT_FRAMES - SERVER_FRAMES - VALUES
    assert {"destination", "receipt-id", "AMQ_SCHEDULED_CRON", "activemq.prefetchSize", "timestamp"} <= known
    documented = {cell for title in TITLES for cell in first_cells(section(title))}
    assert known - documented == set()
    # the session reads none of them, and people look for them
    passed_on = {"content-type", "correlation-id", "type", "_AMQ_LVQ_NAME"}
    ignored = {"host", "content-length"}  # of CONNECT
    assert documented - known - passed_on - ignored == set()


def test_every_frame_has_its_table():
    sections = {"CONNECT and STOMP" if frame in ("CONNECT", "STOMP") else frame for frame in CLIENT_FRAMES}
    for title in sections | SERVER_FRAMES:
        table = rows(section(title))
        assert table, title
        for row in table:
            assert len(row) == 6 and all(row), f"{title}: {row}"


def test_headers_that_are_not_forwarded():
    paragraph = (
        section("SEND").partition("Headers consumed by the broker and not forwarded")[2].partition("\n\n")[0]
    )
    documented = {name.encode() for name in re.findall(r"`([^`]+)`", paragraph)}
    assert documented == NOT_PASSED_ON - SCHEDULING
    assert "scheduling headers" in paragraph and SCHEDULING < NOT_PASSED_ON


# ---- errors


def test_every_error_is_documented_and_none_that_is_not_there():
    real, documented = errors_in_source(), set(first_cells(section("ERROR texts")))
    assert {"Unknown command …", "Address … is full: max-size-bytes …"} <= real
    assert real - documented - MANAGEMENT_ONLY == set()
    assert documented - real == set()
    assert MANAGEMENT_ONLY - real == set(), "an exception that is not needed any more"


def test_every_error_says_what_to_do():
    for row in rows(section("ERROR texts")):
        assert len(row) == 3 and all(row), row


# ---- numbers


@pytest.mark.parametrize("row", rows(section("Heart-beats")), ids=lambda row: f"{row[0]} ttl {row[1]}")
def test_heart_beat_table(row):
    asked, ttl, answered, cut_off = (cell.strip("`") for cell in row)
    acceptor = StompAcceptor("a", "127.0.0.1", 0, connection_ttl=None if ttl == "none" else int(ttl))
    pace = agree(None if asked == "none" else asked, acceptor, -1)
    assert f"{pace.send},{pace.expect}" == answered
    assert (str(pace.ttl) if pace.ttl else "never") == cut_off


def test_heart_beat_numbers():
    text = section("Heart-beats")
    acceptor = StompAcceptor("a", "127.0.0.1", 0)
    assert f"the larger of cy and {MIN_BEAT}" in text
    assert f"`heartBeatToConnectionTtlModifier` ({acceptor.heart_beat_to_connection_ttl_modifier:g})" in text
    assert f"`connectionTtlMin` ({acceptor.connection_ttl_min} ms)" in text


def test_limits():
    acceptor = StompAcceptor("a", "127.0.0.1", 0)
    limits = acceptor.limits
    block = HeadLimits(limits.max_headers, limits.max_header_length).max_block
    expected = [
        (limits.max_body_length, "`maxBodyLength`"),
        (FIRST_FRAME, ""),
        (limits.max_headers, "`maxHeaders`"),
        (limits.max_header_length, "`maxHeaderLength`"),
        (block, ""),
        (acceptor.handshake_timeout, "`handshake-timeout`"),
        (acceptor.subscriptions_allowed, "`subscriptionsAllowed`"),
        (acceptor.transactions_allowed, "`transactionsAllowed`"),
        (acceptor.max_transaction_bytes, "`maxTransactionBytes`"),
        (acceptor.max_unsettled_messages, "`maxUnsettledMessages`"),
        (acceptor.connections_allowed, "`connectionsAllowed`"),
        ("half of all", "`connectionsAllowedPerHost`"),
        (acceptor.stomp_consumer_window_size, "`stompConsumerWindowSize`"),
        (acceptor.stomp_prefetch_count, "`stompPrefetchCount`"),
        (MAX_NAME, ""),
        (ROOM, "`outboxSize`"),
        (MAX_INTERVAL, ""),
        (MAX_REQUEST_SIZE, ""),
        ("those of a STOMP frame", "`webSocketMaxFramePayloadLength`"),
        (MAX_FRAME_BEFORE_CONNECT, ""),
        (MAX_CONTROL_FRAMES, ""),
        (MAX_SHORT_FRAGMENTS, ""),
    ]
    documented = [(row[1].partition(":")[0], row[2]) for row in rows(section("Limits"))]
    assert documented == [("no limit" if n == -1 else str(n), setting) for n, setting in expected]


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
    assert f"`{','.join(sorted(version.decode() for version in VERSIONS))}`" in section("ERROR")
