"""The day in docs/tutorials/lake.md and the program in docs/pipeline.md; and what docs/lake.md says of commands."""

import re
from contextlib import ExitStack

import pytest

pytest.importorskip("deltalake")

from ...docs.pages import blocks_of, text_of
from ...docs.tutorial import Tutorial
from .ingesting import COMMANDS
from .ingesting import run as lake_command

pytestmark = pytest.mark.spark

LAKE = text_of("docs/lake.md")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_day_of_sensor_readings(spark, tmp_path, monkeypatch):
    with ExitStack() as opened:
        tutorial = Tutorial(tmp_path, text_of("docs/tutorials/lake.md"), opened)
        tutorial.run()
    page = (tutorial.work / "day.html").read_text()
    text = re.sub(r"<[^>]*>", " ", page)
    advised = re.search(r"ring-size of\s+([\d,]+)\s+instead of\s+10\s+would have kept\s+99\s*%", text)
    assert advised is not None and 58 <= int(advised[1].replace(",", "")) <= 61, advised
    assert "1,200" in text
    the_program(spark, tutorial.work / "data", monkeypatch)


def the_program(spark, data, monkeypatch):
    page = text_of("docs/pipeline.md").partition("## In a program")[2].partition("## Options")[0]
    (block,) = blocks_of(page)
    source = block.text.replace('.load("data")', f'.load("{data}")')  # Spark was started elsewhere
    frames = []
    frame = type(spark.range(1))
    monkeypatch.setattr(frame, "show", lambda self: frames.append(self.collect()))
    exec(compile(source, "docs/pipeline.md", "exec"), {})
    ((*rows,),) = frames
    assert sorted((row.queue, row["count(1)"]) for row in rows) == [
        ("plant.pressure", 1440),
        ("plant.temperature", 1440),
        ("plant.vibration", 1440),
    ]


def test_all_commands_and_their_options_are_known():
    table = re.findall(r"^\| `(\w+)` \|", LAKE.partition("## Commands")[2].partition("## Tables")[0], re.M)
    assert sorted(table) == sorted(COMMANDS)
    known = {option for one in COMMANDS.values() for param in one.params for option in param.opts}
    assert set(re.findall(r"(--[a-z][a-z-]+)", LAKE)) <= known | {"--help"}
    for name, one in COMMANDS.items():
        result = lake_command(name, "--help")
        assert result.exit_code == 0 and (one.help or "").split(".")[0][:30] in result.output
