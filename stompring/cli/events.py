"""``stompring events``: what happens in a running broker, as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from .options import command, option
from .output import UNREACHABLE, CommandFailed, echo_json, to_json, warn
from .output import one_line as printable
from .remote import Remote, running

#: Seconds without any byte after which the stream is opened again; the broker sends comments in between.
SILENCE = 90.0

#: Seconds between attempts to connect again, at first and at most.
RETRY, LONGEST_RETRY = 0.5, 10.0

COLOURS = {
    "SECURITY_": "red",
    "STORE_FAILED": "red",
    "SUSPENDED": "red",
    "DISK_FULL": "red",
    "POLICY_ERROR": "red",
    "ADDRESS_FULL": "yellow",
    "ADDRESS_PAGING": "yellow",
    "CONSUMER_SLOW": "yellow",
    "DRAIN": "yellow",
    "TAKEOVER": "yellow",
}

#: Fields that the line begins with.
SHOWN = ("id", "time", "type", "text")


@command()
def events(
    types: tuple[str, ...] = option("--type", "TYPE", "Only events of this type. Repeatable."),
    since: str | None = option("ID", "Begin after the event with this id."),
    number: int = option(
        "-n", "--lines", "N", "Begin with the last N events; not with --since.", default=10, min=0
    ),
    no_follow: bool = option("End after the events that have happened."),
    remote: Remote = running,
) -> None:
    """Show events of the broker as they happen.

    Connections, consumers, queues, addresses, rejected logins, slow consumers, full addresses and disks, reloads:
    docs/http-api.md lists the types. It continues until Ctrl-C. After a lost connection or a restart of the broker it
    connects again and continues after the last event. With --json each event is one line.

    \b
    Examples:
      stompring events
      stompring events --type SECURITY_AUTHENTICATION_VIOLATION --type ADDRESS_FULL
      stompring events --no-follow -n 100 --json
    """
    types = tuple(each.upper() for each in types)
    size = max(1, number) if since is None else None
    answer = remote.get("events", since=since, size=size, **{"type[]": types})
    happened = answer["data"] if isinstance(answer, dict) else answer
    last = since
    if happened:
        last = str(happened[-1]["id"])
    if since is None:
        happened = happened[-number:] if number else []
    if no_follow and remote.json:
        echo_json(happened)
        return
    for event in happened:
        _print(remote, event)
    if not no_follow:
        try:
            _follow(remote, types, last)
        except KeyboardInterrupt:
            return  # the usual end


def _follow(remote: Remote, types: tuple[str, ...], last: str | None) -> None:
    pause = RETRY
    lost = False
    while True:
        try:
            headers = {"Accept": "text/event-stream"}
            if last is not None:
                headers["Last-Event-ID"] = last
            answer = remote.open(
                "GET", ("events",), query={"type[]": types}, headers=headers, timeout=SILENCE
            )
            if lost:
                warn(f"connected to {remote.server} again")
                lost = False
            for event in server_sent_events(remote.stream(answer.readline)):
                if event.get("type") == "STREAM_ENDED":
                    raise CommandFailed(f"{remote.server} ended the stream: {event.get('text')}", UNREACHABLE)
                pause = RETRY
                last = str(event["id"]) if "id" in event else last
                _print(remote, event)
            raise CommandFailed(f"{remote.server} ended the stream", UNREACHABLE)
        except CommandFailed as fault:
            if fault.exit_code != UNREACHABLE:
                raise
            if not lost:
                warn(f"{fault.message}; connecting again")
            lost = True
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_RETRY)


def server_sent_events(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON data of events; comments and invalid events are left out."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            try:
                event = json.loads("\n".join(data))
            except (ValueError, RecursionError):
                event = None
            data = []
            if isinstance(event, dict):
                yield event


def _print(remote: Remote, event: dict[str, Any]) -> None:
    if remote.json:
        click.echo(to_json(event, indent=None))
        return
    kind = printable(str(event.get("type")))
    try:
        when = datetime.fromtimestamp(event["time"] / 1000).isoformat(" ", "milliseconds")
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        when = "-"
    colour = next((colour for prefix, colour in COLOURS.items() if kind.startswith(prefix)), None)
    text = printable(str(event.get("text", "")))
    click.echo(f"{when}  {click.style(kind, fg=colour)}  {text}")
