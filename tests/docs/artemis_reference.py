"""The compatibility table in docs/artemis.md, made from the schema, the options and `settings.artemis`."""

import re

from stompring.cli.settings import KINDS, shown_default
from stompring.settings import model, urls
from stompring.settings.artemis import (
    ACCEPTOR_PARAMETERS,
    CONNECTOR_PARAMETERS,
    OLD_ELEMENT_NAMES,
    OTHER_PROTOCOLS,
    SECTIONS,
    Support,
)
from stompring.settings.document import all_elements, root_rules
from stompring.settings.model import ARTEMIS, STOMPRING, options_of
from stompring.settings.urls import LISTENER_PARAMETERS, OLD_PARAMETER_NAMES, SCHEMES, STOMP_PARAMETERS

#: Names without an option row that Artemis does not have, by parent.
OUR_OWN = {
    "broker-plugin": {"name", "policy"},
    "address-setting": {"address-policy"},
    "address-policy": {"name", "enabled", "property"},
    "transformer": {"address-policy", "remove-header"},
    "remove-header": {"name"},
    "ha-policy": {"replicated-log"},
    "core": {"login-modules"},
    "login-modules": {"certificate", "properties", "ldap", "token"},
}

#: Parameters of acceptors without an option row that Artemis does not have.
OUR_PARAMETERS = frozenset({"keyPath", "proxyProtocolTrusted"})

#: Elements, references and file names in a reason, which Markdown would take for its own.
CODE = re.compile(r"(?<![`\w])(?:(?:<[\w-]+>)+|\$\{[^}]*\}|/temp-queue/NAME|docs/[\w-]+\.md)")

#: What is not as in Artemis in a supported setting, by parent and name.
NOTES = {
    ("acceptors", "acceptor"): "as in Artemis; one of other protocols is skipped (WARNING), see above",
    ("address-setting", "default-ring-size"): "as in Artemis; queues of `broker.xml` get it too, see above",
    ("broker-plugins", "broker-plugin"): "plugins are in Python, not in Java",
    ("transformer", "class-name"): "`AddHeadersTransformer` only; other classes in Java are refused",
}

"""What is with a setting and why, by its name."""


def _options():
    """The rows of settings by parent and name."""
    return {
        parent: {row.xml_name: row for kind in listed for row in options_of(kind)}
        for parent, listed in KINDS.items()
    }


def _supported(row):
    if row is None or not row.type or row.source == ARTEMIS:
        return Support.SUPPORTED, "as in Artemis"
    text = row.source.replace("Artemis, ", "as in Artemis, ")
    if "other default" in text:
        text += f": {shown_default(row)}"
    return Support.SUPPORTED, text


def _unsupported(row):
    reason = row.reason or "remove it"
    if row.neutral:
        values = row.neutral.replace("\\", "").replace("[1-9][0-9]*", "above 0")
        return row.support, f"no effect with `{values}`; else: {reason}"
    if row.is_warning:
        reason += " (WARNING)"
    if row.refused_with:
        names = ", ".join(f"`{name}`" for name in sorted(row.refused_with))
        reason += f"; refused with {names}: {row.advice}"
    return row.support, reason


def elements():
    """The elements and attributes of Artemis by parent."""
    options = _options()
    found = {}
    for parent, name, rule in all_elements(root_rules()):
        if name in OUR_OWN.get(parent, ()):
            continue
        for inner in (*rule.children, *rule.attributes):
            option = options.get(name, {}).get(inner)
            if inner in OUR_OWN.get(name, ()) or (option is not None and option.source.startswith(STOMPRING)):
                continue
            note = NOTES.get((name, inner))
            found.setdefault(name, {})[inner] = (Support.SUPPORTED, note) if note else _supported(option)
    for (parent, old), new in OLD_ELEMENT_NAMES.items():
        found[parent][old] = Support.SUPPORTED, f"old name of `{new}`"
    for parent, rows in SECTIONS.items():
        for name, row in rows.items():
            of_parent = found.setdefault(parent, {})
            assert name not in of_parent, f"{name} of {parent} is supported and in the table"
            of_parent[name] = _unsupported(row)
    return {
        parent: dict(sorted(rows.items())) for parent, rows in found.items() if parent != "address-policy"
    }


def _parameters(kinds, names, unsupported, found):
    """The parameters of URLs; ``found`` are more of them."""
    options = {row.parameter_name: row for kind in kinds for row in options_of(kind)}
    for name in names:
        option = options.get(name)
        if name not in OUR_PARAMETERS and (option is None or option.source != STOMPRING):
            found[name] = _supported(option)
    found |= {name: _unsupported(row) for name, row in unsupported.items()}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def parameters():
    """The parameters of acceptor URLs."""
    kinds = (model.StompAcceptor, model.FrameLimits, model.WebSocketSettings)
    found = {"protocols": (Support.SUPPORTED, f"STOMP must be in it; others: {OTHER_PROTOCOLS.reason}")}
    for old, new in OLD_PARAMETER_NAMES.items():
        found[old] = (Support.SUPPORTED, f"old name of `{new}`")
    return _parameters(kinds, (*STOMP_PARAMETERS, *LISTENER_PARAMETERS), ACCEPTOR_PARAMETERS, found)


def connector_parameters():
    """The parameters of connector URLs."""
    return _parameters([model.Connector], urls.CONNECTOR_PARAMETERS, CONNECTOR_PARAMETERS, {})


def _table(heading, rows):
    yield f"\n| {heading} | here | reason |\n|---|---|---|\n"
    for name, (support, reason) in rows.items():
        yield f"| `{name}` | {support} | {CODE.sub(lambda found: f'`{found[0]}`', reason)} |\n"


def reference():
    """The tables, in Markdown."""
    schemes = ", ".join(f"`{scheme}`" for scheme in SCHEMES)
    lines = [part for parent, rows in elements().items() for part in _table(f"in `<{parent}>`", rows)]
    lines += [f"\nAcceptor URLs begin with {schemes}; `vm` is skipped.\n"]
    lines += _table("parameter of an acceptor", parameters())
    lines.append("\nConnectors that no bridge names have no effect, whatever their URL. Those of a bridge:\n")
    lines += _table("parameter of a connector", connector_parameters())
    return "".join(lines) + "\n"
