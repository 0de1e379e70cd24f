"""Roles of users: a roles file, one role per line, ``role = user, user``, as in Artemis."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stompring.errors import ConfigurationError
from stompring.security.properties_file import WatchedFile, check_name, edit_lines, name_of

ROLES_FILE = "roles file"
NO_ROLES: frozenset[str] = frozenset()


class Roles:
    """The roles of one file, which is read again when it has changed. Without a file no user has a role."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file at ``path``. Raises ConfigurationError, with file and line, for an invalid line."""
        self._file = WatchedFile(path, ROLES_FILE, roles_by_user, optional=True)
        self.path = self._file.path

    @property
    def generation(self) -> int:
        """Incremented when the file was read again."""
        return self._file.generation

    def of(self, user: str) -> frozenset[str]:
        """The roles of a user."""
        return self._file.content.get(user, NO_ROLES)

    def users_by_role(self) -> dict[str, list[str]]:
        """Role to its users, both sorted. A role without users is not in it."""
        found: dict[str, list[str]] = {}
        for user, roles in self._file.content.items():
            for role in roles:
                found.setdefault(role, []).append(user)
        return {role: sorted(found[role]) for role in sorted(found)}

    def refresh(self) -> bool:
        """Read the file again if it has changed (`WatchedFile.refresh`)."""
        return self._file.refresh()

    def refresh_or_log(self) -> None:
        """As `refresh`, but log errors (`WatchedFile.refresh_or_log`)."""
        self._file.refresh_or_log()


class RolesEdit:
    """An edit of a roles file: its lines, with comments. Created by `edit_roles`."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def grant(self, role: str, user: str) -> bool:
        """Grant a role to a user. False if the user has it already. Raises ValueError for an invalid name."""
        check_name(role, "role")
        check_member(user)
        for index, line in enumerate(self.lines):
            if name_of(line) == role:
                members = members_of(line)
                if user in members:
                    return False
                self.lines[index] = _line(role, [*members, user])
                return True
        self.lines.append(_line(role, [user]))
        return True

    def revoke(self, role: str, user: str) -> bool:
        """Revoke a role from a user. False if the user does not have it. A role without users is removed."""
        for index, line in enumerate(self.lines):
            if name_of(line) == role and user in members_of(line):
                remaining = [member for member in members_of(line) if member != user]
                self.lines[index : index + 1] = [_line(role, remaining)] if remaining else []
                return True
        return False

    def of(self, user: str) -> list[str]:
        """The roles of a user."""
        return [role for line in self.lines if (role := name_of(line)) and user in members_of(line)]

    def revoke_all(self, user: str) -> list[str]:
        """Revoke all roles from a user. Returns the revoked roles."""
        return [role for role in self.of(user) if self.revoke(role, user)]


@contextmanager
def edit_roles(path: Path) -> Iterator[RolesEdit]:
    """Edit a roles file, or create it (`edit_lines`)."""
    with edit_lines(path, ROLES_FILE, lambda lines: parse_roles(lines, str(path))) as lines:
        yield RolesEdit(lines)


def parse_roles(lines: list[str], file: str) -> dict[str, tuple[str, ...]]:
    """Role to users. Raises ConfigurationError with the invalid line."""
    roles: dict[str, tuple[str, ...]] = {}
    line_numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        role = name_of(line)
        if role is None:
            continue
        try:
            if "=" not in line:
                raise ValueError("a line must be 'role = user, user', or begin with '#'")
            check_name(role, "role")
            if role in line_numbers:
                raise ValueError(f"role {role!r} is already in line {line_numbers[role]}")
            roles[role] = _checked_members(line, role)
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        line_numbers[role] = number
    return roles


def roles_by_user(lines: list[str], file: str) -> Mapping[str, frozenset[str]]:
    """User to roles. Raises ConfigurationError with the invalid line."""
    found: dict[str, set[str]] = {}
    for role, users in parse_roles(lines, file).items():
        for user in users:
            found.setdefault(user, set()).add(role)
    return {user: frozenset(roles) for user, roles in found.items()}


def members_of(line: str) -> list[str]:
    """The users in a line of a role."""
    return [user.strip() for user in line.partition("=")[2].split(",") if user.strip()]


def check_member(user: str) -> None:
    """Raise ValueError for a user name that cannot be written in a list of users."""
    check_name(user)
    if "," in user:
        raise ValueError(f"user name {user!r} contains ',', which is reserved in roles files")


def _checked_members(line: str, role: str) -> tuple[str, ...]:
    members = [user.strip() for user in line.partition("=")[2].split(",")]
    if members == [""]:
        return ()
    for user in members:
        if not user:
            raise ValueError(f"role {role!r}: empty user name between commas")
        check_name(user)
        if members.count(user) > 1:
            raise ValueError(f"role {role!r} lists user {user!r} twice")
    return tuple(members)


def _line(role: str, users: list[str]) -> str:
    return f"{role} = {', '.join(users)}"
