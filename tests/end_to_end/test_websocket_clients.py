"""@stomp/stompjs over WebSocket, as people use it: in Node.js, and on a page in a browser."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from ..broker_process import PATIENCE
from ..ports import free_port
from .lasting import LastingBroker
from .page import Page, chromium

CLIENTS = Path(__file__).parent / "clients"
STOMPJS = CLIENTS / "node_modules" / "@stomp" / "stompjs" / "bundles" / "stomp.umd.min.js"
WS = CLIENTS / "node_modules" / "ws"

CONVERSATION = ["conversation 0", "conversation 1", "idle", "restart", "ok"]

needs_chromium = pytest.mark.skipif(
    chromium() is None or not STOMPJS.exists(),
    reason="Chromium is not installed with stomp.js: npm ci in tests/end_to_end/clients",
)


class Doors(NamedTuple):
    """A broker that listens for WebSockets in two ways, and where."""

    broker: LastingBroker
    urls: tuple[str, str]


@pytest.fixture
def doors(request, lasting):
    port = free_port()
    encoder = f"webSocketEncoderType={request.param}"
    lasting.start(
        parameters=encoder,
        acceptors=f'<acceptor name="ws">ws://127.0.0.1:{port}/stomp?anycastPrefix=/queue/;{encoder}</acceptor>',
    )
    return Doors(lasting, (f"ws://127.0.0.1:{port}/stomp", f"ws://127.0.0.1:{lasting.process.port}/any"))


def heard(lines, broker):
    """What a client tells until its end; the broker is restarted when it asks for that."""
    told = []
    for line in lines:
        told.append(line.rstrip("\n"))
        if told[-1] == "restart":
            broker.again("stop")
        if told[-1] == "ok" or told[-1].startswith("failed"):
            break
    return told


@pytest.mark.skipif(
    shutil.which("node") is None or not STOMPJS.exists() or not WS.exists(),
    reason="node is not installed with its STOMP client: npm ci in tests/end_to_end/clients",
)
@pytest.mark.parametrize("doors", ["binary", pytest.param("text", marks=pytest.mark.long)], indirect=True)
def test_stompjs_in_node(doors):
    with subprocess.Popen(
        ["node", "websocket.js", "node", *doors.urls],
        cwd=CLIENTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            assert heard(iter(program.stdout), doors.broker) == CONVERSATION
            assert program.wait(PATIENCE) == 0
        finally:
            program.kill()


@needs_chromium
@pytest.mark.parametrize("doors", ["text", pytest.param("binary", marks=pytest.mark.long)], indirect=True)
def test_stompjs_on_a_page(doors, tmp_path):
    script = f"talk({{ Client: StompJs.Client, urls: {list(doors.urls)}, prefix: 'page', tell }});"
    with Page(tmp_path, [STOMPJS, CLIENTS / "websocket_talk.js"], script) as page:
        page.visit()
        assert heard(iter(page.told, None), doors.broker) == CONVERSATION


@needs_chromium
@pytest.mark.parametrize(
    "visited, called, allowed, told",
    [
        ("127.0.0.1", "127.0.0.1", "", "let in"),
        ("localhost", "127.0.0.1", "", "let in"),
        ("evil.example", "127.0.0.1", "", "refused"),
        ("evil.example", "evil.example", "", "refused"),  # DNS rebinding: the same host, to the browser
        ("evil.example", "127.0.0.1", "https://app.example", "refused"),
        ("app.example", "127.0.0.1", "http://app.example:PORT", "let in"),
    ],
)
def test_pages_of_other_sites(lasting, tmp_path, visited, called, allowed, told):
    port = free_port()
    script = f"knock({{ url: 'ws://{called}:{port}/stomp', tell }});"
    with Page(tmp_path, [CLIENTS / "websocket_talk.js"], script) as page:
        origins = f"webSocketAllowedOrigins={allowed.replace('PORT', str(page.port))}" if allowed else ""
        lasting.start(acceptors=f'<acceptor name="ws">ws://127.0.0.1:{port}/stomp?{origins}</acceptor>')
        page.visit(visited)
        assert page.told() == told
    refusals = [line for line in lasting.process.log if "WebSocket rejected (403)" in line]
    assert len(refusals) == (told == "refused")
    assert all(visited in line for line in refusals)
