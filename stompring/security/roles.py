"""Roles of users: a roles file, one role per line, ``role = user, user``, as in Artemis."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stompring.errors import ConfigurationError
from stompring.security.properties_file import PLAIN, Syntax, WatchedFile, check_name, edit_lines, syntax_of

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

    def __init__(self, lines: list[str], syntax: Syntax = PLAIN) -> None:
        self.lines = lines
        self._syntax = syntax

    def grant(self, role: str, user: str) -> bool:
        """Grant a role to a user. False if the user has it already. Raises ValueError for an invalid name."""
        check_name(role, "role")
        check_member(user)
        for index, line in enumerate(self.lines):
            name, members = self._read(line)
            if name == role:
                if user in members:
                    return False
                self.lines[index] = self._line(role, [*members, user])
                return True
        self.lines.append(self._line(role, [user]))
        return True

    def revoke(self, role: str, user: str) -> bool:
        """Revoke a role from a user. False if the user does not have it. A role without users is removed."""
        for index, line in enumerate(self.lines):
            name, members = self._read(line)
            if name == role and user in members:
                remaining = [member for member in members if member != user]
                self.lines[index : index + 1] = [self._line(role, remaining)] if remaining else []
                return True
        return False

    def of(self, user: str) -> list[str]:
        """The roles of a user."""
        lines = (self._read(line) for line in self.lines)
        return [name for name, members in lines if name and user in members]

    def _read(self, line: str) -> tuple[str | None, list[str]]:
        """The role and the users in a line; None and no users for a comment."""
        entry = self._syntax.read(line)
        return (None, []) if entry is None else (entry.name, _members(entry.value or ""))

    def _line(self, role: str, users: list[str]) -> str:
        return self._syntax.write(role, ", ".join(users))

    def revoke_all(self, user: str) -> list[str]:
        """Revoke all roles from a user. Returns the revoked roles."""
        return [role for role in self.of(user) if self.revoke(role, user)]


@contextmanager
def edit_roles(path: Path) -> Iterator[RolesEdit]:
    """Edit a roles file, or create it (`edit_lines`)."""
    with edit_lines(path, ROLES_FILE, lambda lines: parse_roles(lines, str(path))) as lines:
        yield RolesEdit(lines, syntax_of(path))


def parse_roles(lines: list[str], file: str) -> dict[str, tuple[str, ...]]:
    """Role to users. Raises ConfigurationError with the invalid line."""
    roles: dict[str, tuple[str, ...]] = {}
    line_numbers: dict[str, int] = {}
    syntax = syntax_of(file)
    for number, line in enumerate(lines, 1):
        entry = syntax.read(line)
        if entry is None:
            continue
        role = entry.name
        try:
            if entry.value is None:
                raise ValueError("a line must be 'role = user, user', or begin with '#'")
            check_name(role, "role")
            if role in line_numbers:
                raise ValueError(f"role {role!r} is already in line {line_numbers[role]}")
            roles[role] = _checked_members(entry.value, role)
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


def _members(value: str) -> list[str]:
    return [user.strip() for user in value.split(",") if user.strip()]


def check_member(user: str) -> None:
    """Raise ValueError for a user name that cannot be written in a list of users."""
    check_name(user)
    if "," in user:
        raise ValueError(f"user name {user!r} contains ',', which is reserved in roles files")


def _checked_members(value: str, role: str) -> tuple[str, ...]:
    members = [user.strip() for user in value.split(",")]
    if members == [""]:
        return ()
    for user in members:
        if not user:
            raise ValueError(f"role {role!r}: empty user name between commas")
        check_name(user)
        if members.count(user) > 1:
            raise ValueError(f"role {role!r} lists user {user!r} twice")
    return tuple(members)
