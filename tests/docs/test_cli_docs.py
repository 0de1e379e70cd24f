"""docs/cli.md and the help of all commands: complete, and in agreement with the commands."""

import re
from pathlib import Path

import pytest

from stompring.cli import output

from .cli_reference import commands, parts_of
from .pages import text_of

TEXT = text_of("docs/cli.md")
ALL = list(commands())


def test_reference_has_every_command():
    headings = set(re.findall(r"^#{3,4} stompring (.*)$", TEXT, re.MULTILINE))
    assert {" ".join(path) for path, _ in ALL} <= headings


@pytest.mark.parametrize(
    "path, command", ALL, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_of_every_command_has_examples_of_it(path, command):
    _, examples = parts_of(command.help or "")
    assert examples, "the help has no examples"
    assert any(f"stompring {' '.join(path)}" in example for example in examples), examples


def test_exit_codes_are_documented():
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", TEXT, re.MULTILINE))
    constants = (
        output.FAILED,
        output.USAGE,
        output.NOT_FOUND,
        output.DENIED,
        output.UNREACHABLE,
        output.INTERRUPTED,
    )
    assert {int(code) for code in rows} == {0, *constants}


def test_environment_variables_are_documented():
    package = Path(output.__file__).parent
    used = {
        name
        for file in package.glob("*.py")
        for name in re.findall(r"\bSTOMPRING_[A-Z_]+\b", file.read_text())
    }
    documented = set(re.findall(r"`(STOMPRING_[A-Z_]+)`", TEXT))
    assert used - documented <= {"STOMPRING_COMPLETE", "STOMPRING_CLASS_ARCHIVE"}, (
        "the latter is in docs/lake.md"
    )
