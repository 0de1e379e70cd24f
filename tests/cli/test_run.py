"""``stompring run``: what of its options reaches the service, and which broker.xml it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stompring.cli.main import main
from stompring.server import service


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, ...]]:
    """The calls that reach the service, which is not started; the current directory is an empty one."""
    made: list[tuple[object, ...]] = []

    def run(config_path: str, data_dir: str | None, log_level: str, log_format: str) -> int:
        made.append((config_path, data_dir, log_level, log_format))
        return 3

    monkeypatch.setattr(service, "run", run)
    monkeypatch.chdir(tmp_path)
    return made


def test_the_default_file_is_taken_when_it_is_there(calls: list[tuple[object, ...]]) -> None:
    Path("config").mkdir()
    Path("config/broker.xml").touch()
    result = CliRunner().invoke(main, ["run"])
    assert calls == [("config/broker.xml", None, "info", "text")]
    assert result.exit_code == 3, "the status of the service is that of the command"


def test_without_the_default_file_it_says_what_to_do(calls: list[tuple[object, ...]], tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["run"])
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: there is no config/broker.xml in the directory {tmp_path}: "
        "go to where yours is, or name it with --config FILE\n"
    )
    assert calls == []


def test_all_options_are_passed_on(calls: list[tuple[object, ...]]) -> None:
    options = ["--config", "b.xml", "--data", "d", "--log-level", "DEBUG", "--log-format", "json"]
    CliRunner().invoke(main, ["run", *options])
    assert calls == [("b.xml", "d", "debug", "json")]


@pytest.mark.parametrize(
    "options", [["--log-level", "loud"], ["--log-format", "xml"], ["--nonsense"], ["b.xml"]]
)
def test_options_that_cannot_be_are_refused(calls: list[tuple[object, ...]], options: list[str]) -> None:
    result = CliRunner().invoke(main, ["run", *options])
    assert result.exit_code == 2
    assert calls == []


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["run", "--config", str(tmp_path / "absent.xml")])
    assert result.exit_code == 1
    assert "absent.xml" in result.stderr
    assert "Traceback" not in result.output
