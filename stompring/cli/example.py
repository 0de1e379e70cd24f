"""``stompring example``: lists, shows and copies shipped configurations, alerts, dashboards, unit files, clients."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from stompring.settings.document import with_suggestion
from stompring.settings.machine import shipped_directory

from .options import JSON_FOR_TEXT, argument, command, option
from .output import NOT_FOUND, CommandFailed, columns, echo_json, print_table

#: Shipped directories with examples.
DIRECTORIES = ("config", "examples")

#: Finds the subject of an example: the first sentence of its comment, docstring, JSON description or notebook.
_SUBJECT = re.compile(
    r'(?:<!--|^# |"""|"description": "|"# )\s*(.+?)(?:[.:]\n|\. |\\n|\.?"|\.? -->|\n#?\n)', re.M | re.S
)


def _examples() -> dict[str, Path]:
    """The paths of all examples, by name. The name is the relative path inside one of the `DIRECTORIES`."""
    found = {
        path.relative_to(top).as_posix(): path
        for top in map(shipped_directory, DIRECTORIES)
        for path in top.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".properties")
    }
    return dict(sorted(found.items()))


def _unknown(name: str, known: dict[str, Path]) -> CommandFailed:
    fault = f"there is no example {name!r} (see 'stompring example list')"
    return CommandFailed(with_suggestion(fault, name, known), NOT_FOUND)


@click.group()
def example() -> None:
    """List, show and copy examples: configurations, alerts, dashboards, unit files, clients.

    \b
    Examples:
      stompring example list
      stompring example show prometheus-alerts.yml
      stompring example copy ha/nats-server.conf .
    """


@command(example, "list")
def list_examples(as_json: bool = JSON_FOR_TEXT) -> None:
    """List all examples, each with its subject.

    \b
    Examples:
      stompring example list
      stompring example list --json | jq -r '.examples[].name'
    """
    rows = []
    for name, path in _examples().items():
        found = _SUBJECT.search(path.read_text(encoding="utf-8", errors="replace"))
        rows.append({"name": name, "subject": "" if found is None else re.sub(r"\n#?\s*", " ", found[1])})
    if as_json:
        echo_json({"examples": rows})
    else:
        print_table(rows, columns(name=0, subject=0))


@command(example)
def show(name: str) -> None:
    """Print the example NAME.

    \b
    Examples:
      stompring example show security.xml
      stompring example show stompring.service | less
    """
    known = _examples()
    if name not in known:
        raise _unknown(name, known)
    click.echo(known[name].read_bytes(), nl=False)


@command(example)
def copy(
    name: str,
    directory: Path = argument("DIR"),
    force: bool = option("Overwrite existing files."),
    as_json: bool = JSON_FOR_TEXT,
) -> None:
    """Copy the example NAME, or all examples of the folder NAME, into DIR.

    A file keeps its name, a folder becomes a folder of DIR. DIR is created if it is absent. Without --force nothing
    is copied if one of the files exists.

    \b
    Examples:
      stompring example copy security.xml etc
      stompring example copy ha .
      stompring example copy grafana /srv --force
    """
    known, folder = _examples(), name.rstrip("/")
    start = len(folder) - len(Path(folder).name)
    files = {
        directory / each[start:]: path
        for each, path in known.items()
        if each == name or each.startswith(f"{folder}/")
    }
    if not files:
        raise _unknown(name, known)
    for target in files:
        if not force and os.path.lexists(target):
            raise CommandFailed(f"{target} exists already; --force overwrites it")
    for target, path in files.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        except OSError as fault:
            raise CommandFailed(f"cannot write {target}: {fault.strerror}") from None
        if not as_json:
            click.echo(f"wrote {target}")
    if as_json:
        echo_json({"files": list(map(str, files))})
