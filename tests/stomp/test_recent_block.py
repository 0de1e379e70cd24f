"""A block that comes again and again is known by its bytes, without a look for its end."""

import pytest

from tests.stomp.reading import opened

ONE, OTHER = b"SEND\nd:q\n\nx\0", b"SEND\nd:r\n\ny\0"


def heads(*streams):
    parser = opened()
    return [head for stream in streams for head, _ in parser.feed(stream)]


def test_it_has_one_head():
    found = heads(ONE * 5, ONE, ONE * 3)
    assert len(found) == 9 and len(set(map(id, found))) == 1


def test_others_in_between_keep_theirs():
    found = heads(ONE * 3 + OTHER + ONE + OTHER * 3 + ONE * 2)
    assert [head.headers[b"d"] for head in found] == [b"q"] * 3 + [b"r", b"q"] + [b"r"] * 3 + [b"q"] * 2
    assert len(set(map(id, found))) == 2


@pytest.mark.parametrize(
    "other",
    [
        b"SEND\nd:q\nmore:1\n\nx\0",
        b"SEND\nd:q\n\r\nx\0",
        b"SEND\nd:q \n\nx\0",
        b"SEND\r\nd:q\r\n\r\nx\0",
        b"SEND\nd:q\n\n\n\0",
        b"SEND\nd:q\n\n\0",
        b"\nSEND\nd:q\n\nx\0",
    ],
)
def test_what_begins_alike_is_read_as_ever(other):
    parser, beside = opened(), opened()
    parser.feed(ONE * 4)
    assert [(head.headers, body) for head, body in parser.feed(other + ONE)] == [
        (head.headers, body) for head, body in beside.feed(other + ONE)
    ]
    assert str(parser.error) == str(beside.error)


def test_it_may_be_cut_anywhere():
    for cut in range(len(ONE)):
        found = heads(ONE * 3 + ONE[:cut], ONE[cut:] + ONE)
        assert [head.headers for head in found] == [{b"d": b"q"}] * 5


def test_another_version_reads_it_anew():
    parser = opened(b"1.2")
    with_escape = b"SEND\nd:a\\cb\n\nx\0"
    parser.feed(with_escape * 4)
    parser.negotiated(b"1.0")
    ((head, _),) = parser.feed(with_escape)
    assert head.headers == {b"d": b"a\\cb"}


def test_nothing_is_read_after_the_end():
    parser = opened()
    parser.feed(ONE * 4)
    parser.discard()
    assert parser.feed(ONE) == []
