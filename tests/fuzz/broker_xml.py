"""The XML settings: a configuration, the same each time, or faults with their lines."""

import re
from pathlib import Path

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.model import BrokerConfiguration

from .oracle import expect

LONGEST = 16_384
MODULES = ["stompring.settings"]

_SCHEMA = Path(__file__).parent.parent.parent / "stompring" / "settings" / "schema.xsd"
_NAMES = sorted(set(re.findall(r'name="([^"]+)"', _SCHEMA.read_text())))
TOKENS = [
    *(f"<{name}>".encode() for name in _NAMES),
    *(f"</{name}>".encode() for name in _NAMES),
    *(f' {name}="'.encode() for name in _NAMES),
    b"tcp://127.0.0.1:0?",
    b"http://[::1]:0",
    b"&#38;",
    b"&lt;",
    b"<![CDATA[",
    b"]]>",
    b"<!--",
    b"-->",
    b"<?x ?>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"&b;",
    b"xmlns='urn:activemq'",
    b"xi:include",
    b"${a}",
    b"-1",
    b"10MiB",
]

FILE = "broker.xml"
_FAULT = re.compile(rf"{FILE}:\d+: \S")
_FAULTS = 1_000_000


def check(data):
    """See the module."""
    first = parsed(data)
    if isinstance(first, BrokerConfiguration):
        expect(parsed(data) == first, "read twice it says two things")


def parsed(data):
    """The configuration, None where it was refused as the documents say."""
    try:
        return parse_broker_xml(data, FILE)
    except ConfigurationError as refusal:
        lines = str(refusal).split(f"\n{FILE}:")
        lines = [lines[0], *(f"{FILE}:{line}" for line in lines[1:])]
        for line in lines:
            expect(_FAULT.match(line) is not None, f"a fault without file and line: {line[:300]!r}")
        expect(len(str(refusal)) <= _FAULTS + 20 * len(data), f"faults of {len(str(refusal))} characters")
        return None
