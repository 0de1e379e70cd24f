"""What went through a broker, as tables for Spark, and brokers as its sources and sinks: `register` makes both known.

The broker never imports this room. What it needs comes with ``pip install 'stompring[spark]'``.
"""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Let a SparkSession know the formats ``stompring``, data directories, and ``stomp``, any STOMP broker."""
    from stompring.pipeline.source import StompringSource  # here, so that the rest is of use without Spark
    from stompring.pipeline.stomp.format import StompFormat

    spark.dataSource.register(StompringSource)
    spark.dataSource.register(StompFormat)
