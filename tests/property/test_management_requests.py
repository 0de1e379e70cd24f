"""Random management requests: each has one reply, in order, in the form of Artemis, and none is an internal error."""

import json

from hypothesis import given
from hypothesis import strategies as st

from stompring.admin.management import OPERATIONS, attribute_names
from stompring.broker.publish import ReplyTo
from stompring.session.connect import Login, ManagementRequest
from stompring.session.send import ATTRIBUTE, OPERATION, RESOURCE
from stompring.settings.model import RoutingType

from ..admin.admin_server import AdminServer
from .profile import examples

NAMES = ["one", "two", "missing", "", "é\n", "a" * 300, "#"]
RESOURCES = ["broker", "acceptor.stomp", "divert.d", "bridge.b", "nothing", ""]
RESOURCES += [f"{kind}.{name}" for kind in ("queue", "address") for name in NAMES]

#: Operations that end what the other requests need: connections do not exist here, and users are files.
ENDLESS = {"addUser", "resetUser", "removeUser", "listUser", "reloadConfigurationFile"}

OPERATION_NAMES = sorted(
    {name for operations in OPERATIONS.values() for name in operations} - ENDLESS
    | {"", "getName", "isPaused", "x"}
)
ATTRIBUTES = sorted(
    {name for kind in ("broker", "address", "queue") for name in attribute_names(kind)} | {"", "x"}
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    | st.sampled_from([*NAMES, "ANYCAST", "MULTICAST", "a = 1", "a = ", '{"name":"new","ring-size":3}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip

#: Values for each letter of a signature, and sometimes others.
BY_LETTER = {
    "n": st.sampled_from([*NAMES, "a = 1", '{"name":"one"}', '{"name":"new","ring-size":3}']),
    "s": st.sampled_from([None, *NAMES, "ANYCAST", "a = 1", "{", '{"name":"new","ring-size":3}']),
    "i": st.integers(-2, 10) | st.integers(),
    "b": st.booleans(),
    "o": st.none() | st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
}


@st.composite
def requests(draw):
    """The headers and the body of a request."""
    resource = draw(st.sampled_from(RESOURCES))
    headers = {RESOURCE: resource.encode()}
    kind = resource.partition(".")[0]
    if draw(st.booleans()):
        headers[ATTRIBUTE] = draw(st.sampled_from(ATTRIBUTES)).encode()
        return headers, b""
    known = sorted(set(OPERATIONS.get(kind, {})) - ENDLESS) or OPERATION_NAMES
    name = draw(st.sampled_from(known) | st.sampled_from(OPERATION_NAMES))
    headers[OPERATION] = name.encode()
    signatures = OPERATIONS.get(kind, {}).get(name, [])
    if signatures and draw(st.integers(0, 4)):
        letters = draw(st.sampled_from(signatures)).parameters
        values = [draw(BY_LETTER[letter]) for letter in letters]
        return headers, json.dumps(values).encode()
    return headers, draw(
        st.lists(VALUES, max_size=4).map(lambda found: json.dumps(found).encode()) | st.binary(max_size=9)
    )


def carried_out(server, sent):
    """The success and the body of each reply, in order."""
    replies = server.queue("replies")
    done = []
    for number, (headers, body) in enumerate(sent):
        server.service.management.handle(
            ManagementRequest(
                {**headers, b"correlation-id": b"%d" % number},
                body,
                Login(),
                "1",
                "127.0.0.1:1",
                ReplyTo("replies", None, RoutingType.ANYCAST, b"/queue/replies"),
                done.append,
            )
        )
    for _ in range(1000):
        if len(done) == len(sent):
            break
        server.reactor.advance(0.01)
    assert len(done) == len(sent)
    messages = [ref.message for ref in replies.dispatcher.in_order()]
    found = [(message.header(b"_AMQ_OperationSucceeded") or b"", message.body) for message in messages]
    assert [message.header(b"correlation-id") for message in messages] == [
        b"%d" % n for n in range(len(sent))
    ]
    return [(succeeded.decode(), body) for succeeded, body in found]


@given(st.lists(requests(), min_size=1, max_size=8))
@examples(150)
def test_every_request_has_one_reply_in_order(sent):
    server = AdminServer()
    for name in ("one", "two"):
        server.queue(name)
    guarded = {b"replies"}
    sent = [each for each in sent if not guarded & {each[0][RESOURCE].partition(b".")[2]}]
    for succeeded, body in carried_out(server, sent):
        assert succeeded in ("true", "false")
        if succeeded == "false" or body:
            (result,) = json.loads(body)
            assert succeeded == "true" or (isinstance(result, str) and "Internal error" not in result), result
