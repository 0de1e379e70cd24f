"""Commands for resources of a running broker.

``stompring address``, ``connection``, ``consumer``, ``logger`` (log levels), ``permission`` (permissions of a user, and
their rules), ``task`` (work on many messages) and ``dead-letters``.
"""

from __future__ import annotations

import click

from .options import ROUTING_TYPES, YES, argument, command, option
from .output import (
    NOT_FOUND,
    Column,
    CommandFailed,
    age_text,
    columns,
    confirm,
    count_text,
    counted,
    done,
    echo_json,
    every,
    fields,
    plain_text,
    print_fields,
    time_text,
    without_none,
)
from .queue import CONSUMERS, SETTINGS
from .remote import (
    ADDRESS_NAMES,
    QUEUE_NAMES,
    Listing,
    Remote,
    for_each,
    list_command,
    list_options,
    running,
)

ADDRESS_COLUMNS = columns(
    name=0,
    messageCount=0,
    queueCount=(1, "QUEUES"),
    addedRate=2,
    addressSize=2,
    paging=3,
    numberOfPages=(5, count_text),
    limitPercent=(4, "LIMIT %", count_text),
    blockedProducers=(4, "BLOCKED", count_text),
    paused=5,
    routingTypes=(6, "TYPES"),
    unRoutedMessageCount=(7, "UNROUTED"),
    droppedMessageCount=(7, "DROPPED"),
    policies=8,
)

#: Columns of the table of numbers with which `address show` begins.
NUMBERS = columns(
    messageCount=0,
    queueCount=(0, "QUEUES"),
    addedRate=0,
    addressSize=1,
    limitPercent=(1, "LIMIT %", count_text),
    numberOfPages=(3, count_text),
    blockedProducers=(0, "BLOCKED", count_text),
    droppedMessageCount=(1, "DROPPED"),
    unRoutedMessageCount=(1, "UNROUTED"),
)

SECTIONS = {
    "Address": fields("name", "routingTypes", "queues", "policies", "paused"),
    "Pages": fields("paging", "timesPaged", pagesSize="size of pages"),
}


@click.group()
def address() -> None:
    """List, create, change, pause and delete addresses.

    \b
    Examples:
      stompring address list --sort=-addressSize
      stompring address create market --routing-type MULTICAST
      stompring address show market
    """


ADDRESS = argument("ADDRESS", shell_complete=ADDRESS_NAMES)
ADDRESSES = argument("ADDRESS...", shell_complete=ADDRESS_NAMES)
ID = argument("ID")


@list_command(address, "addresses", "name", ADDRESS_COLUMNS)
def list_addresses() -> None:
    """List addresses.

    \b
    Examples:
      stompring address list
      stompring address list --where paging=true
      stompring address list --sort=-addressSize --limit 10 --columns name,addressSize
    """


@command(address, "show")
def show_address(name: str = ADDRESS, remote: Remote = running) -> None:
    """Show one address with its queues and the address-settings in force.

    \b
    Examples:
      stompring address show orders
      stompring address show orders --json | jq .settings.maxSizeBytes
    """
    record = remote.get("addresses", name)
    settings = {} if remote.json else record.pop("settings", {})
    flat = {**record, **{f"settings.{key}": value for key, value in settings.items()}}
    known = {column.field for columns in SECTIONS.values() for column in columns}
    others = every(key for key in record if key not in known)
    named = [Column(f"settings.{key}", key, plain_text) for key in settings]
    sections = {**SECTIONS, "Other": others, "Address settings": named}
    remote.print_record(flat, sections, numbers=NUMBERS)


@command(address)
def settings(name: str = ADDRESS, remote: Remote = running) -> None:
    """Show the address-settings in force for an address, and where each value comes from.

    \b
    Examples:
      stompring address settings orders
    """
    remote.print_table(remote.get("addresses", name, "settings"), SETTINGS)


@command(address)
def create(
    name: str = ADDRESS,
    types: tuple[str, ...] = option(
        "--routing-type", "Routing type. Can be given twice.", choices=ROUTING_TYPES
    ),
    paused: bool = option("Create it paused."),
    remote: Remote = running,
) -> None:
    """Create an address without queues.

    \b
    Examples:
      stompring address create market --routing-type MULTICAST
      stompring address create jobs --routing-type ANYCAST --paused
    """
    body = {"name": name, "routingTypes": sorted(set(types)) or None, "paused": paused or None}
    answer = remote.post("addresses", body=without_none(body))
    remote.report(answer, f"address {name} created: {', '.join(answer['routingTypes'])}")


@command(address)
def update(
    name: str = ADDRESS,
    types: tuple[str, ...] = option(
        "--routing-type", "Routing type. Can be given twice.", choices=ROUTING_TYPES, required=True
    ),
    remote: Remote = running,
) -> None:
    """Change the routing types of an address.

    \b
    Examples:
      stompring address update market --routing-type MULTICAST --routing-type ANYCAST
    """
    answer = remote.patch("addresses", name, body={"routingTypes": sorted(set(types))})
    remote.report(answer, f"address {name} changed: {', '.join(answer['routingTypes'])}")


@for_each(address, ADDRESSES)
def pause(remote: Remote, name: str) -> None:
    """Pause all queues of addresses. New queues of a paused address start paused.

    \b
    Examples:
      stompring address pause orders
    """
    remote.report(remote.patch("addresses", name, body={"paused": True}), f"address {name} paused")


@for_each(address, ADDRESSES)
def resume(remote: Remote, name: str) -> None:
    """Resume all queues of addresses.

    \b
    Examples:
      stompring address resume orders
    """
    remote.report(remote.patch("addresses", name, body={"paused": False}), f"address {name} resumed")


def _deletion(remote: Remote, name: str, force: bool) -> str:
    record = remote.get("addresses", name)
    count, messages = record["queueCount"], record["messageCount"]
    has = f" with {counted(count, 'queue')} and {counted(messages, 'message')}" if count else ""
    return f"Delete address {record['name']}{has}?"


@for_each(address, ADDRESSES, _deletion)
def delete(
    remote: Remote,
    name: str,
    force: bool = option("Delete its queues with their messages and consumers too."),
) -> None:
    """Delete addresses.

    \b
    Examples:
      stompring address delete orders.old
      stompring address delete orders.old --force --yes
    """
    remote.report(
        remote.delete("addresses", name, force="true" if force else None), f"address {name} deleted"
    )


@command(address, "forget-duplicates")
def forget_duplicates(name: str = ADDRESS, yes: bool = YES, remote: Remote = running) -> None:
    """Forget the duplicate ids (_AMQ_DUPL_ID) of an address permanently, so that messages with them can be sent again.

    \b
    Examples:
      stompring address forget-duplicates orders --yes
    """
    confirm(f"Forget all duplicate ids of address {name}?", yes)
    answer = remote.post("addresses", name, "forget-duplicates")
    remote.report(answer, f"{counted(answer['forgotten'], 'duplicate id')} of address {name} forgotten")


CONNECTION_COLUMNS = columns(
    connectionID=(0, "CONNECTION"),
    remoteAddress=1,
    user=2,
    clientID=4,
    creationTime=(3, "AGE", age_text),
    subscriptionCount=(5, "SUBSCRIPTIONS"),
    deliveringCount=3,
    sentRate=4,
    deliveredRate=4,
    messagesSent=(6, "SENT", count_text),
    messagesDelivered=(6, "DELIVERED", count_text),
    slow=3,
    blocked=3,
    outgoingBytes=7,
    protocol=7,
    acceptor=8,
    queues=8,
)

#: Columns of the table of numbers with which `connection show` begins.
CONNECTION_NUMBERS = columns(
    subscriptionCount=(0, "SUBSCRIPTIONS"),
    deliveringCount=0,
    sentRate=0,
    deliveredRate=0,
    acknowledgedRate=(0, "ACKED"),
    outgoingBytes=0,
    transactionCount=(1, "TRANSACTIONS"),
)

CONNECTION_FIELDS = fields(creationTime="connected")


@click.group()
def connection() -> None:
    """List, show and close connections.

    \b
    Examples:
      stompring connection list --where slow=true
      stompring connection list --sort=-deliveringCount --limit 10
      stompring connection close 1a2068-12
    """


@list_command(connection, "connections", "connectionID", CONNECTION_COLUMNS)
def list_connections() -> None:
    """List STOMP connections.

    \b
    Examples:
      stompring connection list
      stompring connection list --where user=ada --where blocked=true
      stompring connection list --where queues=orders
    """


@command(connection, "show")
def show_connection(connection_id: str = ID, remote: Remote = running) -> None:
    """Show one connection, by its ID or its client-id, with its subscriptions.

    \b
    Examples:
      stompring connection show 1a2068-12
    """
    record = remote.get("connections", connection_id)
    sections = {"Connection": every(record, CONNECTION_FIELDS)}
    remote.print_record(record, sections, "subscriptions", CONSUMERS, CONNECTION_NUMBERS)


def _closing(remote: Remote, name: str) -> str:
    record = remote.get("connections", name)
    user = f" of user {record['user']}" if record["user"] else ""
    return f"Close connection {record['connectionID']} from {record['remoteAddress']}{user}?"


@for_each(connection, argument("ID..."), _closing)
def close(remote: Remote, name: str) -> None:
    """Close connections by their ID, or by the client-id of the client.

    The client gets an ERROR; its unacknowledged messages return to their queues.

    \b
    Examples:
      stompring connection close 1a2068-12 billing-app
      stompring connection list --where slow=true -q | xargs -r stompring connection close --yes
    """
    remote.report(remote.delete("connections", name), f"connection {name} closed")


@click.group()
def consumer() -> None:
    """List consumers: whose they are, what they have not acknowledged, who is slow.

    \b
    Examples:
      stompring consumer list --where slow=true
      stompring consumer list --sort=-deliveringCount --limit 10
    """


@command(consumer, "list")
def list_consumers(
    listing: Listing = list_options("queue"),
    queue: str | None = option("NAME", "Consumers of this queue.", shell_complete=QUEUE_NAMES),
    remote: Remote = running,
) -> None:
    """List the consumers of all queues, or of one. --quiet prints their queues.

    \b
    Examples:
      stompring consumer list
      stompring consumer list --queue orders
      stompring consumer list --where user=ada --sort=-deliveringCount
    """
    path = ["consumers"] if queue is None else ["queues", queue, "consumers"]
    listing(remote, path, CONSUMERS, "no consumers")


LOGGER_COLUMNS = columns(
    name=(0, "LOGGER"), level=0, effectiveLevel=(0, "EFFECTIVE"), configured=(1, "AS STARTED")
)


@click.group()
def logger() -> None:
    """List loggers and change their levels while the broker runs.

    \b
    Examples:
      stompring logger set stompring.session debug
      stompring logger list --where configured=false
    """


@list_command(logger, "loggers", "name", LOGGER_COLUMNS)
def list_loggers() -> None:
    """List loggers with their levels.

    \b
    Examples:
      stompring logger list
      stompring logger list --search store
    """


@command(logger, "set")
def set_level(
    name: str,
    level: str = argument(choices=("debug", "info", "warn", "error", "inherit")),
    remote: Remote = running,
) -> None:
    """Change the level of a logger until the broker stops; "inherit" is the level of its parent.

    The logger stompring is the whole broker, root everything.

    \b
    Examples:
      stompring logger set stompring debug
      stompring logger set stompring.store inherit
    """
    answer = remote.patch("loggers", name, body={"level": None if level == "inherit" else level.lower()})
    remote.report(answer, f"logger {name} logs {answer['effectiveLevel']} and above")


ANSWERS = columns(
    permission=0,
    allowed=0,
    allowedOverHTTP=(3, "OVER HTTP"),
    match=(1, "BY RULE"),
    definedIn=(2, "DEFINED IN"),
    roles=2,
    reason=2,
)

MATRIX = columns(match=0, permission=0, roles=0, definedIn=(1, "DEFINED IN"), line=1)


@click.group()
def permission() -> None:
    """Show what a user may do on an address or a queue, and by which rule.

    \b
    Examples:
      stompring permission check --of bob --address orders
      stompring permission list
      stompring permission whoami
    """


@command(permission)
def check(
    who: str | None = option(
        "--of", "NAME", "The user asked about; needs the permission manage.  [default: you]"
    ),
    address: str | None = option("NAME", "On this address.", shell_complete=ADDRESS_NAMES),
    queue: str | None = option("NAME", "On this queue.", shell_complete=QUEUE_NAMES),
    remote: Remote = running,
) -> None:
    """Show for each permission whether a user has it on an address or a queue, and which security-setting decides.

    Without --address and --queue: on activemq.management, which the HTTP API asks for.

    \b
    Examples:
      stompring permission check --of bob --address orders
      stompring permission check --queue orders
    """
    remote.print_table(remote.get("permissions", user=who, address=address, queue=queue), ANSWERS)


@list_command(
    permission, "security-settings", "match", MATRIX, "no security-settings: no user has any permission"
)
def list_permissions() -> None:
    """List the security-settings: which roles have which permission.

    \b
    Examples:
      stompring permission list
      stompring permission list --where permission=send
    """


@command(permission)
def whoami(remote: Remote = running) -> None:
    """Show the user, the roles, and the permissions for the HTTP API.

    \b
    Examples:
      stompring permission whoami
      stompring permission whoami --context prod
    """
    found = remote.get("whoami")
    if remote.json:
        echo_json(found)
        return
    permissions = {f"may {name}": value for name, value in found.pop("permissions").items()}
    print_fields({**found, **permissions}, {"User": every(found), "Permissions": every(permissions)})


TASK_COLUMNS = columns(
    taskID=(0, "TASK"),
    operation=0,
    queue=1,
    state=0,
    done=(1, count_text),
    total=(2, count_text),
    skipped=(4, count_text),
    failed=(3, count_text),
    started=(4, age_text),
    user=5,
    error=6,
)


@click.group()
def task() -> None:
    """List, show, follow and cancel tasks: moves, copies, retries, removals and purges of many messages.

    \b
    Examples:
      stompring task list --where state=running
      stompring task follow 12
      stompring task cancel 12
    """


@list_command(task, "tasks", "taskID", TASK_COLUMNS)
def list_tasks() -> None:
    """List the tasks that run, and the last 100 that have ended.

    \b
    Examples:
      stompring task list
      stompring task list --where state=failed
    """


@command(task, "show")
def show_task(task_id: str = ID, remote: Remote = running) -> None:
    """Show one task.

    \b
    Examples:
      stompring task show 12
    """
    record = remote.get("tasks", task_id)
    remote.print_record(record, {"Task": every(record, fields(started=time_text, ended=time_text))})


@command(task)
def follow(task_id: str = ID, remote: Remote = running) -> None:
    """Show the progress of a task until it ends. Ctrl-C cancels the task; its changes so far remain.

    \b
    Examples:
      stompring task follow 12
    """
    ended = remote.follow_task(f"task {task_id}", task_id)
    remote.report(ended, f"task {task_id} completed: {counted(ended['done'], 'message')}")


@command(task)
def cancel(task_id: str = ID, remote: Remote = running) -> None:
    """Cancel a task. Its changes so far remain.

    \b
    Examples:
      stompring task cancel 12
    """
    remote.report(remote.delete("tasks", task_id), f"task {task_id} cancelled")


# ---- dead letters

GROUPS = columns(
    queue=0,
    originQueue=(0, "FROM QUEUE"),
    originAddress=(3, "FROM ADDRESS"),
    reason=1,
    count=(0, "MESSAGES", count_text),
    oldest=(2, age_text),
    newest=(2, age_text),
    complete=4,
)


class _ListByDefault(click.Group):
    """A group whose default command is ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if asks_for_list and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("dead-letters", cls=_ListByDefault)
def dead_letters() -> None:
    """List dead letters and expired messages by origin and reason, and send them back.

    They are found by the headers of their origin, whatever the name of the queue they are in. Without a command, they
    are listed.

    \b
    Examples:
      stompring dead-letters
      stompring dead-letters retry --from orders
    """


@command(dead_letters, "list")
def list_dead_letters(remote: Remote = running) -> None:
    """List dead letters grouped by queue, origin and reason.

    The first 10,000 messages of each queue are examined; COMPLETE shows whether these are all of its messages.

    \b
    Examples:
      stompring dead-letters list
      stompring dead-letters list --json | jq '.data[] | select(.reason == "expired")'
    """
    remote.print_table(remote.pages("dead-letters"), GROUPS, "no dead letters")


@command(dead_letters)
def retry(
    queue: str | None = argument(shell_complete=QUEUE_NAMES),
    origin: str | None = option("--from", "QUEUE", "Only dead letters from this queue."),
    reason: str | None = option("TEXT", "Only dead letters with this reason, such as max-delivery-attempts."),
    everything: bool = option("--all", "All dead letters of the broker."),
    remote: Remote = running,
) -> None:
    """Send dead letters back to where they came from: those in QUEUE, of --from, of --reason, or --all.

    Delivery counts begin at 0. Ctrl-C cancels the work: messages that went back stay there.

    \b
    Examples:
      stompring dead-letters retry DLQ
      stompring dead-letters retry --from orders --reason max-delivery-attempts
      stompring dead-letters retry --all
    """
    wanted = without_none({"queue": queue, "originQueue": origin, "reason": reason})
    if bool(wanted) is everything:
        raise click.UsageError("select dead letters by QUEUE, --from or --reason, or use --all")
    groups = [
        group
        for group in remote.pages("dead-letters")["data"]
        if all(group.get(name) == value for name, value in wanted.items())
    ]
    if not groups and not everything:
        raise CommandFailed("there are no such dead letters", NOT_FOUND)
    results = []
    for group in groups:
        name, source = group["queue"], group["originQueue"] or group["originAddress"]
        path = ("queues", name, "retry")
        task = remote.run_task(f"retry {source}", path, {"filter": group["filter"]}, False)
        results.append(task)
        if not remote.json:
            done(f"{counted(task['done'], 'message')} sent from {name} back to {source}")
    if remote.json:
        echo_json(results)
    if failed := sum(task["failed"] for task in results):
        reasons = {task["error"] for task in results if task["error"]}
        raise CommandFailed(f"{counted(failed, 'message')} could not go back: {'; '.join(sorted(reasons))}")
