"""The page of a report: one HTML file without external resources. A section has a title, an explanation, plots and
tables.

A page with interactive plots contains plotly's script and the data of all plots as JSON; other pages have no scripts.
The Content-Security-Policy of the page only allows its own scripts, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import markupsafe

from stompring.pipeline.storage import replace_file

from .findings import (
    ADVISED_QUEUES,
    SINGLE_PLOTS,
    WEIGHTS,
    AddressAdvice,
    Findings,
    ReportRequest,
    RingAdvice,
    Sent,
    addresses_of,
    gather,
    greatest,
    greatest_queues,
    headline,
    plotted,
    slowest,
)
from .plots import (
    NBSP,
    Axis,
    Chart,
    Key,
    Line,
    Plot,
    count_text,
    curve,
    date_text,
    duration_ticks,
    over_time,
    percent_text,
    queue_lines,
    rate_text,
    share_text,
    shortened,
    size_text,
    span_text,
    whole_text,
)
from .queries import (
    COUNTERS,
    PERCENTILES,
    SECOND,
    STEPPED_EVENTS,
    Durations,
    Lake,
    Period,
    QueueTraffic,
    Steps,
    percentile_line,
)


class Cell(NamedTuple):
    """A cell of a table. ``below``: text below it in smaller letters. ``whole``: full name if ``text`` is shortened."""

    text: str
    below: str = ""
    whole: str = ""


class Table(NamedTuple):
    """A table. The first cell of each row is a heading. ``words``: indices of the columns with text, not numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    words: Sequence[int] = (0,)
    note: str = ""


class Section(NamedTuple):
    """A section of the page. ``lead``: explanation of the data and its source. ``empty``: text that is shown if there
    is no data. ``after``: notes below the tables."""

    anchor: str
    title: str
    lead: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    empty: str = ""
    after: Sequence[str] = ()


#: Maximum number of rows in a table. If a table has more, a note tells the number of rows that are not shown.
MAX_ROWS = 25

#: Columns of a table by heading. A column is the name of an attribute of the rows, or a function that returns the cell
#: for a row. If the heading is a tuple of headings, the function returns a tuple of cells. Integers are formatted.
Columns = Mapping[str | tuple[str, ...], str | Callable[[Any], Any]]


def truncated(table: Table) -> Table:
    """Return the table with at most `MAX_ROWS` rows."""
    remainder = len(table.rows) - MAX_ROWS
    if remainder <= 0:
        return table
    note = f"{table.note} {remainder} more rows are not shown: the table has the first {MAX_ROWS}.".strip()
    return table._replace(rows=table.rows[:MAX_ROWS], note=note)


def listed(
    title: str, rows: Iterable[Any], columns: Columns, words: Sequence[int] = (0,), note: str = ""
) -> list[Table]:
    """Return a list with a table of the rows, an empty list without rows."""
    headings: list[str] = []
    for heading in columns:
        headings += [heading] if isinstance(heading, str) else heading
    found = [[*_cells(row, columns)] for row in rows]
    return [truncated(Table(title, headings, found, words, note))] if found else []


def _cells(row: Any, columns: Columns) -> Iterator[Cell | str]:
    for heading, column in columns.items():
        found = attrgetter(column)(row) if isinstance(column, str) else column(row)
        for cell in [found] if isinstance(heading, str) else found:
            yield whole_text(cell) if isinstance(cell, int) else cell


def name_cell(name: str, address: str = "") -> Cell:
    """Return a cell with a shortened name. If the name is that of a queue with another ``address``, the address is
    below."""
    short = shortened(name)
    if name == address or not address:
        return Cell(short, whole=name if short != name else "")
    whole = f"{name} of {address}" if (short, shortened(address)) != (name, address) else ""
    return Cell(short, f"of {shortened(address)}", whole)


def queue_cell(one: Any) -> Cell:
    """Return a cell for an object with the attributes ``queue`` and ``address``."""
    return name_cell(one.queue, one.address)


#: Text of an unknown value.
UNKNOWN = "\u2013"


def queues_plot(
    found: Findings, name: str, kind: str, title: str, label: str, divisor: Any = 1.0
) -> list[Plot]:
    """Plot the field ``kind`` of `Series`, divided by ``divisor``: a line for each of the queues with the greatest
    weights (`WEIGHTS`), and a line for all other queues. Returns an empty list if there are no queues.
    """
    ranked = greatest_queues(found.traffic, WEIGHTS[kind])
    shown = [(one.queue, getattr(found.series[one.queue], kind) / divisor) for one in plotted(ranked)]
    rest = getattr(found.remainder, kind)
    lines = queue_lines(shown, None if rest is None else rest / divisor, len(ranked) - len(shown))
    return [over_time(name, title, found.grid, lines, Axis(label))] if ranked else []


def durations_plot(
    found: Findings,
    name: str,
    title: str,
    every: Mapping[str, Durations],
    steps: Mapping[str, Steps],
    rest: Steps | None,
    index: int,
) -> Plot:
    """Plot a percentile of durations: a line for each queue in ``steps``, and a line for all other queues. ``index``:
    position of the percentile in `PERCENTILES`.
    """
    count = found.hours.count
    lines = queue_lines(
        [(queue, percentile_line(each, count, index)) for queue, each in steps.items()],
        None if rest is None else percentile_line(rest, count, index),
        len(every) - len(steps),
    )
    return over_time(name, title, found.hours, lines, SECONDS)


NO_SAMPLES = (
    "There are no samples in this period. The broker writes samples when journal-retention-directory is set."
)


def depth(found: Findings) -> Section:
    """Return the section on the depth of queues."""
    deep = greatest_queues(found.traffic, WEIGHTS["depth"])
    return Section(
        "depth",
        "Depth over time",
        [
            "Messages in each queue: waiting, scheduled, in delivery or paged; the maximum of each step of "
            f"{span_text(found.grid.seconds)}, and for several queues the sum of these. A line ends when there was "
            "no sample for two hours: the queue was deleted, or the broker was down.",
            "From samples: all messages, durable or not.",
        ],
        queues_plot(found, "depth", "depth", "Messages in queues", "messages"),
        listed(
            "Queues that are not in the plot",
            deep[len(plotted(deep)) :],
            {"queue": queue_cell, "at most": "most", "at the end": "depth"},
        ),
        _empty_text(found, "No queue had a message in any sample of this period."),
    )


def rates(found: Findings) -> Section:
    """Return the section on the rates of queues."""
    busy = greatest_queues(found.traffic, lambda one: one.added + one.out)
    seconds, lasted = step_durations(found), max((found.end - found.begin) / 1e6, 1.0)
    total = found.totals
    values = {
        "in": total["added"],
        "acknowledged": total["acknowledged"],
        "expired or killed": total["expired"] + total["killed"],
        "replaced by rings": total["replaced"],
    }
    lines = [Line(label, each / seconds) for label, each in values.items()]
    shown = [line for at, line in enumerate(lines) if at < 2 or np.nansum(line.values) > 0]
    return Section(
        "rates",
        "Rates in and out",
        [
            f"Messages per second, the mean of each step of {span_text(found.grid.seconds)}. Out are acknowledged, "
            "expired, killed (by an administrator or the limit of deliveries) and replaced (by a ring) messages.",
            "From the counters in samples: all messages, durable or not. Restarts of the broker, which reset the "
            "counters, are taken into account. A message in several queues counts in each.",
        ],
        [
            over_time("rates", "All queues, in and out", found.grid, shown, Axis(PER_SECOND)),
            *queues_plot(found, "into", "added", "Into queues", PER_SECOND, seconds),
        ]
        if busy
        else [],
        listed(
            "By queue",
            busy,
            {
                "queue": queue_cell,
                "in": "added",
                "in, mean": lambda one: rate_text(one.added / lasted),
                **{name: name for name in COUNTERS[1:]},
            },
        ),
        _empty_text(found, "No message entered or left a queue in this period."),
    )


PER_SECOND, PER_STEP = "messages/s", "messages a step"


def queues(found: Findings) -> Section:
    """Return the section on the largest and slowest queues."""
    known = {one.queue: one for one in found.traffic}
    largest = greatest_queues(found.traffic, lambda one: one.size or one.most)
    columns: Columns = {
        "queue": lambda queue: queue_cell(known[queue]) if queue in known else name_cell(queue),
        ("most messages", "most memory", "most in pages"): lambda queue: (
            [known[queue].most, size_text(known[queue].size), known[queue].paged]
            if queue in known
            else [UNKNOWN] * 3
        ),
        ("p50", "p99", "longest"): lambda queue: _times(found.latencies.get(queue), 0, 2),
    }
    return Section(
        "queues",
        "Largest and slowest queues",
        [
            "Maximum depth and memory come from samples; a message in several queues counts in each. The times from "
            "send to acknowledge are those of durable messages."
        ],
        tables=[
            *listed("Largest, by memory", [one.queue for one in largest[:15]], columns),
            *listed("Slowest, by p99", slowest(found.latencies)[:15], columns),
        ],
        empty="No queue had a message in this period.",
    )


def _times(ages: Durations | None, *wanted: int) -> list[str]:
    """Return the texts of some percentiles (positions in `PERCENTILES`) and of the maximum."""
    if ages is None:
        return [UNKNOWN] * (len(wanted) + 1)
    return [span_text(each) for each in (*(ages.percentiles[at] for at in wanted), ages.longest)]


def _empty_text(found: Findings, nothing: str) -> str:
    return nothing if found.traffic else NO_SAMPLES


def peak(found: Findings) -> tuple[float, int] | None:
    """Return the highest rate into all queues together (messages/s), and the start of the step with this rate (µs).
    None if no messages came."""
    into = found.totals["added"]
    if not into.any():
        return None
    each = into / step_durations(found)
    at = int(np.nanargmax(each))
    return float(each[at]), found.grid.start + at * found.grid.step


def step_durations(found: Findings) -> Any:
    """Return for each step the number of its seconds between the first and the last sample of the period, NaN if this
    is less than a tenth of the step."""
    starts = found.grid.starts
    first, last = found.sampled
    lasted = np.minimum(starts + found.grid.step, last) - np.maximum(starts, first)
    # With a single sample no step has enough seconds: use whole steps then.
    enough = lasted >= found.grid.step / 10
    return (
        np.where(enough, lasted / SECOND, np.nan)
        if enough.any()
        else np.full(len(starts), found.grid.seconds)
    )


NO_CONSUMER = "no consumer in the period"

PERCENTILE_NAMES = tuple(f"p{each:g}" for each in PERCENTILES)
SECONDS = Axis("time, log scale", span_text)

DURABLE = (
    "From events of retained messages: durable messages in durable queues, unless the address-setting retain says "
    "otherwise. Other messages have counters only."
)


def coverage_note(found: Findings) -> str:
    """Return a note on the share of the messages that have no events."""
    known = found.coverage
    if known is None:
        return f"{DURABLE} The share of other messages is unknown: there are no samples of this period."
    if not known.missing:
        return f"{DURABLE} There are events of all messages in this period."
    return (
        f"{DURABLE} {share_text(known.share)} of the messages that entered queues have no events "
        f"({whole_text(known.missing)} of {whole_text(known.came)}; see Coverage)."
    )


def latency(found: Findings) -> Section:
    """Return the section on the times from the SEND of messages to their acknowledgement."""
    ages, step = found.latencies, span_text(found.hours.seconds)
    addresses = addresses_of(found.sent, found.traffic)
    columns: Columns = {
        "queue": lambda queue: name_cell(queue, addresses.get(queue, "")),
        **_ages_columns(ages),
    }
    return Section(
        "latency",
        "Time from send to acknowledge",
        [
            "Time from when a message was sent, or was due if it was scheduled, until it was acknowledged. p99 is the "
            f"time that 99 of 100 messages did not exceed; a step of {step} has the messages acknowledged in it. "
            "Percentiles are exact to one per cent.",
            coverage_note(found),
        ],
        [*_latency_plots(found)] if ages else [],
        [*listed("By queue", slowest(ages), columns), *_slowest_steps(found)],
        "No acknowledgement of a durable message is in the lake for this period.",
        _unknown(found, "acknowledged", ages),
    )


def _latency_plots(found: Findings) -> Iterator[Plot]:
    steps = {
        queue: found.latency_steps[queue]
        for queue in slowest(found.latencies)
        if queue in found.latency_steps
    }
    rest = found.remainder.latency
    title = "p99 of each queue" if rest is None else "p99 of queues"
    yield durations_plot(found, "p99", title, found.latencies, steps, rest, 2)
    for index, (queue, each) in enumerate([*steps.items()][:SINGLE_PLOTS]):
        lines = [
            Line(name, percentile_line(each, found.hours.count, at))
            for at, name in reversed([*enumerate(PERCENTILE_NAMES)])
        ]
        yield over_time(f"latency-{index}", queue, found.hours, lines, SECONDS)


def _slowest_steps(found: Findings) -> list[Table]:
    ages = {
        (queue, step): each for queue, steps in found.latency_steps.items() for step, each in steps.items()
    }
    return listed(
        f"The slowest steps of {span_text(found.hours.seconds)}, of the queues in the plots",
        slowest(ages)[:10],
        {
            "queue": lambda key: name_cell(key[0]),
            "from (UTC)": lambda key: date_text(found.hours.start + key[1] * found.hours.step)[:16],
            "messages": lambda key: ages[key].count,
            PERCENTILE_NAMES: lambda key: map(span_text, ages[key].percentiles),
        },
        (0, 1),
    )


def _ages_columns(ages: Mapping[Any, Durations]) -> Columns:
    """Return the columns for durations. The rows of the table are keys of ``ages``."""
    return {
        "acknowledged": lambda key: ages[key].count,
        (*PERCENTILE_NAMES, "longest"): lambda key: _times(ages[key], *range(len(PERCENTILES))),
    }


def _unknown(found: Findings, event: str, ages: Mapping[str, Durations]) -> list[str]:
    missing = found.total(event) - sum(one.count for one in ages.values())
    if missing <= 0:
        return []
    return [f"{whole_text(missing)} more were {event}; the lake does not have their send times."]


def evictions(found: Findings) -> Section:
    """Return the section on messages replaced by rings."""
    some = [one for one in found.traffic if one.ring_size]
    unread = {one.queue for one in found.unread}
    plots = queues_plot(found, "evicted", "replaced", "Messages replaced by rings", PER_STEP)
    if found.evicted:
        plots.append(
            durations_plot(
                found,
                "evicted-age",
                "Median age of replaced messages",
                found.evicted,
                found.evicted_steps,
                found.remainder.evicted,
                0,
            )
        )
    return Section(
        "rings",
        "Messages replaced by rings",
        [
            "A full ring replaces its oldest message by a new one. Numbers and times come from the counters in samples "
            f"(all messages, in steps of {span_text(found.grid.seconds)}); ages come from events.",
            coverage_note(found),
        ],
        plots,
        listed(
            "By ring",
            greatest_queues(found.traffic, WEIGHTS["replaced"]),
            {
                "ring": queue_cell,
                "ring-size": lambda one: one.ring_size or "none now",
                "replaced": "replaced",
                "of all added": lambda one: share_text(one.replaced / one.added) if one.added else UNKNOWN,
                ("age, median", "age, p90", "oldest"): lambda one: _times(found.evicted.get(one.queue), 0, 1),
                "consumers, maximum": lambda one: NO_CONSUMER if one.queue in unread else one.consumers,
            },
        ),
        f"No ring replaced a message: none of the {len(some)} rings was full."
        if some
        else "No ring replaced a message: no queue has a ring-size.",
        _unknown(found, "replaced", found.evicted),
    )


def hot_spots(found: Findings) -> Section:
    """Return the section on redeliveries and dead letters."""
    kinds, addresses = found.counts, addresses_of(found.sent, found.traffic)

    def number(event: str) -> Callable[[str], int]:
        return lambda queue: kinds[queue].get(event, 0)

    hot = [queue for queue in kinds if any(map(kinds[queue].get, (*STEPPED_EVENTS, "moved")))]
    return Section(
        "hot-spots",
        "Redelivery and dead letters",
        [
            "Messages that returned to their queue after a delivery (NACK, closed connection), and messages copied to "
            f"a dead-letter or expiry address, by their original queue; in steps of "
            f"{span_text(found.grid.seconds)}.",
            coverage_note(found),
        ],
        [
            *_hot_plot(found, "redelivered", "Redelivered messages"),
            *_hot_plot(found, "dead-lettered", "Dead letters"),
        ],
        [
            *listed(
                "By queue",
                greatest(hot, lambda queue: sum(kinds[queue].get(event, 0) for event in STEPPED_EVENTS)),
                {
                    "queue": lambda queue: name_cell(queue, addresses.get(queue, "")),
                    "redelivered": number("redelivered"),
                    "per 100 added": lambda queue: _part(
                        kinds[queue].get("redelivered", 0), kinds[queue].get("added", 0)
                    ),
                    "most deliveries": lambda queue: found.deliveries.get(queue, 0),
                    "dead letters": number("dead-lettered"),
                    "moved on expiry": number("moved"),
                },
            ),
            *listed(
                "Messages with most redeliveries",
                found.hottest,
                {
                    "queue": lambda one: name_cell(one.queue),
                    "message number": lambda one: str(one.message_id),
                    "redelivered": "redelivered",
                    "deliveries": "deliveries",
                },
            ),
        ],
        "No durable message was redelivered, and none went to a dead-letter or expiry address.",
    )


def _hot_plot(found: Findings, event: str, title: str) -> list[Plot]:
    steps = found.hot_steps[event]
    names = greatest(steps, lambda queue: steps[queue].sum())
    shown = plotted(names)
    others = [steps[queue] for queue in names[len(shown) :]]
    lines = queue_lines(
        [(queue, steps[queue]) for queue in shown], sum(others) if others else None, len(others)
    )
    return [over_time(event, title, found.grid, lines, Axis(PER_STEP))] if names else []


def _part(some: int, all_: int) -> str:
    return f"{100 * some / all_:.3g}" if all_ else UNKNOWN


NOT_LOGGED_IN = "not logged in"


def consumers(found: Findings) -> Section:
    """Return the section on consumers and users."""
    after = []
    acknowledged = found.total("acknowledged")
    if acknowledged > found.consumer_acknowledged > 0:
        more = whole_text(acknowledged - found.consumer_acknowledged)
        after.append(f"{more} more messages were acknowledged; the lake does not know by which consumer.")
    return Section(
        "consumers",
        "Consumers and users",
        [
            f"Consumers of queues, the maximum of each step of {span_text(found.grid.seconds)}, from samples; and "
            "the messages that each consumer acknowledged and each user sent. The name of a consumer is the client-id "
            "of its connection, or the number of the connection, and the id of its subscription.",
            coverage_note(found),
        ],
        queues_plot(found, "consumers-of", "consumers", "Consumers of queues", "consumers"),
        [
            *_acknowledged(found),
            *listed(
                "Time from send to acknowledge, by queue and consumer: the slowest by p99",
                slowest(found.stays),
                {
                    "queue": lambda pair: name_cell(pair[0]),
                    "consumer": lambda pair: name_cell(pair[1]),
                    **_ages_columns(found.stays),
                },
                (0, 1),
            ),
            *_users(found),
        ],
        "There are no consumers and no users in this period.",
        after,
    )


def _acknowledged(found: Findings) -> list[Table]:
    each = found.consumer_counts
    tables = listed(
        "Acknowledged by consumer",
        each,
        {
            "consumer": lambda one: name_cell(one.consumer),
            "queue": lambda one: name_cell(one.queue),
            "acknowledged": "count",
            "share of the queue": lambda one: share_text(one.count / found.counts[one.queue]["acknowledged"]),
        },
        (0, 1),
    )
    if found.consumer_total <= len(each):
        return tables
    more = whole_text(found.consumer_total - len(each))
    note = f"{more} more consumers acknowledged less than each of the first {len(each)}."
    return [table._replace(note=f"{table.note} {note}".strip()) for table in tables]


def _users(found: Findings) -> list[Table]:
    sent: dict[str, list[Sent]] = {}
    for one in found.sent:
        if one.count:
            sent.setdefault(one.user, []).append(one)
    count = {user: sum(one.count for one in each) for user, each in sent.items()}
    total = sum(count.values())
    return listed(
        "Sent by user",
        greatest(count, count.__getitem__),
        {
            "user": lambda user: name_cell(user or NOT_LOGGED_IN),
            "messages into queues": count.get,
            "of all": lambda user: share_text(count[user] / total),
            "durable": lambda user: sum(one.durable for one in sent[user]),
            "queues": lambda user: len({one.queue for one in sent[user]}),
        },
        note="A message in several queues counts in each.",
    )


def unread(found: Findings) -> Section:
    """Return the section on queues without consumers."""
    return Section(
        "unread",
        "Queues without consumers",
        [
            "Queues with messages that had no consumer in any sample of the period, and no delivery and no "
            "acknowledgement. Such a queue grows until a consumer reads it, or until a limit applies; a ring replaces "
            "its oldest messages.",
        ],
        tables=listed(
            "By queue",
            found.unread,
            {
                "queue": queue_cell,
                "in": "added",
                "at the beginning": "begin",
                "at the end": "depth",
                "growth": _growth,
                "replaced": "replaced",
                "consumers": lambda one: NO_CONSUMER,
            },
            (0, 6),
        ),
        empty=_empty_text(found, "Every queue with messages had a consumer."),
    )


def drain(found: Findings) -> Section:
    """Return the section on the times that queues need to become empty."""
    some = [one for one in found.traffic if one.depth]
    # first the queues with the longest time to drain, last those with an unknown time
    some.sort(key=lambda one: (1.0 if math.isnan(one.drain) else -one.drain, -one.depth, one.queue))
    return Section(
        "drain",
        "Time to drain",
        [
            "Time until a queue with messages at the end of the period is empty, at the rates of the last "
            f"{span_text(found.tail)}. A queue with a higher rate in than out never becomes empty.",
            "From samples: all messages.",
        ],
        tables=listed(
            "By queue",
            some,
            {
                "queue": queue_cell,
                "messages at the end": "depth",
                "growth in the period": _growth,
                "in": lambda one: _rate(one.rate_in),
                "out": lambda one: _rate(one.rate_out),
                "empty in": drain_text,
            },
        ),
        empty=_empty_text(found, "No queue had a message at the end of the period."),
    )


def drain_text(one: QueueTraffic) -> str:
    """Return the time to drain of a queue as text."""
    if math.isnan(one.drain):
        return "unknown: too few samples"
    if math.isfinite(one.drain):
        return span_text(one.drain)
    grows = one.rate_in - one.rate_out
    return f"never, it grows by {rate_text(grows)}" if grows > 0 else "never, the rates are equal"


def _rate(value: float) -> str:
    return UNKNOWN if math.isnan(value) else rate_text(value)


def _growth(one: QueueTraffic) -> str:
    return f"{'+' if one.growth > 0 else ''}{whole_text(one.growth)}".replace("-", MINUS)


def coverage(found: Findings) -> Section:
    """Return the section on messages that are not in the lake."""
    known = found.coverage
    each = [] if known is None else sorted(known.queues, key=lambda one: (-one.missing, one.queue))
    return Section(
        "coverage",
        "Coverage",
        [
            "The share of the messages that the lake has. Counters count every message; rows and events exist for "
            "retained messages only: durable messages in durable queues, unless the address-setting retain says "
            "otherwise. Figures from events cover these messages only. This section counts messages after the first "
            "sample of the period and up to the last one.",
        ],
        tables=listed(
            "By queue",
            each,
            {
                "queue": queue_cell,
                "added": "came",
                "in the lake": "covered",
                "not in the lake": "missing",
                "share not in the lake": lambda one: share_text(one.missing / one.came),
            },
        ),
        empty="The number of messages that are not in the lake is unknown: there are no samples of this period."
        if known is None
        else "No message entered a queue between the first and the last sample of the period.",
    )


#: Maximum number of curves in each section with advice. Other rings and addresses only have a row in the table.
MAX_CURVES = 12


def rings(found: Findings) -> Section:
    """Return the section with advice for ring sizes."""
    keep = percent_text(found.request.keep)
    fine = span_text(max((found.end - found.begin) / 20_000 / 1e6, 1e-6))
    note = "Memory is the size times the mean memory of a message of the queue."
    if len(found.rings) == ADVISED_QUEUES:
        note += f" There is advice for the {ADVISED_QUEUES} rings that replaced most."
    unread = [one for one in found.unread if one.ring_size and one.replaced]
    return Section(
        "ring-sizes",
        "Advice: ring-size",
        [
            f"The ring-size that would have kept {keep} of the messages that each ring replaced, and the share that "
            "other sizes would have kept.",
            f"The advice is simulated: added messages and acknowledged, expired or killed messages, in buckets of "
            f"{fine}, pass through rings of other sizes. In a bucket, departures are spread evenly between arrivals. "
            "Consumers take the same messages at the same times; consumers that emptied the ring would have emptied a "
            "larger ring too. A message counts until it is acknowledged, although a message in delivery does not fill "
            "a real ring. “By the model” is the number of messages that the simulation replaces with the actual size: "
            "the closer it is to the number replaced, the better is the advice.",
        ],
        [
            _ring_plot(f"ring-{at}", one, keep)
            for at, one in enumerate(found.rings[:MAX_CURVES])
            if one.modelled
        ],
        [
            *listed(
                "Sizes",
                found.rings,
                {
                    "ring": lambda one: queue_cell(one.ring),
                    "size now": "ring.ring_size",
                    "replaced": "ring.replaced",
                    "by the model": "modelled",
                    (f"size for {keep}", "memory", "size for all"): _advised_sizes,
                    "from": lambda one: "events" if one.by_events else "samples",
                },
                (0, 7),
                note,
            ),
            *listed(
                "Rings without consumers",
                unread,
                {
                    "ring": queue_cell,
                    "size now": "ring_size",
                    "replaced": "replaced",
                    "advice": lambda one: f"none: {NO_CONSUMER}",
                },
                (0, 3),
                "A ring without consumers replaces messages at any size.",
            ),
        ],
        "No ring replaced a message, so no ring was too small.",
    )


def _advised_sizes(one: RingAdvice) -> list[Any]:
    if not one.modelled:
        return ["none", UNKNOWN, UNKNOWN]
    return [one.size, size_text(one.memory) if one.ring.average else "unknown", one.enough]


def _ring_plot(name: str, one: RingAdvice, keep: str) -> Plot:
    label = f"{keep}: ring-size {whole_text(one.size)}"
    if one.ring.average:
        label += f", about {size_text(one.memory)}"
    return curve(
        name,
        one.ring.queue,
        one.sizes,
        Line("kept of the replaced messages", 100 * one.retained),
        (Axis("ring-size (messages)"), Axis("% kept", percent=True)),
        one.size,
        label,
    )


def addresses(found: Findings) -> Section:
    """Return the section with advice for limits of addresses."""
    share = percent_text(found.request.unpaged)
    return Section(
        "address-sizes",
        "Advice: max-size-bytes",
        [
            f"The max-size-bytes with which each paging address would have had all its messages in memory {share} of "
            "the time, and the share of the time for other limits.",
            "The advice comes from samples: the bytes in memory, plus the messages that are only on disk times the "
            "mean size of those in memory. A message in several queues of its address counts in each, although it is "
            "in memory once: for topics the advice is an upper bound. Consumers are assumed to be unchanged.",
        ],
        [_address_plot(f"address-{at}", one, share) for at, one in enumerate(found.addresses[:MAX_CURVES])],
        listed(
            "Limits",
            found.addresses,
            {
                "address": lambda one: name_cell(one.demand.address),
                "on disk only, of the time": lambda one: share_text(one.paging),
                "mean message": lambda one: size_text(one.demand.average),
                f"bytes for {share}": "size",
                "that is": lambda one: size_text(one.size),
                "for all the time": lambda one: size_text(one.enough),
            },
        ),
        "Addresses paged, but no sample has one of their messages in memory: their size is unknown."
        if any(one.paged for one in found.traffic)
        else "No address paged in this period.",
    )


def _address_plot(name: str, one: AddressAdvice, share: str) -> Plot:
    return curve(
        name,
        one.demand.address,
        one.sizes,
        Line("time with all messages in memory", 100 * one.unpaged),
        (Axis("max-size-bytes", size_text), Axis("% of the time", percent=True)),
        one.size,
        f"{share}: {whole_text(one.size)} bytes, {size_text(one.size)}",
    )


class Scripts(NamedTuple):
    """Scripts of a page in their order, and the data of its plots: JSON in which ``<`` is escaped."""

    sources: Sequence[str]
    data: str

    @property
    def policy(self) -> str:
        """Hashes of the scripts for ``script-src`` of the Content-Security-Policy."""
        hashes = (hashlib.sha256(source.encode()).digest() for source in self.sources)
        return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in hashes)


def scripts(sections: Sequence[Section]) -> Scripts:
    """Return the scripts for all plots of the sections. plotly's script has 5 MB."""
    from plotly.offline import get_plotlyjs

    own = Path(__file__).with_name("templates").joinpath("interactive.js").read_text(encoding="utf-8")
    plots = [described(plot) for section in sections for plot in section.plots]
    data = json.dumps(plots, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return Scripts([get_plotlyjs(), own], data)


def described(plot: Plot) -> dict[str, Any]:
    """Return a plot as an object for ``interactive.js``. Times are epoch ms."""
    chart = plot.chart
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
        "lines": [_line(chart.upright, line, key) for line, key in zip(chart.lines, plot.keys, strict=False)],
        "ticks": _ticks(chart),
    }


def _line(axis: Axis, line: Line, key: Key) -> dict[str, Any]:
    values = _numbers(line.values)
    found = {"label": line.label, "whole": line.whole or line.label, "colour": key.colour, "y": values}
    found["dash"] = {"none": "solid", "1 2": "dot"}.get(key.dash, "dash")
    # plotly cannot format durations and bytes like the rest of the page: add texts
    if not axis.percent and axis.text is not count_text:
        found["text"] = [None if value is None else axis.text(value) for value in values]
    return found


def _ticks(chart: Chart) -> dict[str, Any] | None:
    """Return positions and texts of the ticks of a duration axis, None for other axes."""
    if chart.upright.text is not span_text:
        return None
    known = [value for line in chart.lines for value in np.asarray(line.values).tolist() if value > 0]
    positions = duration_ticks(min(known) / 2, max(known) * 2) if known else []
    return {"places": positions, "texts": [span_text(each) for each in positions]}


def _numbers(values: Any) -> list[float | None]:
    """Return values with six significant digits, None for unknown ones."""
    return [
        float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, float).tolist()
    ]


MINUS = "\u2212"


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


def numbers(found: Findings) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each figure of the headline: its name, its short and full text, and its change since the previous
    period."""
    before = None if found.comparison is None else found.comparison.figures
    for name, number in headline(found.sent, found.traffic, found.counts).items():
        change = "" if before is None else change_text(before[name], number)
        yield HEADLINE[name], count_text(number), whole_text(number), change
    known, missing = found.coverage, "of messages not in the lake"
    if known is None:
        yield missing, "unknown", "there are no samples", ""
    else:
        yield missing, share_text(known.share), f"{known.missing:,} of {known.came:,}", ""
    without = len(found.unread)
    yield "queues without consumers", count_text(without), whole_text(without), ""


def change_text(before: int, now: int) -> str:
    """Return the change of a number in per cent as text."""
    if now == before:
        return "as before"
    if not before:
        return "0 before"
    part = 100 * (now - before) / before
    text = f"{abs(part):.0f}" if abs(part) >= 10 else f"{abs(part):.2g}"
    return f"{'+' if part > 0 else MINUS}{text}{NBSP}%"


#: A sentence of the summary: the anchor of the section with details, a format string, and the values for this string.
#: Values are escaped unless they are markup.
Sentence = tuple[Any, ...]


def sentences(found: Findings) -> Iterator[Sentence]:
    """Yield the sentences of the summary."""
    known = found.coverage
    if known is None:
        yield (
            "coverage",
            "There are no samples of this period: the number of messages that are not in the lake is unknown.",
        )
    elif known.missing:
        yield (
            "coverage",
            "{} of the messages that entered queues are not in the lake ({:,} of {:,}), because they were not "
            "retained: times, redeliveries and dead letters cover the others.",
            share_text(known.share),
            known.missing,
            known.came,
        )
    for deepest in greatest_queues(found.traffic, WEIGHTS["depth"])[:1]:
        yield (
            "depth",
            "The deepest queue was {}: at most {:,} messages, {:,} at the end.",
            name_markup(deepest.queue),
            deepest.most,
            deepest.depth,
        )
    high = peak(found)
    if high is not None:
        yield (
            "rates",
            "The highest rate was at {} UTC: {} into all queues, the mean of {}.",
            date_text(high[1])[:16],
            rate_text(high[0]),
            span_text(found.grid.seconds),
        )
    for slow in slowest(found.latencies)[:1]:
        ages = found.latencies[slow]
        yield (
            "latency",
            "The slowest queue was {}: one in a hundred messages was acknowledged later than {} "
            "after it was sent; half of them within {}.",
            name_markup(slow),
            span_text(ages.percentiles[2]),
            span_text(ages.percentiles[0]),
        )
    unread = found.unread
    if unread:
        yield (
            "unread",
            "{} had no consumer in the period; {} received most messages, {:,}.",
            _number_of(unread, "queue"),
            name_markup(unread[0].queue),
            unread[0].added,
        )
    rates = [(one.rate_in - one.rate_out, one.queue) for one in found.traffic if one.depth]
    growing = [each for each in rates if each[0] > 0]
    if growing:
        rate, queue = max(growing)
        yield (
            "drain",
            "{} grew at the end of the period; most of all {}, by {}.",
            _number_of(growing, "queue"),
            name_markup(queue),
            rate_text(rate),
        )
    lost = greatest_queues(found.traffic, WEIGHTS["replaced"])
    if lost:
        most, evicted = lost[0], found.evicted.get(lost[0].queue)
        yield (
            "rings",
            "{} replaced {:,} messages; {} replaced most, {:,}{}.",
            _number_of(lost, "ring"),
            sum(one.replaced for one in lost),
            name_markup(most.queue),
            most.replaced,
            "" if evicted is None else f", half of which were older than {span_text(evicted.percentiles[0])}",
        )
        for advice in [each for each in found.rings if each.modelled][:1]:
            yield (
                "ring-sizes",
                "A ring-size of {:,} instead of {:,} would have kept {} of the messages that {} replaced.",
                advice.size,
                advice.ring.ring_size,
                percent_text(found.request.keep),
                name_markup(advice.ring.queue),
            )
    else:
        yield ("rings", "No ring replaced a message.")
    for event, text in (
        ("redelivered", "{:,} redeliveries; most in {}, {:,}."),
        ("dead-lettered", "{:,} messages went to a dead-letter address; most from {}, {:,}."),
    ):
        counts = {queue: kinds[event] for queue, kinds in found.counts.items() if kinds.get(event)}
        for first in greatest(counts, counts.__getitem__)[:1]:
            yield ("hot-spots", text, sum(counts.values()), name_markup(first), counts[first])
    if found.addresses:
        one = max(found.addresses, key=lambda one: one.paging)
        yield (
            "address-sizes",
            "{} had messages only on disk {} of the time; with a max-size-bytes of {:,} ({}) all of them would "
            "have been in memory {} of the time.",
            name_markup(one.demand.address),
            share_text(one.paging),
            one.size,
            size_text(one.size),
            percent_text(found.request.unpaged),
        )


def name_markup(name: str) -> Any:
    """Return the markup of a name in a sentence. A shortened name has the full name as its ``title``."""
    if shortened(name) == name:
        return markupsafe.Markup("<b><bdi>{}</bdi></b>").format(name)
    return markupsafe.Markup('<b><bdi title="{}">{}</bdi></b>').format(name, shortened(name))


def _number_of(some: Sequence[object], noun: str) -> str:
    return f"One {noun}" if len(some) == 1 else f"{len(some)} {noun}s"


#: Kinds of plots: as SVG (``static``), with plotly (``interactive``), or both.
PLOTS = ("static", "interactive", "both")


def page(found: Findings | None, request: ReportRequest, made: datetime, plots: str = "static") -> str:
    """Return the HTML of a report. ``found``: None if the lake has no data. ``plots``: one of `PLOTS`."""
    # autoescape is required, because clients choose the names of queues. Only markup of this package is not escaped.
    environment = Environment(
        loader=PackageLoader("stompring.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = [] if found is None else page_sections(found)
    return str(
        environment.get_template("report.html").render(
            found=found,
            date=date_text,
            span=span_text,
            numbers=numbers,
            sentences=sentences,
            made=made.strftime("%Y-%m-%d %H:%M"),
            asked=_request_text(request),
            sections=parts,
            plots=plots,
            scripts=scripts(parts) if plots != "static" and parts else None,
        )
    )


def page_sections(found: Findings) -> list[Section]:
    """Return all sections in their order on the page."""
    made = (
        depth,
        rates,
        unread,
        drain,
        consumers,
        latency,
        evictions,
        hot_spots,
        queues,
        coverage,
        rings,
        addresses,
    )
    return [section(found) for section in made]


def _request_text(request: ReportRequest) -> str:
    """Return a text for the selection of a report: period, addresses and brokers."""
    since, until = request.period.begin, request.period.end
    parts = [
        "" if since is None else f"since {date_text(since)}",
        "" if until is None else f"until {date_text(until)}",
        f"of the addresses {', '.join(request.addresses)}" if request.addresses else "",
        f"of the brokers {', '.join(request.brokers)}" if request.brokers else "",
    ]
    return ", ".join(filter(None, parts)) or "everything in the lake"


def write_report(
    tables: Lake,
    out: Path,
    period: Period | None = None,
    addresses: Sequence[str] = (),
    *,
    keep: float = 99.0,
    unpaged: float = 99.0,
    brokers: Sequence[str] = (),
    compare: bool = True,
    plots: str = "static",
    progress: Callable[[str], None] = lambda part: None,
) -> bool:
    """Write the report on a lake to ``out``, a self-contained HTML file. Returns False if the lake has no data for it.

    ``tables``: the DataFrames ``messages``, ``events`` and ``samples`` of one SparkSession; docs/report.md lists their
    columns. The report does not read bodies and headers. ``addresses``: patterns with ``*`` and ``#``, empty: all.
    ``keep``: the advised size of a ring keeps this per cent of the messages that the ring replaced. ``unpaged``: with
    its advised limit an address does not page in this per cent of the time. ``brokers``: names of brokers; empty: all.
    ``compare``: whether to compare with the previous period if ``period`` has a beginning. ``plots``: ``static``,
    ``interactive`` or ``both``. ``progress``: called with the name of each part of the work when this part begins.

    The file is replaced atomically. If the lake has no data in the period, the page contains a note. Raises ValueError
    for invalid arguments, OSError if the file cannot be written, and Spark's exceptions.
    """
    if plots not in PLOTS:
        raise ValueError(f"plots must be one of {', '.join(PLOTS)}")
    request = ReportRequest(period or Period(), tuple(addresses), keep, unpaged, tuple(brokers), compare)
    found = gather(tables, request, progress)
    progress("page")
    replace_file(out, page(found, request, datetime.now(UTC), plots).encode())
    return found is not None
