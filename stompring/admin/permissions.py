"""``/api/v1/whoami``, ``/api/v1/permissions`` and ``/api/v1/security-settings``: who may do what, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stompring.errors import NotFound, Refused
from stompring.security.access_control import Decision, Permissions
from stompring.session.permissions import name_of_others
from stompring.settings.match import is_internal
from stompring.settings.model import PermissionType

from .access import MANAGE, MANAGEMENT, VIEW, no_permission, permissions_of_user, view_broker
from .api import LISTING, Answer, Call, Parameter, Response, Route, Steps, json_answer, paged
from .context import AdminContext, Security
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
)

TEXTS = {"type": "string"}
PERMISSION = keyword(PermissionType, "Permission, as in <permission type> of broker.xml.")


def whoami(call: Call) -> Answer:
    """Who the caller is. ``permissions`` are those on activemq.management, as the HTTP API applies them."""
    security, authorizer = call.context.security, call.authorizer
    manages = authorizer.allows(MANAGE, MANAGEMENT)
    roles = [] if security is None or call.user is None else sorted(security.authority.roles_of(call.user))
    return json_answer(
        {
            "securityEnabled": security is not None,
            "user": call.user,
            "roles": roles,
            "permissions": {
                str(permission): manages or authorizer.allows(permission, MANAGEMENT)
                for permission in PermissionType
            },
        }
    )


# ---- may a user do something, and why


def permissions(call: Call) -> Answer:
    address, queue = destination(call)
    security = call.context.security
    user = call.query.text("user") or call.user
    if security is None:
        entries: list[dict[str, Any]] = [
            {
                "permission": str(permission),
                "allowed": True,
                "allowedOverHTTP": True,
                "match": None,
                "roles": [],
                "reason": "Security is disabled: every operation is allowed",
            }
            for permission in PermissionType
        ]
        return json_answer({"user": user, "roles": [], "address": address, "queue": queue, "data": entries})
    assert user is not None
    check_user(call, security, user)
    roles = security.authority.roles_of(user)
    rules = security.authority.permissions
    manages = rules.allows(roles, MANAGE, MANAGEMENT)
    # without view on the broker the caller learns of no role of others
    sees_all = any(call.authorizer.allows(permission, MANAGEMENT) for permission in (MANAGE, VIEW))
    inquiry = Inquiry(rules, user, roles, manages, sees_all)
    return json_answer(
        {
            "user": user,
            "roles": sorted(roles),
            "address": address,
            "queue": queue,
            "data": [inquiry.entry(permission, address, queue) for permission in PermissionType],
        }
    )


def destination(call: Call) -> tuple[str, str | None]:
    """The address and the queue of the question; without any the address for the broker as a whole."""
    address, queue = call.query.text("address"), call.query.text("queue")
    if queue and not address:
        try:
            address = call.context.broker.directory.queue(queue).address.name
        except Refused:
            address = queue
    return address or MANAGEMENT, queue or None


def check_user(call: Call, security: Security, user: str) -> None:
    """Raise `NotFound` for a user without password, certificate and role."""
    known = (
        user == call.user
        or user in security.users
        or user in security.certificate_subjects()
        or bool(security.authority.roles_of(user))
    )
    if not known:
        raise NotFound(f"User {user} does not exist")


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The permissions of one user, and their reasons."""

    rules: Permissions
    user: str
    roles: frozenset[str]
    manages: bool
    sees_all: bool  # whether roles that the user does not have are shown

    def entry(self, permission: PermissionType, address: str, queue: str | None) -> dict[str, Any]:
        """One permission as JSON."""
        decision = self.rules.decide(self.roles, permission, address, queue)
        refusing = decision.refusing(self.roles, permission)
        deciding = refusing or next(iter(decision.entries), None)
        granted = frozenset[str]() if deciding is None else deciding.roles.get(permission, frozenset())
        shown = granted if self.sees_all else granted & self.roles
        reason = self.reason(
            permission, decision, None if deciding is None else deciding.match, shown, granted
        )
        allowed = decision.allowed
        others = name_of_others(permission, address, queue, None)
        if others is not None:
            allowed = False
            reason = f"{others} belongs to another connection. For its own connection: {reason}"
        elif is_internal(address):
            reason = f"{address} is internal, the permission on address {decision.address} decides. {reason}"
        elif decision.address != address:
            name = decision.address
            reason = (
                f"Creating a queue requires the permission on the address of its name ({name}) too. {reason}"
            )
        if self.manages and not allowed:
            reason += ". The HTTP API allows it to users with manage on activemq.management"
        return {
            "permission": str(permission),
            "allowed": allowed,
            "allowedOverHTTP": allowed or self.manages,
            "match": None if deciding is None else deciding.match,
            "roles": sorted(shown),
            "reason": reason,
        }

    def reason(
        self,
        permission: PermissionType,
        decision: Decision,
        match: str | None,
        shown: frozenset[str],
        granted: frozenset[str],
    ) -> str:
        """Why the permission is granted or denied."""
        if match is None:
            return f"No <security-setting> matches address {decision.address}: every operation is denied"
        if decision.allowed:
            through = ", ".join(sorted(shown & self.roles))
            more = f", and {len(decision.entries) - 1} more" if len(decision.entries) > 1 else ""
            return f'<security-setting match="{match}">{more} grants {permission} to {through}'
        own = ", ".join(sorted(self.roles)) or "no role"
        to = ", ".join(sorted(shown)) if self.sees_all else "other roles"
        to = to if granted else "no role"
        return f'<security-setting match="{match}"> grants {permission} to {to}; user {self.user} has {own}'


# ---- the matrix


@dataclass(frozen=True, slots=True)
class Grant:
    """The roles with one permission by one security-setting."""

    match: str
    permission: PermissionType | None  # None: the entry grants nothing, so that every operation is denied
    roles: list[str]
    line: int | None


GRANT_FIELDS: Fields[Grant] = {
    "match": Field(lambda g: g.match, string("match of the security-setting.")),
    "permission": Field(
        lambda g: g.permission,
        {
            "type": ["string", "null"],
            "enum": [*map(str, PermissionType), None],
            "description": "Permission; null for an entry without any: it denies every operation.",
        },
    ),
    "roles": Field(lambda g: g.roles, array(TEXTS, "Roles with the permission, sorted.")),
    "line": Field(lambda g: g.line, integer("Line of the entry in broker.xml.", 1, null=True)),
}


def grants(context: AdminContext) -> Iterator[Grant]:
    """The rows of the matrix, in the order of broker.xml."""
    for entry in context.configuration.security_settings:
        for permission in PermissionType:
            if permission in entry.roles:
                yield Grant(entry.match, permission, sorted(entry.roles[permission]), entry.line)
        if not entry.roles:
            yield Grant(entry.match, None, [], entry.line)


def list_grants(call: Call) -> Steps:
    return paged(call.query, list(grants(call.context)), GRANT_FIELDS, "match")


ENTRY = structure(
    {
        "permission": PERMISSION,
        "allowed": boolean("Whether the user has the permission."),
        "allowedOverHTTP": boolean(
            "Whether the HTTP API allows it: also if the user has manage on activemq.management."
        ),
        "match": string("match of the deciding security-setting; null: none matches.", null=True),
        "roles": array(
            TEXTS,
            "Roles to which this entry grants the permission. Without view on activemq.management: those of the user.",
        ),
        "reason": string("Reason of the decision."),
    }
)
ANSWER = Component(
    "Permissions",
    structure(
        {
            "user": string("User; null without security.", null=True),
            "roles": array(TEXTS, "Roles of the user."),
            "address": string("Address."),
            "queue": string("Queue.", null=True),
            "data": array(ENTRY, "One entry for each permission."),
        }
    ),
)
WHOAMI = Component(
    "Whoami",
    structure(
        {
            "securityEnabled": boolean("Whether security is enabled."),
            "user": string("User; null without security.", null=True),
            "roles": array(TEXTS, "Roles of the user, sorted."),
            "permissions": {
                "description": "Permissions on activemq.management, as the HTTP API applies them: manage includes all.",
                **structure({str(permission): boolean(f"{permission}.") for permission in PermissionType}),
            },
        }
    ),
)

ROUTES = (
    Route(
        "GET",
        "/api/v1/whoami",
        whoami,
        no_permission,
        "whoami",
        "Show the user of the request.",
        {200: Response("The user.", WHOAMI)},
    ),
    Route(
        "GET",
        "/api/v1/permissions",
        permissions,
        permissions_of_user,
        "permissions",
        "Show what a user may do on an address or a queue, and by which security-setting.",
        {200: Response("One entry for each permission.", ANSWER)},
        "Without address and queue: on activemq.management.",
        parameters=(
            Parameter("user", "User. Default: the user of the request.", {"type": "string"}),
            Parameter(
                "address",
                "Address, or a wildcard address. Default: that of the queue.",
                {"type": "string"},
                component="permissionsAddress",
            ),
            Parameter("queue", "Queue.", {"type": "string"}, component="permissionsQueue"),
        ),
        errors=(404,),
    ),
    Route(
        "GET",
        "/api/v1/security-settings",
        list_grants,
        view_broker,
        "listSecuritySettings",
        "List the security-settings: which roles have which permission.",
        {
            200: Response(
                "One page of permissions.",
                page_of(Component("SecuritySetting", structure(shown(GRANT_FIELDS)))),
            )
        },
        "An address is decided by its most specific match alone.",
        parameters=LISTING,
        filters=GRANT_FIELDS,
    ),
)
