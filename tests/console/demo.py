"""A broker with everything that the console shows: clients, dead letters, schedules, policies, retention."""

import json
import time
from contextlib import ExitStack, contextmanager

from ..broker_document import anycast, broker_xml, multicast
from ..broker_process import BrokerProcess
from ..stomp_client import StompClient

SETTINGS = {
    "#": {
        "dead-letter-address": "DLQ",
        "expiry-address": "ExpiryQueue",
        "max-delivery-attempts": "2",
        "redelivery-delay": "0",
    },
    "prices.#": {
        "default-ring-size": "50",
        "address-policy": '<address-policy name="stamp"><property key="user-header" value="sent-by"/></address-policy>',
    },
}

ADDRESSES = (
    anycast("orders")
    + anycast("payments")
    + anycast("DLQ")
    + anycast("ExpiryQueue")
    + multicast("prices.eur", inside="", queue="prices.ring", attributes='ring-size="50"')
)


def document(secure=False, permissions=None):
    """Its broker.xml."""
    return broker_xml(
        settings=SETTINGS,
        addresses=ADDRESSES,
        core='<name>demo</name><broker-plugins><broker-plugin name="stamp"/></broker-plugins>'
        '<diverts><divert name="audit"><address>orders</address><forwarding-address>orders.audit</forwarding-address>'
        "</divert></diverts>"
        '<journal-retention-directory period="7" unit="DAYS">retention</journal-retention-directory>',
        acceptors='<acceptor name="websocket">'
        "ws://127.0.0.1:0/stomp?anycastPrefix=/queue/;multicastPrefix=/topic/</acceptor>",
        secure=secure,
        permissions=permissions,
    )


def fill(port, opened, **login):
    """Messages of every kind, and clients that stay connected until ``opened`` ends."""

    def client(**headers):
        one = StompClient(port)
        opened.callback(one.close)
        one.connect({**login, **{name.replace("_", "-"): value for name, value in headers.items()}})
        return one

    producer = client(client_id="shop")
    order = {
        "id": 12345678901234567890,
        "customer": "Zoë",
        "items": [{"sku": "A-1", "count": 2}],
        "paid": True,
    }
    for number in range(60):
        producer.put(
            "/queue/orders",
            json.dumps({**order, "number": number}, ensure_ascii=False),
            persistent="true",
            priority=str(number % 10),
            **{"content-type": "application/json", "region": "eu" if number % 3 else "us"},
        )
    producer.put("/queue/payments", *(f"payment {number}" for number in range(20)), persistent="true")
    binary = bytes(range(256)) * 4
    producer.put("/queue/payments", binary, **{"content-length": len(binary)})
    producer.put("/topic/prices.eur", *(f'{{"eur": {number}}}' for number in range(80)))
    for delay in (20, 45, 300, 1800, 7200, 86400):
        producer.put(
            "/queue/reminders",
            f"reminder in {delay} s",
            AMQ_SCHEDULED_DELAY=str(1000 * delay),
            persistent="true",
        )
    producer.put("/queue/reports", "nightly report", AMQ_SCHEDULED_CRON="0 3 * * *", persistent="true")
    for number in range(12):
        producer.put("/queue/invoices", f"invoice {number}: poison", persistent="true")
    poison = client(client_id="billing")
    poison.subscribe("/queue/invoices", ack="client-individual")
    for _ in range(24):
        poison.answer("NACK", poison.message())
    producer.put(
        "/queue/offers",
        *(f"offer {number}" for number in range(5)),
        expires=str(int(time.time() * 1000) + 50),
    )
    slow = client(client_id="warehouse")
    slow.subscribe("/queue/orders", ack="client-individual", prefetch_count="25", selector="region = 'eu'")
    for _ in range(25):
        slow.message()
    fast = client(client_id="ledger")
    fast.subscribe("/queue/payments", ack="auto", prefetch_count="1")
    board = client(client_id="board")
    board.subscribe("/topic/prices.eur", ack="auto", id="prices")


@contextmanager
def demo(directory):
    """The broker, filled."""
    config = directory / "broker.xml"
    config.write_text(document())
    with BrokerProcess(config) as broker, ExitStack() as opened:
        fill(broker.port, opened)
        yield broker
