"""sample: accepts one message in N under pressure."""

from __future__ import annotations

from collections import OrderedDict

from stompring.policy import DROP, AddressPolicy, Offer, Verdict, parameter

#: Maximum number of counted keys. Beyond it the least recently used key is removed.
MAX_KEYS = 10_000


class Sample(AddressPolicy):
    """Accepts one message in N while there is pressure, and drops the others.

    For streams whose consumers need only a part of the messages: metrics, traces, positions. When consumers fall
    behind, a thinned stream stays current; a paged one is late. Pressure is a percentage of a limit of the
    address or of the broker, or paging of the address; any one of several is enough. With `key` each value of a header
    is sampled separately, so that rare values are accepted too. Dropped messages count in droppedMessageCount.

    Costs two or three comparisons for each SEND. Under pressure, with a key, one number for each of the last 10,000
    keys, which are removed when the pressure is over.
    """

    one_in: int = parameter("N: one message in N is accepted under pressure.", least=2)
    address_percent: int | None = parameter(
        "Pressure from this percentage of max-size-bytes or max-size-messages of the address.",
        None,
        least=1,
        most=100,
    )
    broker_percent: int | None = parameter(
        "Pressure from this percentage of global-max-size or global-max-messages.", None, least=1, most=100
    )
    while_paging: bool = parameter("Pressure while the address is paging.", False)
    key: str | None = parameter("Header whose values are sampled separately.", None)

    def check(self) -> None:
        if self.address_percent is None and self.broker_percent is None and not self.while_paging:
            raise ValueError("address-percent, broker-percent or while-paging is required")

    def created(self) -> None:
        self._count = 0
        self._counts: OrderedDict[str | None, int] = OrderedDict()

    def admit(self, offer: Offer) -> Verdict | None:
        """Accept the first message of a key under pressure, then every N-th."""
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
        if len(counts) > MAX_KEYS:
            counts.popitem(last=False)
        return DROP if count else None
