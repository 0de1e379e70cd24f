"""How much the counters of a queue went up from one sample to the next.

Counters begin at 0 with each start of the broker, and with a queue that is deleted and made again: where one of them is
lower than before, all of them have begun anew, and what they show is what has come since.
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


def changes(samples: Any, begin: int | None, first: int) -> Any:
    """The samples, with the counters as differences from the row before.

    ``first`` is the time of the first sample, and ``begin`` where the period of the report begins, None where it has no
    such end: samples before it are those of `LOOKBACK`. Both are µs. The first row of a queue has nothing before it. If
    the queue is new, its counters are differences; if the samples began when it was there already, they are from before
    the samples, and its differences are 0.
    """
    # Where older samples are left out, a queue that rests is seen for the first time in the next one with all of them.
    early = first if begin is None else max(first, begin - LOOKBACK + FULL)
    rows = Window.partitionBy("queue").orderBy("time")
    before = {name: F.lag(name).over(rows) for name in COUNTERS}
    fallen = reduce(or_, (F.col(name) < before[name] for name in COUNTERS))
    flagged = samples.withColumns(
        {
            **{f"{name}_before": before[name] for name in COUNTERS},
            "anew": F.when(before["added"].isNull(), F.col("time") > early).otherwise(fallen),
        }
    )
    return flagged.withColumns(
        {
            name: F.when(F.col("anew"), F.col(name)).otherwise(
                F.coalesce(F.col(name) - F.col(f"{name}_before"), F.lit(0))
            )
            for name in COUNTERS
        }
    ).drop("anew", *(f"{name}_before" for name in COUNTERS))
