"""Any STOMP broker in Spark: ``df.write.format("stomp")``, ``writeStream`` and ``readStream`` (docs/spark-stomp.md).

All of it speaks STOMP 1.2 over a socket and knows nothing of the broker of this package.
"""
