"""Connection limits: how many connections an acceptor and the broker accept, and from which hosts and origins.

A slot is taken when a connection is accepted, before anything else is made for it, and released when it ends.

A browser lets a page of any site open a WebSocket to any host; the ``Origin`` header that it adds is the only
protection (cross-site WebSocket hijacking). A site whose name was made to resolve to this machine (DNS rebinding) is
recognised by the name in ``Host``, as in `stompring.admin.access`. Programs send no ``Origin`` and are accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stompring.errors import LimitReached
from stompring.session.text import printable
from stompring.settings.acceptor import StompAcceptor, WebSocketSettings
from stompring.settings.acceptor_url import is_local, is_loopback
from stompring.settings.network import (
    ANY_ORIGIN,
    NULL_ORIGIN,
    host_name,
    is_this_machine,
    normal_origin,
    origin_host,
    source_network,
)


class ConnectionCounter:
    """How many are in, and how many of them from each place."""

    __slots__ = ("by_place", "number")

    def __init__(self) -> None:
        self.number = 0
        self.by_place: Counter[str] = Counter()

    def enter(self, place: str) -> None:
        """One more from ``place``."""
        self.number += 1
        self.by_place[place] += 1

    def leave(self, place: str) -> None:
        """One less."""
        self.number -= 1
        self.by_place[place] -= 1
        if self.by_place[place] <= 0:
            del self.by_place[place]


class GlobalConnectionLimit:
    """What all acceptors have in common: how many connections there are and may be. -1: any number."""

    __slots__ = ("limit", "number")

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.number = 0

    def share(self, place: str) -> int:
        """How many may come from one place where nobody says: half, so that one machine cannot shut out all others."""
        return -1 if self.limit < 0 or is_this_machine(place) else max(1, self.limit // 2)


class ConnectionLimit:
    """One acceptor's."""

    def __init__(self, acceptor: StompAcceptor, threshold: GlobalConnectionLimit) -> None:
        self._acceptor = acceptor
        self._threshold = threshold
        self._crowd = ConnectionCounter()

    def enter(self, host: str) -> ConnectionSlot:
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
        return ConnectionSlot(threshold, crowd, place)


class ConnectionSlot:
    """What a connection that was let in gives back when it ends."""

    __slots__ = ("_crowd", "_place", "_threshold")

    def __init__(self, threshold: GlobalConnectionLimit, crowd: ConnectionCounter, place: str) -> None:
        self._threshold = threshold
        self._crowd: ConnectionCounter | None = crowd
        self._place = place

    def leave(self) -> None:
        """The connection has ended. Only the first time counts."""
        crowd, self._crowd = self._crowd, None
        if crowd is not None:
            self._threshold.number -= 1
            crowd.leave(self._place)


#: The best first.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")


@dataclass(frozen=True, slots=True)
class HandshakeRejected(Exception):
    """The answer to who may not: the reason and a status of HTTP."""

    reason: str
    status: int


class OriginPolicy:
    """That of one acceptor, which listens on the host ``listens_on``."""

    def __init__(self, settings: WebSocketSettings, listens_on: str) -> None:
        self._path = settings.path
        self._allowed = frozenset(settings.web_socket_allowed_origins)
        self._names = frozenset(filter(None, map(origin_host, self._allowed)))
        self._for_this_machine = is_loopback(listens_on)

    def admit(self, path: str, host: str, origin: str | None, subprotocols: Sequence[str]) -> str | None:
        """The subprotocol to speak, None where none was offered. Raises `NotAdmitted`.

        ``host`` and ``origin`` are the headers of these names.
        """
        if self._path and path.removesuffix("/") != self._path:
            raise HandshakeRejected(f"No WebSocket at {printable(path)}; the path is {self._path}", 404)
        name = host_name(host)
        if self._for_this_machine and not self._is_known(name):
            raise HandshakeRejected(
                f"Host {printable(host)} is not allowed: this listener is local and accepts localhost and the hosts of "
                "webSocketAllowedOrigins",
                403,
            )
        if origin is not None and not self._is_welcome(origin, name):
            raise HandshakeRejected(
                f"Origin {printable(origin)} is not allowed (webSocketAllowedOrigins)",
                403,
            )
        if not subprotocols:
            return None
        for spoken in SUBPROTOCOLS:
            if spoken in subprotocols:
                return spoken
        offered = printable(", ".join(subprotocols))
        raise HandshakeRejected(
            f"Unsupported subprotocols: {offered}; supported: {', '.join(SUBPROTOCOLS)}", 400
        )

    def _is_known(self, name: str) -> bool:
        return is_local(name) or name in self._names or ANY_ORIGIN in self._allowed

    def _is_welcome(self, origin: str, name: str) -> bool:
        if ANY_ORIGIN in self._allowed:
            return True
        try:
            origin = normal_origin(origin)
        except ValueError:  # file:// for one
            origin = NULL_ORIGIN
        page = origin_host(origin)
        same = page == name or (is_local(page) and is_local(name))
        return origin in self._allowed or (same and page != "")
