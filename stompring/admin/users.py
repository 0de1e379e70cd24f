"""``/api/v1/users`` and ``/api/v1/roles``: users, passwords and roles, in the files that ``stompring user`` edits."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred

from stompring.errors import ConfigurationError, NotFound, Refused
from stompring.security.user_files import InvalidUser, UserFiles

from .access import manage_broker
from .api import (
    LISTING,
    NAME,
    NO_CONTENT,
    Answer,
    Body,
    Call,
    Problem,
    Response,
    Route,
    Steps,
    encode,
    invalid,
    json_answer,
    paged,
    required,
    text,
    view,
)
from .context import AdminContext, Security
from .json_schema import Component, Field, Fields, Schema, array, boolean, page_of, shown, string, structure
from .tasks import awaited


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user with a password, with a certificate, or with both."""

    name: str
    security: Security

    @property
    def has_password(self) -> bool:
        """Whether the user has a line in the users file."""
        return self.name in self.security.users

    @property
    def hash_outdated(self) -> bool:
        """Whether the password hash has other parameters than new ones."""
        return self.has_password and self.security.users.needs_rehash(self.name)


@dataclass(frozen=True, slots=True)
class RoleEntry:
    """A role with its users; a role of the security-settings may have none."""

    name: str
    users: list[str]
    granted: bool


ROLE = {"type": "string"}
ROLES = array(ROLE, "Roles of the user, sorted.")

FIELDS: Fields[UserEntry] = {
    "name": Field(lambda u: u.name, string("Name of the user.")),
    "roles": Field(lambda u: sorted(u.security.authority.roles_of(u.name)), ROLES),
    "hasPassword": Field(lambda u: u.has_password, boolean("Whether the user can log in with a password.")),
    "certificate": Field(
        lambda u: u.security.certificate_subjects().get(u.name),
        string("Subject of the certificate with which the user can log in.", null=True),
    ),
    "hashOutdated": Field(
        lambda u: u.hash_outdated,
        boolean("Whether the password hash has other parameters than new ones: set the password again."),
    ),
}

ROLE_FIELDS: Fields[RoleEntry] = {
    "name": Field(lambda r: r.name, string("Name of the role.")),
    "users": Field(lambda r: r.users, array({"type": "string"}, "Users with the role, sorted.")),
    "granted": Field(
        lambda r: r.granted, boolean("Whether a security-setting grants a permission to the role.")
    ),
}


def security_of(context: AdminContext) -> Security:
    """The security of the broker. Raises `Refused` if it is disabled."""
    if context.security is None:
        raise Refused(
            "Security is disabled: the broker uses no users and roles. Set <security-enabled> in broker.xml"
        )
    return context.security


def list_users(call: Call) -> Steps:
    security = security_of(call.context)
    yield from awaited(security.read_changes())
    names = {**dict.fromkeys(security.users.names()), **security.certificate_subjects()}
    return (yield from paged(call.query, [UserEntry(name, security) for name in names], FIELDS, "name"))


def list_roles(call: Call) -> Steps:
    security = security_of(call.context)
    yield from awaited(security.read_changes())
    members = security.roles.users_by_role()
    granted = {
        role
        for entry in call.context.configuration.security_settings
        for roles in entry.roles.values()
        for role in roles
    }
    found = [
        RoleEntry(name, members.get(name, []), name in granted) for name in sorted(granted | members.keys())
    ]
    return (yield from paged(call.query, found, ROLE_FIELDS, "name"))


def show(call: Call) -> Steps:
    security, name = security_of(call.context), call.names["name"]
    yield from awaited(security.read_changes())
    if name not in security.users and name not in security.certificate_subjects():
        raise NotFound(f"User {name} does not exist")
    return json_answer(view(UserEntry(name, security), FIELDS))


def create(call: Call) -> Steps:
    security = security_of(call.context)
    name, password = required(call.body, "name"), password_of(call.body)
    if password is None:
        raise invalid("password", "is missing")
    roles = roles_of(call.body) or []
    yield from edit(security, lambda files: files.add(name, password, roles))
    location = {"Location": f"/api/v1/users/{quote(name, safe='')}"}
    return Answer(encode(view(UserEntry(name, security), FIELDS)), 201, headers=location)


def change(call: Call) -> Steps:
    security, name = security_of(call.context), call.names["name"]
    password, roles = password_of(call.body), roles_of(call.body)
    yield from edit(security, lambda files: files.change(name, password, roles))
    return json_answer(view(UserEntry(name, security), FIELDS))


def delete(call: Call) -> Steps:
    security, name = security_of(call.context), call.names["name"]
    yield from edit(security, lambda files: files.remove(name))
    return NO_CONTENT


def edit(security: Security, change: Callable[[UserFiles], None]) -> Generator[Deferred[None], None, None]:
    """Run a change in a thread. Raises `Refused` for whatever prevents it."""
    try:
        yield from awaited(security.edit_users(change))
    except InvalidUser as fault:
        raise Problem(400, str(fault), None, field=fault.field) from None
    except ConfigurationError as fault:
        raise Refused(str(fault)) from None


def password_of(body: dict[str, Any]) -> str | None:
    """The password in a body. No error shows it."""
    if "password" not in body:
        return None
    if not isinstance(body["password"], str):
        raise invalid("password", "must be a string")
    return body["password"]


def roles_of(body: dict[str, Any]) -> list[str] | None:
    """The roles in a body. Raises 400."""
    if "roles" not in body:
        return None
    if not isinstance(body["roles"], list):
        raise invalid("roles", "must be a list of names")
    return [text("roles", role) for role in body["roles"]]


PASSWORD = string("Password. It is in no answer and in no log.", writeOnly=True, minLength=1)
GIVEN_ROLES: Schema = array(ROLE, "Roles of the user: all of them.")
SECRET = frozenset(("password",))

USER = Component("User", structure(shown(FIELDS)))
USERS_PATH, USER_PATH = "/api/v1/users", "/api/v1/users/{name}"
ROUTES = (
    Route(
        "GET",
        USERS_PATH,
        list_users,
        manage_broker,
        "listUsers",
        "List users.",
        {200: Response("One page of users.", page_of(USER))},
        "Passwords and their hashes are never shown.",
        parameters=LISTING,
        filters=FIELDS,
        errors=(409,),
    ),
    Route(
        "POST",
        USERS_PATH,
        create,
        manage_broker,
        "createUser",
        "Create a user with a password.",
        {201: Response("The new user.", USER, headers=("Location",))},
        "The change is in the users file and the roles file, and in effect, when it is answered.",
        body=Body(
            {"name": string("Name of the user.", minLength=1), "password": PASSWORD, "roles": GIVEN_ROLES},
            ("name", "password"),
            "NewUser",
        ),
        errors=(409,),
        secret=SECRET,
    ),
    Route(
        "GET",
        USER_PATH,
        show,
        manage_broker,
        "user",
        "Show one user.",
        {200: Response("The user.", USER)},
        parameters=(NAME,),
        errors=(409,),
    ),
    Route(
        "PATCH",
        USER_PATH,
        change,
        manage_broker,
        "changeUser",
        "Change the password of a user, the roles, or both.",
        {200: Response("The changed user.", USER)},
        "Open connections stay open; their permissions are checked again. The last user with manage on "
        "activemq.management keeps it.",
        parameters=(NAME,),
        body=Body({"password": PASSWORD, "roles": GIVEN_ROLES}, name="UserChange"),
        errors=(409,),
        secret=SECRET,
    ),
    Route(
        "DELETE",
        USER_PATH,
        delete,
        manage_broker,
        "deleteUser",
        "Delete a user and revoke all roles of the user.",
        {204: Response("The user is deleted.")},
        "Open connections stay open, without any permission. The last user with manage on activemq.management is not "
        "deleted.",
        parameters=(NAME,),
        errors=(409,),
    ),
    Route(
        "GET",
        "/api/v1/roles",
        list_roles,
        manage_broker,
        "listRoles",
        "List the roles of users and of security-settings.",
        {200: Response("One page of roles.", page_of(Component("Role", structure(shown(ROLE_FIELDS)))))},
        "A role exists by its users in the roles file, or by a security-setting.",
        parameters=LISTING,
        filters=ROLE_FIELDS,
        errors=(409,),
    ),
)
