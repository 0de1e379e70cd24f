"""What went through a broker, as tables for Spark: `register` makes ``spark.read.format("stompring")`` known.

The broker never imports this room. What it needs comes with ``pip install 'stompring[spark]'``.
"""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Let a SparkSession read data directories with ``spark.read.format("stompring")``."""
    from stompring.pipeline.source import StompringSource  # here, so that the rest is of use without Spark

    spark.dataSource.register(StompringSource)
