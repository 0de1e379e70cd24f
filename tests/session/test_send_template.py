"""Messages whose headers are read by a template enter queues as any others do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.session import send as send_plan
from stompring.session.send import HEADER_USE
from stompring.stomp import headers
from stompring.stomp.headers import CutHead
from tests.stomp.native_cutter import native_cutter

from ..property.profile import examples
from .session_fixture import Server


def client_of(server, *, templates):
    """One whose SENDs are read by templates from the first on, or never."""
    client = server.client()
    heads = client.session._parser._heads
    if templates:
        heads.memo.rest = 1_000_000
    else:
        heads.templates = None
    return client


def keeping(**configuration):
    return Server({"#": {"auto_delete_queues": False}}, **configuration)


def send(*lines, body="x"):
    return "\n".join(("SEND", "destination:/queue/q", *lines, "", body + "\0")).encode()


def messages(server, name="q"):
    """All that a queue has, with what a header tells of them."""
    if name not in server.world.directory.queues:
        return []
    found = []
    for ref in server.queue(name).dispatcher.in_order():
        message, traits = ref.message, ref.message.traits
        told = (traits.block, traits.destination, traits.routing_type, traits.priority, traits.durable)
        more = (traits.requested_expiry, traits.group, traits.group_sequence, traits.user, traits.origin)
        found.append((message.body, *told, *more, traits.retained, traits.escaped))
    return found


def read_by_template(monkeypatch):
    """The duplicate ids of those that a template had a plan for."""
    found: list[bytes] = []
    plain = send_plan._plan_of_template

    def counted(session, head):
        plan = plain(session, head)
        found.append(plan.identifier or b"")
        return plan

    monkeypatch.setattr(send_plan, "_plan_of_template", counted)
    return found


def both(*frames, **configuration):
    """The same frames to a broker whose session has templates, and to one without."""
    servers = []
    for templates in (True, False):
        server = keeping(**configuration)
        client = client_of(server, templates=templates)
        for each in frames:
            client.write(each)
        server.answers = [(got.command, got.headers) for got in client.read()]
        servers.append(server)
    one, other = servers
    assert one.answers == other.answers
    assert messages(one) == messages(other) and messages(one, "r") == messages(other, "r")
    return one, other


def test_ids_and_blocks_are_each_messages_own(monkeypatch):
    used = read_by_template(monkeypatch)
    one, _ = both(*(send(f"_AMQ_DUPL_ID:{number % 7}", f"serial:{number}") for number in range(20)))
    assert len(used) == 18 and len(set(used)) == 7
    assert len(messages(one)) == 7 and one.world.address("q").duplicate_messages == 13


def test_a_receipt_is_sent_for_each_that_asks(monkeypatch):
    used = read_by_template(monkeypatch)
    one, _ = both(*(send(f"_AMQ_DUPL_ID:{number % 4}", f"receipt:{number}") for number in range(10)))
    assert used and len(one.answers) == 10


def test_no_header_is_passed_on(monkeypatch):
    used = read_by_template(monkeypatch)
    one, _ = both(*(send(f"priority:{number % 10}", f"timestamp:{number}") for number in range(30)))
    assert used and messages(one)[-1][1] == b"priority:0\npersistent:false\n"


@pytest.mark.parametrize(
    "lines",
    [
        "priority:11\nserial:{}",
        "priority:4\n_AMQ_DUPL_ID:{}\npersistent:true",
        "expires:{}\nserial:{}",
        "JMSXGroupID:{}",
        "JMSXGroupID:a\nJMSXGroupSeq:{}",
        "_AMQ_DUPL_ID:same\nserial:{}",
        "_AMQ_ROUTING_TYPE:{}",
        "destination-type:ANYCAST\nserial:{}",
        "reply-to:/temp-queue/r\nserial:{}",
        "AMQ_SCHEDULED_DELAY:5\nserial:{}",
        "persistent:true\nuser:a\\cb{}",
    ],
    ids=lambda lines: lines.replace("\n", " "),
)
def test_whatever_a_header_means(lines):
    both(*(send(*lines.format(number, number).split("\n")) for number in range(12)))


def test_an_id_that_is_too_long_or_empty():
    for odd in ("", "x" * 300):
        both(*(send(f"_AMQ_DUPL_ID:{number}") for number in range(5)), send(f"_AMQ_DUPL_ID:{odd}"))


def test_an_address_that_does_not_look_at_ids(monkeypatch):
    used = read_by_template(monkeypatch)
    one, _ = both(*(send(f"_AMQ_DUPL_ID:{number % 3}") for number in range(50)), id_cache_size=0)
    assert len(messages(one)) == 50 and len(used) == 1  # and the template is given up


def test_plans_that_are_used_once_are_given_up(monkeypatch):
    used = read_by_template(monkeypatch)
    server = keeping()
    client = client_of(server, templates=True)
    many = 2 * send_plan.PLANS_IN_VAIN
    for number in range(many):
        client.write(send(f"JMSXGroupID:{number}", f"serial:{number}"))
    assert len(used) == send_plan.PLANS_IN_VAIN + 1 and len(messages(server)) == many


def test_few_values_of_a_header_share_plans(monkeypatch):
    used = read_by_template(monkeypatch)
    server = keeping()
    client = client_of(server, templates=True)
    many = 2 * send_plan.PLANS_IN_VAIN
    for number in range(many):
        client.write(send(f"JMSXGroupID:{number % 9}", f"serial:{number}"))
    assert len(used) > many - 5 and len({row[7] for row in messages(server)}) == 9


def test_a_plan_is_made_anew_when_the_address_changes():
    server = keeping()
    client = client_of(server, templates=True)
    for number in range(10):
        client.write(send(f"serial:{number}"))
    server.world.directory.delete_queue("q", force=True)
    client.write(send("serial:10"))
    assert [row[0] for row in messages(server)] == [b"x"]


VALUE = st.sampled_from(
    ["", "1", "2", "9", "true", "-1", "a:b", "a\\cb", "\\\\", "\\n", "/queue/r", "\\r", "é"]
)
NAME = st.sampled_from(
    [
        name.decode()
        for name in sorted(HEADER_USE.read | {b"a", b"b", b"receipt", b"timestamp", b"message-id"})
    ]
)


@examples(80)
@given(st.lists(NAME, min_size=1, max_size=5, unique=True), st.data())
def test_messages_do_not_depend_on_templates(names, data):
    frames = []
    for _ in range(data.draw(st.integers(3, 8))):
        lines = [
            f"{name}:{data.draw(VALUE)}" for name in names if name not in ("content-length", "destination")
        ]
        frames.append(send(*lines))
    both(*frames)


# ---- headers that are seen once, and fit no template


def without_templates(server):
    """One whose header blocks are not remembered, and which has no templates."""
    client = client_of(server, templates=False)
    client.session._parser._heads.memo.rest = 1_000_000
    return client


def remembered(server):
    """One whose header blocks are all remembered: each has a plan of its own."""
    return client_of(server, templates=False)


def the_same_messages_come_from_both(data):
    """Whether each header block is planned by itself, or by what it has in common with others."""
    names = st.lists(NAME.filter(lambda name: name != "content-length"), max_size=4, unique=True)
    servers = keeping(), keeping()
    clients = without_templates(servers[0]), remembered(servers[1])
    for _ in range(data.draw(st.integers(2, 6))):
        lines = [f"{name}:{data.draw(VALUE)}" for name in data.draw(names) if name != "destination"]
        for client in clients:
            client.write(send(*lines))
    one, other = servers
    first, second = clients
    assert [(got.command, got.headers) for got in first.read()] == [
        (got.command, got.headers) for got in second.read()
    ]
    assert messages(one) == messages(other) and messages(one, "r") == messages(other, "r")


@examples(60)
@given(st.data())
def test_messages_do_not_depend_on_shared_plans(data):
    the_same_messages_come_from_both(data)


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setattr(headers, "NATIVE_CUTTER", native_cutter())


@examples(60)
@given(st.data())
def messages_do_not_depend_on_cutting(data):
    the_same_messages_come_from_both(data)


def test_messages_do_not_depend_on_cutting(native):
    messages_do_not_depend_on_cutting()


def test_messages_that_are_cut_share_a_plan(native, monkeypatch):
    made = []
    plain = send_plan.plan_send

    def counted(session, head):
        made.append(head)
        return plain(session, head)

    monkeypatch.setattr(send_plan, "plan_send", counted)
    server = keeping()
    client = without_templates(server)
    for number in range(10):
        client.write(send(f"name-{number}:{number}", f"receipt:{number}"))
        client.write(send(f"name-{number}:{number}", "persistent:true"))
        client.write(send(f"name-{number}:{number}"))
    assert len(made) == 3 and all(type(head) is CutHead for head in made)
    assert [got["receipt-id"] for got in client.read()] == [str(number) for number in range(10)]
    assert [row[1] for row in messages(server)][:6] == [
        b"priority:4\npersistent:false\nname-0:0\n",
        b"priority:4\npersistent:true\nname-0:0\n",
        b"priority:4\npersistent:false\nname-0:0\n",
        b"priority:4\npersistent:false\nname-1:1\n",
        b"priority:4\npersistent:true\nname-1:1\n",
        b"priority:4\npersistent:false\nname-1:1\n",
    ]
    server.world.directory.delete_queue("q", force=True)
    client.write(send("serial:10"))
    assert [row[0] for row in messages(server)] == [b"x"]


def test_headers_without_a_meaning_share_a_plan(monkeypatch):
    made = []
    plain = send_plan.plan_send

    def counted(session, head):
        made.append(head)
        return plain(session, head)

    monkeypatch.setattr(send_plan, "plan_send", counted)
    server = keeping()
    client = without_templates(server)
    for number in range(10):
        client.write(send(f"name-{number}:{number}", "receipt:r"))
        client.write(send(f"other-{number}:{number}"))
    assert len(made) == 1 and len(client.read()) == 10
    assert [row[1] for row in messages(server)][:3] == [
        b"priority:4\npersistent:false\nname-0:0\n",
        b"priority:4\npersistent:false\nother-0:0\n",
        b"priority:4\npersistent:false\nname-1:1\n",
    ]


def test_a_shared_plan_is_made_anew_when_the_address_changes():
    server = keeping()
    client = without_templates(server)
    for number in range(10):
        client.write(send(f"serial-{number}:1"))
    server.world.directory.delete_queue("q", force=True)
    client.write(send("serial:10"))
    assert [row[0] for row in messages(server)] == [b"x"]
