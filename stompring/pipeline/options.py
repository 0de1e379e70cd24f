"""What a reader of a data directory is asked for: the options of ``spark.read.format("stompring")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from stompring.pipeline.folder import resolved
from stompring.pipeline.schema import TABLES, ddl
from stompring.settings.wildcard import Pattern

KNOWN = ("path", "retention", "table", "columns", "addresses", "since", "until")


class OptionError(ValueError):
    """An option says something that cannot be. The text begins with the name of the option."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"option {option}: {text}")
        self.option, self.text = option, text

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.text)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows and columns. ``since`` <= the row's time < ``until``, epoch ms; None asks for nothing."""

    table: str = "messages"
    columns: tuple[str, ...] = tuple(TABLES["messages"])
    addresses: tuple[str, ...] = ()  # patterns, none for all
    since: int | None = None
    until: int | None = None

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
class Options:
    """All options, understood."""

    root: str
    wanted: Wanted
    retention: str | None = None  # where it is not below ``root``

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """From what was given to Spark. Opens nothing. Raises `OptionError`."""
        options = {name.lower(): text for name, text in given.items()}
        for name in options:
            if name not in KNOWN:
                raise OptionError(name, f"there is none of this name; there are {', '.join(KNOWN)}")
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
        retention = _place("retention", options["retention"]) if options.get("retention") else None
        wanted = Wanted(table, columns, addresses, since, until)
        return cls(_place("path", options["path"]), wanted, retention)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _columns(table: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(TABLES[table])
    names = tuple(_items(text))
    if not names:
        raise OptionError("columns", "must name at least one column")
    for place, name in enumerate(names):
        if name not in TABLES[table]:
            raise OptionError("columns", f"{table} has no column {name!r}; it has {', '.join(TABLES[table])}")
        if name in names[:place]:
            raise OptionError("columns", f"{name} is named twice")
    return names


def _place(name: str, text: str) -> str:
    try:
        return resolved(text)
    except ValueError as reason:
        raise OptionError(name, str(reason)) from None


def read_time(name: str, text: str | None) -> int | None:
    """Epoch ms, from a number of these or from ISO 8601; without an offset it is UTC."""
    if text is None:
        return None
    text = text.strip()
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        wanted = "a time as 2026-07-01T12:00:00Z, or milliseconds since the epoch"
        raise OptionError(name, f"must be {wanted}, not {text!r}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since_epoch = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 1000 + since_epoch.microseconds // 1000
