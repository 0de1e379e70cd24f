"""What options mean, and what is said of those that mean nothing."""

import re
from pathlib import Path

import pytest

from stompring.pipeline.options import OptionError
from stompring.pipeline.stomp.endpoint import Endpoint
from stompring.pipeline.stomp.options import SINK_OPTIONS, SOURCE_OPTIONS, SinkOptions, SourceOptions

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "spark-stomp.md").read_text(encoding="utf-8")

NEEDED = {"url": "host:1", "destination": "q", "spool": "/s"}


def sink(**options):
    return SinkOptions.of({"url": "host:1", **options})


def source(**options):
    return SourceOptions.of({**NEEDED, **options})


def test_defaults():
    assert sink() == SinkOptions(Endpoint("host", 1), dedup_header="_AMQ_DUPL_ID")
    beating = Endpoint("host", 1, heart_beat=10_000)
    assert source() == SourceOptions(beating, "q", Path("/s"), (("prefetch-count", "10000"),))


def test_all_of_writing():
    given = {
        "USER": "u",
        "password": "p",
        "virtualHost": "/v",
        "timeout": "1500",
        "tls": "TRUE",
        "caFile": "/ca",
    }
    endpoint = Endpoint("host", 1, "u", "p", virtual_host="/v", timeout=1.5, tls=True, ca_file=Path("/ca"))
    more = {
        "destination": "q",
        "transaction": "false",
        "receiptrows": "5",
        "persistent": "false",
        "jobId": "j",
    }
    assert sink(**given, **more, dedupHeader="x", checkpointLocation="/c", queryName="n") == SinkOptions(
        endpoint, "q", False, 5, False, "j", "x"
    )
    assert sink(dedupHeader="").dedup_header is None


def test_a_url_may_ask_for_tls():
    found = sink(url="ssl://host:1", caFile="/ca").endpoint
    assert found == Endpoint("host", 1, tls=True, ca_file=Path("/ca"))


def test_all_of_reading():
    found = source(
        spool="file:///a%20b",
        passwordFile="/secret",
        clientId="me",
        heartBeat="0",
        prefetch="7",
        selector="a = 1",
        subscribeHeaders="x=1, y = 2=3,",
        maxRowsPerTrigger="5",
        maxBytesPerTrigger="2K",
        spoolLimit="3M",
        idle="20",
        drain="30",
    )
    headers = (("prefetch-count", "7"), ("selector", "a = 1"), ("x", "1"), ("y", "2=3"))
    endpoint = Endpoint("host", 1, password_file=Path("/secret"), client_id="me")
    assert found == SourceOptions(endpoint, "q", Path("/a b"), headers, 5, 2048, 3 << 20, 0.02, 0.03)


@pytest.mark.parametrize(
    ("options", "text"),
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
    with pytest.raises(OptionError) as caught:
        source(**options)
    assert text in str(caught.value)


def test_a_job_without_ids():
    with pytest.raises(OptionError, match="option jobId: requires a dedupHeader"):
        sink(jobId="j", dedupHeader="")


@pytest.mark.parametrize(("title", "known"), [("Writing", SINK_OPTIONS), ("Reading", SOURCE_OPTIONS)])
def test_all_of_it_is_documented(title, known):
    both = _options(DOCUMENT.partition("## Options of both\n")[2].partition("\n## ")[0])
    part = DOCUMENT.partition(f"## {title}\n")[2].partition("\n## ")[0].partition("### Options\n")[2]
    assert sorted(both + _options(part.partition("\n### ")[0])) == sorted(known)


def _options(text):
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
