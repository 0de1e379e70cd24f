"""The commands of a lake where what they need is not there, and what they cost those who do not use them."""

import subprocess
import sys

import pytest

from .command import invoke

LIBRARIES = (
    "pyspark",
    "pyarrow",
    "numpy",
    "deltalake",
    "duckdb",
    "fastavro",
    "obstore",
    "jinja2",
    "matplotlib",
)


def test_it_says_what_to_install(monkeypatch):
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None if name in ("pyspark", "deltalake") else pytest)
    result = invoke("lake sql 'select 1' --lake nowhere", code=1)
    wanted = "Error: missing libraries for lake: pyspark, deltalake: pip install 'stompring[spark]'"
    assert result.output.strip() == wanted
    assert "--data" in invoke("lake ingest --help").output


def test_the_broker_and_other_commands_bring_none_of_it():
    code = (
        "import sys, stompring.cli.main, stompring.server.service\n"
        f"print([name for name in {(*LIBRARIES, 'stompring.pipeline')} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["tables", "sql", "ingest", "report", "replay", "compact", "vacuum"])
def test_every_command_takes_a_master(command):
    told = invoke(f"lake {command} --help").output
    assert "--master " in told and "--conf " in told


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_are_finite(number):
    assert "--rate" in invoke(f"lake replay --lake nowhere --rate={number}", code=2).output
