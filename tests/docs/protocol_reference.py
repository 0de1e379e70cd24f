"""The generated parts of docs/protocol.md."""

from stompring.admin import management as management_requests
from stompring.broker.directory import MAX_NAME
from stompring.server import websocket
from stompring.session.outbox import MAX_INTERVAL, ROOM, agree
from stompring.session.send import NOT_PASSED_ON
from stompring.settings.model import StompAcceptor
from stompring.stomp.headers import FIRST_FRAME, HeadLimits

from .generated import table
from .source import errors_in_source

#: Values of ``heart-beat``, and of ``connectionTtl``.
OFFERS = (None, None), ("0,0", None), ("0,100", None), ("1,1", None), ("10000,10000", None), ("0,0", 60_000)


def error_texts():
    """The texts of every ERROR."""
    return "\n".join(f"- `{text}`" for text in sorted(errors_in_source()))


def management(name):
    """The names of further attributes (``ALIASES``), or of operations (``OPERATIONS``), by the kind of resource."""
    found = getattr(management_requests, name).items()
    rows = [(f"`{kind}`", " ".join(f"`{each}`" for each in sorted(names))) for kind, names in found if names]
    return table("resource, names", rows)


def not_forwarded():
    """The headers that a SEND does not hand on."""
    return ", ".join(f"`{name.decode()}`" for name in sorted(NOT_PASSED_ON, key=bytes.lower))


def heart_beats():
    """A table of the answers to some values of ``heart-beat``."""
    text = "| client sends | `connectionTtl` | broker answers | connection closed after ms |\n|---|---|---|---|\n"
    for offer, ttl in OFFERS:
        pace = agree(offer, StompAcceptor("a", "127.0.0.1", 0, connection_ttl=ttl), -1)
        offered = f"`{offer}`" if offer else "none"
        text += f"| {offered} | {ttl or 'none'} | `{pace.send},{pace.expect}` | {pace.ttl or 'never'} |\n"
    return text


def limits():
    """The table of the limits."""
    acceptor = StompAcceptor("a", "127.0.0.1", 0)
    frame = acceptor.limits
    head = HeadLimits(frame.max_headers, frame.max_header_length).max_block
    text = "| what | how much | setting |\n|---|---|---|\n"
    for what, limit, setting in (
        ("bytes of a body", frame.max_body_length, "maxBodyLength"),
        ("bytes of command and headers, and of the body, of a frame before CONNECTED", FIRST_FRAME, ""),
        ("headers of a frame", frame.max_headers, "maxHeaders"),
        ("bytes of a header line, or of the command line", frame.max_header_length, "maxHeaderLength"),
        ("bytes of command and headers: 16 times the line above, at least 65536", head, ""),
        ("seconds until CONNECT", acceptor.handshake_timeout, "handshake-timeout"),
        ("subscriptions of a connection", acceptor.subscriptions_allowed, "subscriptionsAllowed"),
        ("open transactions of a connection", acceptor.transactions_allowed, "transactionsAllowed"),
        ("bytes in its open transactions", acceptor.max_transaction_bytes, "maxTransactionBytes"),
        (
            "unacknowledged messages of a subscription",
            acceptor.max_unsettled_messages,
            "maxUnsettledMessages",
        ),
        ("connections of an acceptor", {-1: "no limit"}[acceptor.connections_allowed], "connectionsAllowed"),
        ("connections of one host to an acceptor", "half of all", "connectionsAllowedPerHost"),
        ("bytes of a window", acceptor.stomp_consumer_window_size, "stompConsumerWindowSize"),
        ("messages of a window", acceptor.stomp_prefetch_count, "stompPrefetchCount"),
        ("bytes of a name, an `id`, a `transaction`, an `_AMQ_DUPL_ID`", MAX_NAME, ""),
        ("outgoing bytes at which deliveries, and reading, pause", ROOM, "outboxSize"),
        ("ms of a heart-beat interval", MAX_INTERVAL, ""),
        ("bytes of the HTTP request for a WebSocket", websocket.MAX_REQUEST_SIZE, ""),
        ("bytes of a WebSocket frame", "those of a STOMP frame", "webSocketMaxFramePayloadLength"),
        ("the same before CONNECTED", websocket.MAX_FRAME_BEFORE_CONNECT, ""),
        ("WebSocket pings and pongs within a second", websocket.MAX_CONTROL_FRAMES, ""),
        (
            f"fragments of less than {websocket.SHORT_FRAGMENT} bytes of WebSocket messages within a second",
            websocket.MAX_SHORT_FRAGMENTS,
            "",
        ),
    ):
        text += f"| {what} | {limit} | {setting and f'`{setting}`'} |\n"
    return text
