"""STOMP 1.2 brokers in Spark: ``df.write.format("stomp")``, ``writeStream``, ``readStream`` (docs/spark-stomp.md)."""
