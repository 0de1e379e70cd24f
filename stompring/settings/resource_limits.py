"""What a broker.xml says about single users: ``<resource-limit-settings>``."""

from __future__ import annotations

from stompring.settings.document import Node
from stompring.settings.faults import Faults
from stompring.settings.global_limits import ResourceLimit

#: The name that Artemis had for ``max-sessions``, and still reads.
OLD_NAME = "max-connections"


def read_resource_limits(core: Node, faults: Faults) -> tuple[ResourceLimit, ...]:
    """The ``<resource-limit-setting>`` elements, one for a user."""
    limits: dict[str, ResourceLimit] = {}
    lines: dict[str, int] = {}
    for node in core.within("resource-limit-settings"):
        user = node.attributes.get("match")
        if user is None:
            continue
        if user in limits:
            faults.add(node.line, f"resource-limit-setting '{user}' is already given at line {lines[user]}")
            continue
        sessions, old = node.first("max-sessions"), node.first(OLD_NAME)
        if sessions is not None and old is not None:
            faults.add(
                old.line, f"<{OLD_NAME}> is the old name of <max-sessions>, which is at line {sessions.line}"
            )
        said = sessions or old
        queues = node.first("max-queues")
        lines[user] = node.line
        limits[user] = ResourceLimit(
            user,
            -1 if said is None or said.value is None else said.value,
            -1 if queues is None or queues.value is None else queues.value,
        )
    return tuple(limits.values())
