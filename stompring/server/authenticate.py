"""Checks logins with Twisted's cred, off the reactor thread: argon2 is slow on purpose."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword, UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import IRealm, Portal
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from stompring.security.users import Users
from stompring.session.connect import Credentials, Login

log = logging.getLogger(__name__)


class ILogin(Interface):
    """What a client of the broker is after it has logged in."""


@implementer(IRealm)
class Realm:
    """Every user that the checker lets in gets a `Login`."""

    def requestAvatar(  # type: ignore[override]
        self, avatarId: bytes, mind: object, *interfaces: Any
    ) -> tuple[Any, Login, Callable[[], None]]:
        """See IRealm."""
        return ILogin, Login(avatarId.decode()), lambda: None


@implementer(ICredentialsChecker)
class UsersFileChecker:
    """Passwords from the users file."""

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, users: Users, reactor: Any) -> None:
        self._users = users
        self._reactor = reactor

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[bytes | tuple[()]]:
        """See ICredentialsChecker."""
        name, password = credentials.username.decode(), credentials.password.decode()
        checked = deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), self._users.verify, name, password
        )

        def decide(right: bool) -> bytes | tuple[()]:
            if not right:
                raise UnauthorizedLogin(name)
            return name.encode()

        return checked.addCallback(decide)


class Logins:
    """An `Authenticator` in front of a cred portal; other checkers (certificates, other stores) plug in there."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        """See `Authenticator`."""
        login, passcode = credentials.login, credentials.passcode
        if login is None or passcode is None:
            answer(None, "Security Error occurred: login and passcode are required")
            return
        told = UsernamePassword(login.encode(), passcode.encode())
        checked: Deferred[Any] = self._portal.login(told, None, ILogin)

        def right(avatar: tuple[Any, Login, Any]) -> None:
            answer(avatar[1], "")

        def wrong(failure: Failure) -> None:
            if not isinstance(failure.value, UnauthorizedLogin):
                log.error("login of %s could not be checked: %s", login, failure.getTraceback())
                answer(
                    None,
                    "Security Error occurred: the login could not be checked; the broker's log tells more",
                )
                return
            answer(None, f"Security Error occurred: User name [{login}] or password is invalid")

        checked.addCallback(right).addErrback(wrong)
