"""A short history on a broker in process, which has everything in it that is written to a store."""

from stompring.store.bindings import describe_address, describe_queue

from .audit import Audit
from .ledger import State
from .topology import Group

GROUPS = [
    Group(queue) for queue in ("work", "out", "always.work", "always.new", "c.a", "c.b", "purged", "last")
]
GROUPS.append(Group("ring", 3, consumers=False))


class History:
    """Steps that one client after the other takes. What is promised meanwhile is in ``ledger``."""

    def __init__(self, life, ledger):
        self.life = life
        self.ledger = ledger
        self.sender = life.talker()
        self.taker = life.talker(client_id="c")
        self.held = {}  # by subscription
        self._promises = {}
        self._transactions = 0

    def play(self):
        """From beginning to end."""
        for step in STEPS:
            step(self)
            self.listen()

    def listen(self):
        """Everything happens, and clients hear of it."""
        self.life.turn()
        for talker in (self.sender, self.taker):
            for got in talker.read():
                if got.command == "RECEIPT":
                    for unit in self._promises.pop(got["receipt-id"], []):
                        unit.move(State.DONE)
                elif got.command == "MESSAGE":
                    self._take(got.headers, got.body)
                else:
                    raise AssertionError(f"{got.command} {got.headers}")

    def _take(self, headers, body):
        subscription = headers["subscription"]
        text = body.partition(b"|")[0].decode()
        redelivered = headers["redelivered"] == "true"
        copy = self.ledger.delivered(subscription, text, "the taker", redelivered=redelivered)
        if copy is not None:
            self.held.setdefault(subscription, []).append((copy, headers["ack"]))

    @property
    def unanswered(self):
        """What waits for its receipt."""
        return [unit for units in self._promises.values() for unit in units]

    # ---- steps

    def ask(self, talker, units, command, body=b"", **headers):
        """Say something with a receipt that these units wait for."""
        receipt = f"r{len(self._promises)}-{self.life.world.broker.next_message_number()}"
        self._promises[receipt] = units
        for unit in units:
            unit.move(State.ASKED)
        talker.say(command, body, receipt=receipt, **headers)

    def send(self, destination, *queues, size=40, **headers):
        """A durable message, with a receipt."""
        unit = self.ledger.unit("SEND")
        durable = headers.setdefault("persistent", "true") == "true"
        text = self.ledger.enter(unit, queues or (destination,), f"to-{destination}", durable=durable)
        self.ask(self.sender, [unit], "SEND", _body(text, size), destination=destination, **headers)
        self.listen()

    def subscribe(self, queue, window=3):
        """The taker takes so many messages at a time. Its subscriptions have the names of their queues."""
        destination = f"\\c\\c{queue}"
        self.taker.say(
            "SUBSCRIBE",
            destination=destination,
            id=queue,
            ack="client-individual",
            prefetch_count=str(window),
        )
        self.listen()

    def acknowledge(self, queue, place=0):
        """ACK with a receipt; nothing, where nothing has come because the disk fails."""
        if place < len(self.held.get(queue, [])):
            copy, ack = self.held[queue].pop(place)
            unit = self.ledger.unit("ACK")
            self.ledger.leave(unit, copy)
            copy.holder = None
            self.ask(self.taker, [unit], "ACK", id=ack)
            self.listen()

    def refuse(self, queue):
        """NACK with a receipt."""
        if self.held.get(queue):
            copy, ack = self.held[queue].pop(0)
            copy.holder = None
            self.ask(self.taker, [], "NACK", id=ack)
            self.listen()

    def transact(self, source, *targets, end="COMMIT"):
        """The taker acknowledges one message and sends others, in one transaction."""
        self._transactions += 1
        name = f"t{self._transactions}"
        unit = self.ledger.unit(name)
        self.taker.say("BEGIN", transaction=name)
        taken = self.held[source].pop(0) if self.held.get(source) else None
        if taken is not None:
            copy, ack = taken
            holder, copy.holder = copy.holder, None
            self.ledger.leave(unit, copy)
            self.taker.say("ACK", id=ack, transaction=name)
        for target in targets:
            text = self.ledger.enter(unit, [target], f"tx-{target}")
            self.taker.say("SEND", _body(text, 60), destination=target, persistent="true", transaction=name)
        if end == "COMMIT":
            self.ask(self.taker, [unit], "COMMIT", transaction=name)
        else:
            self.taker.say("ABORT", transaction=name)
            unit.move(State.UNDONE)
            if taken is not None:  # the taker has it still
                self.held[source].insert(0, taken)
                copy.holder = holder
        self.listen()

    def begin_pages(self, queue):
        """A queue that is new gets its first message, and one of a transaction, before anything of it is on disk."""
        unit = self.ledger.unit("SEND")
        text = self.ledger.enter(unit, [queue], f"to-{queue}")
        self.ask(self.sender, [unit], "SEND", _body(text, 40), destination=queue, persistent="true")
        self.transact("", queue)

    def purge(self, queue):
        """What was there is gone when a later message is safe."""
        gone = [copy for copy in self.ledger.in_queue(queue) if copy.entry.state is State.DONE]
        for copy in self.ledger.in_queue(queue):
            copy.doubt = "purged"
        if queue in self.life.world.directory.queues:
            self.life.world.directory.queues[queue].purge()
        purge, unit = self.ledger.unit("purge"), self.ledger.unit("SEND")
        for copy in gone:
            self.ledger.leave(purge, copy)
        text = self.ledger.enter(unit, ["out"], "to-out")
        self.ask(self.sender, [unit, purge], "SEND", _body(text, 20), destination="out", persistent="true")
        self.listen()

    def durable_subscriptions(self):
        """Two of them, on one topic; later lives have them."""
        if self.ledger.life > 1:
            return
        for name in ("a", "b"):
            self.taker.say("SUBSCRIBE", destination="/topic/t", id=name, durable_subscription_name=name)
            self.taker.say("UNSUBSCRIBE", id=name)


def _body(text, size):
    return f"{text}|".encode() + b"x" * size


STEPS = [
    History.durable_subscriptions,
    *[lambda h: h.send("work")] * 5,
    lambda h: h.subscribe("work"),
    lambda h: h.acknowledge("work", 1),
    lambda h: h.refuse("work"),
    *[lambda h: h.send("always.work", size=300)] * 6,
    lambda h: h.send("always.work", persistent="false"),
    lambda h: h.transact("work", "out", "always.work", "last"),
    lambda h: h.transact("work", "out", end="ABORT"),
    lambda h: h.begin_pages("always.new"),
    *[lambda h: h.send("ring")] * 5,
    *[lambda h: h.send("/topic/t", "c.a", "c.b")] * 2,
    lambda h: h.subscribe("always.work", 2),
    lambda h: h.acknowledge("always.work", 1),
    lambda h: h.refuse("always.work"),
    *[lambda h: h.acknowledge("always.work")] * 4,
    *[lambda h: h.send("purged")] * 3,
    lambda h: h.purge("purged"),
    *[lambda h: h.send("always.work", size=300)] * 4,
    lambda h: h.transact("always.work", "work", "always.work"),
    *[lambda h: (h.send("work"), h.acknowledge("work"))] * 6,
    lambda h: h.send("last", size=1500),
]


def broken(ledger, life, before=None):
    """The promises that a broker that was started again does not keep. ``before`` is the one that ended."""
    if before is not None:
        bindings_kept(ledger, life, before)
    ledger.forget_done()
    audit = Audit(ledger, GROUPS, life.observe())
    ledger.next_life(set(audit.present))
    return [*audit.faults, *ledger.faults]


def bindings_kept(ledger, life, before):
    """What is there is as it was: no queue or address has come back without its attributes."""
    for text in life.world.store.damaged:
        if "recreated with" in text:
            ledger.fault("binding", text)
    was, found = before.world.directory, life.world.directory
    for name in was.queues.keys() & found.queues.keys():
        if describe_queue(found.queues[name]) != describe_queue(was.queues[name]):
            ledger.fault("binding", f"{describe_queue(found.queues[name])}, not as in {was.queues[name]}")
    for name in was.addresses.keys() & found.addresses.keys():
        if describe_address(found.addresses[name]) != describe_address(was.addresses[name]):
            ledger.fault("binding", f"{describe_address(found.addresses[name])} was otherwise")
