"""Rings that broker.xml and management describe: attributes, policies, reload, values that cannot be."""

import pytest

from ..broker_document import anycast
from .steps import leave

pytestmark = pytest.mark.in_memory


READ = 'ring-size="1" non-destructive="true"'


@pytest.mark.broker(
    addresses=anycast("latest", READ)
    + anycast("three", 'ring-size="3"')
    + anycast("moved", 'ring-size="2"')
    + anycast("overflow"),
    settings={"moved": {"ring-policy": "DEAD_LETTER", "dead-letter-address": "overflow"}},
)
class TestConfiguredRings:
    """Rings that are there from the start."""

    def test_rq_7_a_non_destructive_ring_shows_the_newest(self, client, management):
        client.put("latest", "0")
        for n in range(1, 20):
            client.put("latest", str(n))
            client.subscribe("latest")
            client.answer("ACK", client.message(str(n)))
            client.nothing()
            leave(client)
            management.expect("latest", messageCount=1, messagesReplaced=n, deliveringCount=0)

    def test_the_loser_can_be_moved(self, client, management):
        client.put("moved", *"1234", mark="kept")
        management.expect("moved", messageCount=2, messagesReplaced=2, messagesKilled=0)
        client.subscribe("overflow", ack="auto")
        for body in "12":
            message = client.message(body)
            assert message["_AMQ_ORIG_ADDRESS"] == message["_AMQ_ORIG_QUEUE"] == "moved"
            assert message["mark"] == "kept"
