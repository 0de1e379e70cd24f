"""Routes of the HTTP API: their requests with fields and parameters, answers and errors.

Access to them: the checks of Origin, Host and login, and the permissions that each route requires.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, wraps
from http import HTTPStatus
from io import BytesIO
from itertools import pairwise
from operator import itemgetter
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from stompring.broker.directory import Directory, PermissionCheck, allow_all
from stompring.broker.queue import Queue
from stompring.errors import LimitReached, NotFound, Refused
from stompring.session.connect import Credentials, Login
from stompring.session.destination import ALLOW_ALL, Authorizer
from stompring.settings.document import with_suggestion
from stompring.settings.model import PermissionType, RoutingType, camel_case
from stompring.settings.network import host_name, is_local, is_loopback

from .context import ITEMS_PER_STEP, AdminContext, Security, result_of
from .json_schema import TEXT, Component, Field, Fields, JsonObject, Schema, Thing, object_of, page_of

JSON = "application/json"
PROBLEM = "application/problem+json"
LINES = "application/x-ndjson"


class Answer(NamedTuple):
    """An answer with its whole body, or with an iterator of pieces.

    The iteration pauses for the reactor at an empty piece, and at a Deferred until it fires.
    """

    body: bytes | Iterator[Any] = b""
    status: int = 200
    content_type: str | None = JSON
    headers: Mapping[str, str] = {}


#: The work of a long request: a generator whose result is the answer, or its `Json`. It pauses for the reactor at each
#: ``yield``, and at a Deferred until it fires.
Steps = Generator[Any, None, Any]


class Problem(Refused):
    """A rejection that adds headers, and members of the problem document, to the answer."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] = {}, **members: object) -> None:
        super().__init__(reason, status)
        self.headers = headers
        self.members = members


def invalid(name: str, reason: str) -> Problem:
    """Return the error 400 for one field of a body."""
    return Problem(400, f"{name} {reason}", field=name)


def as_json(value: Any) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """A value as JSON in UTF-8; lone surrogates become ``?``."""
    return as_json(value).encode("utf-8", "replace")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] = {}) -> Answer:
    """Return an answer whose body is one JSON value."""
    return Answer(encode(value), status, headers=headers)


#: Time limit in seconds for the sync of a change to disk. After that the answer to the change is an error.
SYNC_TIME = 10.0


def synced(context: AdminContext) -> Deferred[str | None]:
    """Return a Deferred that fires with None when all changes are synced, or after `SYNC_TIME` with the text of an
    error: the change is not synced, and why.
    """

    def not_synced(_: object, seconds: float) -> str:
        failing = None if context.store is None else context.store.writer.failing
        cause = failing or f"not synced within {seconds:.0f} seconds"
        return (
            f"The change is in effect, but not on disk: {cause}. It is written when the disk accepts writes; a crash "
            "before that loses it"
        )

    outcome: Deferred[str | None] = Deferred()
    context.broker.storage.when_synced(lambda: outcome.callback(None))
    return outcome if outcome.called else outcome.addTimeout(SYNC_TIME, context.reactor, not_synced)


def named(call: Call, things: Mapping[str, Thing], kind: str, part: str = "name") -> Thing:
    """Return the object that the path names. ``kind``: its kind in the text of the error. Raises `NotFound`."""
    name = call.names[part]
    if name not in things:
        raise NotFound(f"{kind} {name} does not exist")
    return things[name]


def created(value: Any, kind: str, name: str) -> Answer:
    """Return the answer 201 with a new object. ``kind``: segment of its path, such as ``queues``."""
    return json_answer(value, 201, {"Location": f"/api/v1/{kind}/{quote(name, safe='')}"})


NO_CONTENT = Answer(status=204, content_type=None)


def problem_answer(refused: Refused, instance: str) -> Answer:
    """A rejection as ``application/problem+json``: type, title, status, detail, instance, and its own members."""
    status = HTTPStatus(refused.status)
    problem = refused if isinstance(refused, Problem) else Problem(status, str(refused))
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": str(refused),
        "instance": instance,
        **problem.members,
    }
    return Answer(encode(document), int(status), PROBLEM, problem.headers)


class Query:
    """The parameters of a query. A repeated name is rejected unless it ends in ``[]``."""

    def __init__(self, text: str) -> None:
        try:
            self.pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
        except UnicodeDecodeError:
            raise Problem(400, "The query is not UTF-8") from None
        except ValueError:
            raise Problem(400, "The query has more than 100 parameters") from None
        self.names = [name for name, _ in self.pairs]
        for name in self.names:
            if self.names.count(name) > 1 and not name.endswith("[]"):
                raise Problem(400, f"Parameter {name!r} is given more than once", parameter=name)

    def text(self, name: str) -> str | None:
        """The value of a parameter, None without it."""
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[str]:
        """The values of a parameter that may be repeated."""
        return [value for key, value in self.pairs if key == name]

    def number(self, name: str, default: int, least: int, most: int | None = None) -> int:
        """A parameter with a whole number from ``least`` to ``most``. Raises 400."""
        text = self.text(name)
        if text is None:
            return default
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise Problem(400, f"{name} must be a whole number {bounds}, not {text!r}", parameter=name)
        return value

    def choice(self, name: str, values: Sequence[str]) -> str | None:
        """The value of a parameter, which must be in ``values``; None without it. Raises 400."""
        text = self.text(name) or None
        if text is not None and text not in values:
            raise Problem(400, f"{name} must be one of {', '.join(values)}, not {text!r}", parameter=name)
        return text

    def flag(self, name: str) -> bool:
        """A parameter that is ``true`` or ``false``; a missing one is ``false``. Raises 400."""
        text = self.text(name)
        if text not in (None, "true", "false"):
            raise Problem(400, f"{name} must be true or false, not {text!r}", parameter=name)
        return text == "true"


#: Maximum length of a body in bytes. A body contains a few attributes; the longest is a selector of 8 KiB.
BODY_LIMIT = 1024 * 1024

#: Bytes of a body that are read and discarded, so that the client receives the 413; then the connection is closed.
DISCARD_LIMIT = 16 * BODY_LIMIT

#: Maximum number of characters of an integer in JSON. Valid values have up to 19; int() rejects 4301 digits.
MAX_DIGITS = 40


class LimitedBody(BytesIO):
    """A body of at most `BODY_LIMIT` bytes. ``length`` is the number of bytes received, which may be more."""

    length = 0

    def write(self, data: Any, /) -> int:
        """Append bytes. Bytes that would exceed the limit are counted and dropped."""
        self.length += len(data)
        if self.length <= BODY_LIMIT:
            super().write(data)
        return len(data)


def check_content_type(content_type: str | None, body: LimitedBody, expected: str) -> None:
    """Raise 415 for a body that is not ``expected`` (JSON, or JSON lines), 413 for one that is too long.

    An HTML form always sends another type, even without fields, so a form of a page of another site is rejected.
    """
    if content_type is None and not body.length:
        return
    media_type, _, parameters = (content_type or "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if media_type.strip().lower() != expected or charset not in ("", "utf-8"):
        given = f"is {content_type}" if content_type else "is missing"
        raise Problem(
            415, f"Content-Type {given}: the body must be {expected} in UTF-8", {"Accept": expected}
        )
    if body.length > BODY_LIMIT:
        raise LimitReached(f"The body is longer than {BODY_LIMIT} bytes", "http-body", 413)


def read_object(raw: bytes) -> JsonObject:
    """Return the JSON object in a body; an empty body is an empty object. Raises 400 with the position of the fault."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as fault:
        raise Problem(400, f"The body is not UTF-8 at byte {fault.start}") from None
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant, parse_int=_whole)
    except json.JSONDecodeError as fault:
        raise Problem(
            400,
            f"The body is not JSON: {fault.msg} at line {fault.lineno} column {fault.colno}",
            line=fault.lineno,
            column=fault.colno,
        ) from None
    except RecursionError:
        raise Problem(400, "The body is not valid JSON: nested too deeply") from None
    except ValueError as fault:
        raise Problem(400, f"The body is not valid JSON: {fault}") from None
    if not isinstance(value, dict):
        raise Problem(400, "The body must be a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    found: JsonObject = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"duplicate member {name!r}")
        found[name] = value
    return found


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} characters")
    return int(text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


#: Converts the value of the named field, or raises 400.
Reader = Callable[[str, Any], Any]


def text(name: str, value: Any) -> str:
    """Check that a value is a string that UTF-8 can encode. Raises 400."""
    if not isinstance(value, str):
        raise invalid(name, f"must be a string, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(name, "contains a lone surrogate, which is not a character") from None
    return value


def text_or_none(name: str, value: Any) -> str | None:
    """Check that a value is a string or null."""
    return None if value is None else text(name, value)


def flag(name: str, value: Any) -> bool:
    """Check that a value is true or false."""
    if not isinstance(value, bool):
        raise invalid(name, f"must be true or false, not {_shown(value)}")
    return value


def number(least: int, name: str, value: Any) -> int:
    """Check that a value is a whole number of at least ``least``, or -1 for \"not set\"."""
    right = isinstance(value, int) and not isinstance(value, bool)
    if not right or value >= 1 << 63 or (value < least and value != -1):
        raise invalid(name, f"must be -1 or a whole number of at least {least}, not {_shown(value)}")
    return int(value)


Word = TypeVar("Word", bound=StrEnum)


def choice(kind: type[Word], name: str, value: Any) -> Word:
    """Check that a value is a member of the enum ``kind``, in capitals."""
    if value not in list(kind):
        raise invalid(name, f"must be {' or '.join(kind)}, not {_shown(value)}")
    return kind(value)


def choices(kind: type[Word], name: str, value: Any) -> frozenset[Word]:
    """Check that a value is a list of one or more members of the enum ``kind``."""
    if not isinstance(value, list) or not value:
        raise invalid(name, f"must be a list of {' or '.join(kind)}, not {_shown(value)}")
    return frozenset(choice(kind, name, item) for item in value)


def read_fields(body: JsonObject, fields: Mapping[str, BodyField]) -> JsonObject:
    """Return the checked values in ``body``, by the attribute that each sets. Raises 400."""
    return {each.attribute: each.read(name, body[name]) for name, each in fields.items() if name in body}


def required(body: JsonObject, name: str) -> str:
    """Return the string in the required field ``name`` of a body. Raises 400."""
    if name not in body:
        raise invalid(name, "is missing")
    return text(name, body[name])


def optional(body: JsonObject, name: str) -> str | None:
    """Return the string in the field ``name`` of a body, None without one. Raises 400."""
    return text_or_none(name, body.get(name))


def routing_type(body: JsonObject) -> RoutingType | None:
    """The routing type in a body, None without one. Raises 400."""
    return choice(RoutingType, "routingType", body["routingType"]) if "routingType" in body else None


def message_number(identifier: str, queue_number: int) -> int:
    """The number in a message's id: ``QUEUE-NUMBER`` as its consumers see it, or the number alone. Raises 404."""
    queue, dash, number_text = identifier.rpartition("-")
    if (dash and queue != str(queue_number)) or not (number_text.isascii() and number_text.isdigit()):
        raise Problem(404, f"This queue has no message {identifier!r}")
    return int(number_text[:20])


def _shown(value: Any) -> str:
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


class Call(NamedTuple):
    """A request to a route, without its HTTP parts."""

    context: AdminContext
    names: dict[str, str]  # the parts of the path that are names, decoded
    query: Query
    body: JsonObject
    accept: str = ""
    user: str | None = None  # None if security is disabled
    authorizer: Authorizer = ALLOW_ALL  # permissions of the user
    peer: str = ""  # address and port of the client
    raw: bytes = b""  # the body, if not one JSON object
    last_event_id: str | None = None  # header Last-Event-ID of a client that continues a stream

    @property
    def directory(self) -> Directory:
        """The addresses and queues of the broker."""
        return self.context.broker.directory


class Parameter(NamedTuple):
    """A parameter of the path or the query. ``component`` is its name in the OpenAPI document, if different."""

    name: str
    description: str
    schema: Schema = TEXT
    where: str = "query"
    component: str = ""


class Body(NamedTuple):
    """The JSON object that a request carries."""

    fields: Mapping[str, Schema]
    required: tuple[str, ...] = ()
    name: str = ""  # name of the OpenAPI component; empty: the schema is part of the operation
    optional: bool = False  # whether a request without a body is valid


class Response(NamedTuple):
    """A possible answer of a route."""

    description: str
    schema: Schema | Component | None = None  # None: no body
    content_types: tuple[str, ...] = (JSON,)
    headers: tuple[str, ...] = ()
    status: int = 0  # HTTP status; 0 stands for 200, or for 204 without a schema


def created_response(description: str, schema: Component) -> Response:
    """The answer with a new object, whose path is in the header Location."""
    return Response(description, schema, headers=("Location",), status=201)


@dataclass(frozen=True)
class Route:
    """One method of one path, with its description in the OpenAPI document.

    ``{name}`` in the path stands for any text. `openapi` adds the common errors: 400, 401 and 403; 404 if the path has
    a name; 413 and 415 if the route takes a body; 429; 503 if a change is not synced.
    """

    method: str
    path: str
    answer: Callable[[Call], Answer | Steps]
    permissions: PermissionRule  # required if security is enabled
    operation: str  # the operationId
    summary: str
    description: str
    responses: Mapping[int, Response]
    parameters: tuple[Parameter, ...] = ()
    filters: Fields[Any] = field(default_factory=dict)  # fields of a list, each also a query parameter
    body: Body | None = None
    errors: tuple[int, ...] = ()
    public: bool = False  # whether a request without a login is answered
    secret: frozenset[str] = frozenset()  # fields of the body that the log must not show
    body_type: str = JSON  # content type of the body; ``Call.raw`` has a body other than JSON

    @cached_property
    def query_names(self) -> frozenset[str]:
        """The parameters of the query."""
        return frozenset(
            (*(parameter.name for parameter in self.parameters if parameter.where == "query"), *self.filters)
        )

    @property
    def changes(self) -> bool:
        """Whether the route changes something: it takes a body, and its answer waits until the change is on disk."""
        return self.method != "GET"

    @property
    def fields(self) -> Mapping[str, Schema]:
        """The fields of the body."""
        return {} if self.body is None else self.body.fields

    def check(self, call: Call) -> None:
        """Raise 403 if the user lacks a permission, 400 for unknown parameters and fields, which may be misspelt."""
        if not manages(call.authorizer):
            for permission, address, queue in self.permissions.required(call):
                call.authorizer.check(permission, address, queue)
        for name in call.query.names:
            if name not in self.query_names:
                raise Problem(
                    400,
                    with_suggestion(f"Unknown parameter {name!r}", name, self.query_names),
                    parameter=name,
                )
        for name in call.body:
            if name not in self.fields:
                raise Problem(400, with_suggestion(f"Unknown field {name!r}", name, self.fields), field=name)


#: The errors of a route that may conflict with the state of the broker.
CONFLICT = (409,)

#: The result of a handler: a value to encode as JSON, or None for an answer without a body.
Json = Any

Handler = Callable[[Call], Answer | Steps | Json]


def _as_answer(value: Answer | Json) -> Answer:
    if isinstance(value, Answer):
        return value
    return NO_CONTENT if value is None else json_answer(value)


def _finish(steps: Steps) -> Steps:
    return _as_answer((yield from steps))


def route(
    where: str,
    permissions: PermissionRule,
    *responses: Response,
    description: str = "",
    parameters: tuple[Parameter, ...] = (),
    **more: Any,
) -> Callable[[Handler], Route]:
    """Make a function the route of a method and a path; ``more`` are attributes of `Route`.

    The operationId is the name of the function, without ``show_``. The first paragraph of its docstring is the summary,
    and the rest is appended to ``description``.
    """
    method, path = where.split(" ")
    in_path = [IN_PATH.get(kind, NAME) for kind, part in pairwise(path.split("/")) if part.startswith("{")]

    def make(handler: Handler) -> Route:
        def answer(call: Call) -> Answer | Steps:
            outcome = handler(call)
            return _finish(outcome) if isinstance(outcome, GeneratorType) else _as_answer(outcome)

        summary, _, rest = (handler.__doc__ or "").partition("\n\n")
        return Route(
            method,
            path,
            answer,
            permissions,
            camel_case(handler.__name__.removeprefix("show_")),
            " ".join(summary.split()),
            " ".join((*description.split(), *rest.split())),
            {each.status or (204 if each.schema is None else 200): each for each in responses},
            (*in_path, *parameters),
            **more,
        )

    return make


class Routes:
    """All routes, by the segments of their paths. A path matches at most one route."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all = tuple(routes)
        self.operations = {each.operation: each for each in self.all}
        self._paths: dict[tuple[str, ...], dict[str, Route]] = {}
        for each in self.all:
            self._paths.setdefault(tuple(each.path[1:].split("/")), {})[each.method] = each

    def find(self, method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
        """Return the route and the names in its path; for HEAD the route of GET.

        Raises 404 for an unknown path, 405 with the allowed methods for another method.
        """
        path = next((path for path in self._paths if _matches(path, segments)), None)
        if path is None:
            raise NotFound(f"Path /{'/'.join(segments)} does not exist")
        methods = self._paths[path]
        found = methods.get("GET" if method == "HEAD" else method)
        if found is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise Problem(
                405,
                f"Method {method} is not supported by this path; supported: {allowed}",
                {"Allow": allowed},
            )
        return found, {
            part[1:-1]: segment for part, segment in zip(path, segments, strict=True) if part[:1] == "{"
        }


def _matches(path: tuple[str, ...], segments: list[str]) -> bool:
    return len(path) == len(segments) and all(
        part == segment or (part[:1] == "{" and segment != "")
        for part, segment in zip(path, segments, strict=True)
    )


#: Default and maximum of items per page.
PAGE_SIZE = 200
MAX_PAGE_SIZE = 1000

NAME = Parameter("name", "A name, percent-encoded: / is %2F.", where="path")
MESSAGE_ID = Parameter(
    "id", "The messageID, or its part after the dash.", where="path", component="messageID"
)

#: Path parameters other than `NAME`, by the segment of the path before each.
IN_PATH = {
    "messages": MESSAGE_ID,
    "scheduled": MESSAGE_ID,
    "tasks": Parameter("id", "The taskID.", where="path", component="taskID"),
    "connections": Parameter(
        "id", "The connectionID, or the client-id.", where="path", component="connectionID"
    ),
    **{
        kind: Parameter("name", "The match, percent-encoded: # is %23.", where="path", component="match")
        for kind in ("address-settings", "security-settings")
    },
    "loggers": Parameter("name", "Name of the logger, or root.", where="path", component="loggerName"),
}
PAGE = Parameter("page", "Number of the page, from 1.", {"type": "integer", "minimum": 1, "default": 1})
SIZE = Parameter(
    "size",
    "Maximum number of items per page.",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": PAGE_SIZE},
)
SEARCH = Parameter(
    "search",
    "Only items whose name contains this text, ignoring case. Connections: whose connectionID contains it; consumers: "
    "whose queue.",
)
SORT = Parameter("sort", "Field to sort by; a leading - sorts descending. Default: order of creation.")
FORCE = Parameter("force", "Also delete what depends on it.", {"type": "boolean", "default": False})


#: Parameters of every list, in addition to its fields.
LISTING = (PAGE, SIZE, SEARCH, SORT)


class BodyField(NamedTuple):
    """A field of a body: the attribute that it sets, how it is checked, and its schema."""

    attribute: str
    read: Reader
    schema: Schema


def view(thing: Thing, fields: Fields[Thing]) -> JsonObject:
    """Return the values of these fields for a thing, as a JSON object."""
    return {name: field.read(thing) for name, field in fields.items()}


def paging(query: Query, size: int = PAGE_SIZE, most: int = MAX_PAGE_SIZE) -> tuple[int, int]:
    """The parameters ``page`` (from 1) and ``size``. Raises 400."""
    return query.number("page", 1, 1), query.number("size", size, 1, most)


def page_answer(items: list[bytes], count: int, page: int, size: int) -> Answer:
    """One page of encoded items; ``count`` is the number of items on all pages."""
    return Answer(b'{"data":[%b],"count":%d,"page":%d,"size":%d}' % (b",".join(items), count, page, size))


def paged(query: Query, things: Sequence[Thing], fields: Fields[Thing], searched: str) -> Steps:
    """A page of things, in the order given.

    ``search`` selects the things whose field ``searched`` contains a text (upper or lower case); a parameter with the
    name of a field selects the things with this value of the field. ``sort`` is a field, with ``-`` before it for
    descending order. Raises 400.
    """
    page, size = paging(query)
    keep, order = _filter(query, fields, searched), _order(query, fields)
    selected = things
    if keep is not None or order is not None:
        found: list[tuple[Any, Thing]] = []
        for index, thing in enumerate(things):
            if keep is None or keep(thing):
                value = None if order is None else order.read(thing)
                found.append(((value is not None, value), thing))
            if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
                yield
        if order is not None:
            found.sort(key=itemgetter(0), reverse=(query.text("sort") or "").startswith("-"))
        selected = [thing for _, thing in found]
    items = []
    for index, thing in enumerate(selected[(page - 1) * size : page * size]):
        items.append(encode(view(thing, fields)))
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    return page_answer(items, len(selected), page, size)


#: The work of a handler of `listing` in time slices; its result is the things.
Listed = Generator[Any, None, Sequence[Thing]]

Lister = Callable[[Call], Sequence[Thing] | Listed[Thing]]


def listing(
    path: str,
    permissions: PermissionRule,
    plural: str,
    item: str,
    fields: Fields[Thing],
    searched: str = "name",
    unfiltered: tuple[str, ...] = (),
    **more: Any,
) -> Callable[[Lister[Thing]], Route]:
    """Make a function a route that lists the things that it returns, in pages; see `paged` and `route`.

    ``item`` names the schema of one thing. Each field filters the list as a parameter, except those in ``unfiltered``.
    """

    def make(handler: Lister[Thing]) -> Route:
        @wraps(handler)
        def answer(call: Call) -> Steps:
            things: Sequence[Thing] = yield from result_of(handler(call))
            return (yield from paged(call.query, things, fields, searched))

        return route(
            f"GET {path}",
            permissions,
            Response(f"One page of {plural}.", page_of(object_of(item, fields))),
            parameters=LISTING,
            filters={name: each for name, each in fields.items() if name not in unfiltered},
            **more,
        )(answer)

    return make


def _filter(query: Query, fields: Fields[Thing], searched: str) -> Callable[[Thing], bool] | None:
    wanted = [(fields[name].read, value) for name, value in query.pairs if name in fields]
    text = (query.text("search") or "").lower()
    if not wanted and not text:
        return None
    name_of = fields[searched].read

    def keep(thing: Thing) -> bool:
        return (not text or text in name_of(thing).lower()) and all(
            _has(read(thing), want) for read, want in wanted
        )

    return keep


def _has(value: object, want: str) -> bool:
    """Whether the JSON of a value, without quotes, is ``want``. For a list: whether this holds for an item."""
    if isinstance(value, str):
        return value == want
    if isinstance(value, list):
        return want in value
    return json.dumps(value) == want


def _order(query: Query, fields: Fields[Thing]) -> Field[Thing] | None:
    """Return the field by which the list is sorted, None for the default order. Raises 400."""
    sort = query.text("sort")
    if not sort:
        return None
    name = sort.removeprefix("-")
    if name not in fields:
        raise Problem(400, f"sort: unknown field {name!r}", parameter="sort")
    return fields[name]


def check_origin(origin: str | None, host: str | None) -> None:
    """Reject requests of pages of other sites (403).

    A browser on the broker's machine runs scripts of any site. Such a script cannot read an answer of the broker, but
    could delete a queue; the ``Origin`` header that browsers add identifies its request.
    """
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == (host or "").strip().lower() != ""
    except ValueError:
        same = False
    if not same:
        raise Problem(403, f"Origin {origin} is not allowed: it differs from the Host header")


#: Headers of every answer. Cross-Origin-Resource-Policy: a browser gives no answer, whatever its status, to a page of
#: another origin that loads the URL as a picture or a script.
ANSWER_HEADERS = {
    "Server": "stompring",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}

#: Values of Sec-Fetch-Site for requests of pages of another origin. The port is part of an origin, not of a site: the
#: broker is same-site for a page of another program on localhost.
OTHER_ORIGINS = ("cross-site", "same-site")


def check_fetch_site(site: str | None) -> None:
    """Reject requests that a browser makes for a page of another origin (403).

    Browsers send ``Sec-Fetch-Site`` also without ``Origin``: for pictures, scripts, frames and links. The browser may
    add a stored password, and the success of such a request would reveal to the page whether a queue exists. Programs
    do not send the header; it is ``none`` for an address that a person has typed.
    """
    if site in OTHER_ORIGINS:
        raise Problem(
            403,
            f"Sec-Fetch-Site {site} is not allowed: a page of another origin has made this request; open the address "
            "itself, or the console",
        )


def check_host(host: str | None, listens_on: str) -> None:
    """Reject a request (403) if the listener has a loopback address and ``Host`` does not name this machine.

    A site can let its own name resolve to 127.0.0.1 (DNS rebinding). Its pages then have the origin of the listener,
    but ``Host`` contains the name of the site.
    """
    if host and is_loopback(listens_on) and not is_local(host_name(host)):
        raise Problem(
            403, f"Host {host} is not allowed: this listener accepts localhost and loopback addresses only"
        )


#: Seconds after which a client whose login was throttled may retry (Retry-After).
RETRY = 5


def check_login(
    security: Security | None, authorization: str | None, host: str, certificate: str | None
) -> Deferred[Login] | None:
    """Return a Deferred with the login of a request, which fails with 401 or 429; None if security is disabled.

    ``host`` is the address of the client, ``certificate`` the subject of its certificate. Only a restart enables or
    disables security, for HTTP as for STOMP.
    """
    if security is None:
        return None
    by_certificate = authorization is None and certificate is not None
    user: str | None
    password: str | None
    user, password = (None, None) if by_certificate else _credentials(authorization)
    return security.logins.log_in(Credentials(user, password, host, certificate)).addErrback(_refusal)


def _refusal(failure: Failure) -> Failure:
    refused = failure.value
    if isinstance(refused, Refused):
        if refused.status == 401:
            return Failure(_login(str(refused)))
        if refused.status in (429, 503):
            return Failure(Problem(429, str(refused), {"Retry-After": str(RETRY)}))
    return failure


def _credentials(authorization: str | None) -> tuple[str | None, str]:
    if authorization is None:
        raise _login(
            "Login required: security is enabled; send user and password with HTTP Basic authentication, or a token "
            "with Bearer"
        )
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return None, encoded.strip()
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""  # nosec B105
    if scheme.lower() != "basic" or not colon:
        raise _login("Invalid Authorization header: expected Basic with base64 of USER:PASSWORD in UTF-8")
    return user, password


def _login(reason: str) -> Problem:
    return Problem(401, reason, {"WWW-Authenticate": 'Basic realm="stompring", charset="UTF-8"'})


#: The address whose security-settings apply to the broker as a whole, like Artemis's management address.
MANAGEMENT = "activemq.management"

#: Permissions, each with its address, and its queue or None.
RequiredPermissions = Iterator[tuple[PermissionType, str, str | None]]


#: Yields the permissions that a request requires.
Requirements = Callable[[Call], RequiredPermissions]


class PermissionRule(NamedTuple):
    """The permissions that a route requires: a text for people, and a function that yields them for one request."""

    text: str
    required: Requirements


def permission_rule(text: str) -> Callable[[Requirements], PermissionRule]:
    """Turn a function that yields the required permissions of a request into a rule."""
    return lambda required: PermissionRule(text, required)


def _rule(
    where: str,
    target: Callable[[Call], tuple[str, str | None]],
    *permissions: PermissionType,
    more: str = "",
) -> PermissionRule:
    """Return the rule that requires permissions on one address. ``more``: text about permissions that the route itself
    checks.
    """

    def required(call: Call) -> RequiredPermissions:
        address, queue = target(call)
        for permission in permissions:
            yield permission, address, queue

    return PermissionRule(f"{' and '.join(permissions)} on {where}{more}", required)


def _unless_own(rule: PermissionRule) -> PermissionRule:
    """Return a rule that requires nothing for a task of the same user, and what ``rule`` requires for another task."""

    @permission_rule(f"{rule.text}; none for the user's own tasks")
    def required(call: Call) -> RequiredPermissions:
        try:
            own = call.user is not None and call.context.tasks.find(call.names["id"]).user == call.user
        except Refused:
            own = False
        if not own:
            yield from rule.required(call)

    return required


VIEW, EDIT, BROWSE, MANAGE = (
    PermissionType.VIEW,
    PermissionType.EDIT,
    PermissionType.BROWSE,
    PermissionType.MANAGE,
)


def manages(authorizer: Authorizer) -> bool:
    """Whether a user may do everything over HTTP."""
    return authorizer.allows_all or authorizer.allows(MANAGE, MANAGEMENT)


def permission_check(call: Call) -> PermissionCheck:
    """Return the check of permissions that a route's rule lacks, such as those on the addresses of sent messages."""
    return allow_all if manages(call.authorizer) else call.authorizer.check


def _queue(call: Call) -> tuple[str, str]:
    """The address and the name of the queue in the path; the address of a missing queue is its name."""
    name = call.names["name"]
    try:
        return call.directory.queue(name).address.name, name
    except Refused:
        return name, name


_BROKER = MANAGEMENT, lambda call: (MANAGEMENT, None)
_ADDRESS = "the address", lambda call: (call.names["name"], None)
_QUEUE = "the address of the queue", _queue

view_broker, edit_broker, manage_broker = (_rule(*_BROKER, each) for each in (VIEW, EDIT, MANAGE))
view_task, edit_task = _unless_own(view_broker), _unless_own(edit_broker)
view_address, edit_address = (_rule(*_ADDRESS, each) for each in (VIEW, EDIT))
view_queue, edit_queue, browse_queue = (_rule(*_QUEUE, each) for each in (VIEW, EDIT, BROWSE))
message_move = _rule(*_QUEUE, BROWSE, EDIT, more="; as for a SEND on the target")
message_copy = _rule(*_QUEUE, BROWSE, more="; as for a SEND on the target")
message_retry = _rule(*_QUEUE, EDIT, more="; as for a SEND on the original address of each message")


@permission_rule("none; any user")
def no_permission(call: Call) -> RequiredPermissions:
    yield from ()


@permission_rule("none for the own user; of another user manage on activemq.management")
def permissions_of_user(call: Call) -> RequiredPermissions:
    if call.query.text("user") not in (None, "", call.user):
        yield MANAGE, MANAGEMENT, None


@permission_rule("edit and createAddress on the address")
def address_creation(call: Call) -> RequiredPermissions:
    name = required(call.body, "name")
    yield EDIT, name, None
    yield PermissionType.CREATE_ADDRESS, name, None


@permission_rule(
    "edit and deleteAddress on the address; of each of its queues deleteDurableQueue or deleteNonDurableQueue"
)
def address_deletion(call: Call) -> RequiredPermissions:
    name = call.names["name"]
    yield EDIT, name, None
    yield PermissionType.DELETE_ADDRESS, name, None
    address = call.directory.addresses.get(name)
    for queue in list(address.queues.values()) if address is not None else ():
        yield _deletion(queue), name, queue.name


@permission_rule(
    "edit on the address of the queue; createDurableQueue or createNonDurableQueue on that address and on the address "
    "of the queue's name; createAddress for a new address"
)
def queue_creation(call: Call) -> RequiredPermissions:
    name = required(call.body, "name")
    address = text("address", call.body.get("address", name))
    durable = flag("durable", call.body.get("durable", True))
    yield EDIT, address, name
    if address not in call.directory.addresses:
        yield PermissionType.CREATE_ADDRESS, address, None
    made = PermissionType.CREATE_DURABLE_QUEUE if durable else PermissionType.CREATE_NON_DURABLE_QUEUE
    yield made, address, name


@permission_rule("edit and deleteDurableQueue or deleteNonDurableQueue on the address of the queue")
def queue_deletion(call: Call) -> RequiredPermissions:
    address, name = _queue(call)
    yield EDIT, address, name
    yield _deletion(call.directory.queues.get(name)), address, name


def _deletion(queue: Queue | None) -> PermissionType:
    durable = queue is None or queue.durable
    return PermissionType.DELETE_DURABLE_QUEUE if durable else PermissionType.DELETE_NON_DURABLE_QUEUE
