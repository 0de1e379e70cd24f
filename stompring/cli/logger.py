"""``stompring logger``: log levels of a running broker."""

from __future__ import annotations

import click

from stompring.cli.listing import ListOptions, list_options, run_list
from stompring.cli.output import Column
from stompring.cli.remote import Remote, remote_command

COLUMNS = (
    Column("name", "LOGGER", rank=0),
    Column("level", "LEVEL", rank=0),
    Column("effectiveLevel", "EFFECTIVE", rank=0),
    Column("configured", "AS STARTED", rank=1),
)


@click.group()
def logger() -> None:
    """List loggers and change their levels while the broker runs.

    \b
    Examples:
      stompring logger set stompring.session debug
      stompring logger list --where configured=false
    """


@logger.command("list")
@list_options("name")
@remote_command
def list_loggers(remote: Remote, options: ListOptions) -> None:
    """List loggers with their levels.

    \b
    Examples:
      stompring logger list
      stompring logger list --search store
    """
    run_list(remote, ["loggers"], options, COLUMNS, "no loggers")


@logger.command("set")
@click.argument("name")
@click.argument(
    "level", type=click.Choice(("debug", "info", "warn", "error", "inherit"), case_sensitive=False)
)
@remote_command
def set_level(remote: Remote, name: str, level: str) -> None:
    """Change the level of a logger until the broker stops; "inherit" is the level of its parent.

    The logger stompring is the whole broker, root everything.

    \b
    Examples:
      stompring logger set stompring debug
      stompring logger set stompring.store inherit
    """
    answer = remote.patch("loggers", name, body={"level": None if level == "inherit" else level.lower()})
    remote.report(answer, f"logger {name} logs {answer['effectiveLevel']} and above")
