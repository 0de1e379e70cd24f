"""Any STOMP broker in Spark: ``df.write.format("stomp")``, ``writeStream`` and ``readStream`` (docs/spark-stomp.md).

It speaks STOMP 1.2 over a socket, with any broker.
"""
