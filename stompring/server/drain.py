"""Drain: the broker refuses new STOMP connections and reports not ready, while existing clients continue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stompring.broker.broker import Broker

if TYPE_CHECKING:
    from .protocol import Connections

log = logging.getLogger(__name__)

REASON = "The broker is draining and refuses new connections: connect to another broker, or try again later"


class Drain:
    """Whether the broker drains, and since when."""

    def __init__(self, broker: Broker, connections: Connections) -> None:
        self.since: int | None = None  # epoch ms; None: it does not
        self._broker = broker
        self._connections = connections

    def begin(self) -> bool:
        """Refuse new connections from now on. False if that was so already."""
        if self.since is not None:
            return False
        self.since = self._broker.clock.now
        self._connections.refused_because = REASON
        text = f"draining: refusing new connections, {len(self._connections)} are open"
        log.warning("%s", text)
        self._broker.notifications.notify("DRAIN", text)
        return True

    def end(self) -> bool:
        """Accept connections again. False if that was so already."""
        if self.since is None:
            return False
        self.since = None
        self._connections.refused_because = None
        log.warning("drain ended: accepting new connections")
        self._broker.notifications.notify("UNDRAIN", "drain ended: accepting new connections")
        return True
