"""The choice of the reactor: the broker's own (`stompring.server.rounds`), or Twisted's default."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rounds import RoundsReactor

#: The values of ``stompring run --reactor``.
STOMPRING, STOCK = "stompring", "stock"
REACTORS = (STOMPRING, STOCK)


class NotAvailable(Exception):
    """The broker's own reactor cannot run on this system, or with the installed Twisted."""


@contextmanager
def without_openssl() -> Iterator[None]:
    """Context manager: Twisted's modules are imported as if OpenSSL were not installed, which saves 20 MB.

    Twisted imports it wherever it is installed. `stompring.server.tls` imports it later, if an acceptor or a connector
    has TLS; the parts of Twisted that this package uses with TLS need nothing else.
    """
    name = "OpenSSL"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def make_reactor() -> RoundsReactor:
    """Create the broker's own reactor without installing it. Raises `NotAvailable`."""
    try:
        from .rounds import RoundsReactor
    except ImportError:
        raise NotAvailable("it needs epoll (Linux)") from None
    from .rounds import UnknownTwisted

    try:
        return RoundsReactor()
    except UnknownTwisted as missing:
        raise NotAvailable(str(missing)) from None


def use_reactor(kind: str) -> str | None:
    """Install the reactor of ``--reactor``. Returns the reason if the broker's own reactor is not available, else None.

    Call it before any import of ``twisted.internet.reactor``. It has no effect if a reactor is already installed.
    """
    if kind == STOCK or "twisted.internet.reactor" in sys.modules:
        return None
    try:
        reactor = make_reactor()
    except NotAvailable as why:
        return str(why)
    from twisted.internet.main import installReactor

    installReactor(reactor)
    return None


def call_before_rounds(reactor: Any, call: Callable[[], object]) -> None:
    """Make the reactor call ``call`` after each poll, before it handles events and timers. A reactor without rounds
    calls it before each event.
    """
    own: Callable[[Callable[[], object]], None] | None = getattr(reactor, "call_before_rounds", None)
    if own is not None:
        own(call)
        return
    from .rounds import call_before_events

    call_before_events(reactor, call)


def reactor_name(reactor: Any) -> str:
    """Return ``stompring`` for the broker's own reactor, else the name of Twisted's class, such as ``EPollReactor``."""
    return STOMPRING if hasattr(reactor, "call_at_round_end") else type(reactor).__name__
