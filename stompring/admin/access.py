"""Who may ask: no page of a foreign web site, and where security is on nobody without a login.

There is no cookie: a login is sent with each request, and remembered for a moment by who checks it.

A browser on the broker's machine runs scripts of any site it shows. Such a script cannot read what a broker answers
it, but could delete a queue blindly; the ``Origin`` header that browsers add gives it away. A site whose name was
made to point at 127.0.0.1 (DNS rebinding) would count as the same origin; its name in ``Host`` gives that away.
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from stompring.errors import Refused
from stompring.session.connect import Credentials, Login
from stompring.settings.acceptor_url import is_local, is_loopback
from stompring.settings.network import host_name

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
    if not is_local(host_name(host)):
        raise Problem(
            403, f"This listener is for this machine: it answers to localhost, not to {host} (Host header)"
        )


#: Seconds after which one who failed too often, or came while too many did, may try again.
RETRY = 5


def check_login(
    served: Served, authorization: str | None, host: str, certificate: str | None = None
) -> Deferred[Login] | None:
    """``None`` where the broker runs without security; else who asks, or a failure of 401 or 429.

    ``host`` is where they are, ``certificate`` the subject of the one they showed. Whether there is security is as it
    was at the start, for this as for STOMP, whatever a reload has read since.
    """
    if served.security is None:
        return None
    user: str | None = None
    password: str | None = None
    if authorization is not None or certificate is None:
        user, password = _credentials(authorization)
    told = Credentials(user, password, host, certificate)
    return served.security.logins.log_in(told).addErrback(_refusal)


def _refusal(failure: Failure) -> Failure:
    refused = failure.value
    if not isinstance(refused, Refused):
        return failure
    if refused.status == 401:
        return Failure(_login(str(refused)))
    if refused.status in (429, 503):
        return Failure(Problem(429, str(refused), {"Retry-After": str(RETRY)}))
    return failure


def _credentials(authorization: str | None) -> tuple[str, str]:
    if authorization is None:
        raise _login("Security is on: this needs the name and password of a user of the broker")
    scheme, _, encoded = authorization.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""  # nosec B105
    if scheme.lower() != "basic" or not colon:
        raise _login("The Authorization header must be 'Basic' with base64 of USER:PASSWORD in UTF-8")
    return user, password


def _login(reason: str) -> Problem:
    return Problem(401, reason, {"WWW-Authenticate": 'Basic realm="stompring", charset="UTF-8"'})
