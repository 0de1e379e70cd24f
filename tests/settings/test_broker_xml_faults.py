"""Faults of a file, each with its line, the element, its parent and the nearest known name."""

import time

import pytest
from lxml import etree

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import _validate
from stompring.settings.document import MAX_FAULTS, Faults

from .documents import QUIET, acceptor, faults, faults_of, queue, setting

UNKNOWN = [
    ("<nmae>x</nmae>", "unknown element <nmae> in <core>; did you mean 'name'?"),
    ("<zzzzzz/>", "unknown element <zzzzzz> in <core>"),
    (
        "<default-ring-size>5</default-ring-size>",
        "<default-ring-size> in <core>; it belongs in <address-setting>",
    ),
    ("<queue name='x'/>", "unknown element <queue> in <core>; it belongs in <anycast> or <multicast>"),
    (
        setting("default-ringsize", "5"),
        "unknown element <default-ringsize> in <address-setting>; did you mean 'default-ring-size'?",
    ),
    (setting("Default-Ring-Size", "5"), "did you mean 'default-ring-size'?"),
    (queue('ring-sise="5"'), "unknown attribute 'ring-sise' of <queue>; did you mean 'ring-size'?"),
    (
        queue('durable="true"'),
        "unknown attribute 'durable' of <queue>; it is an element: <queue><durable>…</durable></queue>",
    ),
    (
        queue("", "<ring-size>5</ring-size>"),
        'unknown element <ring-size> in <queue>; it is an attribute: <queue ring-size="…">',
    ),
    (queue("", "<filter>x = 1</filter>"), "<filter> has no attribute 'string'; it is required"),
    (queue("", "<wibble/>"), "unknown element <wibble> in <queue>"),
    (
        "<wildcard-addresses><x/></wildcard-addresses>",
        "known: any-words, delimiter, routing-enabled, single-word",
    ),
    (
        "<acceptors><connector name='x'>tcp://a:1</connector></acceptors>",
        "<connector> in <acceptors>; it belongs in <connectors>",
    ),
    ("<name lang='en'>x</name>", "unknown attribute 'lang' of <name>"),
    ("<name><b>x</b></name>", "unknown element <b> in <name>"),
]


@pytest.mark.parametrize("line, expected", UNKNOWN, ids=[row[1] for row in UNKNOWN])
def test_unknown_names(line, expected):
    found = faults(QUIET, line)
    assert found[0].startswith("4: ")
    assert any(expected in fault for fault in found), found


ARTEMIS = [
    ("<queues><queue name='x'><address>x</address></queue></queues>", "declare the queue in <addresses>"),
    ("<security-settings><role-mapping/></security-settings>", "use the role names of the roles-file"),
    (
        "<ha-policy><replication><backup/></replication></ha-policy>",
        "<replication> in <ha-policy> is an Artemis setting without support in stompring: this broker is alone: it",
    ),
    (
        "<wild-card-routing-enabled>false</wild-card-routing-enabled>",
        "use <wildcard-addresses><routing-enabled>",
    ),
    (
        "<address-queue-scan-period>-1</address-queue-scan-period>",
        "to keep all queues set auto-delete-queues",
    ),
    ("<mask-password>true</mask-password>", "write the password plainly, or as ${env:NAME}"),
    ("<federations/>", "consumers read from its own queues only"),
    (setting("auto-create-jms-queues", "false"), "use auto-create-queues and auto-create-addresses"),
    (
        setting("auto-delete-addresses-skip-usage-check", "true"),
        "<auto-delete-addresses-skip-usage-check> in <address-setting> is an Artemis setting without support",
    ),
    (queue('auto-delete="true"'), "set auto-delete-created-queues and auto-delete-queues-…"),
]


@pytest.mark.parametrize("line, expected", ARTEMIS, ids=[row[1] for row in ARTEMIS])
def test_artemis_settings_without_support_get_advice(line, expected):
    (found,) = faults(QUIET, line)
    assert found.startswith("4: ") and "an Artemis setting" in found and expected in found


VALUES = [
    (queue('group-buckets="-2"'), "must be -1 (an owner for each group) or at least 0"),
    (queue('last-value-key="receipt"'), "must be a header that senders add to their messages; the broker"),
    (setting("default-last-value-key", "priority"), "must be a header that senders add to their messages"),
    (queue('group-first-key="message-id"'), "must not be a header that every MESSAGE has"),
    (setting("default-group-first-key", "destination"), "must not be a header that every MESSAGE has"),
    (
        setting("default-ring-size", "0"),
        "<default-ring-size> is '0': must be -1 (no ring) or at least 1; a ring of 0",
    ),
    (queue('ring-size="0"'), "ring-size of <queue> is '0'"),
    (queue("", "<filter string='a = '/>"), "string of <filter> is 'a =': "),
    (queue("", "<filter string=''/>"), "string of <filter> is '': must not be empty"),
    (queue('name2="q"'), "unknown attribute 'name2'"),
    ("<disk-full-policy>FAIL</disk-full-policy>", "it belongs in <address-setting>"),
    (setting("max-disk-usage", "90"), "it belongs in <core>"),
    ("<journal-directory/>", "<journal-directory> is '': must not be empty"),
    ("<global-max-size>0</global-max-size>", "use -1 for no limit"),
    (
        "<name>${broker.name}</name>",
        "<name>: property broker.name is not set: set the environment variable BROKER_NAME",
    ),
    ("text <name>x</name>", "unexpected text 'text' in <core>; only elements and attributes are allowed"),
    ("<acceptors>tcp://127.0.0.1:61613</acceptors>", "text 'tcp://127.0.0.1:61613' in <acceptors>"),
    (
        "<acceptors><acceptor>tcp://127.0.0.1:1</acceptor></acceptors>",
        "<acceptor> has no attribute 'name'; it is required",
    ),
    ("<acceptors><acceptor name='x'/></acceptors>", "<acceptor> is '': must not be empty"),
    (
        "<addresses><address><anycast/></address></addresses>",
        "<address> has no attribute 'name'; it is required",
    ),
    (
        "<address-settings><address-setting/></address-settings>",
        "<address-setting> has no attribute 'match'; it is required",
    ),
    ("<addresses><address name='a::b'/></addresses>", "must not contain '::'"),
]


@pytest.mark.parametrize("line, expected", VALUES, ids=[row[1] for row in VALUES])
def test_values(line, expected):
    found = faults(QUIET, line)
    assert found[0].startswith(("4: ", "2: "))
    assert any(expected in fault for fault in found), found


def test_an_element_given_twice():
    assert faults("<name>x</name>", "<name>y</name>") == [
        "4: <name> is given twice in <core>; the first is at line 3"
    ]
    assert faults("<name>x</name><name>x</name>") == [
        "3: <name> is given twice in <core>; the first is at line 3"
    ]
    assert (
        "given twice in <address>"
        in faults('<addresses><address name="a"><anycast/><anycast/></address></addresses>')[0]
    )


def test_faults_are_reported_in_order_of_their_lines():
    found = faults(
        QUIET,
        "<nmae>x</nmae>",
        acceptor("tcp://127.0.0.1:x"),
        setting("default-ring-size", "0"),
        queue('ring-size="0" last-value="maybe"'),
        "<global-max-size>much</global-max-size>",
    )
    assert [fault.split(":")[0] for fault in found] == ["4", "5", "6", "7", "7", "8"]


def test_faults_of_different_elements_are_all_reported():
    found = faults(
        '<addresses><address name="a"><anycast>',
        '<queue ring-size="0"/>',
        '<queue name="x"/><queue name="x"/>',
        "</anycast></address></addresses>",
    )
    assert found == [
        "4: <queue> has no attribute 'name'; it is required",
        "4: ring-size of <queue> is '0': must be -1 (no ring) or at least 1; a ring of 0 holds no message; "
        "use -1 for no ring",
        "5: queue 'x' is already defined at line 5",
    ]


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", "1: not well-formed XML: "),
        (b"<configuration><core></configuration>", "1: not well-formed XML: Opening and ending tag mismatch"),
        (b"<configuration>\n<core>\n<name>&nbsp;</name></core>", "3: not well-formed XML: Entity 'nbsp'"),
        (b"\x00\x01", "1: not well-formed XML"),
        (b"<broker/>", "1: the root element is <broker>; it must be <configuration> with a <core> element"),
        (b"<core/>", "1: the root element is <core>; it must be <configuration>"),
        (b"<configuration/>", "1: <configuration> has no <core> element"),
        (
            b"<configuration><jms><queue name='q'/></jms><core/></configuration>",
            "1: <jms> in <configuration> is an Artemis setting",
        ),
        (b"<configuration><core/><core/></configuration>", "<core> is given twice"),
        (
            b"<configuration xmlns='urn:jboss'><core/></configuration>",
            "has the unknown namespace 'urn:jboss'",
        ),
        (
            b"<configuration><core><x:name xmlns:x='urn:x'>n</x:name></core></configuration>",
            "<name> has the unknown namespace 'urn:x'",
        ),
    ],
)
def test_invalid_documents_are_rejected(data, expected):
    assert any(expected in fault for fault in faults_of(data)), faults_of(data)


def test_deep_documents_are_rejected():
    assert "not well-formed XML" in faults_of(b"<a>" * 100_000)[0]


BILLION = "<!DOCTYPE c [<!ENTITY a0 'lol'>" + "".join(
    f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12)
)
ATTACKS = {
    "billion laughs": BILLION + "]><configuration><core><name>&a11;</name></core></configuration>",
    "billion laughs in an attribute": BILLION
    + "]><configuration><core><name x='&a11;'/></core></configuration>",
    "external entity": "<!DOCTYPE c [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>"
    "<configuration><core><name>&e;</name></core></configuration>",
    "external subset": "<!DOCTYPE c SYSTEM 'http://127.0.0.1:1/x.dtd'><configuration><core/></configuration>",
    "parameter entity": "<!DOCTYPE c [<!ENTITY % p SYSTEM 'file:///etc/passwd'>%p;]><configuration><core/></configuration>",
    "harmless entity": "<!DOCTYPE c [<!ENTITY e 'x'>]><configuration><core><name>&e;</name></core></configuration>",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_entities_and_external_files_are_off(name):
    before = time.process_time()
    (found,) = faults_of(ATTACKS[name].encode())
    assert "<!DOCTYPE …> is not allowed" in found or "entity" in found.lower()
    assert "root:" not in found
    assert time.process_time() - before < 10  # an expansion would take hours and all memory


def test_the_schema_has_the_last_word():
    """Whatever the reading would let pass is still refused, with its line."""
    root = etree.fromstring(b"<configuration><core>\n<surprise/></core></configuration>")
    found = Faults("f")
    _validate(root, found)
    with pytest.raises(ConfigurationError, match="^f:2: schema validation: .*surprise"):
        found.raise_if_any()


def test_faults_without_an_end():
    found = faults("".join(f"<unknown-{number}/>\n" for number in range(5000)))
    assert len(found) == MAX_FAULTS + 1
    assert sum(f"{MAX_FAULTS} faults found; the remainder was not checked" in fault for fault in found) == 1


def test_attributes_without_an_end():
    """libxml2 takes time of their square."""
    assert faults(queue(" ".join(f"a{number}='1'" for number in range(50_000)))) == [
        "3: <queue> has 50001 attributes; at most 200 are allowed"
    ]
