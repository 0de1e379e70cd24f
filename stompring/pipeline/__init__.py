"""Spark data sources: the files of a broker as tables, and any STOMP broker as source and sink (`register`).

The broker never imports this package. Its libraries come with ``pip install 'stompring[spark]'``.
"""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Register the formats ``stompring`` (data directories) and ``stomp`` (any STOMP broker) in a SparkSession."""
    # imported here, not at the top: the other modules of the package work without Spark
    from stompring.pipeline.source import StompringSource
    from stompring.pipeline.stomp.format import StompFormat

    spark.dataSource.register(StompringSource)
    spark.dataSource.register(StompFormat)
