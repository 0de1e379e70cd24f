"""docs/policies.md has every shipped policy, and what it shows of broker.xml can be used."""

import re
import shutil

import pytest

from stompring.policy.load import PluginSources, load
from stompring.settings.broker_xml import parse_broker_xml, read_broker_xml

from ..docs.pages import text_of
from ..docs.policy_reference import parameters
from . import ROOT, SOURCES, policy

TEXT = text_of("docs/policies.md")
NAMES = sorted(SOURCES.modules())
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
SNIPPETS = {name: re.findall(r"^```xml\n(.*?)^```$", text, re.M | re.S) for name, text in SECTIONS.items()}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(text):
    """The rows of the first table, without its head."""
    lines = text[text.index("\n| ") :].strip().splitlines()
    rows = [cells(line) for line in lines[: next((n for n, line in enumerate(lines) if not line), None)]]
    assert set("".join(rows[1])) == {"-"}
    return [rows[0], *rows[2:]]


def test_every_policy_has_its_section_and_its_line():
    assert sorted(SECTIONS) == NAMES
    assert all(parameters(name) in text for name, text in SECTIONS.items())
    linked = [re.fullmatch(r"\[(\S+)\]\(#(\S+)\)", row[0]) for row in table(TEXT)[1:]]
    assert sorted(found[1] for found in linked if found and found[1] == found[2]) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_hooks(name):
    (row,) = [row for row in table(TEXT)[1:] if row[0].startswith(f"[{name}]")]
    hooks = {
        "admit",
        "full",
        "overflow",
        "enqueued",
        "evicted",
        "expired",
        "killed",
        "subscribed",
        "delivered",
        "entered",
    }
    assert set(re.findall(r"`(\w+)`", row[2])) == hooks & set(vars(policy(name)))


def used(configuration):
    """The policies that addresses have, by the names of their modules."""
    modules = {plugin.name: plugin.policy for plugin in configuration.plugins}
    named = set()
    for entry in configuration.address_settings:
        named |= {use.name for use in entry.values.get("address_policy", ()) if use.enabled}
        named.add(entry.values.get("address_full_policy"))
    return {modules[name] for name in named if name in modules}


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_broker_xml_can_be_loaded(name, tmp_path):
    (tmp_path / "plugins").symlink_to(ROOT / "plugins")
    shutil.copy(ROOT / "config" / "order.schema.json", tmp_path)
    (snippet,) = SNIPPETS[name]
    file = str(tmp_path / "broker.xml")
    configuration = parse_broker_xml(f"<configuration><core>{snippet}</core></configuration>".encode(), file)
    load(configuration, PluginSources(file))
    assert name in used(configuration)


def test_the_example_uses_all_of_them():
    file = ROOT / "config" / "policies.xml"
    configuration = read_broker_xml(file)
    load(configuration, PluginSources(str(file)))
    assert used(configuration) == set(NAMES)
