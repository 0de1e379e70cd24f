"""A message at the door of an address, as the policies that may turn it away see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message import Traits

#: Headers that a SEND has for its own sake.
OF_THE_FRAME = frozenset((b"content-length", b"receipt", b"transaction"))


class Offer:
    """One object for all messages of a connection that have the same headers: ``body`` is the one asked about now.

    It must not be kept: what a policy wants to remember it copies.
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
        self.address = address  # its name
        self.traits = traits
        self.body = b""  # the body of the message
        self.connection = connection  # its number, as in management
        self.client_id = client_id  # of CONNECT, None where none was sent
        self.peer = peer  # host and port of the client
        self._headers = headers
        self._text: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the SEND, but for those of the frame itself (``receipt``, ``transaction``)."""
        if self._text is None:
            self._text = {
                name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
                for name, value in self._headers.items()
                if name not in OF_THE_FRAME
            }
        return self._text

    def changed(self, changes: Mapping[bytes, bytes | None]) -> Offer:
        """The same with other headers, for whoever is asked next."""
        headers = {**self._headers, **changes}
        kept = {name: value for name, value in headers.items() if value is not None}
        offer = Offer(self.address, self.traits, kept, self.connection, self.client_id, self.peer)
        offer.body = self.body
        return offer

    def header(self, name: str) -> str | None:
        """One header, None where it was not sent."""
        return self.headers.get(name)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    @property
    def priority(self) -> int:
        """0 to 9; 4 where none was sent."""
        return self.traits.priority

    @property
    def durable(self) -> bool:
        """Whether it was sent with ``persistent:true``."""
        return self.traits.durable

    @property
    def user(self) -> str | None:
        """Who is logged in, None where security is off."""
        return self.traits.user
