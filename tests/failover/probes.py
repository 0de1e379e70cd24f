"""Clients that live through all faults: they reconnect to the other broker and send again what has no receipt.

Their account is simple, and independent of the ledger of `tests.crash`: each message with a receipt is delivered, and
after the receipt of its ACK never again; messages of one producer come in order. A message that was sent again with the
same ``_AMQ_DUPL_ID`` is there once. One that was sent again without may be there as often as it was sent.
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from ..crash.connection import Connection, ConnectionBroken
from ..crash.context import login_headers
from .world import LOGIN

#: Seconds without a byte, beats included, after which a client gives a connection up.
SILENCE = 3.0
#: Seconds without a receipt after which a client tries the other broker.
STALL = 1.5
#: Seconds in which a broker that lost its place may still deliver what it had on its way, from the moment on when its
#: client went to another one, the process was continued, or its connections worked again.
WINDOW = 1.0

CONNECT = {"heart-beat": "0,700", **login_headers(LOGIN)}


@dataclass(frozen=True)
class Profile:
    """One producer and one consumer of one queue."""

    queue: str
    identified: bool  # sent with duplicate ids
    group: str = ""
    body: int = 200
    window: int = 20
    pause: float = 0.004


PROFILES = (
    Profile("probe.plain", identified=True),
    Profile("probe.doubtful", identified=False),
    Profile("probe.paged.long", identified=True, body=3000, pause=0.01),
    Profile("probe.grouped", identified=True, group="g"),
)


class Heard(Connection):
    """A connection that knows when something came last, and from which broker."""

    broker = ""

    def __init__(self):
        super().__init__()
        self.heard = time.monotonic()
        self.abandoned = 0.0  # when its client went to another broker

    def data_received(self, data):
        """asyncio: bytes have come."""
        self.heard = time.monotonic()
        try:
            super().data_received(data)
        except (KeyError, asyncio.InvalidStateError):
            self.drop()  # the second answer to something: the connection was given up meanwhile

    @property
    def is_usable(self):
        """It speaks, and has not refused anything."""
        return not self.lost and self.refused is None and time.monotonic() < self.heard + SILENCE


@dataclass
class Account:
    """What became of the messages of one producer."""

    profile: Profile
    sends: Counter[int] = field(default_factory=Counter)
    receipted: dict[int, float] = field(default_factory=dict)
    acknowledged: Counter[int] = field(default_factory=Counter)
    delivered: Counter[int] = field(default_factory=Counter)
    doubtful: set[int] = field(default_factory=set)  # whose ACK has no receipt, and never will
    history: dict[int, list[str]] = field(default_factory=dict)
    last: int = 0

    def note(self, number, event):
        """Write down what happened to a message."""
        self.history.setdefault(number, []).append(f"{time.time() % 1000:07.3f} {event}")

    def is_settled(self, number):
        """Whether its ACK has a receipt, or lost it with the connection, and it did not come again."""
        return bool(self.acknowledged[number]) or number in self.doubtful

    def may_come(self, number):
        """Whether an instance of the message may be there that nobody has acknowledged."""
        copies = 1 if self.profile.identified else self.sends[number]
        return self.acknowledged[number] < copies

    def tell(self, number):
        """All about one message."""
        lines = [f"{self.profile.queue}/{number}: sent {self.sends[number]} times"]
        return "\n      ".join([*lines, *self.history.get(number, ())[-30:]])


class Probes:
    """All of them, on a thread with a loop of its own.

    ``addresses`` returns the STOMP address of each broker by name.
    """

    def __init__(self, addresses, profiles=PROFILES):
        self.addresses = addresses
        self.accounts = [Account(profile) for profile in profiles]
        self.faults = []
        self.receipts = deque(maxlen=200_000)  # when they came, monotonic
        self.counts = Counter()
        self.disturbed = 0.0  # when a stopped process or a cut connection went on last, monotonic
        self.paused = False
        self.sending = True
        self.over = False
        self._idle = {}
        self._connections = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self._failed = None

    # ---- from the test's thread

    def start(self):
        """Begin."""
        self._thread.start()

    def pause(self, seconds=30.0):
        """Nothing is under way any more on return: every SEND and every ACK has its receipt."""
        self.paused = True
        deadline = time.monotonic() + seconds
        queues = [account.profile.queue for account in self.accounts]
        self._idle.clear()
        while not all(
            self._idle.get(f"{queue}{part}", False) for queue in queues for part in ("", ", consumer")
        ):
            self.check()
            if time.monotonic() > deadline:
                raise AssertionError(f"the probes get no receipts for {seconds} s")
            time.sleep(0.02)

    def resume(self):
        """Go on."""
        self._idle.clear()
        self.paused = False

    def check(self):
        """Raise what went wrong with the clients themselves."""
        if self._failed is not None:
            raise self._failed

    def end(self):
        """Hang up."""
        self.over = True
        if self._thread.is_alive():
            self._thread.join(10.0)

    def drop_abandoned(self):
        """Close what the clients have left behind."""
        for connection in list(self._connections):
            if connection.abandoned or connection.lost:
                self._connections.remove(connection)
                self._loop.call_soon_threadsafe(connection.drop)

    def drain(self, seconds):
        """Send nothing more, and consume everything within ``seconds``. Adds to `faults` what is missing."""
        self.sending = False
        deadline = time.monotonic() + seconds
        while missing := self.missing():
            self.check()
            if time.monotonic() > deadline:
                for account, numbers in missing:
                    text = "\n    - ".join(account.tell(number) for number in numbers[:5])
                    self.faults.append(f"lost: {len(numbers)} of {account.profile.queue}\n    - {text}")
                return
            time.sleep(0.1)
        time.sleep(1.0)  # what should not be there would come now

    def missing(self):
        """What has a receipt, and nobody has acknowledged it yet with a receipt."""
        found = []
        for account in self.accounts:
            numbers = [number for number in account.receipted if not account.is_settled(number)]
            numbers += [number for number in account.sends if number not in account.receipted]
            if numbers:
                found.append((account, sorted(numbers)))
        return found

    # ---- on the loop

    def _run(self):
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._all())
        except BaseException as fault:
            self._failed = fault
        finally:
            self._loop.close()

    async def _all(self):
        tasks = [Producer(self, account).run() for account in self.accounts]
        tasks += [Consumer(self, account).run() for account in self.accounts]
        running = [asyncio.create_task(task) for task in tasks]
        while not self.over:
            await asyncio.sleep(0.05)
            for task in running:
                if task.done():
                    task.result()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for connection in self._connections:
            connection.drop()
        await asyncio.sleep(0)

    async def connect(self, but=""):
        """A connection to the first broker that answers, not to ``but``; None where none does."""
        for name, (address, port) in self.addresses.items():
            if name == but:
                continue
            connection = None
            try:
                async with asyncio.timeout(1.0):
                    connection = await Heard.open(port, address=address, **CONNECT)
                connection.broker = name
                self._connections.append(connection)
                return connection
            except (TimeoutError, OSError, ConnectionBroken):
                continue
        return None

    def idle(self, name, idle):
        """Whether a client has nothing under way."""
        self._idle[name] = idle

    def fault(self, rule, account, number):
        """A promise is broken."""
        self.faults.append(f"{rule}: {account.tell(number)}")


class Client:
    """What producers and consumers have in common: a current connection."""

    def __init__(self, probes, account):
        self.probes = probes
        self.account = account
        self.profile = account.profile
        self.connection = None

    async def ensure(self, stalled):
        """A connection is there; returns whether it is a new one. ``stalled``: the other broker is tried."""
        current = self.connection
        if current is not None and current.is_usable and not stalled:
            return False
        usable = current is not None and current.is_usable
        while not self.probes.over:
            # one that answers, but gives no receipts, is left only for another one
            found = await self.probes.connect(but=current.broker if usable and current is not None else "")
            if found is not None:
                if current is not None:
                    current.abandoned = time.monotonic()
                self.connection = found
                self.probes.counts["reconnects"] += 1
                return True
            if usable:
                return False
            await asyncio.sleep(0.05)
        return False


class Producer(Client):
    """Sends with receipts, several under way; sends again what has none after a reconnect."""

    def __init__(self, probes, account):
        super().__init__(probes, account)
        self._outstanding = {}

    async def run(self):
        """Until the end."""
        while not self.probes.over:
            oldest = next(iter(self._outstanding.values()), None)
            stalled = oldest is not None and time.monotonic() > oldest + STALL
            if await self.ensure(stalled):
                for number in list(self._outstanding):
                    self._send(number)
            elif stalled:
                await asyncio.sleep(0.2)
            quiet = self.probes.paused or not self.probes.sending
            if quiet:
                self.probes.idle(self.profile.queue, not self._outstanding)
            elif len(self._outstanding) < self.profile.window:
                self.account.last += 1
                self._send(self.account.last)
            await asyncio.sleep(self.profile.pause)

    def _send(self, number):
        account, profile, connection = self.account, self.profile, self.connection
        assert connection is not None
        self._outstanding.pop(number, None)
        self._outstanding[number] = time.monotonic()
        headers = {"destination": profile.queue, "persistent": "true"}
        if profile.identified:
            headers["_AMQ_DUPL_ID"] = f"{profile.queue}/{number}"
        if profile.group:
            headers["JMSXGroupID"] = profile.group
        account.sends[number] += 1
        account.note(number, f"sent to {connection.broker}")
        try:
            promise = connection.ask("SEND", headers, f"{number}|".encode() + b"x" * profile.body)
        except ConnectionBroken:
            return
        promise.add_done_callback(lambda done: self._answered(number, connection, done))

    def _answered(self, number, connection, done):
        if done.cancelled() or done.exception() is not None:
            return
        self._outstanding.pop(number, None)
        self.account.note(number, f"receipt of {connection.broker}")
        self.account.receipted.setdefault(number, time.monotonic())
        self.probes.receipts.append(time.monotonic())
        self.probes.counts["receipts of SEND"] += 1


class Consumer(Client):
    """Acknowledges each message with a receipt, a little later."""

    def __init__(self, probes, account):
        super().__init__(probes, account)
        self._held = deque()
        self._asked = {}
        self._pending = 0

    async def run(self):
        """Until the end."""
        while not self.probes.over:
            oldest = next(iter(self._asked.values()), None)
            stalled = oldest is not None and time.monotonic() > oldest + STALL
            if await self.ensure(stalled):
                self._subscribe()
            elif stalled:
                await asyncio.sleep(0.2)
            self.probes.idle(f"{self.profile.queue}, consumer", not self._asked)
            while self._held and len(self._asked) < 20 and not self.probes.paused:
                number, ack, connection = self._held.popleft()
                if connection is self.connection:
                    self._acknowledge(number, ack, connection)
            await asyncio.sleep(0.01)

    def _subscribe(self):
        connection = self.connection
        assert connection is not None
        self._asked.clear()
        self._held.clear()
        connection.receivers["p"] = _receiver(self, connection)
        headers = {"destination": self.profile.queue, "id": "p"}
        headers |= {"ack": "client-individual", "prefetch-count": 50}
        with contextlib.suppress(ConnectionBroken):
            connection.ask("SUBSCRIBE", headers)

    def take(self, connection, frame, last):
        """A message has come."""
        account = self.account
        number = int(frame.body.partition(b"|")[0])
        redelivered = frame.headers.get("redelivered") == "true"
        account.delivered[number] += 1
        account.doubtful.discard(number)
        event = f"delivered by {connection.broker}{', redelivered' if redelivered else ''}"
        account.note(number, event)
        self.probes.counts["delivered"] += 1
        if number not in account.sends:
            self.probes.fault("never sent", account, number)
        left = max(connection.abandoned, self.probes.disturbed)
        late = connection.abandoned and time.monotonic() > left + WINDOW
        if connection.abandoned:
            self.probes.counts["delivered by the broker that was left"] += 1
        if not account.may_come(number) and (late or not connection.abandoned):
            self.probes.fault("came back after the receipt of its ACK", account, number)
        once = account.profile.identified or account.sends[number] == 1
        if once and not redelivered:
            if number < last[0]:
                self.probes.fault(f"out of order, after {last[0]}", account, number)
            last[0] = max(last[0], number)
        self._held.append((number, frame.headers["ack"], connection))

    def _acknowledge(self, number, ack, connection):
        self._asked[number] = time.monotonic()
        self.account.note(number, "ACK")
        try:
            promise = connection.ask("ACK", {"id": ack})
        except ConnectionBroken:
            return
        promise.add_done_callback(lambda done: self._acknowledged(number, connection, done))

    def _acknowledged(self, number, connection, done):
        if connection is self.connection:
            self._asked.pop(number, None)
        if done.cancelled() or done.exception() is not None:
            self.account.doubtful.add(number)
            return
        self.account.doubtful.discard(number)
        self.account.note(number, f"receipt of the ACK by {connection.broker}")
        self.account.acknowledged[number] += 1
        self.probes.counts["receipts of ACK"] += 1
        copies = 1 if self.profile.identified else self.account.sends[number]
        if self.account.acknowledged[number] > copies:
            self.probes.fault("acknowledged twice, each time with a receipt", self.account, number)


def _receiver(consumer, connection):
    last = [0]
    return lambda frame: consumer.take(connection, frame, last)
