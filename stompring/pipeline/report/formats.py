"""Numbers, times and names as people read them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from .queries import as_datetime

#: What nobody reads: UUIDs, and long numbers in base 16.
GENERATED = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-z])[0-9a-f]{16,}(?![0-9a-z])", re.I
)

#: Letters of a name that are shown, and of what was generated.
MAX_NAME, GENERATED_SHOWN = 40, 6

ELLIPSIS = "\u2026"


def shortened(name: str) -> str:
    """The name, shorter if it is long or was generated; the page has the whole of it in an attribute ``title``."""
    text = GENERATED.sub(lambda found: found[0][:GENERATED_SHOWN] + ELLIPSIS, name)
    if len(text) <= MAX_NAME:
        return text
    end = MAX_NAME // 3
    return text[: MAX_NAME - end - 1].rstrip(ELLIPSIS) + ELLIPSIS + text[-end:].lstrip(ELLIPSIS)


def legend_labels(names: Sequence[str]) -> list[str]:
    """The same for the names of one legend: two that would look the same get numbers."""
    found = [shortened(name) for name in names]
    twice = {text for text, count in Counter(found).items() if count > 1}
    seen: Counter[str] = Counter()
    for at, text in enumerate(found):
        if text in twice:
            seen[text] += 1
            found[at] = f"{text} ({seen[text]})"
    return found


#: Between a number and its unit no line is broken.
NBSP = "\u00a0"

_SPANS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def _short(value: float) -> str:
    """Three digits that count, and no zeros behind a point."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.{1 if abs(value) >= 10 else 2}f}"
    return text.rstrip("0").rstrip(".")


def whole(value: float) -> str:
    """Every digit: 1,234,567."""
    return f"{value:,.0f}"


def count(value: float) -> str:
    """How many, in short: 1.23 M. Less than ten thousand are told as they are."""
    if abs(value) < 10_000:
        return whole(value) if value == int(value) else _short(value)
    for unit, name in _THOUSANDS:
        if abs(value) >= unit:
            return f"{_short(value / unit)}{NBSP}{name}"
    return _short(value)


def rate(value: float) -> str:
    """So many a second."""
    return f"{count(value) if value >= 100 or value == int(value) else f'{value:.3g}'}/s"


def size(value: float) -> str:
    """Bytes: 1.5 MiB."""
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return f"{_short(value / unit)}{NBSP}{name}"
    return f"{value:.0f}{NBSP}B"


def span(seconds: float) -> str:
    """A duration, with two digits or three: 12 ms, 3.4 h."""
    if math.isnan(seconds):
        return "–"
    if seconds < 60:
        seconds = float(f"{seconds:.2g}")
    for unit, name in _SPANS:
        if abs(seconds) >= unit * 0.9995:
            value = seconds / unit
            return f"{value:.2g}{NBSP}{name}" if value < 10 else f"{value:.0f}{NBSP}{name}"
    return f"0{NBSP}s" if seconds < 1e-6 else f"{seconds * 1e6:.2g}{NBSP}µs"


def share(value: float) -> str:
    """A share of 1 in per cent. What is less than all is never shown as all, nor more than nothing as nothing."""
    percent = 100 * value
    if 0 < percent < 0.01:
        return f"<0.01{NBSP}%"
    if 99.99 < percent < 100:
        return f">99.99{NBSP}%"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + f"{NBSP}%"


def percent(value: float) -> str:
    """Per cent that somebody asked for: 99.5 %."""
    return f"{value:g}{NBSP}%"


def date(time: int) -> str:
    """A time in µs: 2026-07-01 12:34:56 (UTC)."""
    return as_datetime(time).strftime("%Y-%m-%d %H:%M:%S")
