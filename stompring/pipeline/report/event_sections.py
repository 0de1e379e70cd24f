"""The parts of the page that come from events: latencies, what rings threw away, hot spots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stompring.pipeline.report import units
from stompring.pipeline.report.ages import Ages, line
from stompring.pipeline.report.findings import SINGLE, Findings, best, shown_of, top
from stompring.pipeline.report.histogram import PERCENTILES
from stompring.pipeline.report.parts import Rows, Section, Table, limited, name_cell, queue_cell
from stompring.pipeline.report.plots import Axis, Line, Plot, over_time, queue_lines

#: What is said of a queue that nobody reads.
NOBODY = "no consumer in the period"

NAMES = tuple(f"p{each:g}" for each in PERCENTILES)
SECONDS = Axis("time, log scale", units.span)

DURABLE = (
    "From events, which there are of messages that are retained: those that are durable, in durable queues, unless "
    "an address says otherwise. Of others only counters are kept."
)


def limits(found: Findings) -> str:
    """How much of what came figures from events are about."""
    known = found.coverage
    if known is None:
        return f"{DURABLE} How many messages that leaves out is unknown: there are no samples of this period."
    if not known.missing:
        return f"{DURABLE} None is left out: there are events of all messages that came."
    return (
        f"{DURABLE} {units.share(known.share)} of the messages that came to queues are left out here "
        f"({units.whole(known.missing)} of {units.whole(known.came)}; see Coverage)."
    )


def latency(found: Findings) -> Section:
    """Time from send to acknowledge."""
    ages, step = found.latencies, units.span(found.hours.seconds)
    section = Section(
        "latency",
        "Time from send to acknowledge",
        [
            "How long it was from when a message was sent, or was due if it was scheduled, to when it was "
            f"acknowledged. p99 is the time that 99 of 100 did not exceed; a step of {step} has those that were "
            "acknowledged in it. Percentiles are exact to one per cent.",
            limits(found),
        ],
        empty="No acknowledgement of a durable message is in the lake for this period.",
    )
    if not ages:
        return section
    steps = found.latency_steps
    slow = sorted(steps, key=lambda queue: (-ages[queue].percentiles[2], queue))
    count = found.hours.count
    rest = None if found.rest.latency is None else line(dict(found.rest.latency), count, 2)
    each = [(queue, line(dict(steps[queue]), count, 2)) for queue in slow]
    lines = queue_lines(each, rest, len(ages) - len(each))
    title = "p99 of each queue" if rest is None else "p99 of queues"
    plots = [over_time("p99", title, found.hours, lines, SECONDS)]
    for place, queue in enumerate(slow[:SINGLE]):
        own = [
            Line(name, line(dict(steps[queue]), found.hours.count, at))
            for at, name in reversed([*enumerate(NAMES)])
        ]
        plots.append(over_time(f"latency-{place}", queue, found.hours, own, SECONDS))
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
            units.date(found.hours.start + step * found.hours.step)[:16],
            units.whole(ages.count),
            *map(units.span, ages.percentiles),
        ]
        for _, queue, step, ages in each[:10]
    ]
    title = f"The slowest steps of {units.span(found.hours.seconds)}, of the queues in the plots"
    return Table(title, ["queue", "from (UTC)", "messages", *NAMES], rows, frozenset({0, 1}))


def _table(found: Findings, title: str, ages: Mapping[str, Ages], heading: str) -> Table:
    addresses = found.addresses_of_queues()
    rows: Rows = [
        [
            queue_cell(queue, addresses.get(queue, "")),
            units.whole(ages[queue].count),
            *map(units.span, ages[queue].percentiles),
            units.span(ages[queue].longest),
        ]
        for queue in top(ages, lambda queue: ages[queue].percentiles[2], len(ages))
    ]
    return limited(Table(title, ["queue", heading, *NAMES, "longest"], rows))


def _unknown(found: Findings, event: str) -> list[str]:
    ages = found.latencies if event == "acknowledged" else found.evicted
    missing = found.total(event) - sum(one.count for one in ages.values())
    if missing <= 0:
        return []
    return [f"{units.whole(missing)} more were {event}, of which the lake does not know when they were sent."]


def evictions(found: Findings) -> Section:
    """What rings threw away, when, and how old it was."""
    rings = best(found.traffic, lambda one: one.replaced, len(found.traffic))
    some = [one for one in found.traffic if one.ring_size]
    section = Section(
        "rings",
        "What rings threw away",
        [
            "A full ring gives up its oldest message for a new one. How many, and when, comes from the counters in "
            f"samples (all messages, in steps of {units.span(found.grid.seconds)}); how old they were from events.",
            limits(found),
        ],
        empty=(
            f"No ring threw anything away: none of the {len(some)} was ever too full."
            if some
            else "No ring threw anything away: no queue has a ring-size."
        ),
    )
    unread = {one.queue for one in found.unread}
    if not rings and not found.evicted:
        return section
    plots: list[Plot] = []
    if rings:
        shown = rings[: shown_of(rings)]
        lines = queue_lines(
            [(one.queue, found.series[one.queue].replaced) for one in shown],
            found.rest.replaced,
            len(rings) - len(shown),
        )
        plots.append(
            over_time("evicted", "Messages that rings threw away", found.grid, lines, Axis("messages a step"))
        )
    if found.evicted:
        count = found.hours.count
        rest = None if found.rest.evicted is None else line(dict(found.rest.evicted), count, 0)
        each = [(queue, line(dict(steps), count, 0)) for queue, steps in found.evicted_steps.items()]
        own = queue_lines(each, rest, len(found.evicted) - len(each))
        plots.append(
            over_time("evicted-age", "Median age of what was thrown away", found.hours, own, SECONDS)
        )
    rows: Rows = []
    for one in rings:
        ages = found.evicted.get(one.queue)
        told = ["–"] * 3 if ages is None else [*map(units.span, (*ages.percentiles[:2], ages.longest))]
        lost = units.share(one.replaced / one.added) if one.added else "–"
        size = units.whole(one.ring_size) if one.ring_size else "none now"
        readers = NOBODY if one.queue in unread else units.whole(one.consumers)
        rows.append(
            [queue_cell(one.queue, one.address), size, units.whole(one.replaced), lost, *told, readers]
        )
    headings = ["ring", "ring-size", "thrown away", "of what came", "age, median", "age, p90", "oldest"]
    table = Table("By ring", [*headings, "consumers, at most"], rows)
    tables = [limited(table)] if rows else []
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
            "Messages that came back to their queue after a delivery (a NACK, a client that went away), and those of "
            f"which a copy went to a dead-letter or expiry address, by the queue that they came from; in steps of "
            f"{units.span(found.grid.seconds)}.",
            limits(found),
        ],
        empty="No durable message came back, and none went to a dead-letter or expiry address.",
    )
    if not hot:
        return section
    plots = []
    for event, title in (("redelivered", "Messages that came back"), ("dead-lettered", "Dead letters")):
        steps = found.hot_steps[event]
        names = top(steps, lambda queue, steps=steps: steps[queue].sum(), len(steps))  # type: ignore[misc]
        if names:
            shown = names[: shown_of(names)]
            rest = names[len(shown) :]
            other = sum((steps[queue] for queue in rest), start=np.zeros(found.grid.count)) if rest else None
            lines = queue_lines([(queue, steps[queue]) for queue in shown], other, len(rest))
            plots.append(over_time(event, title, found.grid, lines, Axis("messages a step")))
    addresses = found.addresses_of_queues()
    rows: Rows = [
        [
            queue_cell(queue, addresses.get(queue, "")),
            units.whole(hot[queue].get("redelivered", 0)),
            _part(hot[queue].get("redelivered", 0), counts[queue].get("added", 0)),
            units.whole(found.deliveries.get(queue, 0)),
            units.whole(hot[queue].get("dead-lettered", 0)),
            units.whole(hot[queue].get("moved", 0)),
        ]
        for queue in top(
            hot, lambda queue: sum(hot[queue].get(e, 0) for e in ("redelivered", "dead-lettered")), len(hot)
        )
    ]
    headings = [
        "queue",
        "came back",
        "for 100 that came",
        "most deliveries",
        "dead letters",
        "moved on expiry",
    ]
    tables = [limited(Table("By queue", headings, rows))]
    if found.hottest:
        single: Rows = [
            [
                name_cell(one.queue),
                str(one.message_id),
                units.whole(one.redelivered),
                units.whole(one.deliveries),
            ]
            for one in found.hottest
        ]
        title = "Messages that came back most often"
        tables.append(Table(title, ["queue", "message number", "came back", "deliveries"], single))
    return Section(section.anchor, section.title, section.lead, plots, tables, after=doubts(found))


def doubts(found: Findings) -> list[str]:
    """What is said of events that may be none."""
    returns, letters = (found.uncertain.get(event, 0) for event in ("redelivered", "dead-lettered"))
    older = "files of an older version of stompring do not tell for sure"
    told = []
    if returns:
        told.append(
            f"{units.whole(returns)} more times a message may have come back, which {older}: not counted."
        )
    if letters:
        told.append(
            f"{units.whole(letters)} of {units.whole(found.total('dead-lettered'))} dead letters are uncertain: "
            f"{older}."
        )
    return told


def _part(some: int, all_: int) -> str:
    return f"{100 * some / all_:.3g}" if all_ else "–"
