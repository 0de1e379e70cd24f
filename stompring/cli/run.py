"""``stompring run``: start the broker and stay until it is told to stop."""

from __future__ import annotations

import click

from stompring.cli import config_option

LOG_LEVELS = ("debug", "info", "warn", "error", "critical")


@click.command()
@click.option(
    "--config", metavar="FILE", help=f"The broker.xml to run with.  [default: {config_option.DEFAULT}]"
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The directory for what the broker keeps on disk, in place of the one that the broker.xml implies.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="Log nothing that is less severe than this.",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json"), case_sensitive=False),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object per line for a log collector.",
)
@click.pass_context
def run(
    context: click.Context, config: str | None, data: str | None, log_level: str, log_format: str
) -> None:
    """Start the broker.

    It runs until SIGINT or SIGTERM, which stop it cleanly with exit status 0. On SIGHUP it reads its broker.xml
    again, and keeps the configuration it has where the new one has a mistake.
    """
    file = config_option.existing(config)
    # Here and not above: Twisted and what comes with it would make every other command slow to start.
    from stompring.server import service

    context.exit(service.run(file, data, log_level, log_format))
