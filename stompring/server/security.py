"""Everything that security is made of, while it is on: users, roles, permissions, logins, and who follows the files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.cred.portal import Portal
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from stompring.security.authority import Authority
from stompring.security.certificate_users import CertificateUsers
from stompring.security.permissions import Permissions
from stompring.security.remembered import Remembered
from stompring.security.roles import Roles
from stompring.security.throttle import Throttle
from stompring.security.users import Users
from stompring.settings.model import BrokerConfiguration

from .authenticate import CertificateChecker, Logins, Realm, UsersFileChecker
from .verification import Verification

log = logging.getLogger(__name__)

#: Seconds between two looks at the files where nothing is to be remembered (security-invalidation-interval 0).
LOOK = 1.0


class Security:
    """Security as a broker.xml wants it.

    ``changed`` is called, in the reactor's thread, when permissions or roles are others than before.
    """

    def __init__(self, configuration: BrokerConfiguration, reactor: Any, changed: Callable[[], None]) -> None:
        """Raises `ConfigurationError` for a file that cannot be read."""
        assert configuration.users_file is not None and configuration.roles_file is not None
        self.users = Users(configuration.users_file)
        self._roles = Roles(configuration.roles_file)
        certificates = configuration.certificate_users_file
        self._certificates = None if certificates is None else CertificateUsers(certificates)
        self.authority = Authority(Permissions.of(configuration), self._roles)
        self._changed = changed
        self._noticed = self.authority.generation
        interval = configuration.security_invalidation_interval / 1000
        self._remembered = Remembered(interval, reactor.seconds)
        self._verification = Verification(self.users, self._remembered, self._follow, reactor)
        portal = Portal(Realm(self.authority), [UsersFileChecker(self._verification), CertificateChecker()])
        self.logins = Logins(portal, Throttle(reactor.seconds), reactor, self._user_of)
        self._look = LoopingCall(self._look_at_files)
        self._look.clock = reactor
        self._interval = max(interval, LOOK)

    def start(self) -> None:
        """Follow the files from now on, also while nobody logs in."""
        if not self._roles.path.exists():
            log.warning("there is no roles file %s: nobody has a role", self._roles.path)
        if not self.authority.grants_anything:
            log.warning("there is no <security-setting>: nobody may do anything")
        self._look.start(self._interval, now=False)

    def stop(self) -> None:
        """Follow them no more."""
        if self._look.running:
            self._look.stop()

    def refresh(self) -> None:
        """Read the files again that have changed. Raises `ConfigurationError`; then nothing is changed."""
        for file in (self.users, self._roles, self._certificates):
            if file is not None:
                file.refresh()

    def use(self, configuration: BrokerConfiguration) -> None:
        """The configuration was read again."""
        self.authority.use(Permissions.of(configuration))
        self._remembered.clear()
        self._notice()

    def _user_of(self, subject: str) -> str | None:
        return None if self._certificates is None else self._certificates.user_of(subject)

    def _follow(self) -> None:
        """In a thread."""
        for file in (self.users, self._roles, self._certificates):
            if file is not None:
                file.follow()

    def _look_at_files(self) -> Deferred[None]:
        def told(failure: Failure) -> None:
            log.error("the files of users and roles could not be looked at: %s", failure.getTraceback())

        return self._verification.followed().addCallback(lambda _: self._notice()).addErrback(told)

    def _notice(self) -> None:
        if self.authority.generation != self._noticed:
            self._noticed = self.authority.generation
            self._changed()
