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

#: What any query takes, and what streams take besides. Spark hands them over in whatever case.
COMMON_OPTIONS = ("path", "retention", "table", "columns", "addresses", "since", "until", "copies")
STREAM_OPTIONS = (
    *("startingOffsets", "failOnDataLoss"),
    *("maxBytesPerTrigger", "maxFilesPerTrigger", "maxRowsPerTrigger"),
)
ALL_OPTIONS = (*COMMON_OPTIONS, *STREAM_OPTIONS)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Above the number of any message.
LAST_NUMBER = 2**63 - 1

T = TypeVar("T")


class OptionError(PipelineError, ValueError):
    """An option says something that cannot be. The text begins with the name of the option."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"option {option}: {text}")
        self.option, self.text = option, text

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.text)


class OptionReader:
    """Options as Spark gives them, whose names are in any case, with what is said of those that cannot be."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str], ignored: Sequence[str] = ()) -> None:
        """``known`` are names as they are documented, ``ignored`` those of Spark itself, in small letters."""
        self._given = {name.lower(): text for name, text in given.items()}
        names = {*map(str.lower, known), *ignored}
        for name in given:
            if name.lower() not in names:
                raise OptionError(name, f"unknown option; options are {', '.join(known)}")

    def given(self, name: str, default: T) -> str | T:
        """The text of an option, be it empty."""
        return self._given.get(name.lower(), default)

    def text(self, name: str) -> str | None:
        """None where it is not given, or empty."""
        return self.given(name, None) or None

    def required(self, name: str, what: str) -> str:
        """One that must be given."""
        if text := self.text(name):
            return text
        raise OptionError(name, f"is required: {what}")

    def flag(self, name: str, default: T) -> bool | T:
        """``true`` or ``false``."""
        text = self.text(name)
        if text is None:
            return default
        flag = {"true": True, "false": False}.get(text.strip().lower())
        if flag is None:
            raise OptionError(name, f"must be true or false, not {text!r}")
        return flag

    def number(self, name: str, default: T, least: int = 1, what: str = "of at least 1") -> int | T:
        """A whole number; ``what`` says in an error which one it must be."""
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
        """What a function makes of it that raises `ValueError`."""
        try:
            return parse(text)
        except ValueError as reason:
            raise OptionError(name, str(reason)) from None


class TableScan(NamedTuple):
    """Which rows and columns. ``since`` <= the row's time < ``until``, epoch ms; None asks for nothing."""

    table: str = "messages"
    columns: tuple[str, ...] = tuple(TABLES["messages"])
    addresses: tuple[str, ...] = ()  # patterns, none for all
    since: int | None = None
    until: int | None = None
    copies: bool | None = (
        None  # messages that the broker has written once more; None: nothing was said of them
    )
    below: int | None = None  # of those the ones with lower numbers, and nothing else

    @property
    def ddl(self) -> str:
        """Its schema, as Spark takes it."""
        return ", ".join(f"`{name}` {TABLES[self.table][name]}" for name in self.columns)

    def matches(self, address: str) -> bool:
        """Whether rows of an address are wanted."""
        return not self.addresses or any(Pattern(each).matches(address) for each in self.addresses)

    def within(self, least: int, greatest: int) -> bool:
        """Whether a time that is wanted may be between these two, both included."""
        return (self.since is None or greatest >= self.since) and (self.until is None or least < self.until)


class Options(NamedTuple):
    """All options, understood; of a stream those from ``latest`` on."""

    root: str
    wanted: TableScan
    retention: str | None  # where it is not below ``root``
    latest: bool  # begin with what comes, not with what is there
    fail: bool  # where files were deleted before they were read
    max_bytes: int | None  # None: no limit
    max_files: int | None
    max_rows: int | None

    @classmethod
    def of(cls, given: Mapping[str, str], batch: bool = False) -> Options:
        """From what was given to Spark; ``batch``: to ``spark.read``, which takes no options of streams.

        Opens nothing. Raises `OptionError`.
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
    """What stands between commas, but for blanks."""
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
    """Epoch ms, from a number of these or from ISO 8601; without an offset it is UTC."""
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
    """Since the epoch; a time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
