"""The parts of the page on who reads and who sends: consumers, users, queues without either, and how long what waits
will wait; and on what the lake does not have."""

from __future__ import annotations

import math
from collections import Counter

from stompring.pipeline.report import units
from stompring.pipeline.report.event_sections import NAMES, NOBODY, limits
from stompring.pipeline.report.findings import Findings, best, shown_of
from stompring.pipeline.report.parts import Rows, Section, Table, limited, name_cell, queue_cell
from stompring.pipeline.report.plots import Axis, Plot, over_time, queue_lines
from stompring.pipeline.report.traffic import QueueTraffic
from stompring.pipeline.report.traffic_sections import NO_SAMPLES

#: A user who did not log in.
NOBODY_KNOWN = "nobody logged in"


def consumers(found: Findings) -> Section:
    """Consumers and users."""
    plots = _consumers_plot(found)
    tables = [*_acknowledged(found), *_slow(found), *_users(found)]
    empty = "" if plots or tables else "No consumer and no user is known of this period."
    after = []
    told = found.total("acknowledged")
    if told > found.taken_count > 0:
        after.append(
            f"{units.whole(told - found.taken_count)} more messages were acknowledged; the lake does not know by "
            "which consumer."
        )
    return Section(
        "consumers",
        "Consumers and users",
        [
            f"The number of consumers of queues, the most in each step of {units.span(found.grid.seconds)}, from "
            "samples; and how much each consumer acknowledged and each user sent. A "
            "consumer is the client-id of its connection, or the number of the connection, and the id of its "
            "subscription.",
            limits(found),
        ],
        plots,
        tables,
        empty,
        after,
    )


def _consumers_plot(found: Findings) -> list[Plot]:
    read = best(found.traffic, lambda one: one.consumers, len(found.traffic))
    if not read:
        return []
    shown = read[: shown_of(read)]
    each = [(one.queue, found.series[one.queue].consumers) for one in shown]
    lines = queue_lines(each, found.rest.consumers, len(read) - len(shown))
    return [over_time("consumers-of", "Consumers of queues", found.grid, lines, Axis("consumers"))]


def _acknowledged(found: Findings) -> list[Table]:
    if not found.taken:
        return []
    rows: Rows = [
        [
            name_cell(one.consumer),
            name_cell(one.queue),
            units.whole(one.count),
            units.share(one.count / found.counts[one.queue]["acknowledged"]),
        ]
        for one in found.taken
    ]
    headings = ["consumer", "queue", "acknowledged", "of what was acknowledged there"]
    table = limited(Table("Who acknowledged", headings, rows, frozenset({0, 1})))
    if found.takers > len(found.taken):
        note = f"{units.whole(found.takers - len(rows))} more acknowledged less than each of the first {len(rows)}."
        return [Table(table.title, table.headings, table.rows, table.words, f"{table.note} {note}".strip())]
    return [table]


def _slow(found: Findings) -> list[Table]:
    if not found.stays:
        return []
    slow = sorted(found.stays, key=lambda pair: (-found.stays[pair].percentiles[2], pair))
    rows: Rows = [
        [
            name_cell(queue),
            name_cell(consumer),
            units.whole(found.stays[queue, consumer].count),
            *map(units.span, found.stays[queue, consumer].percentiles),
            units.span(found.stays[queue, consumer].longest),
        ]
        for queue, consumer in slow
    ]
    headings = ["queue", "consumer", "acknowledged", *NAMES, "longest"]
    title = "From send to acknowledge, by queue and consumer: the slowest by p99"
    return [limited(Table(title, headings, rows, frozenset({0, 1})))]


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
            name_cell(user or NOBODY_KNOWN),
            units.whole(count[user]),
            units.share(count[user] / total),
            units.whole(durable[user]),
            units.whole(len(queues[user])),
        ]
        for user in sorted(count, key=lambda user: (-count[user], user))
    ]
    headings = ["user", "messages into queues", "of all", "durable", "queues"]
    note = "A message that went to several queues counts in each."
    return [limited(Table("Who sent", headings, rows, note=note))] if rows else []


def unread(found: Findings) -> Section:
    """Queues without a consumer."""
    section = Section(
        "unread",
        "Queues that nobody reads",
        [
            "Queues with messages that had no consumer in any sample of the period, and of which nothing was delivered "
            "or acknowledged. Those that grow do so until somebody reads them, or a limit stops them; a ring throws "
            "away what it has no room for.",
        ],
        empty="Every queue with messages was read." if found.traffic else NO_SAMPLES,
    )
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            units.whole(one.added),
            units.whole(one.begin),
            units.whole(one.depth),
            _change(one.growth),
            units.whole(one.replaced),
            NOBODY,
        ]
        for one in found.unread
    ]
    if not rows:
        return section
    headings = ["queue", "in", "at the beginning", "at the end", "growth", "thrown away", "consumers"]
    table = limited(Table("By queue", headings, rows, frozenset({0, 6})))
    return Section(section.anchor, section.title, section.lead, (), [table])


def drain(found: Findings) -> Section:
    """How long what waits will wait."""
    some = [one for one in found.traffic if one.depth]
    some.sort(key=lambda one: (-_urgency(one), -one.depth, one.queue))
    section = Section(
        "drain",
        "Time to drain",
        [
            "How long it is until a queue that holds messages at the end of the period is empty, if as many come and "
            f"go as in its last {units.span(found.tail)}. A queue with more coming than going is never empty.",
            "From samples: all messages.",
        ],
        empty="No queue held a message at the end of the period." if found.traffic else NO_SAMPLES,
    )
    if not some:
        return section
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            units.whole(one.depth),
            _change(one.growth),
            _rate(one.rate_in),
            _rate(one.rate_out),
            drained(one),
        ]
        for one in some
    ]
    headings = ["queue", "messages at the end", "growth in the period", "in", "out", "empty in"]
    table = limited(Table("By queue", headings, rows))
    return Section(section.anchor, section.title, section.lead, (), [table])


def _urgency(one: QueueTraffic) -> float:
    return -1.0 if math.isnan(one.drain) else one.drain


def drained(one: QueueTraffic) -> str:
    """In how long a queue is empty, in words."""
    if math.isnan(one.drain):
        return "unknown: too few samples"
    if math.isfinite(one.drain):
        return units.span(one.drain)
    grows = one.rate_in - one.rate_out
    return f"never, it grows by {units.rate(grows)}" if grows > 0 else "never, as many come as go"


def _rate(value: float) -> str:
    return "\u2013" if math.isnan(value) else units.rate(value)


def _change(value: int) -> str:
    return f"+{units.whole(value)}" if value > 0 else units.whole(value).replace("-", "\u2212")


def coverage(found: Findings) -> Section:
    """What the lake does not have."""
    known = found.coverage
    section = Section(
        "coverage",
        "Coverage",
        [
            "Which of the messages that came to queues the lake has. Counters count every message; rows and events "
            "there are of those that are retained: durable ones in durable queues, unless the address-setting "
            "retain says otherwise. All that is told of events is about these alone. Counted are messages after the "
            "first sample of the period and up to the last one.",
        ],
        empty=(
            "It is unknown how many messages the lake does not have: there are no samples of this period."
            if known is None
            else "No message came to a queue between the first sample of the period and the last one."
        ),
    )
    if known is None or not known.queues:
        return section
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            units.whole(one.came),
            units.whole(one.covered),
            units.whole(one.missing),
            units.share(one.missing / one.came),
        ]
        for one in sorted(known.queues, key=lambda one: (-one.missing, one.queue))
    ]
    headings = ["queue", "came", "in the lake", "not in the lake", "share that is not"]
    return Section(
        section.anchor, section.title, section.lead, (), [limited(Table("By queue", headings, rows))]
    )
