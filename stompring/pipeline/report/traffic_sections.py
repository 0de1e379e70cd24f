"""The parts of the page that come from samples: depth, rates, and the table of queues."""

from __future__ import annotations

from typing import Any

import numpy as np

from stompring.pipeline.report import units
from stompring.pipeline.report.findings import Findings, best, shown_of
from stompring.pipeline.report.parts import Rows, Section, Table, limited, queue_cell
from stompring.pipeline.report.period import SECOND
from stompring.pipeline.report.plots import Axis, Line, over_time, queue_lines

NO_SAMPLES = "There are no samples in this period: the broker writes them where there is a journal-retention-directory."


def depth(found: Findings) -> Section:
    """Depth over time per queue."""
    deep = best(found.traffic, lambda one: one.most, len(found.traffic))
    step = units.span(found.grid.seconds)
    section = Section(
        "depth",
        "Depth over time",
        [
            f"How many messages each queue held: waiting, scheduled, with a consumer or in pages; the most in each "
            f"step of {step}; of several queues together the sum of that. A line ends where there was no "
            "sample for two hours: the queue was deleted, or the broker was down.",
            "From samples: all messages, durable or not.",
        ],
        empty=_why(found, "No queue held a message in any sample of this period."),
    )
    if not deep:
        return section
    shown = deep[: shown_of(deep)]
    rest = deep[len(shown) :]
    lines = queue_lines(
        [(one.queue, found.series[one.queue].depth) for one in shown], found.rest.depth, len(rest)
    )
    plot = over_time("depth", "Messages in queues", found.grid, lines, Axis("messages"))
    tables = []
    if rest:
        rows: Rows = [
            [queue_cell(one.queue, one.address), units.whole(one.most), units.whole(one.depth)]
            for one in rest
        ]
        tables.append(
            limited(Table("Queues that are not in the plot", ["queue", "at most", "at the end"], rows))
        )
    return Section(section.anchor, section.title, section.lead, [plot], tables)


def rates(found: Findings) -> Section:
    """Rates in and out."""
    seconds = lasting(found)
    busy = best(found.traffic, lambda one: one.added + one.out, len(found.traffic))
    section = Section(
        "rates",
        "Rates in and out",
        [
            f"Messages a second, the mean of each step of {units.span(found.grid.seconds)}. Out are those that were "
            "acknowledged, that expired, that an administrator or the limit of deliveries killed, and those that a "
            "ring replaced.",
            "From the counters in samples: all messages, durable or not. A restart of the broker, where counters begin "
            "at 0 again, is reckoned with. A message that went to several queues counts in each.",
        ],
        empty=_why(found, "Nothing went in or out in this period."),
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
    most = best(found.traffic, lambda one: one.added, len(found.traffic))
    if most:
        shown = most[: shown_of(most)]
        rest = None if found.rest.added is None else found.rest.added / seconds
        into = queue_lines(
            [(one.queue, found.series[one.queue].added / seconds) for one in shown],
            rest,
            len(most) - len(shown),
        )
        plots.append(over_time("into", "Into queues", found.grid, into, Axis("messages/s")))
    whole = max((found.end - found.begin) / 1e6, 1.0)
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            units.whole(one.added),
            units.rate(one.added / whole),
            units.whole(one.acknowledged),
            units.whole(one.expired),
            units.whole(one.killed),
            units.whole(one.replaced),
        ]
        for one in busy
    ]
    headings = ["queue", "in", "in, mean", "acknowledged", "expired", "killed", "replaced"]
    return Section(
        section.anchor, section.title, section.lead, plots, [limited(Table("By queue", headings, rows))]
    )


def queues(found: Findings) -> Section:
    """The largest and slowest queues."""
    section = Section(
        "queues",
        "Largest and slowest queues",
        [
            "Depth and memory, the most at any time, come from samples; a message that is in several queues counts in "
            "each. The times from send to acknowledge are those of durable messages."
        ],
        empty="No queue had anything in it in this period.",
    )
    headings = ["queue", "most messages", "most memory", "most in pages", "p50", "p99", "longest"]
    largest = best(found.traffic, lambda one: one.size or one.most, 15)
    tables = []
    if largest:
        rows: Rows = [
            [
                queue_cell(one.queue, one.address),
                units.whole(one.most),
                units.size(one.size),
                units.whole(one.paged),
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
                else [units.whole(one.most), units.size(one.size), units.whole(one.paged)]
            )
            rows.append([queue_cell(queue, one.address if one else ""), *large, *_latency(found, queue)])
        tables.append(Table("Slowest, by p99", headings, rows))
    return Section(section.anchor, section.title, section.lead, (), tables, "" if tables else section.empty)


def _latency(found: Findings, queue: str) -> list[str]:
    ages = found.latencies.get(queue)
    if ages is None:
        return ["–"] * 3
    return [units.span(ages.percentiles[0]), units.span(ages.percentiles[2]), units.span(ages.longest)]


def _why(found: Findings, nothing: str) -> str:
    return nothing if found.traffic else NO_SAMPLES


def peak(found: Findings) -> tuple[float, int] | None:
    """The greatest rate in of all queues together, messages a second, and the time of its step; None for none."""
    into = found.totals["added"]
    if not into.any():
        return None
    each = into / lasting(found)
    at = int(np.nanargmax(each))
    return float(each[at]), found.grid.start + at * found.grid.step


def lasting(found: Findings) -> Any:
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
