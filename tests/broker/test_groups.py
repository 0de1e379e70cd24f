"""Who owns which group."""

from __future__ import annotations

from typing import Any, cast

from stompring.broker.dispatcher import MessageGroups
from stompring.broker.reference import GONE, PENDING, Reference

from .broker_fixture import BrokerFixture, Taker


class Cast:
    """Groups, and references in them."""

    def __init__(self) -> None:
        self.world = BrokerFixture()
        self.groups = MessageGroups()
        self.next = 0

    def ref(self, group: bytes | None, ends: bool = False) -> Reference:
        self.next += 1
        message = self.world.message("a", group=group, group_sequence=-1 if ends else 0)
        return Reference(message, cast(Any, None), self.next, PENDING)


def test_the_first_to_take_a_message_owns_its_group() -> None:
    play, one, two = Cast(), Taker(), Taker()
    assert play.groups.claim(play.ref(b"g"), one) is one
    assert play.groups.claim(play.ref(b"g"), two) is one
    assert play.groups.claim(play.ref(None), two) is two
    assert play.groups.owner(play.ref(b"g")) is one and play.groups.owner(play.ref(None)) is None


def test_what_the_owner_refuses_does_not_change_the_owner() -> None:
    play, one, two = Cast(), Taker(matches=lambda message: False), Taker()
    play.groups.owners[b"g"] = one
    assert play.groups.claim(play.ref(b"g"), two) is two
    assert play.groups.owner(play.ref(b"g")) is one


def test_leaving_frees_groups_and_returns_what_is_still_pending_in_order() -> None:
    play, one, two = Cast(), Taker(), Taker()
    play.groups.owners.update({b"a": one, b"b": two, b"c": one})
    refs = [play.ref(group) for group in (b"a", b"c", b"a")]
    for ref in reversed(refs):
        play.groups.add_to_backlog(ref, one)
    refs[1].state = GONE
    assert play.groups.remove(one) == [refs[0], refs[2]]
    assert play.groups.owners == {b"b": two}
    assert play.groups.remove(one) == []


def test_an_end_frees_what_was_set_aside_for_that_group_alone() -> None:
    play, one = Cast(), Taker()
    play.groups.owners.update({b"a": one, b"b": one})
    kept, freed = play.ref(b"b"), play.ref(b"a")
    for ref in (kept, freed):
        play.groups.add_to_backlog(ref, one)
    assert play.groups.end(play.ref(b"a")) == []
    assert play.groups.end(play.ref(b"a", ends=True)) == [freed]
    assert play.groups.owners == {b"b": one}
    assert one.group_backlog is not None and list(one.group_backlog) == [kept]
