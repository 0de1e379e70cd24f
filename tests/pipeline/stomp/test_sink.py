"""`df.write` and `writeStream` with Spark, to a real broker."""

import pytest

from ...broker_document import broker_xml
from ...broker_process import BrokerProcess
from ...end_to_end.test_security import add_user
from ...stomp_client import StompClient
from .queue_contents import drained_bodies, url

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


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


def test_a_job_that_is_run_again(spark, lasting):
    lasting.start()
    for _ in range(2):
        write(numbered(spark, 3000, 2), lasting, destination="q", jobId="nightly", receiptRows=100)
    assert sorted(map(int, drained_bodies(lasting, "q"))) == list(range(3000))
    lasting.management.expect_address("q", duplicateMessageCount=3000 + 2)  # the two that were refused too
    write(numbered(spark, 10), lasting, destination="q")
    write(numbered(spark, 10), lasting, destination="q")
    assert len(drained_bodies(lasting, "q")) == 20  # nobody asked


def test_a_task_that_fails_leaves_nothing(spark, lasting):
    lasting.start()

    fails = "if(id = 900, raise_error('this task fails on purpose'), cast(id as string)) as body"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pytest.raises(Exception, match="fails on purpose"):
            write(spark.range(0, 1000, 1, 1).selectExpr(fails), lasting, destination="q", jobId="job")
        lasting.connect().put("q", "first")
        write(numbered(spark, 1000), lasting, destination="q", jobId="job")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert drained_bodies(lasting, "q") == ["first", *map(str, range(1000))]


def test_a_batch_that_is_replayed(spark, lasting, tmp_path):
    """As after a crash between the tasks of a batch and Spark's own record of it; one row more than before."""
    lasting.start()
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
        (given / f"{batch}.txt").write_text("\n".join(map(str, range(first, first + 300))), encoding="utf-8")
        run()
    assert len(list((checkpoint / "commits").glob("[0-9]"))) == 2
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    with open(given / "1.txt", "a", encoding="utf-8") as file:
        file.write("\n600")
    run()
    assert sorted(map(int, drained_bodies(lasting, "q"))) == list(range(601))
    lasting.management.expect_address("q", duplicateMessageCount=301)


def test_errors_name_what_is_wrong(spark, lasting):
    lasting.start()
    rows = numbered(spark, 5)
    for options, text in (
        ({}, "option destination: is required without a column destination"),
        (
            {"destination": "q", "virtualhost": "/", "recieptRows": "5"},
            "option recieptrows: unknown option",
        ),
    ):
        with pytest.raises(Exception, match=text):
            write(rows, lasting, **options)
    with pytest.raises(Exception, match="column weight: unknown column; columns are body, headers"):
        write(rows.selectExpr("body", "1 as weight"), lasting, destination="q")
    with pytest.raises(Exception, match="column destination: is null in row 3"):
        write(rows.selectExpr("body", "if(body = '3', null, 'q') as destination"), lasting)
    with pytest.raises(Exception, match=r"mode\('overwrite'\) is not supported"):
        rows.write.format("stomp").mode("overwrite").options(url=url(lasting), destination="q").save()
    with pytest.raises(Exception, match="spark.read is not supported"):
        spark.read.format("stomp").options(url=url(lasting), destination="q").load().count()
    lasting.connect().put("q", "nothing")
    assert drained_bodies(lasting, "q") == ["nothing"]


def test_a_wrong_password(spark, tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml(secure=True), encoding="utf-8")
    add_user(config, "alice", "wonderland")
    (tmp_path / "password").write_text("wonderland\n", encoding="utf-8")
    with BrokerProcess(config) as broker:

        def write_as(**options):
            rows = numbered(spark, 5).write.format("stomp").mode("append")
            rows.options(url=f"127.0.0.1:{broker.port}", destination="q", user="alice", **options).save()

        with pytest.raises(Exception) as caught:
            write_as(password="sesame")
        assert f"127.0.0.1:{broker.port} refuses: " in str(caught.value)
        assert "sesame" not in str(caught.value) and "alice" not in str(caught.value)
        write_as(passwordFile=str(tmp_path / "password"))
        client = StompClient(broker.port)
        client.connect({"login": "alice", "passcode": "wonderland"})
        client.subscribe("q", ack="auto")
        client.messages(*"01234")
        client.close()
