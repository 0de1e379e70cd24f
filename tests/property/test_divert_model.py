"""Diverts and retroactive addresses under random use, beside plain models of their rules."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from stompring.settings.match import DivertGraph, SettingsRepository, matches
from stompring.settings.model import (
    AddressSettingEntry,
    ComponentRoutingType,
    DivertConfiguration,
    QueueConfiguration,
    RoutingType,
    WildcardSyntax,
)

from ..broker.broker_fixture import ANYCAST, MULTICAST, BrokerFixture, bodies
from .profile import examples

NAMES = ("a", "b", "c", "d.x", "d.y")
PATTERNS = (*NAMES, "d.*", "#")
COLOURS = ("red", "blue")
TYPES = (None, ANYCAST, MULTICAST)

DIVERTS = st.lists(
    st.tuples(
        st.sampled_from(PATTERNS),
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
        st.sampled_from([None, *COLOURS]),
        st.booleans(),
        st.sampled_from(list(ComponentRoutingType)),
    ),
    max_size=5,
)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(COLOURS), st.sampled_from(TYPES)), max_size=8
)


def configured(rows):
    """The diverts of ``rows`` that form no loop with those before them."""
    found = []
    for number, (address, targets, colour, exclusive, kind) in enumerate(rows):
        text = None if colour is None else f"colour = '{colour}'"
        one = DivertConfiguration(f"d{number}", address, tuple(targets), text, exclusive, routing_type=kind)
        if not list(DivertGraph([*found, one], WildcardSyntax()).loops()):
            found.append(one)
    return tuple(found)


def copies(diverts, address, colour, kind):
    """Where one message enters queues, with the routing type that it has there."""
    applying = [
        one
        for one in diverts
        if matches(one.address, address) and one.filter in (None, f"colour = '{colour}'")
    ]
    exclusive = [one for one in applying if one.exclusive]
    for one in exclusive or applying:
        given_type = {"PASS": kind, "STRIP": None}.get(one.routing_type, one.routing_type.value)
        passed = None if given_type is None else RoutingType(given_type)
        for target in one.forwarding_address:
            yield from copies(diverts, target, colour, passed)
    if not exclusive:
        yield address, kind


@examples(150)
@given(DIVERTS, MESSAGES)
def test_every_queue_has_what_the_diverts_say(rows, messages):
    diverts = configured(rows)
    world = BrokerFixture({"#": {"auto_create_queues": False}}, diverts=diverts)
    for name in NAMES:
        for kind in RoutingType:
            world.queue(f"{name} {kind}", name, kind)
    expected = {name: [] for name in world.directory.queues}
    for number, (address, colour, kind) in enumerate(messages):
        body = b"%d" % number
        world.send(address, body, routing_type=kind, headers={"colour": colour})
        for target, reached in copies(diverts, address, colour, kind):
            for each in RoutingType:
                if reached in (None, each):
                    expected[f"{target} {each}"].append(body)
    for name, queue in world.directory.queues.items():
        assert sorted(bodies(queue)) == sorted(expected[name]), (name, diverts)
    assert not any(one.loops for one in world.broker.diverts.by_name.values())
    assert not world.broker.copying_to


@dataclass
class Kept:
    """A retroactive address: what each routing type keeps, the oldest first."""

    messages: dict[RoutingType, list[tuple[int, bytes, str, int]]] = field(
        default_factory=lambda: {kind: [] for kind in RoutingType}
    )

    def add(self, limit, number, body, colour, kind, end):
        for each, ring in self.messages.items():
            if kind in (None, each):
                ring.append((number, body, colour, end))
                del ring[:-limit]

    def expire(self, now):
        for ring in self.messages.values():
            ring[:] = [message for message in ring if not message[3] or message[3] > now]


FEW, MATCHING = st.sampled_from(("a", "d.x")), st.sampled_from(("a", "d.x", "d.*", "#"))
SENDS = st.tuples(
    st.just("send"),
    FEW,
    st.sampled_from(COLOURS),
    st.sampled_from(TYPES),
    st.integers(0, 9),
    st.sampled_from([0, 0, 1000]),
)
STEPS = st.lists(
    SENDS
    | SENDS
    | st.tuples(st.just("queue"), MATCHING, st.sampled_from(list(RoutingType)))
    | st.tuples(
        st.just("filtered"),
        MATCHING,
        st.sampled_from(list(RoutingType)),
        st.sampled_from(COLOURS),
    )
    | st.tuples(st.just("resize"), st.integers(0, 5))
    | st.tuples(st.just("wait"))
    | st.tuples(st.just("delete"), FEW),
    min_size=10,
    max_size=30,
)


@examples(150)
@given(STEPS)
def test_every_new_queue_gets_what_is_kept(steps):
    limit = 3
    world = BrokerFixture({"#": {"retroactive_message_count": limit}})
    kept = {}
    for number, (what, *rest) in enumerate(steps):
        if what == "send":
            address, colour, kind, priority, lifetime = rest
            body, end = b"%d" % number, world.now + lifetime if lifetime else 0
            headers = {"colour": colour}
            world.send(address, body, routing_type=kind, priority=priority, expires=end, headers=headers)
            if limit:
                kept.setdefault(address, Kept()).add(limit, number, body, colour, kind, end)
        elif what in ("queue", "filtered"):
            address, kind, *wanted = rest
            text = f"colour = '{wanted[0]}'" if wanted else None
            queue = world.directory.create_queue(QueueConfiguration(f"q{number}", address, kind, filter=text))
            got = sorted(queue.dispatcher.in_order(), key=lambda ref: ref.sequence)
            expected = sorted(
                message
                for name, one in kept.items()
                if matches(address, name)
                for message in one.messages[kind]
                if not wanted or message[2] == wanted[0]
            )
            assert [ref.message.body for ref in got] == [body for _, body, _, _ in expected], (address, kind)
        elif what == "resize":
            (limit,) = rest
            entry = AddressSettingEntry("#", {"retroactive_message_count": limit})
            world.directory.settings = SettingsRepository((entry,))
            for one in list(world.directory.addresses.values()):
                one.apply(world.directory.settings.lookup(one.name))
            world.broker.retroactive.apply()
            world.settle_down()
            for each in kept.values():
                for ring in each.messages.values():
                    del ring[: max(0, len(ring) - limit)]
        elif what == "wait":
            world.pass_time(600)
            for each in kept.values():
                each.expire(world.now)
        elif rest[0] in world.directory.addresses:
            world.directory.delete_address(rest[0], force=True)
            world.settle_down()
            kept.pop(rest[0], None)
    rings = [name for name in world.directory.queues if name.startswith("$")]
    assert len(rings) == 2 * len(world.broker.retroactive)
