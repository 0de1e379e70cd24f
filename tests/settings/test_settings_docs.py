"""docs/settings.md names everything that can be configured, with the default and the range that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stompring.broker.rejections import LIMITS
from stompring.settings.acceptor import StompAcceptor
from stompring.settings.acceptor_url import OLD_PARAMETER_NAMES, STOMP_PARAMETERS
from stompring.settings.broker_xml import MAX_SESSIONS_OLD_NAME, parse_broker_xml
from stompring.settings.machine_memory import machine_memory
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressSettings,
    BrokerConfiguration,
    FullPolicy,
    PermissionType,
    QueueConfiguration,
    Retain,
    RoutingType,
    ThresholdUnit,
    WildcardSyntax,
)
from stompring.settings.schema import ElementRule, all_elements, root_rules
from stompring.settings.value_types import VALUE_TYPES

from ..docs import settings_reference

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"
TEXT = DOCS.read_text(encoding="utf-8")
RULES: dict[tuple[str, str], ElementRule] = {(p, name): rule for p, name, rule in all_elements(root_rules())}
QUEUE = RULES["anycast", "queue"]

Row = dict[str, str]

#: Defaults that are shares of the machine's memory.
SHARES = {
    "global-max-size": "a quarter of the memory",
    "dispatch-memory": "a quarter of `global-max-size`, at least 16MB",
    "global-max-transaction-size": "a quarter of `global-max-size`, at least 16MB",
    "global-max-unfinished-size": "a quarter of `global-max-size`, at least 16MB",
    "global-max-subscription-size": "a quarter of `global-max-size`, at least 16MB",
}


def tables(heading):
    """The rows of all tables under ``## heading``, each by its column's name."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows: list[Row] = []
    columns: list[str] = []
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


def shown(value):
    if value is None or value == ():
        return "none"
    if value == "":
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


CORE = by_name("Elements of core", "element")
WILDCARD = by_name("Elements of wildcard-addresses", "element")
PARAMETERS = by_name("Acceptors", "parameter")
SETTINGS = by_name("Elements of address-setting", "element")
QUEUES = by_name("Addresses and queues", "name")


def test_every_name_is_documented_and_nothing_else():
    core = RULES["configuration", "core"].children
    assert set(CORE) == {name for name, rule in core.items() if rule.text}
    assert set(WILDCARD) == set(RULES["core", "wildcard-addresses"].children)
    assert set(SETTINGS) == set(RULES["address-settings", "address-setting"].children)
    assert set(PARAMETERS) == set(STOMP_PARAMETERS)
    assert set(QUEUES) == {*QUEUE.attributes, *QUEUE.children}


@pytest.mark.parametrize(
    "name", sorted({*(name for _, name in RULES), *OLD_PARAMETER_NAMES, *OLD_PARAMETER_NAMES.values()})
)
def test_every_element_and_old_name_is_mentioned(name):
    assert re.search(rf"[<`/]{re.escape(name)}[ >`/]", TEXT)


@pytest.mark.parametrize(
    ("documented", "model"),
    [(CORE, BrokerConfiguration()), (WILDCARD, WildcardSyntax()), (SETTINGS, AddressSettings())],
    ids=["core", "wildcard-addresses", "address-setting"],
)
def test_defaults_of_elements(documented, model):
    for name, row in documented.items():
        if name not in SHARES:
            assert row["default"] == shown(getattr(model, name.replace("-", "_"))), name


def test_defaults_that_are_shares_of_the_memory():
    """As the document words them, and as a file gets them that says nothing."""
    quarter, least = machine_memory() // 4, 16 * 1024 * 1024
    assert {name: CORE[name]["default"] for name in SHARES} == SHARES
    silent = parse_broker_xml(b"<configuration><core/></configuration>", "broker.xml")
    assert silent.global_max_size == quarter
    assert silent.dispatch_memory == max(quarter // 4, least)
    assert silent.global_max_transaction_size == max(quarter // 4, least)
    assert (
        silent.global_max_unfinished_size == silent.global_max_subscription_size == max(quarter // 4, least)
    )


def test_the_default_policy_without_a_store():
    words = b"<configuration><core><persistence-enabled>false</persistence-enabled></core></configuration>"
    in_memory = SettingsRepository.of(parse_broker_xml(words, "broker.xml")).lookup("a")
    assert in_memory.address_full_policy is FullPolicy.BLOCK
    assert (
        "where `persistence-enabled` is false the default is BLOCK"
        in SETTINGS["address-full-policy"]["meaning"]
    )


def test_defaults_of_parameters():
    acceptor = StompAcceptor("", "", 0)
    for name, row in PARAMETERS.items():
        parameter = STOMP_PARAMETERS[name]
        value = getattr(getattr(acceptor, parameter.part) if parameter.part else acceptor, parameter.field)
        assert row["default"] == shown(value), name


def test_defaults_of_queues():
    queue = QueueConfiguration("", "", RoutingType.ANYCAST)
    for name, row in QUEUES.items():
        source = re.fullmatch(r"from `([a-z-]+)`", row["default"])
        value = getattr(queue, name.replace("-", "_"))
        if source:
            assert value is None and source[1] in SETTINGS, name
        else:
            assert row["default"] == shown(value or None if name == "name" else value), name


def test_queue_options_are_elements_or_attributes_as_documented():
    for name, row in QUEUES.items():
        assert ("attribute" in row["written as"].split(",")[0]) == (name in QUEUE.attributes), name
        assert ("element" in row["written as"]) == (name in QUEUE.children), name
    assert "required" in QUEUES["name"]["written as"]


def readers():
    """What is documented as (name, takes, unit, its reader)."""
    found = [(name, row, RULES["core", name].text) for name, row in CORE.items()]
    found += [(name, row, RULES["wildcard-addresses", name].text) for name, row in WILDCARD.items()]
    found += [
        (name, row, RULES["address-setting", name].text)
        for name, row in SETTINGS.items()
        if name != "address-policy"  # which holds elements
    ]
    for name, row in QUEUES.items():
        kind = QUEUE.attributes[name].type if name in QUEUE.attributes else QUEUE.children[name].text
        found.append((f"queue {name}", row, kind or QUEUE.children[name].attributes["string"].type))
    rows = [(name, row["values"], row["unit"], VALUE_TYPES[kind or ""].read) for name, row, kind in found]
    rows += [
        (name, row["values"], row["unit"], STOMP_PARAMETERS[name].read) for name, row in PARAMETERS.items()
    ]
    return rows


def takes(read, text):
    try:
        read(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("name", "range_", "unit", "read"), readers(), ids=[row[0] for row in readers()])
def test_ranges_and_units(name, range_, unit, read):
    if number := re.fullmatch(r"(-1 or )?≥ (\d+)", range_):
        least = int(number[2])
        below = {least - 1, -2} - ({-1} if number[1] else set())
        assert takes(read, str(least)) and takes(read, str(least + 7))
        assert not any(takes(read, str(n)) for n in below)
        assert takes(read, "-1") == bool(number[1])
        assert unit
    elif percent := re.fullmatch(r"(-1 or )?0 to 100", range_):
        assert takes(read, "0") and takes(read, "100") and not takes(read, "101") and not takes(read, "-2")
        assert takes(read, "-1") == bool(percent[1])
    elif range_ == "0 to 1":
        assert takes(read, "0") and takes(read, "1") and not takes(read, "1.1") and not takes(read, "-0.1")
    elif range_ == "PAGE, BLOCK, DROP, FAIL, a plugin":
        assert all(takes(read, text) for text in ("PAGE", "BLOCK", "DROP", "FAIL", "rate-limit"))
        assert not takes(read, "") and not takes(read, "a plugin")
    elif range_ == "a regular expression":
        assert takes(read, "^a|b$") and not takes(read, "(") and not takes(read, "")
    elif range_ in ("a text", "a name", "a selector"):
        assert takes(read, "a") and not takes(read, "")
    elif range_ in ("any text", "a name, or empty"):
        assert takes(read, "a") and takes(read, "")
    elif range_ == "the name of a header, or empty":
        assert takes(read, "JMSXGroupFirstForConsumer") and takes(read, "")
        assert not takes(read, "destination") and not takes(read, "a\nb")
    elif range_ in ("one character", "two characters"):
        assert [length for length in range(5) if takes(read, "x" * length)] == [
            1 if range_ == "one character" else 2
        ]
    elif range_ == "a comma list":
        assert takes(read, "a,b") and not takes(read, "a,,b")
    elif range_ == "a list of origins":
        assert takes(read, "https://a,http://b:8080") and takes(read, "*") and not takes(read, "a,b")
    elif range_ == "binary, text":
        assert takes(read, "binary") and takes(read, "TEXT") and not takes(read, "true")
    else:
        known = range_.split(", ")
        every = {
            "true",
            "false",
            "BLOCK",
            "DROP",
            "FAIL",
            "PAGE",
            "OFF",
            "FORCE",
            "DISCARD",
            "DEAD_LETTER",
            "ANYCAST",
            "MULTICAST",
            "NOTIFY",
            "KILL",
            *ThresholdUnit,
            *Retain,
        }
        assert {text for text in every if takes(read, text)} == set(known)
    assert takes(read, "10M") == (unit == "bytes") or range_.startswith(("a ", "any", "the name"))


def test_every_row_has_a_meaning_and_a_source():
    for rows in (CORE, WILDCARD, PARAMETERS, SETTINGS, QUEUES):
        for name, row in rows.items():
            assert row["meaning"].endswith((".", "`.")), name
            assert row["source"].split(",")[0] in ("Artemis", "stompring"), name


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


def test_limits_of_users():
    documented = [row["name"].strip("`") for row in tables("Users' limits")]
    rule = RULES["resource-limit-settings", "resource-limit-setting"]
    assert {*documented, MAX_SESSIONS_OLD_NAME} == set(rule.children) and f"`{MAX_SESSIONS_OLD_NAME}`" in TEXT


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
    http = (DOCS.parent / "http-api.md").read_text(encoding="utf-8")
    section = http.split("### Limits", 1)[1].split("###", 1)[0]
    of_http = {name for name in LIMITS if name.startswith("http-")}
    assert set(re.findall(r"^\| `(http-[a-z-]+)`", section, re.MULTILINE)) == of_http


def test_tables_and_schema_come_from_the_rows():
    """``make docs-reference`` writes both."""
    assert settings_reference.page() == TEXT
    assert settings_reference.schema() == settings_reference.SCHEMA.read_text(encoding="utf-8")
