"""``stompring task`` and ``stompring dead-letters``: work on many messages, and messages to retry."""

from __future__ import annotations

import click

from stompring.cli.completion import names_of
from stompring.cli.listing import ListOptions, list_options, run_list
from stompring.cli.output import (
    NOT_FOUND,
    Column,
    CommandFailed,
    age_text,
    counted,
    done,
    echo_json,
    human_text,
    number,
    print_fields,
    print_table,
    time_text,
)
from stompring.cli.remote import Remote, remote_command

COLUMNS = (
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
    run_list(remote, ["tasks"], options, COLUMNS, "no tasks")


@task.command()
@click.argument("task_id", metavar="ID")
@remote_command
def show(remote: Remote, task_id: str) -> None:
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
