"""Management by messages in the format of Artemis: requests to the management-address call routes of the HTTP API.

Attributes are the fields of the HTTP API (``MessageCount`` is ``messageCount``) and the names in `ALIASES`. An
operation ``getName`` or ``isName`` without parameters is the attribute ``Name``. Most operations call one route, see
`forward`.

`ManagementRequests` queues the requests of each connection, runs them in slices and sends the replies in the format of
Artemis: the result as a JSON array with one element, nothing for an operation without a result, and
``_AMQ_OperationSucceeded``.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from operator import attrgetter
from time import perf_counter
from types import NoneType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from stompring.broker import queue_browser
from stompring.broker.address import Address, as_address
from stompring.broker.directory import Directory
from stompring.broker.message import SUCCEEDED
from stompring.broker.publish import send_reply
from stompring.broker.queue import Queue
from stompring.broker.reference import PENDING, Reference, compiled_filter
from stompring.errors import LimitReached, NotFound, Refused
from stompring.session.connect import Credentials, Login, ManagementRequest
from stompring.session.destination import ALLOW_ALL, PermissionRejected
from stompring.session.outbox import printable
from stompring.session.send import ATTRIBUTE, OPERATION, RESOURCE
from stompring.settings.broker_xml import ADD_HEADERS
from stompring.settings.document import with_suggestion
from stompring.settings.match import is_internal
from stompring.settings.model import PermissionType, camel_case

from . import addresses, broker, queues
from .api import Answer, Call, Query, Routes, Steps, as_json, encode, synced
from .context import TIME_SLICE, AdminContext, awaited, in_slices, result_of
from .http import admin_routes
from .json_schema import Fields, JsonObject
from .request_log import HIDDEN, MAX_BODY, MAX_REASON, MAX_RESULT

#: Result of an operation that returns nothing: the reply has no body.
NOTHING = object()

#: Kinds of resources; their names are ``broker``, ``queue.NAME`` and so on.
KINDS = ("broker", "address", "queue", "acceptor", "divert", "bridge")


def find_resource(text: str) -> tuple[str, str]:
    """Read ``_AMQ_ResourceName``: the kind and the name. Raises `Refused`."""
    if text == "broker":
        return "broker", ""
    kind, dot, name = text.partition(".")
    if kind not in KINDS or not name or kind == "broker":
        raise Refused(
            f"_AMQ_ResourceName must be broker, or one of address, queue, acceptor, divert or bridge with the name "
            f"after a dot, as queue.orders, not {text[:100]!r}"
        )
    return kind, name


@dataclass
class Target:
    """The resource of an operation. Raises `NotFound` if it does not exist."""

    context: AdminContext
    routes: Routes
    request: ManagementRequest
    kind: str
    name: str

    def __post_init__(self) -> None:
        if self.kind == "acceptor" and self.name not in self.context.acceptors:
            raise NotFound(f"Acceptor {self.name} does not exist")
        self._thing()

    @property
    def directory(self) -> Directory:
        """The addresses and queues of the broker."""
        return self.context.broker.directory

    @property
    def queue(self) -> Queue:
        """The queue with the name of the resource. Raises `NotFound`."""
        return self.directory.queue(self.name)

    @property
    def address(self) -> Address:
        """The address with the name of the resource. Raises `NotFound`."""
        return self.directory.address(self.name)

    def call(self, operation: str, login: Login | None = None, /, **members: Any) -> Steps:
        """Return the JSON answer of a route of the HTTP API. Raises `Refused`.

        ``members``: names in the path, parameters of the query and fields of the body. A missing name in the path is
        the name of the resource. Without ``login`` no permission is checked, because the user of the request has
        ``manage``, which includes all others. With ``login`` the permissions of that user apply.
        """
        route = self.routes.operations[operation]
        names = {key: members.pop(key, self.name) for key in ("name", "id") if f"{{{key}}}" in route.path}
        queried = [key for key in members if not route.changes or key in route.query_names]
        call = Call(
            self.context,
            names,
            Query(urlencode({key: _text(members.pop(key)) for key in queried})),
            members,
            user=self.request.login.user if login is None else login.user,
            authorizer=ALLOW_ALL if login is None else login.authorizer,
            peer=self.request.peer,
        )
        route.check(call)
        answer = yield from result_of(route.answer(call))
        assert isinstance(answer, Answer) and isinstance(answer.body, bytes)
        return json.loads(answer.body) if answer.body else None

    def all_of(self, operation: str, **members: object) -> Steps:
        """All items of the list that ``operation`` returns in pages."""
        items: list[Any] = []
        while True:
            page = yield from self.call(operation, **members, page=len(items) // 1000 + 1, size=1000)
            items += page["data"]
            if len(page["data"]) < 1000:
                return items

    def attribute(self, name: str) -> Steps:
        """The value of an attribute."""
        if self.kind in ("divert", "bridge"):
            fields = yield from self.call(self.kind)
            field = "name" if name == "UniqueName" else uncapitalized(name)
            if field not in fields:
                raise no_attribute(self.kind, name, map(capitalized, fields))
            return fields[field]
        read = ALIASES[self.kind].get(name)
        if read is None:
            return self.field(uncapitalized(name))
        return (yield from result_of(read(self)))

    def field(self, name: str) -> Any:
        """The value of a field of the HTTP API."""
        return FIELDS[self.kind][name].read(self._thing())

    def _thing(self) -> Queue | Address | AdminContext:
        if self.kind == "queue":
            return self.queue
        return self.address if self.kind == "address" else self.context


# ---- attributes


def capitalized(name: str) -> str:
    """``messageCount`` as an attribute: ``MessageCount``."""
    return name[:1].upper() + name[1:]


def uncapitalized(name: str) -> str:
    """``MessageCount`` as a field of the HTTP API: ``messageCount``."""
    return name[:1].lower() + name[1:]


def _field(name: str) -> Callable[[Target], Any]:
    """A function that reads a field of the HTTP API from a target."""
    return lambda t: t.field(name)


def _names(operation: str, target: Target) -> Steps:
    """The names of all items that the list ``operation`` returns."""
    return [item["name"] for item in (yield from target.all_of(operation))]


def _total(field: str) -> Callable[[Target], int]:
    return lambda t: sum(queues.FIELDS[field].read(queue) for queue in t.directory.queues.values())


def _first_message(target: Target) -> Steps:
    page = yield from target.call("listMessages", size=1, bodyLimit=0)
    return page["data"][0] if page["data"] else None


def _first_message_json(target: Target) -> Steps:
    first = yield from _first_message(target)
    return as_json([{} if first is None else message_map(first)])


def _first_message_timestamp(target: Target) -> Steps:
    first = yield from _first_message(target)
    return None if first is None else first["timestamp"]


def _acceptor_parameters(target: Target, name: str) -> dict[str, str]:
    host, port = next(
        ((host, port) for acceptor, host, port in target.context.listening if acceptor == name), ("", 0)
    )
    return {"host": host, "port": str(port)}


def _acceptors(target: Target) -> str:
    return as_json(
        [{"name": name, "params": _acceptor_parameters(target, name)} for name in target.context.acceptors]
    )


def _uptime(target: Target) -> str:
    return f"{target.field('uptime') / 1000:.3f} seconds"


#: The fields of the HTTP API, each of which is an attribute.
FIELDS: Mapping[str, Fields[Any]] = {
    "broker": broker.FIELDS,
    "address": addresses.FIELDS,
    "queue": queues.FIELDS,
    "acceptor": {},
}

#: Attributes whose name or form differs from that in the HTTP API.
ALIASES: Mapping[str, Mapping[str, Callable[[Target], Any]]] = {
    "broker": {
        "Started": lambda t: True,
        "Active": lambda t: not t.context.stopping,
        "Backup": lambda t: False,
        "Clustered": lambda t: False,
        "ReplicaSync": lambda t: False,
        "Uptime": _uptime,
        "UptimeMillis": _field("uptime"),
        "CurrentTimeMillis": attrgetter("context.broker.clock.now"),
        "QueueNames": lambda t: [name for name in t.directory.queues if not is_internal(name)],
        "AddressNames": lambda t: [name for name in t.directory.addresses if not is_internal(name)],
        "TotalConsumerCount": _total("consumerCount"),
        "TotalMessageCount": _total("messageCount"),
        "TotalMessagesAdded": _total("messagesAdded"),
        "TotalMessagesAcknowledged": _total("messagesAcknowledged"),
        "DiskStoreUsage": _field("diskUsage"),
        "MaxDiskUsage": attrgetter("context.configuration.max_disk_usage"),
        "ManagementAddress": attrgetter("context.configuration.management_address"),
        "ManagementNotificationAddress": attrgetter("context.configuration.management_notification_address"),
        "AcceptorsAsJSON": _acceptors,
        "Connectors": lambda t: [],
        "ConnectorsAsJSON": lambda t: "[]",
        "DivertNames": partial(_names, "listDiverts"),
        "BridgeNames": partial(_names, "listBridges"),
        "Status": lambda t: as_json(
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
        "Address": attrgetter("address.name"),
        **dict.fromkeys(("QueueNames", "AllQueueNames", "BindingNames"), lambda t: list(t.address.queues)),
        "RemoteQueueNames": lambda t: [],
        "RoutingTypesAsJSON": lambda t: as_json(addresses.FIELDS["routingTypes"].read(t.address)),
        "NumberOfMessages": attrgetter("address.message_count"),
        "RolesAsJSON": lambda t: roles_as_json(t, t.name),
        "AddressLimitPercent": _field("limitPercent"),
        "NumberOfBytesPerPage": attrgetter("address.settings.page_size_bytes"),
        "Internal": lambda t: False,
    },
    "queue": {
        "ID": attrgetter("queue.number"),
        "DeadLetterAddress": attrgetter("queue.address.settings.dead_letter_address"),
        "ExpiryAddress": attrgetter("queue.address.settings.expiry_address"),
        "ConfigurationManaged": attrgetter("queue.attributes.configured"),
        "InternalQueue": lambda t: False,
        "FirstMessageAge": _field("oldestAge"),
        "FirstMessageTimestamp": _first_message_timestamp,
        "FirstMessageAsJSON": _first_message_json,
    },
    "acceptor": {
        "Name": lambda t: t.name,
        "Started": lambda t: any(name == t.name for name, _, _ in t.context.listening),
        "Parameters": lambda t: _acceptor_parameters(t, t.name),
    },
}


@cache
def attribute_names(kind: str) -> list[str]:
    """The attributes of a kind of resource, sorted."""
    return sorted({*map(capitalized, FIELDS.get(kind, {})), *ALIASES.get(kind, {})})


def find_attribute(kind: str, name: str) -> str:
    """The attribute with a name. As in Artemis the first letter may be small. Raises `Refused`."""
    found = capitalized(name)
    if kind not in ("divert", "bridge") and found not in attribute_names(kind):
        raise no_attribute(kind, name, attribute_names(kind))
    return found


def _article(kind: str) -> str:
    return f"An {kind}" if kind in ("address", "acceptor") else f"A {kind}"


def no_attribute(kind: str, name: str, known: Any) -> Refused:
    """The rejection of an unknown attribute."""
    return Refused(with_suggestion(f"{_article(kind)} has no attribute {name[:100]!r}", name, known))


# ---- operations


Function = Callable[..., Any]


class Operation(NamedTuple):
    """One signature of an operation.

    ``parameters`` has one letter per parameter: n text, s text or null, i whole number, f number, b boolean, o object
    or null.
    ``secret`` are the positions of parameters that no log shows.
    """

    name: str
    parameters: str
    function: Function
    secret: frozenset[int] = frozenset()

    @property
    def changes(self) -> bool:
        """Whether the operation changes something, according to its name."""
        return not self.name.startswith(("get", "is", "count", "list", "browse"))

    def accepts(self, values: list[Any]) -> bool:
        """Whether the signature accepts these values."""
        return len(values) == len(self.parameters) and all(
            type(value) in LETTERS[letter][1] for letter, value in zip(self.parameters, values, strict=True)
        )


#: Types of parameters by their letter in a signature: the name in errors, and the Python types of valid JSON values.
LETTERS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "n": ("text", (str,)),
    "s": ("text or null", (str, NoneType)),
    "i": ("number", (int,)),
    "f": ("number", (int, float)),
    "b": ("boolean", (bool,)),
    "o": ("object", (dict, NoneType)),
}

#: The operations of each kind of resource, by name.
OPERATIONS: dict[str, dict[str, list[Operation]]] = {kind: {} for kind in KINDS}


def operation(
    kinds: str, name: str, *signatures: str, secret: tuple[int, ...] = ()
) -> Callable[[Function], Function]:
    """Register a function as an operation with these signatures; further calls add signatures."""

    def register(function: Function) -> Function:
        for kind in kinds.split():
            for signature in signatures or ("",):
                OPERATIONS[kind].setdefault(name, []).append(
                    Operation(name, signature, function, frozenset(secret))
                )
        return function

    return register


def find_operation(kind: str, name: str, values: list[Any]) -> Operation:
    """The operation that accepts these values. Raises `Refused` with the known signatures."""
    signatures = OPERATIONS[kind].get(name, [])
    for each in signatures:
        if each.accepts(values):
            return each
    getter = re.fullmatch("(?:get|is)(.+)", name, re.DOTALL)
    if (
        getter is not None
        and getter[1][0].isupper()
        and not values
        and (kind in ("divert", "bridge") or getter[1] in attribute_names(kind))
    ):
        return Operation(name, "", lambda target: target.attribute(getter[1]))
    if not signatures:
        raise Refused(
            with_suggestion(f"{_article(kind)} has no operation {name[:100]!r}", name, OPERATIONS[kind])
        )
    known = "; ".join(
        f"{name}({', '.join(LETTERS[letter][0] for letter in each.parameters)})" for each in signatures
    )
    raise Refused(f"No operation {name} takes these {len(values)} parameters; there is: {known}")


def _object(text: str | None, what: str) -> JsonObject:
    """A parameter that is a JSON object as text. Raises `Refused`."""
    try:
        given = json.loads(text or "")
    except (ValueError, RecursionError) as fault:
        raise Refused(f"The {what} must be a JSON object: {fault}") from None
    if not isinstance(given, dict):
        raise Refused(f"The {what} must be a JSON object")
    return given


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _transformer_class(name: str | None) -> JsonObject:
    """Check the class of a transformer. Raises `Refused` unless it sets headers."""
    if name not in (None, "", ADD_HEADERS):
        raise Refused(
            f"transformerClassName is {name!r}: transformers in Java are not supported but {ADD_HEADERS}"
        )
    return {}


def _transformer(headers: JsonObject | None) -> JsonObject:
    added = [{"name": name, "value": _text(value)} for name, value in (headers or {}).items()]
    return {"transformer": {"addHeaders": added}} if added else {}


# ---- operations that call one route

#: Converts the value of a parameter to members of `Target.call`.
Members = Callable[[Any], JsonObject]


def _member(name: str) -> Members:
    return lambda value: {} if value is None else {name: value}


def _filter(name: str) -> Members:
    return lambda value: {name: value} if value else {}


#: Parameters of operations that call one route, each with the letter of its type (see `Operation`) and the conversion
#: of its value.
PARAMETERS: Mapping[str, tuple[str, Members]] = {
    **{
        name: (letter, _member(name))
        for letter, names in {
            "n": "name address password connectionID queue",
            "s": "routingType user forwardingAddress",
            "i": "maxConsumers priority page size retryInterval initialConnectAttempts reconnectAttempts "
            "confirmationWindowSize producerWindowSize checkPeriod",
            "f": "retryIntervalMultiplier",
            "b": "durable purgeOnNoConsumers exclusive force createAddress useDuplicateDetection",
        }.items()
        for name in names.split()
    },
    "connectors": ("s", lambda text: {"staticConnectors": _words(text)}),
    "useDiscoveryGroup": ("b", _filter("useDiscoveryGroup")),  # true is rejected as an unknown field
    "newPassword": ("s", _member("password")),
    "routingName": ("s", _filter("routingName")),
    "targets": ("n", lambda text: {"forwardingAddresses": _words(text)}),
    "newFilter": ("s", lambda text: {"filter": text or None}),
    "class": ("s", lambda text: _transformer_class(text)),
    "headers": ("o", lambda headers: _transformer(headers)),
    "headersAsJSON": ("s", lambda text: _transformer(_object(text, "properties") if text else None)),
    "roles": ("s", lambda text: {} if text is None else {"roles": _words(text)}),
    "routingTypes": ("s", lambda text: {"routingTypes": _words(text)} if _words(text) else {}),
    "newRoutingTypes": ("s", lambda text: {"routingTypes": _words(text)}),
    "group": ("s", lambda group: {"group": group}),
    "filter": ("s", _filter("filter")),
    "nameOrAll": ("s", _filter("name")),
    "routingTypeOrAll": ("s", _filter("routingType")),
    "message": ("i", lambda number: {"messages": [str(number)]}),
    "number": ("i", lambda number: {"id": str(number)}),
    "limit": ("i", lambda limit: {"limit": limit or -1}),
    "positiveLimit": ("i", lambda limit: {"limit": limit if limit > 0 else -1}),
    # parameters of Artemis without effect: messages per transaction, whether duplicates are rejected, whether the pause
    # survives a restart, whether the password is stored as it is, whether the connectors are those of a cluster
    "flush": ("i", lambda number: {}),
    **{name: ("b", lambda value: {}) for name in ("reject", "persist", "plaintext", "ha")},
}


def forward(
    kinds: str,
    name: str,
    route: str,
    result: Callable[[Any], Any],
    *signatures: str,
    every: bool = False,
    secret: tuple[int, ...] = (),
    **fixed: object,
) -> None:
    """Register an operation that calls a route. ``result`` converts the answer of the route.

    Each signature lists names of `PARAMETERS`; ``fixed`` are further members of `Target.call`. If ``every`` is set, the
    route is a list, and ``result`` gets the items of all its pages.
    """
    for signature in signatures or ("",):
        parameters = [PARAMETERS[each] for each in signature.split()]

        def run(target: Target, *values: Any, parameters: Any = parameters) -> Steps:
            given: JsonObject = dict(fixed)
            for (_, members), value in zip(parameters, values, strict=True):
                given |= members(value)
            if "queue" in given and route != "createBridge":  # the queue must exist: a move creates none
                given["address"] = target.directory.queue(given["queue"]).address.name
            if not given.pop("createAddress", True):
                target.directory.address(given["address"])  # raises `NotFound`
            call: Callable[..., Steps] = target.all_of if every else target.call
            return result((yield from call(route, **given)))

        letters = "".join(letter for letter, _ in parameters)
        operation(kinds, name, letters, secret=secret)(run)


def _void(answer: object) -> object:
    return NOTHING


def _done(task: JsonObject) -> int:
    done: int = task["done"]
    return done


def _any_done(task: JsonObject) -> bool:
    return _done(task) > 0


def _sent(task: JsonObject) -> int:
    """Return the number of messages sent to the dead-letter address.

    Raises `Refused` if some messages stay in the queue; Artemis would lose these.
    """
    if task["failed"]:
        raise Refused(f"{task['error']}; {task['failed']} messages stay, {task['done']} were sent")
    return _done(task)


def _attributes_as_json(detail: JsonObject) -> str:
    """The attributes of a queue in the JSON format of Artemis."""
    shown = {"name": detail["name"], "address": detail["address"], "routing-type": detail["routingType"]}
    if detail["filter"] is not None:
        shown["filter-string"] = detail["filter"]
    for row in queues.OPTIONS:
        value = detail[row.json_name]
        if row.json_name not in ("filter", "ringPolicy", "ringCountsPaged") and value is not None:
            shown[row.name.replace("_", "-")] = value
    return as_json({**shown, **IMPLIED, "configuration-managed": detail["configured"]})


#: Members of Artemis's JSON of a queue that are constant here, with the only accepted value.
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


def _address_text(detail: JsonObject) -> str:
    kinds = ", ".join(sorted(detail["routingTypes"]))
    created = str(detail["autoCreated"]).lower()
    return f"Address [name={detail['name']}, routingTypes={{{kinds}}}, autoCreated={created}]"


on_broker, on_address, on_queue = (partial(forward, kind) for kind in ("broker", "address", "queue"))
on_queue("removeMessages", "removeMessages", _done, "filter", "flush filter", "flush filter limit")
on_queue("removeAllMessages", "purgeQueue", lambda answer: answer["removed"])
on_queue("expireMessages", "expireMessages", _done, "filter")
on_queue("expireMessage", "expireMessages", _any_done, "message")
on_queue(
    "moveMessages",
    "moveMessages",
    _done,
    "filter queue",
    "filter queue reject",
    "flush filter queue reject",
    "flush filter queue reject positiveLimit",
)
on_queue("moveMessage", "moveMessages", _any_done, "message queue", "message queue reject")
on_queue("copyMessage", "copyMessages", _any_done, "message queue")
on_queue("retryMessages", "retryMessages", _done, "", "filter", keepOrigin=True)
on_queue("retryMessage", "retryMessages", _any_done, "message", keepOrigin=True)
on_queue("sendMessagesToDeadLetterAddress", "sendMessagesToDeadLetterAddress", _sent, "filter")
on_queue(
    "sendMessageToDeadLetterAddress",
    "sendMessagesToDeadLetterAddress",
    lambda task: _sent(task) > 0,
    "message",
)
on_queue("changeMessagesPriority", "changeMessagesPriority", _done, "filter priority")
on_queue("changeMessagePriority", "changeMessagesPriority", _any_done, "message priority")
on_queue("deliverScheduledMessage", "deliverScheduled", _void, "number")
on_queue("pause", "changeQueue", _void, "", "persist", paused=True)
on_queue("resume", "changeQueue", _void, paused=False)
on_queue("enable", "changeQueue", _void, enabled=True)
on_queue("disable", "changeQueue", _void, enabled=False)
on_queue("resetAllGroups", "resetGroups", _void)
on_queue("resetGroup", "resetGroups", _void, "group")
on_address("pause", "changeAddress", _void, "", "persist", paused=True)
on_address("resume", "changeAddress", _void, paused=False)
on_address("clearDuplicateIdCache", "forgetDuplicates", lambda answer: answer["forgotten"] > 0)
on_broker(
    "createQueue",
    "createQueue",
    _void,
    "address name",
    "address name routingType",
    "address name durable",
    "address name durable routingType",
    "address name filter durable",
    "address name filter durable routingType",
    "address routingType name filter durable maxConsumers purgeOnNoConsumers createAddress",
)
on_broker(
    "updateQueue",
    "changeQueue",
    _attributes_as_json,
    "name routingType maxConsumers purgeOnNoConsumers",
    "name routingType maxConsumers purgeOnNoConsumers exclusive",
    "name routingType maxConsumers purgeOnNoConsumers exclusive user",
)
on_broker("createAddress", "createAddress", _address_text, "name routingTypes")
on_broker("updateAddress", "changeAddress", _address_text, "name newRoutingTypes")
on_broker("deleteAddress", "deleteAddress", _void, "name", "name force")
on_broker("getAddressInfo", "address", _address_text, "name")
on_broker("reloadConfigurationFile", "reload", _void)
_divert = "name routingName address targets exclusive filter class"
on_broker(
    "createDivert",
    "createDivert",
    _void,
    _divert,
    f"{_divert} routingType",
    f"{_divert} headers routingType",
    f"{_divert} headersAsJSON routingType",
)
on_broker(
    "updateDivert",
    "changeDivert",
    _void,
    "name targets newFilter class headers routingType",
    "name targets newFilter class headersAsJSON routingType",
)
on_broker("destroyDivert", "deleteDivert", _void, "name")
_retry = (
    "retryInterval retryIntervalMultiplier initialConnectAttempts reconnectAttempts useDuplicateDetection"
)
_remote = "checkPeriod connectors useDiscoveryGroup ha user newPassword"
on_broker(
    "createBridge",
    "createBridge",
    _void,
    *(
        f"name queue forwardingAddress filter class {headers} {_retry} confirmationWindowSize {window} {_remote}"
        for headers, window in (
            ("", "producerWindowSize"),
            ("headers", "producerWindowSize"),
            ("headersAsJSON", "producerWindowSize"),
            ("", ""),
        )
    ),
    secret=(16, 17, 18),  # the password is the last parameter: its position depends on the signature
)
on_broker("destroyBridge", "deleteBridge", _void, "name")
on_broker("removeAddressSettings", "deleteAddressSetting", _void, "name")
on_broker("removeSecuritySettings", "deleteSecuritySetting", _void, "name")
on_broker(
    "addUser",
    "createUser",
    _void,
    "name password roles",
    "name password roles plaintext",
    secret=(1,),
)
on_broker(
    "resetUser",
    "changeUser",
    _void,
    "name newPassword",
    "name newPassword roles",
    "name newPassword roles plaintext",
    secret=(1,),
)
on_broker("removeUser", "deleteUser", _void, "name")
for _verb in ("start", "stop", "pause", "resume"):
    forward("bridge", _verb, f"{_verb}Bridge", _void)


# ---- operations on messages


def message_map(message: JsonObject) -> JsonObject:
    """A message in the format of Artemis's lists: its headers, and further members."""
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


#: Standard headers, which `message_map` does not copy: its result has other members for some of them.
STANDARD = frozenset(
    "ack content-length destination expires message-id persistent priority redelivered subscription timestamp".split()
)

#: Maximum number of groups in the result of `countMessages` if it groups by a header.
MAX_GROUPS = 10_000

#: Types of messages in Artemis.
TEXT_TYPE, BYTES_TYPE = 3, 4


def _maps(page: JsonObject) -> list[JsonObject]:
    return [message_map(message) for message in page["data"]]


for _ending, _result in (("", _maps), ("AsJSON", lambda page: as_json(_maps(page)))):
    on_queue(f"listScheduledMessages{_ending}", "listScheduled", _result, bodyLimit=0)
    # as in Artemis, a list with a filter has no scheduled and no delivering messages
    on_queue(
        f"listMessages{_ending}",
        "listMessages",
        _result,
        "filter",
        bodyLimit=0,
        state="pending",
    )
on_queue(
    "browse",
    "listMessages",
    lambda page: [{**message_map(message), "text": message["body"]} for message in page["data"]],
    "",
    "filter",
    "page size",
    "page size filter",
    state="pending",
)


def _count(state: str, all_of: str, target: Target, text_filter: str | None = None) -> Steps:
    """Number of messages in a state that match a filter; without one, the value of the queue's attribute ``all_of``."""
    if not text_filter:
        return getattr(target.queue, all_of)
    page = yield from target.call("listMessages", filter=text_filter, state=state, size=1, bodyLimit=0)
    return page["count"]


operation("queue", "countMessages", "", "s")(partial(_count, "pending", "message_count"))
operation("queue", "countDeliveringMessages", "", "s")(partial(_count, "delivering", "delivering"))


@operation("queue", "countMessages", "ss")
def count_grouped_messages(target: Target, text_filter: str | None, header: str | None) -> Steps:
    """Number of pending messages by value of a header, ``null`` for messages without it. Raises `Refused`."""
    queue = target.queue
    if header is None and not text_filter:
        return as_json({"null": queue.message_count})
    matches, name = compiled_filter(text_filter), (header or "").encode()
    groups: dict[str, int] = {}
    for ref in in_slices(queue_browser.pending(queue)):
        if not isinstance(ref, Reference):
            yield ref
        elif ref.state == PENDING and (matches is None or matches(ref.message)):
            found = ref.message.header(name) if name else None
            value = "null" if found is None else found.decode("utf-8", "replace")
            groups[value] = groups.get(value, 0) + 1
            if len(groups) > MAX_GROUPS:
                raise Refused(
                    f"Messages have more than {MAX_GROUPS} values of {header}: count those of a filter"
                )
    return as_json(groups)


@operation("queue", "removeMessage", "i")
def remove_message(target: Target, number: int) -> Steps:
    return _whether(target.call("removeMessage", id=str(number)))


def _whether(steps: Steps) -> Steps:
    """Run a call. Returns False if it fails with 404, else True."""
    try:
        yield from steps
    except Refused as refused:
        if refused.status != 404:
            raise
        return False
    return True


@operation("queue address", "sendMessage", "oisbss", "oisbssb", secret=(2, 5))
def send_message(
    target: Target,
    headers: JsonObject | None,
    kind: int,
    body: str | None,
    durable: bool,
    user: str | None,
    password: str | None,
    create_id: bool = True,
) -> Steps:
    """Send a message as ``user``, or as the user of the request. The body of a message other than text is base64."""
    security = target.context.security
    login = None
    if security is not None and user is not None:
        login = yield from awaited(
            security.logins.log_in(Credentials(user, password, target.request.peer.rpartition(":")[0], None))
        )
    sent = yield from target.call(
        "sendMessages",
        login,
        **{target.kind: target.name},
        headers={**(headers or {}), "persistent": durable},
        body=body or "",
        encoding="text" if kind == TEXT_TYPE else "base64",
    )
    if not sent["sent"]:
        raise Refused(sent["reason"] or "The message was not sent")
    return NOTHING


# ---- operations on queues and addresses


@operation("address", "purge")
def purge_address(target: Target) -> Steps:
    removed = 0
    for name in list(target.address.queues):
        removed += (yield from target.call("purgeQueue", name=name))["removed"]
    return removed


def _attributes(text: str | None) -> JsonObject:
    """Convert the JSON of a queue in Artemis to the body of a request of the HTTP API. Raises `Refused`."""
    given = _object(text, "queue")
    body: JsonObject = {}
    for name, value in given.items():
        if name == "id" or value is None:
            continue
        if name in IMPLIED:
            if value != IMPLIED[name]:
                raise Refused(f"{name} {as_json(value)} is not supported for queues that management creates")
            continue
        body["filter" if name == "filter-string" else camel_case(name.replace("-", "_"))] = value
    if "name" not in body:
        raise Refused(with_suggestion("The queue has no name", "name", given))
    return body


@operation("broker", "createQueue", "n", "nb")
def create_queue(target: Target, text: str | None, ignore_if_exists: bool = False) -> Steps:
    body = _attributes(text)
    if ignore_if_exists and body["name"] in target.directory.queues:
        return text
    return _attributes_as_json((yield from target.call("createQueue", **body)))


@operation("broker", "updateQueue", "n")
def update_queue(target: Target, text: str | None) -> Steps:
    body = _attributes(text)
    queue = target.directory.queue(body["name"])
    if body.pop("address", queue.address.name) != queue.address.name:
        raise Refused(f"The address of queue {queue.name} cannot change while it exists")
    return _attributes_as_json((yield from target.call("changeQueue", **body)))


@operation("broker", "destroyQueue", "n", "nb", "nbb")
def destroy_queue(target: Target, name: str, force: bool = False, delete_address: bool = False) -> Steps:
    address = as_address(target.directory.queue(name).address)
    yield from target.call("deleteQueue", name=name, force=force)
    if delete_address and not address.queues and not address.deleted:
        yield from target.call("deleteAddress", name=address.name)
    return NOTHING


@operation("broker", "getAddressSettingsAsJSON", "n")
def address_settings(target: Target, match: str) -> str:
    shown = addresses.settings_shown(target.directory.settings.lookup(match))
    shown["addressFullMessagePolicy"] = shown.pop("addressFullPolicy")
    return json.dumps(shown, separators=(",", ":"), default=str)


#: Members of Artemis's JSON of a divert or a bridge whose names in the HTTP API differ.
RENAMED = {"filterString": "filter", "queueName": "queue", "clientFailureCheckPeriod": "checkPeriod"}


def _element(text: str | None, kind: str) -> JsonObject:
    """The JSON of a divert or a bridge in Artemis as a body of the HTTP API. Raises `Refused`."""
    body: JsonObject = {}
    for name, value in _object(text, kind).items():
        key = camel_case(name.replace("-", "_"))
        if key == "transformerConfiguration":
            given = value if isinstance(value, dict) else {}
            body |= _transformer_class(given.get("class-name")) | _transformer(given.get("properties"))
        elif key == "forwardingAddress" and kind == "divert":
            body["forwardingAddresses"] = _words(value)
        elif value is not None:
            body[RENAMED.get(key, key)] = value
    return body


def _by_json(route: str, kind: str, target: Target, text: str | None) -> Steps:
    yield from target.call(route, **_element(text, kind))
    return NOTHING


operation("broker", "createDivert", "n")(partial(_by_json, "createDivert", "divert"))
operation("broker", "updateDivert", "n")(partial(_by_json, "changeDivert", "divert"))
operation("broker", "createBridge", "n", secret=(0,))(partial(_by_json, "createBridge", "bridge"))


#: Parameters of addAddressSettings after the match, in Artemis's order, each with the letter of its type (see
#: `Operation`). A name with dashes, as in broker.xml, is that of a setting that is refused, or has no effect here.
ADDRESS_SETTINGS = dict(
    each.split(":")
    for each in (
        "deadLetterAddress:s expiryAddress:s expiryDelay:i defaultLastValueQueue:b maxDeliveryAttempts:i "
        "maxSizeBytes:i pageSizeBytes:i pageMaxCacheSize:i redeliveryDelay:i redeliveryDelayMultiplier:f "
        "maxRedeliveryDelay:i redistribution-delay:i sendToDlaOnNoRoute:b addressFullMessagePolicy:s "
        "slowConsumerThreshold:i slowConsumerCheckPeriod:i slowConsumerPolicy:s auto-create-jms-queues:b "
        "auto-delete-jms-queues:b auto-create-jms-topics:b auto-delete-jms-topics:b autoCreateQueues:b "
        "autoDeleteQueues:b autoCreateAddresses:b autoDeleteAddresses:b configDeleteQueues:s "
        "configDeleteAddresses:s max-size-bytes-reject-threshold:i defaultLastValueKey:s "
        "defaultNonDestructive:b defaultExclusiveQueue:b defaultGroupRebalance:b defaultGroupBuckets:i "
        "defaultGroupFirstKey:s defaultMaxConsumers:i defaultPurgeOnNoConsumers:b "
        "defaultConsumersBeforeDispatch:i defaultDelayBeforeDispatch:i defaultQueueRoutingType:s "
        "defaultAddressRoutingType:s default-consumer-window-size:i defaultRingSize:i "
        "autoDeleteCreatedQueues:b autoDeleteQueuesDelay:i autoDeleteQueuesMessageCount:i "
        "autoDeleteAddressesDelay:i redeliveryCollisionAvoidanceFactor:f retroactiveMessageCount:i "
        "autoCreateDeadLetterResources:b deadLetterQueuePrefix:s deadLetterQueueSuffix:s "
        "autoCreateExpiryResources:b expiryQueuePrefix:s expiryQueueSuffix:s minExpiryDelay:i "
        "maxExpiryDelay:i enableMetrics:b"
    ).split()
)
_LETTERS = "n" + "".join(ADDRESS_SETTINGS.values())


@operation("broker", "addAddressSettings", "nn", *(_LETTERS[:length] for length in (22, 26, 49, 55, 58)))
def add_address_settings(target: Target, match: str, *values: Any) -> Steps:
    """Replace an address-setting by the values of a JSON object, or by all values in Artemis's order."""
    given = dict(zip(ADDRESS_SETTINGS, values, strict=False))
    if len(values) == 1:
        given = _object(values[0], "address-settings")
    if "addressFullMessagePolicy" in given:
        given["addressFullPolicy"] = given.pop("addressFullMessagePolicy")
    former = dict.fromkeys(target.context.run_time.present("address-setting", match) or ())
    yield from target.call("changeAddressSetting", name=match, settings={**former, **given})
    return NOTHING


#: Permissions in the order of Artemis's parameters; signatures have the first 7, 8, 10 or all of them.
GRANTS = (
    "send consume createDurableQueue deleteDurableQueue createNonDurableQueue deleteNonDurableQueue manage browse "
    "createAddress deleteAddress view edit"
).split()


@operation("broker", "addSecuritySettings", *("n" + "s" * number for number in (7, 8, 10, 12)))
def add_security_settings(target: Target, match: str, *roles: str | None) -> Steps:
    """Replace a security-setting. ``roles`` of each permission are separated by commas."""
    granted = {kind: _words(text) or None for kind, text in zip(GRANTS, roles, strict=False)}
    former = dict.fromkeys(map(str, PermissionType))
    yield from target.call("changeSecuritySetting", name=match, permissions={**former, **granted})
    return NOTHING


@operation("broker", "getRoles", "n")
def roles_of(target: Target, match: str) -> list[list[Any]]:
    """The roles of an address, each with its permissions in Artemis's order."""
    return [
        [each["name"], *(each[kind] for kind in GRANTS[:10])]
        for each in json.loads(roles_as_json(target, match))
    ]


@operation("broker", "getRolesAsJSON", "n")
def roles_as_json(target: Target, match: str) -> str:
    """The roles of an address with their permissions; empty without security."""
    security = target.context.security
    entries = () if security is None else security.authority.permissions.decide(
        frozenset(), PermissionType.SEND, match
    ).entries  # fmt: skip
    return as_json(
        [
            {
                "name": name,
                **{
                    str(permission): all(name in entry.roles.get(permission, ()) for entry in entries)
                    for permission in PermissionType
                },
            }
            for name in sorted(
                {role for entry in entries for roles in entry.roles.values() for role in roles}
            )
        ]
    )


# ---- lists of the broker


@operation("broker", "listAddresses", "s")
def list_addresses(target: Target, separator: str | None) -> str:
    return (separator or ",").join(
        sorted(name for name in target.directory.addresses if not is_internal(name))
    )


#: Fields of lists whose names in Artemis differ from those in the HTTP API, by the names in Artemis.
LISTED: Mapping[str, Mapping[str, str]] = {
    "listQueues": {"messagesAcked": "messagesAcknowledged"},
    "listAddresses": {"addressLimitPercent": "limitPercent", "unroutedMessageCount": "unRoutedMessageCount"},
    "listConnections": {"users": "user", "implementation": "protocol"},
    "listConsumers": {"id": "consumerID", "session": "connectionID", "messagesInTransit": "deliveringCount"},
}


#: The field of each list that ``search`` compares.
SEARCHED = {
    "listQueues": "name",
    "listAddresses": "name",
    "listConnections": "connectionID",
    "listConsumers": "queue",
}


def _page(route: str, target: Target, options: str | None, page: int, size: int) -> Steps:
    """One page as ``{"data":[…],"count":n}``: the values are texts, as in Artemis. Raises `Refused`.

    Artemis's filter options become parameters of the HTTP API.
    """
    query: dict[str, object] = {"page": page, "size": size}
    given = _object(options, "filter") if options else {}
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
    answer = yield from target.call(route, **query)
    data = [
        {name: _text(value) for name, value in item.items()}
        | {name: _text(item[field]) for name, field in LISTED[route].items()}
        for item in answer["data"]
    ]
    return as_json({"data": data, "count": answer["count"]})


for _route in LISTED:
    operation("broker", _route, "sii")(partial(_page, _route))


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else as_json(value)


Items = list[JsonObject]


def _column(name: str) -> Callable[[Items], list[str]]:
    return lambda items: [item[name] for item in items]


def _objects(more: Callable[[JsonObject], JsonObject], **names: str) -> Callable[[Items], str]:
    """Return a function that encodes items as a JSON array of objects. ``names`` maps each member of an object to a
    field of the item; ``more`` returns additional members.
    """
    return lambda items: as_json(
        [{**{name: item[field] for name, field in names.items()}, **more(item)} for item in items]
    )


_CONNECTIONS = _objects(
    lambda item: {"sessionCount": 1},
    connectionID="connectionID",
    clientAddress="remoteAddress",
    creationTime="creationTime",
    implementation="protocol",
)
_SESSIONS = _objects(
    lambda item: {},
    sessionID="connectionID",
    creationTime="creationTime",
    consumerCount="subscriptionCount",
    validatedUser="user",
    principal="user",
)
_CONSUMERS = _objects(
    lambda item: {
        "status": "SLOW" if item["slow"] else "OK",
        **({} if item["filter"] is None else {"filter": item["filter"]}),
    },
    consumerID="consumerID",
    connectionID="connectionID",
    sessionID="connectionID",
    queueName="queue",
    browseOnly="browser",
    creationTime="creationTime",
    deliveringCount="deliveringCount",
    messagesInTransit="deliveringCount",
    messagesDelivered="messagesDelivered",
    messagesAcknowledged="messagesAcknowledged",
)


listed = partial(on_broker, every=True)
listed("getQueueNames", "listQueues", _column("name"), "routingTypeOrAll")
listed("listConnectionIDs", "listConnections", _column("connectionID"))
listed("listConnectionsAsJSON", "listConnections", _CONNECTIONS)
listed("listSessions", "listConnections", _column("connectionID"), "connectionID")
listed("listSessionsAsJSON", "listConnections", _SESSIONS, "connectionID")
listed("listAllSessionsAsJSON", "listConnections", _SESSIONS)
listed("listAllConsumersAsJSON", "listConsumers", _CONSUMERS)
listed("listConsumersAsJSON", "listConsumers", _CONSUMERS, "connectionID")
on_queue("listConsumersAsJSON", "listQueueConsumers", _CONSUMERS, every=True)
listed(
    "listUser",
    "listUsers",
    _objects(lambda item: {}, username="name", roles="roles"),
    "",
    "nameOrAll",
)


@operation("broker", "listRemoteAddresses", "", "s")
def remote_addresses(target: Target, host: str | None = None) -> Steps:
    found = [item["remoteAddress"] for item in (yield from target.all_of("listConnections"))]
    return [peer for peer in found if not host or _host(peer) == host]


def _host(peer: str) -> str:
    return peer.rpartition(":")[0].strip("[]")


# ---- connections


def _close_all(route: str, field: str, target: Target, value: str) -> Steps:
    """Close the listed connections whose ``field`` has this value; ``host``: the host of their remote address."""
    of_host = field == "host"
    found = yield from target.all_of(route, **({} if of_host else {field: value}))
    closed = False
    for number in {
        each["connectionID"] for each in found if not of_host or _host(each["remoteAddress"]) == value
    }:
        closed = (yield from _whether(target.call("closeConnection", id=number))) or closed
    return closed


for _name, _route, _sought in (
    ("closeConnectionsForAddress", "listConnections", "host"),
    ("closeConnectionWithID", "listConnections", "connectionID"),
    ("closeConnectionsForUser", "listConnections", "user"),
    ("closeConsumerConnectionsForAddress", "listConsumers", "address"),
):
    operation("broker", _name, "n")(partial(_close_all, _route, _sought))


log = logging.getLogger(__name__)

#: Maximum number of waiting requests of one connection.
MAX_WAITING = 1000

#: Maximum length of a request's body, in bytes.
MAX_REQUEST = 1024 * 1024


class ManagementRequests:
    """Executes requests, those of one connection in order. ``succeeded`` and ``failed`` count the requests."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._lanes: dict[str, deque[ManagementRequest]] = {}
        self._replies: dict[str, deque[Exchange]] = {}
        self._spent = 0.0  # seconds of work in this iteration of the reactor
        self.succeeded = self.failed = 0
        self._views = re.compile(context.configuration.view_permission_method_match_pattern)

    @cached_property
    def routes(self) -> Routes:
        """The routes of the HTTP API, created at the first request."""
        return admin_routes()

    # ---- the requests of a connection, in order

    def handle(self, request: ManagementRequest) -> None:
        """Start a request immediately if the time slice has time left, or queue it. Raises `LimitReached`."""
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
        self._context.tasks.cooperator.cooperate(chain((wait,), work))

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
            if len(request.body) > MAX_REQUEST:
                raise Refused(f"The request is longer than {MAX_REQUEST} bytes")
            result = yield from exchange.carry_out(self._views)
        except Refused as refused:
            error = str(refused)
            if isinstance(refused, PermissionRejected):
                self._context.broker.notifications.notify(
                    "SECURITY_PERMISSION_VIOLATION",
                    error,
                    {"_AMQ_CheckType": refused.permission},
                    user=request.login.user,
                    address=refused.address,
                    connectionID=request.connection,
                    remoteAddress=request.peer,
                )
        except Exception:
            log.exception("management request %s failed", exchange.text, extra=exchange.fields)
            error = "Internal error; see the broker's log"
        if error is None:
            self.succeeded += 1
            exchange.body = b"" if result is NOTHING or result is None else encode([result])
        else:
            self.failed += 1
            exchange.succeeded, exchange.body = False, encode([error])
        self._replies.setdefault(request.connection, deque()).append(exchange)
        if exchange.changes:
            exchange.log(error)
            synced(self._context).addCallback(self._reply_to_change, exchange)
        else:
            self._ready(exchange)

    # ---- replies, in the order of the requests of a connection

    def _reply_to_change(self, fault: str | None, exchange: Exchange) -> None:
        """Reply to a change after its sync, as over HTTP. ``fault`` is the reason why the change is not synced."""
        if fault is not None:
            exchange.succeeded, exchange.body = False, encode([fault])
        self._ready(exchange)

    def _ready(self, exchange: Exchange) -> None:
        exchange.ready = True
        connection = exchange.request.connection
        replies = self._replies[connection]
        while replies and replies[0].ready:
            self._send(replies.popleft())
        if not self._replies.get(connection, True):  # ``request.done`` may have begun a new list of replies
            del self._replies[connection]

    def _send(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.reply_to is not None:
            headers = {SUCCEEDED: b"true" if exchange.succeeded else b"false"}
            correlation = request.headers.get(b"correlation-id")
            if correlation is not None:
                headers[b"correlation-id"] = correlation
            if not send_reply(self._context.broker, request.reply_to, headers, exchange.body):
                log.debug("management reply to %s not routed", request.reply_to.address)
        request.done(exchange.changes)


class Exchange:
    """One request and its reply. ``text`` and ``fields`` describe the request in the log."""

    changes = False  # whether the operation changes something: its reply waits for the sync
    ready = False  # whether the reply may be sent
    succeeded = True
    body = b""
    operation: Operation | None = None

    def __init__(self, context: AdminContext, routes: Routes, request: ManagementRequest) -> None:
        self.context = context
        self.routes = routes
        self.request = request
        self.resource_name = request.text(RESOURCE) or ""
        self._values: list[Any] = []
        self.fields: dict[str, object] = {"peer": request.peer, "connection": request.connection}
        if request.login.user is not None:
            self.fields["user"] = request.login.user
        name = request.text(OPERATION) or request.text(ATTRIBUTE) or ""
        self.text = printable(f"{self.resource_name} {name}".strip(), MAX_REASON)

    def carry_out(self, views: re.Pattern[str]) -> Steps:
        """The result as JSON; `NOTHING` for an operation without one. Raises `Refused`."""
        request = self.request
        operation, attribute = request.text(OPERATION), request.text(ATTRIBUTE)
        kind, name = find_resource(self.resource_name)
        if kind in ("queue", "address"):
            self.fields[kind] = name
        if operation is not None:
            self._values = read_parameters(request.body)
            self.operation = found = find_operation(kind, operation, self._values)
            self.changes = found.changes
            self._check_permission(found.name, views)
            return (
                yield from result_of(
                    found.function(Target(self.context, self.routes, request, kind, name), *self._values)
                )
            )
        if attribute is None:
            raise Refused("The request has neither _AMQ_OperationName nor _AMQ_Attribute")
        attribute = find_attribute(kind, attribute)
        result = yield from Target(self.context, self.routes, request, kind, name).attribute(attribute)
        # the type of the value determines the name of the method
        self._check_permission(f"{'is' if isinstance(result, bool) else 'get'}{attribute}", views)
        return result

    def _check_permission(self, method: str, views: re.Pattern[str]) -> None:
        """``management-message-rbac``: view or edit on the address of the operation. Raises `Refused`."""
        settings = self.context.configuration
        if settings.management_message_rbac:
            self.request.login.authorizer.check(
                PermissionType.VIEW if views.match(method) else PermissionType.EDIT,
                f"{settings.management_rbac_prefix}.{self.resource_name}.{method}",
            )

    def log(self, error: str | None) -> None:
        """Write the log line of a change, and send its notification."""
        broker, request = self.context.broker, self.request
        assert self.operation is not None
        secret = self.operation.secret
        shown = [HIDDEN if index in secret else value for index, value in enumerate(self._values)]
        parameters = printable(encode(shown).decode(), MAX_BODY) if shown else ""
        result = "" if error is None and len(self.body) > MAX_RESULT else self.body.decode()
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
    """Read the parameters of an operation: a JSON array, or an empty body for none. Raises `Refused`."""
    if not body.strip():
        return []
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise Refused(f"The body must be a JSON array of parameters: {fault}") from None
    if not isinstance(values, list):
        raise Refused('The body must be a JSON array of parameters, such as [] or ["orders", true]')
    return values
