"""The options of ``spark.read.format("stompring")`` and ``spark.readStream``, parsed and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from stompring.errors import PipelineError
from stompring.settings.match import Pattern
from stompring.settings.value_types import whole_number

from .arrays import TABLES
from .storage import resolve_location

#: Names of the options of all queries, and of the options of streams only. The case of names is ignored, because Spark
#: may change it.
COMMON_OPTIONS = ("path", "retention", "table", "columns", "addresses", "since", "until", "copies")
STREAM_OPTIONS = (
    *("startingOffsets", "failOnDataLoss"),
    *("maxBytesPerTrigger", "maxFilesPerTrigger", "maxRowsPerTrigger"),
)
ALL_OPTIONS = (*COMMON_OPTIONS, *STREAM_OPTIONS)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Greater than the number of any message.
LAST_NUMBER = 2**63 - 1

T = TypeVar("T")


class OptionError(PipelineError, ValueError):
    """An option is unknown, missing or invalid. The text begins with the name of the option."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"option {option}: {text}")
        self.option, self.text = option, text

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.text)


class OptionReader:
    """Parser of Spark's options. Option names may have upper and lower case letters. Methods raise `OptionError` for
    invalid values.
    """

    def __init__(self, given: Mapping[str, str], known: Sequence[str], ignored: Sequence[str] = ()) -> None:
        """``known`` are the documented names, ``ignored`` the names of Spark's own options in lower case.

        Raises `OptionError` for other names.
        """
        self._given = {name.lower(): text for name, text in given.items()}
        names = {*map(str.lower, known), *ignored}
        for name in given:
            if name.lower() not in names:
                raise OptionError(name, f"unknown option; options are {', '.join(known)}")

    def given(self, name: str, default: T) -> str | T:
        """Return the text of an option, which may be empty; ``default`` if it is missing."""
        return self._given.get(name.lower(), default)

    def text(self, name: str) -> str | None:
        """Return the text of an option, None if it is missing or empty."""
        return self.given(name, None) or None

    def required(self, name: str, what: str) -> str:
        """Return the text of a required option. ``what`` describes it in the error."""
        if text := self.text(name):
            return text
        raise OptionError(name, f"is required: {what}")

    def flag(self, name: str, default: T) -> bool | T:
        """Parse an option with the value ``true`` or ``false``. Returns ``default`` if it is missing or empty."""
        text = self.text(name)
        if text is None:
            return default
        flag = {"true": True, "false": False}.get(text.strip().lower())
        if flag is None:
            raise OptionError(name, f"must be true or false, not {text!r}")
        return flag

    def number(self, name: str, default: T, least: int = 1, what: str = "of at least 1") -> int | T:
        """Parse a whole number of at least ``least``. ``what`` describes the range in the error."""
        text = self.text(name)
        if text is None:
            return default
        try:
            number = whole_number(text.strip())
        except ValueError:
            number = least - 1
        if number < least:
            raise OptionError(name, f"must be a whole number {what}, not {text!r}")
        return number

    def parsed(self, name: str, text: str, parse: Callable[[str], T]) -> T:
        """Return ``parse(text)``. Converts a `ValueError` to an `OptionError` with the name of the option."""
        try:
            return parse(text)
        except ValueError as reason:
            raise OptionError(name, str(reason)) from None


class TableScan(NamedTuple):
    """The rows and columns of a query. ``since`` <= the row's time < ``until``, in epoch ms; None: no limit."""

    table: str = "messages"
    columns: tuple[str, ...] = tuple(TABLES["messages"])
    addresses: tuple[str, ...] = ()  # patterns; empty: all addresses
    since: int | None = None
    until: int | None = None
    copies: bool | None = None  # whether to read the copies made by compaction; None: the option is not set
    below: int | None = None  # read only copies, and only of messages with numbers below this one

    @property
    def ddl(self) -> str:
        """The schema in Spark's DDL."""
        return ", ".join(f"`{name}` {TABLES[self.table][name]}" for name in self.columns)

    def matches(self, address: str) -> bool:
        """Return whether rows of an address are wanted."""
        return not self.addresses or any(Pattern(each).matches(address) for each in self.addresses)

    def within(self, least: int, greatest: int) -> bool:
        """Return whether times from ``least`` to ``greatest`` (both included) overlap the wanted times."""
        return (self.since is None or greatest >= self.since) and (self.until is None or least < self.until)


class Options(NamedTuple):
    """The parsed options. Only streams use ``latest``, ``fail`` and the three limits."""

    root: str
    wanted: TableScan
    retention: str | None  # directory of retained files; None: below ``root``
    latest: bool  # whether to start at the end of the existing files
    fail: bool  # whether to fail the query if files were deleted before they were read
    max_bytes: int | None  # limits of a batch; None: no limit
    max_files: int | None
    max_rows: int | None

    @classmethod
    def of(cls, given: Mapping[str, str], batch: bool = False) -> Options:
        """Parse the options of Spark without opening files. ``batch``: refuse options of streams, for ``spark.read``.

        Raises `OptionError`.
        """
        options = OptionReader(given, ALL_OPTIONS)
        for name in STREAM_OPTIONS if batch else ():
            if options.given(name, None) is not None:
                raise OptionError(name, "is an option of spark.readStream only")
        table = options.given("table", "messages").strip().lower()
        if table not in TABLES:
            raise OptionError("table", f"must be one of {', '.join(TABLES)}, not {table!r}")
        since, until = (read_time(name, options.given(name, None)) for name in ("since", "until"))
        if since is not None and until is not None and since >= until:
            raise OptionError("until", "must be later than since")
        addresses = options.given("addresses", None)
        patterns = tuple(items(addresses or ""))
        if addresses is not None and not patterns:
            raise OptionError("addresses", "must name at least one address")
        columns = _columns(table, options.given("columns", None))
        root = options.required("path", "the data directory of a broker")
        retention = options.text("retention")
        if retention is not None:
            retention = options.parsed("retention", retention, resolve_location)
        copies = options.flag("copies", None)
        if copies is not None and table != "messages":
            raise OptionError("copies", f"applies to table messages, not to {table}")
        wanted = TableScan(table, columns, patterns, since, until, copies)
        root = options.parsed("path", root, resolve_location)
        starting = options.given("startingOffsets", "earliest").strip().lower()
        if starting not in ("earliest", "latest"):
            raise OptionError("startingOffsets", f"must be earliest or latest, not {starting!r}")
        most = (
            options.number(f"max{what}PerTrigger", None, what="greater than 0")
            for what in ("Bytes", "Files", "Rows")
        )
        fail = options.flag("failOnDataLoss", True)
        return cls(root, wanted, retention, starting == "latest", fail, *most)


def items(text: str) -> list[str]:
    """Split a text at commas, without surrounding blanks and empty items."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _columns(table: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(TABLES[table])
    names = tuple(items(text))
    if not names:
        raise OptionError("columns", "must name at least one column")
    for index, name in enumerate(names):
        if name not in TABLES[table]:
            raise OptionError(
                "columns", f"{table} has no column {name!r}; columns are {', '.join(TABLES[table])}"
            )
        if name in names[:index]:
            raise OptionError("columns", f"{name} is listed twice")
    return names


def read_time(name: str, text: str | None) -> int | None:
    """Parse epoch ms, or a time in ISO 8601 (UTC if it has no offset), and return epoch ms. Raises `OptionError`."""
    if text is None:
        return None
    text = text.strip()
    with suppress(ValueError):
        return whole_number(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            name, f"must be a time as 2026-07-01T12:00:00Z, or milliseconds since the epoch, not {text!r}"
        ) from None
    return microseconds(time) // 1000


def microseconds(time: datetime) -> int:
    """Return microseconds since the epoch. A time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
