"""Commands for addresses, connections, loggers, permissions and tasks.

``stompring address``: addresses of a running broker.

``stompring connection`` and ``stompring consumer``: the clients of a running broker.

``stompring logger``: log levels of a running broker.

``stompring permission``: what a user of a running broker may do, and by which rule.

``stompring task`` and ``stompring dead-letters``: work on many messages, and messages to retry.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from .options import YES, argument, command, option
from .output import (
    NOT_FOUND,
    Column,
    CommandFailed,
    age_text,
    bytes_text,
    confirm,
    counted,
    done,
    echo_json,
    every,
    fields,
    human_text,
    number,
    plain_text,
    print_fields,
    rate_text,
    time_text,
    yes_style,
)
from .queue import CONSUMERS, SETTINGS, delete_forced
from .remote import (
    ADDRESS_NAMES,
    QUEUE_NAMES,
    ListOptions,
    Remote,
    for_each,
    list_command,
    list_options,
    run_list,
    running,
    without_none,
)

ADDRESS_COLUMNS = (
    Column("name", rank=0),
    number("messageCount", "MESSAGES", 0),
    number("queueCount", "QUEUES", 1),
    number("addedRate", "IN", 2, rate_text),
    number("addressSize", "MEMORY", 2, bytes_text),
    Column("paging", rank=3, style=yes_style("yellow")),
    number("numberOfPages", "PAGES", 5),
    number("limitPercent", "LIMIT %", 4),
    number("blockedProducers", "BLOCKED", 4),
    Column("paused", rank=5, style=yes_style("yellow")),
    Column("routingTypes", "TYPES", rank=6),
    number("unRoutedMessageCount", "UNROUTED", 7),
    number("droppedMessageCount", "DROPPED", 7),
    Column("policies", rank=8),
)

SECTIONS: dict[str, Iterable[Column]] = {
    "Address": fields(
        name="name",
        routingTypes="routing types",
        queues="queues",
        policies="policies",
        paused="paused",
    ),
    "Messages": fields(
        messageCount="messages",
        addressSize=("memory", bytes_text),
        limitPercent="limit used, %",
        paging="paging",
        numberOfPages="pages",
        pagesSize=("size of pages", bytes_text),
        blockedProducers="blocked producers",
    ),
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
    if remote.json:
        echo_json(record)
        return
    settings = record.pop("settings", {})
    flat = {**record, **{f"settings.{key}": value for key, value in settings.items()}}
    known = {column.field for columns in SECTIONS.values() for column in columns}
    others = every(key for key in record if key not in known)
    named = [Column(f"settings.{key}", key, plain_text) for key in settings]
    print_fields(flat, {**SECTIONS, "Other": others, "Address settings": named})


@command(address)
def settings(name: str = ADDRESS, remote: Remote = running) -> None:
    """Show the address-settings in force for an address, and where each value comes from.

    \b
    Examples:
      stompring address settings orders
    """
    remote.print_table(remote.get("addresses", name, "settings"), SETTINGS)


TYPES = click.Choice(("ANYCAST", "MULTICAST"), case_sensitive=False)


@command(address)
def create(
    name: str = ADDRESS,
    types: tuple[str, ...] = option("--routing-type", "Routing type. Can be given twice.", type=TYPES),
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
        "--routing-type", "Routing type. Can be given twice.", type=TYPES, required=True
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


@command(address)
@for_each(ADDRESSES)
def pause(remote: Remote, name: str) -> None:
    """Pause all queues of addresses. New queues of a paused address start paused.

    \b
    Examples:
      stompring address pause orders
    """
    remote.report(remote.patch("addresses", name, body={"paused": True}), f"address {name} paused")


@command(address)
@for_each(ADDRESSES)
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


@command(address)
@for_each(ADDRESSES, _deletion)
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
    remote.report(delete_forced(remote, "addresses", name, force), f"address {name} deleted")


@command(address, "forget-duplicates")
def forget_duplicates(name: str = ADDRESS, yes: bool = YES, remote: Remote = running) -> None:
    """Forget the duplicate ids (_AMQ_DUPL_ID) of an address permanently, so that messages with them can be sent again.

    \b
    Examples:
      stompring address forget-duplicates orders --yes
    """
    confirm(f"Forget all duplicate ids of address {name}?", yes)
    answer = remote.post("addresses", name, "forget-duplicates")
    remote.report(answer, f"{human_text(answer['forgotten'])} duplicate ids of address {name} forgotten")


CONNECTION_COLUMNS = (
    Column("connectionID", "CONNECTION", rank=0),
    Column("remoteAddress", "PEER", rank=1),
    Column("user", rank=2),
    Column("clientID", "CLIENT ID", rank=4),
    Column("creationTime", "AGE", age_text, True, rank=3),
    number("subscriptionCount", "SUBSCRIPTIONS", 5),
    number("deliveringCount", "DELIVERING", 3),
    number("sentRate", "IN", 4, rate_text),
    number("deliveredRate", "OUT", 4, rate_text),
    number("messagesSent", "SENT", 6),
    number("messagesDelivered", "DELIVERED", 6),
    Column("slow", rank=3, style=yes_style("red")),
    Column("blocked", rank=3, style=yes_style("yellow")),
    number("outgoingBytes", "OUTGOING", 7, bytes_text),
    Column("protocol", rank=7),
    Column("acceptor", rank=8),
    Column("queues", rank=8),
)

CONNECTION_FIELDS = fields(
    creationTime=("connected", time_text),
    outgoingBytes=("outgoing", bytes_text),
    sentRate=("in", rate_text),
    deliveredRate=("out", rate_text),
)


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
    """Show one connection with its subscriptions.

    \b
    Examples:
      stompring connection show 1a2068-12
    """
    record = remote.get("connections", connection_id)
    remote.print_record(record, {"Connection": every(record, CONNECTION_FIELDS)}, "subscriptions", CONSUMERS)


def _closing(remote: Remote, name: str) -> str:
    record = remote.get("connections", name)
    user = f" of user {record['user']}" if record.get("user") else ""
    return f"Close connection {record['connectionID']} from {record['remoteAddress']}{user}?"


@command(connection)
@for_each(argument("ID..."), _closing)
def close(remote: Remote, name: str) -> None:
    """Close connections. The client gets an ERROR; its unacknowledged messages return to their queues.

    \b
    Examples:
      stompring connection close 1a2068-12
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
    options: ListOptions = list_options("queue"),
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
    run_list(
        remote,
        ["consumers"] if queue is None else ["queues", queue, "consumers"],
        options,
        CONSUMERS,
        "no consumers",
    )


LOGGER_COLUMNS = (
    Column("name", "LOGGER", rank=0),
    Column("level", rank=0),
    Column("effectiveLevel", "EFFECTIVE", rank=0),
    Column("configured", "AS STARTED", rank=1),
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
    level: str = argument(
        type=click.Choice(("debug", "info", "warn", "error", "inherit"), case_sensitive=False)
    ),
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


ANSWERS = (
    Column("permission", rank=0),
    Column("allowed", rank=0, style=lambda value: "green" if value else "red"),
    Column("allowedOverHTTP", "OVER HTTP", rank=3),
    Column("match", "BY RULE", rank=1),
    Column("roles", rank=2),
    Column("reason", rank=2),
)

MATRIX = (
    Column("match", rank=0),
    Column("permission", rank=0),
    Column("roles", rank=0),
    Column("line", rank=1),
)


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
    flat = {name: value for name, value in found.items() if name != "permissions"}
    permissions = {f"may {name}": value for name, value in found["permissions"].items()}
    print_fields({**flat, **permissions}, {"User": every(flat), "Permissions": every(permissions)})


TASK_COLUMNS = (
    Column("taskID", "TASK", rank=0),
    Column("operation", rank=0),
    Column("queue", rank=1),
    Column("state", rank=0),
    number("done", "DONE", 1),
    number("total", "TOTAL", 2),
    number("skipped", "SKIPPED", 4),
    number("failed", "FAILED", 3),
    Column("started", "STARTED", age_text, True, rank=4),
    Column("user", rank=5),
    Column("error", rank=6),
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
    times = (Column("started", show=time_text), Column("ended", show=time_text))
    remote.print_record(record, {"Task": every(record, times)})


@command(task)
def follow(task_id: str = ID, remote: Remote = running) -> None:
    """Show the progress of a task until it ends. Ctrl-C cancels the task: what it has done stays done.

    \b
    Examples:
      stompring task follow 12
    """
    ended = remote.follow_task(f"task {task_id}", task_id)
    remote.report(ended, f"task {task_id} completed: {counted(ended['done'], 'message')}")


@command(task)
def cancel(task_id: str = ID, remote: Remote = running) -> None:
    """Cancel a task. What it has done stays done.

    \b
    Examples:
      stompring task cancel 12
    """
    remote.report(remote.delete("tasks", task_id), f"task {task_id} cancelled")


# ---- dead letters

GROUPS = (
    Column("queue", rank=0),
    Column("originQueue", "FROM QUEUE", rank=0),
    Column("originAddress", "FROM ADDRESS", rank=3),
    Column("reason", rank=1),
    number("count", "MESSAGES", 0),
    Column("oldest", "OLDEST", age_text, True, rank=2),
    Column("newest", "NEWEST", age_text, True, rank=2),
    Column("complete", rank=4),
)


class _ListByDefault(click.Group):
    """A group that lists without a command."""

    default_command = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words of the command."""
        asks_for_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if asks_for_list and not ctx.resilient_parsing:
            args = [self.default_command, *args]
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

    Of a queue the first 10,000 messages are examined; COMPLETE is no where it has more.

    \b
    Examples:
      stompring dead-letters list
      stompring dead-letters list --json | jq '.data[] | select(.reason == "expired")'
    """
    remote.print_table(remote.pages("dead-letters"), GROUPS, "no dead letters")


@command(dead_letters)
def retry(
    queue: str | None = argument(shell_complete=QUEUE_NAMES),
    origin: str | None = option("--from", "QUEUE", "Only those that came from this queue."),
    reason: str | None = option("TEXT", "Only those with this reason, such as max-delivery-attempts."),
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
    if (queue is None and origin is None and reason is None) is not everything:
        raise click.UsageError("select dead letters by QUEUE, --from or --reason, or use --all")
    groups = [
        group
        for group in remote.pages("dead-letters")["data"]
        if (queue is None or group["queue"] == queue)
        and (origin is None or group.get("originQueue") == origin)
        and (reason is None or group.get("reason") == reason)
    ]
    if not groups and not everything:
        raise CommandFailed("there are no such dead letters", NOT_FOUND)
    results = []
    failed = 0
    for group in groups:
        name, source = group["queue"], group.get("originQueue") or group.get("originAddress")
        body = without_none({"filter": group.get("filter")})
        task = remote.run_task(f"retry {source}", ("queues", name, "retry"), body, False)
        results.append(task)
        failed += task.get("failed") or 0
        if not remote.json:
            done(f"{counted(task['done'], 'message')} sent from {name} back to {source}")
    if remote.json:
        echo_json(results)
    if failed:
        reasons = {task["error"] for task in results if task.get("error")}
        raise CommandFailed(f"{counted(failed, 'message')} could not go back: {'; '.join(sorted(reasons))}")
