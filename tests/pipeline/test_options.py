"""What options mean, and what is said of those that mean nothing."""

from pathlib import Path

import pytest

from stompring.pipeline.arrays import ENDINGS, TABLES
from stompring.pipeline.options import (
    ALL_OPTIONS,
    STREAM_OPTIONS,
    OptionError,
    Options,
    StreamOptions,
    TableScan,
)

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")


def of(**options):
    return Options.of({"path": "/data", **options})


def test_defaults():
    assert of() == Options("/data", TableScan())
    assert of().wanted.columns == tuple(TABLES["messages"])
    assert TABLES.keys() == ENDINGS.keys()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("file:/a", "/a"),
        ("file://localhost/a", "/a"),
        ("s3://a/b/", "s3://a/b"),
    ],
)
def test_paths(path, expected):
    assert Options.of({"path": path}).root == expected
    assert Options.of({"PATH": "relative"}).root == str(Path.cwd() / "relative")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("-5", -5),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.125+01:00", 1_700_000_000_125),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times(text, expected):
    assert of(since=text).wanted.since == expected
    assert of(until=text).wanted.until == expected


def test_lists():
    wanted = of(addresses="a, b.*,c.#", columns=" body ,queue").wanted
    assert wanted.columns == ("body", "queue") and wanted.ddl == "`body` BINARY, `queue` STRING"
    assert [name for name in ("a", "b", "b.x", "b.x.y", "c", "c.x.y", "d") if wanted.matches(name)] == [
        *("a", "b.x", "c", "c.x.y")
    ]
    assert of(table="samples", columns="added").wanted.ddl == "`added` BIGINT"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": ""}, "option path: is required"),
        (
            {"path": "ftp://bucket/x"},
            "option path: must be a local directory, or a URL that begins with file:",
        ),
        ({"retention": "ftp://bucket/x"}, "option retention: must be a local directory"),
        ({"path": "file://host/x"}, "option path: must be a local directory"),
        ({"table": "queues"}, "option table: must be one of messages, events, samples, not 'queues'"),
        (
            {"columns": "body,weight"},
            "option columns: messages has no column 'weight'; columns are address, ",
        ),
        ({"columns": "added"}, "option columns: messages has no column 'added'"),
        ({"columns": ","}, "option columns: must name at least one column"),
        ({"columns": "body,body"}, "option columns: body is listed twice"),
        ({"addresses": " ,"}, "option addresses: must name at least one"),
        ({"since": "yesterday"}, "option since: must be a time as 2026-07-01T12:00:00Z, or milliseconds"),
        ({"since": "9" * 5001}, "option since: must be a time as"),
        ({"since": "1_0"}, "option since: must be a time as"),
        ({"since": "\u0661"}, "option since: must be a time as"),
        (
            {"maxFilesPerTrigger": "9" * 5001},
            "option maxFilesPerTrigger: must be a whole number greater than 0",
        ),
        (
            {"maxFilesPerTrigger": "\u0661"},
            "option maxFilesPerTrigger: must be a whole number greater than 0",
        ),
        ({"maxFilesPerTrigger": "1_0"}, "option maxFilesPerTrigger: must be a whole number greater than 0"),
        ({"since": "2", "until": "2"}, "option until: must be later than since"),
        ({"copies": "no"}, "option copies: must be true or false, not 'no'"),
        ({"copies": "true", "table": "events"}, "option copies: applies to table messages, not to events"),
        ({"startingOffsets": "0"}, "option startingOffsets: must be earliest or latest, not '0'"),
        ({"failOnDataLoss": "1"}, "option failOnDataLoss: must be true or false, not '1'"),
        ({"maxBytesPerTrigger": "1g"}, "option maxBytesPerTrigger: must be a whole number greater than 0"),
        ({"maxFilesPerTrigger": "0"}, "option maxFilesPerTrigger: must be a whole number greater than 0"),
        ({"maxRowsPerTrigger": "-1"}, "option maxRowsPerTrigger: must be a whole number greater than 0"),
        ({"adresses": "a"}, "option adresses: unknown option; options are path, "),
    ],
)
def test_what_cannot_be(options, text):
    with pytest.raises(OptionError) as caught:
        of(**options)
    assert text in str(caught.value)


def test_options_of_streams():
    assert of().streaming == StreamOptions(latest=False, fail=True)
    given = {
        "startingoffsets": "latest",
        "FailOnDataLoss": "False",
        "maxbytespertrigger": "1",
        "copies": "TRUE",
    }
    found = of(**given, maxFilesPerTrigger="2", maxRowsPerTrigger="3")
    assert found.streaming == StreamOptions(True, False, 1, 2, 3) and found.wanted.copies is True
    assert Options.of_batch({"path": "/data", "copies": "false"}).wanted.copies is False
    for name in STREAM_OPTIONS:
        with pytest.raises(OptionError, match=f"option {name}: is an option of spark.readStream only"):
            Options.of_batch({"path": "/data", name.upper(): "1"})


def test_a_missing_path():
    with pytest.raises(OptionError, match="option path"):
        Options.of({})


def test_all_of_it_is_documented():
    part = DOCUMENT.partition("## Options\n")[2].partition("\n## ")[0]
    documented_options = [
        line.split("|")[1].strip(" `") for line in part.splitlines() if line.startswith("| `")
    ]
    assert documented_options == list(ALL_OPTIONS)
    for table, columns in TABLES.items():
        part = DOCUMENT.partition(f"### {table}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        part = part.partition("| column | type | meaning |\n")[2].partition("\n\n")[0]
        rows = [line.split("|")[1:3] for line in part.splitlines() if line.startswith("| `")]
        documented = {name.strip(" `"): type_.strip() for names, type_ in rows for name in names.split(",")}
        assert documented == {name: type_.lower() for name, type_ in columns.items()}, table
