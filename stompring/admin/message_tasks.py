"""``POST /api/v1/queues/{name}/move``, ``copy``, ``retry``, ``remove``, ``expire``, ``dead-letter``, ``priority``,
``purge``; ``/api/v1/tasks``.

Each changes many messages, as a task that runs in slices. A request waits for its task, or gets its id at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
    LISTING,
    NAME,
    NO_CONTENT,
    Answer,
    Body,
    Call,
    Parameter,
    Problem,
    Response,
    Route,
    Steps,
    choice,
    copy_messages,
    edit_queue,
    edit_task,
    flag,
    invalid,
    json_answer,
    message_number,
    move_messages,
    number,
    paged,
    permission_check,
    retry_messages,
    selector,
    text,
    text_or_none,
    view,
    view_broker,
    view_task,
)
from .context import ITEMS_PER_STEP, AdminContext, ManagementTask, TaskState, page_read
from .json_schema import (
    Component,
    Field,
    Fields,
    array,
    boolean,
    integer,
    keyword,
    page_of,
    shown,
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


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages that a request selects: by number, by a filter, or all that are pending or scheduled."""

    numbers: Sequence[int] | None
    matches: Matches | None
    limit: int  # -1: none
    total: int | None  # how many they are, where that is known

    @classmethod
    def of(cls, queue: Queue, body: dict[str, Any]) -> Selection:
        """From the body of a request. Raises 400, and 404 for what is no id of this queue."""
        ids, text_filter = body.get("messages"), selector(body, "filter")
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


#: Changes one message: counts it, and yields where the task has to wait.
Change = Callable[[Reference], Iterator[object]]


class QueueTask:
    """The work of one task on the messages of one queue."""

    def __init__(self, context: AdminContext, queue: Queue, task: ManagementTask) -> None:
        self.context = context
        self.queue = queue
        self.task = task

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
                    yield from change(ref)
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

    def count(self, changed: bool) -> None:
        """One message is done, or has left meanwhile."""
        if changed:
            self.task.done += 1
        else:
            self.task.skipped += 1

    def remove(self, ref: Reference) -> Iterator[object]:
        """A `Change`."""
        self.count(publish.take(ref))
        yield from ()

    def expire(self, ref: Reference) -> Iterator[object]:
        """A `Change`."""
        self.count(publish.expire(ref))
        yield from ()

    def dead_letter(self, ref: Reference) -> Iterator[object]:
        """A `Change`."""
        try:
            self.count(publish.dead_letter(ref))
        except Refused as refused:  # of this message only
            self.task.fail(str(refused))
        yield from ()

    def prioritizer(self, priority: int) -> Change:
        """A `Change` that gives pending messages another priority."""

        def prioritize(ref: Reference) -> Iterator[object]:
            self.count(ref.state == PENDING and publish.change_priority(ref, priority))
            yield from ()

        return prioritize

    def sender(self, mover: Mover, target: Target) -> Change:
        """A `Change` that moves or copies to a target."""

        def send(ref: Reference) -> Iterator[object]:
            if target.address.deleted or (target.queue is not None and target.queue.deleted):
                raise Refused(f"{target.describe()} was deleted".capitalize())
            yield from self._send(lambda: mover.send(ref, target), ref)

        return send

    def retrier(self, call: Call, named: bool) -> Change:
        """A `Change` that sends a message back to where it came from; one without an origin has failed if ``named``.

        A message in the queue of its origin is left there: it came back with the headers of its origin.
        """
        mover = Mover(
            self.queue, remove=True, keep_origin=flag("keepOrigin", call.body.get("keepOrigin", False))
        )
        broker, check = services_of(self.queue), permission_check(call)

        def retry(ref: Reference) -> Iterator[object]:
            origin = origin_of(ref.message)
            if origin is None or origin.queue == self.queue.name:
                if named:
                    self.task.fail(f"Message {ref.message.number} has no origin: it is no dead letter")
                return
            try:
                target = publish.retry_target(broker, origin, check, call.user)
            except Refused as refused:
                self.task.fail(str(refused))
                return
            yield from self._send(lambda: mover.send(ref, target, origin), ref)

        return retry

    def _send(self, send: Callable[[], Rejection | bool], ref: Reference) -> Iterator[object]:
        waited = 0.0
        while True:
            try:
                sent = send()
            except Refused as refused:  # of this message only
                self.task.fail(str(refused))
                return
            if isinstance(sent, bool):
                self.count(sent)
                return
            if sent.policy is not FullPolicy.BLOCK or waited >= FULL_TIMEOUT:
                raise Refused(
                    f"{sent.describe()}; {self.task.done} messages are done, the others stay in queue "
                    f"{self.queue.name}"
                )
            yield self._pause()
            waited += FULL_INTERVAL


def _start(call: Call, operation: str, change: Callable[[QueueTask, Selection], Change]) -> Answer | Steps:
    queue = queue_of(call)
    wait = flag("wait", call.body.get("wait", True))
    selection = Selection.of(queue, call.body)
    tasks = call.context.tasks
    task = tasks.new(operation, queue.name, call.user)
    work = QueueTask(call.context, queue, task)
    tasks.start(task, work.run(selection, change(work, selection)))
    return _answer_when_ended(task) if wait else _accepted(task)


def _accepted(task: ManagementTask) -> Answer:
    return json_answer(view(task, FIELDS), 202, {"Location": f"/api/v1/tasks/{task.number}"})


def _answer_when_ended(task: ManagementTask) -> Steps:
    yield task.when_ended()
    if task.state is TaskState.FAILED:
        members = {name: FIELDS[name].read(task) for name in ("taskID", "done", "skipped", "failed")}
        raise Problem(409, task.error or "The task failed", None, **members)
    return json_answer(view(task, FIELDS))


def _target(call: Call) -> Target:
    body, queue = call.body, queue_of(call)
    routing_type = choice(RoutingType)("routingType", body["routingType"]) if "routingType" in body else None
    return publish.move_target(
        queue,
        text_or_none("address", body.get("address")),
        text_or_none("queue", body.get("queue")),
        RoutingType(routing_type) if routing_type is not None else None,
        permission_check(call),
        call.user,
    )


def move_all(call: Call) -> Answer | Steps:
    target, mover = _target(call), Mover(queue_of(call), remove=True)
    return _start(call, "move", lambda work, _: work.sender(mover, target))


def copy_all(call: Call) -> Answer | Steps:
    target, mover = _target(call), Mover(queue_of(call), remove=False)
    return _start(call, "copy", lambda work, _: work.sender(mover, target))


def retry_all(call: Call) -> Answer | Steps:
    return _start(call, "retry", lambda work, selection: work.retrier(call, selection.numbers is not None))


def remove_all(call: Call) -> Answer | Steps:
    return _start(call, "remove", lambda work, _: work.remove)


def expire_all(call: Call) -> Answer | Steps:
    return _start(call, "expire", lambda work, _: work.expire)


def dead_letter_all(call: Call) -> Answer | Steps:
    address = queue_of(call).address
    target = address.settings.dead_letter_address
    if target is None:
        raise Refused(f"Address {address.name} has no dead-letter-address: set one, or move the messages")
    if target == address.name:
        raise Refused(
            f"Address {address.name} is its own dead-letter-address: the messages are there already"
        )
    return _start(call, "dead-letter", lambda work, _: work.dead_letter)


def prioritize_all(call: Call) -> Answer | Steps:
    priority = number(0)("priority", call.body.get("priority", -1))
    if not 0 <= priority <= 9:
        raise invalid("priority", "must be a whole number from 0 to 9")
    return _start(call, "priority", lambda work, _: work.prioritizer(priority))


def purge(call: Call) -> Answer | Steps:
    queue, tasks = queue_of(call), call.context.tasks
    wait = flag("wait", call.body.get("wait", True))
    text_filter = selector(call.body, "filter")
    purged = queue_browser.purge(queue, text_filter)
    task = tasks.new("purge", queue.name, call.user)
    if text_filter is None:
        task.total = queue.message_count
    tasks.start(task, _purge(queue, task, purged))
    return _removed_when_ended(task) if wait else _accepted(task)


def _removed_when_ended(task: ManagementTask) -> Steps:
    yield task.when_ended()
    if task.state is TaskState.FAILED:
        raise Refused(task.error or "The purge failed")
    return json_answer({"removed": task.done})


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


def list_tasks(call: Call) -> Steps:
    return paged(call.query, list(call.context.tasks), FIELDS, "queue")


def show_task(call: Call) -> Answer:
    return json_answer(view(call.context.tasks.find(call.names["id"]), FIELDS))


def cancel_task(call: Call) -> Answer:
    task = call.context.tasks.find(call.names["id"])
    if task.state is not TaskState.RUNNING:
        raise Refused(f"Task {task.number} has ended: it is {task.state.value}")
    task.cancelled = True
    return NO_CONTENT


FIELDS: Fields[ManagementTask] = {
    "taskID": Field(lambda t: str(t.number), string("Id of the task.")),
    "operation": Field(
        lambda t: t.operation,
        keyword(
            ("move", "copy", "retry", "remove", "expire", "dead-letter", "priority", "purge"),
            "What the task does.",
        ),
    ),
    "queue": Field(lambda t: t.queue, string("Queue of the messages.")),
    "user": Field(lambda t: t.user, string("User who started it; null without security.", null=True)),
    "state": Field(lambda t: t.state, keyword(TaskState, "running, completed, failed or cancelled.")),
    "started": Field(lambda t: t.started, timestamp("Time of the start.")),
    "ended": Field(lambda t: t.ended, timestamp("Time of the end; null while it runs.", null=True)),
    "done": Field(lambda t: t.done, integer("Messages changed: moved, copied, retried, removed and so on.")),
    "skipped": Field(
        lambda t: t.skipped,
        integer(
            "Messages in delivery, messages that had left the queue, and scheduled ones that keep their priority."
        ),
    ),
    "failed": Field(
        lambda t: t.failed, integer("Messages that could not go where they should; they stay in the queue.")
    ),
    "total": Field(
        lambda t: t.total,
        integer("Messages selected at the start; null if a filter selects them.", null=True),
    ),
    "error": Field(
        lambda t: t.error,
        string("Why the task failed, or why the first message failed; null without an error.", null=True),
    ),
}

TASK = Component("Task", structure(shown(FIELDS)))

SELECTION = {
    "messages": array(string("A messageID."), f"Message ids, at most {MAX_IDS}.", maxItems=MAX_IDS),
    "filter": string("Selector.", null=True),
    "limit": integer("Maximum number of messages to change. -1: no limit.", -1),
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
DONE = {
    200: Response("The task, which has ended.", TASK),
    202: Response("The task, which runs; with wait: false.", TASK, headers=("Location",)),
}

TASK_ID = Parameter("id", "The taskID.", {"type": "string"}, "path", component="taskID", required=True)

PURGED = "Number of removed messages; each counts as killed."

QUEUE_PATH, TASKS_PATH = "/api/v1/queues/{name}", "/api/v1/tasks"
ROUTES = (
    Route(
        "POST",
        f"{QUEUE_PATH}/move",
        move_all,
        move_messages,
        "moveMessages",
        "Move messages to an address or to a queue.",
        DONE,
        f"{SELECTED} A full target loses no message: those that are not moved stay.",
        parameters=(NAME,),
        body=Body(TARGET),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/copy",
        copy_all,
        copy_messages,
        "copyMessages",
        "Copy messages to an address or to a queue.",
        DONE,
        SELECTED,
        parameters=(NAME,),
        body=Body(TARGET),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/retry",
        retry_all,
        retry_messages,
        "retryMessages",
        "Send dead letters and expired messages back to where they came from.",
        DONE,
        f"{SELECTED} A message goes to its original queue if that still exists, else to its original address, without "
        "the headers of its origin unless keepOrigin is true, as a message that was never delivered.",
        parameters=(NAME,),
        body=Body(
            {
                **SELECTION,
                "keepOrigin": boolean("Whether messages keep the _AMQ_ORIG_… headers. Default: false."),
            },
            optional=True,
        ),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/remove",
        remove_all,
        edit_queue,
        "removeMessages",
        "Remove messages; each counts as acknowledged.",
        DONE,
        SELECTED,
        parameters=(NAME,),
        body=Body(SELECTION, optional=True),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/expire",
        expire_all,
        edit_queue,
        "expireMessages",
        "Expire messages now: each goes to the expiry-address of its address, if there is one.",
        DONE,
        SELECTED,
        parameters=(NAME,),
        body=Body(SELECTION, optional=True),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/dead-letter",
        dead_letter_all,
        edit_queue,
        "sendMessagesToDeadLetterAddress",
        "Send messages to the dead-letter-address of their address now; each counts as killed.",
        DONE,
        SELECTED,
        parameters=(NAME,),
        body=Body(SELECTION, optional=True),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/priority",
        prioritize_all,
        edit_queue,
        "changeMessagesPriority",
        "Change the priority of pending messages.",
        DONE,
        f"{SELECTED} A message goes to the end of its new priority, with a new id, as one that was never delivered. "
        "Scheduled messages are skipped.",
        parameters=(NAME,),
        body=Body({"priority": integer("The new priority, 0 to 9.", maximum=9), **SELECTION}, ("priority",)),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/purge",
        purge,
        edit_queue,
        "purgeQueue",
        "Remove all pending and scheduled messages, or those that match a selector.",
        {
            200: Response("The number of removed messages.", structure({"removed": integer(PURGED)})),
            202: DONE[202],
        },
        parameters=(NAME,),
        body=Body({name: SELECTION[name] for name in ("filter", "wait")}, optional=True),
        errors=(409,),
    ),
    Route(
        "GET",
        TASKS_PATH,
        list_tasks,
        view_broker,
        "listTasks",
        "List the tasks that run, and the last 100 that have ended.",
        {200: Response("One page of tasks.", page_of(TASK))},
        parameters=LISTING,
        filters=FIELDS,
    ),
    Route(
        "GET",
        f"{TASKS_PATH}/{{id}}",
        show_task,
        view_task,
        "task",
        "Show one task.",
        {200: Response("The task.", TASK)},
        parameters=(TASK_ID,),
        errors=(404,),
    ),
    Route(
        "DELETE",
        f"{TASKS_PATH}/{{id}}",
        cancel_task,
        edit_task,
        "cancelTask",
        "Cancel a task; what it has done stays done.",
        {204: Response("The task ends after its present slice.")},
        parameters=(TASK_ID,),
        errors=(404, 409),
    ),
)
