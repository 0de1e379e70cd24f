"""Which reactor the broker runs on: its own, of `stompring.server.rounds`, or Twisted's stock one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rounds import RoundsReactor

#: The values of ``stompring run --reactor``.
STOMPRING, STOCK = "stompring", "stock"
REACTORS = (STOMPRING, STOCK)


class NotAvailable(Exception):
    """The broker's own reactor cannot run here."""


def make_reactor() -> RoundsReactor:
    """The broker's own reactor, not installed. Raises `NotAvailable`."""
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
    """Install the reactor of ``--reactor``. Returns why it is the stock one although the other was wanted.

    To be called before anything imports ``twisted.internet.reactor``; does nothing where one is installed already.
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
    """Call ``call`` after each poll, before what it found is handled, and before timers, from now on.

    On a reactor without rounds it is called before each event.
    """
    own: Callable[[Callable[[], object]], None] | None = getattr(reactor, "call_before_rounds", None)
    if own is not None:
        own(call)
        return
    from .rounds import call_before_events

    call_before_events(reactor, call)


def reactor_name(reactor: Any) -> str:
    """``stompring`` for the broker's own, else the name of Twisted's class, as ``EPollReactor``."""
    return STOMPRING if hasattr(reactor, "call_at_round_end") else type(reactor).__name__
