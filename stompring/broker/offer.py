"""Offer: a message before its admission to an address, as policies see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message import Traits

#: Headers of the SEND frame itself, which are not headers of the message.
OF_THE_FRAME = frozenset((b"content-length", b"receipt", b"transaction"))


class Offer:
    """A message offered to an address.

    Messages of one connection with the same headers share one object, with ``body`` of the present one: policies must
    not store it, only copies of its values.
    """

    __slots__ = ("_headers", "_text", "address", "body", "client_id", "connection", "peer", "traits")

    def __init__(
        self,
        address: str,
        traits: Traits,
        headers: Mapping[bytes, bytes],
        connection: str = "",
        client_id: str | None = None,
        peer: str = "",
    ) -> None:
        self.address = address  # name of the address
        self.traits = traits
        self.body = b""  # the body of the message
        self.connection = connection  # number of the connection, as in management
        self.client_id = client_id  # client-id of CONNECT, None without one
        self.peer = peer  # host and port of the client
        self._headers = headers
        self._text: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the SEND, without those of the frame itself (``receipt``, ``transaction``)."""
        if self._text is None:
            self._text = {
                name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
                for name, value in self._headers.items()
                if name not in OF_THE_FRAME
            }
        return self._text

    def changed(self, changes: Mapping[bytes, bytes | None]) -> Offer:
        """The same offer with other headers, for the next policy."""
        headers = {**self._headers, **changes}
        merged = {name: value for name, value in headers.items() if value is not None}
        offer = Offer(self.address, self.traits, merged, self.connection, self.client_id, self.peer)
        offer.body = self.body
        return offer

    def header(self, name: str) -> str | None:
        """Value of one header, None without such a header."""
        return self.headers.get(name)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    @property
    def priority(self) -> int:
        """Priority, 0 to 9; 4 by default."""
        return self.traits.priority

    @property
    def durable(self) -> bool:
        """Whether it was sent with ``persistent:true``."""
        return self.traits.durable

    @property
    def user(self) -> str | None:
        """Name of the user, None where security is off."""
        return self.traits.user
