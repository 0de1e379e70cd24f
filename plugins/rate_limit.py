"""rate-limit: limits messages per second of each connection, of the address, or both."""

from __future__ import annotations

from typing import Literal, Self

from stompring.policy import DROP, AddressPolicy, Offer, Refuse, Verdict, Wait, parameter

#: Times are whole nanoseconds, so that fractions of milliseconds do not add up.
SECOND, MILLISECOND = 1_000_000_000, 1_000_000

#: Minimum number of recorded connections at which those with a full bucket are removed.
MIN_CONNECTIONS = 64

#: The bucket of the address in `address.state`, and how far it is written ahead: so that one record a second is enough.
FULL_AT, WRITTEN_AHEAD = "full-at", SECOND


class _Rate:
    """A token bucket, stored as one number: the time at which it is full again.

    A message advances that time by one interval, up to the time that a burst takes to refill.
    """

    def __init__(self, per_second: float, burst: int | None) -> None:
        self.interval = max(1, round(SECOND / per_second))
        self.size = max(1, int(per_second)) if burst is None else burst
        self.ahead = self.interval * (self.size - 1)

    def early(self, full_at: int, now: int) -> int:
        """Return the nanoseconds until the next token; 0 or less if one is available."""
        early = full_at - now - self.ahead
        return early if early <= self.interval else 0  # more than an interval: the clock was set back

    def after(self, full_at: int, now: int) -> int:
        """Return the time at which the bucket is full again after one more message."""
        return max(now, min(full_at, now + self.ahead)) + self.interval


class RateLimit(AddressPolicy):
    """Limits the messages per second of an address, of each connection or of all together.

    For producers that starve others (an endless loop, a replay of old data), and for downstream systems with a limited
    rate. A bucket of tokens is filled at the rate, and each message takes one: bursts may be faster. With `delay` the
    producer's socket is not read until the millisecond at which a token is available: no message is lost, and clients
    need no change. With `refuse` the producer gets an ERROR with the time of the next token, which closes its
    connection; with `drop` the message is discarded.

    A message that waits for memory at a full address (BLOCK) takes one token, however long it waits. One that does not
    enter in the end, for example of an aborted transaction, returns its token.

    The rate of the address holds over a restart. Costs a few additions for each SEND, a record of the journal each
    second while messages come, and one number for each connection that has sent recently.
    """

    messages_per_second: float | None = parameter(
        "Messages per second of all connections together.", None, least=0.001, most=1e6
    )
    burst: int | None = parameter(
        "Messages of all connections accepted at once; without it those of one second.", None, least=1
    )
    messages_per_second_per_connection: float | None = parameter(
        "Messages per second of each connection.", None, least=0.001, most=1e6
    )
    burst_per_connection: int | None = parameter(
        "Messages of one connection accepted at once; without it those of one second.", None, least=1
    )
    when_exceeded: Literal["delay", "refuse", "drop"] = parameter(
        "Action for a message above the rate: delay its producer, send an ERROR, or discard it silently.",
        "delay",
    )

    def check(self) -> None:
        if self.messages_per_second is None and self.messages_per_second_per_connection is None:
            raise ValueError("messages-per-second or messages-per-second-per-connection is required")
        if self.burst is not None and self.messages_per_second is None:
            raise ValueError("burst requires messages-per-second")
        if self.burst_per_connection is not None and self.messages_per_second_per_connection is None:
            raise ValueError("burst-per-connection requires messages-per-second-per-connection")

    def created(self) -> None:
        all_together, each = self.messages_per_second, self.messages_per_second_per_connection
        self._shared = None if all_together is None else _Rate(all_together, self.burst)
        self._own = None if each is None else _Rate(each, self.burst_per_connection)
        self._full_at = self._written = self.address.state.get(FULL_AT, 0)
        if self._shared is not None:  # at most empty, although it was written ahead
            empty = self.address.now * MILLISECOND + self._shared.interval * self._shared.size
            self._full_at = min(self._full_at, empty)
        self._connections: dict[str, int] = {}
        self._many = MIN_CONNECTIONS

    def replaces(self, former: Self) -> None:
        """Take over the buckets: a reload does not refill them."""
        self._full_at, self._connections = former._full_at, former._connections
        self._written = 0  # `closed` of the former object writes after this

    def closed(self) -> None:
        """Write the bucket as it is: no token is lost if the broker stops in order."""
        if self._shared is not None:
            self.address.state[FULL_AT] = self._full_at

    def admit(self, offer: Offer) -> Verdict | None:
        """Take all required tokens, or none."""
        now = self.address.now * MILLISECOND
        shared, own = self._shared, self._own
        early, rate, scope = 0, shared, "this address"
        full_at = 0
        if own is not None:
            full_at = self._connections.get(offer.connection, 0)
            early, rate, scope = own.early(full_at, now), own, "this connection"
        if shared is not None:
            shared_early = shared.early(self._full_at, now)
            if shared_early > early:
                early, rate, scope = shared_early, shared, "this address"
        if early > 0 and rate is not None:
            return self._exceeded(early, rate, scope)
        if shared is not None:
            self._full_at = shared.after(self._full_at, now)
            if self._full_at > self._written:
                self._written = self.address.state[FULL_AT] = self._full_at + WRITTEN_AHEAD
        if own is not None:
            self._connections[offer.connection] = own.after(full_at, now)
            if len(self._connections) > self._many:
                self._remove_full(now)
        return None

    def refused(self, offer: Offer, reason: str) -> None:
        """Put the tokens of a message that does not enter back into the buckets."""
        if self._shared is not None:
            self._full_at -= self._shared.interval
        if self._own is not None and offer.connection in self._connections:
            self._connections[offer.connection] -= self._own.interval

    def _exceeded(self, early: int, rate: _Rate, scope: str) -> Verdict:
        milliseconds = -(-early // MILLISECOND)  # rounded up, so that one wait is enough
        if self.when_exceeded == "delay":
            return Wait(milliseconds)
        if self.when_exceeded == "drop":
            return DROP
        return Refuse(
            f"Rate of {scope} exceeded: {SECOND / rate.interval:g} messages per second, {rate.size} at once; "
            f"retry in {milliseconds} ms"
        )

    def _remove_full(self, now: int) -> None:
        """Remove connections with a full bucket. Called again when their number has doubled."""
        self._connections = {one: full_at for one, full_at in self._connections.items() if full_at > now}
        self._many = max(MIN_CONNECTIONS, 2 * len(self._connections))
