"""``<broker-plugins>``, ``<address-policy>``, and plugins as ``<address-full-policy>``."""

import pytest

from stompring.settings.match import SettingsRepository
from stompring.settings.model import FullPolicy, PluginConfiguration, PolicyUse, Property

from .documents import faults, parse


def plugins(*inside):
    return f"<broker-plugins>{''.join(inside)}</broker-plugins>"


def settings(*inside, match="a"):
    return f'<address-settings><address-setting match="{match}">{"".join(inside)}</address-setting></address-settings>'


ONE = plugins('<broker-plugin name="one"/>')


def test_plugins_and_properties_are_read():
    configuration = parse(
        plugins(
            '<broker-plugin name="one"><property key="a" value=" 1 "/><property key="b" value=""/></broker-plugin>',
            '<broker-plugin name="Two_2" policy="other-policy"/>',
        ),
        settings(
            '<address-policy name="one" enabled="false"/>',
            '<address-policy name="Two_2"><property key="c" value="x"/></address-policy>',
            "<address-full-policy>one</address-full-policy>",
        ),
    )
    assert configuration.plugins == (
        PluginConfiguration("one", "one", (Property("a", "1"), Property("b", "")), 3),
        PluginConfiguration("Two_2", "other-policy", (), 3),
    )
    values = configuration.address_settings[0].values
    assert values["address_policy"] == (
        PolicyUse("one", enabled=False),
        PolicyUse("Two_2", (Property("c", "x"),)),
    )
    assert values["address_full_policy"] == "one"


def test_lines_are_those_of_the_elements():
    configuration = parse(
        "<broker-plugins>",
        '<broker-plugin name="one">',
        '<property key="a" value="1"/>',
        "</broker-plugin>",
        "</broker-plugins>",
        settings('<address-policy name="one"/>'),
    )
    (plugin,) = configuration.plugins
    assert (plugin.line, plugin.properties[0].line) == (4, 5)
    uses = configuration.address_settings[0].values["address_policy"]
    assert [use.line for use in uses] == [8]


def test_built_in_policies_in_any_case_precede_plugins():
    configuration = parse(settings("<address-full-policy>page</address-full-policy>"))
    assert configuration.address_settings[0].values["address_full_policy"] is FullPolicy.PAGE


def test_policies_of_all_entries_that_match_add_up():
    configuration = parse(
        plugins(*(f'<broker-plugin name="{name}"/>' for name in "xyz")),
        "<address-settings>",
        '<address-setting match="#"><address-policy name="x"/><address-policy name="y"/></address-setting>',
        '<address-setting match="a.#"><address-policy name="z"/><address-policy name="x" enabled="false"/>'
        "</address-setting>",
        "</address-settings>",
    )
    repository = SettingsRepository.of(configuration)
    assert [use.name for use in repository.lookup("b").address_policy] == ["x", "y"]
    found = repository.lookup("a.b").address_policy
    assert [(use.name, use.enabled) for use in found] == [("x", False), ("y", True), ("z", True)]


@pytest.mark.parametrize(
    "lines, fault",
    [
        (
            [plugins('<broker-plugin policy="x"/>')],
            "3: <broker-plugin> has no attribute 'name'; it is required",
        ),
        (
            [plugins('<broker-plugin name="1st"/>')],
            "name of <broker-plugin> is '1st': must consist of letters",
        ),
        ([plugins('<broker-plugin name="a/b"/>')], "must consist of letters"),
        (
            [plugins('<broker-plugin name="page"/>')],
            "broker-plugin 'page': PAGE is a built-in policy; use another name",
        ),
        (
            [plugins('<broker-plugin class-name="a.B" name="b"/>')],
            "attribute 'class-name' of <broker-plugin> is an Artemis setting",
        ),
        (
            [plugins('<broker-plugin name="a"><property key="k"/></broker-plugin>')],
            "has no attribute 'value'; it is required",
        ),
        (
            [plugins('<broker-plugin name="a"/>', '<broker-plugin name="a"/>')],
            "broker-plugin 'a' is already defined at line 3",
        ),
        (
            [
                plugins(
                    '<broker-plugin name="a"><property key="k" value="1"/><property key="k" value="2"/></broker-plugin>'
                )
            ],
            "property 'k' is already defined at line 3",
        ),
        (
            [settings('<address-policy name="one"/>')],
            'names no <broker-plugin>; declare it: <broker-plugins><broker-plugin name="one"/></broker-plugins>',
        ),
        ([ONE, settings('<address-policy name="on"/>')], "names no <broker-plugin>; did you mean 'one'?"),
        (
            [ONE, settings('<address-policy name="one"/>', '<address-policy name="one"/>')],
            '<address-policy name="one"> is given twice',
        ),
        ([ONE, settings('<address-policy name="one" enabled="maybe"/>')], "must be true or false"),
        (
            [ONE, settings("<address-full-policy>ones</address-full-policy>")],
            "must be one of PAGE, DROP, FAIL, BLOCK, or a <broker-plugin>; did you mean 'one'?",
        ),
    ],
)
def test_contradictions_are_reported(lines, fault):
    (found,) = faults(*lines)
    assert fault in found
