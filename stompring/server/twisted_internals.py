"""The private names of Twisted that the broker needs: those of its reactor, and a list of those that TLS uses.

`stompring.server.rounds` itself uses none. Those of the reactor are attributes of an `EPollReactor` that stay the same
objects after its constructor. Where the installed Twisted lacks one, the broker runs on the stock reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted import __version__ as twisted_version
from twisted.internet.epollreactor import EPollReactor

#: The names, and what each is for.
PRIVATE_NAMES = {
    "_poller": "the epoll object: polled once a round",
    "_selectables": "what is read or written, by descriptor",
    "_doReadOrWrite": "handles every event but the plain EPOLLIN of an accepted connection",
    "_internalReaders": "the waker",
    "_disconnectSelectable": "ends a connection, or one half of it, after a failed read or write",
}

#: Private names of `TLSMemoryBIOProtocol`, used by `stompring.server.tls`.
TLS_NAMES = {
    "_handshakeDone": "whether records may be read and written",
    "_lostTLSConnection": "whether TLS has ended",
    "_aborted": "whether nothing is passed on any more",
    "_reason": "why TLS has ended",
    "_producer": "whoever is paused, released at the end",
    "_appSendBuffer": "writes that wait for the handshake",
    "_bufferedWrite": "adds to them",
    "_flushSendBIO": "sends what TLS itself has to say",
    "_shutdownTLS": "answers the end of TLS",
    "_tlsShutdownFinished": "ends the connection after TLS",
}


class UnknownTwisted(Exception):
    """The installed Twisted lacks private names."""


class Poll(Protocol):
    """``select.epoll.poll``."""

    def __call__(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]: ...


def check_names(reactor: EPollReactor) -> None:
    """Raises `UnknownTwisted` where a name is missing, or is something else than expected."""
    usable = {
        "_poller": hasattr(getattr(reactor, "_poller", None), "poll"),
        "_selectables": isinstance(getattr(reactor, "_selectables", None), dict),
        "_doReadOrWrite": callable(getattr(reactor, "_doReadOrWrite", None)),
        "_internalReaders": isinstance(getattr(reactor, "_internalReaders", None), set),
        "_disconnectSelectable": callable(getattr(reactor, "_disconnectSelectable", None)),
    }
    missing = [name for name in PRIVATE_NAMES if not usable[name]]
    if missing:
        raise UnknownTwisted(f"Twisted {twisted_version} lacks {', '.join(missing)}")


def poll_of(reactor: EPollReactor) -> Poll:
    """Waits for events: timeout in seconds (-1: no limit), and the greatest number of events."""
    poll: Poll = reactor._poller.poll
    return poll


def selectables_of(reactor: EPollReactor) -> dict[int, Any]:
    """Readers and writers by descriptor; the reactor's own dictionary."""
    selectables: dict[int, Any] = reactor._selectables
    return selectables


def read_or_write_of(reactor: EPollReactor) -> Callable[[Any, int, int], None]:
    """Twisted's handler of one event: called with reader or writer, descriptor, event mask."""
    handler: Callable[[Any, int, int], None] = reactor._doReadOrWrite
    return handler


def disconnector_of(reactor: EPollReactor) -> Callable[[Any, BaseException, bool], None]:
    """Twisted's end of a connection: called with reader or writer, the reason, and whether a read has found it."""
    disconnect: Callable[[Any, BaseException, bool], None] = reactor._disconnectSelectable
    return disconnect


def close_descriptors(reactor: EPollReactor) -> None:
    """Close the waker and epoll of a reactor that was not run."""
    for reader in reactor._internalReaders:
        reader.connectionLost(None)
    reactor._poller.close()


def call_before_events(reactor: Any, call: Callable[[], object]) -> None:
    """Have a stock reactor call ``call`` before each event that it handles, and before its timers."""
    handle, run = getattr(reactor, "_doReadOrWrite", None), reactor.runUntilCurrent

    def handle_after(*arguments: Any) -> Any:
        call()
        assert handle is not None
        return handle(*arguments)

    def run_after() -> None:
        call()
        run()

    if handle is not None:
        reactor._doReadOrWrite = handle_after
    reactor.runUntilCurrent = run_after
