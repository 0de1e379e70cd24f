"""plugins/stamp.py"""

import pytest

from stompring.policy.testing import START_TIME, PolicyHarness

from . import fault, policy

KIND = policy("stamp")
ALL = {
    "user_header": "sent-by",
    "client_id_header": "sent-as",
    "connection_header": "sent-over",
    "peer_header": "sent-from",
    "time_header": "sent-at",
}


def last(harness):
    return dict(harness.messages()[-1].headers)


def test_everything():
    harness = PolicyHarness(KIND, **ALL)
    harness.advance(250)
    assert harness.send(b"x", {"kind": "test"}, user="ann").accepted
    headers = last(harness)
    assert (headers["sent-by"], headers["sent-from"]) == ("ann", "producer:1")
    assert headers["sent-over"] == "producer"
    assert headers["sent-at"] == str(START_TIME + 250)
    assert headers["kind"] == "test"
    assert "sent-as" not in headers
    assert not harness.errors


def test_only_what_is_wanted():
    harness = PolicyHarness(KIND, peer_header="from")
    harness.send(b"x", user="ann")
    stamped = set(last(harness))
    harness.send(b"x", to="elsewhere", user="ann")
    assert stamped - set(harness.messages("elsewhere")[0].headers) == {"from"}


@pytest.mark.parametrize("user, stamped", [("ann", "ann"), (None, None)])
def test_headers_sent_by_the_client_are_overwritten(user, stamped):
    harness = PolicyHarness(KIND, user_header="sent-by", client_id_header="sent-as")
    harness.send(b"x", {"sent-by": "root", "sent-as": "somebody"}, user=user)
    assert last(harness).get("sent-by") == stamped
    assert "sent-as" not in last(harness)


def test_a_client_id():
    harness = PolicyHarness(KIND, client_id_header="sent-as")
    client = harness._client("producer", None)
    client.session.client_id = "sensor-7"
    harness.send(b"x", {"sent-as": "somebody"})
    assert last(harness)["sent-as"] == "sensor-7"


def test_every_connection_gets_its_own():
    harness = PolicyHarness(KIND, user_header="by", peer_header="from")
    for producer, user in (("a", "ann"), ("b", "bob"), ("a", "ann"), ("c", None), ("b", "bob")):
        harness.send(b"x", producer=producer, user=user)
        headers = last(harness)
        assert (headers["from"], headers.get("by")) == (f"{producer}:1", user)


def test_time_for_people():
    harness = PolicyHarness(KIND, time_header="at", time_format="iso-8601")
    harness.send(b"x")
    assert last(harness)["at"] == "2023-11-14T22:13:20.000Z"
    harness.advance(125)
    harness.send(b"x")
    assert last(harness)["at"] == "2023-11-14T22:13:20.125Z"


def test_headers_with_a_meaning_keep_it():
    harness = PolicyHarness(KIND, peer_header="from")
    harness.send(b"x", {"priority": "8", "persistent": "true", "AMQ_SCHEDULED_DELAY": "1000"})
    assert harness.waiting() == []
    harness.advance(1000)
    (message,) = harness.messages()
    assert (message.priority, message.durable, message.header("from")) == (8, True, "producer:1")


def test_names_with_colons_apart_everything_is_a_name():
    harness = PolicyHarness(KIND, user_header="by whom, é")
    harness.send(b"x", user="ann")
    assert last(harness)["by whom, é"] == "ann"


def test_a_reload_changes_the_names():
    harness = PolicyHarness(KIND, peer_header="from")
    harness.send(b"x")
    harness.reload(peer_header="origin")
    harness.send(b"x", {"from": "mine"})
    assert (last(harness)["origin"], last(harness)["from"]) == ("producer:1", "mine")


def test_parameters():
    assert "one of user-header" in fault(KIND)
    assert "one of user-header" in fault(KIND, time_format="iso-8601")
    assert "peer-header is 'priority', a reserved header" in fault(KIND, peer_header="priority")
    assert "a reserved header" in fault(KIND, user_header="AMQ_SCHEDULED_DELAY")
    assert "peer-header and user-header are both 'by'" in fault(KIND, user_header="by", peer_header="by")
    assert "not a valid header name" in fault(KIND, user_header="by:me")
    assert "must be one of milliseconds, iso-8601" in fault(KIND, time_header="a", time_format="seconds")
