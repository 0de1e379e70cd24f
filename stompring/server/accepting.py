"""The socket of a listener when this process may open no more files: who knocks then is sent away, and nothing turns.

Twisted keeps a spare descriptor for this as well. It tries only once to take that one back, while a thread of ours may
open a file at the same moment; without it the reactor asks the same socket again and again until connections end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.internet.tcp import Port

#: What accept(2) fails with when there is no descriptor, or no memory, for another connection.
STARVED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

#: How many are sent away before others have their turn: twice what Twisted accepts at once.
TURN = 200

#: Seconds until a listener is asked again that could not even send anybody away.
REST = 0.1


def watch(port: IListeningPort, turned_away: Callable[[int], None], reactor: Any) -> None:
    """Have ``port`` turn connections away while there are no descriptors, and tell ``turned_away`` how many."""
    if isinstance(port, Port):  # those of tests, which listen to nothing, are others
        port.socket = AcceptingSocket(port, turned_away, reactor)


class AcceptingSocket:
    """What a `Port` takes for its socket. A descriptor is kept to accept with, and to close at once."""

    __slots__ = ("_port", "_reactor", "_resting", "_socket", "_spare", "_turned_away")

    def __init__(self, port: Any, turned_away: Callable[[int], None], reactor: Any) -> None:
        self._port = port
        self._socket = port.socket
        self._turned_away = turned_away
        self._reactor = reactor
        self._resting: IDelayedCall | None = None
        self._spare: int | None = None
        self._keep()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def accept(self) -> Any:
        """As of a socket. Raises BlockingIOError where that would fail for want of descriptors or memory."""
        if self._spare is None:
            self._keep()
        try:
            return self._socket.accept()
        except OSError as fault:
            if fault.errno not in STARVED:
                raise
            if not self._send_away():
                self._rest()
            raise BlockingIOError(errno.EAGAIN, os.strerror(fault.errno)) from fault

    def close(self) -> None:
        """Close it, and what is kept for it."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._release()
        self._socket.close()

    def _keep(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._spare = None  # the next accept tries again

    def _release(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _send_away(self) -> bool:
        """Close connections that wait, with the descriptor that is kept. Returns whether that was possible."""
        self._release()
        number = 0
        able = True
        try:
            while number < TURN:
                connection, _ = self._socket.accept()
                connection.close()
                number += 1
        except BlockingIOError:
            pass  # nobody waits any more: Linux looks for a descriptor first, even then
        except OSError:
            able = False  # another thread took the descriptor, or it is memory that is wanting
        self._keep()
        if number:
            self._turned_away(number)
        return able

    def _rest(self) -> None:
        """Leave those who knock waiting for a moment: asked again at once, the socket would say the same."""
        self._port.stopReading()
        self._resting = self._reactor.callLater(REST, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        if not self._port.disconnecting:
            self._port.startReading()
