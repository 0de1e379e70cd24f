"""Who logs in: Twisted's cred, behind a throttle; by password, or by the certificate of the connection."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import ICredentials, IUsernamePassword, UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import IRealm, Portal
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from stompring.errors import Refused
from stompring.security.throttle import FREE, Throttle
from stompring.session.connect import Credentials, Login
from stompring.session.permit import SHOWN, Permit, Rights

log = logging.getLogger(__name__)

#: What became of logins, by what is counted.
ACCEPTED, REFUSED, THROTTLED, OVERLOADED, FAILED = "accepted", "refused", "throttled", "overloaded", "failed"

#: HTTP status of a refusal, and back from it.
OUTCOMES = {401: REFUSED, 429: THROTTLED, 503: OVERLOADED, 500: FAILED}


class ILogin(Interface):
    """What a client of the broker is after it has logged in."""


class ICertificate(ICredentials):
    """Credentials that need no check: the user of a certificate that was verified with the connection."""


@implementer(ICertificate)
class Certified:
    """Whose certificate it was."""

    def __init__(self, user: str) -> None:
        self.user = user


@implementer(IRealm)
class Realm:
    """Every user that a checker lets in gets a `Login` with what they may do."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def requestAvatar(  # type: ignore[override]
        self, avatarId: bytes, mind: object, *interfaces: Any
    ) -> tuple[Any, Login, Callable[[], None]]:
        """See IRealm."""
        user = avatarId.decode()
        return ILogin, Login(user, Permit(user, self._rights)), lambda: None


class Told(UsernamePassword):
    """A name and a password, and where they came from."""

    host = ""


class Verifies(Protocol):
    """Who checks passwords (`Verification`)."""

    def verify(self, name: str, password: str, host: str = "") -> Deferred[bool]:
        """Whether that is the password of the user, who is at ``host``."""


@implementer(ICredentialsChecker)
class UsersFileChecker:
    """Passwords from the users file."""

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, verification: Verifies) -> None:
        self._verification = verification

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[bytes | tuple[()]]:
        """See ICredentialsChecker."""
        name, password = (
            part.decode("utf-8", "surrogatepass") for part in (credentials.username, credentials.password)
        )

        def decide(right: bool) -> bytes | tuple[()]:
            if not right:
                raise UnauthorizedLogin("wrong name or password")
            return name.encode()

        return self._verification.verify(name, password, getattr(credentials, "host", "")).addCallback(decide)


@implementer(ICredentialsChecker)
class CertificateChecker:
    """Certificates were verified by TLS; whose they are is known before this is asked."""

    credentialInterfaces = (ICertificate,)

    def requestAvatarId(self, credentials: Certified) -> Deferred[bytes | tuple[()]]:
        """See ICredentialsChecker."""
        return succeed(credentials.user.encode())


class Logins:
    """An `Authenticator` in front of a cred portal; other checkers (other stores) plug in there.

    ``user_of`` tells whose certificate a subject is. ``outcomes`` counts what became of logins, STOMP's and HTTP's.
    """

    def __init__(
        self,
        portal: Portal,
        throttle: Throttle,
        reactor: Any,
        user_of: Callable[[str], str | None] = lambda subject: None,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self._portal = portal
        self._throttle = throttle
        self._reactor = reactor
        self._user_of = user_of

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        """See `Authenticator`."""

        told = self.log_in(credentials)
        told.addCallbacks(lambda login: answer(login, ""), lambda failure: answer(None, str(failure.value)))

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """Who that is. Fails with `Refused` of status 401, 429, 503, or 500 where the fault is ours."""
        login, passcode = credentials.login, credentials.passcode
        certified = None if credentials.certificate is None else self._user_of(credentials.certificate)
        if certified is not None and login not in (None, certified):
            found = self._mismatch(credentials, certified)
        elif certified is not None and passcode is None:
            found = self._enter(Certified(certified))
        elif login is not None and passcode is not None:
            found = self._by_password(credentials.host, login, passcode)
        else:
            found = fail(_lacking(credentials, certified))
        return found.addCallbacks(self._accepted, self._refused, errbackArgs=(login,))

    def _mismatch(self, credentials: Credentials, certified: str) -> Deferred[Login]:
        self._failed(credentials.host)
        return fail(
            Refused(
                f"Security Error occurred: the certificate is that of user [{certified}], not of "
                f"[{(credentials.login or '')[:SHOWN]}]",
                status=401,
            )
        )

    def _by_password(self, host: str, login: str, passcode: str) -> Deferred[Login]:
        delay = self._throttle.delay(host)
        if not delay:
            return self._check(host, login, passcode)
        if not self._throttle.enter(host):
            reason = Refused(
                f"Security Error occurred: too many failed logins from {host}; try again later", status=429
            )
            return fail(reason)
        waited: Deferred[Any] = deferLater(self._reactor, delay, self._throttle.leave, host)
        return waited.addCallback(lambda _: self._check(host, login, passcode))

    def _check(self, host: str, login: str, passcode: str) -> Deferred[Login]:
        told = Told(login.encode("utf-8", "surrogatepass"), passcode.encode("utf-8", "surrogatepass"))
        told.host = host

        def wrong(failure: Failure) -> Failure:
            failure.trap(UnauthorizedLogin)
            self._failed(host)
            raise Refused(
                f"Security Error occurred: User name [{login[:SHOWN]}] or password is invalid", status=401
            )

        return self._enter(told).addErrback(wrong)

    def _enter(self, credentials: ICredentials) -> Deferred[Login]:
        avatar: Deferred[Any] = self._portal.login(credentials, None, ILogin)
        return avatar.addCallback(lambda found: found[1])

    def _failed(self, host: str) -> None:
        if self._throttle.failed(host):
            log.warning(
                "%d logins from %s have failed: further ones are delayed",
                FREE,
                host or "one host",
                extra={"peer": host},
            )

    def _accepted(self, login: Login) -> Login:
        self.outcomes[ACCEPTED] += 1
        return login

    def _refused(self, failure: Failure, login: str | None) -> Failure:
        if not isinstance(failure.value, Refused):
            log.error(
                "login of %r could not be checked: %s", login, failure.getTraceback(), extra={"user": login}
            )
            reason = Refused(
                "Security Error occurred: the login could not be checked; the broker's log tells more",
                status=500,
            )
            failure = Failure(reason)
        assert isinstance(failure.value, Refused)
        self.outcomes[OUTCOMES[failure.value.status]] += 1
        return failure


def _lacking(credentials: Credentials, certified: str | None) -> Refused:
    if credentials.certificate is not None and certified is None:
        return Refused(
            "Security Error occurred: the certificate is no user's; login and passcode are required",
            status=401,
        )
    return Refused("Security Error occurred: login and passcode are required", status=401)
