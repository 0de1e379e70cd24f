"""A Spark application from one queue to another, for a test that kills it: ``python -m ... URL DIRECTORY [now]``.

With ``now`` it takes what is available and ends. In each batch with a number that ends in 500 the first attempt of a
task fails in the middle.
"""

import sys
from pathlib import Path

#: Messages that may be received and not acknowledged.
PREFETCH = 200


def checked(body):
    """The same; fails at times."""
    from pyspark import TaskContext

    if body.endswith(b"500") and TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the first attempt fails on purpose")
    return body


def run(url, directory, now):
    """Until it is over, or for ever."""
    from pyspark.sql.functions import col, udf

    from stompring.pipeline.session import JAVA_OPTIONS, spark_session

    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
    spark = spark_session(
        "local[2,4]", settings=settings, java_options=f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1"
    )
    source = spark.readStream.format("stomp").options(url=url, destination="in", prefetch=PREFETCH)
    rows = source.options(spool=str(directory / "spool"), maxRowsPerTrigger=700).load()
    sent = rows.select(udf(checked, "binary")(col("body")).alias("body"))
    writer = sent.writeStream.format("stomp").options(url=url, destination="out")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    query = (writer.trigger(availableNow=True) if now else writer).start()
    query.awaitTermination()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), "now" in sys.argv[3:])
