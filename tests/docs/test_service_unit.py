"""The units for systemd that are shipped: their commands are ours, and systemd understands them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from ..tools import need

CONFIG = Path(__file__).parents[2] / "config"
UNIT, LAKE = CONFIG / "stompring.service", CONFIG / "stompring-lake.service"


def commands(unit):
    return re.findall(r"^ExecStart(?:Pre)?=\S+/stompring (.*)$", unit.read_text(), re.M)


COMMANDS = commands(UNIT)


def test_they_have_commands():
    assert [command.split()[0] for command in COMMANDS] == ["check-config", "run"]
    assert [command.split()[:2] for command in commands(LAKE)] == [["lake", "ingest"]]


@pytest.mark.parametrize("command", [*COMMANDS, *commands(LAKE)])
def test_their_commands_and_options_are_ours(command):
    words = shlex.split(command)
    path = words[: 2 if words[0] == "lake" else 1]
    told = CliRunner().invoke(main, [*path, "--help"]).output
    options = [word for word in words if word.startswith("--")]
    assert told.startswith("Usage:") and all(f"{option} " in told for option in options), told


@pytest.mark.parametrize("shipped", [UNIT, LAKE], ids=lambda unit: unit.stem)
def test_systemd_understands_every_line(shipped, tmp_path):
    analyze = need("systemd-analyze")
    text = shipped.read_text()
    unit = tmp_path / shipped.name
    unit.write_text(re.sub(r"/opt/stompring/bin/stompring", "/bin/true", text))
    found = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    about_it = [line for line in found.stderr.splitlines() if shipped.name in line]
    assert about_it == [], found.stderr


@pytest.mark.parametrize("shipped", [UNIT, LAKE], ids=lambda unit: unit.stem)
def test_systemd_finds_the_sandbox_tight(shipped):
    analyze = need("systemd-analyze")
    found = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", str(shipped)],
        capture_output=True,
        text=True,
    )
    if "nrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze is too old for it")
    assert found.returncode == 0, found.stdout + found.stderr  # above 2.0 of 10 it is not


def test_it_runs_as_who_can_read_its_files_and_is_watched():
    lines = UNIT.read_text().splitlines()
    assert {"User=stompring", "Type=notify", "WatchdogSec=30", "NotifyAccess=main"} <= set(lines)
    assert not any(line.startswith("DynamicUser") for line in lines)
    check, run = (shlex.split(command) for command in COMMANDS)
    assert check[check.index("--data") + 1] == run[run.index("--data") + 1]
    assert check[-1] == run[run.index("--config") + 1]


def test_the_ingest_reads_what_the_broker_writes_and_is_stopped_gently():
    lines = LAKE.read_text().splitlines()
    # with the whole group SIGTERM would end Spark's JVM under the batch
    assert {"User=stompring", "Type=notify", "KillMode=mixed", "KillSignal=SIGTERM"} <= set(lines)
    (ingest,), run = ([shlex.split(each) for each in commands(LAKE)], shlex.split(COMMANDS[1]))
    data = run[run.index("--data") + 1]
    assert ingest[ingest.index("--data") + 1] == data and f"ReadWritePaths=-{data}/retention" in lines
    assert ingest[ingest.index("--lake") + 1].startswith("/var/lib/stompring-lake/")
    assert "--follow" in ingest and "StateDirectory=stompring-lake" in lines
