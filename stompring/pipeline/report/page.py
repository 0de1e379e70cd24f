"""The page: one HTML file that needs no other file and no network, and no script without interactive plots.

Interactive plots are plotly's: its script once in the page, and the data as JSON beside it. The page's
Content-Security-Policy allows the scripts that it has, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import markupsafe

from stompring.pipeline.report import formats
from stompring.pipeline.report import sections as event_sections
from stompring.pipeline.report import sections as reading_sections
from stompring.pipeline.report import sections as sizing_sections
from stompring.pipeline.report import sections as traffic_sections
from stompring.pipeline.report.findings import Findings, ReportRequest, gather, greatest_queues
from stompring.pipeline.report.formats import shortened
from stompring.pipeline.report.period import Period
from stompring.pipeline.report.plots import Chart, Plot, style
from stompring.pipeline.report.sections import Section, peak, uncertainty_notes
from stompring.pipeline.report.tables import Tables


@dataclass(frozen=True, slots=True)
class Scripts:
    """What goes into a page: scripts, in their order, and data as JSON that no HTML ends."""

    sources: Sequence[str]
    data: str

    @property
    def policy(self) -> str:
        """For `script-src`: their hashes."""
        hashes = (hashlib.sha256(source.encode()).digest() for source in self.sources)
        return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in hashes)


def scripts(sections: Sequence[Section]) -> Scripts:
    """For all plots of the sections. It brings plotly's script, of 5 MB."""
    from plotly.offline import get_plotlyjs

    own = files("stompring.pipeline.report").joinpath("templates/interactive.js").read_text(encoding="utf-8")
    plots = [described(plot) for section in sections for plot in section.plots if plot.chart is not None]
    data = json.dumps(plots, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return Scripts([get_plotlyjs(), own], data)


def described(plot: Plot) -> dict[str, Any]:
    """A plot as `interactive.js` wants it. Its dates are milliseconds since the epoch."""
    chart = plot.chart
    assert chart is not None
    time = chart.level is None
    return {
        "name": plot.name,
        "x": [value // 1000 for value in chart.across.tolist()] if time else _numbers(chart.across),
        "time": time,
        "xlabel": "" if chart.level is None else chart.level.label,
        "ylabel": chart.upright.label,
        "logx": chart.logarithmic,
        "logy": bool(plot.scale),
        "percent": chart.upright.percent,
        "mark": chart.mark,
        "lines": [
            _line(chart, line, key.colour, key.dash)
            for line, key in zip(chart.lines, style(chart.lines), strict=True)
        ],
        "ticks": _ticks(plot),
    }


def _line(chart: Chart, line: Any, colour: str, dash: str) -> dict[str, Any]:
    values = _numbers(line.values)
    found = {"label": line.label, "whole": line.whole or line.label, "colour": colour, "y": values}
    found["dash"] = {"none": "solid", "1 2": "dot"}.get(dash, "dash")
    # Numbers are told as elsewhere on the page: a script would have to know durations and bytes.
    if not chart.upright.percent and chart.upright.text is not formats.count:
        found["text"] = [None if value is None else chart.upright.text(value) for value in values]
    return found


def _ticks(plot: Plot) -> dict[str, Any] | None:
    """Places and texts on an axis of bytes or durations."""
    chart = plot.chart
    assert chart is not None
    from stompring.pipeline.report.plots import duration_ticks

    if chart.upright.text is not formats.span:
        return None
    known = [value for line in chart.lines for value in np.asarray(line.values).tolist() if value > 0]
    positions = duration_ticks(min(known) / 2, max(known) * 2) if known else []
    return {"places": positions, "texts": [formats.span(each) for each in positions]}


def _numbers(values: Any) -> list[float | None]:
    """Six digits that count; None for what is not known."""
    return [
        float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, float).tolist()
    ]


MINUS = "\u2212"


@dataclass(frozen=True, slots=True)
class HeadlineNumber:
    """One of the headline: in short, with all its digits, and how it has changed since the period before."""

    name: str
    short: str
    all: str
    change: str = ""


def figures(found: Findings) -> dict[str, int]:
    """What is counted, by the names that `Comparison` has too."""
    return {
        "in": sum(one.added for one in found.traffic),
        "out": sum(one.out for one in found.traffic),
        "sent": sum(one.count for one in found.sent),
        "durable": sum(one.durable for one in found.sent),
        "queues": len(found.queue_names),
        "replaced": sum(one.replaced for one in found.traffic),
        "redelivered": found.total("redelivered"),
        "dead-lettered": found.total("dead-lettered"),
    }


HEADLINE = {
    "in": "messages added to queues",
    "out": "removed from queues",
    "sent": "in the lake, sent in the period",
    "durable": "of these durable",
    "queues": "queues",
    "replaced": "replaced by rings",
    "redelivered": "redelivered",
    "dead-lettered": "dead letters",
}


def numbers(found: Findings) -> list[HeadlineNumber]:
    """The headline."""
    before = None if found.comparison is None else found.comparison.figures
    headline = [
        HeadlineNumber(
            HEADLINE[name],
            formats.count(number),
            formats.whole(number),
            "" if before is None else change_text(before[name], number),
        )
        for name, number in figures(found).items()
    ]
    known = found.coverage
    if known is None:
        headline.append(HeadlineNumber("of messages not in the lake", "unknown", "there are no samples"))
    else:
        all_ = f"{formats.whole(known.missing)} of {formats.whole(known.came)}"
        headline.append(HeadlineNumber("of messages not in the lake", formats.share(known.share), all_))
    without = len(found.unread)
    headline.append(
        HeadlineNumber("queues without consumers", formats.count(without), formats.whole(without))
    )
    return headline


def change_text(before: int, now: int) -> str:
    """By how many per cent a number is more or less than before."""
    if not before:
        return "0 before" if now else "as before"
    if now == before:
        return "as before"
    part = 100 * (now - before) / before
    text = f"{abs(part):.0f}" if abs(part) >= 10 else f"{abs(part):.2g}"
    return f"{'+' if part > 0 else MINUS}{text}{formats.NBSP}%"


def sentences(found: Findings) -> Iterator[tuple[str, Any]]:
    """The biggest findings, with the section that tells more. Names are escaped."""
    yield from _coverage_sentence(found)
    deep = greatest_queues(found.traffic, lambda one: one.most, 1)
    if deep:
        text = markupsafe.Markup("The deepest queue was {}: at most {} messages, {} at the end.")
        yield (
            "depth",
            text.format(
                name_markup(deep[0].queue), formats.whole(deep[0].most), formats.whole(deep[0].depth)
            ),
        )
    high = peak(found)
    if high is not None:
        text = markupsafe.Markup("The highest rate was at {} UTC: {} into all queues, the mean of {}.")
        yield (
            "rates",
            text.format(formats.date(high[1])[:16], formats.rate(high[0]), formats.span(found.grid.seconds)),
        )
    if found.latencies:
        slow = max(sorted(found.latencies), key=lambda queue: found.latencies[queue].percentiles[2])
        ages = found.latencies[slow]
        text = markupsafe.Markup(
            "The slowest queue was {}: one in a hundred messages was acknowledged later than {} "
            "after it was sent; half of them within {}."
        )
        yield (
            "latency",
            text.format(
                name_markup(slow), formats.span(ages.percentiles[2]), formats.span(ages.percentiles[0])
            ),
        )
    yield from _unread(found)
    yield from _growing(found)
    yield from _rings(found)
    yield from _hot(found)
    yield from _uncertainty_sentences(found)
    if found.addresses:
        one = max(found.addresses, key=lambda one: one.paging)
        text = markupsafe.Markup(
            "{} had messages only on disk {} of the time; with a max-size-bytes of {} ({}) all of them would "
            "have been in memory {} of the time."
        )
        yield (
            "address-sizes",
            text.format(
                name_markup(one.demand.address),
                formats.share(one.paging),
                formats.whole(one.size),
                formats.size(one.size),
                formats.percent(found.request.unpaged),
            ),
        )


def name_markup(name: str) -> Any:
    """A name in a sentence, escaped; the whole of it in its title if it is shortened."""
    if shortened(name) == name:
        return markupsafe.Markup("<b><bdi>{}</bdi></b>").format(name)
    return markupsafe.Markup('<b><bdi title="{}">{}</bdi></b>').format(name, shortened(name))


def comparison_note(found: Findings) -> str:
    """With what the headline is compared, or why it is not."""
    one = found.comparison
    if one is None:
        return ""
    period = f"{formats.date(one.begin)} to {formats.date(one.end)}"
    if one.figures is not None:
        return f"Changes are relative to the previous period of the same length: {period}."
    why = f"the lake begins at {formats.date(one.first)}" if one.first else "the lake has no data of it"
    return f"There is no comparison with the previous period, {period}: {why}."


def _coverage_sentence(found: Findings) -> Iterator[tuple[str, Any]]:
    known = found.coverage
    if known is None:
        yield (
            "coverage",
            markupsafe.Markup(
                "There are no samples of this period: the number of messages that are not in the lake is unknown."
            ),
        )
    elif known.missing:
        text = markupsafe.Markup(
            "{} of the messages that entered queues are not in the lake ({} of {}), because they were not retained: "
            "times, redeliveries and dead letters cover the others."
        )
        yield (
            "coverage",
            text.format(formats.share(known.share), formats.whole(known.missing), formats.whole(known.came)),
        )


def _uncertainty_sentences(found: Findings) -> Iterator[tuple[str, Any]]:
    for sentence in uncertainty_notes(found):
        yield "hot-spots", sentence


def _unread(found: Findings) -> Iterator[tuple[str, Any]]:
    unread = found.unread
    if not unread:
        return
    who = "One queue had no consumer" if len(unread) == 1 else f"{len(unread)} queues had no consumer"
    text = markupsafe.Markup("{} in the period; {} received most messages, {}.")
    yield "unread", text.format(who, name_markup(unread[0].queue), formats.whole(unread[0].added))


def _growing(found: Findings) -> Iterator[tuple[str, Any]]:
    growing = [one for one in found.traffic if one.depth and one.rate_in > one.rate_out]
    if not growing:
        return
    first = max(growing, key=lambda one: (one.rate_in - one.rate_out, one.queue))
    who = "One queue grew" if len(growing) == 1 else f"{len(growing)} queues grew"
    text = markupsafe.Markup("{} at the end of the period; most of all {}, by {}.")
    yield "drain", text.format(who, name_markup(first.queue), formats.rate(first.rate_in - first.rate_out))


def _rings(found: Findings) -> Iterator[tuple[str, Any]]:
    lost = greatest_queues(found.traffic, lambda one: one.replaced, len(found.traffic))
    if not lost:
        yield "rings", markupsafe.Markup("No ring replaced a message.")
        return
    first, ages = lost[0], found.evicted.get(lost[0].queue)
    text = markupsafe.Markup("{} replaced {} messages; {} replaced most, {}{}.")
    old = "" if ages is None else f", half of which were older than {formats.span(ages.percentiles[0])}"
    who = "One ring" if len(lost) == 1 else f"{len(lost)} rings"
    yield (
        "rings",
        text.format(
            who,
            formats.whole(sum(one.replaced for one in lost)),
            name_markup(first.queue),
            formats.whole(first.replaced),
            old,
        ),
    )
    advised = [one for one in found.rings if one.modelled]
    if advised:
        ring = advised[0]
        text = markupsafe.Markup(
            "A ring-size of {} instead of {} would have kept {} of the messages that {} replaced."
        )
        yield (
            "ring-sizes",
            text.format(
                formats.whole(ring.size),
                formats.whole(ring.ring.ring_size),
                formats.percent(found.request.keep),
                name_markup(ring.ring.queue),
            ),
        )


def _hot(found: Findings) -> Iterator[tuple[str, Any]]:
    for event, text in (
        (
            "redelivered",
            "{} redeliveries; most in {}, {}.",
        ),
        (
            "dead-lettered",
            "{} messages went to a dead-letter address; most from {}, {}.",
        ),
    ):
        counts = {queue: kinds[event] for queue, kinds in found.counts.items() if kinds.get(event)}
        if counts:
            first = max(sorted(counts), key=lambda queue: counts[queue])
            yield (
                "hot-spots",
                markupsafe.Markup(text).format(
                    formats.whole(sum(counts.values())), name_markup(first), formats.whole(counts[first])
                ),
            )


#: Kinds of plots: pictures, plots that answer to a pointer, or both.
PLOTS = ("static", "interactive", "both")


def page(found: Findings | None, request: ReportRequest, made: datetime, plots: str = "static") -> str:
    """The HTML of a report; ``found`` is None where there is nothing to report, ``plots`` one of `PLOTS`."""
    # Names of queues are whatever clients make them: everything is escaped but what this package wrote itself.
    environment = Environment(
        loader=PackageLoader("stompring.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["trusted"] = markupsafe.Markup
    parts = [] if found is None else page_sections(found)
    return str(
        environment.get_template("report.html").render(
            made=made.strftime("%Y-%m-%d %H:%M"),
            request=request,
            asked=_request_text(request),
            period=None if found is None else _period(found),
            numbers=[] if found is None else numbers(found),
            sentences=[] if found is None else list(sentences(found)),
            sections=parts,
            compared="" if found is None else comparison_note(found),
            plots=plots,
            scripts=scripts(parts) if plots != "static" and parts else None,
        )
    )


def page_sections(found: Findings) -> list[Section]:
    """All parts, in their order on the page."""
    return [
        traffic_sections.depth(found),
        traffic_sections.rates(found),
        reading_sections.unread(found),
        reading_sections.drain(found),
        reading_sections.consumers(found),
        event_sections.latency(found),
        event_sections.evictions(found),
        event_sections.hot_spots(found),
        traffic_sections.queues(found),
        reading_sections.coverage(found),
        sizing_sections.rings(found),
        sizing_sections.addresses(found),
    ]


def _period(found: Findings) -> dict[str, Any]:
    return {
        "begin": formats.date(found.begin),
        "end": formats.date(found.end),
        "length": formats.span((found.end - found.begin) / 1e6),
    }


def _request_text(request: ReportRequest) -> str:
    """What was asked for, in words."""
    since, until = request.period.begin, request.period.end
    parts = [
        "" if since is None else f"since {formats.date(since)}",
        "" if until is None else f"until {formats.date(until)}",
        f"of the addresses {', '.join(request.addresses)}" if request.addresses else "",
        f"of the brokers {', '.join(request.brokers)}" if request.brokers else "",
    ]
    return ", ".join(filter(None, parts)) or "everything in the lake"


def _silent(stage: str) -> None:
    """Nobody wants to know."""


def write_report(
    tables: Tables,
    out: Path,
    period: Period | None = None,
    addresses: Sequence[str] = (),
    *,
    keep: float = 99.0,
    unpaged: float = 99.0,
    brokers: Sequence[str] = (),
    compare: bool = True,
    plots: str = "static",
    progress: Callable[[str], None] = _silent,
) -> bool:
    """Write the report on a lake to ``out``, an HTML file that needs no other; whether there was anything to report.

    ``tables`` has the DataFrames ``messages``, ``events`` and ``samples`` (`Lake` will do), of one SparkSession; their
    columns are in docs/report.md. Bodies and headers are never read. ``addresses`` are patterns with ``*`` and ``#``,
    none for all. ``keep``: of what a ring threw away so many per cent should have been kept; ``unpaged``: so many per
    cent of the time an address should not have paged. ``brokers`` are those of a lake of several, none for all.
    ``compare``: with the period before, where ``period`` has a beginning. ``plots`` is ``static``, ``interactive`` or
    ``both``. ``progress`` is called with a few words as each part of the work begins.

    The file is there as a whole or not at all; one that was there stays until then. Where there is nothing in the
    period the page says so. Raises ValueError for arguments that cannot be, OSError where the file cannot be written,
    and what Spark raises.
    """
    if plots not in PLOTS:
        raise ValueError(f"plots must be one of {', '.join(PLOTS)}")
    request = ReportRequest(period or Period(), tuple(addresses), keep, unpaged, tuple(brokers), compare)
    found = gather(tables, request, progress)
    progress("page")
    _replace(out, page(found, request, formats.now(), plots))
    return found is not None


def _replace(out: Path, text: str) -> None:
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=out.parent, prefix=f".{out.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, out)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise


def _umask() -> int:
    """As a file has it that is simply opened: temporary ones are for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
