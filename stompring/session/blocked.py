"""The signals that a frame must wait: for room in a full address, on the disk or in the store, or for a while; or the
next one, for what this one asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.address import Address
from stompring.broker.memory import MemoryLimit

if TYPE_CHECKING:
    from .send import SendEvaluation


class UnderWay(Exception):
    """What a frame asks for is done in slices; the next frame is looked at when that is done."""


class Blocked(Exception):
    """A frame cannot be dealt with yet; it is taken up again once ``room`` has some, or after some milliseconds.

    ``offered`` is a SEND about which policies were asked: it goes on from there.
    """

    def __init__(
        self,
        address: Address,
        room: MemoryLimit | None,
        milliseconds: int = 0,
        offered: SendEvaluation | None = None,
    ) -> None:
        super().__init__()
        assert room is not None or milliseconds > 0, "there must be an end to it"
        self.address = address
        self.room = room
        self.milliseconds = milliseconds
        self.offered = offered
