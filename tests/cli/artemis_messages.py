"""Messages for an Artemis broker, and what a client of stompring must get of them after the move.

`fill` sends them, over STOMP and with Artemis's own producer. ``tests/cli/artemis-2.44-export.xml`` is what
``artemis data exp`` of Artemis 2.44.0 made of them; to make it anew, run this module with the directory of the
distribution.
"""

import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..artemis_instance import ArtemisInstance

EXPORT = Path(__file__).with_name("artemis-2.44-export.xml")

#: Bodies from here on are large messages, which the export cuts into pieces of 1000 bytes.
LARGE = 2000

PARAMETERS = f"stompMinLargeMessageSize={LARGE}"
SETTINGS = (
    '<address-setting match="pages"><max-size-messages>2</max-size-messages>'
    "<address-full-policy>PAGE</address-full-policy></address-setting>"
)

#: In the year 2100.
LATE = 4102444800000

QUEUE = {"destination-type": "ANYCAST", "persistent": "true"}
TOPIC = {"destination-type": "MULTICAST", "persistent": "true"}
PROPERTIES = (
    '[{"type":"string","key":"s","value":"a<&>b"},{"type":"boolean","key":"b","value":"true"},'
    '{"type":"byte","key":"y","value":"7"},{"type":"short","key":"h","value":"300"},'
    '{"type":"int","key":"i","value":"70000"},{"type":"long","key":"l","value":"5000000000"},'
    '{"type":"float","key":"f","value":"1.5"},{"type":"double","key":"d","value":"2.25e10"}]'
)


@dataclass(frozen=True)
class Sent:
    """A message as it was sent, and how it arrives after the move: ``changed`` headers, None for one that is gone."""

    queue: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str | None] = field(default_factory=dict)
    length: bool = True  # whether the SEND has a content-length, which makes it a bytes message for Artemis

    @property
    def arrives(self):
        """Headers of the MESSAGE."""
        return {**self.headers, **self.changed}


ODD = {
    "quotes": "<a>&\"b\"'c'",
    "lines": "one\ntwo",
    "return": "one\rtwo",
    "tab": "one\ttwo",
    "control": "\x01\x1f",
}
STOMP = [
    Sent("orders", b"bytes", {"content-type": "text/plain"}),
    Sent("orders", bytes(range(256)), {"content-type": "application/octet-stream"}),
    Sent("orders", "text – ünïcode ✓ 😀".encode(), {"colour": "réd", "size": "3"}, length=False),
    Sent("orders", b"", {"empty": ""}, length=False),
    Sent(
        "orders", b"odd", {**ODD, "colon": "a:b\\c", "blanks": "  x  ", "null": "null", "emoji": "😀 \ufffe"}
    ),
    Sent("orders", b"first", {"priority": "9"}, length=False),
    Sent("orders", b"last", {"priority": "0"}, length=False),
    Sent("orders", b"expires", {"expires": str(LATE)}, length=False),
    Sent("orders", b"once", {"_AMQ_DUPL_ID": "id-1"}, length=False),
    Sent("orders", b"grouped", {"JMSXGroupID": "g", "JMSXGroupSeq": "-1"}, length=False),
    Sent("orders", b"key", {"_AMQ_LVQ_NAME": "k"}, length=False),
    Sent("orders", b"request", {"reply-to": "answers", "correlation-id": "c-1", "type": "t"}, length=False),
    Sent("large", b"0123456789" * 333, {"kind": "bytes"}),
    Sent("large", "0123456789–".encode() * 200, {"kind": "text"}, length=False),
    *(Sent("pages", b"page %d" % number, length=False) for number in range(5)),
]

#: By a delay, and at a time.
SCHEDULED = [
    Sent("later", b"at a time", {"AMQ_SCHEDULED_TIME": str(LATE)}, length=False),
    Sent("later", b"after ten years", {"AMQ_SCHEDULED_DELAY": str(315_360_000_000)}, length=False),
]

#: What Artemis's producer sends: ``queue``, arguments, parameters of the URL, and body.
PRODUCED = [
    ("core.text", ("--message", "over core", "--properties", PROPERTIES, "--group", "g"), "", b"over core"),
    ("core.bytes", ("--message-size", "30"), "", b"." * 30),
    ("core.large", ("--message-size", "3000"), "?minLargeMessageSize=2000", b"." * 3000),
    (
        "core.compressed",
        ("--message", "0123456789" * 700),
        "?minLargeMessageSize=2000&compressLargeMessage=true",
        b"0123456789" * 700,
    ),
    ("core.object", ("--object-size", "20"), "", None),
]


def fill(artemis, *, all_of_it=True):
    """Send it; not all of it leaves out what takes long: all but one run of Artemis's producer, and an expiry."""
    client = artemis.client("sender")
    for sent in [*STOMP, *SCHEDULED]:
        headers = {"destination": sent.queue, **QUEUE, **sent.headers}
        if sent.length:
            headers["content-length"] = str(len(sent.body))
        client.ask("SEND", headers, sent.body)
    client.put("pages", "not durable", **{"destination-type": "ANYCAST"})
    _topic(artemis)
    for queue, arguments, parameters, _ in PRODUCED if all_of_it else PRODUCED[:1]:
        artemis.command(
            "producer", "--destination", queue, "--message-count", "1", *arguments, parameters=parameters
        )
    if all_of_it:
        client.put("soon", "expired", **QUEUE, expires=int(time.time() * 1000) + 100)
        time.sleep(1)
        reader = artemis.client()
        reader.subscribe("soon", **{"subscription-type": "ANYCAST"})  # which finds it expired
        while not _browse(artemis, "ExpiryQueue"):
            time.sleep(1)


def _browse(artemis, queue):
    reader = artemis.client()
    reader.subscribe(queue, **{"subscription-type": "ANYCAST"})
    try:
        reader.frame(0.5)
    except TimeoutError:
        return False
    finally:
        reader.socket.close()
        time.sleep(0.5)
    return True


def _topic(artemis):
    """Two durable subscriptions, of which one has a selector and one has acknowledged the first message."""
    subscriptions = [
        ("all", {}),
        ("red", {"selector": "colour = 'red'"}),
        ("others", {"no-local": "true", "selector": "colour = 'red'"}),
    ]
    for name, more in subscriptions:
        client = artemis.client("app")
        client.subscribe("news.eu", durable_subscription_name=name, subscription_type="MULTICAST", **more)
        client.send("DISCONNECT")
        client.closed()
    wild = artemis.client("app")
    wild.subscribe("news.#", durable_subscription_name="wild", subscription_type="MULTICAST")
    sender = artemis.client("sender")
    for number, colour in enumerate(("red", "blue", "red")):
        sender.put("news.eu", f"news {number}", **TOPIC, colour=colour)
    sender.put("news.us", "other news", **TOPIC)
    client = artemis.client("app")
    client.subscribe("news.eu", durable_subscription_name="all", subscription_type="MULTICAST")
    client.answer("ACK", client.message("news 0"))
    for each in (client, wild):
        each.ask("DISCONNECT")
        each.socket.close()


#: Bodies in the queues of the durable subscriptions.
NEWS = {
    "app.all": [b"news 1", b"news 2"],
    "app.red": [b"news 0", b"news 2"],
    "app.others": [b"news 0", b"news 2"],
    "app.wild": [b"news 0", b"news 1", b"news 2", b"other news"],
}


def make_export(distribution, root, file, *, all_of_it=True):
    """Run a broker below ``root`` and export it to ``file``."""
    artemis = ArtemisInstance(distribution, root / "artemis", PARAMETERS, SETTINGS)
    with artemis:
        fill(artemis, all_of_it=all_of_it)
    artemis.export(file)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        make_export(Path(sys.argv[1]), Path(directory), EXPORT)
