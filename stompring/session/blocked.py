"""The signal that a frame must wait for room: policy BLOCK of a full address or a full disk, or a slow store."""

from __future__ import annotations

from stompring.broker.admission import Obstacle


class Blocked(Exception):
    """A frame cannot be dealt with until there is room; it is taken up again then."""

    def __init__(self, hindered: Obstacle) -> None:
        super().__init__()
        assert hindered.room is not None, "a page limit is never waited for"
        self.address = hindered.address
        self.room = hindered.room
