"""What ``format("stomp")`` is told: the options of writing, and those of reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from stompring.pipeline.options import OptionError
from stompring.settings.value_types import byte_size

from .endpoint import Endpoint, parse_address

T = TypeVar("T")

#: Of reading and writing.
BROKER_OPTIONS = ("url", "user", "password", "passwordFile", "virtualHost", "tls", "caFile", "timeout")

SINK_OPTIONS = (
    *BROKER_OPTIONS,
    "destination",
    "transaction",
    "receiptRows",
    "persistent",
    "jobId",
    "dedupHeader",
)

SOURCE_OPTIONS = (
    *BROKER_OPTIONS,
    "destination",
    "spool",
    "selector",
    "subscribeHeaders",
    "clientId",
    "prefetch",
    "heartBeat",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "spoolLimit",
    "idle",
    "drain",
)

#: Spark gives these of its own to a sink too.
SPARK_OPTIONS = ("checkpointlocation", "queryname")

#: That of Artemis, which stompring has too.
DEDUP_HEADER = "_AMQ_DUPL_ID"

#: What we write into SUBSCRIBE ourselves.
_RESERVED_HEADERS = frozenset({"id", "destination", "ack", "receipt", "selector", "prefetch-count"})


class OptionReader:
    """Options as Spark gives them, whose names are in any case, with what is said of those that cannot be."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        self._given = {name.lower(): text for name, text in given.items()}
        names = {name.lower() for name in known}
        for name in self._given:
            if name not in names and name not in SPARK_OPTIONS:
                raise OptionError(name, f"unknown option; options are {', '.join(known)}")

    def text(self, name: str) -> str | None:
        """None where it is not given, or empty."""
        return self._given.get(name.lower()) or None

    def given(self, name: str) -> bool:
        """Whether it is given, be it empty."""
        return name.lower() in self._given

    def required(self, name: str, what: str) -> str:
        """One that must be given."""
        text = self.text(name)
        if text is None:
            raise OptionError(name, f"is required: {what}")
        return text

    def flag(self, name: str, default: bool) -> bool:
        """``true`` or ``false``."""
        text = (self.text(name) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(name, f"must be true or false, not {text!r}")
        return text == "true"

    def number(self, name: str, default: int, least: int = 1) -> int:
        """A whole number."""
        text = (self.text(name) or str(default)).strip()
        if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) < least:
            raise OptionError(name, f"must be a whole number of at least {least}, not {text!r}")
        return int(text)

    def size(self, name: str, default: str) -> int:
        """Bytes, as ``10M``."""
        text = self.text(name) or default
        found = self.parsed(name, text, byte_size)
        if found < 1:
            raise OptionError(name, f"must be at least 1 byte, not {text!r}")
        return found

    def parsed(self, name: str, text: str, parse: Callable[[str], T]) -> T:
        """What a function makes of it that raises `ValueError`."""
        try:
            return parse(text)
        except ValueError as reason:
            raise OptionError(name, str(reason)) from None

    def path(self, name: str) -> Path | None:
        """A local file or directory."""
        text = self.text(name)
        if text is None:
            return None
        parts = urlsplit(text)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return Path(unquote(parts.path))
        if "://" in text:
            raise OptionError(name, f"must be a local path or a file: URL, not {text!r}")
        return Path(text).absolute()

    def endpoint(self, heart_beat: int = 0, client_id: str | None = None) -> Endpoint:
        """The broker that the options name."""
        host, port, secure = self.parsed("url", self.required("url", "HOST:PORT of a broker"), parse_address)
        if self.text("password") and self.text("passwordFile"):
            raise OptionError("passwordFile", "cannot be combined with password")
        tls = self.flag("tls", secure)
        if secure and not tls:
            raise OptionError("tls", "is false, but the url has an ssl scheme")
        if self.text("caFile") and not tls:
            raise OptionError("caFile", "requires tls")
        return Endpoint(
            host,
            port,
            user=self.text("user"),
            password=self.text("password"),
            password_file=self.path("passwordFile"),
            virtual_host=self.text("virtualHost"),
            client_id=client_id,
            timeout=self.number("timeout", 30_000) / 1000,
            heart_beat=heart_beat,
            tls=tls,
            ca_file=self.path("caFile"),
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How rows are sent. ``dedup_header`` is None where none is wanted, ``destination`` where it is a column."""

    endpoint: Endpoint
    destination: str | None = None
    transaction: bool = True
    receipt_rows: int = 1000
    persistent: bool = True
    job_id: str | None = None
    dedup_header: str | None = DEDUP_HEADER

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """From what was given to Spark. Opens nothing. Raises `OptionError`."""
        given = OptionReader(options, SINK_OPTIONS)
        header = given.text("dedupHeader") if given.given("dedupHeader") else DEDUP_HEADER
        if header is None and given.text("jobId"):
            raise OptionError("jobId", "requires a dedupHeader")
        return cls(
            given.endpoint(),
            given.text("destination"),
            given.flag("transaction", True),
            given.number("receiptRows", 1000),
            given.flag("persistent", True),
            given.text("jobId"),
            header,
        )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is received, and how much at a time. ``idle`` and ``drain`` are seconds, ``spool_limit`` bytes."""

    endpoint: Endpoint
    destination: str
    spool: Path
    headers: tuple[tuple[str, str], ...] = ()  # of SUBSCRIBE
    max_rows: int | None = None
    max_bytes: int | None = None
    spool_limit: int = 1 << 30
    idle: float = 1.0
    drain: float = 60.0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """From what was given to Spark. Opens nothing. Raises `OptionError`."""
        given = OptionReader(options, SOURCE_OPTIONS)
        endpoint = given.endpoint(given.number("heartBeat", 10_000, 0), given.text("clientId"))
        destination = given.required("destination", "what to receive")
        given.required("spool", "a directory of this query alone")
        spool = given.path("spool")
        assert spool is not None
        prefetch = given.number("prefetch", 10_000)
        headers = [("prefetch-count", str(prefetch))]
        selector = given.text("selector")
        if selector is not None:
            headers.append(("selector", selector))
        more = given.text("subscribeHeaders")
        headers += [] if more is None else given.parsed("subscribeHeaders", more, _headers)
        rows, size = given.text("maxRowsPerTrigger"), given.text("maxBytesPerTrigger")
        return cls(
            endpoint,
            destination,
            spool,
            tuple(headers),
            None if rows is None else given.number("maxRowsPerTrigger", 1),
            None if size is None else given.size("maxBytesPerTrigger", "1"),
            given.size("spoolLimit", "1G"),
            given.number("idle", 1000) / 1000,
            given.number("drain", 60_000) / 1000,
        )


def _headers(text: str) -> list[tuple[str, str]]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = part.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"must be NAME=VALUE, separated by commas, not {part!r}")
        if name.strip() in _RESERVED_HEADERS:
            raise ValueError(f"{name.strip()} is set by the source")
        found.append((name.strip(), value.strip()))
    return found
