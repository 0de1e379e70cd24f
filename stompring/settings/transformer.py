"""``<transformer>`` of a divert or a bridge, read into a `TransformerConfiguration`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stompring.settings.document import Faults, Node
from stompring.settings.model import PluginConfiguration, TransformerConfiguration
from stompring.settings.plugins import policy_uses, read_properties

#: Artemis's one transformer for headers. Its properties are the headers that it sets.
ADD_HEADERS = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"

#: Headers that no transformer changes, with the reason.
FIXED_HEADERS = {
    "destination": "the forwarding address is the destination",
    "content-length": "it is a header of the frame",
    "receipt": "it is a header of the frame",
    "transaction": "it is a header of the frame",
    "subscription": "each subscription has its own",
    "message-id": "the broker sets it",
    "ack": "the broker sets it",
    "redelivered": "the broker sets it",
    "timestamp": "the broker sets it",
}


def read_transformer(
    node: Node | None, plugins: Iterable[PluginConfiguration], faults: Faults
) -> TransformerConfiguration | None:
    """The transformer in ``node``; None without one, or where it changes nothing. Adds its faults to ``faults``."""
    if node is None:
        return None
    kind = node.first("class-name")
    if kind is not None and kind.value not in (None, ADD_HEADERS):
        faults.add(
            kind.line,
            f"<class-name> is '{kind.value}': transformers in Java are not supported. Set headers by "
            '<property key="…" value="…"/> and <remove-header name="…"/>, or name a Python policy: '
            '<address-policy name="…"/>',
        )
    added = read_properties(node, faults)
    removed: dict[str, int] = {}
    for one in node.all("remove-header"):
        name = one.attributes.get("name")
        if name in removed:
            faults.add(one.line, f"remove-header '{name}' is already given at line {removed[name]}")
        elif name is not None:
            removed[name] = one.line
    lines = {**removed, **{one.key: one.line or node.line for one in added}}
    for line, text in _fixed(lines):
        faults.add(line, text)
    used = tuple(policy_uses(node, [plugin.name for plugin in plugins], faults))
    policy = next((use for use in used if use.enabled), None)
    if policy is not None and lines:
        faults.add(
            node.line,
            "<transformer> has both an <address-policy> and headers: let the policy set the headers; its parameters "
            "are <property> elements in <address-policy>",
        )
    if policy is None and not lines:
        if kind is None and not used:
            faults.add(
                node.line,
                '<transformer> changes nothing: add <property key="…" value="…"/>, <remove-header name="…"/> or '
                '<address-policy name="…"/>, or remove it',
            )
        return None
    return TransformerConfiguration(added, tuple(removed), policy)


def _fixed(lines: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Headers that cannot be changed, with their lines."""
    for name, line in lines.items():
        reason = FIXED_HEADERS.get(name)
        if reason is None and name.startswith("_AMQ_ORIG_"):
            reason = "the broker sets it"
        if reason is not None:
            yield line, f"<transformer> cannot change the header {name}: {reason}"
