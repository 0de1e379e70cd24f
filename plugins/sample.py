"""Under pressure only one message in so many is accepted."""

from __future__ import annotations

from collections import OrderedDict

from stompring.policy import DROP, AddressPolicy, Offer, Verdict, parameter

#: Keys that are counted. With more than these those go first that have sent nothing for longest.
KEYS = 10_000


class Sample(AddressPolicy):
    """Accepts one message in N while there is pressure, and drops the others.

    For streams of which a part is as good as the whole: metrics, traces, positions. Where consumers fall behind, a
    stream that is thinned out stays current; one that is cut off, or that waits on disk, is late or blind. Pressure is
    a limit of the address that is used to some percent, or one of the broker, or that the address pages; with several
    of them any one is enough. With `key` each value of a header is sampled by itself, so that rare ones are heard too.
    What is dropped counts in droppedMessageCount.

    Costs two or three comparisons for each SEND. Under pressure, with a key, one number for each of the last 10,000
    keys; they are forgotten when the pressure is over.
    """

    one_in: int = parameter("Of how many messages one is accepted under pressure.", least=2)
    address_percent: int | None = parameter(
        "Pressure from this percent of max-size-bytes or max-size-messages of the address on.",
        None,
        least=1,
        most=100,
    )
    broker_percent: int | None = parameter(
        "Pressure from this percent of global-max-size or global-max-messages on.", None, least=1, most=100
    )
    while_paging: bool = parameter("Pressure while the address writes new messages to pages.", False)
    key: str | None = parameter("A header each value of which is sampled by itself.", None)

    def check(self) -> None:
        """See AddressPolicy."""
        if self.address_percent is None and self.broker_percent is None and not self.while_paging:
            raise ValueError(
                "needs address-percent, broker-percent or while-paging, to know what pressure is"
            )

    def created(self) -> None:
        """See AddressPolicy."""
        self._count = 0
        self._counts: OrderedDict[str | None, int] = OrderedDict()

    def admit(self, offer: Offer) -> Verdict | None:
        """See AddressPolicy. The first under pressure is accepted, so that no key is silent for long."""
        here = self.address
        if not (
            (self.while_paging and here.paging)
            or (self.address_percent is not None and here.limit_percent >= self.address_percent)
            or (self.broker_percent is not None and here.broker_percent >= self.broker_percent)
        ):
            if self._counts:
                self._counts.clear()
            self._count = 0
            return None
        if self.key is None:
            count, self._count = self._count, (self._count + 1) % self.one_in
            return DROP if count else None
        counts, key = self._counts, offer.header(self.key)
        count = counts.get(key, 0)
        counts[key] = (count + 1) % self.one_in
        counts.move_to_end(key)
        if len(counts) > KEYS:
            counts.popitem(last=False)
        return DROP if count else None
