"""``stompring status``, ``reload``, ``drain`` and ``undrain``: the broker as a whole."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click
from click.exceptions import Exit

from .options import YES, command, option
from .output import (
    FAILED,
    CommandFailed,
    Interrupted,
    bytes_text,
    confirm,
    count_text,
    counted,
    done,
    duration_text,
    echo_json,
    print_rows,
    progress,
    rate_text,
    warn,
)
from .output import one_line as printable
from .remote import ApiError, Remote, running

#: Seconds between two looks at a drain.
DRAIN_INTERVAL = 0.5


def readiness(remote: Remote) -> tuple[bool, dict[str, Any]]:
    """Whether the broker is ready, and the answer of /health/ready, which needs no login."""
    answer = remote.open("GET", ("ready",), root="/health/", accepted=(503,))
    found = remote.json_of(answer)
    if not isinstance(found, dict) or "status" not in found:
        raise CommandFailed(f"{remote.server} is not the management API of a stompring broker")
    return answer.status == 200, found


def reasons(health: Mapping[str, Any]) -> list[str]:
    """Why a broker is not ready."""
    found = []
    if health.get("stopping"):
        found.append("the broker is stopping")
    if health.get("draining"):
        found.append("the broker is draining: it refuses new connections (stompring undrain)")
    if health.get("role") == "standby":
        return [*found, f"the broker is a standby: {health.get('reason')}"]
    for name in health.get("missingListeners") or []:
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
    permission to view the broker only that is shown.

    \b
    Examples:
      stompring status
      stompring status --quiet || echo "not ready"
      stompring status --json | jq .health.status
    """
    up, health = readiness(remote)
    broker: dict[str, Any] | None = None
    log: dict[str, Any] | None = None
    hint = None
    if not quiet:
        try:
            if health.get("role") != "standby":
                broker = remote.get("broker")
            log = _replicated_log(remote)
        except CommandFailed as fault:
            hint = fault.message
    if remote.json:
        echo_json({"server": str(remote.server), "ready": up, "health": health, "broker": broker, "ha": log})
    elif not quiet:
        _print_status(remote, up, health, broker, log)
        if hint is not None:
            warn(f"no details: {hint}")
    if not up:
        raise Exit(FAILED)


def _print_status(
    remote: Remote,
    up: bool,
    health: Mapping[str, Any],
    broker: Mapping[str, Any] | None,
    log: Mapping[str, Any] | None,
) -> None:
    name = "" if broker is None else f" {broker['name']} {broker['version']}"
    state = click.style("ready" if up else "NOT READY", fg="green" if up else "red", bold=True)
    click.echo(f"broker{printable(name)} at {printable(str(remote.server))}: {state}")
    if broker is None or "problems" not in broker:
        for reason in reasons(health):
            click.echo(f"  {printable(reason)}")
    if broker is None:
        print_rows(_log_rows(log))
        return
    for each in broker.get("problems") or []:
        text = printable(str(each["text"]))
        click.echo(f"  {click.style(printable(each['severity']), fg=_COLOURS.get(each['severity']))}: {text}")
    rows = [
        ("uptime", duration_text(broker["uptime"])),
        ("connections", _of(broker["connectionCount"], broker["globalMaxConnections"])),
        ("addresses", _of(broker["addressCount"], broker["globalMaxAddresses"])),
        ("queues", _of(broker["queueCount"], broker["globalMaxQueues"])),
        ("messages in memory", _of(broker["heldMessageCount"], broker["globalMaxMessages"])),
        (
            "memory",
            f"{bytes_text(broker['addressMemoryUsage'])} of {bytes_text(broker['globalMaxSize'])}"
            if broker["globalMaxSize"] > 0
            else bytes_text(broker["addressMemoryUsage"]),
        ),
    ]
    if broker.get("diskUsage") is not None:
        disk = f"{broker['diskUsage']:.0%} used"
        if broker.get("diskFree") is not None:
            disk += f", {bytes_text(broker['diskFree'])} free"
        rows.append(("disk", disk))
    for field, title in (("addedRate", "in"), ("deliveredRate", "out"), ("acknowledgedRate", "acknowledged")):
        if broker.get(field) is not None:
            rows.append((title, rate_text(broker[field])))
    rows += [
        ("slow connections", count_text(broker["slowConnections"])),
        ("security", "on" if broker["securityEnabled"] else "off"),
        ("persistence", "on" if broker["persistenceEnabled"] else "off"),
        ("configuration", str(broker["configurationFile"])),
    ]
    for each in broker["listeners"]:
        rows.append((f"listener {each['acceptor']}", f"{each['host']}:{each['port']}"))
    print_rows([*rows, *_log_rows(log)])


def _replicated_log(remote: Remote) -> dict[str, Any] | None:
    """The role of the broker in its replicated log; None without one, and of an older broker."""
    try:
        found: dict[str, Any] = remote.get("ha")
    except ApiError as fault:
        if fault.http == 404:
            return None
        raise
    return found if found["enabled"] else None


def _log_rows(log: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if log is None:
        return []
    rows = [("replicated log", f"{log['stream']}: this broker is {log['broker']}, {log['role']}")]
    if log.get("fault"):
        rows.append(("log fault", str(log["fault"])))
    if log.get("logSize") is not None:
        limit = "no limit" if log["logMaxSize"] < 0 else f"of {bytes_text(log['logMaxSize'])}"
        rows.append(("log size", f"{bytes_text(log['logSize'])}, {limit}"))
    if log["role"] == "standby":
        if log.get("rebuilding") and log.get("rebuiltPercent") is not None:
            done = f"{count_text(log['rebuiltEntries'])} of {count_text(log['rebuildEntries'])} entries"
            rows.append(
                ("rebuilding", f"{log['rebuiltPercent']} %, {done}, {bytes_text(log['rebuiltBytes'])}")
            )
        behind = f"{count_text(log['lagEntries'])} entries, {bytes_text(log['lagBytes'])}"
        rows.append(("behind", f"{behind}, {duration_text(log['lagTime'])}"))
        if log.get("missingEntries"):
            lost = f"{count_text(log['missingEntries'])} or more entries that the log has lost: no takeover"
            rows.append(("missing", lost))
        rows.append(("active broker", str(log["activeBroker"] or "none")))
    return rows


_COLOURS = {"error": "red", "warning": "yellow"}


def _of(value: int, limit: int) -> str:
    return count_text(value) if limit < 0 else f"{count_text(value)} of {count_text(limit)}"


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
    if remote.json:
        echo_json(answer)
    else:
        verb = "would reload" if dry_run else "reloaded"
        done(f"{verb} {answer['configurationFile']}")
        titles = {
            "applied": "would apply" if dry_run else "applied",
            "restartRequired": "restart required",
            "failed": "failed",
        }
        for field, title in titles.items():
            for each in answer.get(field) or []:
                done(f"  {title}: {each}")
        if not any(answer.get(field) for field in titles):
            done("  no changes")
    if answer.get("failed"):
        raise Exit(FAILED)


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
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        with progress("draining: open connections closed") as step:
            first = None
            while True:
                state = remote.get("drain")
                left = int(state["connections"])
                first = left if first is None else max(first, left)
                step(first - left, first)
                if not left:
                    break
                if deadline is not None and time.monotonic() > deadline:
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
