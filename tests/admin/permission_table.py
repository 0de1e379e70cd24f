"""Every operation of a client or an administrator, by the door it comes through, and the permissions that it needs.

`OPERATIONS` has the operations on an address or a queue: each is tried on each `Kind` of address. The tables of
`test_permissions` complete it; a test there fails for a command, a route or an operation that is in none of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stompring.admin.api import MANAGEMENT
from stompring.security.access import Permissions
from stompring.session.destination import FOR_OTHERS
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType, SecuritySettingEntry

from .admin_server import Reply, login_header, path, secured

P = PermissionType
BOTH = frozenset(RoutingType)
NOTIFICATIONS = "activemq.notifications"

#: Every permission but manage, which is on the management-address alone.
ALL = frozenset(P) - {P.MANAGE}


@dataclass(frozen=True)
class Kind:
    """One kind of address, with the match of the security-setting that decides about it."""

    name: str
    match: str
    address: str  # {connection} stands for the id of the other connection
    queue: str

    def __str__(self):
        return self.name


OWN = Kind("own", "work.#", "work", "work")
INTERNAL = Kind(
    "internal",
    "work.#",
    "$.artemis.internal.work.address.retro",
    "$.artemis.internal.work.queue.anycast.retro",
)
TEMPORARY = Kind("temporary", "temp-queue.#", "temp-queue.{connection}.t", "temp-queue.{connection}.t")
MANAGED = Kind("management", f"{MANAGEMENT}.#", MANAGEMENT, MANAGEMENT)
NOTIFIED = Kind("notifications", f"{NOTIFICATIONS}.#", NOTIFICATIONS, NOTIFICATIONS)
KINDS = (OWN, INTERNAL, TEMPORARY, MANAGED, NOTIFIED)
NOT_MANAGED = tuple(kind for kind in KINDS if kind is not MANAGED)


class Scene:
    """One broker with one address of each kind. On other addresses all users have every permission except manage."""

    def __init__(self, directory):
        self.server = secured(
            directory,
            dict.fromkeys(("anna", "bert", "root"), "x"),
            "anna = anna\neveryone = anna, bert, root\nroot = root\n",
            *entries(ALL),
            settings={"work.#": {"retroactive_message_count": 5}},
            management_message_rbac=True,
            file=str(directory / "broker.xml"),
        )
        self.directory = self.server.directory
        self.authority = self.server.service.security.authority
        self.owner = self.server.stomp(login="root", passcode="x")
        self.names = {}
        self.restore()

    def restore(self):
        """Restore all addresses and queues as before the first operation."""
        directory = self.directory
        if not self.owner.session.subscriptions:
            self.owner = self.server.stomp(login="root", passcode="x")
            self.owner.subscribe("/temp-queue/t", "t")
            assert self.owner.session.subscriptions, self.owner.received
        self.names = {"connection": self.owner.session.number}
        kept = {self.fill(kind.address) for kind in KINDS} | {"source", "free"}
        for name in [*directory.addresses]:
            if name not in kept:
                directory.delete_address(name, force=True)
        for name in ("source", "free", *(self.fill(kind.address) for kind in KINDS if kind is not INTERNAL)):
            if name not in directory.queues:
                directory.create_queue(QueueConfiguration(name, name, RoutingType.ANYCAST))
            address = directory.address(name)
            if address.routing_types != BOTH:
                directory.update_address(address, BOTH)
            durable = f"{self.kind_of(name)}.d"
            for queue in [*address.queues]:
                if queue not in (name, durable):
                    directory.delete_queue(queue, force=True)
            if durable not in directory.queues and name not in ("source", "free"):
                directory.create_queue(QueueConfiguration(durable, name, RoutingType.MULTICAST))
        assert self.fill(INTERNAL.queue) in directory.queues

    def state(self):
        """The state that refused operations must not change. (A refusal makes a notification.)"""
        queues = [queue for queue in self.directory.queues.values() if queue.address.name != NOTIFICATIONS]
        counts = {queue.name: (queue.message_count, queue.paused) for queue in queues}
        return set(self.directory.queues), set(self.directory.addresses), counts

    def kind_of(self, address):
        """The name of the kind of an address."""
        return next((kind.name for kind in KINDS if self.fill(kind.address) == address), address)

    def fill(self, text):
        """A name of the table with the id of the other connection."""
        return text.format(**self.names) if "{" in text else text

    # ---- the doors

    def grant(self, permissions):
        """Grant anna these permissions on each kind of address, and no others there."""
        self.authority.use(Permissions(entries(permissions)))

    def ask(self, method, where, body=None):
        """A request of anna over HTTP."""
        return self.server.ask(method, where, body, headers=login_header("anna", "x"))

    def connect(self, user="anna", client_id="c", websocket=False):
        """A connection over STOMP."""
        client = self.server.stomp(websocket, **{"login": user, "passcode": "x", "client-id": client_id})
        assert b"CONNECTED" in client.received, client.received
        return client

    def refused(self, act):
        """Whether the rule refuses an operation: it counts refusals, and an answer names the reason."""
        before = self.authority.rejections.total()
        found = act()
        by_rule = self.authority.rejections.total() != before
        if isinstance(found, Reply):
            failed = found.body.startswith(b'{"taskID"') and b'"failed":1' in found.body
            assert (found.status == 403) == by_rule or failed, (found.status, found.body)
            assert found.status < 500, found.body
            return by_rule or failed or (found.status == 400 and b" is internal: " in found.body)
        assert isinstance(found, bytes)
        told = b"does not have permission" in found or b"belongs to another connection" in found
        assert told == (by_rule and b"ERROR\nmessage:" in found), found
        return by_rule or b" is internal: " in found


def entries(permissions):
    """Security-settings by which anna has these permissions on the kinds of addresses, and all of them elsewhere."""
    granted = {each: frozenset(("root", "anna") if each in permissions else ("root",)) for each in P}
    matches = {*(kind.match for kind in KINDS), "mops.#"}
    return (
        SecuritySettingEntry("#", dict.fromkeys(ALL, frozenset(("everyone",)))),
        *(SecuritySettingEntry(match, granted) for match in sorted(matches)),
    )


@dataclass(frozen=True)
class Operation:
    """One operation: ``act`` tries it as anna on a kind of address; ``covers`` names it for completeness."""

    name: str
    needs: frozenset[PermissionType]
    act: Callable[[Scene, Kind], object]
    covers: object
    administration: bool  # through HTTP: manage on the management-address allows everything
    internal: bool  # whether internal addresses have it
    kinds: tuple[Kind, ...] = KINDS

    def __str__(self):
        return self.name

    def allowed(self, permissions, kind):
        """The rule."""
        if kind is INTERNAL and not self.internal:
            return False
        if self.administration and P.MANAGE in permissions:
            return True
        if kind is TEMPORARY and not self.needs - {P.MANAGE} <= FOR_OTHERS:
            return False
        return self.needs <= permissions


# ---- HTTP


def _http(method, route, *needs, body=None, query="", internal=True, note="", kinds=KINDS):
    """A route with the queue or the address as its ``{name}``; ``Q`` and ``A`` stand for them in the body."""

    def act(scene, kind):
        queue, address = scene.fill(kind.queue), scene.fill(kind.address)
        name = address if "/addresses/" in route else queue
        name = "source" if note and "/queues/" in route else name
        parts = [{"{name}": name, "{id}": "1"}.get(part, part) for part in route.split("/")[3:]]
        named = {"Q": queue, "A": address}
        filled = None if body is None else {key: named.get(str(value), value) for key, value in body.items()}
        return scene.ask(method, path(*parts) + query, filled)

    text = f"{method} {route}{query}{' ' + note if note else ''}"
    return Operation(text, frozenset(needs), act, (method, route), True, internal, kinds)


def _retry(scene, kind):
    """Of a dead letter that names the kind of address as its origin: an administrator has imported it."""
    client = scene.connect("root")
    client.send(
        "SEND",
        b"x",
        **{
            "destination": "source",
            "stompring-imported": "true",
            "_AMQ_ORIG_ADDRESS": scene.fill(kind.address),
            "_AMQ_ORIG_QUEUE": scene.fill(kind.queue),
        },
    )
    reply = scene.ask("POST", path("queues", "source", "retry"))
    scene.server.ask("POST", path("queues", "source", "purge"), headers=login_header("root", "x"))
    return reply


QUEUE, ADDRESS = "/api/v1/queues/{name}", "/api/v1/addresses/{name}"
HTTP = (
    *(
        _http(method, QUEUE + each, needed)
        for method, needed, routes in (
            ("GET", P.VIEW, ("", "/consumers", "/history", "/settings")),
            (
                "GET",
                P.BROWSE,
                ("/messages", "/messages/{id}", "/messages/{id}/body", "/scheduled", "/export"),
            ),
            (
                "POST",
                P.EDIT,
                ("/trim", "/groups/reset", "/remove", "/expire", "/dead-letter", "/purge", "/retry"),
            ),
            ("POST", P.EDIT, ("/scheduled/{id}/deliver",)),
            ("DELETE", P.EDIT, ("/messages/{id}", "/scheduled/{id}")),
            ("POST", P.MANAGE, ("/import",)),
        )
        for each in routes
    ),
    *(_http("GET", ADDRESS + each, P.VIEW) for each in ("", "/history", "/settings")),
    *(_http("PATCH", each, P.EDIT, body={"paused": False}) for each in (QUEUE, ADDRESS)),
    _http("POST", f"{QUEUE}/priority", P.EDIT, body={"priority": 9}),
    _http("POST", f"{QUEUE}/move", P.BROWSE, P.EDIT, body={"address": "free"}),
    _http("POST", f"{QUEUE}/copy", P.BROWSE, body={"address": "free"}),
    _http("DELETE", QUEUE, P.EDIT, P.DELETE_DURABLE_QUEUE, internal=False, kinds=KINDS[:2] + KINDS[3:]),
    _http("DELETE", QUEUE, P.EDIT, P.DELETE_NON_DURABLE_QUEUE, query="?force=true", kinds=(TEMPORARY,)),
    _http("POST", f"{ADDRESS}/forget-duplicates", P.EDIT),
    _http(
        "DELETE",
        ADDRESS,
        P.EDIT,
        P.DELETE_ADDRESS,
        P.DELETE_DURABLE_QUEUE,
        query="?force=true",
        internal=False,
        kinds=(OWN, INTERNAL, NOTIFIED, TEMPORARY),
    ),
    _http("POST", "/api/v1/addresses", P.EDIT, P.CREATE_ADDRESS, body={"name": "A"}, internal=False),
    _http(
        "POST",
        "/api/v1/queues",
        P.EDIT,
        P.CREATE_DURABLE_QUEUE,
        body={"name": "new", "address": "A"},
        internal=False,
    ),
    _http(
        "POST",
        "/api/v1/queues",
        P.EDIT,
        P.CREATE_NON_DURABLE_QUEUE,
        body={"name": "new", "address": "A", "durable": False},
        internal=False,
        note="that is not durable",
    ),
    _http(
        "POST",
        "/api/v1/queues",
        P.CREATE_DURABLE_QUEUE,
        body={"name": "Q", "address": "free"},
        internal=False,
        note="with the name of the queue",
    ),
    *(
        _http("POST", "/api/v1/messages", needed, body=body, internal=False, note=f"to {body}", kinds=kinds)
        for needed, kinds in ((P.SEND, NOT_MANAGED), (P.MANAGE, (MANAGED,)))
        for body in ({"address": "A"}, {"queue": "Q"})
    ),
    *(
        _http("POST", f"{QUEUE}/{what}", P.SEND, body=body, internal=False, note=f"to {body}")
        for what in ("move", "copy")
        for body in ({"address": "A"}, {"queue": "Q"})
    ),
    Operation("retry to the origin", frozenset((P.SEND,)), _retry, ("POST", f"{QUEUE}/retry"), True, False),
)

#: Routes about the broker as a whole, with the permission that they need on the management-address.
OF_THE_BROKER = {
    **{
        ("GET", f"/api/v1/{name}"): P.VIEW
        for name in (
            "broker broker/history queues addresses consumers connections connections/{id} connections/{id}/history "
            "diverts diverts/{name} bridges bridges/{name} events drain loggers tasks tasks/{id} plugins retention ha "
            "dead-letters security-settings address-settings address-settings/{name}"
        ).split()
    },
    ("GET", "/metrics"): P.VIEW,
    **{
        ("POST", f"/api/v1/{name}"): P.EDIT
        for name in (
            "reload drain undrain bridges/{name}/start bridges/{name}/stop bridges/{name}/pause bridges/{name}/resume"
        ).split()
    },
    ("DELETE", "/api/v1/connections/{id}"): P.EDIT,
    ("DELETE", "/api/v1/tasks/{id}"): P.EDIT,
    ("PATCH", "/api/v1/loggers/{name}"): P.EDIT,
    ("GET", "/api/v1/roles"): P.MANAGE,
    ("GET", "/api/v1/configuration"): P.MANAGE,
    **{("POST", f"/api/v1/{name}"): P.MANAGE for name in ("diverts", "bridges")},
    ("PATCH", "/api/v1/diverts/{name}"): P.MANAGE,
    **{
        ("DELETE", f"/api/v1/{name}/{{name}}"): P.MANAGE
        for name in ("diverts", "bridges", "address-settings", "security-settings")
    },
    **{("PATCH", f"/api/v1/{name}/{{name}}"): P.MANAGE for name in ("address-settings", "security-settings")},
    **{(method, "/api/v1/users"): P.MANAGE for method in ("GET", "POST")},
    **{(method, "/api/v1/users/{name}"): P.MANAGE for method in ("GET", "PATCH", "DELETE")},
}

#: Routes for all users, and routes without a login.
LOGIN_ALONE = (
    ("GET", "/api/v1/"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/whoami"),
    ("GET", "/api/v1/permissions"),
)
PUBLIC = (("GET", "/health/live"), ("GET", "/health/ready"))


# ---- STOMP, over TCP and over WebSocket


def _stomp(name, act, *needs, client_id="", kinds=KINDS):
    """Frames of one connection: ``act`` sends them, with address and queue; ``name`` begins with the command."""

    def over(websocket):
        def tried(scene, kind):
            address, queue = scene.fill(kind.address), scene.fill(kind.queue)
            named = queue.partition(".") if client_id == "Q" else (kind.name, "", "")
            client = scene.connect("anna", named[0], websocket)
            act(client, address, named[2] or queue)
            client.close()
            return client.received

        return tried

    for websocket in (False, True):
        text = f"{name} over {'WebSocket' if websocket else 'TCP'}"
        yield Operation(text, frozenset(needs), over(websocket), name.split()[0], False, False, kinds)


MULTICAST = {"subscription-type": "MULTICAST"}
DURABLY = {**MULTICAST, "durable-subscription-name": "e"}


def _subscribe(client, destination, **more):
    client.send("SUBSCRIBE", **{"id": "1", "destination": destination, **more})


def _subscription(name, destination, *needs, **headers):
    """A SUBSCRIBE to a destination, of the address ``{a}`` and the queue ``{q}``."""
    return _stomp(
        f"SUBSCRIBE {name}", lambda c, a, q: _subscribe(c, destination.format(a=a, q=q), **headers), *needs
    )


def _in_transaction(client, address, queue):
    client.send("BEGIN", transaction="t")
    client.put(to=address, transaction="t")
    client.send("COMMIT", transaction="t")


def _unsubscribe(client, address, queue):
    _subscribe(client, address, **MULTICAST)
    client.send("UNSUBSCRIBE", id="1")


def _request(client, address, queue):
    client.send("SEND", **{"destination": MANAGEMENT, "reply-to": address, "_AMQ_ResourceName": "broker"})


STOMP = (
    *_stomp("SEND", lambda c, a, q: c.put(to=a), P.SEND, kinds=NOT_MANAGED),
    *_stomp("SEND to a queue", lambda c, a, q: c.put(to=f"{a}::{q}"), P.SEND, kinds=NOT_MANAGED),
    *_stomp("COMMIT of a SEND", _in_transaction, P.SEND, kinds=NOT_MANAGED),
    *_stomp("SEND of a request", lambda c, a, q: c.put(to=a), P.MANAGE, kinds=(MANAGED,)),
    *_stomp("SEND of a request with reply-to", _request, P.MANAGE, P.SEND, kinds=NOT_MANAGED),
    *_subscription("", "{a}::{q}", P.CONSUME),
    *_subscription("to a queue alone", "::{q}", P.CONSUME),
    *_subscription("to browse", "{a}::{q}", P.BROWSE, browser="true"),
    *_subscription("to the address", "{a}", P.CONSUME, P.CREATE_NON_DURABLE_QUEUE, **MULTICAST),
    *_subscription("durably", "{a}", P.CONSUME, P.CREATE_DURABLE_QUEUE, **DURABLY),
    *_subscription(
        "to a wildcard address",
        "{a}.#",
        P.CONSUME,
        P.CREATE_ADDRESS,
        P.CREATE_NON_DURABLE_QUEUE,
        **MULTICAST,
    ),
    *_subscription("to a new queue", "{a}::new", P.CONSUME, P.CREATE_DURABLE_QUEUE),
    *_subscription("to a queue of another address with that name", "free::{q}.more", P.CREATE_DURABLE_QUEUE),
    *_stomp(
        "SUBSCRIBE durably with that name",
        lambda c, a, q: _subscribe(c, "free", **MULTICAST, **{"durable-subscription-name": f"{q}.more"}),
        P.CREATE_DURABLE_QUEUE,
        client_id="Q",
        kinds=(TEMPORARY, MANAGED, NOTIFIED),
    ),
    *_stomp("UNSUBSCRIBE", _unsubscribe, P.CONSUME, P.CREATE_NON_DURABLE_QUEUE, P.DELETE_NON_DURABLE_QUEUE),
    *_stomp(
        "UNSUBSCRIBE durably",
        lambda c, a, q: c.send("UNSUBSCRIBE", **{"durable-subscription-name": "d"}),
        P.DELETE_DURABLE_QUEUE,
        kinds=(OWN, TEMPORARY, MANAGED, NOTIFIED),
    ),
)

#: Commands about the connection itself: what was delivered to it, and its transactions.
OF_THE_CONNECTION = frozenset("ACK NACK BEGIN ABORT DISCONNECT".split())

OPERATIONS = (*HTTP, *STOMP)


# ---- management by messages

#: The operations of each kind of resource that change nothing; with `management-message-rbac` each needs view.
VIEWED = {
    "broker": """getAddressInfo getAddressSettingsAsJSON getQueueNames getRoles getRolesAsJSON listAddresses
        listAllConsumersAsJSON listAllSessionsAsJSON listConnectionIDs listConnections listConnectionsAsJSON
        listConsumers listConsumersAsJSON
        listQueues listRemoteAddresses listSessions listSessionsAsJSON listUser""",
    "queue": """browse countDeliveringMessages countMessages listConsumersAsJSON listMessages listMessagesAsJSON
        listScheduledMessages listScheduledMessagesAsJSON""",
}

#: The others need edit.
EDITED = {
    "broker": """addAddressSettings addSecuritySettings addUser closeConnectionWithID
        closeConnectionsForAddress closeConnectionsForUser
        closeConsumerConnectionsForAddress createAddress createBridge createDivert createQueue deleteAddress
        destroyBridge destroyDivert destroyQueue reloadConfigurationFile removeAddressSettings removeSecuritySettings
        removeUser resetUser updateAddress updateDivert updateQueue""",
    "address": "clearDuplicateIdCache pause purge resume sendMessage",
    "queue": """changeMessagePriority changeMessagesPriority copyMessage deliverScheduledMessage disable enable
        expireMessage expireMessages moveMessage moveMessages pause removeAllMessages removeMessage removeMessages
        resetAllGroups resetGroup resume retryMessage retryMessages sendMessage sendMessageToDeadLetterAddress
        sendMessagesToDeadLetterAddress""",
    "bridge": "pause resume start stop",
}

#: Names to send, by the letters of `Operation.parameters` in the broker.
VALUES = {"n": "free", "s": None, "i": 1, "f": 1.5, "b": False, "o": None}
