"""The reference of docs/plugins.md and the parameters of docs/policies.md, made from the code.

Signatures and types are those of the code, texts the first paragraphs of its docstrings, units what these say.
"""

import inspect
import math
import re
from pathlib import Path
from types import FunctionType

from stompring.broker.ports import Offer, Subscriber
from stompring.policy import (
    ACCEPT,
    AddressPolicy,
    AddressView,
    ChangeHeaders,
    MessageView,
    QueueView,
    Redirect,
    Refuse,
    Wait,
    parameter,
)
from stompring.policy.testing import PolicyHarness, Sent

from ..plugins import ROOT, policy
from .generated import table

#: What a text says of a number: the unit, and how it is found.
UNITS = (
    ("percent", r"_percent\b"),
    ("epoch ms", r"epoch milliseconds"),
    ("ms", r"\b[Mm]illiseconds\b"),
    ("s", r"\bseconds\b"),
    ("bytes", r"^\w+ Bytes\b"),
)
NUMBER = re.compile(r"\b(?:int|float)\b")

CONSTRUCTORS = (Refuse, Wait, Redirect, ChangeHeaders)
VIEWS = (AddressView, QueueView, MessageView, Offer, Subscriber, Sent)

#: Not for policies.
HIDDEN = {
    AddressView: {"stop"},
    Offer: {"traits", "changed", "copier"},
    Subscriber: {"count", "index"},
}


def sections():
    """Titles of tables, and their rows: name and signature, what comes back, unit, text."""
    yield (
        "Hooks",
        [
            _function(name, value)
            for name, value in vars(AddressPolicy).items()
            if isinstance(value, FunctionType) and name[0] != "_"
        ],
    )
    words = [(f"`{word.name}`", "", "", _word(word.name)) for word in type(ACCEPT)]
    yield "Verdicts", [_constructor(kind) for kind in CONSTRUCTORS] + words
    signature, returned, _, text = _function("parameter", parameter)
    yield "Parameters of a policy", [(signature, returned, "that of its type", text)]
    for view in VIEWS:
        yield view.__name__, list(_members(view))
    yield "PolicyHarness", [_constructor(PolicyHarness), *_members(PolicyHarness)]


def _function(name, function):
    signature = inspect.signature(function)
    shown = f"({', '.join(_parameters(signature))})"
    returned = str(signature.return_annotation).strip("'")
    text = _first(function)
    return (
        f"`{name}{shown}`",
        f"`{returned}`",
        _unit(f"{shown} {returned}", f"{shown} {_whole(function)}"),
        text,
    )


def _parameters(signature):
    """As they are written."""
    starred = False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        starred = starred or star == "*"
        text = f"{star}{one.name}: {one.annotation}"
        if one.default is not one.empty:
            default = "REQUIRED" if type(one.default) is object else repr(one.default)
            text += f" = {default}"
        yield re.sub(r"<factory>|mappingproxy\(\{\}\)", "{}", text)


def _constructor(kind):
    signature, _, unit, _ = _function(kind.__name__, kind.__init__)  # type: ignore[misc]
    text = _whole(kind)
    return signature, f"`{kind.__name__}`", unit or _unit(signature, f"{signature} {text}"), _first(kind)


def _word(name):
    """The comment above a word of `verdict`."""
    source = Path(inspect.getsourcefile(AddressPolicy) or "").read_text()
    (found,) = re.findall(rf"((?:^#: .*\n)+){name} = ", source, re.MULTILINE)
    return " ".join(line.removeprefix("#: ") for line in str(found).splitlines())


def _members(view):
    for name in dir(view):
        if name[0] == "_" or name in HIDDEN.get(view, ()):
            continue
        value = inspect.getattr_static(view, name)
        if isinstance(value, property):
            assert value.fget is not None
            kind = str(inspect.signature(value.fget).return_annotation).strip("'")
            yield f"`{name}`", f"`{kind}`", _unit(kind, f"{name} {_whole(value)}"), _first(value)
        elif isinstance(value, FunctionType):
            yield _function(name, value)
        else:
            kind, text = _attribute(view, name)
            yield f"`{name}`", f"`{kind}`", "", text


def _attribute(view, name):
    """Type and comment of an attribute that is a field, or that ``__init__`` sets."""
    annotations = inspect.get_annotations(view)
    source = inspect.getsource(view)
    comment = re.search(rf"^ +(?:self\.)?{name}\b[^#\n]*#:? (.*)$", source, re.MULTILINE)
    above = re.search(rf"^ +#: (.*)\n +self\.{name} =", source, re.MULTILINE)
    found = above or comment
    kind = annotations.get(name)
    if kind is None:
        kind = inspect.get_annotations(view.__init__).get(name, "Callable[[], bool]" if above else "bytes")  # type: ignore[misc]
    text = found[1] if found else ""
    return getattr(kind, "__forward_arg__", str(kind)), text[:1].upper() + text[1:]


def _unit(types, text):
    """Of the numbers in it."""
    if not NUMBER.search(types):
        return ""
    return next((unit for unit, pattern in UNITS if re.search(pattern, text)), "")


def _whole(thing):
    return " ".join((inspect.getdoc(thing) or "").split())


def _first(thing):
    paragraph = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(paragraph.split()))


def reference():
    """The tables of hooks, verdicts, views and the test kit."""
    heads = "name, returns or type, unit, "
    parts = [f"### {title}\n\n{table(heads, rows)}" for title, rows in sections()]
    return "\n" + "\n\n".join(parts) + "\n"


def _takes(parameter):
    bounds = [
        f"{word} {bound:.15g}"
        for word, bound in (("from", parameter.least), ("to", parameter.most))
        if abs(bound) != math.inf
    ]
    if len(bounds) == 1:
        bounds[0] = bounds[0].replace("from", "at least").replace("to", "at most")
    return f"{parameter.kind}, {' '.join(bounds)}" if bounds else parameter.kind


def _default(parameter):
    shown = parameter.shown_default
    return shown if parameter.required or parameter.default is None else f"`{shown}`"


def parameters(name):
    """The table of the parameters of a shipped policy."""
    rows = (
        f"| `{one.key}` | {_takes(one)} | {_default(one)} | {one.help} |\n"
        for one in policy(name).parameters.values()
    )
    return "| key | takes | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def example(name):
    """The parts of config/policies.xml about a shipped policy."""
    head, _, rest = (ROOT / "config" / "policies.xml").read_text().partition("<acceptors>")
    plugin = r' *<broker-plugin name="([\w-]+)"(?: policy="([\w-]+)")?(?:/>|>.*?</broker-plugin>)'
    plugins = list(re.finditer(plugin, head, re.DOTALL))
    (own,) = (found[1] for found in plugins if (found[2] or found[1]) == name)
    used = [part for part in rest.split("\n\n") if re.search(rf'[">]{own}["<]', part)]
    settings = "\n".join(part.partition("\n    </address-settings>")[0] for part in used)
    if "<address-setting " not in settings:
        settings = f'      <address-setting match="#">\n{settings}'
    declared = [found[0] for found in plugins if re.search(rf'[">]{found[1]}["<]', settings)]
    parts = ("<broker-plugins>", *declared, "</broker-plugins>", "<address-settings>", settings)
    lines = "\n".join((*parts, "</address-settings>")).splitlines()
    return "\n".join(["```xml", *(line.removeprefix("    ") for line in lines), "```"])
