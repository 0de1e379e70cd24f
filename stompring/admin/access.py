"""Who may ask: no page of a foreign web site, and where security is on nobody without a login.

A browser on the broker's machine runs scripts of any site it shows. Such a script cannot read what a broker answers
it, but could delete a queue blindly; the ``Origin`` header that browsers add gives it away. A site whose name was
made to point at 127.0.0.1 (DNS rebinding) would count as the same origin; its name in ``Host`` gives that away.
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from stompring.settings.acceptor_url import is_loopback

from .answer import Problem
from .served import Served


def check_origin(origin: str | None, host: str | None) -> None:
    """Refuse what a page from elsewhere asks for."""
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == (host or "").strip().lower() != ""
    except ValueError:
        same = False
    if not same:
        raise Problem(403, f"Requests of pages from {origin} are not answered (Origin header)")


def check_host(host: str | None, listens_on: str) -> None:
    """A listener that only this machine reaches answers to the names of this machine alone."""
    if not host or not is_loopback(listens_on):
        return
    try:
        name = urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        name = ""
    if not (is_loopback(name) or name.endswith(".localhost")):
        raise Problem(
            403, f"This listener is for this machine: it answers to localhost, not to {host} (Host header)"
        )


def check_login(served: Served, authorization: str | None) -> Deferred[None] | None:
    """``None`` where the broker runs without security; else fires when the password is right, or fails with 401.

    Passwords are checked in the thread pool: argon2 is slow on purpose. Security is as it was at the start, for this
    as for STOMP, whatever a reload has read since.
    """
    users, reactor = served.users, served.reactor
    if users is None:
        return None
    user, password = _credentials(authorization)
    checked: Deferred[bool] = deferToThreadPool(
        reactor, reactor.getThreadPool(), users.verify, user, password
    )

    def decide(right: bool) -> None:
        if not right:
            raise _login(f"User name [{user}] or password is invalid")

    return checked.addCallback(decide)


def _credentials(authorization: str | None) -> tuple[str, str]:
    if authorization is None:
        raise _login("Security is on: this needs the name and password of a user of the broker")
    scheme, _, encoded = authorization.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""
    if scheme.lower() != "basic" or not colon:
        raise _login("The Authorization header must be 'Basic' with base64 of USER:PASSWORD in UTF-8")
    return user, password


def _login(reason: str) -> Problem:
    return Problem(401, reason, {"WWW-Authenticate": 'Basic realm="stompring", charset="UTF-8"'})
