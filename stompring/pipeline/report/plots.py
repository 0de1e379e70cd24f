"""Plots as SVG elements of a page: lines over time, and curves.

Text in the SVG remains text, not curves: it is small and searchable, and has the colours of the page (dark or light).
Legends are not part of the SVG: they are HTML, which can break long names of queues into lines.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)

from .queries import Grid, as_datetime

#: Generated parts of names: UUIDs, and long hexadecimal numbers.
GENERATED = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-z])[0-9a-f]{16,}(?![0-9a-z])", re.I
)

#: Maximum length of a shortened name, and number of characters that remain of a generated part.
MAX_NAME, GENERATED_SHOWN = 40, 6

ELLIPSIS = "\u2026"


def shortened(name: str) -> str:
    """Shorten a name if it is long or has generated parts. The page has the full name in an attribute ``title``."""
    text = GENERATED.sub(lambda found: found[0][:GENERATED_SHOWN] + ELLIPSIS, name)
    if len(text) <= MAX_NAME:
        return text
    end = MAX_NAME // 3
    return text[: MAX_NAME - end - 1].rstrip(ELLIPSIS) + ELLIPSIS + text[-end:].lstrip(ELLIPSIS)


def legend_labels(names: Sequence[str]) -> list[str]:
    """Shorten the names of a legend. If shortened names are equal, add a number to each of them."""
    found = [shortened(name) for name in names]
    count = Counter(found)
    seen: Counter[str] = Counter()
    for at, text in enumerate(found):
        if count[text] > 1:
            seen[text] += 1
            found[at] = f"{text} ({seen[text]})"
    return found


#: A no-break space, between a number and its unit.
NBSP = "\u00a0"

_SPANS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def _short(value: float) -> str:
    """Format a number with at most two decimals, in all at most three digits if it is below 1000."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.{1 if abs(value) >= 10 else 2}f}"
    return text.rstrip("0").rstrip(".")


def whole_text(value: float) -> str:
    """Format a number with all digits: 1,234,567."""
    return f"{value:,.0f}"


def count_text(value: float) -> str:
    """Format a count: 1.23 M. Integers below 10,000 have all digits."""
    if abs(value) < 10_000:
        return whole_text(value) if value == int(value) else _short(value)
    for unit, name in _THOUSANDS:
        if abs(value) >= unit:
            return f"{_short(value / unit)}{NBSP}{name}"
    return _short(value)


def rate_text(value: float) -> str:
    """Format a rate per second."""
    return f"{count_text(value) if value >= 100 or value == int(value) else f'{value:.3g}'}/s"


def size_text(value: float) -> str:
    """Format bytes: 1.5 MiB."""
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return f"{_short(value / unit)}{NBSP}{name}"
    return f"{value:.0f}{NBSP}B"


def span_text(seconds: float) -> str:
    """Format a duration, rounded to two or three digits: 12 ms, 3.4 h. NaN is a dash."""
    if math.isnan(seconds):
        return "–"
    if seconds < 60:
        seconds = float(f"{seconds:.2g}")
    for unit, name in _SPANS:
        if abs(seconds) >= unit * 0.9995:
            value = seconds / unit
            return f"{value:.2g}{NBSP}{name}" if value < 10 else f"{value:.0f}{NBSP}{name}"
    return f"0{NBSP}s" if seconds < 1e-6 else f"{seconds * 1e6:.2g}{NBSP}µs"


def share_text(value: float) -> str:
    """Format a share (0 to 1) as per cent. Only the exact values 0 and 1 become 0 % and 100 %; values near them become
    <0.01 % and >99.99 %."""
    percent = 100 * value
    if 0 < percent < 0.01:
        return f"<0.01{NBSP}%"
    if 99.99 < percent < 100:
        return f">99.99{NBSP}%"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + f"{NBSP}%"


def percent_text(value: float) -> str:
    """Format a value in per cent: 99.5 %."""
    return f"{value:g}{NBSP}%"


def date_text(time: int) -> str:
    """Format a time in µs: 2026-07-01 12:34:56 (UTC)."""
    return as_datetime(time).strftime("%Y-%m-%d %H:%M:%S")


#: Colours of Okabe and Ito, which colour-blind people can distinguish. Two of their colours are omitted: they are too
#: light or too dark for one of the page's backgrounds. Combined with `DASHES` there are twelve styles of lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("none", "5 2.5")

#: Maximum number of lines in a plot. If there are more queues, the last line is for all others together.
MAX_LINES = 8

#: Colour and dash of the line for all other queues.
OTHERS = ("#808080", "1 2")

#: Size of a plot in inches (72 units of the SVG each). It has about the width of a phone, so that a phone shows the
#: font size 9 as 9 or 10 px.
WIDTH, HEIGHT = 4.7, 2.75

#: Readable durations on an axis, in seconds.
DURATIONS = (
    *(digit * 10.0**power for power in range(-6, 0) for digit in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
    *(hours * 3600.0 for hours in (1, 2, 6, 12, 24, 48, 120, 240, 720, 2400, 8760)),
)

#: If the greatest maximum of the lines is more than this multiple of the least, the y axis is logarithmic: on a linear
#: axis only the highest line would be visible.
LOG_SCALE_RATIO = 50.0

#: Placeholders for two colours of the page, which replace them in the SVG.
INK_COLOUR, GRID_COLOUR = "#010203", "#040506"

#: Formats of the text at the end of a time axis. It shows the part of the time that the labels of the ticks omit.
OFFSET_FORMATS = ["", "%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d %H:%M"]

SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stompring",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK_COLOUR,
    "axes.edgecolor": INK_COLOUR,
    "axes.labelcolor": INK_COLOUR,
    "xtick.color": INK_COLOUR,
    "ytick.color": INK_COLOUR,
    "axes.grid": True,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.xmargin": 0.01,
    "lines.linewidth": 1.5,
    "path.simplify_threshold": 0.2,
}


class Line(NamedTuple):
    """A line of a plot. ``values``: y values, NaN for a missing one. ``others``: whether the line combines all other
    queues. ``whole``: full text if the label is shortened, else empty."""

    label: str
    values: Any
    whole: str = ""
    others: bool = False


class Key(NamedTuple):
    """An entry of a legend. ``dash``: SVG's ``stroke-dasharray``."""

    label: str
    colour: str
    dash: str
    whole: str = ""


class Chart(NamedTuple):
    """The data of a plot, for interactive plots.

    ``across``: x value of each point, as µs since the epoch or as a number. ``level``: x axis; None: a time axis.
    ``upright``: y axis. ``logarithmic``: whether the x axis is logarithmic. ``mark``: x value of a vertical line.
    """

    across: Any
    lines: Sequence[Line]
    upright: Axis
    level: Axis | None = None
    logarithmic: bool = False
    mark: float | None = None


@dataclass(frozen=True)
class Plot:
    """A plot as SVG, and its data. ``name``: prefix of the ids in the SVG."""

    name: str
    title: str
    svg: str
    keys: Sequence[Key]
    scale: str  # note on the scale of the y axis, may be empty
    chart: Chart = field(compare=False)  # not compared: a comparison of arrays is not a bool
    whole: str  # full text if the title is shortened, else empty

    @property
    def summary(self) -> list[list[str]]:
        """Text alternative: for each line its label, minimum, maximum, x value of the maximum, and last value."""
        return [_line_summary(self.chart, line) for line in self.chart.lines]


class Axis(NamedTuple):
    """An axis: its label, and the format of its numbers."""

    label: str
    text: Callable[[float], str] = count_text
    percent: bool = False


def over_time(name: str, title: str, grid: Grid, lines: Sequence[Line], axis: Axis) -> Plot:
    """Plot lines over the steps of a grid. ``name``: prefix of the ids in the SVG, unique in a page."""
    figure, axes = _figure()
    axes.set_xlim(*np.array([grid.start, grid.end]).astype("datetime64[us]"))
    locator = AutoDateLocator(minticks=3, maxticks=6, tz="UTC")
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz="UTC", offset_formats=OFFSET_FORMATS))
    return _drawn(name, title, figure, Chart(grid.starts + grid.step // 2, lines[:MAX_LINES], axis))


def curve(
    name: str, title: str, across: Any, line: Line, axes_: tuple[Axis, Axis], mark: float, mark_label: str
) -> Plot:
    """Plot one line over the numbers ``across``. ``axes_``: x axis and y axis. ``mark``: x value of a vertical line
    with the label ``mark_label``."""
    figure, axes = _figure()
    across, (level, upright) = np.asarray(across, float), axes_
    logarithmic = bool(across.max() > 8 * max(across.min(), 1))
    in_bytes = level.text is size_text
    if logarithmic:
        axes.set_xscale("log", base=2 if in_bytes else 10)
        axes.xaxis.set_major_locator(
            LogLocator(base=4, numticks=6) if in_bytes else LogLocator(10, numticks=5)
        )
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: level.text(value)))
    axes.set_xlabel(level.label)
    axes.axvline(mark, color=COLOURS[1], linestyle=(0, (2, 2)), linewidth=1.2)
    chart = Chart(across, [line], upright, level, logarithmic, mark)
    return _drawn(name, title, figure, chart, Key(mark_label, COLOURS[1], "2 2"))


def queue_lines(values: Sequence[tuple[str, Any]], remainder: Any = None, count: int = 0) -> list[Line]:
    """Return a line for each pair of queue name and y values, and a line ``remainder`` for ``count`` other queues."""
    names = [name for name, _ in values]
    lines = [
        Line(label, each, name if label != name else "")
        for label, (name, each) in zip(legend_labels(names), values, strict=True)
    ]
    if remainder is not None:
        lines.append(Line(f"{count} other" if count == 1 else f"{count} others", remainder, others=True))
    return lines


def _line_summary(chart: Chart, line: Line) -> list[str]:
    known = np.flatnonzero(np.isfinite(line.values))
    if not len(known):
        return [line.label, *["–"] * 4]
    values = np.asarray(line.values)[known]
    index = int(np.argmax(values))
    texts = [
        percent_text(float(f"{value:.4g}")) if chart.upright.percent else chart.upright.text(value)
        for value in map(float, (values.min(), values[index], values[-1]))
    ]
    across = chart.across[known[index]]
    where = date_text(int(across)) if chart.level is None else chart.level.text(float(across))
    return [line.label, *texts[:2], where, texts[2]]


def _figure() -> tuple[Any, Any]:
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.tick_params(length=3)
        return figure, axes


def _drawn(name: str, title: str, figure: Any, chart: Chart, *marks: Key) -> Plot:
    axes, axis = figure.axes[0], chart.upright
    across = chart.across if chart.level is not None else chart.across.astype("datetime64[us]")
    scale = _scaled(axes, [line.values for line in chart.lines], axis)
    keys = []
    with matplotlib.rc_context(SETTINGS):
        for at, line in enumerate(chart.lines):
            kind = COLOURS[at % len(COLOURS)], DASHES[at // len(COLOURS)]
            colour, dash = OTHERS if line.others else kind
            keys.append(Key(line.label, colour, dash, line.whole))
            pattern = "solid" if dash == "none" else (0, tuple(float(part) / 1.5 for part in dash.split()))
            # Draw a point without neighbours as a dot, because a line would not show it.
            known = np.isfinite(line.values)
            alone = known & ~np.append(known[1:], False) & ~np.append(False, known[:-1])
            axes.plot(across, line.values, color=colour, linestyle=pattern)
            if alone.any():
                axes.plot(across[alone], line.values[alone], ".", color=colour, markersize=4)
        axes.set_ylabel(axis.label)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: axis.text(value)))
        written = StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    short = shortened(title)
    svg = _embedded_svg(written.getvalue(), name, short)
    return Plot(name, short, svg, [*keys, *marks], scale, chart, title if short != title else "")


def _scaled(axes: Any, values: Sequence[Any], axis: Axis) -> str:
    """Set the scale of the y axis. Returns the note on it."""
    if axis.percent:
        axes.set_ylim(0, 102)
        return ""
    positive = [each[each > 0] for each in values if (each > 0).any()]
    some = [float(each.max()) for each in positive]
    if some and (max(some) > LOG_SCALE_RATIO * min(some) or axis.text is span_text):
        least = min(float(each.min()) for each in positive)
        if axis.text is span_text:
            axes.set_yscale("log")
            axes.set_ylim(max(least / 2, 1e-6), max(some) * 2)
            axes.yaxis.set_major_locator(FixedLocator(duration_ticks(*axes.get_ylim())))
        else:
            linear = max(least, min(some) / 10)
            axes.set_yscale("symlog", linthresh=linear)
            axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear))
            axes.set_ylim(0, max(some) * 1.5)
        axes.yaxis.set_minor_locator(NullLocator())
        return "logarithmic scale"
    axes.set_ylim(0, max(some, default=1) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    return ""


def duration_ticks(low: float, high: float) -> list[float]:
    """Return at most 7 readable durations for an axis, in seconds."""
    known = [each for each in DURATIONS if low <= each <= high]
    return known[:: max(1, -(-len(known) // 7))]


def _embedded_svg(svg: str, name: str, title: str) -> str:
    """Convert matplotlib's SVG to an element of a page: without prologue, with a title, unique ids and the colours of
    the page."""
    svg = svg[svg.index("<svg") :]
    # <style> is removed, because it would apply to the whole page
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(INK_COLOUR, "currentColor").replace(GRID_COLOUR, "var(--grid)")
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r"(\.\d\d)\d+", r"\1", svg)  # coordinates need only two decimals
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    size = re.search(r'viewBox="[^"]+"', svg)
    assert size is not None
    head = f'<svg {size[0]} role="img" aria-labelledby="{name}-title" xmlns:xlink="http://www.w3.org/1999/xlink">'
    title = f'<title id="{name}-title">{escape(title)}</title>'
    return head + title + svg[svg.index(">") + 1 :].rstrip()
