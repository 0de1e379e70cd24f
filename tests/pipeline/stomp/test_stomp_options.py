"""What options mean, and what is said of those that mean nothing."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from stompring.pipeline.stomp.connection import ConnectionFailed

from ..spark_formats import asked
from .scripted_broker import ScriptedBroker
from .sending import IDS, numbered, sent, write, writer

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "spark-stomp.md").read_text()

NEEDED = {"url": "host:1", "destination": "q", "spool": "/s"}


def source(**options):
    return asked("stomp", "streamReader", **{**NEEDED, **options})


def test_all_of_writing():
    given = {"USER": "u", "password": "p", "virtualHost": "/v", "checkpointLocation": "/c", "queryName": "n"}
    rows = numbered(12)
    connect, frames = sent(
        rows, **given, receiptrows="5", persistent="false", dedupHeader="x", destination="d"
    )
    assert {b"login:u", b"passcode:p", b"host:/v"} <= {*connect.split(b"\n")}
    receipts = {4: {"receipt": "1"}, 9: {"receipt": "2"}}
    assert [headers for headers, _ in frames] == [
        {"destination": "d", "x": str(number), **receipts.get(number, {})} for number in range(12)
    ]
    _, frames = sent(rows)
    common = {"persistent": "true", "destination": "q"}
    assert [headers for headers, _ in frames] == [{**common, "_AMQ_DUPL_ID": str(each)} for each in range(12)]


@pytest.mark.parametrize("more", [{"scheme": "ssl://"}, {"tls": "TRUE"}])
def test_tls_may_be_asked_for(more):
    with (
        ScriptedBroker(lambda peer: peer.recv(1000)) as other,
        pytest.raises(ConnectionFailed, match="/no/ca|TLS"),
    ):
        write(
            [numbered(1)], IDS, url=f"{more.pop('scheme', '')}127.0.0.1:{other.port}", **more, caFile="/no/ca"
        )


@pytest.mark.parametrize(
    "given, limit",
    [
        ({}, ReadAllAvailable()),
        ({"maxRowsPerTrigger": "5", "maxBytesPerTrigger": "2K"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "2K"}, ReadMaxBytes(2048)),
    ],
)
def test_limits_of_reading(given, limit):
    assert source(**given).getDefaultReadLimit() == limit


@pytest.mark.parametrize(
    "options, text",
    [
        ({"url": ""}, "option url: is required: HOST:PORT of a broker"),
        ({"url": "host"}, "option url: must be HOST:PORT"),
        ({"destination": ""}, "option destination: is required"),
        ({"spool": ""}, "option spool: is required: a directory of this query alone"),
        ({"spool": "hdfs://x/y"}, "option spool: must be a local path or a file: URL, not 'hdfs://x/y'"),
        ({"timeout": "-1"}, "option timeout: must be a whole number of at least 1, not '-1'"),
        ({"prefetch": "all"}, "option prefetch: must be a whole number of at least 1, not 'all'"),
        ({"maxBytesPerTrigger": "much"}, "option maxBytesPerTrigger: must be a number of bytes"),
        ({"spoolLimit": "0"}, "option spoolLimit: must be at least 1 byte"),
        ({"subscribeHeaders": "x"}, "option subscribeHeaders: must be NAME=VALUE"),
        (
            {"subscribeHeaders": "receipt=1"},
            "option subscribeHeaders: receipt is set by the source",
        ),
        ({"tls": "yes"}, "option tls: must be true or false, not 'yes'"),
        ({"caFile": "/ca"}, "option caFile: requires tls"),
        ({"url": "ssl://host:1", "tls": "false"}, "option tls: is false, but the url has an ssl scheme"),
        ({"password": "a", "passwordFile": "b"}, "option passwordFile: cannot be combined with password"),
        ({"path": "/x"}, "option path: unknown option; options are url, user, password"),
    ],
)
def test_what_cannot_be(options, text):
    with pytest.raises(ValueError, match=text):
        source(**options)


def test_a_job_without_ids():
    with pytest.raises(ValueError, match="option jobId: requires a dedupHeader"):
        writer(jobId="j", dedupHeader="")


@pytest.mark.parametrize("title, ask", [("Writing", writer), ("Reading", source)])
def test_all_of_it_is_documented(title, ask):
    both = _options(DOCUMENT.partition("## Options of both\n")[2].partition("\n## ")[0])
    part = DOCUMENT.partition(f"## {title}\n")[2].partition("\n## ")[0].partition("### Options\n")[2]
    with pytest.raises(ValueError, match="unknown option; options are ") as caught:
        ask(other="x")
    known = str(caught.value).partition("options are ")[2].split(", ")
    assert sorted(both + _options(part.partition("\n### ")[0])) == sorted(known)


def _options(text):
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
