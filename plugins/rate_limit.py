"""Holds producers to a rate: of each connection, of the address, or of both."""

from __future__ import annotations

from typing import Literal, Self

from stompring.policy import DROP, AddressPolicy, Offer, Refuse, Verdict, Wait, parameter

#: Times are whole nanoseconds here: thirds of a millisecond must not add up to something.
SECOND, MILLISECOND = 1_000_000_000, 1_000_000

#: Connections that are remembered before those that have all of their burst again are forgotten.
FEW = 64


class _Rate:
    """A token bucket as one number for each that has one: the time at which it is full again.

    A message moves that time on by one interval. It may not be further away than the burst takes to come again.
    """

    def __init__(self, per_second: float, burst: int | None) -> None:
        self.interval = max(1, round(SECOND / per_second))
        self.size = max(1, int(per_second)) if burst is None else burst
        self.ahead = self.interval * (self.size - 1)

    def early(self, full_at: int, now: int) -> int:
        """Nanoseconds until the next message may come; not more than 0 where it may come now."""
        early = full_at - now - self.ahead
        return (
            early if early <= self.interval else 0
        )  # the clock was put back: nobody waits until it is where it was

    def after(self, full_at: int, now: int) -> int:
        """When the bucket is full again after one more message."""
        return max(now, min(full_at, now + self.ahead)) + self.interval


class RateLimit(AddressPolicy):
    """Lets only so many messages a second into an address, of each connection or of all together.

    For one producer that must not starve the others (a loop that runs wild, a replay of old data), and for what comes
    after the broker and takes only so much. Bursts may go faster: a bucket of tokens is filled at the rate, and each
    message takes one. With `delay` a producer's socket is not read until the exact millisecond at which a token is
    there: nothing is lost and no client needs to know. With `refuse` it gets an ERROR that tells when, and with that
    the end of its connection; with `drop` its message is taken and forgotten.

    A message that waits for room in a full address (BLOCK) takes one token, however long it waits. One that does not
    enter in the end, of a transaction that is aborted for one, gives its token back.

    Costs a few additions for each SEND, and one number for each connection that has sent something lately.
    """

    messages_per_second: float | None = parameter(
        "Messages a second from all connections together.", None, least=0.001, most=1e6
    )
    burst: int | None = parameter(
        "Messages of all together that may come at once; without it those of one second.", None, least=1
    )
    messages_per_second_per_connection: float | None = parameter(
        "Messages a second from each connection.", None, least=0.001, most=1e6
    )
    burst_per_connection: int | None = parameter(
        "Messages of one connection that may come at once; without it those of one second.", None, least=1
    )
    when_exceeded: Literal["delay", "refuse", "drop"] = parameter(
        "What happens to a message that comes too early: its producer waits, gets an ERROR, or is not told.",
        "delay",
    )

    def check(self) -> None:
        """See AddressPolicy."""
        if self.messages_per_second is None and self.messages_per_second_per_connection is None:
            raise ValueError("needs messages-per-second, messages-per-second-per-connection, or both")
        if self.burst is not None and self.messages_per_second is None:
            raise ValueError("burst means nothing without messages-per-second")
        if self.burst_per_connection is not None and self.messages_per_second_per_connection is None:
            raise ValueError("burst-per-connection means nothing without messages-per-second-per-connection")

    def created(self) -> None:
        """See AddressPolicy."""
        all_together, each = self.messages_per_second, self.messages_per_second_per_connection
        self._shared = None if all_together is None else _Rate(all_together, self.burst)
        self._own = None if each is None else _Rate(each, self.burst_per_connection)
        self._full_at = 0
        self._connections: dict[str, int] = {}
        self._many = FEW

    def replaces(self, former: Self) -> None:
        """See AddressPolicy. What was sent counts on: a reload is no gift of a new burst."""
        self._full_at, self._connections = former._full_at, former._connections

    def admit(self, offer: Offer) -> Verdict | None:
        """See AddressPolicy. A token is taken only where all that are needed are there."""
        now = self.address.now * MILLISECOND
        shared, own = self._shared, self._own
        early, rate, whose = 0, shared, "this address"
        full_at = 0
        if own is not None:
            full_at = self._connections.get(offer.connection, 0)
            early, rate, whose = own.early(full_at, now), own, "this connection"
        if shared is not None:
            shared_early = shared.early(self._full_at, now)
            if shared_early > early:
                early, rate, whose = shared_early, shared, "this address"
        if early > 0 and rate is not None:
            return self._exceeded(early, rate, whose)
        if shared is not None:
            self._full_at = shared.after(self._full_at, now)
        if own is not None:
            self._connections[offer.connection] = own.after(full_at, now)
            if len(self._connections) > self._many:
                self._forget(now)
        return None

    def refused(self, offer: Offer, reason: str) -> None:
        """See AddressPolicy. What does not enter gives its tokens back."""
        if self._shared is not None:
            self._full_at -= self._shared.interval
        if self._own is not None and offer.connection in self._connections:
            self._connections[offer.connection] -= self._own.interval

    def _exceeded(self, early: int, rate: _Rate, whose: str) -> Verdict:
        milliseconds = -(
            -early // MILLISECOND
        )  # rounded up: a moment too early would be asked about once more
        if self.when_exceeded == "delay":
            return Wait(milliseconds)
        if self.when_exceeded == "drop":
            return DROP
        return Refuse(
            f"More than {SECOND / rate.interval:g} messages a second and {rate.size} at once to {whose}; "
            f"the next may come in {milliseconds} ms"
        )

    def _forget(self, now: int) -> None:
        """Those with a full bucket are as if they had never sent. Twice as many must come before the next look."""
        self._connections = {one: full_at for one, full_at in self._connections.items() if full_at > now}
        self._many = max(FEW, 2 * len(self._connections))
