"""Who may do what, as frozen data: one ``<security-setting>`` each. No parsing and no other room, as in `model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class PermissionType(StrEnum):
    """What a role may be allowed (Artemis, ``type`` of ``<permission>``). ERRORs show the names in capitals."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE_ADDRESS = "createAddress"
    DELETE_ADDRESS = "deleteAddress"
    CREATE_DURABLE_QUEUE = "createDurableQueue"
    DELETE_DURABLE_QUEUE = "deleteDurableQueue"
    CREATE_NON_DURABLE_QUEUE = "createNonDurableQueue"
    DELETE_NON_DURABLE_QUEUE = "deleteNonDurableQueue"
    MANAGE = "manage"
    VIEW = "view"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class SecuritySettingEntry:
    """One ``<security-setting match="…">``: the roles that have each permission. What is not named nobody has."""

    match: str
    roles: Mapping[PermissionType, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    line: int | None = field(default=None, compare=False)
