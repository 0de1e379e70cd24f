"""Who may connect: counted when a connection is accepted, before anything is made for it."""

from __future__ import annotations

from stompring.errors import LimitReached
from stompring.session.crowd import Crowd
from stompring.settings.acceptor import StompAcceptor
from stompring.settings.network import is_this_machine, source_network


class Threshold:
    """What all acceptors have in common: how many connections there are and may be. -1: any number."""

    __slots__ = ("limit", "number")

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.number = 0

    def share(self, place: str) -> int:
        """How many may come from one place where nobody says: half, so that one machine cannot shut out all others."""
        return -1 if self.limit < 0 or is_this_machine(place) else max(1, self.limit // 2)


class Door:
    """One acceptor's."""

    def __init__(self, acceptor: StompAcceptor, threshold: Threshold) -> None:
        self._acceptor = acceptor
        self._threshold = threshold
        self._crowd = Crowd()

    def enter(self, host: str) -> Place:
        """Somebody at ``host`` has connected. Raises `LimitReached`."""
        threshold, acceptor, crowd = self._threshold, self._acceptor, self._crowd
        allowed = acceptor.connections_allowed
        place = source_network(host)
        if 0 <= threshold.limit <= threshold.number:
            raise LimitReached(
                f"More than {threshold.limit} connections to this broker (global-max-connections)",
                "global-max-connections",
            )
        if 0 <= allowed <= crowd.number:
            raise LimitReached(
                f"More than {allowed} connections to acceptor {acceptor.name} (connectionsAllowed)",
                "connectionsAllowed",
            )
        most = acceptor.connections_allowed_per_host
        if most is None:
            most = threshold.share(place)
        if 0 <= most <= crowd.by_place[place]:
            raise LimitReached(
                f"More than {most} connections from {place} to acceptor {acceptor.name} (connectionsAllowedPerHost)",
                "connectionsAllowedPerHost",
            )
        threshold.number += 1
        crowd.enter(place)
        return Place(threshold, crowd, place)


class Place:
    """What a connection that was let in gives back when it ends."""

    __slots__ = ("_crowd", "_place", "_threshold")

    def __init__(self, threshold: Threshold, crowd: Crowd, place: str) -> None:
        self._threshold = threshold
        self._crowd: Crowd | None = crowd
        self._place = place

    def leave(self) -> None:
        """The connection has ended. Only the first time counts."""
        crowd, self._crowd = self._crowd, None
        if crowd is not None:
            self._threshold.number -= 1
            crowd.leave(self._place)
