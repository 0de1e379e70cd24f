"""``stompring status``, ``reload``, ``drain``, ``undrain`` and ``events``: the broker as a whole."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

import click

from .options import YES, command, option
from .output import (
    FAILED,
    UNREACHABLE,
    CommandFailed,
    Interrupted,
    JsonObject,
    Values,
    bytes_text,
    confirm,
    count_text,
    counted,
    duration_text,
    echo_json,
    one_line,
    print_rows,
    progress,
    report,
    to_json,
    warn,
)
from .remote import Remote, running

#: Seconds between two requests for the state of a drain.
DRAIN_INTERVAL = 0.5


def readiness(remote: Remote) -> tuple[bool, JsonObject]:
    """Whether the broker is ready, and the answer of /health/ready, which needs no login."""
    answer = remote.open("GET", ("ready",), root="/health/", accepted=(503,))
    found = remote.json_of(answer)
    if not isinstance(found, dict) or "status" not in found:
        raise CommandFailed(f"{remote.server} is not the management API of a stompring broker")
    return answer.status == 200, found


def reasons(health: Values) -> list[str]:
    """The reasons why a broker is not ready."""
    found = []
    if health.get("stopping"):
        found.append("the broker is stopping")
    if health.get("draining"):
        found.append("the broker is draining: it refuses new connections (stompring undrain)")
    if health.get("role") == "standby":
        return [*found, f"the broker is a standby: {health.get('reason')}"]
    for name in health.get("missingListeners", ()):
        found.append(f"acceptor {name} is not open")
    for field, what in (
        ("diskFault", "disk"),
        ("storeFault", "store"),
        ("replicationFault", "replicated log"),
    ):
        if health.get(field):
            found.append(f"{what}: {health[field]}")
    return found


@command()
def status(
    quiet: bool = option("-q", "--quiet", "Print nothing: the exit status says it."), remote: Remote = running
) -> None:
    """Show whether the broker is ready and why not, with its totals and problems.

    The exit status is 0 if it is ready, 1 if it is not, 5 without a connection. Readiness needs no login; without the
    permission to view the broker only the readiness is shown.

    \b
    Examples:
      stompring status
      stompring status --quiet || echo "not ready"
      stompring status --json | jq .health.status
    """
    up, health = readiness(remote)
    broker = log = hint = None
    if not quiet:
        try:
            if health.get("role") != "standby":
                broker = remote.get("broker")
            found = remote.get("ha")
            log = found if found["enabled"] else None
        except CommandFailed as fault:
            hint = fault.message
    if remote.json:
        echo_json({"server": remote.server, "ready": up, "health": health, "broker": broker, "ha": log})
    elif not quiet:
        name = "" if broker is None else f" {broker['name']} {broker['version']}"
        state = click.style("ready" if up else "NOT READY", fg="green" if up else "red", bold=True)
        click.echo(f"broker{one_line(name)} at {one_line(remote.server)}: {state}")
        for reason in reasons(health) if broker is None else ():
            click.echo(f"  {one_line(reason)}")
        for each in () if broker is None else broker["problems"]:
            text, severity = one_line(str(each["text"])), each["severity"]
            click.echo(f"  {click.style(one_line(severity), fg=_COLOURS.get(severity))}: {text}")
        print_rows([*_broker_rows(broker), *_log_rows(log)])
        if hint is not None:
            warn(f"no details: {hint}")
    if not up:
        raise SystemExit(FAILED)


def _broker_rows(broker: Values | None) -> Iterator[tuple[str, str]]:
    if broker is None:
        return
    yield "uptime", duration_text(broker["uptime"])
    for title, used, most in (
        ("connections", "connectionCount", "globalMaxConnections"),
        ("addresses", "addressCount", "globalMaxAddresses"),
        ("queues", "queueCount", "globalMaxQueues"),
        ("messages in memory", "heldMessageCount", "globalMaxMessages"),
    ):
        limit = "" if broker[most] < 0 else f" of {count_text(broker[most])}"
        yield title, count_text(broker[used]) + limit
    limit = f" of {bytes_text(broker['globalMaxSize'])}" if broker["globalMaxSize"] > 0 else ""
    yield "memory", bytes_text(broker["addressMemoryUsage"]) + limit
    if broker["diskUsage"] is not None:
        yield "disk", f"{broker['diskUsage']:.0%} used, {bytes_text(broker['diskFree'])} free"
    yield "slow connections", count_text(broker["slowConnections"])
    yield "security", "on" if broker["securityEnabled"] else "off"
    yield "persistence", "on" if broker["persistenceEnabled"] else "off"
    yield "configuration", str(broker["configurationFile"])
    if broker.get("buildAdvice"):
        yield "build", broker["buildAdvice"]
    for each in broker["listeners"]:
        yield f"listener {each['acceptor']}", f"{each['host']}:{each['port']}"


def _log_rows(log: Values | None) -> Iterator[tuple[str, str]]:
    if log is None:
        return
    yield "replicated log", f"{log['stream']}: this broker is {log['broker']}, {log['role']}"
    if log["fault"]:
        yield "log fault", str(log["fault"])
    if log["logSize"] is not None:
        limit = "no limit" if log["logMaxSize"] < 0 else f"of {bytes_text(log['logMaxSize'])}"
        yield "log size", f"{bytes_text(log['logSize'])}, {limit}"
    if log["role"] == "standby":
        if log["rebuilding"] and log["rebuiltPercent"] is not None:
            done = f"{count_text(log['rebuiltEntries'])} of {count_text(log['rebuildEntries'])} entries"
            yield "rebuilding", f"{log['rebuiltPercent']} %, {done}, {bytes_text(log['rebuiltBytes'])}"
        behind = f"{count_text(log['lagEntries'])} entries, {bytes_text(log['lagBytes'])}"
        yield "behind", f"{behind}, {duration_text(log['lagTime'])}"
        if log["missingEntries"]:
            lost = f"{count_text(log['missingEntries'])} or more entries that the log has lost: no takeover"
            yield "missing", lost
        yield "active broker", str(log["activeBroker"] or "none")


_COLOURS = {"error": "red", "warning": "yellow"}


# ---- reload


@command()
def reload(
    dry_run: bool = option("Show what a reload would change, and change nothing."), remote: Remote = running
) -> None:
    """Reload broker.xml, as SIGHUP does. A configuration with mistakes changes nothing.

    The exit status is 1 if the configuration is rejected, or if a change failed.

    \b
    Examples:
      stompring reload --dry-run
      stompring reload
    """
    answer = remote.post("reload", body={"dryRun": True} if dry_run else {})
    titles = {
        "applied": "would apply" if dry_run else "applied",
        "restartRequired": "restart required",
        "failed": "failed",
    }
    lines = [f"  {title}: {each}" for field, title in titles.items() for each in answer.get(field) or []]
    verb = "would reload" if dry_run else "reloaded"
    report(remote.json, answer, f"{verb} {answer['configurationFile']}", *(lines or ["  no changes"]))
    if answer.get("failed"):
        raise SystemExit(FAILED)


# ---- drain


@command()
def drain(
    wait: bool = option("Wait until no connection is open; Ctrl-C ends the wait, not the drain."),
    timeout: float | None = option("DURATION", "End the wait after so long, with exit status 1."),
    yes: bool = YES,
    remote: Remote = running,
) -> None:
    """Refuse new STOMP connections and report not ready, while existing clients continue.

    \b
    Examples:
      stompring drain --yes
      stompring drain --wait --timeout 5m --yes && systemctl stop stompring
      stompring undrain
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    confirm(f"Drain the broker at {remote.server}: refuse new connections?", yes)
    answer = remote.post("drain")
    if not wait:
        remote.report(answer, "draining: new connections are refused; end it with: stompring undrain")
        return
    begun = time.monotonic()
    try:
        with progress("draining: open connections closed") as step:
            first = 0
            while left := int((state := remote.get("drain"))["connections"]):
                first = max(first, left)
                step(first - left, first)
                if timeout is not None and time.monotonic() > begun + timeout:
                    raise CommandFailed(
                        f"{counted(left, 'connection')} still open after {timeout:.0f} seconds; the broker "
                        "continues to drain"
                    )
                time.sleep(DRAIN_INTERVAL)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; the broker continues to drain; end it with: stompring undrain"
        ) from None
    remote.report(state, "drained: no connection is open")


@command()
def undrain(remote: Remote = running) -> None:
    """Accept connections again after a drain.

    \b
    Examples:
      stompring undrain
    """
    remote.report(remote.post("undrain"), "new connections are accepted")


# ---- events

#: Seconds without data after which the command reconnects. The broker sends comments at shorter intervals.
SILENCE = 90.0

#: Seconds between attempts to reconnect: first and maximum value.
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


@command()
def events(
    types: tuple[str, ...] = option("--type", "TYPE", "Only events of this type. Repeatable."),
    since: str | None = option("ID", "Begin after the event with this id."),
    number: int = option(
        "-n", "--lines", "N", "Begin with the last N events; not with --since.", default=10, min=0
    ),
    no_follow: bool = option("Print past events only."),
    remote: Remote = running,
) -> None:
    """Show events of the broker as they happen.

    Connections, consumers, queues, addresses, rejected logins, slow consumers, full addresses and disks, reloads:
    docs/http-api.md lists the types. The command runs until Ctrl-C. After a lost connection or a restart of the
    broker it connects again and continues after the last event that it printed. With --json each event is one line.

    \b
    Examples:
      stompring events
      stompring events --type SECURITY_AUTHENTICATION_VIOLATION --type ADDRESS_FULL
      stompring events --no-follow -n 100 --json
    """
    types = tuple(each.upper() for each in types)
    size = max(1, number) if since is None else None
    happened = remote.get("events", since=since, size=size, **{"type[]": types})["data"]
    last = str(happened[-1]["id"]) if happened else since
    if since is None and not number:
        happened = []
    if no_follow and remote.json:
        echo_json(happened)
        return
    for event in happened:
        _print(remote, event)
    if not no_follow:
        try:
            _follow(remote, types, last)
        except KeyboardInterrupt:
            return  # Ctrl-C is the usual end of the command


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


def server_sent_events(lines: Iterator[bytes]) -> Iterator[JsonObject]:
    """Yield the JSON object of each server-sent event in ``lines``. Comments and invalid events are skipped."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            with suppress(ValueError, RecursionError):
                event = json.loads("\n".join(data))
                if isinstance(event, dict):
                    yield event
            data = []


def _print(remote: Remote, event: JsonObject) -> None:
    if remote.json:
        click.echo(to_json(event, indent=None))
        return
    kind = one_line(event["type"])
    when = datetime.fromtimestamp(event["time"] / 1000).isoformat(" ", "milliseconds")
    colour = next((colour for prefix, colour in COLOURS.items() if kind.startswith(prefix)), None)
    click.echo(f"{when}  {click.style(kind, fg=colour)}  {one_line(event['text'])}")
