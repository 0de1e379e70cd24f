"""How many messages each queue gets in each window of time, sent back to an address of a broker as JSON.

    python examples/windowed_counts.py --data data --addresses 'plant.#' --to localhost:61613 --destination counts

Run it again after it was stopped or killed, and it goes on where it was: with a broker that knows duplicate ids each
count is at its destination once.
"""

from __future__ import annotations

import argparse
from typing import Any


def counts(spark: Any, data: str, addresses: str, window: str, delay: str) -> Any:
    """A stream with a row for each queue and window, once nothing can come any more that belongs to it."""
    from pyspark.sql.functions import col, concat_ws, create_map, lit, struct, to_json
    from pyspark.sql.functions import window as within

    messages = (
        spark.readStream.format("stompring")
        .option("addresses", addresses)  # without the destination of the counts: they would be counted too
        .option("columns", "timestamp,queue")
        .option("maxBytesPerTrigger", 256 << 20)
        .load(data)
    )
    counted = (
        messages.withWatermark("timestamp", delay)
        .groupBy(within("timestamp", window).alias("window"), "queue")
        .count()
    )
    row = struct(
        col("queue"), col("window.start").alias("begin"), col("window.end").alias("end"), col("count")
    )
    return counted.select(
        to_json(row).alias("body"),
        create_map(lit("content-type"), lit("application/json"), lit("queue"), col("queue")).alias("headers"),
        # the same for the same count, so that the broker drops a second one
        concat_ws("|", lit(window), col("queue"), col("window.start").cast("string")).alias("dedup_id"),
    )


def start(rows: Any, to: str, destination: str, checkpoint: str, *, once: bool = False) -> Any:
    """Send the rows as they come; ``once``: those that are there now, and no more."""
    sink = (
        rows.writeStream.format("stomp")
        .outputMode("append")
        .option("url", to)
        .option("destination", destination)
        .option("checkpointLocation", checkpoint)
    )
    return (
        sink.trigger(availableNow=True).start() if once else sink.trigger(processingTime="5 seconds").start()
    )


def main() -> None:
    """The program."""
    from stompring.pipeline.session import spark_session

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="the data directory of a broker")
    parser.add_argument(
        "--addresses", required=True, help="of which addresses: names or patterns, with commas"
    )
    parser.add_argument(
        "--to", default="localhost:61613", help="HOST:PORT of the broker that gets the counts"
    )
    parser.add_argument("--destination", default="counts", help="the address that they go to")
    parser.add_argument("--window", default="10 seconds", help="how long a window is")
    parser.add_argument("--delay", default="2 seconds", help="how late a message may come")
    parser.add_argument("--checkpoint", default="counts-checkpoint", help="a directory of this program alone")
    parser.add_argument("--once", action="store_true", help="only what is there now")
    given = parser.parse_args()
    spark = spark_session("local[2]")
    rows = counts(spark, given.data, given.addresses, given.window, given.delay)
    start(rows, given.to, given.destination, given.checkpoint, once=given.once).awaitTermination()


if __name__ == "__main__":
    main()
