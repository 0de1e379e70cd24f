"""Who may open a WebSocket: on which path, under which name of the broker, from pages of where, for which STOMP.

A browser lets a page of any site open a WebSocket to any host, with nothing to stop it but the ``Origin`` that it adds
(cross-site WebSocket hijacking). As in `stompring.admin.access`, a site whose name was made to point at this machine
(DNS rebinding) is known by the name in ``Host``. Programs send no ``Origin``, and are let in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stompring.session.text import printable
from stompring.settings.acceptor import WebSocketSettings
from stompring.settings.acceptor_url import is_local, is_loopback
from stompring.settings.network import ANY_ORIGIN, NULL_ORIGIN, host_name, normal_origin, origin_host

#: The best first.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")


@dataclass(frozen=True, slots=True)
class NotAdmitted(Exception):
    """The answer to who may not: the reason and a status of HTTP."""

    reason: str
    status: int


class WebSocketDoor:
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
            raise NotAdmitted(f"STOMP is at {self._path} here, not at {printable(path)}", 404)
        name = host_name(host)
        if self._for_this_machine and not self._is_known(name):
            raise NotAdmitted(
                "This listener is for this machine: it answers to localhost and to the hosts of "
                f"webSocketAllowedOrigins, not to {printable(host)} (Host header)",
                403,
            )
        if origin is not None and not self._is_welcome(origin, name):
            raise NotAdmitted(
                f"Pages from {printable(origin)} may not connect (Origin header; see webSocketAllowedOrigins)",
                403,
            )
        if not subprotocols:
            return None
        for spoken in SUBPROTOCOLS:
            if spoken in subprotocols:
                return spoken
        offered = printable(", ".join(subprotocols))
        raise NotAdmitted(
            f"None of the subprotocols {offered} is spoken here: {', '.join(SUBPROTOCOLS)}", 400
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
