"""A transport in memory that behaves as a TCP connection does where the protocol relies on it."""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection

from stompring.broker.broker import Broker
from stompring.policy.hooks import Policies
from stompring.server.protocol import Connections, StompFactory
from stompring.session.connect import Anonymous
from stompring.session.outbox import Outgoing
from stompring.settings.model import AddressSettingEntry, BrokerConfiguration, FullPolicy, StompAcceptor

from ..websocket_client import WebSocketClient


def read_pieces(data):
    """The frames of WebSocket in these bytes, which are all whole."""
    reader = WebSocketClient.__new__(WebSocketClient)
    reader.buffer = data
    found = []
    while (piece := reader.cut()) is not None:
        found.append(piece)
    assert reader.buffer == b""
    return found


class TcpTransport(StringTransportWithDisconnection):
    """Closes only when no producer is registered, and knows a slow socket."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.aborted = False
        self.half_closed = False

    def setTcpNoDelay(self, enabled):
        """Nothing to delay."""

    def setTcpKeepAlive(self, enabled):
        """Nothing to keep alive."""

    def loseConnection(self):
        assert self.producer is None, "Twisted waits for a producer before it closes"
        self.clock.callLater(0, self.hang_up)

    def loseWriteConnection(self):
        assert self.producer is None, "Twisted waits for a producer before it closes"
        self.half_closed = True

    def hang_up(self):
        """The client is gone."""
        if self.connected:
            super().loseConnection()

    def abortConnection(self):
        self.aborted = True
        self.hang_up()


class House:
    """A broker whose connections are in memory, and a clock that is set by hand."""

    def __init__(self):
        self.clock = Clock()
        self.clock.advance(1_000_000)
        entries = (
            AddressSettingEntry("full", {"max_size_messages": 1, "address_full_policy": FullPolicy.BLOCK}),
            AddressSettingEntry("#", {"auto_delete_queues": False}),
        )
        self.broker = Broker(BrokerConfiguration(address_settings=entries), self.clock, Policies())
        self.connections = Connections(1)

    def make_factory(self, **options):
        """What an acceptor makes protocols by."""
        acceptor = StompAcceptor("s", "127.0.0.1", 0, anycast_prefix=("/queue/",), **options)
        outgoing = Outgoing(self.broker.clock)
        return StompFactory(self.broker, acceptor, Anonymous(), self.connections, outgoing, self.clock)

    def join(self, factory):
        """A connection."""
        protocol = factory.buildProtocol(None)
        transport = TcpTransport(self.clock)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        return protocol, transport
