"""The dispatcher: consumers in turn, selectors, exclusive queues, message groups."""

from stompring.broker.queue import (
    AWAITING_CONSUMERS,
    CLOSED,
    GROUPS,
    NON_DESTRUCTIVE,
    PAUSED,
    SELECTORS,
    SUSPENDED,
    MessageGroups,
)
from stompring.broker.reference import GONE, PENDING, Reference

from .broker_fixture import BrokerFixture, Taker, assert_nothing_held, header_is, join


def red(body, world):
    world.send(body=body, headers={"colour": "red"})


def blue(body, world):
    world.send(body=body, headers={"colour": "blue"})


def grouped(world, group, body, *, ends=False, colour="red"):
    world.send(body=body, group=group, group_sequence=-1 if ends else 0, headers={"colour": colour})


RED, BLUE = header_is(b"colour", b"red"), header_is(b"colour", b"blue")


def test_equal_selectors_share_one_list():
    world = BrokerFixture()
    queue = world.queue()
    one, two = join(queue, 1, matches=RED, key="red"), join(queue, 1, matches=RED, key="red")
    for number in range(3):
        red(b"%d" % number, world)
    assert len(queue.dispatcher.selector_lists) == 1
    one.close()
    assert two.bodies == [b"1"] and len(queue.dispatcher.selector_lists) == 1
    two.ack()
    assert two.bodies == [b"1", b"0"], "what came back is before what was not out yet"
    two.close()
    assert not queue.dispatcher.selector_lists
    assert queue.count == 2


def test_exclusive_switched_on_with_several_consumers():
    world = BrokerFixture()
    queue = world.queue()
    one, two = join(queue), join(queue, 1)
    grouped(world, b"g", b"0")
    grouped(world, b"h", b"1")
    grouped(world, b"h", b"2")  # set aside for the second, who has no credit
    world.directory.update_queue(queue, {"exclusive": True})
    assert one.bodies == [b"0", b"2"] and two.bodies == [b"1"]
    world.directory.update_queue(queue, {"exclusive": False})
    two.give_credit(1)
    for _ in range(2):
        world.send()
    assert len(two.got) == 2


def test_delay_before_dispatch_ends_with_the_last_consumer():
    world = BrokerFixture()
    queue = world.queue(consumers_before_dispatch=3, delay_before_dispatch=1000)
    join(queue).close()
    assert not world.clock.calls
    world.send()
    taker = join(queue)
    world.pass_time(1000)
    assert len(taker.got) == 1


def test_lowered_consumers_before_dispatch_starts_delivery():
    world = BrokerFixture()
    queue = world.queue(consumers_before_dispatch=3)
    taker = join(queue)
    world.send()
    world.directory.update_queue(queue, {"consumers_before_dispatch": 1})
    assert len(taker.got) == 1


def test_consumer_that_acknowledges_within_the_delivery():
    """An ACK from within the delivery leads back into the queue."""

    class Hasty(Taker):
        def deliver_reference(self, ref):
            super().deliver_reference(ref)
            self.ack()

    world = BrokerFixture()
    queue = world.queue()
    for number in range(50):
        world.send(body=b"%d" % number)
    taker = Hasty(1)
    queue.add_consumer(taker)
    assert taker.bodies == [b"%d" % number for number in range(50)]
    assert_nothing_held(world)


def test_each_reason_against_direct_delivery_has_a_bit_while_it_lasts():
    world = BrokerFixture()
    queue = world.queue()
    dispatcher = queue.dispatcher
    assert dispatcher.blocks == 0
    queue.pause()
    assert dispatcher.blocks == PAUSED and queue.paused
    first, second = join(queue, matches=RED), join(queue, matches=BLUE)
    assert dispatcher.blocks == PAUSED | SELECTORS
    queue.resume()
    first.close()
    assert dispatcher.blocks == SELECTORS and not queue.paused
    second.close()
    assert dispatcher.blocks == 0
    dispatcher.suspend()
    dispatcher.suspend()
    dispatcher.resume()
    assert dispatcher.blocks == SUSPENDED
    dispatcher.resume()
    assert dispatcher.blocks == 0
    grouped(world, b"g", b"m")
    assert dispatcher.blocks == GROUPS
    assert world.queue("all", non_destructive=True).dispatcher.blocks == NON_DESTRUCTIVE
    assert world.queue("two", consumers_before_dispatch=2).dispatcher.blocks == AWAITING_CONSUMERS


def test_consumer_of_a_deleted_queue_is_not_delivered_to():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue, 0)
    world.send(body=b"m")
    world.directory.delete_queue("q", force=True)
    assert taker.cancel_reason is not None and queue.dispatcher.blocks & CLOSED
    taker.give_credit()
    assert not taker.got and not taker.ready and not queue.ready


def test_suspended_delivery_of_the_broker_holds_back_old_and_new_queues():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue)
    world.broker.suspend_delivery()
    world.broker.suspend_delivery()
    world.send(body=b"1")
    late = world.queue("late")
    later = join(late)
    world.send("late", b"2")
    assert (taker.bodies, later.bodies, queue.count, late.count) == ([], [], 1, 1)
    world.directory.delete_queue(world.queue("short").name)
    world.broker.resume_delivery()
    world.broker.resume_delivery()
    world.settle_down()
    assert (taker.bodies, later.bodies) == ([b"1"], [b"2"])
    world.send(body=b"3")
    assert taker.bodies == [b"1", b"3"]
    assert not queue.dispatcher.blocks & SUSPENDED


class Cast:
    """Groups, and references in them."""

    def __init__(self):
        self.world = BrokerFixture()
        self.groups = MessageGroups()

    def ref(self, group, ends=False):
        message = self.world.message("a", group=group, group_sequence=-1 if ends else 0)
        return Reference(message, None, PENDING)

    def own(self, taker, *groups):
        for group in groups:
            self.groups.claim(self.ref(group), taker)


def test_removed_owner_returns_its_pending_backlog_in_order():
    play, one, two = Cast(), Taker(), Taker()
    play.own(one, b"a", b"c")
    play.own(two, b"b")
    refs = [play.ref(group) for group in (b"a", b"c", b"a")]
    for ref in reversed(refs):
        play.groups.add_to_backlog(ref, one)
    refs[1].state = GONE
    assert play.groups.remove(one) == [refs[0], refs[2]]
    pinned = {key: owner.consumer for key, owner in play.groups.owners.items() if owner.consumer is not None}
    assert pinned == {b"b": two}
    assert (one.group_count, two.group_count) == (0, 1)
    assert play.groups.remove(one) == []
