"""The reference of commands in docs/cli.md, made from the commands themselves."""

import inspect

import click

from stompring.cli.main import COMMANDS, main

#: Options of every command on a running broker, described once.
COMMON = ("server", "context", "user", "password_file", "ca", "json")
CONNECTING = frozenset(COMMON[:-1])

#: Options of every command.
HELP = frozenset({"help"})


def commands(group=main, *path):
    """All commands and groups with their paths, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def parts_of(help_text):
    """The text without its examples, in paragraphs, and the lines of the examples."""
    text, _, examples = inspect.cleandoc(help_text).partition("\b\nExamples:\n")
    return text.replace("\b\n", "").strip(), [line[2:] for line in examples.splitlines() if line.strip()]


def escaped(text):
    """Text in a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def usage(path, command):
    """``stompring queue show [OPTIONS] QUEUE``."""
    context = click.Context(command, info_name=" ".join(("stompring", *path)))
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def option_rows(command):
    """Rows of the options that are not common to all commands."""
    context = click.Context(command)
    names = {parameter.name for parameter in command.params}
    hidden = {*COMMON} if names >= CONNECTING else set()
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or parameter.name in hidden | HELP or parameter.hidden:
            continue
        record = parameter.get_help_record(context)
        assert record is not None
        flags, text = record
        yield f"| `{' '.join(flags.split())}` | {escaped(' '.join(text.split()))} |"


def section(path, command):
    """The lines of one command."""
    text, examples = parts_of(command.help or "")
    yield f"{'#' * (3 if len(path) == 1 else 4)} stompring {' '.join(path)}"
    yield ""
    for paragraph in text.split("\n\n"):
        yield escaped(" ".join(paragraph.split()))
        yield ""
    if not isinstance(command, click.Group):
        yield f"Usage: `{usage(path, command)}`"
        yield ""
    if rows := list(option_rows(command)):
        yield "| option | meaning |"
        yield "|---|---|"
        yield from rows
        yield ""
    if examples:
        yield "```sh"
        yield from examples
        yield "```"
        yield ""


def overview(name):
    """The first paragraph of the help of each command of a group."""
    lines = ["| command | effect |", "|---|---|"]
    for path, command in commands():
        if path[0] == name and len(path) > 1:
            first = parts_of(command.help or "")[0].partition("\n\n")[0]
            lines.append(f"| `{path[1]}` | {escaped(' '.join(first.split()))} |")
    return "\n".join(lines)


def reference():
    """All commands."""
    lines = []
    titles = {next(iter(group)): title for title, group in COMMANDS.items()}
    for path, command in commands():
        if len(path) == 1 and path[0] in titles:
            lines += [f"## Reference: {titles[path[0]][0].lower()}{titles[path[0]][1:]}", ""]
        lines += section(path, command)
    return "\n".join(lines)
