"""Whether something may be made for a client: asked before it is, of whoever knows who the client is."""

from __future__ import annotations

from typing import Protocol

from stompring.settings.model import PermissionType


class Ask(Protocol):
    """Raises `Refused` where a permission is lacking on an address, or on one queue of it."""

    def __call__(self, permission: PermissionType, address: str, queue: str | None = None, /) -> None: ...


def everything(permission: PermissionType, address: str, queue: str | None = None, /) -> None:
    """What the broker does of its own accord needs no permission."""
