"""`readStream` with Spark, from a real broker."""

import pytest

from ...end_to_end.lasting import DURABLE, numbers
from .queue_contents import url

pytestmark = pytest.mark.spark


class Reading:
    """A query that keeps the rows of each batch."""

    def __init__(self, spark, lasting, directory):
        self.batches = {}
        self.directory = directory
        self._spark = spark
        self._lasting = lasting

    def start(self, schema=None, now=True, **options):
        """The query. Takes the options of the source."""
        source = self._spark.readStream.format("stomp").options(url=url(self._lasting), destination="q")
        source = source.options(spool=str(self.directory / "spool"), idle=300, **options)
        rows = (source if schema is None else source.schema(schema)).load()
        writer = rows.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        return (
            writer.trigger(availableNow=True) if now else writer.trigger(processingTime="50 milliseconds")
        ).start()

    def run(self, schema=None, **options):
        """All that is available now."""
        self.start(schema, **options).awaitTermination()

    def bodies(self):
        """Of all batches, in their order."""
        return [row.body.decode() for batch in sorted(self.batches) for row in self.batches[batch]]

    def _keep(self, frame, batch):
        self.batches[batch] = frame.collect()


@pytest.fixture
def reading(spark, lasting, tmp_path):
    lasting.start()
    return Reading(spark, lasting, tmp_path)


def test_what_is_available_and_what_comes_later(reading, lasting):
    client = lasting.connect()
    client.put("q", *numbers(1, 500), colour="red", **DURABLE)
    reading.run(maxRowsPerTrigger=200)
    assert [len(reading.batches[batch]) for batch in sorted(reading.batches)] == [200, 200, 100]
    assert reading.bodies() == numbers(1, 500)
    first = reading.batches[0][0]
    assert (first.destination, first.headers["colour"]) == ("q", "red")
    lasting.management.expect("q", messageCount=0)
    reading.run()
    assert len(reading.bodies()) == 500
    client.put("q", *numbers(501, 520))
    reading.run("body BINARY, message_id STRING", maxBytesPerTrigger="1K")
    assert reading.bodies() == numbers(1, 520)
    assert len(reading.batches) > 4 and set(reading.batches[3][0].asDict()) == {"body", "message_id"}
    ids = [row.message_id for rows in reading.batches.values() for row in rows]
    assert len(set(ids)) == len(ids)


def test_while_it_runs(reading, lasting):
    """Until the queue is deleted under it: then the query ends, with what the broker says."""
    lasting.connect().put("q", "1")
    query = reading.start(now=False)
    for number in range(2, 12):
        lasting.connect().put("q", str(number))
        lasting.management.expect("q", messageCount=0)
    query.processAllAvailable()
    assert reading.bodies() == numbers(1, 11)
    lasting.management.ask("DELETE", "/queues/q", force="true")
    with pytest.raises(Exception, match=r"127.0.0.1:\d+ refuses: Subscription 0 ended"):
        query.awaitTermination(60)
    lasting.connect().put("q", "12")
    reading.run()
    assert reading.bodies() == numbers(1, 12)


def test_errors_name_what_is_wrong(reading):
    with pytest.raises(Exception, match="option jobid: unknown option; options are url, user"):
        reading.run(jobId="5")
    with pytest.raises(Exception, match="column weight: unknown column; columns are destination"):
        reading.run("weight INT")
    with pytest.raises(Exception, match="column body: is BINARY, not StringType"):
        reading.run("body STRING")
