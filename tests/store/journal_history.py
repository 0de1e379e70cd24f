"""What a broker with a store held at each point of its journal, to compare with what comes back."""

from stompring.broker.reference import DELIVERING, GONE, SCHEDULED

#: Where a journal ends: its newest segment, and the bytes in that.
Position = tuple[int, int]


def message_state(ref, now):
    due = ref.due if ref.state == SCHEDULED and ref.due > now else 0
    deliveries = 0 if ref.queue.attributes.non_destructive else ref.deliveries  # each consumer's are its own
    return (deliveries, ref.attempts, due, ref.message.expires)


def references(queue):
    """Everything that a queue holds: pending, scheduled and in delivery."""
    held = {id(ref): ref for ref in (*queue.dispatcher.in_order(), *queue.scheduled.values())}
    for consumer in queue.consumers:
        held |= {id(ref): ref for ref in consumer.unsettled if ref.state == DELIVERING}
    return [ref for ref in held.values() if ref.state != GONE]


def snapshot(broker, now):
    """All durable queues with the durable messages in them."""
    taken = {}
    for name, queue in broker.directory.queues.items():
        if queue.durable:
            durable = [ref for ref in references(queue) if ref.message.traits.durable]
            look = (queue.number, queue.ring_size, queue.attributes.filter, queue.paused, queue.address.name)
            taken[name] = (look, {ref.message.number: message_state(ref, now) for ref in durable})
    return taken


def at_time(held, now):
    """A snapshot as it would be later if nothing happened: what was to come due has."""
    return {
        name: (look, {number: (*d, due if due > now else 0, e) for number, (*d, due, e) in messages.items()})
        for name, (look, messages) in held.items()
    }


class JournalHistory:
    """Snapshots of one world by where its journal ended. ``safe`` is the end that was said to be safe."""

    def __init__(self, world):
        self.world = world
        self.entries = []
        self.safe = 0  # the entry
        self._gather = world.journal.gather
        world.journal.gather = world.writer.gather = self._gather_and_note  # type: ignore[method-assign]
        self.note()

    @property
    def position(self):
        newest = self.world.journal.segments[-1]
        return (newest.number, newest.size)

    def _gather_and_note(self):
        whole = self._gather()
        if whole:
            self.note()
        return whole

    def note(self):
        now = self.world.broker.clock.now
        seen = snapshot(self.world.broker, now)
        if self.entries and self.entries[-1][0] == self.position:
            assert at_time(self.entries[-1][1], now) == seen, (
                "something happened that the journal was not told"
            )
        else:
            self.entries.append((self.position, seen))

    def between(self, position):
        """What was held at the last entry up to ``position`` and at the next; the same twice where it is an entry."""
        place = max(place for place, (where, _) in enumerate(self.entries) if where <= position)
        assert place >= self.safe, "something that was said to be safe is not there"
        where, held = self.entries[place]
        if where == position:
            return held, held
        return held, self.entries[place + 1][1]

    def promise(self):
        """Ask to hear when all that was told is safe."""
        told = []

        def safe():
            self.safe = max(self.safe, told[0])

        # what is told now is written with the next entry, unless all of it is written already
        waiting = bool(self.world.journal._pending)
        told.append(len(self.entries) - 1 + waiting)
        self.world.store.when_synced(safe)
