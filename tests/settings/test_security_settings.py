"""Permissions in broker.xml, and files of security."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.document import schema_bytes
from stompring.settings.model import PermissionType, SecuritySettingEntry

FILE = "/etc/stompring/broker.xml"


def parse(inside):
    text = f"<configuration><core>\n{inside}\n</core></configuration>"
    return parse_broker_xml(text.encode(), FILE)


def refused(inside):
    with pytest.raises(ConfigurationError) as raised:
        parse(inside)
    return str(raised.value)


def test_entries():
    found = parse(
        """<security-settings>
        <security-setting match="#"><permission type="send" roles=" a , b"/><permission type="deleteNonDurableQueue"
          roles="c"/></security-setting>
        <security-setting match="a.b::q"/>
        </security-settings>"""
    ).security_settings
    assert found == (
        SecuritySettingEntry(
            "#",
            {PermissionType.SEND: frozenset("ab"), PermissionType.DELETE_NON_DURABLE_QUEUE: frozenset("c")},
        ),
        SecuritySettingEntry("a.b::q"),
    )
    assert found[0].line == 3


def setting(inside="", match="#"):
    return f'<security-settings><security-setting match="{match}">{inside}</security-setting></security-settings>'


@pytest.mark.parametrize(
    "inside, text",
    [
        (setting('<permission type="sends" roles="a"/>'), "unknown permission; did you mean 'send'?"),
        (setting('<permission type="SEND" roles="a"/>'), "did you mean 'send'?"),
        (setting('<permission type="send"/>'), "<permission> has no attribute 'roles'; it is required"),
        (setting('<permission roles="a"/>'), "<permission> has no attribute 'type'; it is required"),
        (setting('<permission type="send" roles=""/>'), "must be a comma-separated list of roles"),
        (setting('<permission type="send" roles="a,,b"/>'), "must be a comma-separated list of roles"),
        (
            setting('<permission type="send" roles="a"/><permission type="send" roles="b"/>'),
            "permission 'send' is already defined at line 2",
        ),
        (
            setting().replace("</security-settings>", '\n<security-setting match="#"/></security-settings>'),
            "security-setting '#' is already defined at line 2",
        ),
        (setting(match="a*"), "'*' and '#' are wildcards only as whole words, not in 'a*'"),
        (setting(match="a.#::q"), "the address in address::queue must not contain wildcards"),
        (setting(match="::q"), "a queue is written as address::queue"),
        (setting(match="a::"), "a queue is written as address::queue"),
        (setting(match="a::b::c"), "a queue is written as address::queue"),
        (setting(match=""), "must not be empty"),
        (
            '<security-settings><role-mapping from="a" to="b"/></security-settings>',
            "<role-mapping> in <security-settings> is an Artemis setting without support in stompring",
        ),
        ("<security-invalidation-interval>-1</security-invalidation-interval>", "must be at least 0"),
    ],
)
def test_faults_are_reported_with_their_line(inside, text):
    fault = refused(inside)
    assert text in fault
    assert re.match(re.escape(FILE) + r":\d: ", fault)


def test_literal_matches():
    markers = "<literal-match-markers>()</literal-match-markers>"
    assert parse(markers + setting(match="(a*)")).security_settings[0].match == "(a*)"


@pytest.mark.parametrize(
    "inside, files",
    [
        ("<security-enabled>false</security-enabled>", (None, None, None)),
        (
            "<users-file>u</users-file><roles-file>sub/r</roles-file>"
            "<certificate-users-file>/abs/c</certificate-users-file>",
            ("u", "sub/r", "/abs/c"),
        ),
    ],
)
def test_files_are_beside_the_configuration(inside, files):
    found = parse(inside)
    expected = tuple(None if name is None else str(Path(FILE).parent / name) for name in files)
    assert (found.users_file, found.roles_file, found.certificate_users_file) == expected


def test_the_schema_has_every_permission():
    schema = ElementTree.fromstring(schema_bytes())
    xs = "{http://www.w3.org/2001/XMLSchema}"
    (found,) = (one for one in schema.findall(f"{xs}simpleType") if one.get("name") == "permission")
    assert [one.get("value") for one in found.iter(f"{xs}enumeration")] == list(PermissionType)
