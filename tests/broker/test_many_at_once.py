"""What concerns many messages at one moment happens in slices: what others see meanwhile, and what comes of it."""

import pytest

from stompring.broker.queue import SCANNED_AT_ONCE
from stompring.errors import NotFound

from ..paging.stored_pages import StoredPages, assert_nothing_paged, drained
from .broker_fixture import BrokerFixture, assert_nothing_held, bodies, header_is, join, numbered

MANY = 300


def sliced(settings=None):
    world = BrokerFixture(
        {"#": {"auto_delete_queues": False, "max_delivery_attempts": -1, **(settings or {})}}
    )
    world.slice_finely()
    return world


def send_many(world, **more):
    for body in numbered(MANY):
        world.send(body=body, **more)


def test_messages_that_expire_together_expire_in_slices_and_in_order():
    world = sliced({"expiry_address": "EXP"})
    queue, expired = world.queue(), world.queue("EXP")
    send_many(world, expires=world.now + 1000)
    world.one_turn(1)
    turns, taker = 0, join(world.queue("other"))
    while queue.messages_expired < MANY:
        before = queue.messages_expired
        world.send("other", b"%d" % turns)
        assert taker.bodies[-1] == b"%d" % turns, "others are served"
        world.one_turn()
        assert queue.messages_expired - before <= 2
        assert queue.message_count + expired.message_count == MANY
        turns += 1
    assert turns > MANY / 4
    assert bodies(expired) == numbered(MANY)
    world.settle_down()
    assert not world.clock.calls


def test_a_message_whose_time_is_over_is_not_delivered_while_others_expire():
    world = sliced()
    queue = world.queue()
    send_many(world, expires=world.now + 1000)
    world.send(body=b"stays")
    world.one_turn(1)
    taker = join(queue)
    world.settle_down()
    assert taker.bodies == [b"stays"]
    assert queue.messages_expired == MANY


def test_messages_that_fall_due_together_come_in_order():
    world = sliced()
    queue = world.queue()
    world.send(body=b"waits")
    send_many(world, due=world.now + 1000)
    world.one_turn(1)
    while queue.scheduled_count:
        before = queue.scheduled_count
        world.one_turn()
        assert before - queue.scheduled_count <= 2
        assert queue.message_count == MANY + 1
    assert bodies(queue) == [*numbered(MANY), b"waits"]


def test_slices_do_not_change_what_a_ring_keeps():
    world = sliced()
    queue = world.queue(ring_size=10)
    send_many(world, due=world.now + 1000)
    world.one_turn(1)
    world.settle_down()
    assert bodies(queue) == numbered(MANY)[-10:]
    assert queue.messages_replaced == MANY - 10


def test_what_a_consumer_had_comes_back_in_slices_and_nobody_is_given_anything_before_all_is_back():
    world = sliced()
    queue = world.queue()
    first, second = join(queue), join(queue, 0)
    send_many(world)
    assert len(first.unsettled) == MANY
    second.give_credit(MANY * 2)
    first.close()
    world.send(body=b"later")
    turns = 0
    while not second.got:
        before = queue.delivering
        assert queue.message_count == MANY + 1
        world.one_turn()
        assert second.got or 0 <= before - queue.delivering <= 2
        turns += 1
    assert turns > MANY / 4
    world.settle_down()
    assert second.bodies == [*numbered(MANY), b"later"]
    assert second.deliveries == [*[2] * MANY, 1]


@pytest.mark.parametrize("ring", [1, 7, MANY - 1])
def test_a_ring_keeps_the_newest_of_what_comes_back_in_slices(ring):
    world = sliced()
    queue = world.queue(ring_size=ring)
    taker = join(queue)
    send_many(world)
    taker.close()
    for _ in range(ring + 3):
        world.one_turn()
    world.send(body=b"new")
    world.settle_down()
    assert bodies(queue) == [*numbered(MANY)[-ring + 1 if ring > 1 else MANY :], b"new"]


def test_what_two_consumers_had_comes_back_in_one_order():
    world = sliced()
    queue = world.queue()
    takers = [join(queue), join(queue)]
    for number, body in enumerate(numbered(MANY)):
        world.send(body=body, priority=9 if number % 7 == 0 else 4)
    for taker in takers:
        taker.close(failed=True)
    last = join(queue)
    assert not last.got
    world.settle_down()
    urgent = [b"%d" % number for number in range(MANY) if number % 7 == 0]
    assert last.bodies == [*urgent, *(body for body in numbered(MANY) if body not in urgent)]
    assert {ref.attempts for ref in last.unsettled} == {1}


def test_a_deleted_queue_is_gone_at_once_and_its_messages_by_and_by():
    world = sliced()
    queue = world.queue()
    taker = join(queue, 10)
    send_many(world)
    send_many(world, due=world.now + 1000)
    taker.give_credit(MANY)
    taker.credit = 0
    world.directory.delete_queue("q", force=True)
    with pytest.raises(NotFound):
        world.directory.queue("q")
    got = len(taker.got)
    again = world.queue()
    world.send(body=b"new")
    assert bodies(again) == [b"new"]
    done = []
    world.broker.background.after(queue, lambda: done.append(world.broker.memory.messages))
    turns = 0
    while not done:
        before = world.broker.memory.messages
        world.one_turn()
        assert before - world.broker.memory.messages <= 2
        turns += 1
    assert turns > MANY / 4 and done == [1]
    assert len(taker.got) == got and bodies(again) == [b"new"]
    world.pass_time(2000)
    again.purge()
    world.settle_down()
    assert_nothing_held(world, queue, again)


def test_a_purge_kills_what_was_there_and_nothing_that_comes_meanwhile():
    world = sliced()
    queue = world.queue()
    send_many(world)
    assert queue.purge() == MANY
    world.send(body=b"new")
    taker = join(queue)
    assert not taker.got
    world.settle_down()
    assert taker.bodies == [b"new"]
    assert queue.messages_killed == MANY


def test_a_queue_that_is_purged_when_its_last_consumer_goes():
    world = sliced()
    queue = world.queue(purge_on_no_consumers=True)
    taker = join(queue, MANY // 2)
    send_many(world)
    taker.close()
    world.settle_down()
    assert (queue.messages_killed, queue.message_count) == (MANY, 0)
    assert_nothing_held(world)


def test_what_comes_back_to_a_queue_that_pages():
    world = StoredPages(limit=5, memory=2000)
    world.slice_finely()
    queue = world.queue()
    taker = join(queue)
    sent = world.fill(MANY)
    world.settle_down()
    assert len(taker.unsettled) > 10
    taker.close()
    other = join(queue, matches=header_is(b"none", b"none"))
    world.settle_down()
    assert queue.message_count == MANY
    other.close()
    assert drained(world, join(queue)) == sent
    assert_nothing_paged(world)
    assert_nothing_held(world)


def test_a_deleted_queue_that_pages():
    world = StoredPages(limit=5, memory=2000)
    world.slice_finely()
    queue = world.queue()
    taker = join(queue, 20)
    world.fill(MANY)
    world.settle_down()
    assert len(taker.unsettled) == 20
    world.directory.delete_queue("q", force=True)
    world.settle_down()
    assert_nothing_held(world, queue)
    assert_nothing_paged(world)


def test_what_is_not_wanted_any_more_leaves_the_agenda_in_slices():
    world = sliced()
    queue = world.queue()
    for number in range(MANY):
        world.send(body=b"%d" % number, expires=world.now + 1000 + number % 3)
    keep = [ref for ref in queue.dispatcher.in_order() if ref.message.number % 10 == 0]
    for ref in list(queue.dispatcher.in_order()):
        if ref not in keep:
            before = len(world.broker.expiry)
            queue.kill(ref)
            assert before - len(world.broker.expiry) <= 2
    world.settle_down()
    assert len(world.broker.expiry) < MANY / 2
    world.pass_time(2000)
    assert queue.messages_expired == len(keep)


def asked_of(counts, value):
    """A selector that matches one colour, and counts its evaluations."""
    matches = header_is(b"colour", value)

    def counted(message):
        counts[0] += 1
        return matches(message)

    return counted


def test_the_scans_of_many_selectors_share_a_slice():
    world = sliced()
    queue, other = world.queue(), join(world.queue("other"), auto=True)
    for body in numbered(MANY):
        world.send(body=body, headers={"colour": "red"})
    counts = [0]
    readers = 20
    for number in range(readers):
        before = counts[0]
        join(queue, matches=asked_of(counts, b"%d" % number), key=number)
        assert counts[0] - before <= 2 * SCANNED_AT_ONCE
    turns = 0
    while len(world.broker.scans):
        before = counts[0]
        world.send("other", b"%d" % turns)
        assert other.bodies[-1] == b"%d" % turns, "others are served"
        world.one_turn()
        assert counts[0] - before <= 2 * SCANNED_AT_ONCE
        turns += 1
    assert counts[0] == readers * MANY
    world.settle_down()
    assert not world.clock.calls and not queue.dispatcher.scanning
