"""A broker with a retroactive address is killed while messages are sent: the last ones are kept, without a gap."""

import random
import threading
import time

import pytest

from ..broker_document import broker_xml
from ..stomp_client import StompClient
from .killable_broker import KillableBroker

KILLS = 4
KEPT = 20
SETTINGS = {
    "memory": {"retroactive-message-count": KEPT},
    "paged": {"retroactive-message-count": KEPT, "max-size-messages": 5, "page-size-bytes": "4K"},
}


class Sender(threading.Thread):
    """Sends the next numbers with receipts until the broker is gone."""

    def __init__(self, port, address, first):
        super().__init__(daemon=True)
        self.sent = self.receipted = first
        self.address = address
        self._port = port

    def run(self):
        try:
            client = StompClient(self._port)
            client.connect()
            while True:
                self.sent += 1
                client.put(f"/topic/{self.address}", str(self.sent), persistent="true")
                self.receipted = self.sent
        except (OSError, AssertionError):
            pass  # it is gone


def kept(port, address):
    """What a new subscriber gets."""
    client = StompClient(port)
    client.connect()
    client.subscribe(f"/topic/{address}", ack="auto")
    client.waiting()
    client.close()
    return [int(frame.body) for frame in client.inbox]


@pytest.mark.timeout(300)
def test_the_last_messages_are_kept_without_a_gap(tmp_path):
    config = tmp_path / "broker.xml"
    small = "<journal-file-size>16K</journal-file-size>"
    config.write_text(broker_xml(settings=SETTINGS, core=small))
    chance = random.Random(1)
    receipted = dict.fromkeys(SETTINGS, 0)
    last = dict.fromkeys(SETTINGS, 0)
    for kill in range(KILLS + 1):
        with KillableBroker(config) as broker:
            for address in SETTINGS:
                numbers = kept(broker.port, address)
                end = numbers[-1] if numbers else 0
                assert receipted[address] <= end <= last[address], (kill, address)
                assert numbers == list(range(max(1, end - KEPT + 1), end + 1)), (kill, address)
                last[address] = receipted[address] = end
            if kill == KILLS:
                break
            subscriber = StompClient(broker.port)  # so that one address pages
            subscriber.connect({"client-id": "c"})
            subscriber.subscribe("/topic/paged", durable_subscription_name="d")
            senders = [Sender(broker.port, address, last[address]) for address in SETTINGS]
            for sender in senders:
                sender.start()
            goal = chance.randrange(KEPT // 2, 4 * KEPT)
            while any(sender.receipted < last[sender.address] + goal for sender in senders):
                time.sleep(0.002)
            broker.kill()
            for sender in senders:
                sender.join(30)
                receipted[sender.address], last[sender.address] = sender.receipted, sender.sent
            subscriber.close()
