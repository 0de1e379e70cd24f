"""``stompring run``: start the broker and stay until it is told to stop."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stompring.server.reactor import REACTORS, STOMPRING, use_reactor
from stompring.settings.machine import shipped_file

from . import output

LOG_LEVELS = ("debug", "info", "warn", "error", "critical")


@click.command()
@click.option(
    "--config",
    metavar="FILE",
    help=f"The broker.xml to run with.  [default: {output.DEFAULT}, else the packaged configuration]",
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
@click.option(
    "--drain-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, max=86_400),
    default=0,
    show_default=True,
    help="On SIGINT or SIGTERM refuse new connections first, and wait up to so long until clients have gone.",
)
@click.option(
    "--reactor",
    type=click.Choice(REACTORS),
    default=STOMPRING,
    show_default=True,
    help="The event loop: the broker's own, or Twisted's stock one. Without epoll (Linux) it is always the stock one.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="While another broker has the data directory, wait for it as a standby: HTTP answers live, but not ready. "
    "Without this option the start fails.",
)
@click.pass_context
def run(
    context: click.Context,
    config: str | None,
    data: str | None,
    log_level: str,
    log_format: str,
    drain_timeout: float,
    reactor: str,
    wait: bool,
) -> None:
    """Start the broker.

    It runs until SIGINT or SIGTERM, which stop it cleanly with exit status 0. On SIGHUP it reads its broker.xml
    again, and keeps the configuration it has where the new one has a mistake.

    With a <replicated-log> it is a standby until the log's active broker is silent. Exit status 75: it was active and
    is not any more, because another broker is or because it was asked to step down. Started again, it is a standby.
    Exit status 1: it could not start, and another broker may.

    Without --config and without config/broker.xml it runs the packaged configuration: listeners on 127.0.0.1 only
    (STOMP 61613, WebSocket 61614, HTTP 8161), no logins, data in $XDG_STATE_HOME/stompring (~/.local/state/stompring).
    'stompring init DIR' creates a configuration to change.

    \b
    Examples:
      stompring run
      stompring run --config etc/broker.xml
      stompring run --data /tmp/try --log-level debug
      stompring run --config etc/broker.xml --wait
    """
    # Here and not above: Twisted and what comes with it would make every other command slow to start.
    stock_because = use_reactor(reactor)
    from stompring.server import service

    if config is not None or Path(output.DEFAULT).exists():
        file = output.existing(config)
        context.exit(
            service.run(
                file,
                data,
                log_level,
                log_format,
                drain_timeout=drain_timeout,
                stock_because=stock_because,
                wait=wait,
            )
        )
    packaged, directory = shipped_file("config", "broker.xml"), data or str(state_directory())
    notice = (
        f"no --config and no {output.DEFAULT} in {Path.cwd()}: using the packaged configuration {packaged} "
        f"with the data directory {directory}"
    )
    context.exit(
        service.run(
            str(packaged),
            directory,
            log_level,
            log_format,
            notice=notice,
            drain_timeout=drain_timeout,
            stock_because=stock_because,
            wait=wait,
        )
    )


def state_directory() -> Path:
    """The data directory of a broker without a configuration of its own: ``$XDG_STATE_HOME/stompring``."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # the specification of XDG directories: relative paths are invalid and ignored
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "stompring"
