"""Users, roles and permissions over HTTP.

``/api/v1/users`` and ``/api/v1/roles``: users, passwords and roles, in the files that ``stompring user`` edits.

``/api/v1/whoami``, ``/api/v1/permissions`` and ``/api/v1/security-settings``: permissions of users, and their rules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from stompring.errors import ConfigurationError, NotFound, Refused
from stompring.security.accounts import InvalidUser, UserFiles
from stompring.session.destination import name_of_others
from stompring.settings.match import is_internal
from stompring.settings.model import PermissionType
from stompring.settings.run_time import FILE, RUN_TIME, line_of, source_of

from .addresses import defined_in
from .api import (
    CONFLICT,
    MANAGE,
    MANAGEMENT,
    VIEW,
    Body,
    Call,
    Json,
    Listed,
    Parameter,
    Problem,
    Response,
    Steps,
    created,
    created_response,
    invalid,
    listing,
    manage_broker,
    no_permission,
    permissions_of_user,
    required,
    route,
    text,
    view,
    view_broker,
)
from .context import Security, awaited
from .json_schema import (
    TEXT,
    Field,
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    object_of,
    string,
    string_or_null,
    structure,
)


class UserEntry(NamedTuple):
    """A user with a password, with a certificate, or with both."""

    name: str
    security: Security

    @property
    def has_password(self) -> bool:
        """Whether the user has a line in the users file."""
        return self.name in self.security.users


class RoleEntry(NamedTuple):
    """A role with its users; a role of the security-settings may have none."""

    name: str
    users: list[str]
    granted: bool


FIELDS: Fields[UserEntry] = {
    "name": string("Name of the user.", "name"),
    "roles": array(
        TEXT, "Roles of the user, sorted.", lambda u: sorted(u.security.authority.roles_of(u.name))
    ),
    "hasPassword": boolean("Whether the user can log in with a password.", "has_password"),
    "certificate": string_or_null(
        "Subject of the certificate with which the user can log in.",
        lambda u: u.security.certificate_subjects().get(u.name),
    ),
    "hashOutdated": boolean(
        "Whether the password hash has other parameters than new ones: set the password again.",
        lambda u: u.has_password and u.security.users.needs_rehash(u.name),
    ),
}

ROLE_FIELDS: Fields[RoleEntry] = {
    "name": string("Name of the role.", "name"),
    "users": array(TEXT, "Users with the role, sorted.", "users"),
    "granted": boolean("Whether a security-setting grants a permission to the role.", "granted"),
}


def security_of(call: Call) -> Security:
    """The security of the broker. Raises `Refused` if it is disabled."""
    if call.context.security is None:
        raise Refused(
            "Security is disabled: the broker uses no users and roles. Set <security-enabled> in broker.xml"
        )
    return call.context.security


def edit(call: Call, change: Callable[[UserFiles], None]) -> Steps:
    """Change users and roles files in a thread. Raises `Refused` with the reason if the change fails."""
    try:
        yield from awaited(security_of(call).edit_users(change))
    except InvalidUser as fault:
        raise Problem(400, str(fault), field=fault.field) from None
    except ConfigurationError as fault:
        raise Refused(str(fault)) from None


def read_security(call: Call) -> Generator[Any, None, Security]:
    """Read the changed files of users and roles, and return the security. Raises `Refused` if it is disabled."""
    security = security_of(call)
    yield from awaited(security.read_changes())
    return security


def password_of(body: JsonObject) -> str | None:
    """The password in a body. No error shows it."""
    password = body.get("password", "")
    if not isinstance(password, str):
        raise invalid("password", "must be a string")
    return password if "password" in body else None


def roles_of(body: JsonObject) -> list[str] | None:
    """The roles in a body. Raises 400."""
    if "roles" not in body:
        return None
    if not isinstance(body["roles"], list):
        raise invalid("roles", "must be a list of names")
    return [text("roles", role) for role in body["roles"]]


PASSWORD: Schema = string("Password. It is in no answer and in no log.", writeOnly=True, minLength=1)
GIVEN_ROLES: Schema = array(TEXT, "Roles of the user: all of them.")
SECRET = frozenset(("password",))

USER = object_of("User", FIELDS)


# ---- permissions of a user, and their reasons


def decisions(
    call: Call, security: Security, user: str, roles: frozenset[str], address: str, queue: str | None
) -> Iterator[JsonObject]:
    """The permissions of a user on an address or a queue as JSON, each with its reason."""
    rules = security.authority.permissions
    manages = rules.allows(roles, MANAGE, MANAGEMENT)
    # a caller without view on the broker must not learn the roles of other users
    sees_all = any(call.authorizer.allows(permission, MANAGEMENT) for permission in (MANAGE, VIEW))
    for permission in PermissionType:
        decision = rules.decide(roles, permission, address, queue)
        deciding = decision.refusing(roles, permission) or next(iter(decision.entries), None)
        granted = frozenset[str]() if deciding is None else deciding.roles.get(permission, frozenset())
        shown = granted if sees_all else granted & roles
        match = None if deciding is None else deciding.match
        allowed = decision.allowed
        if match is None:
            reason = f"No <security-setting> matches address {decision.address}: every operation is denied"
        elif allowed:
            through = ", ".join(sorted(shown & roles))
            more = f", and {len(decision.entries) - 1} more" if len(decision.entries) > 1 else ""
            reason = f'<security-setting match="{match}">{more} grants {permission} to {through}'
        else:
            own = ", ".join(sorted(roles)) or "no role"
            to = ", ".join(sorted(shown)) if sees_all else "other roles"
            reason = (
                f'<security-setting match="{match}"> grants {permission} to {to if granted else "no role"}; '
                f"user {user} has {own}"
            )
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
        if manages and not allowed:
            reason += ". The HTTP API allows it to users with manage on activemq.management"
        yield {
            "permission": str(permission),
            "allowed": allowed,
            "allowedOverHTTP": allowed or manages,
            "match": match,
            "definedIn": None if deciding is None else source_of(deciding.line),
            "roles": sorted(shown),
            "reason": reason,
        }


# ---- roles by permission and security-setting


class Grant(NamedTuple):
    """The roles to which one security-setting grants one permission."""

    match: str
    permission: PermissionType | None  # None: no permission is granted, so that every operation is denied
    roles: list[str]
    line: int | None
    durable: bool


GRANT_FIELDS: Fields[Grant] = {
    "match": string("match of the security-setting.", "match"),
    "permission": Field(
        {
            "type": ["string", "null"],
            "enum": [*map(str, PermissionType), None],
            "description": "Permission; null for an entry without any: it denies every operation.",
        },
        "permission",
    ),
    "roles": array(TEXT, "Roles with the permission, sorted.", "roles"),
    "definedIn": defined_in(lambda each: each.line, lambda each: each.durable),
    "line": integer("Line of the entry in broker.xml.", lambda each: line_of(each.line), 1, null=True),
}


ENTRY = structure(
    {
        "permission": keyword(PermissionType, "Permission, as in <permission type> of broker.xml."),
        "allowed": boolean("Whether the user has the permission."),
        "allowedOverHTTP": boolean(
            "Whether the HTTP API allows it: also if the user has manage on activemq.management."
        ),
        "match": string_or_null("match of the deciding security-setting; null: none matches."),
        "definedIn": string_or_null(
            "Where it is defined: broker.xml or run time.", enum=[FILE, RUN_TIME, None]
        ),
        "roles": array(
            TEXT,
            "Roles to which this entry grants the permission. Without view on activemq.management: those of the user.",
        ),
        "reason": string("Reason of the decision."),
    }
)
ANSWER = object_of(
    "Permissions",
    {
        "user": string_or_null("User; null without security."),
        "roles": array(TEXT, "Roles of the user."),
        "address": string("Address."),
        "queue": string_or_null("Queue."),
        "data": array(ENTRY, "One entry for each permission."),
    },
)
WHOAMI = object_of(
    "Whoami",
    {
        "securityEnabled": boolean("Whether security is enabled."),
        "user": string_or_null("User; null without security."),
        "roles": array(TEXT, "Roles of the user, sorted."),
        "permissions": {
            "description": "Permissions on activemq.management, as the HTTP API applies them: manage includes all.",
            **structure({str(permission): boolean(f"{permission}.") for permission in PermissionType}),
        },
    },
)


@listing("/api/v1/users", manage_broker, "users", "User", FIELDS, errors=CONFLICT)
def list_users(call: Call) -> Listed[UserEntry]:
    """List users.

    Passwords and their hashes are never shown.
    """
    security = yield from read_security(call)
    return [
        UserEntry(name, security)
        for name in {**dict.fromkeys(security.users.names()), **security.certificate_subjects()}
    ]


@route(
    "POST /api/v1/users",
    manage_broker,
    created_response("The new user.", USER),
    body=Body(
        {"name": string("Name of the user.", minLength=1), "password": PASSWORD, "roles": GIVEN_ROLES},
        ("name", "password"),
        "NewUser",
    ),
    errors=CONFLICT,
    secret=SECRET,
)
def create_user(call: Call) -> Steps:
    """Create a user with a password.

    The change is in the users file and the roles file, and in effect, when it is answered.
    """
    security = security_of(call)
    name, password = required(call.body, "name"), password_of(call.body)
    if password is None:
        raise invalid("password", "is missing")
    roles = roles_of(call.body) or []
    yield from edit(call, lambda files: files.add(name, password, roles))
    return created(view(UserEntry(name, security), FIELDS), "users", name)


@route("GET /api/v1/users/{name}", manage_broker, Response("The user.", USER), errors=CONFLICT)
def show_user(call: Call) -> Steps:
    """Show one user."""
    security, name = (yield from read_security(call)), call.names["name"]
    if name not in security.users and name not in security.certificate_subjects():
        raise NotFound(f"User {name} does not exist")
    return view(UserEntry(name, security), FIELDS)


@route(
    "PATCH /api/v1/users/{name}",
    manage_broker,
    Response("The changed user.", USER),
    body=Body({"password": PASSWORD, "roles": GIVEN_ROLES}, name="UserChange"),
    errors=CONFLICT,
    secret=SECRET,
)
def change_user(call: Call) -> Steps:
    """Change the password of a user, the roles, or both.

    Open connections stay open; their permissions are checked again. The last user with manage on
    activemq.management keeps it.
    """
    security, name = security_of(call), call.names["name"]
    password, roles = password_of(call.body), roles_of(call.body)
    yield from edit(call, lambda files: files.change(name, password, roles))
    return view(UserEntry(name, security), FIELDS)


@route("DELETE /api/v1/users/{name}", manage_broker, Response("The user is deleted."), errors=CONFLICT)
def delete_user(call: Call) -> Steps:
    """Delete a user and revoke all roles of the user.

    Open connections stay open, without any permission. The last user with manage on activemq.management is not
    deleted.
    """
    yield from edit(call, lambda files: files.remove(call.names["name"]))


@listing("/api/v1/roles", manage_broker, "roles", "Role", ROLE_FIELDS, errors=CONFLICT)
def list_roles(call: Call) -> Listed[RoleEntry]:
    """List the roles of users and of security-settings.

    A role exists by its users in the roles file, or by a security-setting.
    """
    members = (yield from read_security(call)).roles.users_by_role()
    granted = {
        role
        for entry in call.context.configuration.security_settings
        for roles in entry.roles.values()
        for role in roles
    }
    return [
        RoleEntry(name, members.get(name, []), name in granted) for name in sorted(granted | members.keys())
    ]


@route("GET /api/v1/whoami", no_permission, Response("The user.", WHOAMI))
def whoami(call: Call) -> Json:
    """Show the user of the request."""
    security, authorizer = call.context.security, call.authorizer
    manages = authorizer.allows(MANAGE, MANAGEMENT)
    return {
        "securityEnabled": security is not None,
        "user": call.user,
        "roles": sorted(authorizer.roles),
        "permissions": {
            str(permission): manages or authorizer.allows(permission, MANAGEMENT)
            for permission in PermissionType
        },
    }


@route(
    "GET /api/v1/permissions",
    permissions_of_user,
    Response("One entry for each permission.", ANSWER),
    parameters=(
        Parameter("user", "User. Default: the user of the request."),
        Parameter(
            "address",
            "Address, or a wildcard address. Default: that of the queue.",
            component="permissionsAddress",
        ),
        Parameter("queue", "Queue.", component="permissionsQueue"),
    ),
    errors=(404,),
)
def show_permissions(call: Call) -> Json:
    """Show what a user may do on an address or a queue, and by which security-setting.

    Without address and queue: on activemq.management.
    """
    queue = call.query.text("queue") or None
    address = call.query.text("address") or queue or MANAGEMENT
    if queue in call.directory.queues and not call.query.text("address"):
        address = call.directory.queues[queue].address.name
    security = call.context.security
    user = call.query.text("user") or call.user
    roles = frozenset[str]()
    if security is None:
        data: list[JsonObject] = [
            {
                "permission": str(permission),
                "allowed": True,
                "allowedOverHTTP": True,
                "match": None,
                "definedIn": None,
                "roles": [],
                "reason": "Security is disabled: every operation is allowed",
            }
            for permission in PermissionType
        ]
    else:
        assert user is not None
        # the roles of the caller may be those of a directory or a token
        roles = call.authorizer.roles if user == call.user else security.authority.roles_of(user)
        known = roles or user in security.users or user in security.certificate_subjects()
        if not known and user != call.user:
            raise NotFound(f"User {user} does not exist")
        data = list(decisions(call, security, user, roles, address, queue))
    return {"user": user, "roles": sorted(roles), "address": address, "queue": queue, "data": data}


@listing(
    "/api/v1/security-settings",
    view_broker,
    "permissions",
    "SecuritySetting",
    GRANT_FIELDS,
    searched="match",
)
def list_security_settings(call: Call) -> list[Grant]:
    """List the security-settings: which roles have which permission.

    An address is decided by its most specific match alone.
    """
    return [
        Grant(
            entry.match,
            permission,
            sorted(entry.roles[permission]) if permission else [],
            entry.line,
            call.context.run_time.durable,
        )
        for entry in call.context.configuration.security_settings
        for permission in ([each for each in PermissionType if each in entry.roles] or (None,))
    ]
