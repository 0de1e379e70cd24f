"""Headers that tell who has sent a message, and when, and can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from stompring.policy import AddressPolicy, ChangeHeaders, Offer, parameter

#: Headers with a meaning of their own, which no stamp may take.
TAKEN = frozenset(
    (
        *("ack", "browser", "content-length", "content-type", "destination", "destination-type", "expires"),
        *("message-id", "persistent", "priority", "receipt", "redelivered", "reply-to", "selector"),
        *("subscription", "timestamp", "transaction"),
    )
)
#: What the names of others begin with: scheduling, message groups, the origin of copies.
TAKEN_BEGINNINGS = ("AMQ_", "_AMQ_", "JMSX")


class Stamp(AddressPolicy):
    """Writes into headers who has sent a message, over which connection, and when.

    For consumers that must know whom a message is from and cannot ask the broker: an audit, quotas, a reply to the
    right client. What a client has sent under such a name itself is overwritten, or removed where there is nothing to
    write (a client without a login or client-id), so that the headers can be trusted. Only what has a name here is
    written. Consumers get the headers, and selectors can use them.

    Costs a dictionary for each SEND, and some 100 bytes in each message. A time makes the headers of messages
    different, which then must be looked at one by one: leave it out where the broker's own `timestamp`, which every
    message has, will do.
    """

    user_header: str | None = parameter("The header for the name of the user who is logged in.", None)
    client_id_header: str | None = parameter("The header for the client-id of the connection.", None)
    connection_header: str | None = parameter(
        "The header for the number of the connection, as in management and in the log.", None
    )
    peer_header: str | None = parameter("The header for host and port of the client.", None)
    time_header: str | None = parameter("The header for the time at which the message came.", None)
    time_format: Literal["milliseconds", "iso-8601"] = parameter(
        "How the time is written: milliseconds since 1970, or as 2030-01-31T12:00:00.000Z.", "milliseconds"
    )

    def _names(self) -> Iterator[tuple[str, str]]:
        """What is written, by the names of the parameters, and under which header."""
        for what in ("user", "client_id", "connection", "peer", "time"):
            name: str | None = getattr(self, f"{what}_header")
            if name is not None:
                yield what, name

    def check(self) -> None:
        """See AddressPolicy."""
        named: dict[str, str] = {}
        for what, name in self._names():
            key = f"{what.replace('_', '-')}-header"
            if name in TAKEN or name.startswith(TAKEN_BEGINNINGS):
                raise ValueError(f"{key} is '{name}', which has a meaning of its own")
            if any(character in name for character in "\0\r\n:"):
                raise ValueError(f"{key} is {name!r}, which cannot be the name of a header")
            if name in named:
                raise ValueError(f"{key} and {named[name]} are both '{name}'")
            named[name] = key
        if not named:
            raise ValueError(
                "needs one or more of user-header, client-id-header, connection-header, peer-header, time-header"
            )

    def created(self) -> None:
        """See AddressPolicy."""
        self._who = [(what, name) for what, name in self._names() if what != "time"]
        self._last = ("", -1)
        self._verdict = ChangeHeaders({})

    def admit(self, offer: Offer) -> ChangeHeaders:
        """See AddressPolicy. All that a connection sends in one read of its socket gets the same stamp."""
        key = (offer.connection, 0 if self.time_header is None else self.address.now)
        if key != self._last:
            headers: dict[str, str | None] = {name: getattr(offer, what) for what, name in self._who}
            if self.time_header is not None:
                headers[self.time_header] = self._time(key[1])
            self._last, self._verdict = key, ChangeHeaders(headers)
        return self._verdict

    def _time(self, now: int) -> str:
        if self.time_format == "milliseconds":
            return str(now)
        moment = datetime.fromtimestamp(now / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
