"""A block that comes again and again is known by its bytes, without a look for its end."""

from tests.stomp.reading import opened

ONE, OTHER = b"SEND\nd:q\n\nx\0", b"SEND\nd:r\n\ny\0"


def heads(*streams):
    parser = opened()
    return [head for stream in streams for head, _ in parser.feed(stream)]


def test_it_has_one_head():
    found = heads(ONE * 5, ONE, ONE * 3)
    assert len(found) == 9 and len(set(map(id, found))) == 1


def test_others_in_between_keep_theirs():
    found = heads(ONE * 3 + OTHER + ONE + OTHER * 3 + ONE * 3 + OTHER + ONE)
    expected = [b"q"] * 3 + [b"r", b"q"] + [b"r"] * 3 + [b"q"] * 3 + [b"r", b"q"]
    assert [head.headers[b"d"] for head in found] == expected
    assert len(set(map(id, found))) == 2


def test_another_version_reads_it_anew():
    parser = opened(b"1.2")
    with_escape = b"SEND\nd:a\\cb\n\nx\0"
    parser.feed(with_escape * 4)
    parser.negotiated(b"1.0")
    ((head, _),) = parser.feed(with_escape)
    assert head.headers == {b"d": b"a\\cb"}
