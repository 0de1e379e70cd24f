"""The day in docs/pipeline.md, as it stands there; and what docs/lake.md says of commands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from ...broker_process import BrokerProcess
from .ingesting import COMMANDS
from .ingesting import run as lake_command

pytestmark = pytest.mark.spark

DOCS = Path(__file__).resolve().parents[3] / "docs"
PIPELINE = (DOCS / "pipeline.md").read_text(encoding="utf-8")
LAKE = (DOCS / "lake.md").read_text(encoding="utf-8")
DAY = PIPELINE.partition("## A day of sensor readings")[2].partition("## In a program")[0]
PROGRAM = PIPELINE.partition("## In a program")[2].partition("## Options")[0]


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands():
    lines = [line for block in blocks(DAY, "sh") for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


@pytest.mark.long
def test_a_day_of_sensor_readings(spark, tmp_path, monkeypatch):
    (document,), (script,) = blocks(DAY, "xml"), blocks(DAY, "python")
    monkeypatch.chdir(tmp_path)
    http = '<acceptor name="http">http://127.0.0.1:0</acceptor>'
    assert document.count(":61613?") == 1
    document = document.replace(":61613?", ":0?").replace("</acceptors>", f"{http}</acceptors>")
    Path("broker.xml").write_text(document)
    Path("day.py").write_text(script)
    run, day, *rest = commands()
    assert run == ["stompring", "run", "--config", "broker.xml", "--data", "data"]
    assert day[:2] == ["python", "day.py"]
    shown = []
    with BrokerProcess(tmp_path / "broker.xml", tmp_path / "data") as broker:
        subprocess.run([sys.executable, "day.py", str(broker.port)], check=True, timeout=200)
        for words in rest:
            assert words[:2] == ["stompring", "lake"]
            words = [word.replace(":61613", f":{broker.port}") for word in words[2:]]
            result = lake_command(*words)
            assert result.exit_code == 0, result.output
            shown.append((words[0], result.output))
    outputs = dict(shown)
    assert [name for name, _ in shown] == ["ingest", "report", "sql", "replay"]
    (table,) = blocks(DAY, "text")
    assert table in outputs["sql"]
    assert "sent 1,440 messages" in outputs["replay"]
    page = Path("day.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]*>", " ", page)
    advised = re.search(r"ring-size of\s+([\d,]+)\s+instead of\s+10\s+would have kept\s+99\s*%", text)
    assert advised is not None and 58 <= int(advised[1].replace(",", "")) <= 61, advised
    assert "1,200" in text
    the_program(spark, monkeypatch)


def the_program(spark, monkeypatch):
    (source,) = blocks(PROGRAM, "python")
    source = source.replace(
        '.load("data")', f'.load("{Path("data").absolute()}")'
    )  # Spark was started elsewhere
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
