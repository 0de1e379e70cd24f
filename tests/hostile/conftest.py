"""Fixtures of hostile clients."""

from contextlib import ExitStack, closing
from socket import SO_LINGER, SOL_SOCKET, create_connection
from struct import pack

import pytest

from ..broker_document import anycast, broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..stomp_client import frame_bytes
from .other_clients import OtherClients, Pair

#: What a client begins with.
CONNECT = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "localhost"})

#: One broker for all attacks that need no other: its limits are small enough to be reached.
HOSTILE = pytest.mark.broker(
    parameters="handshake-timeout=3;connectionTtlMin=500;subscriptionsAllowed=500;transactionsAllowed=200",
    settings={
        "vanish": {"max-delivery-attempts": -1},  # a lost connection counts as a failure
        "busy.#": {"max-size-bytes": "2M", "address-full-policy": "DROP"},
        "nacked.#": {"max-delivery-attempts": 5, "dead-letter-address": "dead"},
        "dead": {"max-size-messages": 200, "address-full-policy": "DROP"},
        "for.ever.#": {"max-delivery-attempts": -1, "redelivery-delay": 0},
    },
    addresses=anycast("dead"),
)


@pytest.fixture(scope="session")
def pairs():
    """The other_clients of each broker, by its process; they stay for all tests of it."""
    known = {}
    yield known
    for pair in known.values():
        pair.close()


@pytest.fixture(scope="session")
def control(tmp_path_factory):
    """A pair at a broker that nobody attacks."""
    config = tmp_path_factory.mktemp("control") / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as broker, closing(Pair(broker)) as pair:
        yield pair


@pytest.fixture
def other_clients(broker, pairs, control):
    """Other clients of the test's broker; they must have been served to the end."""
    pair = pairs.get(broker.pid)
    if pair is None:
        pair = pairs[broker.pid] = OtherClients(broker, control)
    yield pair
    assert pair.alive, "the pair has ended by itself"


@pytest.fixture
def plug(broker):
    """Opens sockets."""
    with ExitStack() as opened:

        def open_socket(port=None):
            one = create_connection(("127.0.0.1", port or broker.port), timeout=PATIENCE)
            one.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
            opened.callback(one.close)
            return one

        yield open_socket
