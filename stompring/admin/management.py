"""Management by messages, in the language of Artemis.

The attributes and operations of management by messages, with Artemis's names: each calls a route of the HTTP API.

An attribute is every field of the HTTP API (``MessageCount`` is ``messageCount``) and what `ALIASES` adds. An operation
``getName`` or ``isName`` without parameters is the attribute ``Name``.

Management by messages: requests to the management-address, carried out by the routes of the HTTP API.

`ManagementRequests` queues the requests of each connection, runs them in slices and sends the replies in the format of
Artemis: the result as a JSON array with one element, nothing for an operation without a result, and
``_AMQ_OperationSucceeded``. `management_operations` has the attributes and operations.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from types import GeneratorType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from twisted.internet.interfaces import IDelayedCall

from stompring.broker import queue_browser
from stompring.broker.address import Address, as_address
from stompring.broker.message import SUCCEEDED
from stompring.broker.publish import send_reply
from stompring.broker.queue import Queue
from stompring.broker.queue_browser import PageRead
from stompring.broker.reference import PENDING
from stompring.errors import LimitReached, NotFound, Refused
from stompring.session.connect import Credentials, Login
from stompring.session.destination import ALLOW_ALL, PermissionRejected
from stompring.session.outbox import printable
from stompring.session.send import ATTRIBUTE, OPERATION, RESOURCE, ManagementRequest
from stompring.settings.document import hidden, with_suggestion
from stompring.settings.match import is_internal
from stompring.settings.model import AddressSettings, PermissionType

from . import addresses, broker, queues
from .addresses import camel
from .api import SYNC_TIME, Answer, Call, Query, Routes, check_permissions, encode, not_synced_text
from .context import ITEMS_PER_STEP, TIME_SLICE, AdminContext, awaited, page_read
from .request_log import HIDDEN, MAX_BODY, MAX_REASON, MAX_RESULT

#: The result of an operation without one: the reply has no body.
NOTHING = object()

#: Steps of an operation: at each ``yield`` the reactor does other work, a Deferred is awaited. The result is JSON.
Steps = Generator[Any, None, Any]

#: Kinds of resources; their names are ``broker``, ``queue.NAME`` and so on.
KINDS = ("broker", "address", "queue", "acceptor", "divert", "bridge")


class Resource(NamedTuple):
    """What a request is about."""

    kind: str
    name: str

    def target(self, context: AdminContext, routes: Routes, request: ManagementRequest) -> Target:
        """The resource with all that operations need. Raises `NotFound`."""
        target = Target(context, routes, request, self.kind, self.name)
        target.check()
        return target


def find_resource(text: str) -> Resource:
    """Read ``_AMQ_ResourceName``. Raises `Refused`."""
    if text == "broker":
        return Resource("broker", "")
    kind, dot, name = text.partition(".")
    if kind not in KINDS or not name or kind == "broker":
        raise Refused(
            f"_AMQ_ResourceName must be broker, or one of address, queue, acceptor, divert or bridge with the name "
            f"after a dot, as queue.orders, not {text[:100]!r}"
        )
    return Resource(kind, name)


class Target:
    """A resource while an operation is carried out on it."""

    def __init__(
        self, context: AdminContext, routes: Routes, request: ManagementRequest, kind: str, name: str
    ) -> None:
        self.context = context
        self.request = request
        self.kind = kind
        self.name = name
        self._routes = routes

    def check(self) -> None:
        """Raise `NotFound` for a resource that does not exist."""
        if self.kind == "queue":
            _ = self.queue
        elif self.kind == "address":
            _ = self.address
        elif self.kind == "acceptor" and self.name not in self.context.acceptors:
            raise NotFound(f"Acceptor {self.name} does not exist")

    @property
    def queue(self) -> Queue:
        """The queue. Raises `NotFound`."""
        return self.context.broker.directory.queue(self.name)

    @property
    def address(self) -> Address:
        """The address. Raises `NotFound`."""
        return self.context.broker.directory.address(self.name)

    def has(self, operation: str) -> bool:
        """Whether the HTTP API has a route of that operationId."""
        return operation in self._routes.operations

    def call(
        self,
        operation: str,
        name: str | None = None,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        login: Login | None = None,
        id: str | None = None,
    ) -> Steps:
        """The JSON answer of a route of the HTTP API. Raises `Refused`.

        Whoever sends requests has `manage`, which includes all; with ``login`` that user's permissions apply.
        """
        route = self._routes.operations[operation]
        names = {} if name is None else {"name": name}
        if id is not None:
            names["id"] = id
        given = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in (query or {}).items()
        }
        call = Call(
            self.context,
            names,
            Query(urlencode(given)),
            dict(body or {}),
            user=self.request.login.user if login is None else login.user,
            authorizer=ALLOW_ALL if login is None else login.authorizer,
            peer=self.request.peer,
        )
        if login is not None:
            check_permissions(login.authorizer, route.permissions, call)
        route.check(call)
        outcome = route.answer(call)
        answer = (yield from outcome) if isinstance(outcome, GeneratorType) else outcome
        assert isinstance(answer, Answer) and isinstance(answer.body, bytes)
        return json.loads(answer.body) if answer.body else None

    def on_resource(
        self,
        operation: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        id: str | None = None,
    ) -> Steps:
        """As `call`, of the queue or address itself."""
        return self.call(operation, self.name, body, query=query, id=id)

    def all_of(self, operation: str, queue: str | None = None, /, **query: object) -> Steps:
        """All items of a list."""
        items: list[Any] = []
        while True:
            page = yield from self.call(
                operation, queue, query={**query, "page": len(items) // 1000 + 1, "size": 1000}
            )
            items += page["data"]
            if len(page["data"]) < 1000:
                return items

    def attribute(self, name: str) -> Steps:
        """The value of an attribute."""
        if self.kind in ("divert", "bridge"):
            fields = yield from self.call(self.kind, self.name)
            field = "name" if name == "UniqueName" else uncapitalized(name)
            if field not in fields:
                raise no_attribute(self.kind, name, map(capitalized, fields))
            return fields[field]
        read = ALIASES[self.kind].get(name)
        if read is None:
            fields = FIELDS[self.kind]
            return fields[uncapitalized(name)].read(self._thing())
        value = read(self)
        return (yield from value) if isinstance(value, GeneratorType) else value

    def _thing(self) -> Queue | Address | AdminContext:
        if self.kind == "queue":
            return self.queue
        return self.address if self.kind == "address" else self.context


# ---- attributes


def capitalized(name: str) -> str:
    """``messageCount`` as an attribute: ``MessageCount``."""
    return name[:1].upper() + name[1:]


def uncapitalized(name: str) -> str:
    """The reverse."""
    return name[:1].lower() + name[1:]


def _names(operation: str) -> Callable[[Target], Any]:
    """The names of all that a list has; none where there is no such list."""

    def read(target: Target) -> Steps:
        if not target.has(operation):
            return []
        items = yield from target.all_of(operation)
        return [item["name"] for item in items]

    return read


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _total(field: str) -> Callable[[Target], int]:
    return lambda t: sum(
        queues.FIELDS[field].read(queue) for queue in t.context.broker.directory.queues.values()
    )


def _first_message(target: Target) -> Steps:
    page = yield from target.on_resource("listMessages", query={"size": 1, "bodyLimit": 0})
    return page["data"][0] if page["data"] else None


def _first_message_json(target: Target) -> Steps:
    first = yield from _first_message(target)
    return _as_json([{} if first is None else message_map(first)])


def _first_message_timestamp(target: Target) -> Steps:
    first = yield from _first_message(target)
    return None if first is None else first["timestamp"]


def _acceptor_parameters(target: Target, name: str) -> dict[str, str]:
    host, port = next(
        ((host, port) for acceptor, host, port in target.context.listening if acceptor == name), ("", 0)
    )
    return {"host": host, "port": str(port)}


def _acceptors(target: Target) -> str:
    return _as_json(
        [{"name": name, "params": _acceptor_parameters(target, name)} for name in target.context.acceptors]
    )


def _uptime(target: Target) -> str:
    seconds = broker.FIELDS["uptime"].read(target.context) / 1000
    return f"{seconds:.3f} seconds"


#: The fields of the HTTP API, each of which is an attribute.
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "broker": broker.FIELDS,
    "address": addresses.FIELDS,
    "queue": queues.FIELDS,
    "acceptor": {},
}

#: Attributes with another name in the HTTP API, or in another form.
ALIASES: Mapping[str, Mapping[str, Callable[[Target], Any]]] = {
    "broker": {
        "Started": lambda t: True,
        "Active": lambda t: not t.context.stopping,
        "Backup": lambda t: False,
        "Clustered": lambda t: False,
        "ReplicaSync": lambda t: False,
        "Uptime": _uptime,
        "UptimeMillis": lambda t: broker.FIELDS["uptime"].read(t.context),
        "CurrentTimeMillis": lambda t: t.context.broker.clock.now,
        "QueueNames": lambda t: [name for name in t.context.broker.directory.queues if not is_internal(name)],
        "AddressNames": lambda t: [
            name for name in t.context.broker.directory.addresses if not is_internal(name)
        ],
        "TotalConsumerCount": _total("consumerCount"),
        "TotalMessageCount": _total("messageCount"),
        "TotalMessagesAdded": _total("messagesAdded"),
        "TotalMessagesAcknowledged": _total("messagesAcknowledged"),
        "DiskStoreUsage": lambda t: broker.FIELDS["diskUsage"].read(t.context),
        "MaxDiskUsage": lambda t: t.context.configuration.max_disk_usage,
        "ManagementAddress": lambda t: t.context.configuration.management_address,
        "ManagementNotificationAddress": lambda t: t.context.configuration.management_notification_address,
        "AcceptorsAsJSON": _acceptors,
        "Connectors": lambda t: [],
        "ConnectorsAsJSON": lambda t: "[]",
        "DivertNames": _names("listDiverts"),
        "BridgeNames": _names("listBridges"),
        "Status": lambda t: _as_json(
            {
                "server": {
                    "state": "STARTED",
                    "version": broker.FIELDS["version"].read(t.context),
                    "identity": t.context.configuration.name,
                    "uptime": _uptime(t),
                }
            }
        ),
    },
    "address": {
        "Address": lambda t: t.address.name,
        "QueueNames": lambda t: list(t.address.queues),
        "AllQueueNames": lambda t: list(t.address.queues),
        "BindingNames": lambda t: list(t.address.queues),
        "RemoteQueueNames": lambda t: [],
        "RoutingTypesAsJSON": lambda t: _as_json(addresses.FIELDS["routingTypes"].read(t.address)),
        "NumberOfMessages": lambda t: t.address.message_count,
        "RolesAsJSON": lambda t: _roles_as_json(t, t.name),
        "AddressLimitPercent": lambda t: addresses.FIELDS["limitPercent"].read(t.address),
        "NumberOfBytesPerPage": lambda t: t.address.settings.page_size_bytes,
        "Internal": lambda t: False,
    },
    "queue": {
        "ID": lambda t: t.queue.number,
        "DeadLetterAddress": lambda t: t.queue.address.settings.dead_letter_address,
        "ExpiryAddress": lambda t: t.queue.address.settings.expiry_address,
        "ConfigurationManaged": lambda t: t.queue.attributes.configured,
        "InternalQueue": lambda t: False,
        "FirstMessageAge": lambda t: queues.FIELDS["oldestAge"].read(t.queue),
        "FirstMessageTimestamp": _first_message_timestamp,
        "FirstMessageAsJSON": _first_message_json,
    },
    "acceptor": {
        "Name": lambda t: t.name,
        "Started": lambda t: any(name == t.name for name, _, _ in t.context.listening),
        "Parameters": lambda t: _acceptor_parameters(t, t.name),
    },
}


def attribute_names(kind: str) -> list[str]:
    """The attributes of a kind of resource, sorted."""
    return sorted({*map(capitalized, FIELDS.get(kind, {})), *ALIASES.get(kind, {})})


def find_attribute(kind: str, name: str) -> str:
    """The attribute of that name, as Artemis finds it: the first letter may be small. Raises `Refused`."""
    found = capitalized(name)
    if (
        kind not in ("divert", "bridge")
        and found not in ALIASES[kind]
        and uncapitalized(found) not in FIELDS[kind]
    ):
        raise no_attribute(kind, name, attribute_names(kind))
    return found


def _article(kind: str) -> str:
    return f"An {kind}" if kind in ("address", "acceptor") else f"A {kind}"


def no_attribute(kind: str, name: str, known: Any) -> Refused:
    """The rejection of an unknown attribute."""
    return Refused(with_suggestion(f"{_article(kind)} has no attribute {name[:100]!r}", name, list(known)))


# ---- operations


@dataclass(frozen=True, slots=True)
class Operation:
    """One signature of an operation.

    ``parameters`` has one letter each: n text, s text or null, i number, b boolean, o object or null. ``secret``
    are the positions of parameters that no log shows.
    """

    name: str
    parameters: str
    function: Callable[..., Any]
    changes: bool
    secret: frozenset[int] = frozenset()

    def accepts(self, values: list[Any]) -> bool:
        """Whether it takes these values."""
        return len(values) == len(self.parameters) and all(
            _ACCEPTED[letter](value) for letter, value in zip(self.parameters, values, strict=True)
        )

    def run(self, target: Target, values: list[Any]) -> Steps:
        """Carry it out."""
        outcome = self.function(target, *values)
        return (yield from outcome) if isinstance(outcome, GeneratorType) else outcome


_ACCEPTED: Mapping[str, Callable[[Any], bool]] = {
    "n": lambda value: isinstance(value, str),
    "s": lambda value: value is None or isinstance(value, str),
    "i": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "b": lambda value: isinstance(value, bool),
    "o": lambda value: value is None or isinstance(value, dict),
}

_SHOWN = {"n": "text", "s": "text or null", "i": "number", "b": "boolean", "o": "object"}

#: The operations of each kind of resource, by name.
OPERATIONS: dict[str, dict[str, list[Operation]]] = {kind: {} for kind in KINDS}

Function = Callable[..., Any]


def operation(
    kinds: str, name: str, *signatures: str, changes: bool = False, secret: tuple[int, ...] = ()
) -> Callable[[Function], Function]:
    """Register a function as an operation with these signatures; further calls add signatures."""

    def register(function: Function) -> Function:
        for kind in kinds.split():
            for signature in signatures or ("",):
                OPERATIONS[kind].setdefault(name, []).append(
                    Operation(name, signature, function, changes, frozenset(secret))
                )
        return function

    return register


def find_operation(kind: str, name: str, values: list[Any]) -> Operation:
    """The operation that takes these values. Raises `Refused` with the signatures that there are."""
    signatures = OPERATIONS[kind].get(name, [])
    for each in signatures:
        if each.accepts(values):
            return each
    getter = next((name[len(prefix) :] for prefix in ("get", "is") if name.startswith(prefix)), "")
    if (
        getter[:1].isupper()
        and not values
        and (kind in ("divert", "bridge") or getter in attribute_names(kind))
    ):
        return Operation(name, "", lambda target: target.attribute(getter), False)
    if not signatures:
        text = f"{_article(kind)} has no operation {name[:100]!r}"
        raise Refused(with_suggestion(text, name, list(OPERATIONS[kind])))
    known = "; ".join(
        f"{name}({', '.join(_SHOWN[letter] for letter in each.parameters)})" for each in signatures
    )
    raise Refused(f"No operation {name} takes these {len(values)} parameters; there is: {known}")


def _whether(steps: Steps) -> Steps:
    """Whether it was found: False for 404."""
    try:
        yield from steps
    except Refused as refused:
        if refused.status != 404:
            raise
        return False
    return True


def _void(steps: Steps) -> Steps:
    yield from steps
    return NOTHING


def _selected(text_filter: str | None, **more: object) -> dict[str, object]:
    """The members of a body that select messages."""
    return {**({"filter": text_filter} if text_filter else {}), **more}


# ---- operations on messages


def message_map(message: dict[str, Any]) -> dict[str, Any]:
    """A message as Artemis lists it: its headers, and what it knows besides."""
    number = int(message["messageID"].rpartition("-")[2])
    return {
        **{name: value for name, value in message["headers"].items() if name not in STANDARD},
        "durable": message["durable"],
        "address": message["address"],
        "messageID": number,
        "expiration": message["expires"],
        "type": BYTES_TYPE if message["encoding"] == "base64" else TEXT_TYPE,
        "priority": message["priority"],
        "timestamp": message["timestamp"],
    }


#: Headers that `message_map` shows as members of its own.
STANDARD = frozenset(
    "ack content-length destination expires message-id persistent priority redelivered subscription timestamp".split()
)

#: Lists and counts with a filter leave scheduled and delivering messages out, as in Artemis.
ONLY_PENDING = {"state": "pending"}

#: Values of a header by which `countMessages` may group.
MAX_GROUPS = 10_000

#: Types of messages in Artemis.
DEFAULT_TYPE, TEXT_TYPE, BYTES_TYPE = 0, 3, 4


def _listed(target: Target, route: str, text_filter: str | None) -> Steps:
    query: dict[str, object] = {"bodyLimit": 0}
    if route == "listMessages":
        query |= ONLY_PENDING
    if text_filter:
        query["filter"] = text_filter
    page = yield from target.on_resource(route, query=query)
    return [message_map(message) for message in page["data"]]


@operation("queue", "listMessages", "s")
def list_messages(target: Target, text_filter: str | None) -> Steps:
    return _listed(target, "listMessages", text_filter)


@operation("queue", "listMessagesAsJSON", "s")
def list_messages_as_json(target: Target, text_filter: str | None) -> Steps:
    return _as_json((yield from _listed(target, "listMessages", text_filter)))


@operation("queue", "listScheduledMessages")
def list_scheduled(target: Target) -> Steps:
    return _listed(target, "listScheduled", None)


@operation("queue", "listScheduledMessagesAsJSON")
def list_scheduled_as_json(target: Target) -> Steps:
    return _as_json((yield from _listed(target, "listScheduled", None)))


@operation("queue", "browse", "", "s", "ii", "iis")
def browse(target: Target, *values: Any) -> Steps:
    """Messages with their bodies, as ``text``."""
    numbers = [value for value in values if isinstance(value, int)]
    text_filter = next((value for value in values if isinstance(value, str)), None)
    query: dict[str, object] = {**ONLY_PENDING, **dict(zip(("page", "size"), numbers, strict=False))}
    if text_filter:
        query["filter"] = text_filter
    page = yield from target.on_resource("listMessages", query=query)
    return [{**message_map(message), "text": message["body"]} for message in page["data"]]


@operation("queue", "countMessages", "", "s")
def count_messages(target: Target, text_filter: str | None = None) -> Any:
    if not text_filter:
        return target.queue.message_count
    return _count(target, text_filter, "pending")


@operation("queue", "countMessages", "ss")
def count_grouped_messages(target: Target, text_filter: str | None, header: str | None) -> Steps:
    """How many pending messages have each value of a header, ``null`` for those without it. Raises `Refused`."""
    queue = target.queue
    if header is None and not text_filter:
        return _as_json({"null": queue.message_count})
    matches, name = queue_browser.matching(text_filter), (header or "").encode()
    groups: dict[str, int] = {}
    for index, ref in enumerate(queue_browser.pending(queue)):
        if isinstance(ref, PageRead):
            yield page_read(ref)
            continue
        if ref.state == PENDING and (matches is None or matches(ref.message)):
            found = ref.message.header(name) if name else None
            value = "null" if found is None else found.decode("utf-8", "replace")
            groups[value] = groups.get(value, 0) + 1
            if len(groups) > MAX_GROUPS:
                raise Refused(
                    f"Messages have more than {MAX_GROUPS} values of {header}: count those of a filter"
                )
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    return _as_json(groups)


@operation("queue", "countDeliveringMessages", "", "s")
def count_delivering(target: Target, text_filter: str | None = None) -> Any:
    if text_filter:
        return _count(target, text_filter, "delivering")
    return queues.FIELDS["deliveringCount"].read(target.queue)


def _count(target: Target, text_filter: str, state: str) -> Steps:
    page = yield from target.on_resource(
        "listMessages", query={"filter": text_filter, "state": state, "size": 1, "bodyLimit": 0}
    )
    return page["count"]


@operation("queue", "removeMessage", "i", changes=True)
def remove_message(target: Target, number: int) -> Steps:
    return _whether(target.on_resource("removeMessage", id=str(number)))


def _done(steps: Steps) -> Steps:
    task = yield from steps
    return task["done"]


@operation("queue", "removeMessages", "s", changes=True)
def remove_messages(target: Target, text_filter: str | None) -> Steps:
    return _done(target.on_resource("removeMessages", _selected(text_filter)))


@operation("queue", "removeMessages", "is", "isi", changes=True)
def remove_some_messages(target: Target, flush: int, text_filter: str | None, limit: int = -1) -> Steps:
    """``flush`` is how many messages Artemis removes in one transaction; here each is its own."""
    return _done(target.on_resource("removeMessages", _selected(text_filter, limit=limit or -1)))


@operation("queue", "removeAllMessages", changes=True)
def remove_all_messages(target: Target) -> Steps:
    return (yield from target.on_resource("purgeQueue"))["removed"]


@operation("queue", "expireMessages", "s", changes=True)
def expire_messages(target: Target, text_filter: str | None) -> Steps:
    return _done(target.on_resource("expireMessages", _selected(text_filter)))


@operation("queue", "expireMessage", "i", changes=True)
def expire_message(target: Target, number: int) -> Steps:
    return (yield from _done(target.on_resource("expireMessages", {"messages": [str(number)]}))) > 0


def _to(target: Target, name: str | None) -> dict[str, object]:
    queue = target.context.broker.directory.queue(name or "")
    return {"queue": queue.name, "address": queue.address.name}


@operation("queue", "moveMessages", "sn", "snb", changes=True)
def move_messages(target: Target, text_filter: str | None, queue: str | None, reject: bool = False) -> Steps:
    """To another queue, all that match. A message never gets a duplicate id anew, so ``reject`` changes nothing."""
    return _done(target.on_resource("moveMessages", _selected(text_filter, **_to(target, queue))))


@operation("queue", "moveMessages", "isnb", "isnbi", changes=True)
def move_some_messages(
    target: Target, flush: int, text_filter: str | None, queue: str | None, reject: bool, limit: int = -1
) -> Steps:
    body = _selected(text_filter, limit=limit if limit > 0 else -1, **_to(target, queue))
    return _done(target.on_resource("moveMessages", body))


@operation("queue", "moveMessage", "in", "inb", changes=True)
def move_message(target: Target, number: int, queue: str | None, reject: bool = False) -> Steps:
    return (
        yield from _done(
            target.on_resource("moveMessages", {"messages": [str(number)], **_to(target, queue)})
        )
    ) > 0


@operation("queue", "copyMessage", "in", changes=True)
def copy_message(target: Target, number: int, queue: str | None) -> Steps:
    return (
        yield from _done(
            target.on_resource("copyMessages", {"messages": [str(number)], **_to(target, queue)})
        )
    ) > 0


@operation("queue", "retryMessages", "", "s", changes=True)
def retry_messages(target: Target, text_filter: str | None = None) -> Steps:
    return _done(target.on_resource("retryMessages", _selected(text_filter, keepOrigin=True)))


@operation("queue", "retryMessage", "i", changes=True)
def retry_message(target: Target, number: int) -> Steps:
    body = {"messages": [str(number)], "keepOrigin": True}
    return (yield from _done(target.on_resource("retryMessages", body))) > 0


def _to_dead_letters(target: Target, body: dict[str, object]) -> Steps:
    """How many were sent. Raises `Refused` if some stay, which Artemis would lose."""
    task = yield from target.on_resource("sendMessagesToDeadLetterAddress", body)
    if task["failed"]:
        raise Refused(f"{task['error']}; {task['failed']} messages stay, {task['done']} were sent")
    return task["done"]


@operation("queue", "sendMessagesToDeadLetterAddress", "s", changes=True)
def send_to_dead_letters(target: Target, text_filter: str | None) -> Steps:
    return _to_dead_letters(target, _selected(text_filter))


@operation("queue", "sendMessageToDeadLetterAddress", "i", changes=True)
def send_one_to_dead_letters(target: Target, number: int) -> Steps:
    return (yield from _to_dead_letters(target, {"messages": [str(number)]})) > 0


@operation("queue", "changeMessagesPriority", "si", changes=True)
def change_priorities(target: Target, text_filter: str | None, priority: int) -> Steps:
    return _done(target.on_resource("changeMessagesPriority", _selected(text_filter, priority=priority)))


@operation("queue", "changeMessagePriority", "ii", changes=True)
def change_priority(target: Target, number: int, priority: int) -> Steps:
    body = {"messages": [str(number)], "priority": priority}
    return (yield from _done(target.on_resource("changeMessagesPriority", body))) > 0


@operation("queue", "deliverScheduledMessage", "i", changes=True)
def deliver_scheduled(target: Target, number: int) -> Steps:
    return _void(target.on_resource("deliverScheduled", id=str(number)))


@operation("queue address", "sendMessage", "oisbss", "oisbssb", changes=True, secret=(2, 5))
def send_message(
    target: Target,
    headers: dict[str, Any] | None,
    kind: int,
    body: str | None,
    durable: bool,
    user: str | None,
    password: str | None,
    create_id: bool = True,
) -> Steps:
    """As the user that is given; without one as the user of the request. A body that is no text is base64."""
    security = target.context.security
    login = None
    if security is not None and user is not None:
        host = target.request.peer.rpartition(":")[0]
        login = yield from awaited(security.logins.log_in(Credentials(user, password, host, None)))
    destination = {"queue": target.name} if target.kind == "queue" else {"address": target.name}
    sent = yield from target.call(
        "sendMessages",
        None,
        {
            **destination,
            "headers": {**(headers or {}), "persistent": durable},
            "body": body or "",
            "encoding": "text" if kind == TEXT_TYPE else "base64",
        },
        login=login,
    )
    if not sent["sent"]:
        raise Refused(sent["reason"] or "The message was not sent")
    return NOTHING


# ---- operations on queues and addresses


@operation("queue", "pause", "", "b", changes=True)
def pause_queue(target: Target, persist: bool = True) -> Steps:
    return _void(target.on_resource("changeQueue", {"paused": True}))


@operation("queue", "resume", changes=True)
def resume_queue(target: Target) -> Steps:
    return _void(target.on_resource("changeQueue", {"paused": False}))


@operation("queue", "enable", changes=True)
def enable_queue(target: Target) -> Steps:
    return _void(target.on_resource("changeQueue", {"enabled": True}))


@operation("queue", "disable", changes=True)
def disable_queue(target: Target) -> Steps:
    return _void(target.on_resource("changeQueue", {"enabled": False}))


@operation("queue", "resetAllGroups", changes=True)
def reset_all_groups(target: Target) -> Steps:
    return _void(target.on_resource("resetGroups", {}))


@operation("queue", "resetGroup", "s", changes=True)
def reset_group(target: Target, group: str) -> Steps:
    return _void(target.on_resource("resetGroups", {"group": group}))


@operation("address", "pause", "", "b", changes=True)
def pause_address(target: Target, persist: bool = True) -> Steps:
    return _void(target.on_resource("changeAddress", {"paused": True}))


@operation("address", "resume", changes=True)
def resume_address(target: Target) -> Steps:
    return _void(target.on_resource("changeAddress", {"paused": False}))


@operation("address", "purge", changes=True)
def purge_address(target: Target) -> Steps:
    removed = 0
    for name in list(target.address.queues):
        removed += (yield from target.call("purgeQueue", name))["removed"]
    return removed


@operation("address", "clearDuplicateIdCache", changes=True)
def clear_duplicates(target: Target) -> Steps:
    return (yield from target.on_resource("forgetDuplicates"))["forgotten"] > 0


#: Members of a queue's JSON in Artemis that a queue here has by itself, with the only value that is accepted.
IMPLIED = {
    "auto-create-address": True,
    "auto-created": False,
    "configuration-managed": False,
    "fqqn": False,
    "internal": False,
    "temporary": False,
    "transient": False,
    "auto-delete": False,
    "auto-delete-delay": 0,
    "auto-delete-message-count": 0,
}


def _attributes(text: str | None) -> dict[str, Any]:
    """The body of a request of the HTTP API for a queue's JSON as Artemis writes it. Raises `Refused`."""
    try:
        given = json.loads(text or "")
    except (ValueError, RecursionError) as fault:
        raise Refused(f"The queue must be a JSON object: {fault}") from None
    if not isinstance(given, dict):
        raise Refused("The queue must be a JSON object")
    body: dict[str, Any] = {}
    for name, value in given.items():
        if name == "id" or value is None:
            continue
        if name in IMPLIED:
            if value != IMPLIED[name]:
                raise Refused(f"{name} {_as_json(value)} is not supported for queues that management creates")
            continue
        body["filter" if name == "filter-string" else camel(name.replace("-", "_"))] = value
    if "name" not in body:
        raise Refused(with_suggestion("The queue has no name", "name", list(given)))
    return body


def _attributes_as_json(detail: Mapping[str, Any]) -> str:
    """A queue as Artemis writes it."""
    shown = {"name": detail["name"], "address": detail["address"], "routing-type": detail["routingType"]}
    if detail["filter"] is not None:
        shown["filter-string"] = detail["filter"]
    for row in queues.OPTIONS:
        value = detail[row.json_name]
        if row.json_name not in ("filter", "ringPolicy", "ringCountsPaged") and value is not None:
            shown[row.name.replace("_", "-")] = value
    return _as_json({**shown, **IMPLIED, "configuration-managed": detail["configured"]})


@operation("broker", "createQueue", "n", "nb", changes=True)
def create_queue(target: Target, text: str | None, ignore_if_exists: bool = False) -> Steps:
    body = _attributes(text)
    if ignore_if_exists and body["name"] in target.context.broker.directory.queues:
        return text
    return _attributes_as_json((yield from target.call("createQueue", None, body)))


def _created(target: Target, **body: object) -> Steps:
    return _void(
        target.call("createQueue", None, {name: value for name, value in body.items() if value is not None})
    )


@operation("broker", "createQueue", "nn", "nns", changes=True)
def create_queue_of(target: Target, address: str, name: str, kind: str | None = None) -> Steps:
    return _created(target, address=address, name=name, routingType=kind)


@operation("broker", "createQueue", "nnb", "nnbs", changes=True)
def create_durable_queue(
    target: Target, address: str, name: str, durable: bool, kind: str | None = None
) -> Steps:
    return _created(target, address=address, name=name, durable=durable, routingType=kind)


@operation("broker", "createQueue", "nnsb", "nnsbs", changes=True)
def create_filtered_queue(
    target: Target, address: str, name: str, text_filter: str | None, durable: bool, kind: str | None = None
) -> Steps:
    return _created(
        target, address=address, name=name, filter=text_filter or None, durable=durable, routingType=kind
    )


@operation("broker", "createQueue", "nsnsbibb", changes=True)
def create_whole_queue(
    target: Target,
    address: str,
    kind: str | None,
    name: str,
    text_filter: str | None,
    durable: bool,
    max_consumers: int,
    purge: bool,
    create_address: bool,
) -> Steps:
    if not create_address:
        target.context.broker.directory.address(address)
    return _created(
        target,
        address=address,
        name=name,
        routingType=kind,
        filter=text_filter or None,
        durable=durable,
        maxConsumers=max_consumers,
        purgeOnNoConsumers=purge,
    )


@operation("broker", "updateQueue", "n", changes=True)
def update_queue(target: Target, text: str | None) -> Steps:
    body = _attributes(text)
    name = body.pop("name")
    queue = target.context.broker.directory.queue(name)
    if body.pop("address", queue.address.name) != queue.address.name:
        raise Refused(f"The address of queue {name} cannot change while it exists")
    return _attributes_as_json((yield from target.call("changeQueue", name, body)))


@operation("broker", "updateQueue", "nsib", "nsibb", "nsibbs", changes=True)
def update_queue_attributes(
    target: Target,
    name: str,
    kind: str | None,
    max_consumers: int,
    purge: bool,
    exclusive: bool | None = None,
    user: str | None = None,
) -> Steps:
    body = {
        "routingType": kind,
        "maxConsumers": max_consumers,
        "purgeOnNoConsumers": purge,
        "exclusive": exclusive,
        "user": user,
    }
    given = {member: value for member, value in body.items() if value is not None}
    return _attributes_as_json((yield from target.call("changeQueue", name, given)))


@operation("broker", "destroyQueue", "n", "nb", "nbb", changes=True)
def destroy_queue(target: Target, name: str, force: bool = False, delete_address: bool = False) -> Steps:
    address = as_address(target.context.broker.directory.queue(name).address)
    yield from target.call("deleteQueue", name, query={"force": force})
    if delete_address and not address.queues and not address.deleted:
        yield from target.call("deleteAddress", address.name)
    return NOTHING


def _address_text(detail: Mapping[str, Any]) -> str:
    kinds = ", ".join(sorted(detail["routingTypes"]))
    created = str(detail["autoCreated"]).lower()
    return f"Address [name={detail['name']}, routingTypes={{{kinds}}}, autoCreated={created}]"


def _kinds(text: str | None) -> list[str]:
    return [kind.strip() for kind in (text or "").split(",") if kind.strip()]


@operation("broker", "createAddress", "ns", changes=True)
def create_address(target: Target, name: str, kinds: str | None) -> Steps:
    body = {"routingTypes": _kinds(kinds)} if _kinds(kinds) else {}
    return _address_text((yield from target.call("createAddress", None, {"name": name, **body})))


@operation("broker", "updateAddress", "ns", changes=True)
def update_address(target: Target, name: str, kinds: str | None) -> Steps:
    return _address_text((yield from target.call("changeAddress", name, {"routingTypes": _kinds(kinds)})))


@operation("broker", "deleteAddress", "n", "nb", changes=True)
def delete_address(target: Target, name: str, force: bool = False) -> Steps:
    return _void(target.call("deleteAddress", name, query={"force": force}))


@operation("broker", "getAddressInfo", "n")
def address_info(target: Target, name: str) -> Steps:
    return _address_text((yield from target.call("address", name)))


@operation("broker", "getAddressSettingsAsJSON", "n")
def address_settings(target: Target, match: str) -> str:
    settings: AddressSettings = target.context.broker.directory.settings.lookup(match)
    shown = {camel(name): hidden(value) for name, value in asdict(settings).items()}
    shown["addressFullMessagePolicy"] = shown.pop("addressFullPolicy")
    return json.dumps(shown, separators=(",", ":"), default=str)


def _roles_as_json(target: Target, match: str) -> str:
    """The roles of an address with each permission; none without security."""
    security = target.context.security
    entries = () if security is None else security.authority.permissions.decide(
        frozenset(), PermissionType.SEND, match
    ).entries  # fmt: skip
    granted = [entry.roles.get(permission, frozenset()) for entry in entries for permission in PermissionType]
    names = sorted(set().union(*granted))
    return _as_json(
        [
            {
                "name": name,
                **{
                    str(permission): all(name in entry.roles.get(permission, ()) for entry in entries)
                    for permission in PermissionType
                },
            }
            for name in names
        ]
    )


@operation("broker", "getRolesAsJSON", "n")
def roles_as_json(target: Target, match: str) -> str:
    return _roles_as_json(target, match)


# ---- lists of the broker


@operation("broker", "getQueueNames", "s")
def queue_names(target: Target, kind: str | None) -> Steps:
    items = yield from target.all_of("listQueues", **({"routingType": kind} if kind else {}))
    return [item["name"] for item in items]


@operation("broker", "listAddresses", "s")
def list_addresses(target: Target, separator: str | None) -> str:
    names = target.context.broker.directory.addresses
    return (separator or ",").join(sorted(name for name in names if not is_internal(name)))


#: The fields of lists, by Artemis's names, where they differ from those of the HTTP API.
LISTED: Mapping[str, Mapping[str, str]] = {
    "listQueues": {"messagesAcked": "messagesAcknowledged"},
    "listAddresses": {"addressLimitPercent": "limitPercent", "unroutedMessageCount": "unRoutedMessageCount"},
    "listConnections": {"users": "user", "implementation": "protocol"},
    "listConsumers": {"id": "consumerID", "session": "connectionID", "messagesInTransit": "deliveringCount"},
}


@operation("broker", "listQueues", "sii")
def page_of_queues(target: Target, options: str | None, page: int, size: int) -> Steps:
    return _page(target, "listQueues", options, page, size)


@operation("broker", "listAddresses", "sii")
def page_of_addresses(target: Target, options: str | None, page: int, size: int) -> Steps:
    return _page(target, "listAddresses", options, page, size)


@operation("broker", "listConnections", "sii")
def page_of_connections(target: Target, options: str | None, page: int, size: int) -> Steps:
    return _page(target, "listConnections", options, page, size)


@operation("broker", "listConsumers", "sii")
def page_of_consumers(target: Target, options: str | None, page: int, size: int) -> Steps:
    return _page(target, "listConsumers", options, page, size)


def _page(target: Target, route: str, options: str | None, page: int, size: int) -> Steps:
    """One page as ``{"data":[…],"count":n}``: the values are texts, as in Artemis."""
    query = {**_filtered(route, options), "page": page, "size": size}
    answer = yield from target.call(route, query=query)
    data = []
    for item in answer["data"]:
        shown = {name: _text(value) for name, value in item.items()}
        shown.update({name: _text(item[field]) for name, field in LISTED[route].items()})
        data.append(shown)
    return _as_json({"data": data, "count": answer["count"]})


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _as_json(value)


#: The field that ``search`` of each list looks at.
SEARCHED = {
    "listQueues": "name",
    "listAddresses": "name",
    "listConnections": "connectionID",
    "listConsumers": "queue",
}


def _filtered(route: str, options: str | None) -> dict[str, object]:
    """The parameters of the HTTP API for Artemis's filter options. Raises `Refused`."""
    if not options:
        return {}
    try:
        given = json.loads(options)
    except (ValueError, RecursionError) as fault:
        raise Refused(f"The filter must be a JSON object: {fault}") from None
    if not isinstance(given, dict):
        raise Refused("The filter must be a JSON object")
    query: dict[str, object] = {}
    field, kind, value = (str(given.get(name) or "") for name in ("field", "operation", "value"))
    field = LISTED[route].get(field, field)
    if value and field:
        if kind.upper() == "EQUALS":
            query[field] = value
        elif kind.upper() == "CONTAINS" and field == SEARCHED[route]:
            query["search"] = value
        else:
            raise Refused(
                f"Supported filters are EQUALS of any field and CONTAINS of {SEARCHED[route]}, not {kind} of {field}"
            )
    sort = str(given.get("sortField") or given.get("sortColumn") or "")
    if sort:
        descending = str(given.get("sortOrder") or "").lower().startswith("desc")
        query["sort"] = f"{'-' if descending else ''}{LISTED[route].get(sort, sort)}"
    return query


def _connection(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "connectionID": item["connectionID"],
        "clientAddress": item["remoteAddress"],
        "creationTime": item["creationTime"],
        "implementation": item["protocol"],
        "sessionCount": 1,
    }


def _session(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sessionID": item["connectionID"],
        "creationTime": item["creationTime"],
        "consumerCount": item["subscriptionCount"],
        "validatedUser": item["user"],
        "principal": item["user"],
    }


def _consumer(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = {
        "consumerID": item["consumerID"],
        "connectionID": item["connectionID"],
        "sessionID": item["connectionID"],
        "queueName": item["queue"],
        "browseOnly": item["browser"],
        "creationTime": item["creationTime"],
        "deliveringCount": item["deliveringCount"],
        "messagesInTransit": item["deliveringCount"],
        "messagesDelivered": item["messagesDelivered"],
        "messagesAcknowledged": item["messagesAcknowledged"],
        "status": "SLOW" if item["slow"] else "OK",
    }
    if item["filter"] is not None:
        shown["filter"] = item["filter"]
    return shown


@operation("broker", "listConnectionIDs")
def connection_ids(target: Target) -> Steps:
    return [item["connectionID"] for item in (yield from target.all_of("listConnections"))]


@operation("broker", "listConnectionsAsJSON")
def connections_as_json(target: Target) -> Steps:
    return _as_json([_connection(item) for item in (yield from target.all_of("listConnections"))])


@operation("broker", "listRemoteAddresses", "", "s")
def remote_addresses(target: Target, host: str | None = None) -> Steps:
    found = [item["remoteAddress"] for item in (yield from target.all_of("listConnections"))]
    return [peer for peer in found if not host or _host(peer) == host]


def _host(peer: str) -> str:
    return peer.rpartition(":")[0].strip("[]")


@operation("broker", "listSessions", "n")
def sessions(target: Target, connection: str) -> Steps:
    found = yield from target.all_of("listConnections", connectionID=connection)
    return [item["connectionID"] for item in found]


@operation("broker", "listSessionsAsJSON", "n")
def sessions_as_json(target: Target, connection: str) -> Steps:
    found = yield from target.all_of("listConnections", connectionID=connection)
    return _as_json([_session(item) for item in found])


@operation("broker", "listAllSessionsAsJSON")
def all_sessions_as_json(target: Target) -> Steps:
    return _as_json([_session(item) for item in (yield from target.all_of("listConnections"))])


@operation("broker", "listAllConsumersAsJSON")
def all_consumers_as_json(target: Target) -> Steps:
    return _as_json([_consumer(item) for item in (yield from target.all_of("listConsumers"))])


@operation("broker", "listConsumersAsJSON", "n")
def consumers_as_json(target: Target, connection: str) -> Steps:
    found = yield from target.all_of("listConsumers", connectionID=connection)
    return _as_json([_consumer(item) for item in found])


@operation("queue", "listConsumersAsJSON")
def consumers_of_queue_as_json(target: Target) -> Steps:
    found = yield from target.all_of("listQueueConsumers", target.name)
    return _as_json([_consumer(item) for item in found])


# ---- bridges


@operation("bridge", "start", changes=True)
def start_bridge(target: Target) -> Steps:
    return _void(target.on_resource("startBridge"))


@operation("bridge", "stop", changes=True)
def stop_bridge(target: Target) -> Steps:
    return _void(target.on_resource("stopBridge"))


@operation("bridge", "pause", changes=True)
def pause_bridge(target: Target) -> Steps:
    return _void(target.on_resource("pauseBridge"))


@operation("bridge", "resume", changes=True)
def resume_bridge(target: Target) -> Steps:
    return _void(target.on_resource("resumeBridge"))


# ---- connections, users, configuration


def _close(target: Target, connections: Iterator[str]) -> Steps:
    closed = False
    for number in set(connections):
        closed = (yield from _whether(target.call("closeConnection", id=number))) or closed
    return closed


@operation("broker", "closeConnectionWithID", "n", changes=True)
def close_connection(target: Target, number: str) -> Steps:
    return _close(target, iter((number,)))


@operation("broker", "closeConnectionsForAddress", "n", changes=True)
def close_connections_for_address(target: Target, host: str) -> Steps:
    found = yield from target.all_of("listConnections")
    return (
        yield from _close(
            target, (each["connectionID"] for each in found if _host(each["remoteAddress"]) == host)
        )
    )


@operation("broker", "closeConnectionsForUser", "n", changes=True)
def close_connections_for_user(target: Target, user: str) -> Steps:
    found = yield from target.all_of("listConnections", user=user)
    return (yield from _close(target, (each["connectionID"] for each in found)))


@operation("broker", "closeConsumerConnectionsForAddress", "n", changes=True)
def close_consumers_for_address(target: Target, address: str) -> Steps:
    found = yield from target.all_of("listConsumers", address=address)
    return (yield from _close(target, (each["connectionID"] for each in found)))


@operation("broker", "reloadConfigurationFile", changes=True)
def reload(target: Target) -> Steps:
    return _void(target.call("reload"))


@operation("broker", "listUser", "", "s")
def list_users(target: Target, name: str | None = None) -> Steps:
    found = yield from target.all_of("listUsers", **({"name": name} if name else {}))
    return _as_json([{"username": item["name"], "roles": item["roles"]} for item in found])


@operation("broker", "addUser", "nns", "nnsb", changes=True, secret=(1,))
def add_user(target: Target, name: str, password: str, roles: str | None, plaintext: bool = False) -> Steps:
    """``plaintext`` is whether Artemis stores the password as it is; here it is always hashed."""
    return _void(
        target.call("createUser", None, {"name": name, "password": password, "roles": _kinds(roles)})
    )


@operation("broker", "resetUser", "ns", "nss", "nssb", changes=True, secret=(1,))
def reset_user(
    target: Target, name: str, password: str | None, roles: str | None = None, plaintext: bool = False
) -> Steps:
    body: dict[str, object] = {} if password is None else {"password": password}
    if roles is not None:
        body["roles"] = _kinds(roles)
    return _void(target.call("changeUser", name, body))


@operation("broker", "removeUser", "n", changes=True)
def remove_user(target: Target, name: str) -> Steps:
    return _void(target.call("deleteUser", name))


log = logging.getLogger(__name__)

#: Requests of one connection that may wait.
MAX_WAITING = 1000

#: Maximum length of a request's body, in bytes.
MAX_REQUEST = 1024 * 1024


class ManagementRequests:
    """Carries out requests, those of one connection one after the other. ``succeeded`` and ``failed`` count them."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._lanes: dict[str, deque[ManagementRequest]] = {}
        self._replies: dict[str, deque[PendingReply]] = {}
        self._routes: Routes | None = None
        self._spent = 0.0  # seconds of this turn of the reactor
        self.succeeded = self.failed = 0
        settings = context.configuration
        self._pattern = re.compile(settings.view_permission_method_match_pattern)

    @property
    def routes(self) -> Routes:
        """The routes of the HTTP API. Made with the first request."""
        if self._routes is None:
            from .http import admin_routes

            self._routes = admin_routes()
        return self._routes

    # ---- the requests of a connection, in order

    def handle(self, request: ManagementRequest) -> None:
        """Begin at once what takes no time, or queue the request. Raises `LimitReached`."""
        lane = self._lanes.get(request.connection)
        if lane is not None:
            if len(lane) >= MAX_WAITING:
                raise LimitReached(
                    f"{len(lane)} management requests of this connection wait: wait for replies",
                    "management-requests",
                )
            lane.append(request)
            return
        self._lanes[request.connection] = lane = deque((request,))
        work = self._serve(request.connection, lane)
        if self._spent >= TIME_SLICE:
            self._context.tasks.cooperator.cooperate(work)
            return
        if not self._spent:
            self._context.broker.clock.soon(self._turn_ended)
        began = perf_counter()
        try:
            wait = next(work)
        except StopIteration:
            return
        finally:
            self._spent += perf_counter() - began
        self._context.tasks.cooperator.cooperate(_after(wait, work))

    def _turn_ended(self) -> None:
        self._spent = 0.0

    def _serve(self, connection: str, lane: deque[ManagementRequest]) -> Iterator[object]:
        while lane:
            yield from self._answer(lane[0])
            lane.popleft()
            if lane:
                yield None
                self._context.broker.clock.refresh()
        del self._lanes[connection]

    # ---- one request

    def _answer(self, request: ManagementRequest) -> Iterator[object]:
        exchange = Exchange(self._context, self.routes, request)
        result: object = NOTHING
        error: str | None = None
        try:
            self._check_length(request)
            exchange.read()
            if exchange.operation is not None:
                self._check_permission(exchange)
            result = yield from exchange.carry_out()
            if exchange.operation is None:  # its value tells the name of its method
                exchange.method = f"{'is' if isinstance(result, bool) else 'get'}{exchange.method}"
                self._check_permission(exchange)
        except Refused as refused:
            error = str(refused)
            if isinstance(refused, PermissionRejected):
                exchange.notify_violation(refused)
        except Exception:
            log.exception("management request %s failed", exchange.text, extra=exchange.fields)
            error = "Internal error; see the broker's log"
        if error is None:
            self.succeeded += 1
            body = b"" if result is NOTHING or result is None else encode([result])
        else:
            self.failed += 1
            body = encode([error])
        reply = PendingReply(request, error is None, body)
        self._replies.setdefault(request.connection, deque()).append(reply)
        if exchange.changes:
            exchange.log(error, body)
            self._reply_when_synced(reply)
        else:
            self._ready(reply)

    def _check_length(self, request: ManagementRequest) -> None:
        if len(request.body) > MAX_REQUEST:
            raise Refused(f"The request is longer than {MAX_REQUEST} bytes")

    def _check_permission(self, exchange: Exchange) -> None:
        """``management-message-rbac``: view or edit on the address of the operation. Raises `Refused`."""
        settings = self._context.configuration
        if not settings.management_message_rbac:
            return
        viewing = self._pattern.match(exchange.method) is not None
        address = ".".join((settings.management_rbac_prefix, exchange.resource_name, exchange.method))
        exchange.request.login.authorizer.check(
            PermissionType.VIEW if viewing else PermissionType.EDIT, address
        )

    # ---- replies, in the order of the requests of a connection

    def _reply_when_synced(self, reply: PendingReply) -> None:
        """As an answer over HTTP, the reply to a change waits until the change is synced."""
        reply.changed = True
        timeout: list[IDelayedCall] = []

        def synced() -> None:
            if timeout:
                if not timeout[0].active():
                    return
                timeout[0].cancel()
            self._ready(reply)

        def not_synced() -> None:
            store = self._context.store
            cause = None if store is None else store.writer.failing
            reply.succeeded, reply.body = False, encode([not_synced_text(cause)])
            self._ready(reply)

        self._context.broker.storage.when_synced(synced)
        if not reply.ready:
            timeout.append(self._context.reactor.callLater(SYNC_TIME, not_synced))

    def _ready(self, reply: PendingReply) -> None:
        reply.ready = True
        connection = reply.request.connection
        replies = self._replies.get(connection)
        while replies and replies[0].ready:
            self._send(replies.popleft())
        if replies is not None and not replies:
            self._replies.pop(connection, None)

    def _send(self, reply: PendingReply) -> None:
        request = reply.request
        if request.reply_to is not None:
            headers = {SUCCEEDED: b"true" if reply.succeeded else b"false"}
            correlation = request.headers.get(b"correlation-id")
            if correlation is not None:
                headers[b"correlation-id"] = correlation
            if not send_reply(self._context.broker, request.reply_to, headers, reply.body):
                log.debug("management reply to %s not routed", request.reply_to.address)
        request.done(reply.changed)


class PendingReply:
    """The outcome of a request, until its reply is sent. ``changed``: it waits for the sync of a change."""

    __slots__ = ("body", "changed", "ready", "request", "succeeded")

    def __init__(self, request: ManagementRequest, succeeded: bool, body: bytes) -> None:
        self.request = request
        self.succeeded = succeeded
        self.body = body
        self.changed = self.ready = False


def _after(first: object, rest: Iterator[object]) -> Iterator[object]:
    yield first
    yield from rest


class Exchange:
    """One request while it is carried out. ``text`` and ``fields`` describe it in the log."""

    def __init__(self, context: AdminContext, routes: Routes, request: ManagementRequest) -> None:
        self.context = context
        self.routes = routes
        self.request = request
        self.resource_name = request.text(RESOURCE) or ""
        self.method = ""
        self.changes = False
        self._resource: Resource | None = None
        self.operation: Operation | None = None
        self._attribute: str | None = None
        self._values: list[Any] = []
        self.fields: dict[str, object] = {"peer": request.peer, "connection": request.connection}
        if request.login.user is not None:
            self.fields["user"] = request.login.user
        self.text = printable(self.resource_name, MAX_REASON)

    def read(self) -> None:
        """Find the resource and what is asked of it. Raises `Refused`."""
        request = self.request
        operation, attribute = request.text(OPERATION), request.text(ATTRIBUTE)
        name = operation or attribute or ""
        self.text = printable(f"{self.resource_name} {name}".strip(), MAX_REASON)
        self._resource = resource = find_resource(self.resource_name)
        if resource.kind in ("queue", "address"):
            self.fields[resource.kind] = resource.name
        if operation is not None:
            self._values = read_parameters(request.body)
            self.operation = found = find_operation(resource.kind, operation, self._values)
            self.method, self.changes = found.name, found.changes
        elif attribute is not None:
            self.method = self._attribute = find_attribute(resource.kind, attribute)
        else:
            raise Refused("The request has neither _AMQ_OperationName nor _AMQ_Attribute")

    def carry_out(self) -> Generator[Any, None, object]:
        """The result as JSON; `NOTHING` for an operation without one. Raises `Refused`."""
        assert self._resource is not None
        target = self._resource.target(self.context, self.routes, self.request)
        if self.operation is not None:
            return (yield from self.operation.run(target, self._values))
        assert self._attribute is not None
        return (yield from target.attribute(self._attribute))

    def notify_violation(self, refused: PermissionRejected) -> None:
        """Notify that the user lacks the permission for the operation."""
        self.context.broker.notifications.notify(
            "SECURITY_PERMISSION_VIOLATION",
            str(refused),
            {"_AMQ_CheckType": refused.permission},
            user=self.request.login.user,
            address=refused.address,
            connectionID=self.request.connection,
            remoteAddress=self.request.peer,
        )

    def log(self, error: str | None, body: bytes) -> None:
        """The log line and the notification of a change."""
        broker, request = self.context.broker, self.request
        shown = [
            HIDDEN if self.operation is not None and index in self.operation.secret else value
            for index, value in enumerate(self._values)
        ]
        parameters = printable(encode(shown).decode(), MAX_BODY) if shown else ""
        result = "" if error is None and len(body) > MAX_RESULT else body.decode()
        outcome = "failed" if error is not None else "succeeded"
        broker.log_limit.info(
            log,
            "management",
            "management: %s (%s): %s%s: %s%s",
            "anonymous" if request.login.user is None else f"user {printable(request.login.user)}",
            request.peer,
            self.text,
            parameters and f" {parameters}",
            outcome,
            result and f" {printable(result, MAX_REASON)}",
            fields={**self.fields, "result": outcome},
        )
        if error is None:
            named = {
                name: str(self.fields[name]) for name in ("user", "queue", "address") if name in self.fields
            }
            broker.notifications.notify(
                "MANAGEMENT",
                f"{self.text}: succeeded",
                remoteAddress=request.peer,
                connectionID=request.connection,
                **named,
            )


def read_parameters(body: bytes) -> list[Any]:
    """The parameters of an operation: a JSON array; an empty body is one without elements. Raises `Refused`."""
    if not body.strip():
        return []
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise Refused(f"The body must be a JSON array of parameters: {fault}") from None
    if not isinstance(values, list):
        raise Refused('The body must be a JSON array of parameters, such as [] or ["orders", true]')
    return values
