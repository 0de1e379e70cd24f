"""``stompring top``: queues, connections, consumers or addresses of a running broker, live, with sparklines."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import click

from .options import command, option
from .output import (
    UNREACHABLE,
    Column,
    CommandFailed,
    JsonObject,
    Values,
    bytes_text,
    console,
    count_text,
    duration_text,
    fitted_table,
    is_terminal,
    one_line,
    print_table,
    rate_text,
    sparkline,
    symbols_of,
    to_json,
)
from .remote import Remote, running

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Number of points of a sparkline in the head, and in a row.
HEAD_POINTS, ROW_POINTS = 60, 16

#: Time limit of a request in seconds. The screen waits for each request.
REQUEST_TIMEOUT = 5.0

#: Number of lines above and below the rows of a view.
HEAD_LINES, FOOT_LINES = 7, 2


class View(NamedTuple):
    """A table: its list in the API, the field with a row's name, the field that the trend shows, and the sort fields.

    ``sorts``: sort fields by key of the keyboard.
    """

    path: str
    key: str
    trend: str
    sorts: Mapping[str, str]


#: The views by key of the keyboard. The first sort field of a view is the default.
VIEWS = {
    "1": View(
        "queues",
        "name",
        "messageCount",
        {
            "m": "-messageCount",
            "i": "-addedRate",
            "o": "-deliveredRate",
            "a": "-acknowledgedRate",
            "c": "-consumerCount",
            "d": "-deliveringCount",
            "n": "name",
        },
    ),
    "2": View(
        "connections",
        "connectionID",
        "deliveredRate",
        {"d": "-deliveringCount", "i": "-sentRate", "o": "-deliveredRate", "n": "connectionID"},
    ),
    "3": View(
        "consumers",
        "consumerID",
        "deliveredRate",
        {"d": "-deliveringCount", "o": "-deliveredRate", "a": "-acknowledgedRate", "n": "queue"},
    ),
    "4": View(
        "addresses",
        "name",
        "messageCount",
        {"m": "-messageCount", "i": "-addedRate", "o": "-deliveredRate", "n": "name"},
    ),
}


#: Names of the sort orders, by key of the keyboard.
LABELS = {
    "m": "messages",
    "i": "in",
    "o": "out",
    "a": "acked",
    "c": "consumers",
    "d": "delivering",
    "n": "name",
}


def columns_of(view: View) -> tuple[Column, ...]:
    """The columns of a view: those of the command that lists the same objects (``queue list``), and the trend."""
    from . import queue, resources

    columns = {
        "queues": queue.COLUMNS,
        "connections": resources.CONNECTION_COLUMNS,
        "consumers": queue.CONSUMERS,
        "addresses": resources.ADDRESS_COLUMNS,
    }[view.path]
    return (*columns[:2], Column("trend", "TREND", str, rank=2), *columns[2:])


@dataclass(frozen=True)
class Reading:
    """The data of one refresh of the screen."""

    ready: bool
    broker: Values
    rows: list[JsonObject]
    count: int
    history: Mapping[str, Sequence[float | None]]


@dataclass
class Screen:
    """The view, order, search and page that the user selected, and the last data of the broker."""

    remote: Remote
    view: View
    sort: str
    search: str | None
    symbols: str
    page: int = 1
    paused: bool = False
    reading: Reading | None = None
    fault: str | None = None
    trends: dict[str, deque[float | None]] = field(default_factory=dict)

    def look(self, size: int) -> Reading:
        """Request the data. Returns the previous data if the connection is lost; the next call tries again."""
        try:
            self.reading = self._read(max(1, min(size, 1000)))
            self.fault = None
        except CommandFailed as fault:
            if self.reading is None or fault.exit_code != UNREACHABLE:
                raise
            self.fault = fault.message
        return self.reading

    def _read(self, size: int) -> Reading:
        from .status import readiness

        remote = self.remote
        up, _ = readiness(remote)
        broker = remote.get("broker")
        history = remote.get("broker", "history")["series"]
        found = remote.get(self.view.path, page=self.page, size=size, sort=self.sort, search=self.search)
        trends: dict[str, deque[float | None]] = {}
        for row in found["data"]:
            name = str(row[self.view.key])
            trend = trends[name] = self.trends.get(name) or deque(maxlen=ROW_POINTS)
            value = row.get(self.view.trend)
            trend.append(value if isinstance(value, (int, float)) else None)
            row["trend"] = sparkline(list(trend), ROW_POINTS, self.symbols)
        self.trends = trends
        return Reading(up, broker, found["data"], found["count"], history)

    def press(self, key: str) -> bool:
        """Handle a key. Returns False for a key that quits."""
        if key in ("q", "Q", "\x1b", "\x03", "\x04"):
            return False
        if key in VIEWS:
            self.view, self.page, self.trends = VIEWS[key], 1, {}
            self.sort = next(iter(self.view.sorts.values()))
        elif key == "r":
            self.sort = self.sort[1:] if self.sort.startswith("-") else f"-{self.sort}"
        elif key == " ":
            self.paused = not self.paused
        elif key in ("\x1b[6~", "\x1b[B", "j"):
            self.page += 1
        elif key in ("\x1b[5~", "\x1b[A", "k"):
            self.page = max(1, self.page - 1)
        elif key in self.view.sorts:
            self.sort, self.page = self.view.sorts[key], 1
        return True

    def render(self, width: int, height: int) -> RenderableType:
        """The whole screen."""
        from rich.console import Group
        from rich.text import Text

        assert self.reading
        reading, broker = self.reading, self.reading.broker
        name = f"{broker['name']} {broker['version']}"
        head = Text.assemble(
            (one_line(name), "bold"),
            f"  {one_line(str(self.remote.server))}  up {duration_text(broker['uptime'])}  ",
            ("ready", "green") if reading.ready else ("NOT READY", "bold red"),
            ("  paused", "yellow") if self.paused else "",
            (f"  {one_line(self.fault)}", "bold red") if self.fault else "",
            no_wrap=True,
            overflow="ellipsis",
        )
        totals = [
            f"connections {count_text(broker['connectionCount'])}",
            f"queues {count_text(broker['queueCount'])}",
            f"in memory {count_text(broker['heldMessageCount'])} messages,"
            f" {bytes_text(broker['addressMemoryUsage'])} of {bytes_text(broker['globalMaxSize'])}",
        ]
        if broker["diskUsage"] is not None:
            totals.append(f"disk {broker['diskUsage']:.0%}")
        lines = [head, Text("  ".join(totals), no_wrap=True, overflow="ellipsis")]
        problems = [str(each["text"]) for each in broker["problems"]]
        text = "; ".join(problems[:3]) + (f"; {len(problems) - 3} more" if len(problems) > 3 else "")
        lines.append(Text(one_line(text), style="yellow", no_wrap=True, overflow="ellipsis"))
        points = max(10, min(HEAD_POINTS, width - 30))
        for title, series, style, show in _SPARKS:
            values = list(reading.history[series])
            known = [value for value in values if value is not None]
            now = show(known[-1]) if known else "-"
            lines.append(
                Text.assemble(
                    (f"{title:<9}", "dim"),
                    (sparkline(values, points, self.symbols), style),
                    f"  {now}",
                    no_wrap=True,
                    overflow="crop",
                )
            )
        height_left = max(1, height - HEAD_LINES - FOOT_LINES - 1)
        if reading.rows:
            table, _ = fitted_table(reading.rows[:height_left], columns_of(self.view), width)
        else:
            table = Text(f"no {self.view.path}", style="dim")
        keys = " ".join(f"{key}:{LABELS[key]}" for key in self.view.sorts)
        others = " ".join(f"{key}:{view.path}" for key, view in VIEWS.items())
        foot = Text(
            f"{self.view.path} {count_text(reading.count)}, page {self.page}, by {self.sort}  {keys}\n"
            f"q:quit {others} space:pause j/k:page r:reverse",
            style="reverse dim",
            no_wrap=True,
            overflow="crop",
        )
        missing = height_left - len(reading.rows)
        blank = [Text("\n" * (missing - 1))] if missing > 0 else []
        return Group(*lines, Text(""), table, *blank, foot)


_SPARKS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("in", "added", "cyan", rate_text),
    ("out", "delivered", "green", rate_text),
    ("messages", "messageCount", "magenta", count_text),
)


@command()
def top(
    interval: float = option("DURATION", "Time between two looks.", default="2s"),
    view: str = option(
        "What the table shows.", exact=[view.path for view in VIEWS.values()], default="queues"
    ),
    sort: str | None = option("FIELD", "Sort by this field of the API; -FIELD: descending."),
    search: str | None = option("TEXT", "Only items whose name contains this text, ignoring case."),
    once: bool = option("Print the table once and end; also without a terminal."),
    remote: Remote = running,
) -> None:
    """Show queues, connections, consumers or addresses as a live table with sparklines.

    Keys: 1 to 4 select the table, letters the order (shown below the table), r reverses it, j and k turn pages, space
    pauses, q or Ctrl-C quits. A lost connection is shown and tried again. With --json each look is one line.

    \b
    Examples:
      stompring top
      stompring top --view consumers --sort=-deliveringCount --interval 5s
      stompring top --once --search orders
      stompring top --json | jq .broker.heldMessageCount
    """
    selected = next(each for each in VIEWS.values() if each.path == view)
    remote.timeout = REQUEST_TIMEOUT
    sort = sort or next(iter(selected.sorts.values()))
    screen = Screen(remote, selected, sort, search, symbols_of(getattr(sys.stdout, "encoding", None)))
    interval = max(interval, 0.1)
    try:
        if remote.json:
            while True:
                reading = screen.look(1000)
                rows = [
                    {name: value for name, value in row.items() if name != "trend"} for row in reading.rows
                ]
                document = {
                    "time": int(time.time() * 1000),
                    "ready": reading.ready,
                    "broker": reading.broker,
                    screen.view.path: rows,
                }
                click.echo(to_json(document, None))
                if once:
                    return
                time.sleep(interval)
        elif once:
            print_table(
                screen.look(1000).rows, [each for each in columns_of(selected) if each.field != "trend"]
            )
        elif not is_terminal() or not sys.stdin.isatty():
            raise click.UsageError("top needs a terminal; use --once or --json without one")
        else:
            _run(screen, interval)
    except KeyboardInterrupt:
        return  # Ctrl-C is a usual end of the command


def _run(screen: Screen, interval: float) -> None:
    """Show the live screen until the user quits."""
    from rich.live import Live

    shown = console()
    screen.look(shown.height)
    with (
        _raw_keys() as keys,
        Live(console=shown, screen=True, auto_refresh=False, transient=True) as live,
    ):
        following = time.monotonic() + interval
        while True:
            live.update(screen.render(shown.width, shown.height), refresh=True)
            pressed = keys(max(0.0, following - time.monotonic()))
            if not all(screen.press(key) for key in pressed):
                return
            if (pressed and not screen.paused) or time.monotonic() >= following:
                if not screen.paused or pressed:
                    screen.look(shown.height)
                following = time.monotonic() + interval


#: A key in the input of a terminal: an escape sequence, or one character.
_KEYS = re.compile(r"\x1b[\[O][^@-~]*[@-~]?|.", re.DOTALL)


@contextmanager
def _raw_keys() -> Iterator[Callable[[float], list[str]]]:
    """Context manager: read keys without echo; SIGTERM restores the terminal. Yields a function that waits up to some
    seconds, or until the window's size changes, and returns the pressed keys."""
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)

    def resized(number: int, frame: FrameType | None) -> None:
        """Do nothing: the write to the wakeup pipe ends the wait."""

    def terminated(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def wait(seconds: float) -> list[str]:
        ready, _, _ = select.select([descriptor, woken], [], [], seconds)
        if woken in ready:
            os.read(woken, 4096)
        if descriptor not in ready:
            return []
        data = os.read(descriptor, 1024)
        return _KEYS.findall(data.decode("utf-8", "replace")) or ["q"]

    # the interpreter writes to the pipe when a signal arrives, so that a signal just before a wait ends the wait too
    waker = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    before = signal.signal(signal.SIGWINCH, resized), signal.signal(signal.SIGTERM, terminated)
    try:
        tty.setcbreak(descriptor)
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
        signal.signal(signal.SIGWINCH, before[0])
        signal.signal(signal.SIGTERM, before[1])
        signal.set_wakeup_fd(waker)
        os.close(woken)
        os.close(wake)
