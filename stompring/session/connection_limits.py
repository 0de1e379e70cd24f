"""Connection limits: how many connections an acceptor and the broker accept, and from which hosts and origins.

A slot is taken when a connection is accepted, before anything else is made for it, and released when it ends.

A browser lets a page of any site open a WebSocket to any host; the ``Origin`` header that it adds is the only
protection (cross-site WebSocket hijacking). A site whose name was made to resolve to this machine (DNS rebinding) is
recognised by the name in ``Host``, as in `stompring.admin.access`. Programs send no ``Origin`` and are accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stompring.errors import LimitReached
from stompring.session.text import printable
from stompring.settings.acceptor import StompAcceptor, WebSocketSettings
from stompring.settings.network import (
    ANY_ORIGIN,
    NULL_ORIGIN,
    host_name,
    is_local,
    is_loopback,
    is_this_machine,
    normal_origin,
    origin_host,
    source_network,
)


class ConnectionCounter:
    """Open connections, in all and by source network (`source_network`)."""

    __slots__ = ("by_network", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_network: Counter[str] = Counter()

    def add(self, network: str) -> None:
        """Count a connection that was opened."""
        self.total += 1
        self.by_network[network] += 1

    def remove(self, network: str) -> None:
        """Count one that was closed."""
        self.total -= 1
        self.by_network[network] -= 1
        if self.by_network[network] <= 0:
            del self.by_network[network]


class GlobalConnectionLimit:
    """``global-max-connections``: of all STOMP acceptors together. -1: no limit."""

    __slots__ = ("count", "limit")

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.count = 0

    def default_per_host(self, network: str) -> int:
        """The default of ``connectionsAllowedPerHost``: half, so that one machine cannot shut out all others."""
        return -1 if self.limit < 0 or is_this_machine(network) else max(1, self.limit // 2)


class ConnectionLimit:
    """The limits of one STOMP acceptor, over TCP and WebSocket alike."""

    def __init__(self, acceptor: StompAcceptor, overall: GlobalConnectionLimit) -> None:
        self._acceptor = acceptor
        self._overall = overall
        self._open = ConnectionCounter()

    def acquire(self, host: str) -> ConnectionSlot:
        """A slot for a connection from ``host``. Raises `LimitReached`."""
        overall, acceptor, counter = self._overall, self._acceptor, self._open
        allowed = acceptor.connections_allowed
        network = source_network(host)
        if 0 <= overall.limit <= overall.count:
            raise LimitReached(
                f"More than {overall.limit} connections to this broker (global-max-connections)",
                "global-max-connections",
            )
        if 0 <= allowed <= counter.total:
            raise LimitReached(
                f"More than {allowed} connections to acceptor {acceptor.name} (connectionsAllowed)",
                "connectionsAllowed",
            )
        per_host = acceptor.connections_allowed_per_host
        if per_host is None:
            per_host = overall.default_per_host(network)
        if 0 <= per_host <= counter.by_network[network]:
            raise LimitReached(
                f"More than {per_host} connections from {network} to acceptor {acceptor.name} "
                "(connectionsAllowedPerHost)",
                "connectionsAllowedPerHost",
            )
        overall.count += 1
        counter.add(network)
        return ConnectionSlot(overall, counter, network)


class ConnectionSlot:
    """The share of an open connection in the limits."""

    __slots__ = ("_counter", "_network", "_overall")

    def __init__(self, overall: GlobalConnectionLimit, counter: ConnectionCounter, network: str) -> None:
        self._overall = overall
        self._counter: ConnectionCounter | None = counter
        self._network = network

    def release(self) -> None:
        """The connection has ended. Further calls do nothing."""
        counter, self._counter = self._counter, None
        if counter is not None:
            self._overall.count -= 1
            counter.remove(self._network)


#: STOMP subprotocols of WebSocket, the best first.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")


class HandshakeRejected(Exception):
    """The request for a WebSocket is answered with an error: the reason and the status of HTTP."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class OriginPolicy:
    """Which requests for a WebSocket one acceptor accepts; it listens on the host ``listens_on``."""

    def __init__(self, settings: WebSocketSettings, listens_on: str) -> None:
        self._path = settings.path
        self._allowed = frozenset(settings.web_socket_allowed_origins)
        self._names = frozenset(filter(None, map(origin_host, self._allowed)))
        self._local = is_loopback(listens_on)

    def check(self, path: str, host: str, origin: str | None, subprotocols: Sequence[str]) -> str | None:
        """The subprotocol to speak, None where none was offered. Raises `HandshakeRejected`.

        ``host`` and ``origin`` are the headers of these names.
        """
        if self._path and path.removesuffix("/") != self._path:
            raise HandshakeRejected(f"No WebSocket at {printable(path)}; the path is {self._path}", 404)
        name = host_name(host)
        if self._local and not self._host_allowed(name):
            raise HandshakeRejected(
                f"Host {printable(host)} is not allowed: this listener is local and accepts localhost and the hosts of "
                "webSocketAllowedOrigins",
                403,
            )
        if origin is not None and not self._origin_allowed(origin, name):
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

    def _host_allowed(self, name: str) -> bool:
        return is_local(name) or name in self._names or ANY_ORIGIN in self._allowed

    def _origin_allowed(self, origin: str, name: str) -> bool:
        if ANY_ORIGIN in self._allowed:
            return True
        try:
            origin = normal_origin(origin)
        except ValueError:  # file:// for one
            origin = NULL_ORIGIN
        page = origin_host(origin)
        same = page == name or (is_local(page) and is_local(name))
        return origin in self._allowed or (same and page != "")
