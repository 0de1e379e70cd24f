"""Access to the HTTP API: the checks of Origin, Host and login, and the permissions that each route requires."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from stompring.broker.auto_create import PermissionCheck, allow_all
from stompring.broker.queue import Queue
from stompring.errors import Refused
from stompring.session.connect import Credentials, Login
from stompring.session.permissions import Authorizer
from stompring.settings.model import PermissionType
from stompring.settings.network import host_name, is_local, is_loopback

from .api import Call, Problem, flag, required, text
from .context import Security


def check_origin(origin: str | None, host: str | None) -> None:
    """Reject requests of pages of other sites (403).

    A browser on the broker's machine runs scripts of any site. Such a script cannot read an answer of the broker, but
    could delete a queue blindly; the ``Origin`` header that browsers add identifies it.
    """
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == (host or "").strip().lower() != ""
    except ValueError:
        same = False
    if not same:
        raise Problem(403, f"Origin {origin} is not allowed: it differs from the Host header")


#: Headers of every answer. By Cross-Origin-Resource-Policy a browser gives no answer to a page of another origin that
#: loads it as a picture or a script, whatever its status.
ANSWER_HEADERS = {
    "Server": "stompring",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}

#: Values of Sec-Fetch-Site for requests of pages of another origin. The port is part of an origin, not of a site: to a
#: page of another program on localhost the broker is same-site.
OTHER_ORIGINS = ("cross-site", "same-site")


def check_fetch_site(site: str | None) -> None:
    """Reject requests that a browser makes for a page of another origin (403).

    Browsers tell so in ``Sec-Fetch-Site``, also where they send no ``Origin``: for pictures, scripts, frames and links.
    The browser may add a password that it knows, and whether such a request succeeds would tell the page whether a
    queue exists. Programs send no such header; for an address that a person has typed it is ``none``.
    """
    if site in OTHER_ORIGINS:
        raise Problem(
            403,
            f"Sec-Fetch-Site {site} is not allowed: a page of another origin has made this request; open the address "
            "itself, or the console",
        )


def check_host(host: str | None, listens_on: str) -> None:
    """A listener on a loopback address accepts names of this machine only (403).

    A site whose name resolves to 127.0.0.1 (DNS rebinding) has the same origin; its name in ``Host`` identifies it.
    """
    if not host or not is_loopback(listens_on):
        return
    if not is_local(host_name(host)):
        raise Problem(
            403, f"Host {host} is not allowed: this listener accepts localhost and loopback addresses only"
        )


#: Seconds after which a client whose login was throttled may retry (Retry-After).
RETRY = 5


class SecuritySource(Protocol):
    """What has security, or None while it is off."""

    @property
    def security(self) -> Security | None: ...


def check_login(
    context: SecuritySource, authorization: str | None, host: str, certificate: str | None = None
) -> Deferred[Login] | None:
    """The login of a request, or a failure with 401 or 429; ``None`` without security.

    ``host`` is where they are, ``certificate`` the subject of the one they showed. Whether there is security is as it
    was at the start, for this as for STOMP, whatever a reload has read since.
    """
    if context.security is None:
        return None
    user: str | None = None
    password: str | None = None
    if authorization is not None or certificate is None:
        user, password = _credentials(authorization)
    credentials = Credentials(user, password, host, certificate)
    return context.security.logins.log_in(credentials).addErrback(_refusal)


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
        raise _login(
            "Login required: security is enabled; send user and password with HTTP Basic authentication"
        )
    scheme, _, encoded = authorization.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""  # nosec B105
    if scheme.lower() != "basic" or not colon:
        raise _login("Invalid Authorization header: expected Basic with base64 of USER:PASSWORD in UTF-8")
    return user, password


def _login(reason: str) -> Problem:
    return Problem(401, reason, {"WWW-Authenticate": 'Basic realm="stompring", charset="UTF-8"'})


#: The address whose security-settings apply to the broker as a whole, as Artemis's management address.
MANAGEMENT = "activemq.management"

#: A permission, the address it must be on, and the queue, if it is about one.
RequiredPermission = tuple[PermissionType, str, str | None]


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """The permissions that a route requires: a text for people, and a function that yields those of one request."""

    text: str
    required: Callable[[Call], Iterator[RequiredPermission]]


def permission_rule(text: str) -> Callable[[Callable[[Call], Iterator[RequiredPermission]]], PermissionRule]:
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


def permission_check(call: Call) -> PermissionCheck:
    """The check of what a request creates or sends to beyond the permissions of its route."""
    authorizer = call.authorizer
    everything = authorizer.allows_all or authorizer.allows(MANAGE, MANAGEMENT)
    return allow_all if everything else authorizer.check


@permission_rule("none; any user")
def no_permission(call: Call) -> Iterator[RequiredPermission]:
    yield from ()


@permission_rule("view on activemq.management")
def view_broker(call: Call) -> Iterator[RequiredPermission]:
    yield VIEW, MANAGEMENT, None


@permission_rule("view on activemq.management; none for the user's own tasks")
def view_task(call: Call) -> Iterator[RequiredPermission]:
    if not _own_task(call):
        yield VIEW, MANAGEMENT, None


@permission_rule("edit on activemq.management; none for the user's own tasks")
def edit_task(call: Call) -> Iterator[RequiredPermission]:
    if not _own_task(call):
        yield EDIT, MANAGEMENT, None


def _own_task(call: Call) -> bool:
    try:
        return call.user is not None and call.context.tasks.find(call.names["id"]).user == call.user
    except Refused:
        return False


@permission_rule("browse and edit on the address of the queue; as for a SEND on the target")
def move_messages(call: Call) -> Iterator[RequiredPermission]:
    yield BROWSE, *_queue(call)
    yield EDIT, *_queue(call)


@permission_rule("browse on the address of the queue; as for a SEND on the target")
def copy_messages(call: Call) -> Iterator[RequiredPermission]:
    yield BROWSE, *_queue(call)


@permission_rule("edit on the address of the queue; as for a SEND on the original address of each message")
def retry_messages(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, *_queue(call)


@permission_rule("manage on activemq.management")
def import_messages(call: Call) -> Iterator[RequiredPermission]:
    yield MANAGE, MANAGEMENT, None


@permission_rule("edit on activemq.management")
def edit_broker(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, MANAGEMENT, None


@permission_rule("manage on activemq.management")
def manage_broker(call: Call) -> Iterator[RequiredPermission]:
    yield MANAGE, MANAGEMENT, None


@permission_rule("none for the own user; of another user manage on activemq.management")
def permissions_of_user(call: Call) -> Iterator[RequiredPermission]:
    if call.query.text("user") not in (None, "", call.user):
        yield MANAGE, MANAGEMENT, None


@permission_rule("view on the address")
def view_address(call: Call) -> Iterator[RequiredPermission]:
    yield VIEW, call.names["name"], None


@permission_rule("edit on the address")
def edit_address(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, call.names["name"], None


@permission_rule("edit and createAddress on the address")
def create_address(call: Call) -> Iterator[RequiredPermission]:
    name = required(call.body, "name")
    yield EDIT, name, None
    yield PermissionType.CREATE_ADDRESS, name, None


@permission_rule(
    "edit and deleteAddress on the address; of each of its queues deleteDurableQueue or deleteNonDurableQueue"
)
def delete_address(call: Call) -> Iterator[RequiredPermission]:
    name = call.names["name"]
    yield EDIT, name, None
    yield PermissionType.DELETE_ADDRESS, name, None
    address = call.context.broker.directory.addresses.get(name)
    for queue in list(address.queues.values()) if address is not None else ():
        yield _deletion(queue), name, queue.name


@permission_rule("view on the address of the queue")
def view_queue(call: Call) -> Iterator[RequiredPermission]:
    yield VIEW, *_queue(call)


@permission_rule("edit on the address of the queue")
def edit_queue(call: Call) -> Iterator[RequiredPermission]:
    yield EDIT, *_queue(call)


@permission_rule("browse on the address of the queue")
def browse_queue(call: Call) -> Iterator[RequiredPermission]:
    yield BROWSE, *_queue(call)


@permission_rule(
    "edit on the address of the queue; createDurableQueue or createNonDurableQueue on that address and on the address "
    "of the queue's name; createAddress for a new address"
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


@permission_rule("edit and deleteDurableQueue or deleteNonDurableQueue on the address of the queue")
def delete_queue(call: Call) -> Iterator[RequiredPermission]:
    address, name = _queue(call)
    yield EDIT, address, name
    queue = call.context.broker.directory.queues.get(name)
    yield PermissionType.DELETE_DURABLE_QUEUE if queue is None else _deletion(queue), address, name


def _queue(call: Call) -> tuple[str, str]:
    """The address and the name of the queue in the path; for a queue that does not exist its name is the address."""
    name = call.names["name"]
    try:
        return call.context.broker.directory.queue(name).address.name, name
    except Refused:
        return name, name


def _deletion(queue: Queue) -> PermissionType:
    durable = PermissionType.DELETE_DURABLE_QUEUE
    return durable if queue.durable else PermissionType.DELETE_NON_DURABLE_QUEUE
