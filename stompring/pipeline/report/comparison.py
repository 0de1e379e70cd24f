"""The headline figures of the period before, which is as long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import functions as F

from stompring.pipeline.report.changes import changes
from stompring.pipeline.report.period import Period, moment
from stompring.pipeline.report.tables import COUNTERS, Selected

#: Where the first of a lake is this share of the period before later than its beginning, the lake lacks a part of it.
SLACK = 0.02


@dataclass(frozen=True, slots=True)
class Comparison:
    """The period before: from ``begin`` to ``end`` (µs).

    ``figures`` are those of its headline by name; None where the lake does not have the whole of it, but begins with
    ``first`` (0: it has nothing that is so old).
    """

    begin: int
    end: int
    first: int
    figures: Mapping[str, int] | None


def period_before(begin: int, end: int) -> Period | None:
    """As long as that from ``begin`` to ``end``, and before it; None where that has no length."""
    return Period(moment(begin - (end - begin)), moment(begin)) if end > begin else None


def compare(selected: Selected, period: Period, sent_first: int) -> Comparison:
    """``selected`` are the rows of that ``period``; ``sent_first`` is when the first message of the lake was sent."""
    begin, end = period.begin, period.end
    assert begin is not None and end is not None
    (sampled,) = selected.samples.agg(F.min("time")).first()
    first = min(filter(None, (sampled, sent_first)), default=0)
    if not 0 < first <= begin + (end - begin) * SLACK:
        return Comparison(begin, end, first, None)
    sums = [F.sum(name).alias(name) for name in COUNTERS]
    counters = changes(selected.samples, begin, sampled or 0).where(F.col("time") >= begin)
    went = counters.groupBy("queue").agg(*sums).collect()
    there = selected.samples.select("queue").distinct().collect()
    counts = selected.events.groupBy("queue", "event").count().collect()
    inside = F.col("sent") >= begin
    sent = (
        selected.messages.groupBy("queue")
        .agg(
            F.count(F.when(inside, 1)).alias("count"),
            F.count(F.when(inside & F.col("durable"), 1)).alias("durable"),
        )
        .collect()
    )
    happened = {"redelivered": 0, "dead-lettered": 0}
    for row in counts:
        if row.event in happened:
            happened[row.event] += row["count"]
    return Comparison(
        begin,
        end,
        first,
        {
            "in": sum(row.added for row in went),
            "out": sum(row[name] for row in went for name in COUNTERS[1:]),
            "sent": sum(row["count"] for row in sent),
            "durable": sum(row.durable for row in sent),
            "queues": len({row.queue for rows in (there, counts, sent) for row in rows}),
            "replaced": sum(row.replaced for row in went),
            **happened,
        },
    )
