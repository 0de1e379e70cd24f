"""Authentication: logins by password or client certificate, the login throttle, and the files with the users.

The broker verifies passwords in a few threads, not in the reactor's: argon2 is slow and takes 64 MiB by design.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from stompring.admin.api import MANAGEMENT
from stompring.errors import Refused
from stompring.security.access import (
    FREE_FAILURES,
    AccessControl,
    FairQueue,
    LoginThrottle,
    Permissions,
    VerifiedLogins,
)
from stompring.security.accounts import (
    HASHER,
    PasswordHasher,
    Roles,
    UserFiles,
    Users,
    WatchedFile,
    check_users_file,
)
from stompring.security.certificates import CertificateUsers
from stompring.session.connect import Credentials, Login
from stompring.session.destination import SHOWN, Authorizer, PermissionSource
from stompring.settings.model import BrokerConfiguration, PermissionType
from stompring.settings.network import source_network

log = logging.getLogger(__name__)

#: HTTP status of a refused login → key of ``Logins.outcomes``.
OUTCOMES = {401: "refused", 429: "throttled", 503: "overloaded", 500: "failed"}


#: Maximum number of concurrent password checks. Each one uses several cores.
CONCURRENT_CHECKS = min(4, max(1, (os.cpu_count() or 1) // 2))

#: Maximum number of queued password checks: the work of some seconds.
MAX_QUEUED_CHECKS = 100


@dataclass(frozen=True, slots=True)
class _Check:
    """A queued password check. ``generation``: `Users.generation` when the login arrived."""

    digest: bytes
    generation: int
    name: str
    password: str = field(repr=False)


@dataclass(eq=False, repr=False)
class Logins:
    """The `Authenticator` of a broker with security, for STOMP and HTTP: by password, or by a verified certificate.

    Threads verify the passwords. A verified login stays valid for ``seconds``, unless the users file changes: before
    each check ``follow`` reads changed files in a thread. ``user_of`` maps the subject of a certificate to a user.
    ``outcomes`` counts the results of logins. ``guest``: login of STOMP clients without login and passcode; None if the
    broker refuses such clients.
    """

    users: Users
    rights: PermissionSource
    follow: Callable[[], object]
    user_of: Callable[[str], str | None]
    seconds: InitVar[float]
    reactor: Any
    guest: Login | None = None
    _running = 0

    def __post_init__(self, seconds: float) -> None:
        self.outcomes: Counter[str] = Counter()
        self.verified = VerifiedLogins(seconds, self.reactor.seconds)
        self._throttle = LoginThrottle(self.reactor.seconds)
        self._waiting: dict[bytes, list[Deferred[bool]]] = {}  # by digest: identical logins share one check
        self._queue: FairQueue[_Check] = FairQueue(MAX_QUEUED_CHECKS)

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        self.log_in(credentials).addCallbacks(
            lambda login: answer(login, ""), lambda failure: answer(None, str(failure.value))
        )

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """Check credentials and count the result. Fails with `Refused`, status 401, 429, 503, or 500 (broker fault)."""
        checked: Deferred[Login | Refused] = self._check(credentials)
        return checked.addBoth(self._count, credentials.login)

    def _count(self, outcome: Login | Refused | Failure, login: str | None) -> Login | Failure:
        if isinstance(outcome, Login):
            self.outcomes["accepted"] += 1
            return outcome
        reason = outcome.value if isinstance(outcome, Failure) else outcome
        if not isinstance(reason, Refused):
            assert isinstance(outcome, Failure)
            log.error(
                "cannot check the login of user %r: %s", login, outcome.getTraceback(), extra={"user": login}
            )
            reason = Refused(
                "Security Error occurred: the login cannot be checked; see the broker's log", status=500
            )
        self.outcomes[OUTCOMES[reason.status]] += 1
        return Failure(reason)

    @inlineCallbacks
    def _check(self, credentials: Credentials) -> Any:
        """Return a `Login` or a `Refused`, which is not raised: with its traceback it would form a reference cycle."""
        login, passcode, host = credentials.login, credentials.passcode, credentials.host
        certified = None if credentials.certificate is None else self.user_of(credentials.certificate)
        if certified is not None and login not in (None, certified):
            self._failed(host)
            return Refused(
                f"Security Error occurred: the certificate is that of user [{certified}], not of "
                f"[{(login or '')[:SHOWN]}]",
                status=401,
            )
        if certified is not None and passcode is None:
            return self._login(certified)
        if self.guest is not None and login is None and passcode is None:
            return self.guest
        if login is None or passcode is None:
            subject = credentials.certificate
            if subject is None or certified is not None:
                return Refused("Security Error occurred: login and passcode are required", status=401)
            return Refused(
                f"Security Error occurred: certificate subject {subject} is not mapped to a user; "
                "login and passcode are required",
                status=401,
            )
        delay = self._throttle.delay(host)
        if delay:
            if not self._throttle.begin_delay(host):
                return Refused(
                    f"Security Error occurred: too many failed logins from {host}; try again later",
                    status=429,
                )
            yield deferLater(self.reactor, delay, self._throttle.end_delay, host)
        right: bool = yield self.verify(login, passcode, host)
        if right:
            return self._login(login)
        self._failed(host)
        return Refused(
            f"Security Error occurred: User name [{login[:SHOWN]}] or password is invalid", status=401
        )

    def _login(self, user: str) -> Login:
        return Login(user, Authorizer(user, self.rights), verified=True)

    def _failed(self, host: str) -> None:
        if self._throttle.failed(host):
            log.warning(
                "%d failed logins from %s: delaying further logins from there",
                FREE_FAILURES,
                host or "one host",
                extra={"peer": host},
            )

    # ---- passwords

    def followed(self) -> Deferred[None]:
        """Read changed files in a thread. The Deferred fires when they are read."""
        return self.in_thread(self.follow).addCallback(lambda _: None)

    def verify(self, name: str, password: str, host: str = "") -> Deferred[bool]:
        """Return whether ``password`` is the password of user ``name``. The checks of several hosts run round robin.
        Fails with `Refused` of status 503 if too many logins are waiting.
        """
        return self.followed().addCallback(lambda _: self._answer(name, password, host))

    def _answer(self, name: str, password: str, host: str) -> bool | Deferred[bool]:
        generation = self.users.generation
        digest = self.verified.digest(generation, name, password)
        if self.verified.contains(digest):
            return True
        answer: Deferred[bool] = Deferred()
        if digest in self._waiting:
            self._waiting[digest].append(answer)
            return answer
        self._waiting[digest] = [answer]
        dropped = self._queue.put(source_network(host), _Check(digest, generation, name, password))
        if dropped is not None:
            refused = Refused("Security Error occurred: too many pending logins; try again later", status=503)
            self._answer_all(dropped.digest, Failure(refused))
        self._start_checks()
        return answer

    def _start_checks(self) -> None:
        while self._queue and self._running < CONCURRENT_CHECKS:
            check = self._queue.get()
            self._running += 1
            self.in_thread(self.users.verify, check.name, check.password).addBoth(self._checked, check)

    def _checked(self, outcome: bool | Failure, check: _Check) -> None:
        self._running -= 1
        if outcome is True and check.generation == self.users.generation:
            self.verified.add(check.digest)
        self._answer_all(check.digest, outcome)
        self._start_checks()

    def _answer_all(self, digest: bytes, outcome: bool | Failure) -> None:
        for answer in self._waiting.pop(digest):
            answer.callback(outcome)  # a Failure calls the errbacks

    def in_thread(self, call: Callable[..., Any], *arguments: object) -> Deferred[Any]:
        """Call a function in a thread of the reactor's pool. The Deferred fires with the result."""
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), call, *arguments)


#: Maximum number of users that the warning about plain passwords names.
MAX_SHOWN_USERS = 10


class GuestPermissions:
    """The permissions of guests, which are those of one role. Roles of a user who has the same name do not count."""

    def __init__(self, authority: AccessControl, role: str) -> None:
        self.rejections = authority.rejections
        self._authority = authority
        self._roles = frozenset((role,))

    @property
    def generation(self) -> object:
        return self._authority.generation

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        return self._authority.permissions.allows(self._roles, permission, address, queue)


#: Minimum seconds between two checks of the files for changes, if security-invalidation-interval is shorter.
FILE_CHECK_INTERVAL = 1.0


class Security:
    """The security of a broker: users, roles, permissions, logins, and their files.

    Calls ``changed`` in the reactor's thread when permissions or roles have changed.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Any,
        changed: Callable[[], None],
        hasher: PasswordHasher = HASHER,
    ) -> None:
        """Read the files. ``hasher`` hashes new passwords. Raises `ConfigurationError` if a file cannot be read."""
        check_users_file(configuration)
        assert configuration.users_file is not None and configuration.roles_file is not None
        self.users = Users(configuration.users_file, hasher)
        self.roles = Roles(configuration.roles_file)
        certificates = configuration.certificate_users_file
        self._certificates = None if certificates is None else CertificateUsers(certificates)
        files = (self.users, self.roles, self._certificates)
        self._files: list[WatchedFile[Any]] = [file for file in files if file is not None]
        self.authority = AccessControl(Permissions.of(configuration), self.roles)
        self._changed = changed
        self._reported_generation = self.authority.generation
        interval = configuration.security_invalidation_interval / 1000
        self.logins = Logins(self.users, self.authority, self._follow_files, self._user_of, interval, reactor)
        self._use_guest(configuration)
        self._user_files = UserFiles(
            self.users.path,
            self.roles.path,
            lambda roles: self.authority.permissions.allows(roles, PermissionType.MANAGE, MANAGEMENT),
            self.certificate_subjects,
            hasher,
        )
        self._edits = DeferredLock()
        self._file_check = LoopingCall(self._check_files)
        self._file_check.clock = reactor
        self._interval = max(interval, FILE_CHECK_INTERVAL)

    def start(self) -> None:
        """Begin to check the files for changes periodically, so that a change takes effect without a login."""
        if not self.roles.path.exists():
            log.warning("roles file %s does not exist: no user has a role", self.roles.path)
        plain = self.users.plain_passwords()
        if plain:
            log.warning(
                "users file %s: %d passwords are not hashed (%s); hash each with: stompring user add --replace NAME",
                self.users.path,
                len(plain),
                ", ".join(plain[:MAX_SHOWN_USERS]) + (", …" if len(plain) > MAX_SHOWN_USERS else ""),
            )
        if not self.authority.permissions.grants_anything:
            log.warning("no <security-setting>: no user has a permission")
        self._file_check.start(self._interval, now=False)

    def stop(self) -> None:
        """Stop checking the files."""
        if self._file_check.running:
            self._file_check.stop()

    def refresh(self) -> None:
        """Read changed files again. Raises `ConfigurationError` at the first invalid file; its old contents stay."""
        for file in self._files:
            file.refresh()

    def check_files(self) -> None:
        """Parse the files without applying them. Raises `ConfigurationError`."""
        Users(self.users.path)
        Roles(self.roles.path)
        if self._certificates is not None:
            CertificateUsers(self._certificates.path)

    def use(self, configuration: BrokerConfiguration) -> None:
        """Apply a configuration that was read again."""
        self.authority.use(Permissions.of(configuration))
        self._use_guest(configuration)
        self.logins.verified.clear()
        self._report_change()

    def _use_guest(self, configuration: BrokerConfiguration) -> None:
        guest, login = configuration.guest, None
        if guest is not None:
            authorizer = Authorizer(guest.user, GuestPermissions(self.authority, guest.role))
            login = Login(guest.user, authorizer, verified=True)
        self.logins.guest = login

    def read_changes(self) -> Deferred[None]:
        """Read changed files in a thread. The Deferred fires when the changes are in effect."""
        return self.logins.followed().addCallback(lambda _: self._report_change())

    def edit_users(self, change: Callable[[UserFiles], None]) -> Deferred[None]:
        """Run a change of the files in a thread, after earlier changes. Fires when it is in effect, or fails."""

        def edit() -> None:
            change(self._user_files)
            self._follow_files()

        return self._edits.run(self.logins.in_thread, edit).addCallback(lambda _: self._report_change())

    def certificate_subjects(self) -> dict[str, str]:
        """Return the certificate subject of each user that has one."""
        if self._certificates is None:
            return {}
        return {user: subject for subject, user in self._certificates.content.items()}

    def _user_of(self, subject: str) -> str | None:
        return None if self._certificates is None else self._certificates.user_of(subject)

    def _follow_files(self) -> None:
        # this function is called in a thread
        for file in self._files:
            file.refresh_or_log()

    def _check_files(self) -> Deferred[None]:
        return self.read_changes().addErrback(
            lambda failure: log.error(
                "cannot check the users and roles files for changes: %s", failure.getTraceback()
            )
        )

    def _report_change(self) -> None:
        if self.authority.generation != self._reported_generation:
            self._reported_generation = self.authority.generation
            self._changed()
