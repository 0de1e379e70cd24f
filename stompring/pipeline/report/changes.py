"""How much the counters of a queue went up from one sample to the next.

Counters begin anew with each start of the broker, and with a queue that is deleted and made again: where one of them is
lower than before, all of them have begun anew, and what they show is what has come since. But for ``added``: a start
counts the messages that it finds on disk as added. They were in the queue before, so that many are no new ones. (It is
known by its first sample, which is taken before anybody connects: no consumer, and nothing acknowledged.)
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from stompring.pipeline.report.period import HOUR
from stompring.pipeline.report.tables import COUNTERS, LOOKBACK

#: Every queue is in a sample that often, while the broker runs.
FULL = HOUR


def seen_early(begin: int | None, first: int) -> int:
    """A queue that is first sampled later than that is new; others may have been there before the samples.

    The arguments are those of `changes`. Where older samples are left out, a queue that rests is seen for the first
    time in the next one with all of them.
    """
    return first if begin is None else max(first, begin - LOOKBACK + FULL)


def changes(samples: Any, begin: int | None, first: int) -> Any:
    """The samples, with the counters as differences from the row before.

    ``first`` is the time of the first sample, and ``begin`` where the period of the report begins, None where it has no
    such end: samples before it are those of `LOOKBACK`. Both are µs. The first row of a queue has nothing before it. If
    the queue is new, its counters are differences; if the samples began when it was there already, they are from before
    the samples, and its differences are 0.
    """
    early = seen_early(begin, first)
    rows = Window.partitionBy("queue").orderBy("time")
    before = {name: F.lag(name).over(rows) for name in COUNTERS}
    fallen = reduce(or_, (F.col(name) < before[name] for name in COUNTERS))
    flagged = samples.withColumns(
        {
            **{f"{name}_before": before[name] for name in COUNTERS},
            "anew": F.when(before["added"].isNull(), F.col("time") > early).otherwise(fallen),
            "waited": F.when(
                (F.col("consumers") == 0) & (F.col("acknowledged") == 0), F.lag("messages").over(rows)
            ),
        }
    )
    since = {name: F.col(name) for name in COUNTERS}
    since["added"] = F.greatest(F.col("added") - F.coalesce("waited", F.lit(0)), F.lit(0))
    return flagged.withColumns(
        {
            name: F.when(F.col("anew"), since[name]).otherwise(
                F.coalesce(F.col(name) - F.col(f"{name}_before"), F.lit(0))
            )
            for name in COUNTERS
        }
    ).drop("anew", "waited", *(f"{name}_before" for name in COUNTERS))
