"""stamp: writes sender and time of a message into headers that can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from stompring.policy import AddressPolicy, ChangeHeaders, Offer, parameter

#: Headers of STOMP and the broker, which cannot be used.
RESERVED = frozenset(
    (
        *("ack", "browser", "content-length", "content-type", "destination", "destination-type", "expires"),
        *("message-id", "persistent", "priority", "receipt", "redelivered", "reply-to", "selector"),
        *("subscription", "timestamp", "transaction"),
    )
)
#: Reserved prefixes: scheduling, message groups, the origin of copies.
RESERVED_PREFIXES = ("AMQ_", "_AMQ_", "JMSX")


class Stamp(AddressPolicy):
    """Writes sender, connection and time of a message into headers.

    For consumers that must know the sender and cannot ask the broker: audits, quotas, replies to the right client. A
    header of that name in the SEND is overwritten, or removed if there is no value (a client without login or
    client-id), so that the headers can be trusted. Only named headers are written. Consumers get them, and selectors
    can use them.

    Costs a dictionary for each SEND, and some 100 bytes in each message. A time makes the headers of messages
    different, so that they are parsed one by one: omit it where the broker's own `timestamp` is enough.
    """

    user_header: str | None = parameter("The header for the name of the user.", None)
    client_id_header: str | None = parameter("The header for the client-id of the connection.", None)
    connection_header: str | None = parameter(
        "The header for the number of the connection, as in management and in the log.", None
    )
    peer_header: str | None = parameter("The header for host and port of the client.", None)
    time_header: str | None = parameter("The header for the time of the SEND.", None)
    time_format: Literal["milliseconds", "iso-8601"] = parameter(
        "Format of the time: milliseconds since 1970, or 2030-01-31T12:00:00.000Z.", "milliseconds"
    )

    def _names(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the values to write, and their headers."""
        for what in ("user", "client_id", "connection", "peer", "time"):
            name: str | None = getattr(self, f"{what}_header")
            if name is not None:
                yield what, name

    def check(self) -> None:
        named: dict[str, str] = {}
        for what, name in self._names():
            key = f"{what.replace('_', '-')}-header"
            if name in RESERVED or name.startswith(RESERVED_PREFIXES):
                raise ValueError(f"{key} is '{name}', a reserved header")
            if any(character in name for character in "\0\r\n:"):
                raise ValueError(f"{key} is {name!r}, not a valid header name")
            if name in named:
                raise ValueError(f"{key} and {named[name]} are both '{name}'")
            named[name] = key
        if not named:
            raise ValueError(
                "one of user-header, client-id-header, connection-header, peer-header, time-header is required"
            )

    def created(self) -> None:
        self._who = [(what, name) for what, name in self._names() if what != "time"]
        self._last = ("", -1)
        self._verdict = ChangeHeaders({})

    def admit(self, offer: Offer) -> ChangeHeaders:
        """Return the headers to write. Consecutive messages of a connection at the same time share them."""
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
