"""A stream of SENDs means the same, however it is cut, and whatever its connection has sent before."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompring.stomp import parser
from tests.stomp.native import native_cutter

from ..property.profile import examples
from .session_fixture import Server, frame

#: SENDs with more header blocks than a connection remembers: afterwards it reads by what blocks have in common.
MANY = b"".join(frame("SEND", destination="/topic/nobody", serial=number) for number in range(300))

#: Any value, and values that a header may have.
ODD = ["", "1", "a:b", "a\\cb", "\\\\", "\\n", "é", "x" * 300, "-1"]
TYPES = ["ANYCAST", "MULTICAST"]
VALUES = {
    "priority": ["1", "9"],
    "persistent": ["true", "false"],
    "expires": ["0", "1", str(2**50)],
    "JMSXGroupSeq": ["1", "2", "-1"],
    "_AMQ_ROUTING_TYPE": TYPES,
    "destination-type": TYPES,
    "AMQ_SCHEDULED_DELAY": ["0", "5"],
    "reply-to": ["/queue/r", "/queue/s"],
    **dict.fromkeys(
        ["_AMQ_DUPL_ID", "JMSXGroupID", "receipt", "user", "timestamp", "message-id", "a", "b"], ODD
    ),
}
NAMES = st.lists(st.sampled_from([*VALUES, "_AMQ_DUPL_ID", "a"]), min_size=1, max_size=4, unique=True)


def lines(names):
    good = {name: st.sampled_from(VALUES[name]) for name in names}
    odd = {name: st.sampled_from(VALUES[name] + ODD) for name in names}
    return st.sampled_from([*[good] * 9, odd]).flatmap(st.fixed_dictionaries)


#: Frames with the same names in the same order, and frames of which each has its own.
STREAMS = st.one_of(
    NAMES.flatmap(lambda names: st.lists(lines(names), min_size=4, max_size=12)),
    st.lists(NAMES.flatmap(lines), min_size=2, max_size=6),
)


def outcome(stream, cuts, warm, changed):
    """What the producer is answered, and what a consumer gets who comes afterwards."""
    server = Server({"#": {"auto_delete_queues": False}})
    producer, consumer = server.client(), server.client()
    producer.write(MANY if warm else b"\n")
    for number, headers in enumerate(stream):
        if number == changed and "q" in server.directory.addresses:
            server.directory.delete_address("q", force=True)
        data = frame("SEND", b"%d" % number, destination="/queue/q", **headers)
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            producer.write(data[begin:end])
    consumer.subscribe()
    server.pass_time(20)
    found = producer.read() + consumer.read()
    return [(got.command, {**got.headers, "message-id": ""}, got.body) for got in found]


@pytest.fixture(scope="module", params=["pure", "native"])
def cutter(request):
    """What cuts header blocks: Python, or where there is a compiler the native cutter."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "native":
            patch.setattr(parser, "NATIVE_CUTTER", native_cutter())
        yield


@pytest.mark.usefixtures("cutter")
@example([{"_AMQ_DUPL_ID": each, "a": each} for each in (*"123456", "", "", *"17")], [9], 12)
@examples(150, quick=75)
@given(
    STREAMS,
    st.lists(st.integers(1, 30), max_size=4, unique=True).map(sorted),
    st.integers(1, 12),
)
def test_messages_depend_on_their_frames_alone(stream, cuts, changed):
    expected = outcome(stream, [], False, changed)
    assert outcome(stream, [], True, changed) == expected
    assert outcome(stream, cuts, False, changed) == expected
    assert outcome(stream, cuts, True, changed) == expected
