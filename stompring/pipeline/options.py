"""The options of ``spark.read.format("stompring")`` and ``spark.readStream``, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from stompring.settings.match import Pattern
from stompring.settings.value_types import whole_number

from .arrays import TABLES, ddl
from .storage import resolve_location

#: What any query takes, and what streams take besides. Spark hands them over in whatever case.
COMMON_OPTIONS = ("path", "retention", "table", "columns", "addresses", "since", "until", "copies")
STREAM_OPTIONS = (
    *("startingOffsets", "failOnDataLoss"),
    *("maxBytesPerTrigger", "maxFilesPerTrigger", "maxRowsPerTrigger"),
)
ALL_OPTIONS = (*COMMON_OPTIONS, *STREAM_OPTIONS)

_NAMES = {name.lower(): name for name in ALL_OPTIONS}
_BOOLEANS = {"true": True, "false": False}


class OptionError(ValueError):
    """An option says something that cannot be. The text begins with the name of the option."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"option {option}: {text}")
        self.option, self.text = option, text

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.text)


@dataclass(frozen=True, slots=True)
class TableScan:
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
        return ddl(self.table, self.columns)

    def matches(self, address: str) -> bool:
        """Whether rows of an address are wanted."""
        return not self.addresses or any(Pattern(each).matches(address) for each in self.addresses)

    def within(self, least: int, greatest: int) -> bool:
        """Whether a time that is wanted may be between these two, both included."""
        return (self.since is None or greatest >= self.since) and (self.until is None or least < self.until)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What is asked of a stream. None: no limit."""

    latest: bool = False  # begin with what comes, not with what is there
    fail: bool = True  # where files were deleted before they were read
    bytes: int | None = None
    files: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """All options, understood."""

    root: str
    wanted: TableScan
    retention: str | None = None  # where it is not below ``root``
    streaming: StreamOptions = StreamOptions()

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """From what was given to Spark. Opens nothing. Raises `OptionError`."""
        options = _by_documented_name(given)
        table = options.get("table", "messages").strip().lower()
        if table not in TABLES:
            raise OptionError("table", f"must be one of {', '.join(TABLES)}, not {table!r}")
        since, until = (read_time(name, options.get(name)) for name in ("since", "until"))
        if since is not None and until is not None and since >= until:
            raise OptionError("until", "must be later than since")
        addresses = tuple(_items(options.get("addresses", "")))
        if "addresses" in options and not addresses:
            raise OptionError("addresses", "must name at least one address")
        columns = _columns(table, options.get("columns"))
        if not options.get("path"):
            raise OptionError("path", "is required: the data directory of a broker")
        retention = _directory("retention", options["retention"]) if options.get("retention") else None
        copies = _boolean(options, "copies")
        if copies is not None and table != "messages":
            raise OptionError("copies", f"applies to table messages, not to {table}")
        wanted = TableScan(table, columns, addresses, since, until, copies)
        return cls(_directory("path", options["path"]), wanted, retention, _streaming(options))

    @classmethod
    def of_batch(cls, given: Mapping[str, str]) -> Options:
        """From what was given to ``spark.read``, which takes no options of streams."""
        for name in _by_documented_name(given):
            if name in STREAM_OPTIONS:
                raise OptionError(name, "is an option of spark.readStream only")
        return cls.of(given)


def _by_documented_name(given: Mapping[str, str]) -> dict[str, str]:
    """By their names as they are documented."""
    options = {}
    for name, text in given.items():
        if name.lower() not in _NAMES:
            raise OptionError(name, f"unknown option; options are {', '.join(ALL_OPTIONS)}")
        options[_NAMES[name.lower()]] = text
    return options


def _streaming(options: Mapping[str, str]) -> StreamOptions:
    starting = options.get("startingOffsets", "earliest").strip().lower()
    if starting not in ("earliest", "latest"):
        raise OptionError("startingOffsets", f"must be earliest or latest, not {starting!r}")
    most = (_limit(options, f"max{what}PerTrigger") for what in ("Bytes", "Files", "Rows"))
    return StreamOptions(starting == "latest", _boolean(options, "failOnDataLoss") is not False, *most)


def _boolean(options: Mapping[str, str], name: str) -> bool | None:
    text = options.get(name)
    if text is None:
        return None
    if text.strip().lower() not in _BOOLEANS:
        raise OptionError(name, f"must be true or false, not {text!r}")
    return _BOOLEANS[text.strip().lower()]


def _limit(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        most = whole_number(text.strip())
    except ValueError:
        most = 0
    if most < 1:
        raise OptionError(name, f"must be a whole number greater than 0, not {text!r}")
    return most


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _columns(table: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(TABLES[table])
    names = tuple(_items(text))
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


def _directory(name: str, text: str) -> str:
    try:
        return resolve_location(text)
    except ValueError as reason:
        raise OptionError(name, str(reason)) from None


def read_time(name: str, text: str | None) -> int | None:
    """Epoch ms, from a number of these or from ISO 8601; without an offset it is UTC."""
    if text is None:
        return None
    text = text.strip()
    try:
        return whole_number(text)
    except ValueError:
        pass  # then it is no number
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        wanted = "a time as 2026-07-01T12:00:00Z, or milliseconds since the epoch"
        raise OptionError(name, f"must be {wanted}, not {text!r}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since_epoch = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 1000 + since_epoch.microseconds // 1000
