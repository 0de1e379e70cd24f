"""The portable form of queues and messages: nothing is lost on the way, and nothing is believed unseen."""

import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.clock import Recurrence
from stompring.broker.message import Traits
from stompring.broker.reference import QueueAttributes
from stompring.settings.model import RingPolicy, RoutingType
from stompring.stomp.frames import header_line
from stompring.store.bindings import attributes_of, describe_attributes
from stompring.store.export import (
    QUEUE_FIELDS,
    ExportReader,
    ExportWriter,
    InvalidExport,
    PortableAddress,
    PortableMessage,
    PortableQueue,
    QueueEntry,
)

TIMES = st.integers(0, 2**62)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.binary(min_size=1, max_size=12)
ROUTING = st.sampled_from([None, *RoutingType])

RECURRENCES = st.one_of(
    st.none(),
    st.builds(Recurrence, TIMES, st.integers(-1, 9), st.sampled_from([None, "0 3 * * *"]), TIMES),
)
PLACES = st.builds(
    QueueEntry, TEXTS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), TIMES, RECURRENCES
)


@st.composite
def messages(draw):
    block = b"".join(
        header_line(name, draw(st.binary(max_size=20))) for name in draw(st.lists(NAMES, max_size=4))
    )
    traits = Traits(
        block,
        draw(st.binary(max_size=20)),
        draw(ROUTING),
        draw(st.integers(0, 9)),
        draw(st.booleans()),
        0,
        draw(st.none() | st.binary(min_size=1, max_size=9)),
        draw(st.sampled_from([0, -1])),
        draw(st.none() | TEXTS),
        draw(st.none() | TEXTS),
    )
    places = tuple(draw(st.lists(PLACES, min_size=1, max_size=3)))
    return PortableMessage(
        draw(TIMES), draw(TEXTS), places, traits, draw(st.binary(max_size=40)), draw(TIMES), draw(TIMES)
    )


def slots(traits):
    return {name: getattr(traits, name) for name in Traits.__slots__}


@given(messages())
def test_message_survives_export_and_import(message):
    again = PortableMessage.of(json.loads(json.dumps(message.fields())))
    assert slots(again.traits) == slots(message.traits)
    assert replace(again, traits=message.traits) == message


def test_queue_survives_export_and_import():
    attributes = QueueAttributes(
        RoutingType.MULTICAST, ring_size=3, ring_policy=RingPolicy.DEAD_LETTER, user="u", exclusive=True
    ).changed({"filter": "a = 1"})
    queue = PortableQueue(
        "q", "a", describe_attributes(attributes), True, "client", describe_attributes(attributes)
    )
    again = PortableQueue.of(json.loads(json.dumps(queue.fields())))
    assert again == queue
    assert attributes_of(again.attributes).filter == "a = 1"


def test_address_survives_export_and_import():
    address = PortableAddress("a", frozenset(RoutingType), True, False, True)
    assert PortableAddress.of(json.loads(json.dumps(address.fields()))) == address


def fields():
    traits = Traits(b"a:b\n", b"d", None, 4, True)
    return PortableMessage(1, "a", (QueueEntry("q"),), traits, b"body", 5, 0).fields()


@pytest.mark.parametrize("name", sorted(fields()))
@pytest.mark.parametrize("value", [None, -1, 1.5, "x", True, [], {}, {"base64": 1}, [1], [{}], 2**64])
def test_no_field_can_be_anything(name, value):
    """Whatever stands there, it is taken for what it is or refused in words."""
    given_fields = fields() | {name: value}
    try:
        found = PortableMessage.of(given_fields)
    except InvalidExport as fault:
        assert str(fault)
    else:
        assert found.fields()[name] == value


@pytest.mark.parametrize("name", sorted(fields()))
def test_no_field_can_be_missing(name):
    less = fields()
    del less[name]
    with pytest.raises(InvalidExport, match=name):
        PortableMessage.of(less)


@pytest.mark.parametrize("name", sorted(set(QUEUE_FIELDS) - {"routingType"}))
def test_queue_of_an_older_version_has_the_default_of_a_newer_option(name):
    queue = PortableQueue("q", "a", describe_attributes(QueueAttributes(RoutingType.ANYCAST)))
    less = queue.fields()
    del less[name]
    assert PortableQueue.of(less) == queue


# ---- the file


def write(path):
    with ExportWriter(path, 7) as writer:
        writer.write("address", PortableAddress("a", frozenset(RoutingType)).fields())
        writer.write("message", fields())


@pytest.mark.parametrize("name", ["f.json", "f.json.gz"])
def test_every_cut_is_noticed(tmp_path, name):
    path = tmp_path / name
    write(path)
    whole = path.read_bytes()
    ExportReader(path).check_whole()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidExport, match=name):
            ExportReader(path).check_whole()


def test_lines_that_are_missing_or_too_many(tmp_path):
    path = tmp_path / "f.json"
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    for wrong in ([*lines[:2], lines[3]], [*lines[:3], lines[2], lines[3]], [*lines, lines[1]], lines[1:]):
        path.write_text("".join(wrong))
        with pytest.raises(InvalidExport, match=r"f\.json:\d"):
            list(ExportReader(path))


@pytest.mark.parametrize("line", ["[" * 200_000, "9" * 5001, '{"message": 1_0}'])
def test_invalid_line_is_reported_with_its_number(tmp_path, line):
    path = tmp_path / "f.json"
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], line + "\n", *lines[3:]]))
    with pytest.raises(InvalidExport, match=r"f\.json:3"):
        list(ExportReader(path))


def test_a_newer_format(tmp_path):
    path = tmp_path / "f.json"
    write(path)
    path.write_text(path.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(InvalidExport, match="newer"):
        ExportReader(path)


def test_failed_export_leaves_no_file(tmp_path):
    path = tmp_path / "f.json"
    with pytest.raises(ZeroDivisionError), ExportWriter(path, 7):
        assert not path.exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_gzip_is_detected_by_content(tmp_path):
    path = tmp_path / "f.json"
    write(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert [kind for kind, _ in ExportReader(path)] == ["address", "message"]
