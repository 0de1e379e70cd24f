"""The tables of docs/settings.md and the settings in schema.xsd, made from the rows at the dataclass fields.

``python -m tests.docs.settings_reference`` writes schema.xsd.
"""

import re

from stompring.cli.settings import KINDS as BY_ELEMENT
from stompring.cli.settings import shown_default, shown_values
from stompring.settings import model
from stompring.settings.model import options_of

from .generated import table as markdown_table
from .source import ROOT

SCHEMA = ROOT / "stompring" / "settings" / "schema.xsd"


#: A marker in schema.xsd, and the lines up to the next one.
LINES = re.compile(
    r"( *<!-- (elements|attributes) of (\w+), written by `make schema` -->\n)(?:.*\n)*?( *<!-- end -->\n)"
)

#: What `schema_lines` leaves to the schema's own lines: elements with attributes or children.
SIMPLE = frozenset(
    {"element", "element, required", "attribute", "attribute or element", "attribute, required"}
)


def _name(row):
    return f"`{row.xml_name}`"


#: What stands in a column, by its heading.
EVERY = {
    **dict.fromkeys(("element", "name", "attribute"), _name),
    "parameter": lambda row: f"`{row.parameter_name}`",
    "default": shown_default,
    "unit": lambda row: row.unit,
    "values": shown_values,
    "written as": lambda row: row.written_as,
    "meaning": lambda row: row.meaning,
    "source": lambda row: row.source,
    "a change applies": lambda row: "on reload" if row.reloadable else "at restart",
}
REST = ("default", "unit", "values", "meaning", "source")
OTHERS = {
    model.BrokerConfiguration: ("element", *REST, "a change applies"),
    model.QueueConfiguration: ("name", "default", "unit", "values", "written as", "meaning", "source"),
    model.DivertConfiguration: ("name", "default", "values", "written as", "meaning", "source"),
    model.StompAcceptor: ("parameter", *REST),
    model.Connector: ("parameter", *REST),
    model.Retention: ("name", *REST),
    model.ReplicatedLogSettings: ("attribute", *REST),
    model.LoginModule: ("attribute", *REST),
    model.LdapLogin: ("attribute", *REST),
    model.TokenLogin: ("attribute", *REST),
    model.ResourceLimit: ("name", "default", "values", "meaning", "source"),
}


#: The dataclasses with rows, by name.
KINDS = {kind.__name__: kind for kinds in BY_ELEMENT.values() for kind in kinds}


def table(names, group=""):
    """The table of the rows of dataclasses, with ``+`` between two, that are in a group."""
    kinds = [KINDS[name] for name in names.split("+")]
    columns = OTHERS.get(kinds[0], ("element", *REST))
    rows = [row for kind in kinds for row in options_of(kind) if row.meaning and row.group == group]
    return (
        markdown_table(", ".join(columns), [[EVERY[column](row) for column in columns] for row in rows])
        + "\n"
    )


def tables(name, *groups):
    """The tables of several groups of a dataclass, each with its heading."""
    return "\n".join(f"### {group}\n\n{table(name, group)}" for group in groups) + "\n"


def missing_tables(text):
    """The dataclasses and groups with rows for which a page has no table."""
    marks = re.findall(
        r"^<!-- generated: settings_reference\.tables? ([\w+]+)(?:, (.+?))? -->$", text, re.MULTILINE
    )
    found = {
        (name, each) for names, group in marks for name in names.split("+") for each in group.split(", ")
    }
    return {
        (kind.__name__, row.group) for kind in KINDS.values() for row in options_of(kind) if row.meaning
    } ^ found


def schema_lines(kind, what):
    """The elements or attributes of a dataclass as schema.xsd declares them."""
    for row in options_of(kind):
        if not row.type or row.written_as not in SIMPLE:
            continue
        required = ' use="required"' if "required" in row.written_as else ""
        if what == "attributes" and "attribute" in row.written_as:
            yield f'<xs:attribute name="{row.xml_name}" type="{row.type}"{required}/>'
        elif what == "elements" and "element" in row.written_as:
            optional = "" if "required" in row.written_as else ' minOccurs="0"'
            yield f'<xs:element name="{row.xml_name}" type="{row.type}"{optional}/>'


def schema():
    """schema.xsd as it should be."""

    def lines(match):
        indent = " " * (len(match[1]) - len(match[1].lstrip()))
        declared = schema_lines(getattr(model, match[3]), match[2])
        return match[1] + "".join(f"{indent}{line}\n" for line in declared) + match[4]

    return LINES.sub(lines, SCHEMA.read_text())


if __name__ == "__main__":
    SCHEMA.write_text(schema())
