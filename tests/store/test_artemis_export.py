"""The XML of ``artemis data exp``: every kind of property and body, and what is refused with its line."""

import base64
import gzip
import tracemalloc
import zlib

import pytest

from stompring.session.send import ENDS_HERE, SCHEDULING
from stompring.settings.model import RoutingType
from stompring.store import artemis_export
from stompring.store.artemis_export import NOT_HEADERS, ArtemisExportReader
from stompring.store.export import (
    DeclaredQueue,
    InvalidExport,
    PortableAddress,
    PortableMessage,
    header_pairs,
)

from ..cli.artemis_messages import EXPORT

QUEUE = '<queue-binding address="a" filter-string="" name="q" id="2" routing-type="ANYCAST"/>'


def document(messages="", bindings=QUEUE):
    """A file as Artemis begins it: with an empty line."""
    return (
        f"\n<activemq-journal>\n<bindings>\n{bindings}\n</bindings>\n"
        f"<messages>\n{messages}\n</messages>\n</activemq-journal>"
    )


def message(properties="", body="", kind="bytes", queues='<queue name="q"/>'):
    """One message, whose properties begin on line 9 of a document."""
    return (
        f'<message id="7" priority="4" expiration="0" timestamp="5" type="{kind}">\n'
        f"<properties>\n{properties}\n</properties>\n<queues>{queues}</queues>\n"
        f"<body>\n<![CDATA[{body}]]>\n</body>\n</message>"
    )


def prop(name, value, kind="simple-string"):
    return f'<property name="{name}" value="{value}" type="{kind}"/>'


def text(value):
    """A text as Artemis stores it."""
    data = value.encode("utf-16-le")
    return b"\1" + len(data).to_bytes(4, "big") + data


def encoded(data):
    return base64.urlsafe_b64encode(data).decode()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "export.xml"


def entries(file, written):
    file.write_bytes(written if isinstance(written, bytes) else written.encode())
    with ArtemisExportReader(file) as reader:
        reader.identify()
        return list(reader.entries())


def only(file, written):
    (found,) = [each for each in entries(file, document(written)) if isinstance(each, PortableMessage)]
    return found


def headers(found):
    return {name.decode(): value.decode() for name, value in header_pairs(found.traits.block)}


# ---- queues


def test_queue_has_address_routing_type_and_filter(file):
    bindings = (
        '<address-binding routing-types="MULTICAST,ANYCAST" name="a" id="1"/>'
        '<queue-binding address="a" filter-string="x = \'1\'" name="q" id="2" routing-type="MULTICAST"/>'
    )
    assert entries(file, document(bindings=bindings)) == [
        PortableAddress("a", frozenset(RoutingType)),
        DeclaredQueue("q", "a", RoutingType.MULTICAST, "x = '1'"),
    ]


@pytest.mark.parametrize(
    "filter_, own",
    [
        ("(__AMQ_CID &lt;&gt; '9f8835c6' OR __AMQ_CID IS NULL)", None),
        ("(colour = 'red') AND (__AMQ_CID &lt;&gt; 'eecb1195' OR __AMQ_CID IS NULL)", "colour = 'red'"),
        ("__AMQ_CID = 'mine'", "__AMQ_CID = 'mine'"),
    ],
)
def test_filter_of_no_local_names_a_connection_that_is_gone(file, filter_, own):
    bindings = QUEUE.replace('filter-string=""', f'filter-string="{filter_}"')
    assert entries(file, document(bindings=bindings)) == [DeclaredQueue("q", "a", RoutingType.ANYCAST, own)]


@pytest.mark.parametrize(
    "name",
    ["$sys.mqtt.sessions", "activemq.notifications", "activemq.management.x", "$.artemis.internal.sf.c.n"],
)
def test_artemis_own_addresses_and_queues_are_left_out(file, name):
    bindings = QUEUE.replace('"q"', f'"{name}"').replace('"a"', f'"{name}"')
    bindings += f'<address-binding routing-types="ANYCAST" name="{name}" id="1"/>'
    file.write_text(document(message(queues=f'<queue name="{name}"/>'), bindings))
    with ArtemisExportReader(file) as reader:
        assert list(reader.entries()) == []
        ((reason, number),) = reader.skipped.items()
    assert name in reason and number == 1


def test_message_of_a_queue_that_did_not_exist_any_more_is_counted(file):
    file.write_text(document(message(queues='<queue name="UndefinedQueue_9"/>')))
    with ArtemisExportReader(file) as reader:
        assert not [each for each in reader.entries() if isinstance(each, PortableMessage)]
    assert dict(reader.skipped) == {"in queue UndefinedQueue_9, which did not exist any more": 1}


def test_queues_that_had_acknowledged_a_message_are_not_in_the_file(file):
    found = [each for each in entries(file, EXPORT.read_bytes()) if isinstance(each, PortableMessage)]
    news = {
        each.body: {place.queue for place in each.places} for each in found if each.address.startswith("news")
    }
    assert news == {
        b"news 0": {"app.red", "app.others", "app.wild"},
        b"news 1": {"app.all", "app.wild"},
        b"news 2": {"app.all", "app.red", "app.others", "app.wild"},
        b"other news": {"app.wild"},
    }


def test_message_of_a_wildcard_queue_has_the_address_it_was_sent_to(file):
    bindings = QUEUE.replace('address="a"', 'address="a.#"')
    sent = [message(prop("destination", name)) for name in ("a.b.c", "elsewhere")]
    found = [
        each for each in entries(file, document("".join(sent), bindings)) if isinstance(each, PortableMessage)
    ]
    assert [each.address for each in found] == ["a.b.c", "a.#"]


# ---- properties


@pytest.mark.parametrize(
    "kind, value, expected",
    [
        ("string", "null", "null"),
        ("simple-string", "a&lt;&amp;&quot;", 'a<&"'),
        ("boolean", "true", "true"),
        ("byte", "-7", "-7"),
        ("short", "300", "300"),
        ("integer", "70000", "70000"),
        ("long", "5000000000", "5000000000"),
        ("float", "1.5", "1.5"),
        ("double", "2.25E10", "2.25E10"),
        ("bytes", "AAEC_-8=", "AAEC_-8="),
        ("bytes", "null", None),
    ],
)
def test_property_of_every_type_is_a_header_as_a_text(file, kind, value, expected):
    assert headers(only(file, message(prop("p", value, kind)))).get("p") == expected


@pytest.mark.parametrize(
    "name, value, header, expected",
    [
        ("JMSCorrelationID", "c", "correlation-id", "c"),
        ("JMSReplyTo", "queue://answers", "reply-to", "answers"),
        ("JMSReplyTo", "/topic/answers", "reply-to", "/topic/answers"),
        ("JMSType", "t", "type", "t"),
        ("_AMQ_CONTENT_TYPE", "text/plain", "content-type", "text/plain"),
        ("_AMQ_GROUP_ID", "g", "JMSXGroupID", "g"),
        ("_AMQ_LVQ_NAME", "k", "_AMQ_LVQ_NAME", "k"),
        ("_AMQ_DUPL_ID", "i", "_AMQ_DUPL_ID", "i"),
        ("_AMQ_ORIG_QUEUE", "o", "_AMQ_ORIG_QUEUE", "o"),
    ],
)
def test_property_has_its_name_in_stomp(file, name, value, header, expected):
    assert headers(only(file, message(prop(name, value))))[header] == expected


def test_what_a_send_says_to_the_broker_is_no_header():
    ends_here = {name.decode() for name in ENDS_HERE - SCHEDULING} - {"stompring-imported"}
    assert ends_here <= NOT_HEADERS


def test_properties_that_the_broker_understands(file):
    given = (
        prop("_AMQ_SCHED_DELIVERY", "4102444800000", "long")
        + prop("_AMQ_ROUTING_TYPE", "0", "byte")
        + prop("_AMQ_GROUP_ID", "g")
        + prop("_AMQ_GROUP_SEQUENCE", "-1", "integer")
        + prop("_AMQ_VALIDATED_USER", "bob")
        + prop("destination", "/topic/a")
    )
    written = message(given).replace('priority="4" expiration="0"', 'priority="9" expiration="4102444800001"')
    found = only(file, written)
    assert found.places[0].due == 4102444800000
    assert (found.expires, found.timestamp) == (4102444800001, 5)
    traits = found.traits
    assert (traits.priority, traits.durable, traits.routing_type) == (9, True, RoutingType.MULTICAST)
    assert (traits.group, traits.group_sequence, traits.user) == (b"g", -1, "bob")
    assert traits.destination == b"/topic/a"
    assert not {"destination", "_AMQ_ROUTING_TYPE", "_AMQ_SCHED_DELIVERY"} & headers(found).keys()


@pytest.mark.parametrize("character", [*map(chr, range(1, 32)), "\x7f", "\ufffe", "\uffff", "é"])
def test_value_keeps_characters_that_xml_does_not_allow(file, character):
    value = f"a{character}b{character}"
    found = only(file, message(prop("p", value) + "\n" + prop("n", "it's")))
    assert headers(found) == {"priority": "4", "persistent": "true", "p": value, "n": "it's"}


def test_a_file_reads_the_same_in_pieces_of_any_size(file, monkeypatch):
    body = encoded(b"\xfb\xff" * 50)
    file.write_text(document(message(prop("p", "a\nb\x01") + prop("q", "c\td"), body)))
    found = []
    for size in (1 << 20, 1, 2, 3, 7, 64, 333):
        monkeypatch.setattr(artemis_export, "CHUNK", size)
        with ArtemisExportReader(file) as reader:
            (message_,) = _without_queue(reader)
        found.append((message_.traits.block, message_.body))
    assert len(set(found)) == 1


# ---- bodies


def test_text_is_utf_8(file):
    assert only(file, message(body=encoded(text("ä✓😀")), kind="text")).body == "ä✓😀".encode()


@pytest.mark.parametrize("body", [b"", b"\0", text("")])
def test_text_may_be_empty_or_missing(file, body):
    assert only(file, message(body=encoded(body), kind="text")).body == b""


def test_large_body_is_put_together(file):
    whole = text("0123456789–" * 300)
    pieces = "\n".join(f"<![CDATA[{encoded(whole[at : at + 1000])}]]>" for at in range(0, len(whole), 1000))
    written = message(kind="text").replace("<body>\n<![CDATA[]]>", f'<body isLarge="true">\n{pieces}')
    assert only(file, written).body == ("0123456789–" * 300).encode()


def test_large_body_without_cdata_sections(file):
    whole = bytes(range(256)) * 10
    pieces = "\n".join(encoded(whole[at : at + 1000]) for at in range(0, len(whole), 1000))
    assert only(file, message().replace("<![CDATA[]]>", pieces)).body == whole


def test_compressed_body_is_inflated(file):
    body = encoded(zlib.compress(text("long" * 1000)))
    given = prop("_AMQ_LARGE_COMPRESSED", "true", "boolean")
    assert only(file, message(given, body, "text")).body == b"long" * 1000


def test_body_of_java_is_kept_and_counted(file):
    file.write_text(document(message(body=encoded(b"\0\1"), kind="map")))
    with ArtemisExportReader(file) as reader:
        assert [each.body for each in reader.entries() if isinstance(each, PortableMessage)] == [b"\0\1"]
    assert dict(reader.java_bodies) == {"map": 1}


# ---- the file


def test_a_compressed_file(file):
    plain = entries(file, EXPORT.read_bytes())
    assert len(entries(file, gzip.compress(EXPORT.read_bytes()))) == len(plain) > 40


@pytest.mark.parametrize(
    "written, line, words",
    [
        (
            document(message(prop("p", "a\nb") + "<property value='x'/>")),
            10,
            "<property> has no attribute name",
        ),
        (
            document(message(prop("_AMQ_SCHED_DELIVERY", "soon"))),
            15,
            "_AMQ_SCHED_DELIVERY is not an integer: 'soon'",
        ),
        (document(message(body="AA")), 13, "<body> is not Base64"),
        (document(message(body="A*==")), 13, "<body> is not Base64"),
        (
            document(message(body=encoded(text("long")[:-1]), kind="text")),
            15,
            "the text of message 7 is truncated",
        ),
        (document(message(body="AAAA").replace('id="7"', 'id="x"')), 7, "id is an integer from 0 to"),
        (
            document(message().replace('priority="4"', 'priority="10"')),
            7,
            "priority is an integer from 0 to 9",
        ),
        (document(message("<colour/>")), 9, "unknown element <colour> in <properties>"),
        (document("<massage/>"), 7, "unknown element <massage>"),
        (document(bindings="<x/>"), 4, "unknown element <x>"),
        (
            document(bindings=QUEUE.replace("ANYCAST", "ANY")),
            4,
            "routing-type is ANYCAST or MULTICAST, not 'ANY'",
        ),
        (document(message()).replace("</queues>", "</queue>"), 11, "not well-formed XML: mismatched tag"),
        (
            document(message("\xff")).encode("latin-1"),
            9,
            r"not well-formed XML: not well-formed \(invalid token\)",
        ),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]>" + document(), 1, "a document type is not allowed"),
        (document().encode("utf-16"), 1, "the file is UTF-16"),
        ("<queues></queues>", 1, "not an 'artemis data exp' file: the root is <queues>"),
        (b"", 1, "not well-formed XML: no element found"),
    ],
)
def test_a_fault_is_reported_with_its_line(file, written, line, words):
    file.write_bytes(written if isinstance(written, bytes) else written.encode())
    with (
        ArtemisExportReader(file) as reader,
        pytest.raises(InvalidExport, match=f"^{file}:{line}: .*{words}"),
    ):
        list(reader.entries())


@pytest.mark.parametrize("size", [0, 10, 1000, -1, -20])
def test_a_truncated_file_is_refused_before_anything_is_read(file, size):
    file.write_bytes(EXPORT.read_bytes()[:size])
    with (
        ArtemisExportReader(file) as reader,
        pytest.raises(InvalidExport, match=r"truncated: its end is not"),
    ):
        reader.identify()


def test_a_damaged_compressed_file_is_refused(file):
    file.write_bytes(gzip.compress(EXPORT.read_bytes())[:-20])
    with ArtemisExportReader(file) as reader, pytest.raises(InvalidExport, match="the file is damaged"):
        reader.identify()


def test_memory_does_not_grow_with_the_file(file):
    one = message(prop("p", "v" * 100), encoded(b"x" * 40_000))
    with file.open("w") as out:
        before, _, after = document("@").partition("@")
        out.writelines((before, *([one] * 300), after))
    assert file.stat().st_size > 15_000_000
    tracemalloc.start()
    try:
        with ArtemisExportReader(file) as reader:
            reader.identify()
            count = sum(1 for _ in _without_queue(reader))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 300 and peak < 3_000_000


def _without_queue(reader):
    return (each for each in reader.entries() if isinstance(each, PortableMessage))
