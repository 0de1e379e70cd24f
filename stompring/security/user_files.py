"""Changes of users and their roles in the users file and the roles file, as the HTTP API makes them.

Every call reads the files as they are now, and replaces each atomically under the lock that ``stompring user`` uses
as well: comments and changes made by hand are preserved. The calls are slow on purpose (argon2) and belong in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from argon2 import PasswordHasher

from stompring.errors import ConfigurationError, NotFound, Refused
from stompring.security.properties_file import check_name, read_lines
from stompring.security.roles import NO_ROLES, ROLES_FILE, check_member, edit_roles, roles_by_user
from stompring.security.users import HASHER, USERS_FILE, check_password, edit_users, parse_users

Managing = Callable[[frozenset[str]], bool]
"""Whether these roles may manage users."""


class InvalidUser(Refused):
    """A name, password or role that cannot be stored. ``field`` is ``name``, ``password`` or ``roles``."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason, status=400)
        self.field = field


@dataclass(frozen=True, slots=True)
class UserFiles:
    """The two files. ``manages`` tells which roles may manage users; the last user with one of them keeps it.

    ``certified`` are the users who log in by a certificate, with or without a line in the users file.
    All calls raise `Refused` if the change is not possible, and ConfigurationError for a file that cannot be used.
    """

    users: Path
    roles: Path
    manages: Managing
    certified: Callable[[], Collection[str]] = tuple
    hasher: PasswordHasher = HASHER

    def add(self, name: str, password: str, roles: Iterable[str]) -> None:
        """Add a user. Raises `Refused` for a user who exists."""
        wanted = _checked_roles(name, roles)
        _check_password(password)
        self._roles()  # an invalid roles file must not leave a user without roles
        with edit_users(self.users, self.hasher) as edit:
            if name in edit:
                raise Refused(f"User {name} exists already")
            edit.put(name, password)
        # exactly these: the roles file may still grant roles to an earlier user of that name
        with _after(f"User {name} is saved, but the roles are not"):
            self._set_roles(name, wanted)

    def change(self, name: str, password: str | None = None, roles: Iterable[str] | None = None) -> None:
        """Replace the password, the roles, or both. Raises `NotFound` for an unknown user."""
        certified = name in self.certified()
        if not certified and name not in self._users():
            raise _unknown(name)
        wanted = None if roles is None else _checked_roles(name, roles)
        _check_password(password)
        if wanted is not None:
            self._check_managers(name, frozenset(wanted))
        if password is not None:
            with edit_users(self.users, self.hasher) as edit:
                if name not in edit and not certified:
                    raise _unknown(name)
                edit.put(name, password)
        if wanted is not None:
            with _after(
                None if password is None else f"The password of user {name} is saved, but the roles are not"
            ):
                self._set_roles(name, wanted)

    def remove(self, name: str) -> None:
        """Remove a user, and revoke all roles of the user. Raises `NotFound` for an unknown user."""
        if name not in self._users():
            raise (
                _unknown(name)
                if name not in self.certified()
                else Refused(
                    f"User {name} logs in by a certificate: remove the line of the user from the certificate users file"
                )
            )
        self._check_managers(name, NO_ROLES)
        self._set_roles(name, ())
        with _after(f"The roles of user {name} are revoked, but the user is not removed"):
            with edit_users(self.users, self.hasher) as users:
                if name in users:
                    users.remove(name)

    def _set_roles(self, name: str, wanted: tuple[str, ...]) -> None:
        if not wanted and not self.roles.exists():
            return
        with edit_roles(self.roles) as edit:
            for role in edit.of(name):
                if role not in wanted:
                    edit.revoke(role, name)
            for role in wanted:
                edit.grant(role, name)

    def _users(self) -> Collection[str]:
        return parse_users(read_lines(self.users, USERS_FILE), str(self.users))

    def _roles(self) -> Mapping[str, frozenset[str]]:
        lines = read_lines(self.roles, ROLES_FILE) if self.roles.exists() else []
        return roles_by_user(lines, str(self.roles))

    def _check_managers(self, name: str, wanted: frozenset[str]) -> None:
        """Raise `Refused` if nobody could manage users once ``name`` has the roles ``wanted``."""
        roles = self._roles()
        if self.manages(wanted) or not self.manages(roles.get(name, NO_ROLES)):
            return
        others = {*self._users(), *self.certified()} - {name}
        if not any(self.manages(roles.get(other, NO_ROLES)) for other in others):
            raise Refused(
                f"User {name} is the last one with permission='MANAGE' on address activemq.management: nobody could "
                "manage users any more. Grant a role with this permission to another user first"
            )


@contextmanager
def _after(done: str | None) -> Iterator[None]:
    """Add what was done already to the error of a file that cannot be used."""
    try:
        yield
    except ConfigurationError as fault:
        if done is None:
            raise
        raise Refused(f"{done}: {fault}") from None


def _checked_roles(name: str, roles: Iterable[str]) -> tuple[str, ...]:
    """The roles without duplicates. Raises `InvalidUser`."""
    wanted = tuple(dict.fromkeys(roles))
    try:
        check_name(name)
        if wanted:
            check_member(name)
    except ValueError as error:
        raise InvalidUser("name", str(error)) from None
    try:
        for role in wanted:
            check_name(role, "role")
    except ValueError as error:
        raise InvalidUser("roles", str(error)) from None
    return wanted


def _check_password(password: str | None) -> None:
    try:
        if password is not None:
            check_password(password)
    except ValueError as error:
        raise InvalidUser("password", str(error)) from None


def _unknown(name: str) -> NotFound:
    return NotFound(f"User {name} does not exist")
