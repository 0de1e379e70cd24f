"""`df.write` and `writeStream` with Spark, to a real broker."""

import pytest

from .queue_contents import drained_bodies, url

pytestmark = pytest.mark.spark

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def numbered(spark, count, partitions=1):
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body")


def write(frame, lasting, **options):
    frame.write.format("stomp").mode("append").options(url=url(lasting), **options).save()


def test_a_batch_job(spark, lasting):
    lasting.start()
    client = lasting.connect()
    rows = spark.sql(
        "select 'one' as body, map('a:b', 'x\ny', 'colour', 'red', 'ack', 'no') as headers, 'first' as destination, "
        "7 as priority, timestamp_millis(4000000000000) as expires, 'own' as dedup_id "
        "union all select null, null, null, null, null, null"
    )
    write(rows, lasting, destination="second", jobId="job")
    client.subscribe("first", id="1")
    message = client.message()
    assert message.body == b"one" and message["persistent"] == "true"
    assert (message["priority"], message["expires"]) == ("7", "4000000000000")
    assert (message["a:b"], message["colour"], message["_AMQ_DUPL_ID"]) == ("x\ny", "red", "own")
    client.subscribe("second", id="2")
    message = client.message()
    assert message.body == b"" and (message["priority"], message["expires"]) == ("4", "0")
    assert message["_AMQ_DUPL_ID"].startswith("job-")


def test_a_batch_that_is_replayed(spark, lasting, tmp_path, request):
    """As after a crash between the tasks of a batch and Spark's own record of it; one row more than before."""
    lasting.start()
    request.addfinalizer(lambda: spark.conf.unset(RECORDS))
    spark.conf.set(RECORDS, "100")  # a task has several batches of Arrow
    given, checkpoint = tmp_path / "given", tmp_path / "checkpoint"
    given.mkdir()

    def run():
        lines = spark.readStream.format("text").load(str(given)).selectExpr("value as body")
        query = lines.writeStream.format("stomp").options(url=url(lasting), destination="q")
        query.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    for batch in range(2):
        first = 300 * batch
        (given / f"{batch}.txt").write_text("\n".join(map(str, range(first, first + 300))))
        run()
    assert len(list((checkpoint / "commits").glob("[0-9]"))) == 2
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    with open(given / "1.txt", "a") as file:
        file.write("\n600")
    run()
    assert sorted(map(int, drained_bodies(lasting, "q"))) == list(range(601))
    lasting.management.expect_address("q", duplicateMessageCount=301)


def test_errors_name_what_is_wrong(spark, lasting):
    lasting.start()
    rows = numbered(spark, 5)
    for frame, options, text in (
        (rows, {}, "option destination: is required without a column destination"),
        (rows, {"destination": "q", "recieptRows": "5"}, "option recieptrows: unknown option"),
        (
            rows.selectExpr("body", "1 as weight"),
            {"destination": "q"},
            "column weight: unknown column; columns are body, headers",
        ),
        (
            rows.selectExpr("body", "if(body = '3', null, 'q') as destination"),
            {},
            "column destination: is null in row 3",
        ),
    ):
        with pytest.raises(Exception, match=text):
            write(frame, lasting, **options)
    with pytest.raises(Exception, match=r"mode\('overwrite'\) is not supported"):
        rows.write.format("stomp").mode("overwrite").options(url=url(lasting), destination="q").save()
    with pytest.raises(Exception, match="spark.read is not supported"):
        spark.read.format("stomp").options(url=url(lasting), destination="q").load().count()
    lasting.connect().put("q", "nothing")
    assert drained_bodies(lasting, "q") == ["nothing"]
