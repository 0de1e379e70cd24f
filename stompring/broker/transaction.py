"""What a client put between BEGIN and COMMIT, and the quota of bytes for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from stompring.errors import LimitReached

from .duplicates import is_known
from .reference import Reference

if TYPE_CHECKING:
    from .address import Address
    from .admission import Rejection
    from .broker import Broker
    from .consumer import Consumer

#: What a SEND in a transaction costs beyond its body and its headers: the step, and what is kept of its frame. Measured
#: (benchmarks.micro.sizes): 300 where all have the same headers, and more where they have not.
STEP_OVERHEAD = 400


class ByteQuota:
    """Bytes held, with a limit. A limit is reached, not passed: the message that reaches it was the last one.

    One for the broker (``whole`` None), and one for each connection, which counts there as well.
    """

    __slots__ = ("bytes", "limit", "whole")

    def __init__(self, limit: int, whole: ByteQuota | None = None) -> None:
        self.bytes = 0
        self.limit = limit
        self.whole = whole

    @property
    def full(self) -> bool:
        """Whether nothing more may be held."""
        return 0 <= self.limit <= self.bytes

    def reserve(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises `LimitReached`."""
        if self.full:
            raise LimitReached(
                f"The open transactions of this connection hold {self.bytes} bytes, and the limit is "
                f"{self.limit} (maxTransactionBytes)",
                "maxTransactionBytes",
            )
        whole = self.whole
        if whole is not None:
            if whole.full:
                raise LimitReached(
                    f"All open transactions together hold {whole.bytes} bytes, and the limit is {whole.limit} "
                    "(global-max-transaction-size)",
                    "global-max-transaction-size",
                )
            whole.bytes += size
        self.bytes += size

    def release(self, size: int) -> None:
        """Give back what was held."""
        self.bytes -= size
        if self.whole is not None:
            self.whole.bytes -= size


#: Does something now; or gives an iterator that does it in steps, where it is about many messages.
Step = Callable[[], object]
Undo = Callable[[], "list[Reference]"]
Question = Callable[[], "Rejection | None"]
Claim = Callable[[], "tuple[Address, bytes | None]"]

#: The key of commits in the background.
COMMITS = "commits"


class Transaction:
    """Sends, acknowledgements and refusals, in order, none of which has happened yet.

    Acknowledged messages stay in delivery until `commit`. After `rollback` their consumer has them as before,
    delivered and unacknowledged; when the connection is lost they are back in their queues.
    """

    __slots__ = (
        "_addresses",
        "_broker",
        "_cancels",
        "_diverted",
        "_quota",
        "_sizes",
        "_steps",
        "_undo",
        "acknowledged",
        "bytes",
        "claims",
        "durable",
        "questions",
        "returns",
    )

    def __init__(self, broker: Broker, held: ByteQuota | None = None) -> None:
        """``held`` counts what its connection holds, where it belongs to one."""
        self._broker = broker
        self._quota = held or broker.transaction_bytes
        self._steps: list[Step] = []
        #: in delivery until the commit; what comes back if the connection is lost
        self.returns: list[Reference] = []
        self._undo: list[Undo] = []
        self._addresses: list[Callable[[], Address]] = []
        self._sizes: list[int] = []  # what each of them is sent
        #: what else gets a copy of such a message, with its bytes
        self._diverted: list[tuple[Callable[[], Iterable[Address]], int]] = []
        self.acknowledged: list[Reference] = []
        self.questions: list[Question] = []  # whether a message may enter, where that depends on each
        self.claims: list[Claim] = []  # addresses and the ids by which they know duplicates
        self._cancels: list[Callable[[str], None]] = []  # of sends about which somebody wants to know
        self.bytes = 0
        self.durable = False  # some message in it is

    def send(
        self,
        size: int,
        address: Callable[[], Address],
        step: Step,
        *,
        durable: bool,
        ask: Question | None = None,
        claim: Claim | None = None,
        cancel: Callable[[str], None] | None = None,
        diverted: Callable[[], Iterable[Address]] | None = None,
    ) -> None:
        """``step`` sends a message of ``size`` bytes to what ``address`` names at the time of the commit.

        ``ask`` is asked before the commit begins whether anything stands in its way, and ``claim`` which id no
        message to that address may have had before. ``cancel`` is called with the reason if nothing comes of it.
        ``diverted`` names the addresses that diverts send a copy to.

        Raises `LimitReached` where the transactions of its connection, or all of them, hold too much.
        """
        size += STEP_OVERHEAD
        self._quota.reserve(size)
        self._sizes.append(size - STEP_OVERHEAD)
        self.bytes += size
        self.durable = self.durable or durable
        self._addresses.append(address)
        self._steps.append(step)
        if ask is not None:
            self.questions.append(ask)
        if claim is not None:
            self.claims.append(claim)
        if cancel is not None:
            self._cancels.append(cancel)
        if diverted is not None:
            self._diverted.append((diverted, size - STEP_OVERHEAD))

    def loads(self) -> dict[Address, list[int]]:
        """What `commit` will send to each address: the bytes of each message, in order.

        Raises `Refused` where one cannot be sent to any more.
        """
        loads: dict[Address, list[int]] = {}
        last: Address | None = None
        for named, size in zip(self._addresses, self._sizes, strict=True):
            address = named()
            if address is not last:  # most go where the one before goes
                last, add = address, loads.setdefault(address, []).append
            add(size)
        for diverted, size in self._diverted:
            for address in diverted():
                loads.setdefault(address, []).append(size)
        return loads

    def duplicate(self) -> tuple[Address, bytes] | None:
        """The first message of it that was sent before, or twice in it. Raises as `loads` does."""
        claimed: set[tuple[Address, bytes]] = set()
        for claim in self.claims:
            address, identifier = claim()
            if identifier is None:
                continue
            if (address, identifier) in claimed or is_known(address, identifier):
                return address, identifier
            claimed.add((address, identifier))
        return None

    def acknowledge(self, refs: list[Reference], undo: Undo) -> None:
        """These were taken care of. ``undo`` makes them unacknowledged again; it returns those that nobody has now."""
        self.returns += refs
        self.acknowledged += refs
        self._steps.append(lambda: settling(refs))
        self._undo.append(undo)

    def refuse(self, refs: list[Reference], consumer: Consumer, undo: Undo) -> None:
        """These could not be dealt with. For ``undo`` see `acknowledge`."""
        self.returns += refs
        self._steps.append(lambda: self._returning(refs, consumer))
        self._undo.append(undo)

    def commit(self) -> None:
        """Do it all, as one fact for the store; where it is much, in slices, one transaction after the other."""
        self._let_go()  # now: its connection may end before the commit does
        self._broker.background.run(self._commit(), COMMITS)

    def when_done(self, call: Callable[[], object]) -> None:
        """Call once `commit` or `rollback` is done, one of which was called already."""
        self._broker.background.after(COMMITS, call)

    def _commit(self) -> Iterator[None]:
        storage = self._broker.storage
        storage.begin()
        try:
            for step in self._steps:
                steps = step()
                if isinstance(steps, Iterator):
                    yield from steps
                yield
        finally:
            storage.commit()
        returns, self.returns = self.returns, []
        self._forget()
        for queue in {ref.queue for ref in returns if not ref.queue.consumers}:
            self._broker.consider_deleting(queue)  # its consumer left before the commit

    def cancel(self, reason: str) -> None:
        """Nothing that was sent in it will happen: notify those who want to know, once."""
        for _ in self._cancelling(reason):
            pass

    def _cancelling(self, reason: str) -> Iterator[None]:
        cancels, self._cancels = self._cancels, []
        for call in cancels:
            call(reason)
            yield

    def rollback(self) -> None:
        """Do nothing of it. What was acknowledged stays with its consumer; where that has left, it comes back.

        In slices, as `commit`.
        """
        self._let_go()
        self._broker.background.run(self._rollback(), COMMITS)

    def _rollback(self) -> Iterator[None]:
        undo, self._undo, self.returns = self._undo, [], []
        yield from self._cancelling("ABORT")
        self._forget()
        left: list[Reference] = []
        for restore in undo:
            left += restore()
            yield
        requeue(left, None, failed=False)

    def _returning(self, refs: list[Reference], consumer: Consumer) -> Iterator[None]:
        """Hand what was refused back to its queues; done when it is there, as the commit is one fact for the store."""
        waiting = {ref.queue.number: ref.queue for ref in refs}
        requeue(refs, consumer, failed=True)
        for number, queue in list(waiting.items()):
            self._broker.background.after(queue, partial(waiting.pop, number))
        while waiting:
            yield

    def forget(self) -> None:
        """Its connection is gone, and what it had acknowledged is back: nothing of it will happen."""
        self.returns = []
        self._forget()

    def _forget(self) -> None:
        discard = self._broker.background.discard
        for things in (
            self._steps,
            self._addresses,
            self._sizes,
            self._diverted,
            self._undo,
            self._cancels,
            self.acknowledged,
            self.questions,
            self.claims,
        ):
            if things:
                discard(things)
        self._steps, self._addresses, self._sizes, self._undo, self._cancels = [], [], [], [], []
        self._diverted = []
        self.acknowledged, self.questions, self.claims = [], [], []

    def _let_go(self) -> None:
        self._quota.release(self.bytes)
        self.bytes = 0


def settling(refs: list[Reference]) -> Iterator[None]:
    """Acknowledge references of any queues, one with each step."""
    for ref in refs:
        ref.queue.settle(ref)
        yield


def requeue(refs: list[Reference], consumer: Consumer | None, *, failed: bool) -> None:
    """Hand references of any queues back to them."""
    queues = {ref.queue.number: ref.queue for ref in refs}
    for number, queue in queues.items():
        queue.requeue([ref for ref in refs if ref.queue.number == number], consumer, failed=failed)
