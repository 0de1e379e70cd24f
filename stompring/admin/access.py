"""Access to the HTTP API: the checks of Origin, Host and login, and the permissions that each route requires."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from stompring.broker.queue import Queue
from stompring.errors import Refused
from stompring.session.connect import Credentials, Login
from stompring.session.permissions import Authorizer
from stompring.settings.acceptor_url import is_local, is_loopback
from stompring.settings.model import PermissionType
from stompring.settings.network import host_name

from .api import Call, Problem, flag, required, text
from .context import AdminContext


def check_origin(origin: str | None, host: str | None) -> None:
    """Refuse what a page from elsewhere asks for."""
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == (host or "").strip().lower() != ""
    except ValueError:
        same = False
    if not same:
        raise Problem(403, f"Requests of pages from {origin} are not answered (Origin header)")


def check_host(host: str | None, listens_on: str) -> None:
    """A listener that only this machine reaches answers to the names of this machine alone."""
    if not host or not is_loopback(listens_on):
        return
    if not is_local(host_name(host)):
        raise Problem(
            403, f"This listener is for this machine: it answers to localhost, not to {host} (Host header)"
        )


#: Seconds after which one who failed too often, or came while too many did, may try again.
RETRY = 5


def check_login(
    context: AdminContext, authorization: str | None, host: str, certificate: str | None = None
) -> Deferred[Login] | None:
    """``None`` where the broker runs without security; else who asks, or a failure of 401 or 429.

    ``host`` is where they are, ``certificate`` the subject of the one they showed. Whether there is security is as it
    was at the start, for this as for STOMP, whatever a reload has read since.
    """
    if context.security is None:
        return None
    user: str | None = None
    password: str | None = None
    if authorization is not None or certificate is None:
        user, password = _credentials(authorization)
    told = Credentials(user, password, host, certificate)
    return context.security.logins.log_in(told).addErrback(_refusal)


def _refusal(failure: Failure) -> Failure:
    refused = failure.value
    if not isinstance(refused, Refused):
        return failure
    if refused.status == 401:
        return Failure(_login(str(refused)))
    if refused.status in (429, 503):
        return Failure(Problem(429, str(refused), {"Retry-After": str(RETRY)}))
    return failure


def _credentials(authorization: str | None) -> tuple[str, str]:
    if authorization is None:
        raise _login("Security is on: this needs the name and password of a user of the broker")
    scheme, _, encoded = authorization.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""  # nosec B105
    if scheme.lower() != "basic" or not colon:
        raise _login("The Authorization header must be 'Basic' with base64 of USER:PASSWORD in UTF-8")
    return user, password


def _login(reason: str) -> Problem:
    return Problem(401, reason, {"WWW-Authenticate": 'Basic realm="stompring", charset="UTF-8"'})


#: Stands for the broker as a whole in security-settings, as Artemis's management address does.
MANAGEMENT = "activemq.management"

#: A permission, the address that it must be on, and the queue of that address where it is about one.
RequiredPermission = tuple[PermissionType, str, str | None]


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """The permissions that a route requires: a text for people, and what they are for one request."""

    text: str
    required: Callable[[Call], Iterator[RequiredPermission]]


def rule(text: str) -> Callable[[Callable[[Call], Iterator[RequiredPermission]]], PermissionRule]:
    """Make a rule of a function that yields the permissions that a request requires."""
    return lambda required: PermissionRule(text, required)


VIEW, EDIT, BROWSE, MANAGE = (
    PermissionType.VIEW,
    PermissionType.EDIT,
    PermissionType.BROWSE,
    PermissionType.MANAGE,
)


def check_permissions(authorizer: Authorizer, permissions: PermissionRule, call: Call) -> None:
    """Raise `Refused` (403) if a permission is missing."""
    if authorizer.allows_all or authorizer.allows(MANAGE, MANAGEMENT):
        return
    for permission, address, queue in permissions.required(call):
        authorizer.check(permission, address, queue)


@rule("none; any user")
def no_permission(call: Call) -> Iterator[RequiredPermission]:
    yield from ()


@rule("view on activemq.management")
def view_broker(call: Call) -> Iterator[RequiredPermission]:
    yield VIEW, MANAGEMENT, None


@rule("edit on activemq.management")
def edit_broker(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, MANAGEMENT, None


@rule("view on the address")
def view_address(call: Call) -> Iterator[RequiredPermission]:
    yield VIEW, call.names["name"], None


@rule("edit on the address")
def edit_address(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, call.names["name"], None


@rule("edit and createAddress on the address")
def create_address(call: Call) -> Iterator[RequiredPermission]:
    name = required(call.body, "name")
    yield EDIT, name, None
    yield PermissionType.CREATE_ADDRESS, name, None


@rule(
    "edit and deleteAddress on the address; of each of its queues deleteDurableQueue or deleteNonDurableQueue"
)
def delete_address(call: Call) -> Iterator[RequiredPermission]:
    name = call.names["name"]
    yield EDIT, name, None
    yield PermissionType.DELETE_ADDRESS, name, None
    address = call.context.broker.directory.addresses.get(name)
    for queue in list(address.queues.values()) if address is not None else ():
        yield _deletion(queue), name, queue.name


@rule("view on the address of the queue")
def view_queue(call: Call) -> Iterator[RequiredPermission]:
    yield VIEW, *_queue(call)


@rule("edit on the address of the queue")
def edit_queue(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, *_queue(call)


@rule("browse on the address of the queue")
def browse_queue(call: Call) -> Iterator[RequiredPermission]:
    yield BROWSE, *_queue(call)


@rule(
    "edit and createDurableQueue or createNonDurableQueue on the address of the queue; createAddress for a new address"
)
def create_queue(call: Call) -> Iterator[RequiredPermission]:
    name = required(call.body, "name")
    address = text("address", call.body["address"]) if "address" in call.body else name
    durable = flag("durable", call.body.get("durable", True))
    yield EDIT, address, name
    if address not in call.context.broker.directory.addresses:
        yield PermissionType.CREATE_ADDRESS, address, None
    made = PermissionType.CREATE_DURABLE_QUEUE if durable else PermissionType.CREATE_NON_DURABLE_QUEUE
    yield made, address, name


@rule("edit and deleteDurableQueue or deleteNonDurableQueue on the address of the queue")
def delete_queue(call: Call) -> Iterator[RequiredPermission]:
    address, name = _queue(call)
    yield EDIT, address, name
    queue = call.context.broker.directory.queues.get(name)
    yield PermissionType.DELETE_DURABLE_QUEUE if queue is None else _deletion(queue), address, name


def _queue(call: Call) -> tuple[str, str]:
    """The queue in the path and its address. One that is not there would most likely be on an address of its name."""
    name = call.names["name"]
    try:
        return call.context.broker.directory.queue(name).address.name, name
    except Refused:
        return name, name


def _deletion(queue: Queue) -> PermissionType:
    durable = PermissionType.DELETE_DURABLE_QUEUE
    return durable if queue.durable else PermissionType.DELETE_NON_DURABLE_QUEUE
