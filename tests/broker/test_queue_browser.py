"""Looking into queues, and removing or releasing single messages by management."""

import pytest

from stompring.broker import queue_browser
from stompring.broker.clock import FOREVER, Recurrence
from stompring.broker.reference import STATES
from stompring.errors import Refused
from stompring.settings.model import RingPolicy

from .broker_fixture import BrokerFixture, Taker, assert_nothing_held, bodies, join


class OpenTaker(Taker):
    """A consumer that shows what it has not settled."""

    def unsettled_references(self):
        return self.unsettled


def join_open(queue, credit):
    taker = OpenTaker(credit)
    queue.add_consumer(taker)
    return taker


def seen(refs):
    return [(ref.message.body, STATES[ref.state]) for ref in refs]


@pytest.fixture
def world():
    return BrokerFixture()


def test_browse_leaves_everything_as_it_is(world):
    queue = world.queue()
    for body in (b"a", b"b"):
        world.send(body=body)
    list(queue_browser.browse(queue))
    assert bodies(queue) == [b"a", b"b"]
    assert (queue.message_count, queue.delivering, queue.messages_acknowledged) == (2, 0, 0)


def test_browse_adds_what_a_transaction_holds_and_only_of_this_queue(world):
    queue, other = world.queue("q"), world.queue("other")
    takers = [join_open(queue, 1), join_open(other, 1)]
    world.send("q", b"mine")
    world.send("other", b"not mine")
    held = [ref for taker in takers for ref in taker.release()]
    assert seen(queue_browser.browse(queue)) == []
    assert seen(queue_browser.browse(queue, elsewhere=held)) == [(b"mine", "delivering")]


def test_browse_refuses_a_broken_selector_at_once(world):
    with pytest.raises(Refused, match="filter: ") as refused:
        queue_browser.browse(world.queue(), "colour = ")
    assert refused.value.status == 400


def test_removing_the_last_message_lets_an_auto_delete_queue_go(world):
    queue = world.queue(auto_created=True, auto_delete=True)
    keeper = join(queue, 0)
    message = world.send()
    keeper.close()
    assert "q" in world.directory.queues
    list(queue_browser.remove_message(queue, message.number))
    assert "q" not in world.directory.queues


def test_cancel_a_recurring_message(world):
    queue = world.queue()
    message = world.send(due=world.now + 1000, recurrence=Recurrence(period=1000, repeat=FOREVER))
    list(queue_browser.cancel_scheduled(queue, message.number))
    world.pass_time(5000)
    assert (queue.messages_added, queue.messages_acknowledged, queue.message_count) == (1, 1, 0)
    assert_nothing_held(world)


def test_deliver_now_is_lost_to_a_full_ring(world):
    queue = world.queue(ring_size=1, ring_policy=RingPolicy.DISCARD)
    scheduled = world.send(body=b"scheduled", due=world.now + 1000)
    world.send(body=b"pending")
    list(queue_browser.deliver_now(queue, scheduled.number))
    assert bodies(queue) == [b"pending"]
    assert queue.messages_replaced == 1


def test_many_delivered_now_leave_a_working_schedule(world):
    queue = world.queue()
    messages = [world.send(body=b"%d" % number, due=world.now + 1000) for number in range(300)]
    for message in messages[:200]:
        list(queue_browser.deliver_now(queue, message.number))
    world.pass_time(1000)
    assert (queue.count, queue.scheduled_count) == (300, 0)


def test_purge_kills_what_matches_and_spares_what_is_in_delivery(world):
    queue = world.queue()
    taker = join_open(queue, 1)
    world.send(body=b"taken", headers={"colour": "red"})
    world.send(body=b"red", headers={"colour": "red"})
    world.send(body=b"blue", headers={"colour": "blue"})
    world.send(body=b"later", headers={"colour": "red"}, due=world.now + 1000)
    assert sum(queue_browser.purge(queue, "colour = 'red'")) == 2
    assert seen(queue_browser.browse(queue)) == [(b"blue", "pending"), (b"taken", "delivering")]
    assert (queue.messages_killed, queue.messages_acknowledged) == (2, 0)
    assert sum(queue_browser.purge(queue)) == 1
    taker.ack()
    assert_nothing_held(world)


def test_purge_spares_what_arrives_while_it_runs(world):
    queue = world.queue()
    world.send(body=b"old")
    world.send(body=b"old too")
    steps = queue_browser.purge(queue)
    next(steps)
    world.send(body=b"new")
    list(steps)
    assert bodies(queue) == [b"new"]
