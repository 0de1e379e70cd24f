"""``stompring queue``: queues of a running broker, and messages from one queue to another."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import click

from stompring.settings.model import CHANGEABLE, CREATE_ONLY, Option, QueueConfiguration, frozen, options_of
from stompring.settings.value_types import VALUE_TYPES

from .options import ROUTING_TYPES, argument, command, option, provided
from .output import (
    CommandFailed,
    JsonObject,
    Values,
    columns,
    count_text,
    counted,
    duration_text,
    fields,
    human_text,
    limit_text,
    plain_text,
    without_none,
)
from .remote import (
    ADDRESS_NAMES,
    LONG_TIMEOUT,
    QUEUE_NAMES,
    Listing,
    Remote,
    for_each,
    list_options,
    running,
)

COLUMNS = columns(
    name=0,
    messageCount=0,
    consumerCount=1,
    deliveringCount=3,
    scheduledCount=4,
    pagedCount=6,
    addedRate=2,
    deliveredRate=2,
    acknowledgedRate=(5, "ACKED"),
    ringSize=(4, limit_text),
    paused=5,
    address=7,
    routingType=(8, "TYPE"),
    filter=9,
)

CONSUMERS = columns(
    consumerID=(0, "CONSUMER"),
    queue=1,
    remoteAddress=1,
    user=2,
    clientID=0,
    ack=3,
    deliveringCount=1,
    credit=(3, count_text),
    oldestDelivering=(4, "OLDEST", duration_text),
    deliveredRate=2,
    acknowledgedRate=(4, "ACKED"),
    slow=4,
    filter=5,
    protocol=6,
    destination=7,
    subscription=8,
    verdict=6,
)

#: Columns of the table of numbers with which `queue show` begins.
NUMBERS = columns(
    messageCount=0,
    pendingCount=(0, "WAITING", count_text),
    deliveringCount=0,
    scheduledCount=2,
    pagedCount=3,
    consumerCount=0,
    addedRate=0,
    acknowledgedRate=(0, "ACKED"),
    deliveredRate=4,
    oldestAge=(1, "OLDEST", duration_text),
)

#: Sections of `queue show`: fields with their titles and formats.
SECTIONS = {
    "Queue": fields(
        "name", "address", "routingType", "durable", "paused", "enabled", "filter", "temporary", user="owner"
    ),
    "Origin": fields("configured", autoCreated="created automatically", autoDelete="deleted automatically"),
    "Messages": fields(persistentSize="memory", oldestMessageAge="age of the head", groupCount="groups"),
    "Since the start of the broker": fields(
        messagesAdded="added",
        messagesAcknowledged="acknowledged",
        messagesExpired="expired",
        messagesKilled="killed",
        messagesReplaced="evicted by the ring",
    ),
    "Rates": fields("redeliveredRate", "expiredRate", "evictedRate", "pagedRate"),
    "Ring": fields(
        ringSize=("ring size", limit_text), ringPolicy="ring policy", ringCountsPaged="counts paged messages"
    ),
}


@click.group()
def queue() -> None:
    """List, create, change, purge and delete queues; move messages.

    \b
    Examples:
      stompring queue list --sort=-messageCount --limit 10
      stompring queue create orders --ring-size 1000
      stompring queue retry orders.DLQ
    """


QUEUE = argument("QUEUE", shell_complete=QUEUE_NAMES)
QUEUES = argument("QUEUE...", shell_complete=QUEUE_NAMES)
TARGET = argument("ADDRESS[::QUEUE]", shell_complete=ADDRESS_NAMES)


@command(queue, "list")
def list_queues(
    listing: Listing = list_options("name"),
    address: str | None = option("NAME", "Queues of this address.", shell_complete=ADDRESS_NAMES),
    remote: Remote = running,
) -> None:
    """List queues.

    \b
    Examples:
      stompring queue list
      stompring queue list --search orders --sort=-messageCount --limit 20
      stompring queue list --where paused=true --columns name,messageCount,consumerCount
      stompring queue list -q | xargs -r -n 1 stompring queue resume
    """
    where = [] if address is None else [f"address={address}"]
    listing(remote, ["queues"], COLUMNS, "no queues", *where)


@command(queue)
def show(name: str = QUEUE, remote: Remote = running) -> None:
    """Show why messages wait in a queue, the next command, and then its numbers, attributes and consumers.

    \b
    Examples:
      stompring queue show orders
      stompring queue show orders --json | jq .messageCount
    """
    remote.print_record(remote.get("queues", name), SECTIONS, "consumers", CONSUMERS, NUMBERS)


@command(queue)
def consumers(name: str = QUEUE, remote: Remote = running) -> None:
    """List the consumers of a queue, with their users and unacknowledged messages.

    \b
    Examples:
      stompring queue consumers orders
      stompring queue consumers orders --json
    """
    remote.print_table(
        remote.pages("queues", name, "consumers"), CONSUMERS, f"queue {human_text(name)} has no consumers"
    )


SETTINGS = columns(
    element=(0, "SETTING"),
    value=(0, plain_text),
    unit=1,
    source=0,
    match=1,
    definedIn=(1, "DEFINED IN"),
    line=3,
    meaning=2,
)


@command(queue)
def settings(name: str = QUEUE, remote: Remote = running) -> None:
    """Show the attributes of a queue, and where each value comes from: queue, address-setting or default.

    \b
    Examples:
      stompring queue settings orders
      stompring queue settings orders --json | jq '.data[] | select(.source != "default")'
    """
    remote.print_table(remote.get("queues", name, "settings"), SETTINGS)


# ---- create and update, with the options of the API


def _attribute(row: Option, flag: str) -> inspect.Parameter:
    """The option of the command for a setting of a queue or a bridge."""
    value_type = VALUE_TYPES[row.type]
    meaning = row.meaning.replace("`", "")
    if row.unit:
        default = "" if row.default is None or row.http else f"default: {row.default} "
        meaning += f"  [{default}{row.unit}]"
    kind = "str"
    if value_type.kind is bool:
        kind, declared = "bool", option(f"{flag}/--no-{flag[2:]}", meaning, default=None)
    elif value_type.choices is not None:
        declared = option(flag, meaning, choices=[*map(str, value_type.choices)])
    elif value_type.kind is int:
        kind, declared = "int", option(flag, "N", meaning)
    else:
        completed = ADDRESS_NAMES if row.type in ("addressList", "resourceName") else None
        declared = option(flag, "TEXT", meaning, shell_complete=completed)
    annotation = "tuple[str, ...]" if row.type.endswith("List") else f"{kind} | None"
    return inspect.Parameter(
        row.json_name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation
    )


def attribute_options(*kinds: str) -> Any:
    """Options for all attributes of a queue, see `row_options`."""
    return row_options(
        [row for row in options_of(QueueConfiguration) if row.http in kinds], {"user": "--owner"}
    )


def row_options(rows: Sequence[Option], flags: Mapping[str, str] = {}) -> Any:
    """Options of a command for settings of a queue or a bridge. ``flags``: option names that differ from the names of
    the settings. The command gets the settings as an object for the API; an empty text unsets a setting.
    """

    def attributes(**given: Any) -> JsonObject:
        return {
            name: None if value in ("", ("",)) else value
            for name, value in given.items()
            if value not in (None, ())
        }

    attributes.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_attribute(row, flags.get(row.name) or f"--{row.xml_name}") for row in rows]
    )
    return provided(attributes)


@command(queue)
def create(
    name: str = QUEUE,
    address: str | None = option(
        "NAME", "Address.  [default: the name of the queue]", shell_complete=ADDRESS_NAMES
    ),
    routing_type: str | None = option("Routing type.  [default: that of the address]", choices=ROUTING_TYPES),
    paused: bool = option("Create it paused."),
    attributes: JsonObject = attribute_options(CREATE_ONLY, CHANGEABLE),
    remote: Remote = running,
) -> None:
    """Create a queue, and its address if it does not exist. Options that are not given come from address-settings.

    \b
    Examples:
      stompring queue create orders
      stompring queue create prices --ring-size 1 --address market --routing-type MULTICAST
      stompring queue create red --address colours --filter "colour = 'red'" --no-durable
    """
    body = {"name": name, "address": address, "routingType": routing_type, "paused": paused or None}
    answer = remote.post("queues", body={**without_none(body), **attributes})
    remote.report(answer, f"queue {name} created on address {answer['address']}")


@command(queue)
def update(
    name: str = QUEUE,
    attributes: JsonObject = attribute_options(CHANGEABLE),
    remote: Remote = running,
) -> None:
    """Change attributes of a queue: all of them or none. An empty text removes a filter or an owner.

    Lowering the ring size removes no message: see "stompring queue trim".

    \b
    Examples:
      stompring queue update orders --ring-size 500 --ring-policy DEAD_LETTER
      stompring queue update orders --max-consumers 1
      stompring queue update red --filter ""
    """
    if not attributes:
        raise click.UsageError("nothing to change: give at least one option, such as --ring-size 500")
    answer = remote.patch("queues", name, body=attributes)
    text = ", ".join(f"{field} {human_text(answer[field])}" for field in attributes)
    remote.report(answer, f"queue {name} changed: {text}")


@for_each(queue, QUEUES)
def pause(remote: Remote, name: str) -> None:
    """Pause the delivery of queues to their consumers. Messages still enter them.

    \b
    Examples:
      stompring queue pause orders
      stompring queue pause orders invoices
    """
    remote.report(remote.patch("queues", name, body={"paused": True}), f"queue {name} paused")


@for_each(queue, QUEUES)
def resume(remote: Remote, name: str) -> None:
    """Resume the delivery of paused queues.

    \b
    Examples:
      stompring queue resume orders
      stompring queue list --where paused=true -q | xargs -r stompring queue resume
    """
    remote.report(remote.patch("queues", name, body={"paused": False}), f"queue {name} resumed")


def _deletion(remote: Remote, name: str, force: bool) -> str:
    record = remote.get("queues", name)
    count, users = record["messageCount"], record["consumerCount"]
    has = f" with {counted(count, 'message')}" if count else ""
    has += f" and {counted(users, 'consumer')}" if users else ""
    return f"Delete queue {record['name']}{has}?"


@for_each(queue, QUEUES, _deletion)
def delete(
    remote: Remote, name: str, force: bool = option("Delete it even if it has consumers; they get an ERROR.")
) -> None:
    """Delete queues with their messages.

    \b
    Examples:
      stompring queue delete orders.old
      stompring queue delete orders.old --force --yes
    """
    remote.report(remote.delete("queues", name, force="true" if force else None), f"queue {name} deleted")


DETACH = option("Return at once; the broker continues (stompring task list).")


def _purge(remote: Remote, name: str, selector: str | None, detach: bool) -> str:
    which = "all messages" if selector is None else f"all messages that match {selector}"
    return (
        f"Remove {which} of queue {name}, which has {human_text(remote.get('queues', name)['messageCount'])}?"
    )


@for_each(queue, QUEUES, _purge)
def purge(
    remote: Remote,
    name: str,
    selector: str | None = option("--filter", "SELECTOR", "Remove only messages that match this selector."),
    detach: bool = DETACH,
) -> None:
    """Remove the pending and scheduled messages of queues. Messages delivered to a consumer stay.

    Ctrl-C cancels the purge: removed messages stay removed.

    \b
    Examples:
      stompring queue purge orders
      stompring queue purge orders --filter "colour = 'red'" --yes
    """
    bulk(remote, name, "purge", f"removed from queue {name}", Selection(selector, (), None, detach))


@for_each(queue, QUEUES, lambda remote, name: f"Evict all messages of queue {name} beyond its ring size?")
def trim(remote: Remote, name: str) -> None:
    """Evict messages until each queue fits its ring size.

    \b
    Examples:
      stompring queue update prices --ring-size 10
      stompring queue trim prices --yes
    """
    answer = remote.post("queues", name, "trim", timeout=LONG_TIMEOUT)
    remote.report(answer, f"{counted(answer['replaced'], 'message')} evicted from queue {name}")


@for_each(queue, QUEUES)
def reset_groups(
    remote: Remote, name: str, group: str | None = option("ID", "Only this group (JMSXGroupID).")
) -> None:
    """Unpin message groups from their consumers.

    The next message of a group selects a consumer again. Messages in delivery stay with their consumers.

    \b
    Examples:
      stompring queue reset-groups orders
      stompring queue reset-groups orders --group customer-7
    """
    answer = remote.post("queues", name, "groups", "reset", body=without_none({"group": group}))
    remote.report(answer, f"{counted(answer['reset'], 'group')} of queue {name} unpinned")


# ---- moving messages


@frozen
class Selection:
    """The messages of a queue that a command selects, and whether the command waits for the end of the work."""

    selector: str | None = option("--filter", "SELECTOR", "Only messages that match this selector.")
    messages: tuple[str, ...] = option(
        "--message", "ID", "Only this message (messageID). Can be given several times."
    )
    limit: int | None = option("N", "At most N messages.", min=1)
    detach: bool = DETACH


selection_options = provided(Selection)


def target(to: str) -> dict[str, str]:
    """The fields of a request for ``ADDRESS`` or ``ADDRESS::QUEUE``."""
    address, _, name = to.partition("::")
    if not (address or name):
        raise click.BadParameter("it is empty", param_hint="TO")
    return without_none({"address": address or None, "queue": name or None})


def bulk(
    remote: Remote,
    name: str,
    operation: str,
    verb: str,
    selection: Selection,
    body: Values | None = None,
) -> None:
    """Run a bulk operation on the selected messages of a queue, with progress, and report it."""
    if selection.messages and selection.selector is not None:
        raise click.UsageError("--message and --filter are mutually exclusive")
    chosen = {
        **(body or {}),
        "messages": list(selection.messages) or None,
        "filter": selection.selector,
        "limit": selection.limit,
    }
    task = remote.run_task(
        f"{operation} {name}", ("queues", name, operation), without_none(chosen), selection.detach
    )
    if selection.detach:
        remote.report(task, f"task {task['taskID']} started; see: stompring task show {task['taskID']}")
        return
    text = f"{counted(task['done'], 'message')} {verb}"
    for field in ("skipped", "failed"):
        if task[field]:
            text += f", {human_text(task[field])} {field}"
    remote.report(task, text)
    if task["failed"]:
        raise CommandFailed(f"{counted(task['failed'], 'message')} failed: {task['error'] or 'see the log'}")
    if task["skipped"] and (selection.messages or not task["done"]):
        reason = task["error"] or "in delivery to a consumer, or gone"
        raise CommandFailed(
            f"{counted(task['skipped'], 'message')} skipped: {reason}; see: stompring consumer list --queue {name}"
        )


@command(queue)
def move(
    name: str = QUEUE, to: str = TARGET, selection: Selection = selection_options, remote: Remote = running
) -> None:
    """Move messages of a queue to an address, or to one queue of it.

    All pending and scheduled messages, or those of --filter or --message. Each message is either in the queue or at the
    target, also after a crash. Ctrl-C cancels the work: moved messages stay moved.

    \b
    Examples:
      stompring queue move orders orders.archive
      stompring queue move orders.DLQ orders::orders --filter "colour = 'red'" --limit 100
      stompring queue move orders orders.archive --message 7-1234 --message 7-1235
    """
    bulk(remote, name, "move", f"moved from {name} to {to}", selection, target(to))


@command(queue)
def copy(
    name: str = QUEUE, to: str = TARGET, selection: Selection = selection_options, remote: Remote = running
) -> None:
    """Copy messages of a queue to an address, or to one queue of it.

    Ctrl-C cancels the work: copies that have been made stay.

    \b
    Examples:
      stompring queue copy orders orders.test --limit 100
      stompring queue copy orders orders.test --filter "priority > 4"
    """
    bulk(remote, name, "copy", f"copied from {name} to {to}", selection, target(to))


@command(queue)
def retry(name: str = QUEUE, selection: Selection = selection_options, remote: Remote = running) -> None:
    """Move dead letters and expired messages of a queue back to where each came from.

    That is the original queue if it still exists, otherwise the original address. Messages without an origin stay.
    Ctrl-C cancels the work: moved messages stay moved.

    \b
    Examples:
      stompring queue retry DLQ
      stompring queue retry DLQ --filter "_AMQ_ORIG_QUEUE = 'orders'" --limit 10
    """
    bulk(remote, name, "retry", f"moved back from {name}", selection)
