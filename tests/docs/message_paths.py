"""The calls that a message passes through, as docs/architecture.md lists them between markers.

``python -m tests.docs.message_paths`` writes them there. Each path is run once on a broker with its real store, a
transport in memory and a disk without a thread; what is listed are the calls of Python functions of the package, in
order. Comprehensions are part of the function that has them.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

import stompring
from stompring.broker import paging as seam
from stompring.broker.broker import Broker
from stompring.paging.paged_queues import TargetAreas
from stompring.policy.hooks import Policies
from stompring.server import protocol
from stompring.server.protocol import Connections, StompFactory
from stompring.session.connect import Anonymous
from stompring.session.outbox import Outgoing
from stompring.settings.acceptor import StompAcceptor
from stompring.settings.model import AddressSettingEntry, BrokerConfiguration
from stompring.store import writer
from stompring.store.durable import Durable
from stompring.store.paging import Paging

from ..store.disk import ImmediateDisk

PACKAGE = Path(stompring.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "architecture.md"
MARKER = "<!-- calls: {} -->\n"
END = "<!-- end of calls -->\n"


class Call(NamedTuple):
    """A call of a function of the package."""

    depth: int
    module: str
    function: str


class Transport(StringTransport):
    """A TCP transport in memory."""

    def __init__(self) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "127.0.0.1", 50_000))

    def setTcpNoDelay(self, enabled: bool) -> None:
        """See ITCPTransport."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """See ITCPTransport."""


class TracedBroker:
    """A broker with its store in ``directory``, and one client."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        disk = ImmediateDisk(self.clock)
        paged = AddressSettingEntry("paged", {"max_size_messages": 0})
        configuration = BrokerConfiguration(security_enabled=False, address_settings=(paged,))
        store = Durable(configuration, directory / "journal", disk, self.clock)
        broker = Broker(configuration, self.clock, Policies(), store)
        paging = Paging(store.journal, store.writer, disk, broker.clock, directory / "paging")
        store.pages = paging
        broker.paging = cast(seam.Paging, paging)
        paging.reads.account = TargetAreas(broker).budget
        store.recover(broker)
        outgoing = Outgoing(broker.clock)
        store.writer.around = outgoing.gather
        acceptor = StompAcceptor("stomp", "127.0.0.1", 0, anycast_prefix=("/queue/",))
        factory = StompFactory(broker, acceptor, Anonymous(), Connections(1), outgoing, self.clock)
        self.broker = broker
        self.transport = Transport()
        self.protocol = cast(Any, factory.buildProtocol(None))
        self.protocol.makeConnection(self.transport)
        self.send(b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n\n\0")

    def send(self, data: bytes) -> None:
        """One read of the socket, and the turns of the reactor that follow from it."""
        self.protocol.dataReceived(data)
        while self.clock.calls and self.clock.calls[0].getTime() <= self.clock.seconds():
            self.clock.advance(0)


def calls_of(run: Callable[[], None]) -> list[Call]:
    """The calls of Python functions of the package while ``run`` runs."""
    found: list[Call] = []
    depth = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        code = frame.f_code
        path = Path(code.co_filename)
        if event not in ("call", "return") or PACKAGE not in path.parents:
            return
        if code.co_name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"):
            return
        if event == "return":
            depth -= 1
            return
        function = code.co_qualname.replace(".<locals>.", ".").replace("<lambda>", "lambda")
        found.append(Call(depth, path.relative_to(PACKAGE).as_posix(), function))
        depth += 1

    gc.collect()
    gc.disable()  # what earlier tests have left calls the package when it is collected
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def send(destination: bytes, *headers: bytes) -> bytes:
    """A SEND frame."""
    lines = b"".join(header + b"\n" for header in headers)
    return b"SEND\ndestination:/queue/%b\n%bcontent-length:5\n\nhello\0" % (destination, lines)


def traced(frame: bytes, *before: bytes) -> list[Call]:
    """The calls for a frame that a client has sent three times before, after the frames ``before``."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        for module in (protocol, writer):  # a busy machine is no reason for other calls
            stack.enter_context(patch.object(module, "perf_counter", lambda: 0.0))
        broker = TracedBroker(Path(directory))
        for each in (*before, frame, frame, frame):
            broker.send(each)
        broker.transport.clear()
        calls = calls_of(lambda: broker.send(frame))
        assert broker.transport.value(), "nothing was answered"
        return calls


def paths() -> dict[str, list[Call]]:
    """The calls of each path, by its name."""
    subscribe = b"SUBSCRIBE\ndestination:/queue/orders\nid:1\nack:auto\n\n\0"
    receipt = b"receipt:1"
    return {
        "hot path": traced(send(b"orders"), send(b"orders"), subscribe),
        "persistent path": traced(send(b"orders", b"persistent:true", receipt)),
        "paged path": traced(send(b"paged", b"persistent:true", receipt)),
    }


def listing(calls: list[Call]) -> Iterator[str]:
    """Numbered lines: how deep, which function, which module."""
    for number, call in enumerate(calls, 1):
        yield f"{number:3} {'  ' * call.depth}{call.function} ({call.module})\n"


def rendered(calls: list[Call]) -> str:
    """What the document has between the markers of a path."""
    modules = len({call.module for call in calls})
    return f"\n{len(calls)} calls in {modules} modules:\n\n```text\n{''.join(listing(calls))}```\n\n"


def sections(document: str) -> Iterator[tuple[str, str, str]]:
    """Name of each path, its text in the document, and what it should be."""
    for name, calls in paths().items():
        present = document.partition(MARKER.format(name))[2].partition(END)[0]
        yield name, present, rendered(calls)


def main() -> None:
    """Write the calls into the document."""
    document = DOCUMENT.read_text("utf-8")
    for name, present, expected in sections(document):
        marker = MARKER.format(name)
        document = document.replace(marker + present + END, marker + expected + END)
    DOCUMENT.write_text(document, "utf-8")


if __name__ == "__main__":
    main()
