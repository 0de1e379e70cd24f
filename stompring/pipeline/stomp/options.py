"""The options of ``format("stomp")``, for writing and reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stompring.pipeline.options import OptionError, OptionReader, items
from stompring.pipeline.storage import local_path
from stompring.settings.value_types import byte_size

from .connection import Endpoint, parse_address

#: Names of the options that both reading and writing have.
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

#: Spark's own options, which it passes to formats too.
SPARK_OPTIONS = ("checkpointlocation", "queryname")

#: The header of Artemis and stompring for duplicate detection.
DEDUP_HEADER = "_AMQ_DUPL_ID"

#: Headers of SUBSCRIBE that the source itself sets: option ``subscribeHeaders`` must not have them.
_RESERVED_HEADERS = frozenset({"id", "destination", "ack", "receipt", "selector", "prefetch-count"})


def _size(given: OptionReader, name: str) -> int | None:
    """Parse a size in bytes, such as ``10M``."""
    text = given.text(name)
    if text is None:
        return None
    found = given.parsed(name, text, byte_size)
    if found < 1:
        raise OptionError(name, f"must be at least 1 byte, not {text!r}")
    return found


def _path(given: OptionReader, name: str) -> Path | None:
    """Parse the path of a local file or directory."""
    text = given.text(name)
    if text is None:
        return None
    path = local_path(text)
    if path is None:
        raise OptionError(name, f"must be a local path or a file: URL, not {text!r}")
    return Path(path)


def _endpoint(given: OptionReader, heart_beat: int = 0, client_id: str | None = None) -> Endpoint:
    host, port, secure = given.parsed("url", given.required("url", "HOST:PORT of a broker"), parse_address)
    if given.text("password") and given.text("passwordFile"):
        raise OptionError("passwordFile", "cannot be combined with password")
    tls = given.flag("tls", secure)
    if secure and not tls:
        raise OptionError("tls", "is false, but the url has an ssl scheme")
    if given.text("caFile") and not tls:
        raise OptionError("caFile", "requires tls")
    return Endpoint(
        host,
        port,
        user=given.text("user"),
        password=given.text("password"),
        password_file=_path(given, "passwordFile"),
        virtual_host=given.text("virtualHost"),
        client_id=client_id,
        timeout=given.number("timeout", 30_000) / 1000,
        heart_beat=heart_beat,
        tls=tls,
        ca_file=_path(given, "caFile"),
    )


class SinkOptions(NamedTuple):
    """The parsed options of writing. ``dedup_header``: None if rows get no duplicate ids. ``destination``: None if each
    row must have a destination."""

    endpoint: Endpoint
    destination: str | None
    transaction: bool = True
    receipt_rows: int = 1000
    persistent: bool = True
    job_id: str | None = None
    dedup_header: str | None = DEDUP_HEADER

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options of Spark, without connecting. Raises `OptionError`."""
        given = OptionReader(options, SINK_OPTIONS, SPARK_OPTIONS)
        header = given.given("dedupHeader", DEDUP_HEADER) or None
        if header is None and given.text("jobId"):
            raise OptionError("jobId", "requires a dedupHeader")
        return cls(
            _endpoint(given),
            given.text("destination"),
            given.flag("transaction", True),
            given.number("receiptRows", 1000),
            given.flag("persistent", True),
            given.text("jobId"),
            header,
        )


class SourceOptions(NamedTuple):
    """The parsed options of reading. ``idle`` and ``drain`` are in seconds, ``spool_limit`` is in bytes."""

    endpoint: Endpoint
    destination: str
    spool: Path
    headers: tuple[tuple[str, str], ...]  # headers of SUBSCRIBE
    max_rows: int | None
    max_bytes: int | None
    spool_limit: int
    idle: float
    drain: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options of Spark, without connecting. Raises `OptionError`."""
        given = OptionReader(options, SOURCE_OPTIONS, SPARK_OPTIONS)
        heart_beat = given.number("heartBeat", 10_000, 0, "of at least 0")
        endpoint = _endpoint(given, heart_beat, given.text("clientId"))
        destination = given.required("destination", "what to receive")
        given.required("spool", "a directory of this query alone")
        spool = _path(given, "spool")
        assert spool is not None
        headers = [("prefetch-count", str(given.number("prefetch", 10_000)))]
        if selector := given.text("selector"):
            headers.append(("selector", selector))
        headers += given.parsed("subscribeHeaders", given.text("subscribeHeaders") or "", _headers)
        return cls(
            endpoint,
            destination,
            spool,
            tuple(headers),
            given.number("maxRowsPerTrigger", None),
            _size(given, "maxBytesPerTrigger"),
            _size(given, "spoolLimit") or 1 << 30,
            given.number("idle", 1000) / 1000,
            given.number("drain", 60_000) / 1000,
        )


def _headers(text: str) -> list[tuple[str, str]]:
    found = []
    for part in items(text):
        name, sign, value = map(str.strip, part.partition("="))
        if not sign or not name:
            raise ValueError(f"must be NAME=VALUE, separated by commas, not {part!r}")
        if name in _RESERVED_HEADERS:
            raise ValueError(f"{name} is set by the source")
        found.append((name, value))
    return found
