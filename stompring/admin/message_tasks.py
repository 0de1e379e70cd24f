"""``POST /api/v1/queues/{name}/move``, ``copy``, ``retry``, ``remove``, ``expire``, ``dead-letter``, ``priority``,
``purge``; ``/api/v1/tasks``.

Each changes many messages, as a task that runs in slices. A request waits for its task, or gets its id at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from twisted.internet.task import deferLater

from stompring.broker import publish, queue_browser
from stompring.broker.directory import services_of
from stompring.broker.message import Matches, origin_of
from stompring.broker.publish import Mover, Rejection, Target
from stompring.broker.queue import Queue
from stompring.broker.queue_browser import PageRead, matching
from stompring.broker.reference import DELIVERING, PENDING, SCHEDULED, Reference
from stompring.errors import Refused
from stompring.settings.model import FullPolicy, RoutingType

from .api import (
    CONFLICT,
    Answer,
    Body,
    Call,
    Handler,
    Json,
    Parameter,
    PermissionRule,
    Problem,
    Response,
    Route,
    Steps,
    edit_queue,
    edit_task,
    flag,
    invalid,
    json_answer,
    listing,
    message_copy,
    message_move,
    message_number,
    message_retry,
    number,
    optional,
    permission_check,
    route,
    routing_type,
    text,
    view,
    view_broker,
    view_task,
)
from .context import ITEMS_PER_STEP, AdminContext, ManagementTask, TaskState, page_read
from .json_schema import (
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    object_of,
    string,
    structure,
    timestamp,
)
from .messages import in_transactions
from .queues import queue_of

#: Messages that one request may name.
MAX_IDS = 10_000

#: Seconds that a task waits for a full target, or for the disk, without moving a message.
FULL_TIMEOUT = 10.0

#: Seconds between two looks at a full target.
FULL_INTERVAL = 0.02

#: What a step may cost: messages looked at, of which one that is changed counts as five.
STEP_COST, CHANGED_COST = 50, 5

#: Bytes of messages changed per step.
STEP_BYTES = 256 * 1024


class Selection(NamedTuple):
    """The messages that a request selects: by number, by a filter, or all that are pending or scheduled."""

    numbers: Sequence[int] | None
    matches: Matches | None
    limit: int  # -1: none
    total: int | None  # how many they are, where that is known

    @classmethod
    def of(cls, queue: Queue, body: JsonObject) -> Selection:
        """From the body of a request. Raises 400, and 404 for what is no id of this queue."""
        ids, text_filter = body.get("messages"), optional(body, "filter")
        limit = number(1)("limit", body.get("limit", -1))
        if ids is not None and text_filter is not None:
            raise invalid("messages", "and filter are given: select by one of them")
        matches = matching(text_filter)
        if ids is None:
            total = queue.message_count if matches is None else None
            return cls(None, matches, limit, total if total is None or limit < 0 else min(limit, total))
        if not isinstance(ids, list) or len(ids) > MAX_IDS:
            raise invalid("messages", f"must be a list of at most {MAX_IDS} message ids")
        numbers = [message_number(text("messages", each), queue.number) for each in ids]
        return cls(numbers, None, limit, len(set(numbers)))


#: Changes one message: True if that is done, False if it has left meanwhile, None if it stays, a rejection if its
#: target does not accept it now. Raises `Refused` if this message cannot be changed.
Change = Callable[[Reference], Rejection | bool | None]


class QueueTask(NamedTuple):
    """The work of one task on the messages of one queue. It fails if the ``target`` is deleted."""

    context: AdminContext
    queue: Queue
    task: ManagementTask
    target: Target | None

    def run(self, selection: Selection, change: Change) -> Iterator[object]:
        """Change what is selected; what is in delivery is skipped."""
        queue, task, matches = self.queue, self.task, selection.matches
        task.total = selection.total
        remaining = None if selection.numbers is None else set(selection.numbers)
        found: Iterator[Reference | PageRead | None]
        if remaining is None:
            found = publish.messages_of(queue, in_transactions(self.context))
        else:
            found = publish.numbered(queue, remaining)
        cost = size = 0
        for ref in found:
            if isinstance(ref, PageRead):
                yield page_read(ref)
                continue
            if queue.deleted:
                raise Refused(f"Queue {queue.name} was deleted")
            cost += 1
            if ref is not None and (matches is None or matches(ref.message)):
                if ref.state in (PENDING, SCHEDULED):
                    yield from self._store_ready()
                    yield from self._change(change, ref)
                    cost += CHANGED_COST
                    size += ref.message.size
                    if task.done == selection.limit:
                        remaining = None
                        break
                elif remaining is not None or ref.state == DELIVERING:
                    task.skipped += 1
            if cost >= STEP_COST or size >= STEP_BYTES:
                cost = size = 0
                yield None
        if remaining:
            task.skipped += len(remaining)
        if not queue.consumers and not queue.deleted:
            queue.broker.consider_deleting(queue)

    def _store_ready(self) -> Iterator[object]:
        """Wait while the store cannot take more. Raises `Refused` where that takes too long."""
        limit = self.queue.broker.storage.write_limit
        waited = 0.0
        while limit.full:
            if waited >= FULL_TIMEOUT:
                raise Refused(f"Durable messages are rejected: {limit.fault or 'the disk is too slow'}")
            yield self._pause()
            waited += FULL_INTERVAL

    def _pause(self) -> object:
        return deferLater(self.context.reactor, FULL_INTERVAL, lambda: None)

    def _change(self, change: Change, ref: Reference) -> Iterator[object]:
        """Change one message and count it. Raises `Refused` if the task cannot go on."""
        task, target = self.task, self.target
        waited = 0.0
        while True:
            if target is not None and (
                target.address.deleted or (target.queue is not None and target.queue.deleted)
            ):
                raise Refused(f"{target.describe()} was deleted".capitalize())
            try:
                outcome = change(ref)
            except Refused as refused:  # of this message only
                task.fail(str(refused))
                return
            if outcome is None or isinstance(outcome, bool):
                task.done += outcome is True
                task.skipped += outcome is False
                return
            if outcome.policy is not FullPolicy.BLOCK or waited >= FULL_TIMEOUT:
                raise Refused(
                    f"{outcome.describe()}; {task.done} messages are done, the others stay in queue {self.queue.name}"
                )
            yield self._pause()
            waited += FULL_INTERVAL


def _start(call: Call, operation: str, change: Change, target: Target | None = None) -> Answer | Steps:
    queue = queue_of(call)
    wait = flag("wait", call.body.get("wait", True))
    selection = Selection.of(queue, call.body)
    tasks = call.context.tasks
    task = tasks.new(operation, queue.name, call.user)
    tasks.start(task, QueueTask(call.context, queue, task, target).run(selection, change))
    return _answer_when_ended(task) if wait else _accepted(task)


def _accepted(task: ManagementTask) -> Answer:
    return json_answer(view(task, FIELDS), 202, {"Location": f"/api/v1/tasks/{task.number}"})


def _answer_when_ended(task: ManagementTask) -> Steps:
    yield task.when_ended()
    if task.state is TaskState.FAILED:
        members = {name: FIELDS[name].read(task) for name in ("taskID", "done", "skipped", "failed")}
        raise Problem(409, task.error or "The task failed", None, **members)
    return view(task, FIELDS)


def _target(call: Call) -> Target:
    body, queue, kind = call.body, queue_of(call), routing_type(call.body)
    return publish.move_target(
        queue,
        optional(body, "address"),
        optional(body, "queue"),
        kind,
        permission_check(call),
        call.user,
    )


def _removed_when_ended(task: ManagementTask) -> Steps:
    yield task.when_ended()
    if task.state is TaskState.FAILED:
        raise Refused(task.error or "The purge failed")
    return {"removed": task.done}


def _purge(queue: Queue, task: ManagementTask, purged: Iterator[int | PageRead]) -> Iterator[object]:
    for index, killed in enumerate(purged):
        if isinstance(killed, PageRead):
            yield page_read(killed)
            continue
        task.done += killed
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield None
    if task.done and not queue.consumers:
        queue.broker.consider_deleting(queue)


FIELDS: Fields[ManagementTask] = {
    "taskID": string("Id of the task.", lambda t: str(t.number)),
    "operation": keyword(
        ("move", "copy", "retry", "remove", "expire", "dead-letter", "priority", "purge"),
        "What the task does.",
        "operation",
    ),
    "queue": string("Queue of the messages.", "queue"),
    "user": string("User who started it; null without security.", "user", null=True),
    "state": keyword(TaskState, "running, completed, failed or cancelled.", "state"),
    "started": timestamp("Time of the start.", "started"),
    "ended": timestamp("Time of the end; null while it runs.", "ended", null=True),
    "done": integer("Messages changed: moved, copied, retried, removed and so on.", "done"),
    "skipped": integer(
        "Messages in delivery, messages that had left the queue, and scheduled ones that keep their priority.",
        "skipped",
    ),
    "failed": integer("Messages that could not go where they should; they stay in the queue.", "failed"),
    "total": integer("Messages selected at the start; null if a filter selects them.", "total", null=True),
    "error": string(
        "Why the task failed, or why the first message failed; null without an error.", "error", null=True
    ),
}

TASK = object_of("Task", FIELDS)

SELECTION: dict[str, Schema] = {
    "messages": array(string("A messageID."), f"Message ids, at most {MAX_IDS}.", maxItems=MAX_IDS),
    "filter": string("Selector.", null=True),
    "limit": integer("Maximum number of messages to change. -1: no limit.", minimum=-1),
    "wait": boolean("False: answer at once with 202 and the task. Default: true."),
}
TARGET = {
    "address": string("Address that the messages go to. Required unless queue is given."),
    "queue": string("The one queue that they go to.", null=True),
    "routingType": keyword(RoutingType, "Routing type of an address or queue that does not exist yet."),
    **SELECTION,
}

SELECTED = (
    "messages or filter select the messages; without both, all pending and scheduled messages. Messages in delivery "
    "are skipped. The work is done in slices; each message is one transaction of the journal."
)
DONE = (
    Response("The task, which has ended.", TASK),
    Response("The task, which runs; with wait: false.", TASK, headers=("Location",), status=202),
)

TASK_ID = Parameter("id", "The taskID.", where="path", component="taskID")

PURGED = "Number of removed messages; each counts as killed."


def _task_route(where: str, permissions: PermissionRule, body: Body) -> Callable[[Handler], Route]:
    """The route of a task that changes the selected messages."""
    return route(where, permissions, *DONE, description=SELECTED, body=body, errors=CONFLICT)


@_task_route("POST /api/v1/queues/{name}/move", message_move, Body(TARGET))
def move_messages(call: Call) -> Answer | Steps:
    """Move messages to an address or to a queue.

    A full target loses no message: those that are not moved stay.
    """
    target, mover = _target(call), Mover(queue_of(call), remove=True)
    return _start(call, "move", lambda ref: mover.send(ref, target), target)


@_task_route("POST /api/v1/queues/{name}/copy", message_copy, Body(TARGET))
def copy_messages(call: Call) -> Answer | Steps:
    """Copy messages to an address or to a queue."""
    target, mover = _target(call), Mover(queue_of(call), remove=False)
    return _start(call, "copy", lambda ref: mover.send(ref, target), target)


@_task_route(
    "POST /api/v1/queues/{name}/retry",
    message_retry,
    Body(
        {
            **SELECTION,
            "keepOrigin": boolean("Whether messages keep the _AMQ_ORIG_… headers. Default: false."),
        },
        optional=True,
    ),
)
def retry_messages(call: Call) -> Answer | Steps:
    """Send dead letters and expired messages back to where they came from.

    A message goes to its original queue if that still exists, else to its original address, without the headers of
    its origin unless keepOrigin is true, as a message that was never delivered.
    """
    queue, named, check = queue_of(call), call.body.get("messages") is not None, permission_check(call)
    mover = Mover(queue, remove=True, keep_origin=flag("keepOrigin", call.body.get("keepOrigin", False)))

    def retry(ref: Reference) -> Rejection | bool | None:
        origin = origin_of(ref.message)
        if origin is None or origin.queue == queue.name:  # one in the queue of its origin came back already
            if named:
                raise Refused(f"Message {ref.message.number} has no origin: it is no dead letter")
            return None
        return mover.send(ref, publish.retry_target(services_of(queue), origin, check, call.user), origin)

    return _start(call, "retry", retry)


@_task_route("POST /api/v1/queues/{name}/remove", edit_queue, Body(SELECTION, optional=True))
def remove_messages(call: Call) -> Answer | Steps:
    """Remove messages; each counts as acknowledged."""
    return _start(call, "remove", publish.take)


@_task_route("POST /api/v1/queues/{name}/expire", edit_queue, Body(SELECTION, optional=True))
def expire_messages(call: Call) -> Answer | Steps:
    """Expire messages now: each goes to the expiry-address of its address, if there is one."""
    return _start(call, "expire", publish.expire)


@_task_route("POST /api/v1/queues/{name}/dead-letter", edit_queue, Body(SELECTION, optional=True))
def send_messages_to_dead_letter_address(call: Call) -> Answer | Steps:
    """Send messages to the dead-letter-address of their address now; each counts as killed."""
    address = queue_of(call).address
    target = address.settings.dead_letter_address
    if target is None:
        raise Refused(f"Address {address.name} has no dead-letter-address: set one, or move the messages")
    if target == address.name:
        raise Refused(
            f"Address {address.name} is its own dead-letter-address: the messages are there already"
        )
    return _start(call, "dead-letter", publish.dead_letter)


@_task_route(
    "POST /api/v1/queues/{name}/priority",
    edit_queue,
    Body({"priority": integer("The new priority, 0 to 9.", maximum=9), **SELECTION}, ("priority",)),
)
def change_messages_priority(call: Call) -> Answer | Steps:
    """Change the priority of pending messages.

    A message goes to the end of its new priority, with a new id, as one that was never delivered. Scheduled
    messages are skipped.
    """
    priority = number(0)("priority", call.body.get("priority", -1))
    if not 0 <= priority <= 9:
        raise invalid("priority", "must be a whole number from 0 to 9")
    return _start(
        call, "priority", lambda ref: ref.state == PENDING and publish.change_priority(ref, priority)
    )


@route(
    "POST /api/v1/queues/{name}/purge",
    edit_queue,
    Response("The number of removed messages.", structure({"removed": integer(PURGED)})),
    DONE[1],
    body=Body({name: SELECTION[name] for name in ("filter", "wait")}, optional=True),
    errors=CONFLICT,
)
def purge_queue(call: Call) -> Answer | Steps:
    """Remove all pending and scheduled messages, or those that match a selector."""
    queue, tasks = queue_of(call), call.context.tasks
    wait = flag("wait", call.body.get("wait", True))
    text_filter = optional(call.body, "filter")
    purged = queue_browser.purge(queue, text_filter)
    task = tasks.new("purge", queue.name, call.user)
    if text_filter is None:
        task.total = queue.message_count
    tasks.start(task, _purge(queue, task, purged))
    return _removed_when_ended(task) if wait else _accepted(task)


@listing("/api/v1/tasks", view_broker, "tasks", TASK, FIELDS, searched="queue")
def list_tasks(call: Call) -> list[ManagementTask]:
    """List the tasks that run, and the last 100 that have ended."""
    return list(call.context.tasks)


@route("GET /api/v1/tasks/{id}", view_task, Response("The task.", TASK), parameters=(TASK_ID,))
def show_task(call: Call) -> Json:
    """Show one task."""
    return view(call.context.tasks.find(call.names["id"]), FIELDS)


@route(
    "DELETE /api/v1/tasks/{id}",
    edit_task,
    Response("The task ends after its present slice."),
    parameters=(TASK_ID,),
    errors=CONFLICT,
)
def cancel_task(call: Call) -> None:
    """Cancel a task; what it has done stays done."""
    task = call.context.tasks.find(call.names["id"])
    if task.state is not TaskState.RUNNING:
        raise Refused(f"Task {task.number} has ended: it is {task.state.value}")
    task.cancelled = True
