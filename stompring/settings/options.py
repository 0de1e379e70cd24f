"""The kind of row that describes one setting of broker.xml, and the tables of such rows.

A row stands at the field of the dataclass that it describes, in `settings.model` and `settings.acceptor`:
``ring_counts_paged: bool | None = option(None, "boolean", "…")``. From the rows come the elements and attributes in
schema.xsd and the tables in docs/settings.md (``make docs-reference`` writes both), the parameters of acceptor URLs,
the JSON fields of queues in the HTTP interface and in an export, and the settings that a reload can apply.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, field, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

ARTEMIS = "Artemis"
ARTEMIS_OTHER_DEFAULT = "Artemis, other default"
STOMPRING = "stompring"

#: What the HTTP interface accepts of a queue option: nothing, its value in POST only, or in POST and PATCH.
NOT_IN_HTTP, CREATE_ONLY, CHANGEABLE = "", "create", "change"

_KEY = "option"


class Option(NamedTuple):
    """One row."""

    name: str  # of the dataclass field
    type: (
        str  # simple type in schema.xsd, key of `value_types.VALUE_TYPES`; empty for an element with children
    )
    default: Any
    meaning: str  # one or more sentences in Markdown
    unit: str = ""
    source: str = ARTEMIS  # where the setting comes from
    group: str = ""  # heading of its table in docs/settings.md
    default_text: str = ""  # where the default is no constant
    reloadable: bool = True  # False: a change requires a restart
    element: str = ""  # in broker.xml or in a URL, where it is not the name with dashes
    written_as: str = "element"
    inherits: str = ""  # the field of `AddressSettings` that a queue without a value of its own takes
    http: str = NOT_IN_HTTP

    @property
    def xml_name(self) -> str:
        """The name in broker.xml: ``ring-size``."""
        return self.element or self.name.replace("_", "-")

    @property
    def parameter_name(self) -> str:
        """The name in the URL of an acceptor: ``connectionTtl``."""
        return self.element or camel_case(self.name)

    @property
    def json_name(self) -> str:
        """The name in JSON: ``ringSize``."""
        return camel_case(self.name)


def option(default: T, type: str, meaning: str, **columns: Any) -> T:
    """The default of a dataclass field, with its row; ``columns`` are fields of `Option`."""
    return field(default=default, metadata={_KEY: (type, meaning, columns)})


def row(type: str, meaning: str, **columns: Any) -> dict[str, Any]:
    """The metadata of a dataclass field without default."""
    return {_KEY: (type, meaning, columns)}


def section(default: T, element: str, *, reloadable: bool = True) -> T:
    """The default of a field whose element has children, and so no row in a table."""
    return field(default=default, metadata=row("", "", element=element, reloadable=reloadable))


@cache
def options_of(kind: type) -> tuple[Option, ...]:
    """The rows of a dataclass, in the order of its fields. A group holds until the next begins."""
    found: list[Option] = []
    group = ""
    for each in fields(kind):
        if _KEY in each.metadata:
            found.append(_option(each, group))
            group = found[-1].group
    return tuple(found)


def _option(declared: Field[Any], group: str) -> Option:
    type_name, meaning, columns = declared.metadata[_KEY]
    default = None if declared.default is MISSING else declared.default
    return Option(declared.name, type_name, default, meaning, **{"group": group, **columns})


def camel_case(name: str) -> str:
    """``ring_size`` as ``ringSize``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
