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

from .context import names_of
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
    human_text,
    number,
    plain_text,
    print_fields,
    rate_text,
    time_text,
    yes_option,
    yes_style,
)
from .queue import CONSUMERS, SETTINGS, delete_forced
from .remote import (
    ListOptions,
    Remote,
    for_each,
    list_command,
    list_options,
    remote_command,
    run_list,
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
    "Address": (
        Column("name"),
        Column("routingTypes", "routing types"),
        Column("queues"),
        Column("policies"),
        Column("paused"),
    ),
    "Messages": (
        Column("messageCount", "messages"),
        Column("addressSize", "memory", bytes_text),
        Column("limitPercent", "limit used, %"),
        Column("paging"),
        Column("numberOfPages", "pages"),
        Column("pagesSize", "size of pages", bytes_text),
        Column("blockedProducers", "blocked producers"),
    ),
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


name_argument = click.argument("name", metavar="ADDRESS", shell_complete=Completed)
names_argument = click.argument(
    "names", metavar="ADDRESS...", nargs=-1, required=True, shell_complete=Completed
)


@list_command(address, "addresses", "name", ADDRESS_COLUMNS)
def list_addresses() -> None:
    """List addresses.

    \b
    Examples:
      stompring address list
      stompring address list --where paging=true
      stompring address list --sort=-addressSize --limit 10 --columns name,addressSize
    """


@address.command("show")
@name_argument
@remote_command
def show_address(remote: Remote, name: str) -> None:
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


@address.command()
@name_argument
@remote_command
def settings(remote: Remote, name: str) -> None:
    """Show the address-settings in force for an address, and where each value comes from.

    \b
    Examples:
      stompring address settings orders
    """
    remote.print_table(remote.get("addresses", name, "settings"), SETTINGS)


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
    body = {"name": name, "routingTypes": sorted(set(types)) or None, "paused": paused or None}
    answer = remote.post("addresses", body=without_none(body))
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
@for_each(names_argument)
def pause(remote: Remote, name: str) -> None:
    """Pause all queues of addresses. New queues of a paused address start paused.

    \b
    Examples:
      stompring address pause orders
    """
    remote.report(remote.patch("addresses", name, body={"paused": True}), f"address {name} paused")


@address.command()
@for_each(names_argument)
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


@address.command()
@click.option("--force", is_flag=True, help="Delete its queues with their messages and consumers too.")
@for_each(names_argument, _deletion)
def delete(remote: Remote, name: str, force: bool) -> None:
    """Delete addresses.

    \b
    Examples:
      stompring address delete orders.old
      stompring address delete orders.old --force --yes
    """
    remote.report(delete_forced(remote, "addresses", name, force), f"address {name} deleted")


@address.command("forget-duplicates")
@name_argument
@yes_option
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

CONNECTION_FIELDS = (
    Column("creationTime", "connected", time_text),
    Column("outgoingBytes", "outgoing", bytes_text),
    Column("sentRate", "in", rate_text),
    Column("deliveredRate", "out", rate_text),
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


@connection.command("show")
@click.argument("connection_id", metavar="ID")
@remote_command
def show_connection(remote: Remote, connection_id: str) -> None:
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


@connection.command()
@for_each(click.argument("names", metavar="ID...", nargs=-1, required=True), _closing)
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


@logger.command("set")
@click.argument("name")
@click.argument(
    "level", type=click.Choice(("debug", "info", "warn", "error", "inherit"), case_sensitive=False)
)
@remote_command
def set_level(remote: Remote, name: str, level: str) -> None:
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


@permission.command()
@click.option(
    "--of", "who", metavar="NAME", help="The user asked about; needs the permission manage.  [default: you]"
)
@click.option("--address", metavar="NAME", shell_complete=names_of("addresses"), help="On this address.")
@click.option("--queue", metavar="NAME", shell_complete=names_of("queues"), help="On this queue.")
@remote_command
def check(remote: Remote, who: str | None, address: str | None, queue: str | None) -> None:
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


@permission.command()
@remote_command
def whoami(remote: Remote) -> None:
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


@task.command("show")
@click.argument("task_id", metavar="ID")
@remote_command
def show_task(remote: Remote, task_id: str) -> None:
    """Show one task.

    \b
    Examples:
      stompring task show 12
    """
    record = remote.get("tasks", task_id)
    times = (Column("started", show=time_text), Column("ended", show=time_text))
    remote.print_record(record, {"Task": every(record, times)})


@task.command()
@click.argument("task_id", metavar="ID")
@remote_command
def follow(remote: Remote, task_id: str) -> None:
    """Show the progress of a task until it ends. Ctrl-C cancels the task: what it has done stays done.

    \b
    Examples:
      stompring task follow 12
    """
    ended = remote.follow_task(f"task {task_id}", task_id)
    remote.report(ended, f"task {task_id} completed: {counted(ended['done'], 'message')}")


@task.command()
@click.argument("task_id", metavar="ID")
@remote_command
def cancel(remote: Remote, task_id: str) -> None:
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


@dead_letters.command("list")
@remote_command
def list_dead_letters(remote: Remote) -> None:
    """List dead letters grouped by queue, origin and reason.

    Of a queue the first 10,000 messages are examined; COMPLETE is no where it has more.

    \b
    Examples:
      stompring dead-letters list
      stompring dead-letters list --json | jq '.data[] | select(.reason == "expired")'
    """
    remote.print_table(remote.pages("dead-letters"), GROUPS, "no dead letters")


@dead_letters.command()
@click.argument("queue", required=False, shell_complete=names_of("queues"))
@click.option("--from", "origin", metavar="QUEUE", help="Only those that came from this queue.")
@click.option("--reason", metavar="TEXT", help="Only those with this reason, such as max-delivery-attempts.")
@click.option("--all", "everything", is_flag=True, help="All dead letters of the broker.")
@remote_command
def retry(
    remote: Remote, queue: str | None, origin: str | None, reason: str | None, everything: bool
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
