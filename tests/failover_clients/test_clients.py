"""Clients in several languages, and HAProxy, during a takeover: they connect to the other broker and go on.

Each client sends numbers with receipts to a queue of its own and consumes them. The active broker is killed, or
stopped so that it answers nothing and closes no connection, under all of them at once. What has no receipt then is sent
again with the same `_AMQ_DUPL_ID`.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ..broker_process import PATIENCE, ROOT
from ..ports import free_ports
from .pair import REPLICATED, SHARED
from .scenarios import Scenarios, Takeover, selected

CLIENTS = ROOT / "tests" / "end_to_end" / "clients"
GO = Path(__file__).parent / "go"

#: Messages that each client receives before the takeover, and again after it.
ENOUGH = 30

SCENARIOS = Scenarios()


class Program:
    """A client with a queue of its own and a list of brokers, and the lines that it prints."""

    def __init__(self, words, queue, brokers, directory=ROOT):
        self._changed = threading.Condition()
        self.queue = queue
        self.lines = []
        self._process = subprocess.Popen(
            [*words, queue, *brokers],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def values(self, kind):
        """What the lines of that kind tell."""
        return [line.partition(" ")[2] for line in list(self.lines) if line.startswith(f"{kind} ")]

    def wait_for(self, kind, count):
        """The `values` of a kind, once there are so many."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.values(kind)) >= count, PATIENCE)
        assert enough, (f"not {count} × {kind}", self.lines[-20:])
        return self.values(kind)

    def finish(self):
        """Have it complete what it does; the number of messages that it has sent."""
        self._process.stdin.write("finish\n")
        self._process.stdin.flush()
        (sent,) = self.wait_for("done", 1)
        assert self._process.wait(PATIENCE) == 0
        return int(sent)

    def kill(self):
        """At the end of a test, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE)


def check_messages(lines, sent):
    """Each number has come, in order, and none is there twice.

    A message that was not acknowledged comes again with its own id. Another id means a second message: only where the
    broker was lost before it had stored the first one, and so without a receipt.
    """
    ids = {}
    here = {}  # on one connection
    receipts = set()
    confirmed = set()  # before this connection
    for kind, _, rest in (line.partition(" ") for line in lines):
        if kind == "connected":
            here.clear()
            confirmed |= receipts
        elif kind == "receipt":
            receipts.add(int(rest))
        elif kind == "message":
            body, message_id = rest.split()
            number = int(body)
            assert here.setdefault(number, message_id) == message_id, f"{number} is there twice"
            known = ids.setdefault(number, [])
            if message_id not in known:
                assert not (known and number in confirmed), f"{number} is there again after its receipt"
                known.append(message_id)
    assert list(ids) == list(range(1, sent + 1))


def goes_on(pair, program, names):
    """Before a takeover it is served by the first broker, afterwards by the second; nothing is lost or there twice.

    ``names``: as it calls the brokers in its lines.
    """
    try:
        program.wait_for("message", ENOUGH)
        assert len(program.values("connected")) == 1, program.lines
        yield
        connected = program.wait_for("connected", 2)
        if names is not None:
            assert [connected[0], connected[-1]] == list(names)
        program.wait_for("receipt", len(program.values("receipt")) + ENOUGH)
        sent = program.finish()
    finally:
        program.kill()
    check_messages(program.lines, sent)
    pair.management.expect(program.queue, messageCount=0, deliveringCount=0)


def tcp(pair):
    """What clients have in their lists: first the broker that is active."""
    return f"127.0.0.1:{pair.active.stomp}", f"127.0.0.1:{pair.standby.stomp}"


STOMP_PY = [sys.executable, "-m", "tests.failover_clients.stomp_py"]


@SCENARIOS
def stomp_py_with_a_list_of_hosts(pair):
    pytest.importorskip("stomp", reason="stomp.py is not installed")
    brokers = tcp(pair)
    yield from goes_on(pair, Program(STOMP_PY, f"stomp.py.{pair.takeovers}", brokers), brokers)


@SCENARIOS
def stompjs_over_websocket_with_the_next_url(pair):
    if shutil.which("node") is None or not (CLIENTS / "node_modules" / "ws").exists():
        pytest.skip("node is not installed with its STOMP client: npm ci in tests/end_to_end/clients")
    urls = (
        f"ws://127.0.0.1:{pair.active.websocket}/stomp",
        f"ws://127.0.0.1:{pair.standby.websocket}/stomp",
    )
    program = Program(["node", "failover.js"], f"stompjs.{pair.takeovers}", urls, CLIENTS)
    yield from goes_on(pair, program, urls)


@SCENARIOS
def go_stomp_with_a_list_of_hosts(pair):
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    binary = pair.directory / "go-stomp"
    built = subprocess.run(
        ["go", "build", "-buildvcs=false", "-o", str(binary), "."],
        cwd=GO,
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    if built.returncode:
        missing = re.search(r"no required module|module lookup|proxy|dial tcp|requires go", built.stderr)
        assert missing, built.stderr
        pytest.skip(f"Go cannot build it: {built.stderr.strip().splitlines()[-1]}")
    brokers = tcp(pair)
    yield from goes_on(pair, Program([str(binary)], f"go-stomp.{pair.takeovers}", brokers), brokers)


@SCENARIOS
def clients_of_haproxy_that_know_one_address(pair):
    """With the configuration that is shipped, on other ports."""
    pytest.importorskip("stomp", reason="stomp.py is not installed")
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if haproxy is None:
        pytest.skip("haproxy is not installed")
    front, *fronts = free_ports(3)
    ports = dict(zip(("61600", "61601", "8160"), map(str, (front, *fronts)), strict=True))
    a, b = pair.endpoints
    ports |= {"61613": str(a.stomp), "61614": str(a.websocket), "8161": str(a.http)}
    ports |= {"61713": str(b.stomp), "61714": str(b.websocket), "8261": str(b.http)}
    text = (ROOT / "config" / "ha" / "haproxy.cfg").read_text()
    text = re.sub(r"(127\.0\.0\.1:|port )(\d+)", lambda found: found[1] + ports[found[2]], text)
    config = pair.directory / "haproxy.cfg"
    config.write_text(text)
    with (pair.directory / "haproxy.log").open("w") as log:
        proxy = subprocess.Popen([haproxy, "-db", "-f", str(config)], stdout=log, stderr=log)
    try:
        program = Program(STOMP_PY, f"haproxy.{pair.takeovers}", [f"127.0.0.1:{front}"])
        yield from goes_on(pair, program, None)
    finally:
        proxy.kill()
        proxy.wait(PATIENCE)


#: A process that is stopped keeps the lock of a shared directory: nobody takes over.
TAKEOVERS = [
    (SHARED, "kill"),
    *(pytest.param(REPLICATED, how, marks=pytest.mark.long) for how in ("kill", "freeze")),
]

#: HAProxy has clients of a language that is here already.
NAMES = [pytest.param(name, marks=pytest.mark.long if "haproxy" in name else ()) for name in SCENARIOS]


@pytest.fixture(scope="module")
def takeover(request, pair):
    pair.wait_until_standby()
    takeover = Takeover(pair, selected(request, SCENARIOS), request.param)
    yield takeover
    takeover.close()


@pytest.mark.parametrize("pair, takeover", TAKEOVERS, indirect=True, scope="module")
@pytest.mark.parametrize("name", NAMES)
def test_clients_go_on_at_the_other_broker(takeover, name):
    takeover.finish(name)
