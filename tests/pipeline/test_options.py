"""What options mean, and what is said of those that mean nothing."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from .spark_formats import asked, reader, schema, stream

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text()


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/no/b", "/no/b"),
        ("file:///no%20b", "/no b"),
        ("file:/no", "/no"),
        ("file://localhost/no", "/no"),
        ("relative", str(Path.cwd() / "relative")),
    ],
)
def test_paths(path, expected):
    for name in ("path", "PATH"):
        with pytest.raises(ValueError, match=f"option path: {expected} is not a directory$"):
            asked("stompring", "reader", **{name: path}).partitions()


@pytest.mark.parametrize(
    "text, expected",
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
    """A period has a length: so a time is told by those that are no later, and no earlier."""
    for same in ({"since": text, "until": str(expected)}, {"since": str(expected), "until": text}):
        with pytest.raises(ValueError, match="option until: must be later than since"):
            schema(**same)
    assert (
        schema(since=text, until=str(expected + 1)) == schema(since=str(expected - 1), until=text) == schema()
    )


def test_lists(tmp_path):
    assert schema(columns=" body ,queue") == "`body` BINARY, `queue` STRING"
    assert schema(table="samples", columns="added") == "`added` BIGINT"
    names = ("a", "b", "b.x", "b.x.y", "c", "c.x.y", "d")
    for number, name in enumerate(names):
        page = tmp_path / "paging" / str(number) / "000000001.page"
        page.parent.mkdir(parents=True)
        page.write_bytes(bytes(100))
        (page.parent / "address.txt").write_text(name)
    (part,) = reader(tmp_path, addresses="a, b.*,c.#").partitions()
    assert [names[int(one.name.split("/")[1])] for one in part.value] == ["a", "b.x", "c", "c.x.y"]


@pytest.mark.parametrize(
    "options, text",
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
    with pytest.raises(ValueError, match=text):
        schema(**options)


def test_options_of_streams():
    for name, limit in (("Bytes", ReadMaxBytes(3)), ("Files", ReadMaxFiles(3)), ("Rows", ReadMaxRows(3))):
        option = f"max{name}PerTrigger"
        assert stream("/data", **{option.lower(): "3"}).getDefaultReadLimit() == limit
        with pytest.raises(ValueError, match=f"option {option}: is an option of spark.readStream only"):
            reader("/data", **{option.upper(): "1"})
    for name, value in (("startingOffsets", "Latest"), ("failOnDataLoss", "False")):
        assert stream("/data", **{name.lower(): value, "copies": "TRUE"})
        with pytest.raises(ValueError, match=f"option {name}: is an option of spark.readStream only"):
            reader("/data", **{name.upper(): value})
    assert reader("/data", copies="false")


def test_all_of_it_is_documented():
    part = DOCUMENT.partition("## Options\n")[2].partition("\n## ")[0]
    documented_options = [
        line.split("|")[1].strip(" `") for line in part.splitlines() if line.startswith("| `")
    ]
    with pytest.raises(ValueError, match=f"options are {', '.join(documented_options)}$"):
        schema(adresses="a")
    for table in ("messages", "events", "samples"):
        part = DOCUMENT.partition(f"### {table}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        part = part.partition("| column | type | meaning |\n")[2].partition("\n\n")[0]
        rows = [line.split("|")[1:3] for line in part.splitlines() if line.startswith("| `")]
        documented = {name.strip(" `"): type_.strip() for names, type_ in rows for name in names.split(",")}
        assert ", ".join(f"`{name}` {type_.upper()}" for name, type_ in documented.items()) == schema(
            table=table
        )
