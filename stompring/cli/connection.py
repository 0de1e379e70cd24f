"""``stompring connection`` and ``stompring consumer``: the clients of a running broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stompring.cli.completion import names_of
from stompring.cli.listing import ListOptions, list_options, run_list
from stompring.cli.output import (
    Column,
    age_text,
    bytes_text,
    confirm,
    echo_json,
    human_text,
    number,
    print_fields,
    print_table,
    rate_text,
    time_text,
    yes_style,
)
from stompring.cli.queue import CONSUMERS, for_each
from stompring.cli.remote import Remote, remote_command

COLUMNS = (
    Column("connectionID", "CONNECTION", rank=0),
    Column("remoteAddress", "PEER", rank=1),
    Column("user", "USER", rank=2),
    Column("clientID", "CLIENT ID", rank=4),
    Column("creationTime", "AGE", age_text, True, rank=3),
    number("subscriptionCount", "SUBSCRIPTIONS", 5),
    number("deliveringCount", "DELIVERING", 3),
    number("sentRate", "IN", 4, rate_text),
    number("deliveredRate", "OUT", 4, rate_text),
    number("messagesSent", "SENT", 6),
    number("messagesDelivered", "DELIVERED", 6),
    Column("slow", "SLOW", rank=3, style=yes_style("red")),
    Column("blocked", "BLOCKED", rank=3, style=yes_style("yellow")),
    number("outgoingBytes", "OUTGOING", 7, bytes_text),
    Column("protocol", "PROTOCOL", rank=7),
    Column("acceptor", "ACCEPTOR", rank=8),
    Column("queues", "QUEUES", rank=8),
)

TEXTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "creationTime": ("connected", time_text),
    "outgoingBytes": ("outgoing", bytes_text),
    "sentRate": ("in", rate_text),
    "deliveredRate": ("out", rate_text),
}


@click.group()
def connection() -> None:
    """List, show and close connections.

    \b
    Examples:
      stompring connection list --where slow=true
      stompring connection list --sort=-deliveringCount --limit 10
      stompring connection close 1a2068-12
    """


@connection.command("list")
@list_options("connectionID")
@remote_command
def list_connections(remote: Remote, options: ListOptions) -> None:
    """List STOMP connections.

    \b
    Examples:
      stompring connection list
      stompring connection list --where user=ada --where blocked=true
      stompring connection list --where queues=orders
    """
    run_list(remote, ["connections"], options, COLUMNS, "no connections")


@connection.command()
@click.argument("connection_id", metavar="ID")
@remote_command
def show(remote: Remote, connection_id: str) -> None:
    """Show one connection with its subscriptions.

    \b
    Examples:
      stompring connection show 1a2068-12
    """
    record = remote.get("connections", connection_id)
    if remote.json:
        echo_json(record)
        return
    subscriptions = record.pop("subscriptions", None) or []
    print_fields(record, {"Connection": {name: TEXTS.get(name, (name, human_text)) for name in record}})
    if subscriptions:
        click.echo()
        print_table(subscriptions, CONSUMERS)


@connection.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@remote_command
def close(remote: Remote, ids: tuple[str, ...], yes: bool) -> None:
    """Close connections. The client gets an ERROR; its unacknowledged messages return to their queues.

    \b
    Examples:
      stompring connection close 1a2068-12
      stompring connection list --where slow=true -q | xargs -r stompring connection close --yes
    """
    for record in [remote.get("connections", each) for each in ids]:
        user = f" of user {record['user']}" if record.get("user") else ""
        confirm(f"Close connection {record['connectionID']} from {record['remoteAddress']}{user}?", yes)

    def act(name: str) -> None:
        remote.report(remote.delete("connections", name), f"connection {name} closed")

    for_each(remote, ids, act)


@click.group()
def consumer() -> None:
    """List consumers: whose they are, what they have not acknowledged, who is slow.

    \b
    Examples:
      stompring consumer list --where slow=true
      stompring consumer list --sort=-deliveringCount --limit 10
    """


@consumer.command("list")
@list_options("queue")
@click.option("--queue", metavar="NAME", shell_complete=names_of("queues"), help="Consumers of this queue.")
@remote_command
def list_consumers(remote: Remote, options: ListOptions, queue: str | None) -> None:
    """List the consumers of all queues, or of one. --quiet prints their queues.

    \b
    Examples:
      stompring consumer list
      stompring consumer list --queue orders
      stompring consumer list --where user=ada --sort=-deliveringCount
    """
    run_list(
        remote,
        ["consumers"] if queue is None else ["queues", queue, "consumers"],
        options,
        CONSUMERS,
        "no consumers",
    )
