"""The signal that a frame must wait for room (address-full-policy BLOCK)."""

from __future__ import annotations

from stompring.broker.address import Address
from stompring.broker.memory import Room


class Blocked(Exception):
    """A frame cannot be dealt with until there is room; it is taken up again then."""

    def __init__(self, address: Address, room: Room) -> None:
        super().__init__()
        self.address = address
        self.room = room
