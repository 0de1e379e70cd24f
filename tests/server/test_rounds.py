"""The broker's own reactor: rounds, the transport that writes at their end, and what it uses of Twisted."""

import ast
import inspect
import itertools
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from twisted.internet import error, protocol
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python import log as twisted_log
from twisted.python.failure import Failure

from stompring.server import rounds
from stompring.server.rounds import RoundsConnection, RoundsReactor

from ..broker_document import broker_xml
from ..docs.source import modules, parsed

#: Seconds after which a test has failed: everything in here takes milliseconds.
PATIENCE = 30.0


class Peer(protocol.Protocol):
    """A server's connection: calls what the test has given, and keeps what happened."""

    transport: RoundsConnection

    def __init__(self, test):
        self.test = test
        self.received = b""
        self.reason = None
        self.events = []

    def connectionMade(self):
        self.test.peers.append(self)
        self.test.made(self)

    def dataReceived(self, data):
        self.received += data
        self.test.read(self, data)

    def connectionLost(self, reason=Failure(error.ConnectionDone())):  # noqa: B008
        self.reason = reason
        self.test.lost(self)

    def pauseProducing(self):
        self.events.append("pause")

    def resumeProducing(self):
        self.events.append("resume")

    def stopProducing(self):
        self.events.append("stop")


class Test:
    """A reactor with a listener. ``read`` and ``lost`` may be replaced; `run` runs until `done` is called."""

    __test__ = False

    def __init__(self):
        self.reactor = RoundsReactor()
        self.peers = []
        self.made = lambda peer: None
        self.read = lambda peer, data: None
        self.lost = lambda peer: None
        self.clients = []
        self.finished = False
        factory = protocol.Factory()
        factory.noisy = False
        factory.buildProtocol = lambda addr: Peer(self)
        self.port = self.reactor.listenTCP(0, factory, interface="127.0.0.1")

    def client(self):
        """A blocking socket, connected."""
        made = socket.create_connection(("127.0.0.1", self.port.getHost().port), PATIENCE)
        self.clients.append(made)
        return made

    def done(self):
        """End `run`."""
        self.finished = True
        self.reactor.crash()

    def run(self):
        """Handle events until `done`."""
        timer = self.reactor.callLater(PATIENCE, self.reactor.crash)
        self.finished = False
        self.reactor.startRunning(installSignalHandlers=False)
        self.reactor.mainLoop()
        if timer.active():
            timer.cancel()
        assert self.finished, "nothing has ended the test"

    def until(self, condition):
        """Run rounds until ``condition`` is met."""
        for _ in range(10_000):
            if condition():
                return
            self.reactor.iterate(0.01)
        pytest.fail("the condition was never met")

    def connected(self, number):
        """Clients, of which the reactor has accepted all."""
        clients = [self.client() for _ in range(number)]
        self.until(lambda: len(self.peers) == number)
        return clients

    def pair(self):
        """A client, and its connection."""
        (client,) = self.connected(1)
        return client, self.peers[0]

    def close(self):
        for client in self.clients:
            client.close()
        for selectable in self.reactor.removeAll():
            selectable.connectionLost(Failure(error.ConnectionAborted()))
        self.reactor.dispose()


@pytest.fixture
def test():
    made = Test()
    yield made
    made.close()


class CountingSocket:
    """A socket that counts what is sent, and sends no more than ``most`` bytes at once."""

    def __init__(self, real, most=1 << 30):
        self._real = real
        self._most = most
        self.sent = []

    def __getattr__(self, name):
        return getattr(self._real, name)

    def send(self, data):
        number = self._real.send(memoryview(data)[: self._most])
        self.sent.append(number)
        return number


def counted(peer, most=1 << 30):
    made = CountingSocket(peer.transport.socket, most)
    peer.transport.socket = made
    return made


# ---- rounds


def test_all_writes_of_a_round_are_one_write_of_the_socket(test):
    client, peer = test.pair()
    wire = counted(peer)
    for part in (b"a", b"b", b"c"):
        peer.transport.write(part)
    peer.transport.writeSequence([b"d", b"e"])
    assert wire.sent == []
    test.until(lambda: wire.sent)
    assert (wire.sent, client.recv(10)) == ([5], b"abcde")


def test_calls_at_the_round_end_follow_all_reads_and_precede_the_writes(test):
    clients = test.connected(2)
    happened = []
    wires = [counted(peer) for peer in test.peers]

    def at_end():
        happened.append(f"end, {sum(len(wire.sent) for wire in wires)} writes")
        test.peers[0].transport.write(b" and more")

    def read(peer, data):
        happened.append(f"read {data.decode()}")
        peer.transport.write(data)
        if len(happened) == 1:
            test.reactor.call_at_round_end(at_end)

    test.read = read
    for client in clients:
        client.sendall(b"x")
    test.until(lambda: len(wires[0].sent) + len(wires[1].sent) == 2)
    assert happened == ["read x", "read x", "end, 0 writes"]
    assert clients[0].recv(20) == b"x and more"


def test_a_call_at_the_round_end_is_called_once_and_a_fault_of_it_keeps_nobody_else_from_it(test):
    calls = []

    def fails():
        raise ValueError("a fault at the end")

    def again():
        calls.append("first")
        test.reactor.call_at_round_end(lambda: calls.append("second"))

    with logged() as faults:
        test.reactor.call_at_round_end(fails)
        test.reactor.call_at_round_end(again)
        assert test.reactor.timeout() == 0, "the next poll must not wait"
        test.reactor.runUntilCurrent()
        assert calls == ["first"]
        test.reactor.doIteration(0)
        assert calls == ["first", "second"]
        test.reactor.doIteration(0)
    assert calls == ["first", "second"]
    assert faults == ["a fault at the end"]


def test_a_reactor_with_an_event_is_not_idle(test):
    client, _ = test.connected(2)
    got = []
    test.read = lambda peer, data: got.append(data)
    assert test.reactor.is_idle()
    client.sendall(b"waits")
    for _ in range(10_000):
        if not test.reactor.is_idle():
            break
        time.sleep(0.001)
    assert not test.reactor.is_idle() and got == [], "nothing is handled before the poll"
    test.until(lambda: got)
    assert test.reactor.is_idle()


def test_what_timers_write_goes_out_before_the_next_poll(test):
    client, peer = test.pair()
    test.reactor.callLater(0, peer.transport.write, b"due")
    test.reactor.runUntilCurrent()
    assert client.recv(10) == b"due"


def test_a_stop_at_the_round_end_of_the_timers_stops_the_reactor(test):
    def stop():
        test.reactor.call_at_round_end(test.reactor.stop)
        test.finished = True

    test.reactor.callLater(0, stop)
    test.run()


def test_a_call_from_a_thread_ends_the_poll(test):
    thread = threading.Thread(target=lambda: test.reactor.callFromThread(test.done))
    test.reactor.callWhenRunning(thread.start)
    test.run()
    thread.join()


@pytest.mark.parametrize("number, most", [(4, 32_768), (8, 16_384), (12, 16_384)])
def test_connections_that_flood_share_the_reads_of_a_round(test, number, most):
    clients = test.connected(number)
    for client in clients:
        client.sendall(bytes(100_000))
    test.reactor.doIteration(1)
    assert [len(peer.received) for peer in test.peers] == [most] * number
    test.until(lambda: all(len(peer.received) == 100_000 for peer in test.peers))


# ---- the transport


def test_a_slow_socket_pauses_the_producer_and_gets_everything_in_order(test):
    client, peer = test.pair()
    peer.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    wire = counted(peer)
    peer.transport.registerProducer(peer, True)
    written = b"".join(number.to_bytes(4) for number in range(500_000))
    for at in range(0, len(written), 100_000):
        peer.transport.write(written[at : at + 100_000])
    assert set(peer.events) == {"pause"}
    peer.events.clear()
    received = bytearray()
    reader = threading.Thread(target=lambda: received.extend(take(client, len(written))))
    reader.start()
    test.until(lambda: not reader.is_alive())
    assert bytes(received) == written
    test.until(lambda: peer.events)
    assert peer.events == ["resume"]
    assert 0 not in wire.sent, "an empty write is a system call in vain"
    assert test.reactor.getWriters() == [], "a drained connection must not wait for EPOLLOUT"


def test_small_writes_behind_a_rest_keep_their_order(test):
    client, peer = test.pair()
    wire = counted(peer, most=7)
    expected = b""
    for number in range(50):
        part = str(number).encode() * 3
        expected += part
        peer.transport.write(part)
        test.reactor.iterate(0)
    test.until(lambda: sum(wire.sent) == len(expected))
    assert take(client, len(expected)) == expected


def test_closing_sends_what_was_written_first(test):
    client, peer = test.pair()
    peer.transport.write(b"last words")
    peer.transport.loseConnection()
    test.until(lambda: peer.reason)
    assert take(client, 100) == b"last words"
    assert peer.reason.check(error.ConnectionDone)


def test_a_half_closed_connection_is_read_and_writes_no_more(test):
    client, peer = test.pair()
    peer.transport.write(b"before")
    peer.transport.loseWriteConnection()
    assert take(client, 100, test) == b"before"
    peer.transport.write(b"after")
    client.sendall(b"still read")
    test.until(lambda: peer.received)
    assert (peer.received, peer.reason) == (b"still read", None)
    client.close()
    test.until(lambda: peer.reason)


def test_an_abort_drops_what_was_written(test):
    client, peer = test.pair()
    wire = counted(peer)
    peer.transport.write(b"dropped")
    peer.transport.abortConnection()
    test.until(lambda: peer.reason)
    assert wire.sent == []
    with pytest.raises(ConnectionResetError):
        client.recv(10)


@pytest.mark.parametrize("fault", [ValueError("a fault of a protocol"), KeyboardInterrupt("an interrupt")])
def test_a_fault_of_a_protocol_ends_its_connection_alone(test, fault):
    clients = test.connected(2)

    def read(peer, data):
        if data == b"bad":
            raise fault
        peer.transport.write(data)

    test.read = read
    with logged() as faults:
        clients[0].sendall(b"bad")
        clients[1].sendall(b"good")
        test.until(lambda: any(peer.reason for peer in test.peers))
        assert take(clients[1], 4, test) == b"good"
    assert sum(peer.reason is not None for peer in test.peers) == 1
    assert faults == [str(fault)]


def test_a_write_to_a_reset_connection_loses_it(test):
    client, peer = test.pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    peer.transport.write(b"x")
    test.until(lambda: peer.reason)
    assert peer.reason.check(error.ConnectionLost)


def test_only_bytes_are_written(test):
    _, peer = test.pair()
    with pytest.raises(TypeError):
        peer.transport.write("text")
    with pytest.raises(TypeError):
        peer.transport.writeSequence(["text"])


# ---- what it uses of Twisted, and what happens where that is missing

#: Private names of `TLSMemoryBIOProtocol`, used by `stompring.server.tls`.
TLS_NAMES = {
    "_handshakeDone": "whether records may be read and written",
    "_lostTLSConnection": "whether TLS has ended",
    "_aborted": "whether nothing is passed on any more",
    "_reason": "why TLS has ended",
    "_producer": "whoever is paused, released at the end",
    "_appSendBuffer": "writes that wait for the handshake",
    "_bufferedWrite": "adds to them",
    "_flushSendBIO": "sends what TLS itself has to say",
    "_shutdownTLS": "answers the end of TLS",
    "_tlsShutdownFinished": "ends the connection after TLS",
}


def test_every_private_name_is_needed():
    own, used = private_names(Path(rounds.__file__))
    assert used - own == set(rounds.PRIVATE_NAMES)


def test_no_other_private_name_of_twisted_is_used_or_overridden():
    allowed = {*rounds.PRIVATE_NAMES, *TLS_NAMES, "_exit"}
    for path in modules("server"):
        own, used = private_names(path)
        assert used - own <= allowed, path
    own, _ = private_names(Path(rounds.__file__))
    inherited = {
        name for kind in (RoundsReactor, RoundsConnection) for base in kind.__mro__[1:] for name in vars(base)
    }
    assert not own & inherited, "a private name of Twisted is overridden"


def private_names(path):
    """Private names that a module sets or defines, and those that it uses."""
    tree = parsed(path)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store) and is_self(node.value)}
    return set(filter(private, own)), {node.attr for node in attributes if private(node.attr)}


def is_self(node):
    return isinstance(node, ast.Name) and node.id == "self"


def test_every_private_name_that_tls_uses_is_listed_and_there():
    classes = [
        node for path in modules("server") for node in parsed(path).body if isinstance(node, ast.ClassDef)
    ]
    (connection,) = [node for node in classes if node.name == "TlsConnection"]
    own = {"_read", "_encrypt", "_end", "_why", "_parts", "_size", "_first_bytes", "_ended", "_timer"}
    used = {
        node.attr for node in ast.walk(connection) if isinstance(node, ast.Attribute) and private(node.attr)
    }
    assert used - own == set(TLS_NAMES)
    theirs = ast.parse(inspect.getsource(TLSMemoryBIOProtocol))
    names = {node.attr for node in ast.walk(theirs) if isinstance(node, ast.Attribute)}
    assert set(TLS_NAMES) <= names
    assert not own & names, "a private name of Twisted is overridden"


def private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("name", rounds.PRIVATE_NAMES)
def test_each_private_name_is_looked_for(test, name):
    others = {each: getattr(test.reactor, each) for each in rounds.PRIVATE_NAMES if each != name}
    with pytest.raises(rounds.UnknownTwisted, match=f"^Twisted .* lacks {name}$"):
        rounds.check_names(SimpleNamespace(**others))


def test_a_twisted_without_a_private_name_means_the_stock_reactor(tmp_path):
    taken = socket.create_server(("127.0.0.1", 0))
    acceptor = f'<acceptor name="taken">tcp://127.0.0.1:{taken.getsockname()[1]}</acceptor>'
    (tmp_path / "broker.xml").write_text(broker_xml(acceptors=acceptor))
    program = (
        "from twisted.internet.posixbase import _DisconnectSelectableMixin as kind; del kind._disconnectSelectable;"
        "from stompring.cli.main import main; main(['run', '--config', 'broker.xml', '--data', 'data'])"
    )
    with taken:
        ran = in_python(program, tmp_path)
    assert ran.returncode == 1 and "cannot listen on" in ran.stderr
    assert re.search("stock reactor: .* Twisted [0-9.]+ lacks _disconnectSelectable\n", ran.stderr)
    assert "reactor: EPollReactor\n" in ran.stderr


def in_python(program, directory):
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=4 * PATIENCE)


#: A trial test in a process whose reactor is the broker's: a timer, a thread, a signal, a connection of its own.
TRIAL = """
import os, signal
from twisted.internet import reactor, endpoints, protocol, defer, task, threads
from twisted.trial import unittest

class T(unittest.TestCase):
    async def _round_trip(self):
        factory = protocol.Factory.forProtocol(Echo)
        port = await endpoints.TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
        client = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        answer = defer.Deferred()
        made = await endpoints.connectProtocol(client, Once(answer))
        made.transport.write(b"ping")
        self.assertEqual(await answer, b"ping")
        made.transport.loseConnection()
        await port.stopListening()
        await task.deferLater(reactor, 0.01)

    def test_connection(self):
        return defer.ensureDeferred(self._round_trip())

    def test_thread(self):
        return threads.deferToThread(lambda: 7).addCallback(self.assertEqual, 7)

    def test_signal(self):
        fired = defer.Deferred()
        before = signal.signal(signal.SIGUSR1, lambda *_: reactor.callFromThread(fired.callback, None))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        reactor.callLater(0, os.kill, os.getpid(), signal.SIGUSR1)
        return fired

    def test_reactor(self):
        self.assertEqual(type(reactor).__name__, "RoundsReactor")

class Echo(protocol.Protocol):
    def dataReceived(self, data):
        self.transport.write(data)

class Once(protocol.Protocol):
    def __init__(self, answer):
        self.answer = answer
    def dataReceived(self, data):
        self.answer.callback(data)
"""


def test_trial_runs_on_it(tmp_path):
    (tmp_path / "test_on_rounds.py").write_text(TRIAL)
    program = (
        "import sys; from twisted.internet.main import installReactor;"
        "from stompring.server.rounds import RoundsReactor; installReactor(RoundsReactor());"
        "sys.argv = ['trial', 'test_on_rounds']; from twisted.scripts.trial import run; run()"
    )
    ran = in_python(program, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "successes=4" in ran.stdout


# ---- helpers


def test_call_before_rounds_comes_before_events_and_timers(test):
    order = []
    test.read = lambda peer, data: order.append("read")
    client, _ = test.pair()
    test.reactor.call_before_rounds(lambda: order.append("check"))
    client.sendall(b"x")
    test.until(lambda: "read" in order)
    assert order[order.index("read") - 1] == "check"
    order.clear()
    test.reactor.callLater(0, order.append, "timer")
    test.until(lambda: "timer" in order)
    assert order[order.index("timer") - 1] == "check"


def test_call_before_rounds_on_a_stock_reactor_comes_before_each_event():
    order = []

    class Stock:
        def _doReadOrWrite(self, *arguments):
            order.append(f"event {arguments}")
            return "handled"

        def runUntilCurrent(self):
            order.append("timers")

    stock = Stock()
    rounds.call_before_events(stock, lambda: order.append("check"))
    assert stock._doReadOrWrite(1, 2) == "handled"
    stock.runUntilCurrent()
    assert order == ["check", "event (1, 2)", "check", "timers"]


class Events:
    """A poll with simulated time: ``numbers`` of events in turn, after ``gaps`` in turn."""

    def __init__(self, reactor, gaps, numbers=(1,)):
        self.now = self.busy = 0.0  # ``busy``: seconds in polls that did not sleep
        self.slept = 0
        self._gaps = itertools.cycle(gaps)
        self._due = next(self._gaps)
        self._numbers = itertools.cycle(numbers)
        reactor.poll, reactor.now = self._poll, lambda: self.now

    def last(self):
        """No event follows for a while."""
        self._gaps = itertools.repeat(10.0)

    def _poll(self, timeout, most):
        self.now += 5e-6
        self.busy += 5e-6
        if timeout and self._due > self.now:
            self.slept += 1
            self.now = self._due if timeout < 0 else min(self._due, self.now + timeout)
        if self._due > self.now:
            return []
        self._due = self.now + next(self._gaps)
        return [(-1, 0)] * next(self._numbers)


@pytest.mark.parametrize(
    ("gap", "spins"),
    [(20e-6, True), (80e-6, True), (200e-6, False), (1e-3, False)],
    ids=lambda value: str(value),
)
def test_only_while_events_follow_each_other_fast_a_poll_does_not_sleep(test, gap, spins):
    events = Events(test.reactor, [gap])
    for _ in range(100):
        test.reactor.doPoll(None)
    assert events.slept == (1 if spins else 100)
    events.last()  # looks for 100 µs, then sleeps
    test.reactor.doPoll(None)
    before = events.now
    test.reactor.doPoll(0.5)
    assert 0.5 <= events.now - before <= 0.6 or not spins


def test_of_several_clients_a_poll_sleeps_even_if_events_follow_fast(test):
    events = Events(test.reactor, [20e-6], numbers=[1, 2])
    for _ in range(100):
        test.reactor.doPoll(None)
    assert events.slept > 90


def test_events_that_seldom_follow_fast_make_few_polls_busy(test):
    events = Events(test.reactor, [50e-6, 350e-6])  # 5,000 a second
    for _ in range(20_000):
        test.reactor.doPoll(None)
    assert events.busy < 20_000 * 5e-6 * 1.05
    busy = Events(test.reactor, [50e-6])
    for _ in range(1_500):
        test.reactor.doPoll(None)
    assert busy.slept < 1_100  # the polls repeat again, at the latest after `MAX_REST`


class logged:
    """The messages of the faults that Twisted logs meanwhile."""

    def __enter__(self):
        self._found = []
        twisted_log.addObserver(self._observe)
        return self._found

    def _observe(self, event):
        if event.get("isError"):
            self._found.append(str(event["failure"].value))

    def __exit__(self, *exception):
        twisted_log.removeObserver(self._observe)


def take(client, size, test=None):
    """``size`` bytes, or those until the end of the connection. ``test`` goes on meanwhile."""
    found = bytearray()
    if test is not None:
        client.settimeout(0.01)
    while len(found) < size:
        try:
            data = client.recv(size - len(found))
        except TimeoutError:
            test.reactor.iterate(0)
            continue
        if not data:
            break
        found += data
    client.settimeout(PATIENCE)
    return bytes(found)
