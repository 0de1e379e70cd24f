"""STOMP over WebSocket through real sockets: conversations, hostile clients, back-pressure both ways."""

import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from ..broker_process import PATIENCE
from ..stomp_client import frame_bytes
from ..waiting import Deadline
from ..websocket_client import (
    BINARY,
    TEXT,
    WebSocketClient,
    WebSocketDialogue,
    piece_bytes,
)
from .test_limits import resident

MIB = 1024 * 1024

#: With a path, and in text; what the tests of limits need is on an acceptor of its own.
ACCEPTORS = """
<acceptor name="ws">ws://127.0.0.1:0/stomp?anycastPrefix=/queue/</acceptor>
<acceptor name="text">ws://127.0.0.1:0?anycastPrefix=/queue/;webSocketEncoderType=text</acceptor>
<acceptor name="strict">ws://127.0.0.1:0?handshake-timeout=1;stompMaxFramePayloadLength=10K;maxBodyLength=1MB</acceptor>
"""

pytestmark = pytest.mark.broker(
    acceptors=ACCEPTORS,
    settings={"block.#": {"max-size-bytes": "20MB", "address-full-policy": "BLOCK"}},
)


@pytest.fixture
def opened(broker):
    """Opens connected dialogues with an acceptor; their sockets are closed after the test."""
    with ExitStack() as stack:

        def dialogue(acceptor="ws", version="1.2", greet=True, opcode=BINARY, **headers):
            found = WebSocketDialogue(broker.ports[acceptor], version, opcode=opcode)
            stack.callback(found.close)
            if greet:
                found.connect({name.replace("_", "-"): value for name, value in headers.items()})
            return found

        yield dialogue


@pytest.fixture
def knock(broker):
    """Opens connections on which nothing was said."""
    with ExitStack() as stack:

        def client(acceptor="ws"):
            found = WebSocketClient(broker.ports[acceptor])
            stack.callback(found.close)
            return found

        yield client


# ---- conversations


@pytest.mark.parametrize("acceptor", ["ws", "text", "stomp"])
@pytest.mark.parametrize("opcode", [BINARY, TEXT])
def test_a_conversation(opened, management, name, version, acceptor, opcode):
    client = opened(acceptor, version, opcode=opcode)
    assert client.answer_to_request.headers["sec-websocket-protocol"] == "v12.stomp"
    bodies = [f"zażółć {n}" for n in range(20)]
    client.put(f"/queue/{name}", *bodies, **({} if version == "1.0" else {"odd": "a:b\nc"}))
    client.subscribe(f"/queue/{name}")
    for message in client.messages(*bodies):
        client.answer("ACK", message)
    sent = BINARY if acceptor != "text" else TEXT
    assert {piece.opcode for piece in client.pieces} == {sent}
    assert all(piece.fin and piece.payload.endswith(b"\0\n") for piece in client.pieces)
    assert sum(piece.payload.count(b"\0") for piece in client.pieces) == len(client.pieces)
    shown = [
        found
        for found in management.ask("GET", "/connections")["data"]
        if found["connectionID"] == client.connected["session"]
    ]
    assert [found["protocol"] for found in shown] == [f"STOMP {version} over WebSocket"]
    client.disconnect()
    assert client.ended.code == 1000
    management.expect(name, messageCount=0, messagesAcknowledged=20)


def test_plain_stomp_on_the_same_listener(opened, connect, name):
    plain, over = connect(), opened("stomp")
    plain.subscribe(f"/queue/{name}")
    over.put(f"/queue/{name}", "there")
    plain.message("there")


@pytest.mark.parametrize("acceptor", ["ws", "text"])
def test_big_binary_bodies(opened, name, acceptor):
    client = opened(acceptor)
    body = random.Random(1).randbytes(4 * MIB)
    client.put(f"/queue/{name}", body, content_length=len(body))
    client.subscribe(f"/queue/{name}")
    client.message(body)
    assert client.pieces[-1].opcode == BINARY


# ---- who may


def test_requests_that_are_refused(knock, broker):
    request = "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
    asking = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    for acceptor, text, status in [
        ("ws", request.format("/stomp", ""), 426),
        ("stomp", request.format("/", ""), 426),
        ("stomp", "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 505),
        ("ws", "POST /stomp HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("ws", "nonsense\r\n\r\n", 400),
        ("ws", "GET /stomp HTTP/1.1\r\n\r\n", 400),
        ("ws", request.format("/stomp", asking), 400),
        ("ws", request.format("/stomp", asking + "Sec-WebSocket-Version: 8\r\n"), 400),
        (
            "ws",
            request.format("/stomp", asking + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"),
            400,
        ),
    ]:
        client = knock(acceptor)
        answer = client.request(text.encode())
        assert answer.status == status and answer.body, (text, answer)
        client.ended()
    for headers, status in [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "chrome-extension://abcdef"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"sec_websocket_protocol": "mqtt"}, 400),
        ({"cookie": "x" * 20_000}, 431),
        ({"origin": "http://localhost:3000", "cookie": "x" * 10_000}, 101),
        ({"sec_websocket_extensions": "permessage-deflate; client_max_window_bits"}, 101),
    ]:
        for acceptor in ("ws", "stomp"):
            answer = knock(acceptor).ask(**headers)
            assert answer.status == status, (headers, answer)
            assert "sec-websocket-extensions" not in answer.headers
    assert knock("ws").ask("/other").status == 404
    assert knock("text").ask("/other").status == 101
    broker.wait_for_log(r"WebSocket rejected \(403\): Origin https://evil.example is not allowed")


# ---- hostile clients


def test_a_message_without_end_takes_no_memory(opened, broker):
    """Of one WebSocket message, 100 MB are line ends between frames; the limit of a body is 1 MB."""
    client = opened("strict")
    before = resident(broker)
    client.client.send(BINARY, b"\n", fin=False)
    piece = piece_bytes(0, b"\n" * 10240, fin=False)
    for _ in range(100):
        client.socket.sendall(piece * 100)
    client.client.send(0, b"\n")
    client.put("/queue/after", "x")
    assert resident(broker) - before < 20 * MIB


# ---- back-pressure


def test_a_consumer_that_does_not_read(opened, name, management, broker):
    """100 MB wait for it: they stay in the queue and do not become copies on their way to its socket."""
    sender = opened()
    body = b"x" * MIB
    for _ in range(100):
        sender.put(f"/queue/{name}", body, content_length=MIB)
    before = resident(broker)
    consumer = opened()
    consumer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    consumer.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "ack": "auto"})
    deadline = Deadline()
    while management.queue(name)["messagesAcknowledged"] == 0:
        time.sleep(0.1)
        assert not deadline.passed()
    sender.put("/queue/others", "are served")
    assert management.queue(name)["messageCount"] > 80
    assert resident(broker) - before < 30 * MIB
    for _ in range(100):
        assert len(consumer.message().body) == MIB
    management.expect(name, messageCount=0)


def test_a_producer_that_is_blocked(opened, name, management, broker):
    """Its socket is not read any more, its frames wait with it, and nothing is lost."""
    producer, consumer = opened(), opened()
    queue = f"block.{name}"
    frame = frame_bytes("SEND", {"destination": f"/queue/{queue}", "content-length": MIB}, b"y" * MIB)
    before = resident(broker)
    producer.socket.settimeout(2)
    sent, rest = 0, b""
    blocked = False
    while not blocked:
        rest = rest or piece_bytes(BINARY, frame)
        try:
            rest = rest[producer.socket.send(rest) :]
        except TimeoutError:  # the broker is only slow where it has not got all yet that it may
            blocked = sent >= 20 and management.queue(queue)["messageCount"] == 20
        sent += not rest
        assert sent < 100
    management.expect(queue, messageCount=20)
    assert resident(broker) - before < 50 * MIB
    producer.socket.settimeout(PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        finished = pool.submit(producer.socket.sendall, rest)
        consumer.subscribe(f"/queue/{queue}", ack="auto")
        for _ in range(sent + 1):
            assert len(consumer.message().body) == MIB
        finished.result(PATIENCE)
    management.expect(queue, messageCount=0, messagesAdded=sent + 1)
