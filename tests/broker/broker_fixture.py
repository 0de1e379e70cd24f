"""A broker on a clock that tests turn by hand, and consumers that only keep what they are given."""

from itertools import count

from twisted.internet.task import Clock

from stompring.broker import publish
from stompring.broker.broker import Broker
from stompring.broker.message import Message, Traits
from stompring.broker.ports import Entries
from stompring.broker.queue import Consumer
from stompring.policy.hooks import Policies
from stompring.settings.model import AddressSettingEntry, BrokerConfiguration, QueueConfiguration, RoutingType

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST

#: Seconds since the epoch at which every world begins. Durations in tests are multiples of 125 ms, which binary
#: fractions hold exactly, so that nothing falls due a millisecond late.
BEGIN = 1_700_000_000


def turn(clock, seconds=0):
    """One turn of the reactor, after ``seconds``: what is due, but nothing that is only asked for meanwhile."""
    clock.rightNow += seconds
    for call in [call for call in clock.calls if call.getTime() <= clock.rightNow]:
        if call in clock.calls:
            clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)


class BrokerFixture:
    """A broker, its clock, and short words for what tests do to it."""

    def __init__(self, settings=None, storage=None, reactor=None, **configuration):
        if reactor is None:
            reactor = Clock()
            reactor.advance(BEGIN)
        self.clock = reactor
        configuration.setdefault("persistence_enabled", storage is not None)
        entries = tuple(AddressSettingEntry(match, values) for match, values in (settings or {}).items())
        self.broker = Broker(
            BrokerConfiguration(address_settings=entries, **configuration), self.clock, Policies(), storage
        )
        self.directory = self.broker.directory

    @property
    def now(self):
        return self.broker.clock.refresh()

    def queue(self, name="q", address=None, routing_type=ANYCAST, **more):
        return self.directory.create_queue(QueueConfiguration(name, address or name, routing_type, **more))

    def address(self, name):
        """The address of that name, made where it is missing."""
        if name not in self.directory.addresses:
            self.directory.create_address(name, frozenset({ANYCAST, MULTICAST}))
        return self.directory.addresses[name]

    def message(self, address="q", body=b"", **traits):
        now = self.now
        expires = traits.pop("expires", 0)
        headers = traits.pop("headers", {})
        block = "".join(f"{name}:{value}\n" for name, value in headers.items()).encode()
        number = self.broker.next_message_number()
        made = Traits(block, traits.pop("destination", address.encode()), **traits)
        target = self.address(address)
        return Message(number, target, target.mark(made), body, now, expires)

    def send(self, address="q", body=b"", *, due=0, recurrence=None, **traits):
        message = self.message(address, body, **traits)
        publish.send(message, due, recurrence)
        return message

    def slice_finely(self):
        """From now on work on many messages has one step in a turn of the reactor."""
        for background in (self.broker.background, self.broker.scans):
            background.least = 1
            background.now = count().__next__

    def one_turn(self, seconds=0):
        """See `turn`."""
        turn(self.clock, seconds)

    def settle_down(self):
        """Everything that has to be done by now is done."""
        for _ in range(10_000):
            if not self.clock.calls or self.clock.calls[0].getTime() > self.clock.seconds():
                return
            self.clock.advance(0)
        raise AssertionError("it never comes to rest")

    def pass_time(self, milliseconds):
        """Let time go by; everything happens at its own time."""
        until = self.clock.seconds() + milliseconds / 1000
        self.clock.advance(0)
        while self.clock.calls and self.clock.calls[0].getTime() <= until:
            self.clock.advance(max(0.0, self.clock.calls[0].getTime() - self.clock.seconds()))
        self.clock.advance(until - self.clock.seconds())
        self.broker.clock.refresh()


class Taker(Consumer):
    """A consumer with credit for ``credit`` messages (None: any number) that notes what comes."""

    remote = ""  # as a test sets it

    def __init__(self, credit=None, *, auto=False, matches=None, key=None, log=None):
        super().__init__(matches, key if key is not None else matches)
        self.credit = credit
        self.auto = self.settles_on_delivery = auto
        self.unsettled = []
        self.got = []
        self.deliveries = []  # of each of `got`, how often it had gone out by then
        self.log = log if log is not None else []
        self.cancel_reason = None
        self.willing = credit is None or credit > 0

    def deliver_message(self, message):
        if self.auto:
            if message.traits.retained >= self.queue.retains_from:
                entries = Entries(self.queue, self.consumer_name)
                self.queue.broker.storage.record(entries)
                entries.messages.append(message)
            self.queue.messages_acknowledged += 1
            self._note(message, 1)
        else:
            ref = self.queue.mark_delivering(message)
            self.unsettled.append(ref)
            self._note(message, ref.deliveries)

    def deliver_reference(self, ref):
        if not self.auto:
            self.unsettled.append(ref)
        self._note(ref.message, ref.deliveries)
        if self.auto:
            self.queue.settle(ref)

    def _note(self, message, deliveries):
        self.got.append(message)
        self.deliveries.append(deliveries)
        self.log.append((self, message.number))
        if self.credit is not None:
            self.credit -= 1
            if self.credit <= 0:
                self.queue.dispatcher.pause_consumer(self)

    def cancelled(self, reason):
        self.cancel_reason = reason
        unsettled, self.unsettled = self.unsettled, []
        self.queue.remove_consumer(self, unsettled)

    # ---- what a client would do

    def give_credit(self, credit=1):
        if self.credit is not None:
            self.credit += credit
            if self.credit <= 0:
                return
        self.queue.dispatcher.resume_consumer(self)

    def release(self, refs=None):
        released = list(self.unsettled if refs is None else refs)
        for ref in released:
            self.unsettled.remove(ref)
            if self.credit is not None:
                self.credit += 1
        return released

    def reclaim(self, refs):
        """A transaction with them was rolled back; those that are nobody's now."""
        if self not in self.queue.consumers:
            return refs
        self.unsettled += refs
        if self.credit is not None:
            self.credit -= len(refs)
            if self.credit <= 0:
                self.queue.dispatcher.pause_consumer(self)
        return []

    def ack_in(self, transaction, refs=None):
        released = self.release(refs)
        transaction.acknowledge(released, lambda: self.reclaim(released))

    def nack_in(self, transaction, refs=None):
        released = self.release(refs)
        transaction.refuse(released, self, lambda: self.reclaim(released))

    def ack(self, *refs):
        for ref in self.release(refs or None):
            self.queue.settle(ref)
        self.give_credit(0)

    def nack(self, *refs):
        self.queue.requeue(self.release(refs or None), self, failed=True)
        self.give_credit(0)

    def close(self, *, failed=False):
        unsettled, self.unsettled = self.unsettled, []
        self.queue.remove_consumer(self, unsettled, failed=failed)

    @property
    def bodies(self):
        return [message.body for message in self.got]


def join(queue, credit=None, **more):
    """A new consumer of ``queue``."""
    taker = Taker(credit, **more)
    queue.add_consumer(taker)
    return taker


def bodies(queue):
    """What is pending, in the order of delivery."""
    return [ref.message.body for ref in queue.dispatcher.in_order()]


def header_is(name, value):
    def matches(message):
        return message.header(name) == value

    return matches


def assert_nothing_held(world, *queues):
    """Every count of what is held is back at zero."""
    for queue in queues or world.directory.queues.values():
        held = {
            "pending": queue.count,
            "delivering": queue.delivering,
            "scheduled": len(queue.scheduled),
            "persistent_size": queue.persistent_size,
        }
        assert not any(held.values()), (queue.name, held)
    for address in world.directory.addresses.values():
        assert (address.memory_limit.bytes, address.memory_limit.messages) == (0, 0), address.name
    assert (world.broker.memory.bytes, world.broker.memory.messages) == (0, 0)


def numbered(count):
    """The bodies of messages that a test counts."""
    return [b"%d" % number for number in range(count)]
