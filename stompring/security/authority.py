"""Who may do what: permissions of roles, and roles of users, as they are now."""

from __future__ import annotations

from collections import Counter

from stompring.security.permissions import Permissions
from stompring.security.roles import Roles
from stompring.settings.model import PermissionType


class Authority:
    """Asked for each decision that nobody remembers. ``refusals`` counts what was refused, since the start."""

    def __init__(self, permissions: Permissions, roles: Roles) -> None:
        self.refusals: Counter[PermissionType] = Counter()
        self._permissions = permissions
        self._roles = roles
        self._reloads = 0

    @property
    def generation(self) -> tuple[int, int]:
        """Another one when something may be decided otherwise than before: answers are worth remembering till then."""
        return self._reloads, self._roles.generation

    @property
    def grants_anything(self) -> bool:
        """Whether there is an entry at all."""
        return self._permissions.grants_anything

    def use(self, permissions: Permissions) -> None:
        """The configuration was read again."""
        self._permissions = permissions
        self._reloads += 1

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Whether ``user`` has a permission on an address, or on that queue of it."""
        return self._permissions.allows(self._roles.of(user), permission, address, queue)
