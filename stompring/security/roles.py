"""Which roles a user has: a roles file, one role per line, ``role = user, user``, as Artemis's has it."""

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
    """The roles of one file, which is followed as the users file is. Without a file nobody has any."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file at ``path``. Raises ConfigurationError, with file and line, for what cannot be."""
        self._file = WatchedFile(path, ROLES_FILE, roles_by_user, optional=True)
        self.path = self._file.path

    @property
    def generation(self) -> int:
        """Goes up when the file was read again."""
        return self._file.generation

    def of(self, user: str) -> frozenset[str]:
        """The roles of a user."""
        return self._file.content.get(user, NO_ROLES)

    def refresh(self) -> bool:
        """See `FollowedFile.refresh`."""
        return self._file.refresh()

    def follow(self) -> None:
        """See `FollowedFile.follow`."""
        self._file.follow()


class RolesEdit:
    """A roles file being changed: its lines, comments and all. Made by `edit_roles`."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def grant(self, role: str, user: str) -> bool:
        """Give a user a role; False where they had it. Raises ValueError for names that cannot be."""
        check_name(role, "role")
        check_member(user)
        for place, line in enumerate(self.lines):
            if name_of(line) == role:
                members = members_of(line)
                if user in members:
                    return False
                self.lines[place] = _line(role, [*members, user])
                return True
        self.lines.append(_line(role, [user]))
        return True

    def revoke(self, role: str, user: str) -> bool:
        """Take a role from a user; False where they had it not. A role without users goes as well."""
        for place, line in enumerate(self.lines):
            if name_of(line) == role and user in members_of(line):
                left = [member for member in members_of(line) if member != user]
                self.lines[place : place + 1] = [_line(role, left)] if left else []
                return True
        return False

    def forget(self, user: str) -> list[str]:
        """Take all roles from a user; returns which these were."""
        roles = [name_of(line) for line in self.lines if name_of(line) and user in members_of(line)]
        return [role for role in roles if role is not None and self.revoke(role, user)]


@contextmanager
def edit_roles(path: Path) -> Iterator[RolesEdit]:
    """Change a roles file, or begin one, as `edit_lines` does."""
    with edit_lines(path, ROLES_FILE, lambda lines: parse_roles(lines, str(path))) as lines:
        yield RolesEdit(lines)


def parse_roles(lines: list[str], file: str) -> dict[str, tuple[str, ...]]:
    """Role to users. Raises ConfigurationError with the line that is wrong."""
    roles: dict[str, tuple[str, ...]] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        role = name_of(line)
        if role is None:
            continue
        try:
            if "=" not in line:
                raise ValueError("a line must be 'role = user, user', or begin with '#'")
            check_name(role, "role")
            if role in places:
                raise ValueError(f"role {role!r} is already in line {places[role]}")
            roles[role] = _checked_members(line, role)
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        places[role] = number
    return roles


def roles_by_user(lines: list[str], file: str) -> Mapping[str, frozenset[str]]:
    """User to roles. Raises ConfigurationError with the line that is wrong."""
    found: dict[str, set[str]] = {}
    for role, users in parse_roles(lines, file).items():
        for user in users:
            found.setdefault(user, set()).add(role)
    return {user: frozenset(roles) for user, roles in found.items()}


def members_of(line: str) -> list[str]:
    """The users in a line of a role."""
    return [user.strip() for user in line.partition("=")[2].split(",") if user.strip()]


def check_member(user: str) -> None:
    """Raise ValueError for a user whose name a list of users cannot hold."""
    check_name(user)
    if "," in user:
        raise ValueError(f"user name {user!r} contains ',', which has a meaning in roles files")


def _checked_members(line: str, role: str) -> tuple[str, ...]:
    members = [user.strip() for user in line.partition("=")[2].split(",")]
    if members == [""]:
        return ()
    for user in members:
        if not user:
            raise ValueError(f"role {role!r} has a comma without a user beside it")
        check_name(user)
        if members.count(user) > 1:
            raise ValueError(f"role {role!r} names user {user!r} twice")
    return tuple(members)


def _line(role: str, users: list[str]) -> str:
    return f"{role} = {', '.join(users)}"
