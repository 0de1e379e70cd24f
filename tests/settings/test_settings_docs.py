"""docs/settings.md: its tables come from the rows of settings; what is written beside them is true."""

import re
from pathlib import Path

import pytest

from stompring.broker.limits import LIMITS
from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.document import all_elements, root_rules
from stompring.settings.machine import machine_memory
from stompring.settings.match import SettingsRepository
from stompring.settings.model import FullPolicy, PermissionType
from stompring.settings.urls import OLD_PARAMETER_NAMES

from ..docs import settings_reference
from ..docs.pages import text_of

DOCS = Path(__file__).parents[2] / "docs"
TEXT = text_of("docs/settings.md")
RULES = {(p, name): rule for p, name, rule in all_elements(root_rules())}


#: Defaults that are shares of the machine's memory.
SHARES = {
    "global-max-size": "a quarter of the memory",
    **dict.fromkeys(
        (
            "dispatch-memory",
            "global-max-transaction-size",
            "global-max-unfinished-size",
            "global-max-subscription-size",
        ),
        "a quarter of `global-max-size`, at least 16MB",
    ),
}


def tables(heading):
    """The rows of all tables under ``## heading``, each by its column's name."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = []
    columns = []
    for line in section.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        if not columns:
            columns = cells
        elif not set(line) <= set("|-"):
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def by_name(heading, column):
    rows = [row for row in tables(heading) if column in row]
    names = [row[column].strip("`") for row in rows]
    assert len(set(names)) == len(names), "documented twice"
    return dict(zip(names, rows, strict=True))


CORE = by_name("Elements of core", "element")
PARAMETERS = by_name("Acceptors", "parameter")
SETTINGS = by_name("Elements of address-setting", "element")


@pytest.mark.parametrize(
    "name", sorted({*(name for _, name in RULES), *OLD_PARAMETER_NAMES, *OLD_PARAMETER_NAMES.values()})
)
def test_every_element_and_old_name_is_mentioned(name):
    assert re.search(rf"[<`/]{re.escape(name)}[ >`/]", TEXT)


def test_defaults_that_are_shares_of_the_memory():
    """As the document words them, and as a file gets them that says nothing."""
    quarter, least = machine_memory() // 4, 16 * 1024 * 1024
    assert {name: CORE[name]["default"] for name in SHARES} == SHARES
    silent = parse_broker_xml(b"<configuration><core/></configuration>", "broker.xml")
    assert silent.global_max_size == quarter
    small = max(quarter // 4, least)
    assert all(getattr(silent, name.replace("-", "_")) == small for name in list(SHARES)[1:])


def test_the_default_policy_without_a_store():
    words = b"<configuration><core><persistence-enabled>false</persistence-enabled></core></configuration>"
    in_memory = SettingsRepository.of(parse_broker_xml(words, "broker.xml")).lookup("a")
    assert in_memory.address_full_policy is FullPolicy.BLOCK
    assert (
        "where `persistence-enabled` is false the default is BLOCK"
        in SETTINGS["address-full-policy"]["meaning"]
    )


def test_the_example_is_a_configuration():
    example, policy, *acceptors, permissions, plugins, diverts = re.findall(
        r"```xml\n(.*?)```", TEXT, re.DOTALL
    )
    text = example.replace("<wildcard-addresses>…</wildcard-addresses>", "").replace("…", "")
    configuration = parse_broker_xml(text.encode(), "docs/settings.md")
    assert configuration.addresses[0].queues[0].ring_size == 1000
    text = f"<configuration><core>{policy}</core></configuration>".replace("${file:/run/secrets/nats}", "x")
    assert parse_broker_xml(text.encode(), "docs/settings.md").replicated_log is not None
    text = f"<configuration><core>{permissions}</core></configuration>"
    entries = parse_broker_xml(text.encode(), "docs/settings.md").security_settings
    assert [entry.match for entry in entries] == ["#", "orders.#", "orders.eu::audit"]
    for acceptor in acceptors:
        text = f"<configuration><core><acceptors>{acceptor}</acceptors></core></configuration>"
        assert parse_broker_xml(text.encode(), "docs/settings.md").stomp_acceptors
    text = f"<configuration><core>{plugins}</core></configuration>"
    named = parse_broker_xml(text.encode(), "docs/settings.md").plugins
    assert [(plugin.name, plugin.policy) for plugin in named] == [
        ("rate-limit", "rate-limit"),
        ("slow-senders", "rate-limit"),
    ]
    text = f"<configuration><core>{diverts}</core></configuration>"
    (divert,) = parse_broker_xml(text.encode(), "docs/settings.md").diverts
    assert divert.forwarding_address == ("audit", "reports") and divert.transformer is not None


def test_every_permission_is_documented():
    documented = [
        name
        for row in tables("Permissions")
        if "`type`" in row
        for name in re.findall(r"`(\w+)`", row["`type`"])
    ]
    assert documented == list(PermissionType)


def test_attributes_of_plugins_are_documented():
    attributes = {
        (name, element)
        for element in ("broker-plugin", "property")
        for name in next(rule for (_, child), rule in RULES.items() if child == element).attributes
    }
    documented = {
        (row["name"].strip("`"), row["written as"].split("`")[1])
        for row in tables("Plugins")
        if "name" in row
    }
    assert documented == attributes


def test_every_limit_has_its_row_and_its_reason():
    rows = {row["limit"].strip("`"): row for row in tables("Limits")}
    without_a_setting = {"open-files", "first-frame", "address-words"}
    unrefused = {"maxUnsettledMessages", "outboxSize", "slow-consumer-threshold"}
    assert set(rows) - unrefused == {name for name in LIMITS if not name.startswith("http-")}
    known = {
        *CORE,
        *PARAMETERS,
        *SETTINGS,
        *RULES["resource-limit-settings", "resource-limit-setting"].children,
    }
    assert set(rows) - without_a_setting <= known
    assert all(all(row.values()) for row in rows.values())
    http = (DOCS / "http-api.md").read_text()
    section = http.split("### Limits", 1)[1].split("###", 1)[0]
    of_http = {name for name in LIMITS if name.startswith("http-")}
    assert set(re.findall(r"^\| `(http-[a-z-]+)`", section, re.MULTILINE)) == of_http


def test_tables_and_schema_come_from_the_rows():
    """``make schema`` writes the schema; the page has a table for each group of rows."""
    assert settings_reference.missing_tables((DOCS / "settings.md").read_text()) == set()
    assert settings_reference.schema() == settings_reference.SCHEMA.read_text()
