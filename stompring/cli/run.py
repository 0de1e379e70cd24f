"""``stompring run``: runs the broker until a signal stops it."""

from __future__ import annotations

import os
from pathlib import Path

from stompring.server.reactor import REACTORS, STOMPRING, use_reactor, without_openssl
from stompring.settings.machine import shipped_file

from .options import command, option
from .output import DEFAULT, default_file, existing

LOG_LEVELS = ("debug", "info", "warn", "error", "critical")


@command()
def run(
    config: str | None = option(
        "FILE", f"The broker.xml to run with.  [default: {DEFAULT}, else the packaged configuration]"
    ),
    data: str | None = option(
        "DIR",
        "The directory for what the broker keeps on disk, in place of the one that the broker.xml implies.",
    ),
    log_level: str = option("Log nothing that is less severe than this.", choices=LOG_LEVELS, default="info"),
    log_format: str = option(
        "Lines for people, or one JSON object per line for a log collector.",
        choices=("text", "json"),
        default="text",
    ),
    drain_timeout: float = option(
        "SECONDS",
        "On SIGINT or SIGTERM refuse new connections first, and wait up to this time for all clients to disconnect.",
        default=0,
        min=0,
        max=86_400,
    ),
    reactor: str = option(
        "The event loop: the broker's own, or Twisted's stock one. Without epoll (Linux) it is always the stock one.",
        exact=REACTORS,
        default=STOMPRING,
    ),
    wait: bool = option(
        "While another broker has the data directory, wait for it as a standby: HTTP answers live, but not ready. "
        "Without this option the start fails."
    ),
) -> None:
    """Start the broker.

    It runs until SIGINT or SIGTERM, which stop it cleanly with exit status 0. On SIGHUP it reads broker.xml again. If
    the file has a mistake, the broker keeps its present configuration.

    With a <replicated-log> it is a standby until the log's active broker is silent. Exit status 75: it was active and
    lost that role, because another broker took over or an operator asked it to step down. Started again, it is a
    standby. Exit status 1: this broker could not start, but another one may be able to.

    Without --config, and without config/broker.xml and etc/broker.xml, it runs the packaged configuration: listeners on
    127.0.0.1 only (STOMP 61613, WebSocket 61614, HTTP 8161), no logins, data in $XDG_STATE_HOME/stompring
    (~/.local/state/stompring). 'stompring init DIR' creates a configuration to change, etc/broker.xml in DIR.

    \b
    Examples:
      stompring run
      stompring run --config etc/broker.xml
      stompring run --data /tmp/try --log-level debug
      stompring run --config etc/broker.xml --wait
    """
    # imported here: Twisted makes commands slow to start
    with without_openssl():
        stock_because = use_reactor(reactor)
        from stompring.server import service

    notice: dict[str, str] = {}
    if config is not None or default_file() is not None:
        file = existing(config)
    else:
        file, data = str(shipped_file("config", "broker.xml")), data or str(state_directory())
        notice["notice"] = (
            f"no --config and no {DEFAULT} in {Path.cwd()}: using the packaged configuration {file} "
            f"with the data directory {data}"
        )
    raise SystemExit(
        service.run(
            file,
            data,
            log_level,
            log_format,
            **notice,
            drain_timeout=drain_timeout,
            stock_because=stock_because,
            wait=wait,
        )
    )


def state_directory() -> Path:
    """The data directory of a broker without a configuration of its own: ``$XDG_STATE_HOME/stompring``."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # by the specification of XDG directories a relative path in the variable is invalid and ignored
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "stompring"
