"""The command as a whole: what it lists, how it fails, and that it starts without loading the reactor."""

import json
import subprocess
import sys

import click
import pytest

from stompring import __version__, build
from stompring.cli.main import COMMANDS, main
from stompring.errors import ConfigurationError

from .command import invoke


def test_version():
    assert invoke("--version").output == f"stompring, version {__version__} ({build()})\n"


def test_help_names_every_command_with_what_it_does():
    result = invoke("--help")
    for name, command in commands_of(main):
        assert name in result.output
        assert command.help, f"{name} has no help text"


def commands_of(group):
    context = click.Context(group)
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]


@pytest.mark.parametrize("name, line", [row for part in COMMANDS.values() for row in part.items()])
def test_line_in_the_help_is_that_of_the_command(name, line):
    help_text = dict(commands_of(main))[name].help
    assert " ".join(help_text.partition("\n\n")[0].split()).startswith(line)


def all_commands(group, *path):
    found = []
    for name, command in commands_of(group):
        found.append([*path, name])
        if isinstance(command, click.Group):
            found += all_commands(command, *path, name)
    return found


@pytest.mark.parametrize("path", all_commands(main), ids=" ".join)
def test_every_command_and_option_has_a_help_text(path):
    invoke(*path, "--help")
    command = main
    for name in path:
        command = dict(commands_of(command))[name]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help text"


def test_a_wrong_configuration_is_a_message_and_status_1(monkeypatch):
    @click.command()
    def fails():
        raise ConfigurationError("no such thing", "broker.xml", 7)

    monkeypatch.setitem(main.commands, "fails", fails)
    result = invoke("fails", code=1)
    assert result.stderr == "Error: broker.xml:7: no such thing\n"
    assert result.stdout == ""
    result = invoke("--json", "fails", code=1)
    assert (json.loads(result.stderr), result.stdout) == (
        {"error": "broker.xml:7: no such thing", "exitStatus": 1},
        "",
    )
    for words, status in (("nothing", 2), ("queue list --server http://127.0.0.1:1", 5)):
        assert json.loads(invoke(*words.split(), "--json", code=status).stderr)["exitStatus"] == status


def test_any_other_exception_keeps_its_traceback(monkeypatch):
    @click.command()
    def fails():
        raise ZeroDivisionError

    monkeypatch.setitem(main.commands, "fails", fails)
    assert isinstance(invoke("fails", code=1).exception, ZeroDivisionError)


def test_python_m_is_the_same_command(tmp_path):
    command = [sys.executable, "-m", "stompring"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: stompring [OPTIONS] COMMAND")
    failed = subprocess.run(
        [*command, "check-config", str(tmp_path / "absent.xml")], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert "absent.xml" in failed.stderr and "Traceback" not in failed.stderr


def test_the_reactor_is_loaded_by_run_alone():
    script = (
        "import sys, stompring.cli.main; print([name for name in sys.modules if name.startswith('twisted')])"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


def test_unknown_command_is_an_error_with_the_nearest():
    assert "there is no command 'queu'; did you mean 'queue'?" in invoke("queu list", code=2).stderr
    assert "\x1b" not in invoke("\x1b[31m", code=2).stderr
