"""The schema, the model and the readers say the same."""

from copy import deepcopy
from dataclasses import fields
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from stompring.settings.artemis import SECTIONS
from stompring.settings.broker_xml import _canonical
from stompring.settings.document import all_elements, parents_of, root_rules, schema_bytes
from stompring.settings.model import (
    AddressSettings,
    BrokerConfiguration,
    ReplicatedLogSettings,
    WildcardSyntax,
)
from stompring.settings.urls import PARAMETER_TYPES

XS = "{http://www.w3.org/2001/XMLSchema}"
RULES = {(p, name): rule for p, name, rule in all_elements(root_rules())}
#: The simple types of elements and attributes.
KINDS = sorted(
    {rule.text for rule in RULES.values() if rule.text}
    | {attribute.type for rule in RULES.values() for attribute in rule.attributes.values()}
)


def snakes(names):
    return {name.replace("-", "_") for name in names}


def leaves(rule):
    return snakes(name for name, child in rule.children.items() if child.text and not child.attributes)


def test_core_has_an_element_for_every_field():
    sections = {
        "wildcard",
        "stomp_acceptors",
        "http_acceptors",
        "plugins",
        "resource_limits",
        "bridges",
        "login_modules",
        "security_settings",
        "address_settings",
        "addresses",
        "diverts",
        "journal_retention_directory",
        "replicated_log",
    }
    rule = RULES["configuration", "core"]
    assert leaves(rule) == {field.name for field in fields(BrokerConfiguration)} - sections - {
        "document",
        "file",
        "files",
        "guest",
        "warnings",
        "ignored",
        "notified",
    }
    assert set(rule.children) - {name.replace("_", "-") for name in leaves(rule)} == {
        "acceptors", "address-settings", "addresses", "bridges", "broker-plugins", "connectors", "diverts",
        "ha-policy", "journal-retention-directory", "login-modules", "resource-limit-settings", "security-settings",
        "wildcard-addresses",
    }  # fmt: skip
    log = RULES["ha-policy", "replicated-log"]
    assert (
        snakes(log.attributes) == {field.name for field in fields(ReplicatedLogSettings)} and not log.children
    )
    assert leaves(RULES["core", "wildcard-addresses"]) == {field.name for field in fields(WildcardSyntax)}


def test_types_of_values_are_those_of_the_fields():
    """What the reader of an element makes of the default is the default again."""
    for model, parent in [
        (AddressSettings(), "address-setting"),
        (BrokerConfiguration(), "core"),
        (WildcardSyntax(), "wildcard-addresses"),
    ]:
        for name in [name for above, name in RULES if above == parent and RULES[above, name].text]:
            default = getattr(model, name.replace("-", "_"))
            if default is None:
                continue
            value = PARAMETER_TYPES[RULES[parent, name].text or ""].read(_canonical(default, str(default)))
            assert value == default and type(value) is type(default), name


def test_every_simple_type_has_a_reader():
    only_in_urls = {"prefixes", "origins", "encoderType", "seconds", "prefetchCount", "heartBeatFactor"}
    assert set(KINDS) == PARAMETER_TYPES.keys() - only_in_urls


def test_no_name_is_both_known_and_not_supported():
    for section, names in SECTIONS.items():
        rule = next(rule for (_, name), rule in RULES.items() if name == section)
        assert not set(names) & {*rule.children, *rule.attributes}


def test_homes():
    assert parents_of("queue") == ("anycast", "multicast")
    assert parents_of("default-ring-size") == ("address-setting",)
    assert parents_of("configuration") == parents_of("nowhere") == ()


@cache
def probes():
    """The schema with an element for each simple type, named as the type."""
    schema = deepcopy(etree.fromstring(schema_bytes()))
    for kind in KINDS:
        etree.SubElement(schema, f"{XS}element", {"name": f"probe-{kind}", "type": kind})
    return etree.XMLSchema(schema)


def schema_takes(kind, text):
    element = etree.Element(f"probe-{kind}")
    element.text = text
    return bool(probes().validate(etree.ElementTree(element)))


def reader_takes(kind, text):
    try:
        PARAMETER_TYPES[kind].read(text)
    except ValueError:
        return False
    return True


SIZES = ("positiveBytes", "byteLimit", "bytesOrNoLimit")
NUMBERS = [kind for kind in KINDS if reader_takes(kind, "1") and not reader_takes(kind, "x")]


@pytest.mark.parametrize("kind", NUMBERS)
@given(number=st.integers(-3, 3) | st.integers(-(2**64), 2**64))
def test_schema_and_readers_take_the_same_numbers(kind, number):
    if kind not in SIZES or number < 2**63:  # to the schema a size is a text of digits, however many
        assert reader_takes(kind, str(number)) == schema_takes(kind, str(number))


TEXTS = [
    "true",
    "TRUE",
    "false",
    "10MB",
    "0K",
    "2048",
    "2048b",
    "1048576 B",
    "5 kib",
    "0.5",
    ".5",
    "3.",
    "x",
    "()",
    "",
    "drop",
    "PAGE",
    "Anycast",
    "off",
    "a.b",
]


@pytest.mark.parametrize("kind", KINDS)
def test_schema_accepts_canonical_values(kind):
    for text in TEXTS:
        if reader_takes(kind, text):
            assert schema_takes(kind, _canonical(PARAMETER_TYPES[kind].read(text), text)), text


@pytest.mark.parametrize(
    "kind, text",
    [
        ("fullPolicy", "N NE"),
        ("pageFullPolicy", "BLOCK"),
        ("diskFullPolicy", "PAGE"),
        ("percentage", "101"),
        ("percentageLimit", "-2"),
        ("fileSize", "1023"),
        ("cacheSize", "4096"),
        ("bytesOrNoLimit", "-1K"),
        ("boolean", "yes"),
        ("ringSize", "0"),
        ("byteLimit", "10X"),
        ("markers", "("),
        ("name", ""),
    ],
)
def test_the_schema_refuses_values_too(kind, text):
    assert not schema_takes(kind, text) and not reader_takes(kind, text)
