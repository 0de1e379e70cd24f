"""What the elements about full addresses say together: what cannot be, and what looks like a slip."""

from __future__ import annotations

from collections.abc import Iterator

from stompring.settings.document import Node
from stompring.settings.faults import Faults
from stompring.settings.match import SettingsRepository, literal_name
from stompring.settings.model import AddressSettings, FullPolicy

HALVES = ("page-limit-bytes", "page-limit-messages", "page-full-policy")


def check_limits(
    core: Node, persistent: bool, markers: str | None, repository: SettingsRepository, faults: Faults
) -> Iterator[str]:
    """Note contradictions in ``faults``, and give a warning for what is allowed and has no effect.

    What an entry means is looked at where it is merged with the less specific ones, at its own match.
    """
    for node in core.within("address-settings"):
        match = node.attributes.get("match")
        if match is None:
            continue
        policy = node.first("address-full-policy")
        if policy is not None and policy.value is FullPolicy.PAGE and not persistent:
            faults.add(policy.line, NO_STORE)
            continue
        in_force = repository.lookup(literal_name(match, markers) or match)
        _check_zeros(node, in_force, faults)
        warning = _half(node, in_force)
        if warning:
            yield f"{faults.file}:{warning}"


def _check_zeros(node: Node, in_force: AddressSettings, faults: Faults) -> None:
    if in_force.address_full_policy not in (FullPolicy.BLOCK, FullPolicy.DROP, FullPolicy.FAIL):
        return
    for name in ("max-size-bytes", "max-size-messages"):
        limit = node.first(name)
        if limit is not None and limit.value == 0:
            policy = in_force.address_full_policy
            faults.add(limit.line, f"<{name}> is '0': with {policy} no message would get in; 0 is for PAGE")


def _half(node: Node, in_force: AddressSettings) -> str | None:
    """``page-full-policy`` and the limits that it is for mean nothing without each other, as in Artemis."""
    said = next((child for child in map(node.first, HALVES) if child is not None), None)
    if said is None:
        return None
    limited = max(in_force.page_limit_bytes, in_force.page_limit_messages) >= 0
    if limited and in_force.page_full_policy is None:
        return f"{said.line}: the page-limit has no effect without a <page-full-policy> (DROP or FAIL)"
    if in_force.page_full_policy is not None and not limited:
        return f"{said.line}: <page-full-policy> has no effect without <page-limit-bytes> or <page-limit-messages>"
    return None


NO_STORE = (
    "<address-full-policy> is 'PAGE', which needs a store, and <persistence-enabled> is false; "
    "use BLOCK, DROP or FAIL, or let persistence-enabled be true"
)
