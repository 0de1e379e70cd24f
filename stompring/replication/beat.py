"""What a broker says of itself in the entries CLAIM, BEAT and RELEASE: a JSON object."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass

from stompring import __version__

from .contents import Summary


@dataclass(frozen=True, slots=True)
class Beat:
    """A broker as its last beat describes it.

    ``broker`` is its name among the brokers of the log, ``started`` when its process began (epoch ms), ``bytes`` the
    data of all entries up to this one, whoever wrote them. ``contents`` is what the log holds here; None: it is not
    known. In a RELEASE, ``reason`` is why, ``successor`` the standby that shall take over (empty: any), and
    ``failures`` how many brokers in a row, this one included, could not start.
    """

    broker: str
    host: str = ""
    pid: int = 0
    started: int = 0
    version: str = ""
    bytes: int = 0
    reason: str = ""
    successor: str = ""
    failures: int = 0
    contents: Summary | None = None


def this_process(broker: str) -> Beat:
    """The beat of this process, under its name among the brokers of the log."""
    return Beat(broker, socket.gethostname(), os.getpid(), int(time.time() * 1000), __version__)


def encode_beat(beat: Beat) -> bytes:
    """The data of an entry."""
    return json.dumps(
        {name: value for name, value in asdict(beat).items() if value not in ("", None)}
    ).encode()


def decode_beat(data: bytes | memoryview) -> Beat:
    """The beat in an entry's data; of a later version only what this one knows, nothing where it is damaged."""
    try:
        found = json.loads(bytes(data))
    except ValueError:
        found = None
    fields = found if isinstance(found, dict) else {}

    contents = fields.get("contents")

    def text(name: str) -> str:
        value = fields.get(name)
        return value if isinstance(value, str) else ""

    def number(name: str) -> int:
        value = fields.get(name)
        return value if isinstance(value, int) else 0

    def summary(found: dict[str, object]) -> Summary | None:
        values = [found.get(name) for name in ("serial", "control", "digest")]
        numbers = [value for value in values if isinstance(value, int)]
        return Summary(*numbers) if len(numbers) == len(values) else None

    return Beat(
        text("broker"),
        text("host"),
        number("pid"),
        number("started"),
        text("version"),
        number("bytes"),
        text("reason"),
        text("successor"),
        number("failures"),
        summary(contents) if isinstance(contents, dict) else None,
    )
