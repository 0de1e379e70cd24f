"""The unit for systemd that is shipped: its commands are ours, and systemd understands it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

UNIT = Path(__file__).parents[2] / "config" / "stompring.service"
COMMANDS = re.findall(r"^ExecStart(?:Pre)?=\S+/stompring (.*)$", UNIT.read_text(encoding="utf-8"), re.M)


def test_it_has_commands() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["check-config", "run"]


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_and_options_are_ours(command: str) -> None:
    name, *rest = shlex.split(command)
    told = CliRunner().invoke(main, [name, "--help"]).output
    options = [word for word in rest if word.startswith("--")]
    assert told.startswith("Usage:") and all(f"{option} " in told for option in options), told


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze in the PATH")
    text = UNIT.read_text(encoding="utf-8")
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"/opt/stompring/bin/stompring", "/bin/true", text), encoding="utf-8")
    found = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    about_it = [line for line in found.stderr.splitlines() if UNIT.name in line]
    assert about_it == [], found.stderr


def test_systemd_finds_the_sandbox_tight(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze in the PATH")
    found = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", str(UNIT)], capture_output=True, text=True
    )
    if "nrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze is too old for it")
    assert found.returncode == 0, found.stdout + found.stderr  # above 2.0 of 10 it is not


def test_it_runs_as_who_can_read_its_files_and_is_watched() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    assert {"User=stompring", "Type=notify", "WatchdogSec=30", "NotifyAccess=main"} <= set(lines)
    assert not any(line.startswith("DynamicUser") for line in lines)
    check, run = (shlex.split(command) for command in COMMANDS)
    assert check[check.index("--data") + 1] == run[run.index("--data") + 1]
    assert check[-1] == run[run.index("--config") + 1]
