"""docs/cli.md and the help of all commands: complete, in agreement with the commands, and with examples that parse."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from stompring.cli import output
from stompring.cli.main import main

from .cli_reference import PAGE, commands, parts_of, written

TEXT = PAGE.read_text(encoding="utf-8")
ALL = list(commands())
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_reference_is_up_to_date():
    assert written(TEXT) == TEXT, "run: make docs-reference"


@pytest.mark.parametrize(
    ("path", "command"), ALL, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_of_every_command_has_examples_of_it(path, command):
    _, examples = parts_of(command.help or "")
    assert examples, "the help has no examples"
    assert any(f"stompring {' '.join(path)}" in example for example in examples), examples


def stompring_words(line):
    """The words after ``stompring`` of each of its calls in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[list[str]] = []
    words: list[str] | None = None
    for word in lexer:
        if words is None and (word == "stompring" or word.endswith("(stompring")):
            words = []
            found.append(words)
        elif re.fullmatch(r"[|&;<>()]+", word):
            words = None
        elif words is not None:
            words.append(word)
    return found


def check(words):
    """The words name a command, and options that it has. Raises click.UsageError."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {name!r} in {words}"
        command = found
    context = click.Context(command)
    command.make_parser(context).parse_args(rest)


@pytest.mark.parametrize(
    "line",
    sorted(
        {
            line
            for text in (*BLOCKS, *("\n".join(parts_of(command.help or "")[1]) for _, command in ALL))
            for line in text.replace("\\\n", " ").splitlines()
            if "stompring " in line and not line.lstrip().startswith("#")
        }
    ),
)
def test_examples_are_commands_with_options_that_exist(line):
    calls = stompring_words(line.replace("$(", "(").replace('"(', "(").replace(')"', ")"))
    assert calls, line
    for words in calls:
        check(words)


@pytest.mark.parametrize(
    "span", sorted(set(re.findall(r"`(stompring [^`]+)`", TEXT.partition("<!-- reference")[0])))
)
def test_commands_in_the_text_exist(span):
    if "COMMAND" not in span:
        (words,) = stompring_words(span)
        check(words)


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
        for name in re.findall(r"\bSTOMPRING_[A-Z_]+\b", file.read_text(encoding="utf-8"))
    }
    documented = set(re.findall(r"`(STOMPRING_[A-Z_]+)`", TEXT))
    assert used - documented <= {"STOMPRING_COMPLETE", "STOMPRING_CLASS_ARCHIVE"}, (
        "the latter is in docs/lake.md"
    )
