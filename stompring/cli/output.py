"""Output of commands: tables, JSON, faults, confirmations, progress. Types of options: durations, the file broker.xml.

On a terminal a table has as many columns as fit and shows numbers, sizes and times for people. In a pipe each row is
one line of complete values, separated by tabs, without colours. Text from a broker (bodies, headers, errors) never
reaches a terminal raw: control characters are shown as escapes.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Event, RLock, Thread
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from stompring.errors import ConfigurationError
from stompring.errors import counted as counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


#: A JSON object, and its read-only form.
JsonObject = dict[str, Any]
Values = Mapping[str, Any]


def without_none(fields: Values) -> JsonObject:
    """The fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}


# characters that are escaped: C0 except tab and line feed, DEL, C1, line separators, marks for the direction of text,
# tags, and surrogates
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable(text: str) -> str:
    """``text`` with escapes in place of control characters; tab and line feed remain."""
    return _UNSAFE.sub(_escaped, text)


def one_line(text: str) -> str:
    """``text`` with escapes in place of control characters, tab and line feed included."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def encoded(body: bytes) -> tuple[str, str]:
    """A body for JSON, and its encoding: text, or base64 if it is not UTF-8."""
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def indented(text: str) -> str:
    """Indent a JSON object or array. Any other text is unchanged."""
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False, allow_nan=False)
    return text


_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|)")


def seconds(text: str) -> float:
    """The seconds of a duration such as ``500ms``, ``1.5m``, ``2h``, ``7d`` or ``10``. Raises `ValueError`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(
            f"{text!r} is not a duration: write 500ms, 10s, 5m, 2h or 7d; a number alone is seconds"
        )
    return float(found[1]) * _UNITS[found[2]]


class Parsed(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.4
    """The type of an option whose text ``parse`` converts. ``parse`` raises ValueError for an invalid text."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


#: Type of an option that is a duration in seconds. Its text is a number with a unit, or a number of seconds.
DURATION = Parsed("duration", seconds)


class FiniteRange(click.FloatRange):
    """A finite number within a range. click itself accepts ``nan``, and ``inf`` in a range without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


#: Default paths of broker.xml: in a checkout, and in a directory that ``stompring init`` created.
DEFAULTS = "config/broker.xml", "etc/broker.xml"
DEFAULT = " or ".join(DEFAULTS)


def default_file() -> str | None:
    """The default broker.xml in the current directory, None without one."""
    return next((name for name in DEFAULTS if Path(name).exists()), None)


def existing(path: str | None) -> str:
    """The path given with ``--config``, or the default file if ``path`` is None.

    Raises ConfigurationError with advice if the default file is missing.
    """
    if path is not None:
        return path  # the function that reads the file reports if it is missing
    found = default_file()
    if found is None:
        raise ConfigurationError(
            f"there is no {DEFAULT} in the directory {Path.cwd()}: go to where yours is, or name it with --config FILE"
        )
    return found


#: Exit statuses. click exits with 2 for wrong usage.
FAILED, USAGE, NOT_FOUND, DENIED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 5, 130


class CommandFailed(click.ClickException):
    """A failure that ends a command with a message on standard error and an exit status."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(one_line(message))
        self.exit_code = status  # type: ignore[misc]  # a class variable in click, read from the instance


class Interrupted(CommandFailed):
    """Ctrl-C has ended the command."""

    def __init__(self, message: str = "interrupted") -> None:
        super().__init__(message, INTERRUPTED)

    def show(self, file: IO[Any] | None = None) -> None:
        """Show the message without ``Error:``."""
        click.echo(self.message, file=file or sys.stderr)


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON with escapes for all control characters."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each == "\n"
        else "\\u007f"  # DEL, which json does not escape
        if each == "\x7f"
        else json.dumps(each)[1:-1]
        for each in text
    )


def echo_json(value: Any, ascii: bool = False) -> None:
    """Print a value as JSON. ``ascii``: escape all characters outside of ASCII."""
    click.echo(json.dumps(value, indent=2) if ascii else to_json(value))


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def console(stderr: bool = False) -> Console:
    """A console of rich that prints text without markup, emoji and highlighting."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


# ---- values


def bracketed(host: str) -> str:
    """A host as in a URL: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host


def reachable(host: str) -> str:
    """The host at which clients on this machine reach a listener: for a listener on all addresses, the loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # nosec B104


def bytes_text(value: float) -> str:
    """Format bytes: ``1.5 MiB``; ``-`` for -1, which means no limit."""
    if value < 0:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def count_text(value: float) -> str:
    """Format a count: ``12,345``; beyond ten million ``12.3M``."""
    if isinstance(value, float) and not value.is_integer() and abs(value) < 100:
        return f"{value:.1f}"
    if abs(value) >= 10_000_000:
        for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            if abs(value) >= size:
                return f"{value / size:.1f}{unit}"
    return f"{int(value):,}"


def rate_text(value: float) -> str:
    """Format a rate per second: ``12/s``."""
    return "0" if not value else f"{value:.1f}/s" if value < 10 else f"{count_text(round(value))}/s"


def duration_text(milliseconds: float) -> str:
    """Format a duration: ``850ms``, ``12s``, ``3m 20s``, ``5h 10m``, ``2d 3h``; ``-`` for -1, which means not set."""
    if milliseconds < 0:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f}ms"
    seconds = int(milliseconds / 1000)
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit} {rest}{below}" if rest else f"{seconds // size}{unit}"
    return f"{seconds}s"


def time_text(milliseconds: float) -> str:
    """Format epoch ms in the local zone: ``2026-11-23 04:05:06``; ``-`` for 0, which means not set."""
    if milliseconds <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def age_text(milliseconds: float) -> str:
    """Format the age of a time in epoch ms; ``-`` for 0, which means not set."""
    return "-" if milliseconds <= 0 else duration_text(max(0, time.time() * 1000 - milliseconds))


def plain_text(value: Any, comma: str = ",") -> str:
    """Format a JSON value for a pipe, in full. Strings have no quotes, null is an empty string."""
    if value is None:
        return ""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return one_line(comma.join(value))
    return one_line(json.dumps(value, ensure_ascii=False))


def human_text(value: Any) -> str:
    """Format a JSON value for people: ``yes`` for true, ``-`` for null and for empty values."""
    if value in (None, "", []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return count_text(value)
    return plain_text(value, ", ")


def limit_text(value: Any) -> str:
    """Format a limit; ``-`` for -1 or None, which mean no limit."""
    return "-" if value in (None, -1) else human_text(value)


# ---- tables


#: Formats of columns that are aligned to the right.
_NUMBERS = (count_text, limit_text, rate_text, bytes_text, duration_text, age_text)

#: Styles of the cells of a list, by field: first for values other than true, then for true.
_STYLES = {
    "allowed": ("red", "green"),
    "blocked": ("", "yellow"),
    "paging": ("", "yellow"),
    "paused": ("", "yellow"),
    "slow": ("", "red"),
}


class Column(NamedTuple):
    """A column, or a field of one record: the field of the API, its title, and the format of values for people.

    A narrow terminal omits the columns with the highest ``rank`` first, and never omits columns with rank 0.
    """

    field: str
    title: str
    show: Callable[[Any], str] = human_text
    rank: int = 1
    style: tuple[str, str] = ("", "")

    @property
    def right(self) -> bool:
        """Whether the column is aligned to the right."""
        return self.show in _NUMBERS


#: Titles of fields whose titles are not made from the names of the fields.
_TITLES = {
    "addedRate": "in",
    "addressSize": "memory",
    "clientID": "client id",
    "consumerCount": "consumers",
    "deliveredRate": "out",
    "messageCount": "messages",
    "numberOfPages": "pages",
    "remoteAddress": "peer",
    "sentRate": "in",
}

#: Formats of values, by the last word of the name of their field. The title omits that word.
_SHOWN = {
    "Age": duration_text,
    "Bytes": bytes_text,
    "Count": count_text,
    "Rate": rate_text,
    "Size": bytes_text,
    "Time": time_text,
}


def _column(name: str, details: Any = ()) -> Column:
    """A column for a field. ``details``: a title, a format, a `Column.rank`, or several of these."""
    words = re.sub("(?=[A-Z])", " ", name).split()
    show = _SHOWN.get(words[-1])
    title = _TITLES.get(name) or " ".join(words[:-1] if show else words).lower()
    column = Column(name, title, show or human_text)
    for each in details if isinstance(details, tuple) else (details,):
        kind = "title" if isinstance(each, str) else "rank" if isinstance(each, int) else "show"
        column = column._replace(**{kind: each})
    return column


def columns(**shown: Any) -> tuple[Column, ...]:
    """The columns of a list, by field. A value is a `Column.rank`, or a tuple of rank, title and format."""
    made = (_column(*each) for each in shown.items())
    return tuple(
        each._replace(title=each.title.upper(), style=_STYLES.get(each.field, ("", ""))) for each in made
    )


def every(names: Iterable[str], known: Iterable[Column] = ()) -> list[Column]:
    """A column for each field in ``names``: its column in ``known``, else a new column with the default format."""
    by_field = {column.field: column for column in known}
    return [by_field.get(name) or Column(name, name) for name in names]


def fields(*names: str, **others: Any) -> list[Column]:
    """Columns for the fields of one record. ``others``: fields with their own title, format, or both."""
    return [*map(_column, names), *(_column(*each) for each in others.items())]


def print_table(
    rows: Sequence[Values],
    columns: Sequence[Column],
    selected: str | None = None,
    empty: str = "nothing found",
) -> None:
    """Print rows as a table. ``selected``: the fields to show, separated by commas; None: all that fit the screen."""
    if selected is not None:
        columns = every(map(str.strip, selected.split(",")), columns)
        if unknown := [each.field for each in columns if rows and each.field not in rows[0]]:
            fields = ", ".join(sorted(rows[0]))
            raise click.UsageError(one_line(f"--columns: unknown field {unknown[0]!r}; fields: {fields}"))
    else:
        columns = [each for each in columns if not rows or any(each.field in row for row in rows)]
    if not is_terminal():
        click.echo("\t".join(column.field for column in columns))
        for row in rows:
            click.echo("\t".join(plain_text(row.get(column.field)) for column in columns))
    elif not rows:
        click.echo(empty)
    else:
        screen = console()
        table, hidden = fitted_table(rows, columns, screen.width, fixed=selected is not None)
        screen.print(table)
        if hidden:
            names = ", ".join(column.field for column in hidden)
            warn(f"not shown for lack of space: {names} (--columns, --json)")


def fitted_table(
    rows: Sequence[Values], columns: Sequence[Column], width: int, fixed: bool = False
) -> tuple[RenderableType, list[Column]]:
    """A table of at most ``width`` characters, and the columns that did not fit. ``fixed``: show all columns."""
    from rich.table import Table

    cells = {column.field: [_cell(column, row) for row in rows] for column in columns}
    widths = {
        column.field: max(
            len(column.title), *(min(each.cell_len, _LONGEST) for each in cells[column.field]), 1
        )
        for column in columns
    }
    shown, hidden = list(columns), []
    while not fixed and sum(widths[each.field] + 2 for each in shown) > width + 2:
        # omit the column with the highest rank: of several with this rank, the last one
        last = max(reversed(shown), key=lambda each: each.rank)
        if last.rank == 0:
            break
        shown.remove(last)
        hidden.append(last)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=column.rank > 0 or column.right,
            overflow="fold" if column.rank == 0 else "ellipsis",
        )
    for row in zip(*(cells[column.field] for column in shown), strict=True):
        table.add_row(*row)
    return table, hidden


#: Maximum number of characters of a cell that count when `fitted_table` decides which columns fit. A narrow terminal
#: shortens longer cells.
_LONGEST = 60


def _cell(column: Column, row: Values) -> Text:
    from rich.text import Text

    value = row.get(column.field)
    text = "-" if value is None else column.show(value)
    return Text(one_line(text), style=column.style[value is True])


def print_fields(record: Values, sections: Mapping[str, Iterable[Column]]) -> None:
    """Print a record: on a terminal in sections, fields without a section last; in a pipe one line for each field, with
    its name, a tab, and its value.
    """
    if not is_terminal():
        for name, value in record.items():
            click.echo(f"{name}\t{plain_text(value)}")
        return
    from rich.table import Table
    from rich.text import Text

    screen = console()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    known = {column.field for fields in sections.values() for column in fields}
    rest = [Column(name, one_line(name)) for name in record if name not in known]
    for title, fields in (*sections.items(), ("Other", rest)):
        present = [column for column in fields if column.field in record]
        if present:
            grid.add_row(Text(title, style="bold"), "")
        for column in present:
            grid.add_row(f"  {column.title}", _cell(column, record))
    screen.print(grid)


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print titles and values: on a terminal aligned and indented, in a pipe with a tab between title and value."""
    width = max((len(title) for title, _ in rows), default=0)
    for title, value in rows:
        if is_terminal():
            click.echo(f"  {one_line(title).ljust(width)}  {one_line(value)}")
        else:
            click.echo(f"{one_line(title)}\t{one_line(value)}")


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> Iterator[str]:
    """Format rows as lines with aligned columns. ``right``: whether each column is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, right or [False] * len(row), strict=True)
        yield "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in cells
        ).rstrip()


def done(text: str) -> None:
    """Print the result of a command for people, on standard output."""
    click.echo(one_line(text))


def report(as_json: bool, value: Any, *lines: str) -> None:
    """Print the result of a command: ``value`` as JSON with --json, otherwise ``lines`` for people."""
    if as_json:
        echo_json(value)
    else:
        for line in lines:
            done(line)


def warn(text: str) -> None:
    """Print a line on standard error."""
    click.echo(one_line(text), err=True)


# ---- questions


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation of a destructive command. Without a terminal ``--yes`` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(one_line(f"{question} Without a terminal, confirm with --yes"))
    if not click.confirm(one_line(question), err=True):
        raise CommandFailed("cancelled; nothing was changed")


def ask_password(text: str, **settings: Any) -> str:
    """Ask for a password on the terminal. ``settings`` are more arguments of `click.prompt`."""
    return str(click.prompt(text, hide_input=True, err=True, **settings))


# ---- progress


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Context manager: show a progress bar on standard error, if it is a terminal. Yields a function that sets the
    number of completed items and the number of all items (None: unknown)."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(one_line(title), total=None)

        def step(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield step


@contextmanager
def byte_progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Context manager: show a progress bar. Yields a function to call after each step with its size in bytes.
    ``length``: sum of the sizes of all steps."""
    if not sys.stderr.isatty() or length <= 0:
        yield lambda size: None
        return
    # at most a thousand updates: drawing the bar costs more than reading a thousand records
    parts = max(1, length // 1000)
    with click.progressbar(length=length, label=label, file=sys.stderr, update_min_steps=parts) as bar:
        yield bar.update
        bar.update_min_steps = 0
        bar.update(0)


class ProgressLine:
    """One line that shows the progress of work on standard error, if standard error is a terminal."""

    def __init__(self, quiet: bool = False, terminal: bool | None = None) -> None:
        self._shown = not quiet and (sys.stderr.isatty() if terminal is None else terminal)
        self._length = 0

    def show(self, text: str) -> None:
        """Replace the text of the line."""
        if self._shown:
            line = one_line(text)[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write(f"\r{line.ljust(self._length)}")
            sys.stderr.flush()
            self._length = len(line)

    def clear(self) -> None:
        """Remove the line."""
        if self._shown and self._length:
            sys.stderr.write(f"\r{' ' * self._length}\r")
            sys.stderr.flush()
            self._length = 0


class RateLine(ProgressLine):
    """A progress line that shows the number of messages per second, updated five times per second."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self.started = self._drawn = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return max(time.monotonic() - self.started, 1e-6)

    def rate(self, messages: int) -> str:
        """The messages per second since the start as a text; empty for fewer than 1000 messages."""
        return f", {messages / self.seconds:,.0f} messages/s" if messages >= 1000 else ""

    def update(self, text: str, messages: int) -> None:
        """Show a text and the rate of ``messages`` so far, unless the last update is less than 0.2 s ago."""
        now = time.monotonic()
        if now - self._drawn > 0.2:
            self._drawn = now
            self.show(f"{text}, {messages / self.seconds:,.0f} messages/s")


#: Seconds between two updates of the progress: on a terminal, and elsewhere.
REDRAW_SECONDS, LOG_SECONDS = 0.5, 10.0


class Progress:
    """The progress of work: on a terminal a line that is updated, else a new line every 10 seconds."""

    def __init__(self, *, terminal: bool | None = None, pause: float | None = None) -> None:
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._pause = pause or (REDRAW_SECONDS if self._terminal else LOG_SECONDS)
        self._line = ProgressLine(terminal=self._terminal)
        self._lock = RLock()

    def show(self, text: str) -> None:
        """Print a line that the progress line does not overwrite."""
        with self._lock:
            self._line.clear()
            click.echo(text, err=True)

    @contextmanager
    def watching(self, progress: Callable[[], str | None]) -> Iterator[None]:
        """Context manager: call ``progress`` periodically, and show the text that it returns. None removes the line."""
        over = Event()

        def watch() -> None:
            while not over.wait(self._pause):
                self.look(progress)

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with self._lock:
                self._line.clear()

    def look(self, progress: Callable[[], str | None]) -> None:
        """Call ``progress`` one time, and show the text that it returns."""
        text = progress()
        with self._lock:
            if text is None:
                self._line.clear()
            elif self._terminal:
                self._line.show(text)
            else:
                click.echo(text, err=True)


BLOCKS, ASCII = "▁▂▃▄▅▆▇█", ".:-=+*#@"


def sparkline(values: Sequence[float | None], width: int, symbols: str = BLOCKS) -> str:
    """The last ``width`` values as bars from 0 to their maximum; a space for an unknown value."""
    values = values[-width:]
    most = max((value for value in values if value is not None), default=0)
    last = len(symbols) - 1
    return "".join(
        " " if value is None else symbols[0 if most <= 0 else min(last, round(max(value, 0) / most * last))]
        for value in values
    ).rjust(width)


def symbols_of(encoding: str | None) -> str:
    """The symbols of `sparkline`: block elements if the encoding has them, else ASCII characters."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
