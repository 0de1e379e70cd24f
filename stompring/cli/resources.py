"""Commands for addresses, connections, loggers, permissions and tasks.

``stompring address``: addresses of a running broker.

``stompring connection`` and ``stompring consumer``: the clients of a running broker.

``stompring logger``: log levels of a running broker.

``stompring permission``: what a user of a running broker may do, and by which rule.

``stompring task`` and ``stompring dead-letters``: work on many messages, and messages to retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    human_text,
    number,
    plain_text,
    print_fields,
    print_table,
    rate_text,
    time_text,
    yes_style,
)
from .queue import CONSUMERS, delete_forced, for_each, print_settings
from .remote import ListOptions, Remote, list_options, remote_command, run_list

ADDRESS_COLUMNS = (
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
    run_list(remote, ["addresses"], options, ADDRESS_COLUMNS, "no addresses")


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


CONNECTION_COLUMNS = (
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
    run_list(remote, ["connections"], options, CONNECTION_COLUMNS, "no connections")


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


LOGGER_COLUMNS = (
    Column("name", "LOGGER", rank=0),
    Column("level", "LEVEL", rank=0),
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


@logger.command("list")
@list_options("name")
@remote_command
def list_loggers(remote: Remote, options: ListOptions) -> None:
    """List loggers with their levels.

    \b
    Examples:
      stompring logger list
      stompring logger list --search store
    """
    run_list(remote, ["loggers"], options, LOGGER_COLUMNS, "no loggers")


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
    Column("permission", "PERMISSION", rank=0),
    Column("allowed", "ALLOWED", rank=0, style=lambda value: "green" if value else "red"),
    Column("allowedOverHTTP", "OVER HTTP", rank=3),
    Column("match", "BY RULE", rank=1),
    Column("roles", "ROLES", rank=2),
    Column("reason", "REASON", rank=2),
)

MATRIX = (
    Column("match", "MATCH", rank=0),
    Column("permission", "PERMISSION", rank=0),
    Column("roles", "ROLES", rank=0),
    Column("line", "LINE", rank=1),
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
    answer = remote.get("permissions", user=who, address=address, queue=queue)
    if remote.json:
        echo_json(answer)
    else:
        print_table(answer["data"], ANSWERS)


@permission.command("list")
@list_options("match")
@remote_command
def list_permissions(remote: Remote, options: ListOptions) -> None:
    """List the security-settings: which roles have which permission.

    \b
    Examples:
      stompring permission list
      stompring permission list --where permission=send
    """
    run_list(
        remote, ["security-settings"], options, MATRIX, "no security-settings: no user has any permission"
    )


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
    fields = {"User": flat, "Permissions": permissions}
    print_fields(
        {**flat, **permissions},
        {title: {name: (name, human_text) for name in part} for title, part in fields.items()},
    )


TASK_COLUMNS = (
    Column("taskID", "TASK", rank=0),
    Column("operation", "OPERATION", rank=0),
    Column("queue", "QUEUE", rank=1),
    Column("state", "STATE", rank=0),
    number("done", "DONE", 1),
    number("total", "TOTAL", 2),
    number("skipped", "SKIPPED", 4),
    number("failed", "FAILED", 3),
    Column("started", "STARTED", age_text, True, rank=4),
    Column("user", "USER", rank=5),
    Column("error", "ERROR", rank=6),
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


@task.command("list")
@list_options("taskID")
@remote_command
def list_tasks(remote: Remote, options: ListOptions) -> None:
    """List the tasks that run, and the last 100 that have ended.

    \b
    Examples:
      stompring task list
      stompring task list --where state=failed
    """
    run_list(remote, ["tasks"], options, TASK_COLUMNS, "no tasks")


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
    if remote.json:
        echo_json(record)
        return
    texts = {"started": ("started", time_text), "ended": ("ended", time_text)}
    print_fields(record, {"Task": {name: texts.get(name, (name, human_text)) for name in record}})


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
    Column("queue", "QUEUE", rank=0),
    Column("originQueue", "FROM QUEUE", rank=0),
    Column("originAddress", "FROM ADDRESS", rank=3),
    Column("reason", "REASON", rank=1),
    number("count", "MESSAGES", 0),
    Column("oldest", "OLDEST", age_text, True, rank=2),
    Column("newest", "NEWEST", age_text, True, rank=2),
    Column("complete", "COMPLETE", rank=4),
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
    answer = remote.pages("dead-letters")
    if remote.json:
        echo_json(answer)
    else:
        print_table(answer["data"], GROUPS, empty="no dead letters")


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
        body = {} if group.get("filter") is None else {"filter": group["filter"]}
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
