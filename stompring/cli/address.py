"""``stompring address``: addresses of a running broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stompring.cli.completion import names_of
from stompring.cli.listing import ListOptions, list_options, run_list
from stompring.cli.output import (
    Column,
    bytes_text,
    confirm,
    counted,
    echo_json,
    human_text,
    number,
    plain_text,
    print_fields,
    rate_text,
    yes_style,
)
from stompring.cli.queue import delete_forced, for_each, print_settings
from stompring.cli.remote import Remote, remote_command

COLUMNS = (
    Column("name", "NAME", rank=0),
    number("messageCount", "MESSAGES", 0),
    number("queueCount", "QUEUES", 1),
    number("addedRate", "IN", 2, rate_text),
    number("addressSize", "MEMORY", 2, bytes_text),
    Column("paging", "PAGING", rank=3, style=yes_style("yellow")),
    number("numberOfPages", "PAGES", 5),
    number("limitPercent", "LIMIT %", 4),
    number("blockedProducers", "BLOCKED", 4),
    Column("paused", "PAUSED", rank=5, style=yes_style("yellow")),
    Column("routingTypes", "TYPES", rank=6),
    number("unRoutedMessageCount", "UNROUTED", 7),
    number("droppedMessageCount", "DROPPED", 7),
    Column("policies", "POLICIES", rank=8),
)

SECTIONS: dict[str, dict[str, tuple[str, Callable[[Any], str]]]] = {
    "Address": {
        "name": ("name", human_text),
        "routingTypes": ("routing types", human_text),
        "queues": ("queues", human_text),
        "policies": ("policies", human_text),
        "paused": ("paused", human_text),
    },
    "Messages": {
        "messageCount": ("messages", human_text),
        "addressSize": ("memory", bytes_text),
        "limitPercent": ("limit used, %", human_text),
        "paging": ("paging", human_text),
        "numberOfPages": ("pages", human_text),
        "pagesSize": ("size of pages", bytes_text),
        "blockedProducers": ("blocked producers", human_text),
    },
}

Completed = names_of("addresses")


@click.group()
def address() -> None:
    """List, create, change, pause and delete addresses.

    \b
    Examples:
      stompring address list --sort=-addressSize
      stompring address create market --routing-type MULTICAST
      stompring address show market
    """


def name_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The address."""
    return click.argument("name", metavar="ADDRESS", shell_complete=Completed)(command)


def names_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """One address or several."""
    return click.argument("names", metavar="ADDRESS...", nargs=-1, required=True, shell_complete=Completed)(
        command
    )


@address.command("list")
@list_options("name")
@remote_command
def list_addresses(remote: Remote, options: ListOptions) -> None:
    """List addresses.

    \b
    Examples:
      stompring address list
      stompring address list --where paging=true
      stompring address list --sort=-addressSize --limit 10 --columns name,addressSize
    """
    run_list(remote, ["addresses"], options, COLUMNS, "no addresses")


@address.command()
@name_argument
@remote_command
def show(remote: Remote, name: str) -> None:
    """Show one address with its queues and the address-settings in force.

    \b
    Examples:
      stompring address show orders
      stompring address show orders --json | jq .settings.maxSizeBytes
    """
    record = remote.get("addresses", name)
    if remote.json:
        echo_json(record)
        return
    settings = record.pop("settings", {})
    flat = {**record, **{f"settings.{key}": value for key, value in settings.items()}}
    named: dict[str, tuple[str, Callable[[Any], str]]]
    named = {f"settings.{key}": (key, plain_text) for key, value in settings.items()}
    others: dict[str, tuple[str, Callable[[Any], str]]]
    known = {field for fields in SECTIONS.values() for field in fields}
    others = {key: (key, human_text) for key in record if key not in known}
    print_fields(flat, {**SECTIONS, "Other": others, "Address settings": named})


@address.command()
@name_argument
@remote_command
def settings(remote: Remote, name: str) -> None:
    """Show the address-settings in force for an address, and where each value comes from.

    \b
    Examples:
      stompring address settings orders
    """
    print_settings(remote, remote.get("addresses", name, "settings"))


TYPES = click.Choice(("ANYCAST", "MULTICAST"), case_sensitive=False)


@address.command()
@name_argument
@click.option("--routing-type", "types", type=TYPES, multiple=True, help="Routing type. Can be given twice.")
@click.option("--paused", is_flag=True, help="Create it paused.")
@remote_command
def create(remote: Remote, name: str, types: tuple[str, ...], paused: bool) -> None:
    """Create an address without queues.

    \b
    Examples:
      stompring address create market --routing-type MULTICAST
      stompring address create jobs --routing-type ANYCAST --paused
    """
    body: dict[str, Any] = {"name": name}
    if types:
        body["routingTypes"] = sorted(set(types))
    if paused:
        body["paused"] = True
    answer = remote.post("addresses", body=body)
    remote.report(answer, f"address {name} created: {', '.join(answer['routingTypes'])}")


@address.command()
@name_argument
@click.option(
    "--routing-type",
    "types",
    type=TYPES,
    multiple=True,
    required=True,
    help="Routing type. Can be given twice.",
)
@remote_command
def update(remote: Remote, name: str, types: tuple[str, ...]) -> None:
    """Change the routing types of an address.

    \b
    Examples:
      stompring address update market --routing-type MULTICAST --routing-type ANYCAST
    """
    answer = remote.patch("addresses", name, body={"routingTypes": sorted(set(types))})
    remote.report(answer, f"address {name} changed: {', '.join(answer['routingTypes'])}")


@address.command()
@names_argument
@remote_command
def pause(remote: Remote, names: tuple[str, ...]) -> None:
    """Pause all queues of addresses. New queues of a paused address start paused.

    \b
    Examples:
      stompring address pause orders
    """

    def act(name: str) -> None:
        remote.report(remote.patch("addresses", name, body={"paused": True}), f"address {name} paused")

    for_each(remote, names, act)


@address.command()
@names_argument
@remote_command
def resume(remote: Remote, names: tuple[str, ...]) -> None:
    """Resume all queues of addresses.

    \b
    Examples:
      stompring address resume orders
    """

    def act(name: str) -> None:
        remote.report(remote.patch("addresses", name, body={"paused": False}), f"address {name} resumed")

    for_each(remote, names, act)


@address.command()
@names_argument
@click.option("--force", is_flag=True, help="Delete its queues with their messages and consumers too.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@remote_command
def delete(remote: Remote, names: tuple[str, ...], force: bool, yes: bool) -> None:
    """Delete addresses.

    \b
    Examples:
      stompring address delete orders.old
      stompring address delete orders.old --force --yes
    """
    for record in [remote.get("addresses", name) for name in names]:
        count, messages = record["queueCount"], record["messageCount"]
        has = f" with {counted(count, 'queue')} and {counted(messages, 'message')}" if count else ""
        confirm(f"Delete address {record['name']}{has}?", yes)

    def act(name: str) -> None:
        answer = delete_forced(remote, "addresses", name, force)
        remote.report(answer, f"address {name} deleted")

    for_each(remote, names, act)


@address.command("forget-duplicates")
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@remote_command
def forget_duplicates(remote: Remote, name: str, yes: bool) -> None:
    """Forget the duplicate ids (_AMQ_DUPL_ID) of an address permanently, so that messages with them can be sent again.

    \b
    Examples:
      stompring address forget-duplicates orders --yes
    """
    confirm(f"Forget all duplicate ids of address {name}?", yes)
    answer = remote.post("addresses", name, "forget-duplicates")
    remote.report(answer, f"{human_text(answer['forgotten'])} duplicate ids of address {name} forgotten")
