"""The page of a report and its sections.

The sections of the page: each has a title, an explanation, plots and tables.

The page: one HTML file that needs no other file and no network, and no script without interactive plots.

Interactive plots are plotly's: its script once in the page, and the data as JSON beside it. The page's
Content-Security-Policy allows the scripts that it has, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import markupsafe

from . import formats
from .findings import (
    ADVISED_QUEUES,
    SINGLE_PLOTS,
    AddressAdvice,
    Findings,
    ReportRequest,
    RingAdvice,
    gather,
    greatest,
    greatest_queues,
    plotted_count,
)
from .formats import shortened
from .plots import Axis, Chart, Line, Plot, curve, over_time, queue_lines, style
from .queries import PERCENTILES, SECOND, Durations, Period, QueueTraffic, Tables, percentile_line


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and a lesser one below it; ``whole`` is the name that the text is short for."""

    text: str
    below: str = ""
    whole: str = ""


Rows = list[list[Cell | str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; the first cell of each row is its heading. Those of ``words`` are no numbers."""

    title: str
    headings: Sequence[str]
    rows: Rows
    words: frozenset[int] = frozenset({0})
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. ``lead`` says what is shown and where it is from, ``empty`` why there is nothing to show."""

    anchor: str
    title: str
    lead: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    empty: str = ""
    after: Sequence[str] = field(default=())


#: Rows of a table; the ones after them are counted.
MAX_ROWS = 25


def truncated(table: Table, most: int = MAX_ROWS) -> Table:
    """The table, with no more rows than anybody reads."""
    remainder = len(table.rows) - most
    if remainder <= 0:
        return table
    note = f"{table.note} {remainder} more rows are not shown: the table has the first {most}.".strip()
    return Table(table.title, table.headings, table.rows[:most], table.words, note)


def queue_cell(queue: str, address: str) -> Cell:
    """The name of a queue, and its address where that is another."""
    if queue == address or not address:
        return name_cell(queue)
    whole = f"{queue} of {address}" if (shortened(queue), shortened(address)) != (queue, address) else ""
    return Cell(shortened(queue), f"of {shortened(address)}", whole)


def name_cell(name: str) -> Cell:
    """A name, shortened if it must be."""
    return Cell(shortened(name), whole=name if shortened(name) != name else "")


NO_SAMPLES = (
    "There are no samples in this period. The broker writes samples when journal-retention-directory is set."
)


def depth(found: Findings) -> Section:
    """Depth over time per queue."""
    deep = greatest_queues(found.traffic, lambda one: one.most, len(found.traffic))
    step = formats.span(found.grid.seconds)
    section = Section(
        "depth",
        "Depth over time",
        [
            f"Messages in each queue: waiting, scheduled, in delivery or paged; the maximum of each step of {step}, "
            "and for several queues the sum of these. A line ends when there was no sample for two hours: the queue "
            "was deleted, or the broker was down.",
            "From samples: all messages, durable or not.",
        ],
        empty=_empty_text(found, "No queue had a message in any sample of this period."),
    )
    if not deep:
        return section
    shown = deep[: plotted_count(deep)]
    remainder = deep[len(shown) :]
    lines = queue_lines(
        [(one.queue, found.series[one.queue].depth) for one in shown], found.remainder.depth, len(remainder)
    )
    plot = over_time("depth", "Messages in queues", found.grid, lines, Axis("messages"))
    tables = []
    if remainder:
        rows: Rows = [
            [queue_cell(one.queue, one.address), formats.whole(one.most), formats.whole(one.depth)]
            for one in remainder
        ]
        tables.append(
            truncated(Table("Queues that are not in the plot", ["queue", "at most", "at the end"], rows))
        )
    return Section(section.anchor, section.title, section.lead, [plot], tables)


def rates(found: Findings) -> Section:
    """Rates in and out."""
    seconds = step_durations(found)
    busy = greatest_queues(found.traffic, lambda one: one.added + one.out, len(found.traffic))
    section = Section(
        "rates",
        "Rates in and out",
        [
            f"Messages per second, the mean of each step of {formats.span(found.grid.seconds)}. Out are acknowledged, "
            "expired, killed (by an administrator or the limit of deliveries) and replaced (by a ring) messages.",
            "From the counters in samples: all messages, durable or not. Restarts of the broker, which reset the "
            "counters, are taken into account. A message in several queues counts in each.",
        ],
        empty=_empty_text(found, "No message entered or left a queue in this period."),
    )
    if not busy:
        return section
    total = found.totals
    lines = [
        Line("in", total["added"] / seconds),
        Line("acknowledged", total["acknowledged"] / seconds),
        Line("expired or killed", (total["expired"] + total["killed"]) / seconds),
        Line("replaced by rings", total["replaced"] / seconds),
    ]
    lines = [lines[0], lines[1], *(line for line in lines[2:] if np.nansum(line.values) > 0)]
    plots = [over_time("rates", "All queues, in and out", found.grid, lines, Axis("messages/s"))]
    most = greatest_queues(found.traffic, lambda one: one.added, len(found.traffic))
    if most:
        shown = most[: plotted_count(most)]
        remainder = None if found.remainder.added is None else found.remainder.added / seconds
        into = queue_lines(
            [(one.queue, found.series[one.queue].added / seconds) for one in shown],
            remainder,
            len(most) - len(shown),
        )
        plots.append(over_time("into", "Into queues", found.grid, into, Axis("messages/s")))
    whole = max((found.end - found.begin) / 1e6, 1.0)
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            formats.whole(one.added),
            formats.rate(one.added / whole),
            formats.whole(one.acknowledged),
            formats.whole(one.expired),
            formats.whole(one.killed),
            formats.whole(one.replaced),
        ]
        for one in busy
    ]
    headings = ["queue", "in", "in, mean", "acknowledged", "expired", "killed", "replaced"]
    return Section(
        section.anchor, section.title, section.lead, plots, [truncated(Table("By queue", headings, rows))]
    )


def queues(found: Findings) -> Section:
    """The largest and slowest queues."""
    section = Section(
        "queues",
        "Largest and slowest queues",
        [
            "Maximum depth and memory come from samples; a message in several queues counts in each. The times from "
            "send to acknowledge are those of durable messages."
        ],
        empty="No queue had a message in this period.",
    )
    headings = ["queue", "most messages", "most memory", "most in pages", "p50", "p99", "longest"]
    largest = greatest_queues(found.traffic, lambda one: one.size or one.most, 15)
    tables = []
    if largest:
        rows: Rows = [
            [
                queue_cell(one.queue, one.address),
                formats.whole(one.most),
                formats.size(one.size),
                formats.whole(one.paged),
                *_latency(found, one.queue),
            ]
            for one in largest
        ]
        tables.append(Table("Largest, by memory", headings, rows))
    slow = sorted(found.latencies, key=lambda queue: (-found.latencies[queue].percentiles[2], queue))[:15]
    known = {one.queue: one for one in found.traffic}
    if slow:
        rows = []
        for queue in slow:
            one = known.get(queue)
            large = (
                ["–"] * 3
                if one is None
                else [formats.whole(one.most), formats.size(one.size), formats.whole(one.paged)]
            )
            rows.append([queue_cell(queue, one.address if one else ""), *large, *_latency(found, queue)])
        tables.append(Table("Slowest, by p99", headings, rows))
    return Section(section.anchor, section.title, section.lead, (), tables, "" if tables else section.empty)


def _latency(found: Findings, queue: str) -> list[str]:
    ages = found.latencies.get(queue)
    if ages is None:
        return ["–"] * 3
    return [formats.span(ages.percentiles[0]), formats.span(ages.percentiles[2]), formats.span(ages.longest)]


def _empty_text(found: Findings, nothing: str) -> str:
    return nothing if found.traffic else NO_SAMPLES


def peak(found: Findings) -> tuple[float, int] | None:
    """The greatest rate in of all queues together, messages a second, and the time of its step; None for none."""
    into = found.totals["added"]
    if not into.any():
        return None
    each = into / step_durations(found)
    at = int(np.nanargmax(each))
    return float(each[at]), found.grid.start + at * found.grid.step


def step_durations(found: Findings) -> Any:
    """Seconds of each step from the first sample to the last one; NaN where they are too few for a rate."""
    starts = found.grid.start + found.grid.step * np.arange(found.grid.count)
    first, last = found.sampled
    lasted = np.minimum(starts + found.grid.step, last) - np.maximum(starts, first)
    # A single sample has lasted no time at all: then a step is as good as anything.
    enough = lasted >= found.grid.step / 10
    return (
        np.where(enough, lasted / SECOND, np.nan)
        if enough.any()
        else np.full(len(starts), found.grid.seconds)
    )


#: What is said of a queue that nobody reads.
NO_CONSUMER = "no consumer in the period"

PERCENTILE_NAMES = tuple(f"p{each:g}" for each in PERCENTILES)
SECONDS = Axis("time, log scale", formats.span)

DURABLE = (
    "From events of retained messages: durable messages in durable queues, unless the address-setting retain says "
    "otherwise. Other messages have counters only."
)


def coverage_note(found: Findings) -> str:
    """How much of what came figures from events are about."""
    known = found.coverage
    if known is None:
        return f"{DURABLE} The share of other messages is unknown: there are no samples of this period."
    if not known.missing:
        return f"{DURABLE} There are events of all messages in this period."
    return (
        f"{DURABLE} {formats.share(known.share)} of the messages that entered queues have no events "
        f"({formats.whole(known.missing)} of {formats.whole(known.came)}; see Coverage)."
    )


def latency(found: Findings) -> Section:
    """Time from send to acknowledge."""
    ages, step = found.latencies, formats.span(found.hours.seconds)
    section = Section(
        "latency",
        "Time from send to acknowledge",
        [
            "Time from when a message was sent, or was due if it was scheduled, until it was acknowledged. p99 is the "
            f"time that 99 of 100 messages did not exceed; a step of {step} has the messages acknowledged in it. "
            "Percentiles are exact to one per cent.",
            coverage_note(found),
        ],
        empty="No acknowledgement of a durable message is in the lake for this period.",
    )
    if not ages:
        return section
    steps = found.latency_steps
    slow = sorted(steps, key=lambda queue: (-ages[queue].percentiles[2], queue))
    count = found.hours.count
    remainder = (
        None if found.remainder.latency is None else percentile_line(dict(found.remainder.latency), count, 2)
    )
    each = [(queue, percentile_line(dict(steps[queue]), count, 2)) for queue in slow]
    lines = queue_lines(each, remainder, len(ages) - len(each))
    title = "p99 of each queue" if remainder is None else "p99 of queues"
    plots = [over_time("p99", title, found.hours, lines, SECONDS)]
    for index, queue in enumerate(slow[:SINGLE_PLOTS]):
        own = [
            Line(name, percentile_line(dict(steps[queue]), found.hours.count, at))
            for at, name in reversed([*enumerate(PERCENTILE_NAMES)])
        ]
        plots.append(over_time(f"latency-{index}", queue, found.hours, own, SECONDS))
    tables = [_table(found, "By queue", ages, "acknowledged"), _slowest(found)]
    return Section(
        section.anchor, section.title, section.lead, plots, tables, after=_unknown(found, "acknowledged")
    )


def _slowest(found: Findings) -> Table:
    each = [
        (ages.percentiles[2], queue, step, ages)
        for queue, steps in found.latency_steps.items()
        for step, ages in steps.items()
    ]
    each.sort(key=lambda one: (-one[0], one[1], one[2]))
    rows: Rows = [
        [
            name_cell(queue),
            formats.date(found.hours.start + step * found.hours.step)[:16],
            formats.whole(ages.count),
            *map(formats.span, ages.percentiles),
        ]
        for _, queue, step, ages in each[:10]
    ]
    title = f"The slowest steps of {formats.span(found.hours.seconds)}, of the queues in the plots"
    return Table(title, ["queue", "from (UTC)", "messages", *PERCENTILE_NAMES], rows, frozenset({0, 1}))


def _table(found: Findings, title: str, ages: Mapping[str, Durations], heading: str) -> Table:
    addresses = found.addresses_of_queues()
    rows: Rows = [
        [
            queue_cell(queue, addresses.get(queue, "")),
            formats.whole(ages[queue].count),
            *map(formats.span, ages[queue].percentiles),
            formats.span(ages[queue].longest),
        ]
        for queue in greatest(ages, lambda queue: ages[queue].percentiles[2], len(ages))
    ]
    return truncated(Table(title, ["queue", heading, *PERCENTILE_NAMES, "longest"], rows))


def _unknown(found: Findings, event: str) -> list[str]:
    ages = found.latencies if event == "acknowledged" else found.evicted
    missing = found.total(event) - sum(one.count for one in ages.values())
    if missing <= 0:
        return []
    return [f"{formats.whole(missing)} more were {event}; the lake does not have their send times."]


def evictions(found: Findings) -> Section:
    """What rings threw away, when, and how old it was."""
    rings = greatest_queues(found.traffic, lambda one: one.replaced, len(found.traffic))
    some = [one for one in found.traffic if one.ring_size]
    section = Section(
        "rings",
        "Messages replaced by rings",
        [
            "A full ring replaces its oldest message by a new one. Numbers and times come from the counters in samples "
            f"(all messages, in steps of {formats.span(found.grid.seconds)}); ages come from events.",
            coverage_note(found),
        ],
        empty=(
            f"No ring replaced a message: none of the {len(some)} rings was full."
            if some
            else "No ring replaced a message: no queue has a ring-size."
        ),
    )
    unread = {one.queue for one in found.unread}
    if not rings and not found.evicted:
        return section
    plots: list[Plot] = []
    if rings:
        shown = rings[: plotted_count(rings)]
        lines = queue_lines(
            [(one.queue, found.series[one.queue].replaced) for one in shown],
            found.remainder.replaced,
            len(rings) - len(shown),
        )
        plots.append(
            over_time("evicted", "Messages replaced by rings", found.grid, lines, Axis("messages a step"))
        )
    if found.evicted:
        count = found.hours.count
        remainder = (
            None
            if found.remainder.evicted is None
            else percentile_line(dict(found.remainder.evicted), count, 0)
        )
        each = [
            (queue, percentile_line(dict(steps), count, 0)) for queue, steps in found.evicted_steps.items()
        ]
        own = queue_lines(each, remainder, len(found.evicted) - len(each))
        plots.append(over_time("evicted-age", "Median age of replaced messages", found.hours, own, SECONDS))
    rows: Rows = []
    for one in rings:
        ages = found.evicted.get(one.queue)
        texts = ["–"] * 3 if ages is None else [*map(formats.span, (*ages.percentiles[:2], ages.longest))]
        lost = formats.share(one.replaced / one.added) if one.added else "–"
        size = formats.whole(one.ring_size) if one.ring_size else "none now"
        readers = NO_CONSUMER if one.queue in unread else formats.whole(one.consumers)
        rows.append(
            [queue_cell(one.queue, one.address), size, formats.whole(one.replaced), lost, *texts, readers]
        )
    headings = ["ring", "ring-size", "replaced", "of all added", "age, median", "age, p90", "oldest"]
    table = Table("By ring", [*headings, "consumers, maximum"], rows)
    tables = [truncated(table)] if rows else []
    return Section(
        section.anchor, section.title, section.lead, plots, tables, after=_unknown(found, "replaced")
    )


def hot_spots(found: Findings) -> Section:
    """Redelivery and dead letters."""
    counts = found.counts
    hot = {
        queue: kinds
        for queue, kinds in counts.items()
        if any(kinds.get(each) for each in ("redelivered", "dead-lettered", "moved"))
    }
    section = Section(
        "hot-spots",
        "Redelivery and dead letters",
        [
            "Messages that returned to their queue after a delivery (NACK, closed connection), and messages of which a "
            f"copy went to a dead-letter or expiry address, by their original queue; in steps of "
            f"{formats.span(found.grid.seconds)}.",
            coverage_note(found),
        ],
        empty="No durable message was redelivered, and none went to a dead-letter or expiry address.",
    )
    if not hot:
        return section
    plots = []
    for event, title in (("redelivered", "Redelivered messages"), ("dead-lettered", "Dead letters")):
        steps = found.hot_steps[event]
        names = greatest(steps, lambda queue, steps=steps: steps[queue].sum(), len(steps))  # type: ignore[misc]
        if names:
            shown = names[: plotted_count(names)]
            remainder = names[len(shown) :]
            other = (
                sum((steps[queue] for queue in remainder), start=np.zeros(found.grid.count))
                if remainder
                else None
            )
            lines = queue_lines([(queue, steps[queue]) for queue in shown], other, len(remainder))
            plots.append(over_time(event, title, found.grid, lines, Axis("messages a step")))
    addresses = found.addresses_of_queues()
    rows: Rows = [
        [
            queue_cell(queue, addresses.get(queue, "")),
            formats.whole(hot[queue].get("redelivered", 0)),
            _part(hot[queue].get("redelivered", 0), counts[queue].get("added", 0)),
            formats.whole(found.deliveries.get(queue, 0)),
            formats.whole(hot[queue].get("dead-lettered", 0)),
            formats.whole(hot[queue].get("moved", 0)),
        ]
        for queue in greatest(
            hot, lambda queue: sum(hot[queue].get(e, 0) for e in ("redelivered", "dead-lettered")), len(hot)
        )
    ]
    headings = [
        "queue",
        "redelivered",
        "per 100 added",
        "most deliveries",
        "dead letters",
        "moved on expiry",
    ]
    tables = [truncated(Table("By queue", headings, rows))]
    if found.hottest:
        single: Rows = [
            [
                name_cell(one.queue),
                str(one.message_id),
                formats.whole(one.redelivered),
                formats.whole(one.deliveries),
            ]
            for one in found.hottest
        ]
        title = "Messages with most redeliveries"
        tables.append(Table(title, ["queue", "message number", "redelivered", "deliveries"], single))
    return Section(section.anchor, section.title, section.lead, plots, tables)


def _part(some: int, all_: int) -> str:
    return f"{100 * some / all_:.3g}" if all_ else "–"


#: A user who did not log in.
NOT_LOGGED_IN = "not logged in"


def consumers(found: Findings) -> Section:
    """Consumers and users."""
    plots = _consumers_plot(found)
    tables = [*_acknowledged(found), *_slowest_consumers(found), *_users(found)]
    empty = "" if plots or tables else "There are no consumers and no users in this period."
    after = []
    acknowledged = found.total("acknowledged")
    if acknowledged > found.consumer_acknowledged > 0:
        more = formats.whole(acknowledged - found.consumer_acknowledged)
        after.append(f"{more} more messages were acknowledged; the lake does not know by which consumer.")
    return Section(
        "consumers",
        "Consumers and users",
        [
            f"Consumers of queues, the maximum of each step of {formats.span(found.grid.seconds)}, from samples; and "
            "the messages that each consumer acknowledged and each user sent. The name of a consumer is the client-id "
            "of its connection, or the number of the connection, and the id of its subscription.",
            coverage_note(found),
        ],
        plots,
        tables,
        empty,
        after,
    )


def _consumers_plot(found: Findings) -> list[Plot]:
    read = greatest_queues(found.traffic, lambda one: one.consumers, len(found.traffic))
    if not read:
        return []
    shown = read[: plotted_count(read)]
    each = [(one.queue, found.series[one.queue].consumers) for one in shown]
    lines = queue_lines(each, found.remainder.consumers, len(read) - len(shown))
    return [over_time("consumers-of", "Consumers of queues", found.grid, lines, Axis("consumers"))]


def _acknowledged(found: Findings) -> list[Table]:
    if not found.consumer_counts:
        return []
    rows: Rows = [
        [
            name_cell(one.consumer),
            name_cell(one.queue),
            formats.whole(one.count),
            formats.share(one.count / found.counts[one.queue]["acknowledged"]),
        ]
        for one in found.consumer_counts
    ]
    headings = ["consumer", "queue", "acknowledged", "share of the queue"]
    table = truncated(Table("Acknowledged by consumer", headings, rows, frozenset({0, 1})))
    if found.consumer_total > len(found.consumer_counts):
        more = formats.whole(found.consumer_total - len(rows))
        note = f"{more} more consumers acknowledged less than each of the first {len(rows)}."
        return [Table(table.title, table.headings, table.rows, table.words, f"{table.note} {note}".strip())]
    return [table]


def _slowest_consumers(found: Findings) -> list[Table]:
    if not found.stays:
        return []
    slow = sorted(found.stays, key=lambda pair: (-found.stays[pair].percentiles[2], pair))
    rows: Rows = [
        [
            name_cell(queue),
            name_cell(consumer),
            formats.whole(found.stays[queue, consumer].count),
            *map(formats.span, found.stays[queue, consumer].percentiles),
            formats.span(found.stays[queue, consumer].longest),
        ]
        for queue, consumer in slow
    ]
    headings = ["queue", "consumer", "acknowledged", *PERCENTILE_NAMES, "longest"]
    title = "Time from send to acknowledge, by queue and consumer: the slowest by p99"
    return [truncated(Table(title, headings, rows, frozenset({0, 1})))]


def _users(found: Findings) -> list[Table]:
    count: Counter[str] = Counter()
    durable: Counter[str] = Counter()
    queues: dict[str, set[str]] = {}
    for one in found.sent:
        if one.count:
            count[one.user] += one.count
            durable[one.user] += one.durable
            queues.setdefault(one.user, set()).add(one.queue)
    total = sum(count.values())
    rows: Rows = [
        [
            name_cell(user or NOT_LOGGED_IN),
            formats.whole(count[user]),
            formats.share(count[user] / total),
            formats.whole(durable[user]),
            formats.whole(len(queues[user])),
        ]
        for user in sorted(count, key=lambda user: (-count[user], user))
    ]
    headings = ["user", "messages into queues", "of all", "durable", "queues"]
    note = "A message in several queues counts in each."
    return [truncated(Table("Sent by user", headings, rows, note=note))] if rows else []


def unread(found: Findings) -> Section:
    """Queues without a consumer."""
    section = Section(
        "unread",
        "Queues without consumers",
        [
            "Queues with messages that had no consumer in any sample of the period, and no delivery and no "
            "acknowledgement. Such a queue grows until a consumer reads it, or until a limit applies; a ring replaces "
            "its oldest messages.",
        ],
        empty="Every queue with messages had a consumer." if found.traffic else NO_SAMPLES,
    )
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            formats.whole(one.added),
            formats.whole(one.begin),
            formats.whole(one.depth),
            _change(one.growth),
            formats.whole(one.replaced),
            NO_CONSUMER,
        ]
        for one in found.unread
    ]
    if not rows:
        return section
    headings = ["queue", "in", "at the beginning", "at the end", "growth", "replaced", "consumers"]
    table = truncated(Table("By queue", headings, rows, frozenset({0, 6})))
    return Section(section.anchor, section.title, section.lead, (), [table])


def drain(found: Findings) -> Section:
    """How long what waits will wait."""
    some = [one for one in found.traffic if one.depth]
    some.sort(key=lambda one: (-_urgency(one), -one.depth, one.queue))
    section = Section(
        "drain",
        "Time to drain",
        [
            "Time until a queue with messages at the end of the period is empty, at the rates of the last "
            f"{formats.span(found.tail)}. A queue with a higher rate in than out never becomes empty.",
            "From samples: all messages.",
        ],
        empty="No queue had a message at the end of the period." if found.traffic else NO_SAMPLES,
    )
    if not some:
        return section
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            formats.whole(one.depth),
            _change(one.growth),
            _rate(one.rate_in),
            _rate(one.rate_out),
            drain_text(one),
        ]
        for one in some
    ]
    headings = ["queue", "messages at the end", "growth in the period", "in", "out", "empty in"]
    table = truncated(Table("By queue", headings, rows))
    return Section(section.anchor, section.title, section.lead, (), [table])


def _urgency(one: QueueTraffic) -> float:
    return -1.0 if math.isnan(one.drain) else one.drain


def drain_text(one: QueueTraffic) -> str:
    """In how long a queue is empty, in words."""
    if math.isnan(one.drain):
        return "unknown: too few samples"
    if math.isfinite(one.drain):
        return formats.span(one.drain)
    grows = one.rate_in - one.rate_out
    return f"never, it grows by {formats.rate(grows)}" if grows > 0 else "never, the rates are equal"


def _rate(value: float) -> str:
    return "\u2013" if math.isnan(value) else formats.rate(value)


def _change(value: int) -> str:
    return f"+{formats.whole(value)}" if value > 0 else formats.whole(value).replace("-", "\u2212")


def coverage(found: Findings) -> Section:
    """What the lake does not have."""
    known = found.coverage
    section = Section(
        "coverage",
        "Coverage",
        [
            "The share of the messages that the lake has. Counters count every message; rows and events exist for "
            "retained messages only: durable messages in durable queues, unless the address-setting retain says "
            "otherwise. Figures from events cover these messages only. This section counts messages after the first "
            "sample of the period and up to the last one.",
        ],
        empty=(
            "The number of messages that are not in the lake is unknown: there are no samples of this period."
            if known is None
            else "No message entered a queue between the first and the last sample of the period."
        ),
    )
    if known is None or not known.queues:
        return section
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            formats.whole(one.came),
            formats.whole(one.covered),
            formats.whole(one.missing),
            formats.share(one.missing / one.came),
        ]
        for one in sorted(known.queues, key=lambda one: (-one.missing, one.queue))
    ]
    headings = ["queue", "added", "in the lake", "not in the lake", "share not in the lake"]
    return Section(
        section.anchor, section.title, section.lead, (), [truncated(Table("By queue", headings, rows))]
    )


#: Curves of each kind that are drawn; of others there is the row in the table.
MAX_CURVES = 12


def rings(found: Findings) -> Section:
    """Ring sizes."""
    keep = formats.percent(found.request.keep)
    fine = formats.span(max((found.end - found.begin) / 20_000 / 1e6, 1e-6))
    section = Section(
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
        empty="No ring replaced a message, so no ring was too small.",
    )
    unread = [one for one in found.unread if one.ring_size and one.replaced]
    if unread:
        section = replace(
            section, empty="No ring with consumers replaced a message.", tables=[_unread_section(unread)]
        )
    if not found.rings:
        return section
    rows: Rows = []
    for one in found.rings:
        ring = one.ring
        texts = (
            [formats.whole(one.size), _bytes(one, one.size), formats.whole(one.enough)]
            if one.modelled
            else ["none"] + ["–"] * 2
        )
        source = "events" if one.by_events else "samples"
        rows.append(
            [
                queue_cell(ring.queue, ring.address),
                formats.whole(ring.ring_size),
                formats.whole(ring.replaced),
                formats.whole(one.modelled),
                *texts,
                source,
            ]
        )
    headings = [
        "ring",
        "size now",
        "replaced",
        "by the model",
        f"size for {keep}",
        "memory",
        "size for all",
        "from",
    ]
    note = "Memory is the size times the mean memory of a message of the queue."
    if len(found.rings) == ADVISED_QUEUES:
        note += f" There is advice for the {ADVISED_QUEUES} rings that replaced most."
    plots = [
        _ring_plot(f"ring-{at}", one, keep) for at, one in enumerate(found.rings[:MAX_CURVES]) if one.modelled
    ]
    table = Table("Sizes", headings, rows, frozenset({0, 7}), note)
    return replace(section, plots=plots, tables=[table, *section.tables])


def _unread_section(rings: list[QueueTraffic]) -> Table:
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            formats.whole(one.ring_size),
            formats.whole(one.replaced),
            f"none: {NO_CONSUMER}",
        ]
        for one in rings
    ]
    note = "A ring without consumers replaces messages at any size."
    headings = ["ring", "size now", "replaced", "advice"]
    return truncated(Table("Rings without consumers", headings, rows, frozenset({0, 3}), note))


def _bytes(one: RingAdvice, size: int) -> str:
    return formats.size(one.bytes(size)) if one.ring.average else "unknown"


def _ring_plot(name: str, one: RingAdvice, keep: str) -> Plot:
    line = Line("kept of the replaced messages", 100 * one.retained)
    axes = Axis("ring-size (messages)"), Axis("% kept", percent=True)
    label = f"{keep}: ring-size {formats.whole(one.size)}"
    if one.ring.average:
        label += f", about {formats.size(one.bytes(one.size))}"
    return curve(name, one.ring.queue, one.sizes, line, axes, one.size, label)


def addresses(found: Findings) -> Section:
    """Limits of addresses."""
    share = formats.percent(found.request.unpaged)
    section = Section(
        "address-sizes",
        "Advice: max-size-bytes",
        [
            f"The max-size-bytes with which each paging address would have had all its messages in memory {share} of "
            "the time, and the share of the time for other limits.",
            "The advice comes from samples: the bytes in memory, plus the messages that are only on disk times the "
            "mean size of those in memory. A message in several queues of its address counts in each, although it is "
            "in memory once: for topics the advice is an upper bound. Consumers are assumed to be unchanged.",
        ],
        empty="No address paged in this period.",
    )
    if not found.addresses:
        if any(one.paged for one in found.traffic):
            unknown = (
                "Addresses paged, but no sample has one of their messages in memory: their size is unknown."
            )
            return Section(section.anchor, section.title, section.lead, empty=unknown)
        return section
    rows: Rows = [
        [
            name_cell(one.demand.address),
            formats.share(one.paging),
            formats.size(one.demand.average),
            formats.whole(one.size),
            formats.size(one.size),
            formats.size(one.enough),
        ]
        for one in found.addresses
    ]
    headings = [
        "address",
        "on disk only, of the time",
        "mean message",
        f"bytes for {share}",
        "that is",
        "for all the time",
    ]
    plots = [
        _address_plot(f"address-{at}", one, share) for at, one in enumerate(found.addresses[:MAX_CURVES])
    ]
    return Section(section.anchor, section.title, section.lead, plots, [Table("Limits", headings, rows)])


def _address_plot(name: str, one: AddressAdvice, share: str) -> Plot:
    line = Line("time with all messages in memory", 100 * one.unpaged)
    axes = Axis("max-size-bytes", formats.size), Axis("% of the time", percent=True)
    label = f"{share}: {formats.whole(one.size)} bytes, {formats.size(one.size)}"
    return curve(name, one.demand.address, one.sizes, line, axes, one.size, label)


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
    from .plots import duration_ticks

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
        depth(found),
        rates(found),
        unread(found),
        drain(found),
        consumers(found),
        latency(found),
        evictions(found),
        hot_spots(found),
        queues(found),
        coverage(found),
        rings(found),
        addresses(found),
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
