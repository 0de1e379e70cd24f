"""How long messages were in their queues, by what became of them: events joined with the messages that they are about.

The one expensive job of a report. Both sides are split by message into pieces that fit into little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.arrays import columns, groups
from stompring.pipeline.report.histogram import bin_of, percentiles
from stompring.pipeline.report.hot_spots import Taken
from stompring.pipeline.report.period import SECOND, Grid

#: What ends the stay of a message, of what the report tells ages of.
ENDS = ("acknowledged", "replaced")

#: Rows of messages in one piece of the join.
PIECE = 500_000


@dataclass(frozen=True, slots=True)
class Ages:
    """Of messages of one queue that ended in one way: how many, seconds by `PERCENTILES`, and the longest."""

    count: int
    percentiles: Sequence[float]
    longest: float


class Stays:
    """Counted in bins by queue, step and how they ended; `close` gives back what Spark keeps of that."""

    def __init__(
        self,
        messages: Any,
        events: Any,
        grid: Grid,
        rows: int,
        queues: Iterable[str],
        consumers: Sequence[Taken] = (),
    ) -> None:
        """``rows``: how many messages there are, roughly; ``queues``: those of which messages ended; ``consumers``:
        those of which stays are told by themselves.
        """
        self._names = sorted(queues)
        self._consumers = [(one.queue, one.consumer) for one in consumers]
        pieces = max(1, -(-rows // PIECE))
        # Names become numbers before anything is sorted: that is half of the work.
        numbered = messages.sparkSession.createDataFrame(
            [*enumerate(self._names)], "number INT, queue STRING"
        )
        keys = ("number", "message_id")
        ended = events.where(F.col("event").isin(*ENDS) & F.col("message_id").isNotNull())
        ended = ended.join(F.broadcast(numbered), "queue")
        taker = F.lit(None).cast("int").alias("taker")
        if self._consumers:
            takers = [(*pair, number) for number, pair in enumerate(self._consumers)]
            known = messages.sparkSession.createDataFrame(takers, "queue STRING, consumer STRING, taker INT")
            ended = ended.join(F.broadcast(known), ["queue", "consumer"], "left")
            taker = F.when(F.col("event") == "acknowledged", F.col("taker")).alias("taker")
        ended = ended.select(*keys, "event", "time", taker).repartition(pieces, *keys)
        # A message that waits for its time is not late: its stay begins when it is due.
        began = F.greatest("sent", "due").alias("began")  # null is not the greatest
        sent = messages.join(F.broadcast(numbered), "queue").select(*keys, began).repartition(pieces, *keys)
        stay = F.greatest(F.col("time") - F.col("began"), F.lit(0))
        self._bins = (
            ended.join(sent.hint("shuffle_hash"), [*keys])  # pieces are small: nothing need be sorted
            .withColumns({"stay": stay, "step": F.expr(grid.place("time"))})
            .withColumn("bin", F.expr(bin_of("stay")))
            .groupBy("number", "event", "step", "bin", "taker")
            .agg(F.count("*").alias("count"), F.max("stay").alias("longest"))
            .coalesce(1)
            .persist()
        )

    def close(self) -> None:
        """Forget the bins."""
        self._bins.unpersist()

    def overall(self, event: str) -> dict[str, Ages]:
        """By queue."""
        found = columns(
            self._bins.where(F.col("event") == event)
            .groupBy("number", "bin")
            .agg(F.sum("count").alias("count"), F.max("longest").alias("longest"))
        )
        return {self._names[number]: _ages(found, rows) for number, rows in groups(found["number"])}

    def steps(self, event: str, queues: Iterable[str]) -> dict[str, dict[int, Ages]]:
        """By queue and step, of some queues; steps in which there is none are not there."""
        chosen = F.col("number").isin([self._names.index(queue) for queue in set(queues)])
        found = self._by_step(event, chosen, "number")
        answer: dict[str, dict[int, Ages]] = {}
        for number, rows in groups(found["number"]):
            answer[self._names[number]] = _steps(found, rows)
        return answer

    def rest(self, event: str, shown: Iterable[str]) -> dict[int, Ages]:
        """By step: of all queues but those ``shown`` together."""
        shown = set(shown)
        others = [number for number, name in enumerate(self._names) if name not in shown]
        found = self._by_step(event, F.col("number").isin(others))
        return _steps(found, np.arange(len(found["bin"])))

    def consumers(self) -> dict[tuple[str, str], Ages]:
        """Of what consumers acknowledged, by queue and consumer."""
        found = columns(
            self._bins.where(F.col("taker").isNotNull())
            .groupBy("taker", "bin")
            .agg(F.sum("count").alias("count"), F.max("longest").alias("longest"))
        )
        return {self._consumers[taker]: _ages(found, rows) for taker, rows in groups(found["taker"])}

    def _by_step(self, event: str, chosen: Any, *by: str) -> dict[str, Any]:
        return columns(
            self._bins.where((F.col("event") == event) & chosen)
            .groupBy(*by, "step", "bin")
            .agg(F.sum("count").alias("count"), F.max("longest").alias("longest"))
        )


def _steps(found: dict[str, Any], rows: Any) -> dict[int, Ages]:
    return {step: _ages(found, rows[within]) for step, within in groups(found["step"][rows])}


def _ages(found: dict[str, Any], rows: Any) -> Ages:
    counts = found["count"][rows]
    longest = float(found["longest"][rows].max()) / SECOND
    # The middle of a bin may be more than all that is in it.
    told = [min(each, longest) for each in percentiles(found["bin"][rows], counts)]
    return Ages(int(counts.sum()), told, longest)


def line(steps: dict[int, Ages], count: int, place: int) -> Any:
    """One of `PERCENTILES` (``place``) in each step, NaN where there is none."""
    values = np.full(count, np.nan)
    for step, ages in steps.items():
        values[step] = ages.percentiles[place]
    return values
