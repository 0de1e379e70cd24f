"""Authentication: logins by password, token or client certificate, the login throttle, and the files with the users.

The broker verifies passwords in a few threads, not in the reactor's thread: argon2 is slow and takes 64 MiB by design,
and a directory (LDAP) is a server that may not answer.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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
    Identity,
    LoginSource,
    LoginThrottle,
    Permissions,
    VerifiedLogins,
    is_token,
)
from stompring.security.accounts import (
    HASHER,
    NO_ROLES,
    PasswordHasher,
    Roles,
    UserFiles,
    Users,
    WatchedFile,
    check_users_file,
)
from stompring.security.sources import open_source
from stompring.session.connect import Credentials, Login
from stompring.session.destination import SHOWN, Authorizer, PermissionSource
from stompring.settings.model import (
    AnyLogin,
    BrokerConfiguration,
    LoginFlag,
    LoginModule,
    PermissionType,
    frozen,
)
from stompring.settings.network import source_network

if TYPE_CHECKING:
    from stompring.security.certificates import CertificateUsers

log = logging.getLogger(__name__)

#: HTTP status of a refused login → key of ``Logins.outcomes``.
OUTCOMES = {401: "refused", 429: "throttled", 503: "overloaded", 502: "failed", 500: "failed"}


#: Maximum number of concurrent password checks. Each one uses several cores.
CONCURRENT_CHECKS = min(4, max(1, (os.cpu_count() or 1) // 2))

#: Maximum number of queued password checks. So many checks take some seconds.
MAX_QUEUED_CHECKS = 100


@frozen
class _Check:
    """A queued check of a login. ``generation``: generation of the users file when the login arrived."""

    digest: bytes
    generation: int
    name: str
    password: str = field(repr=False)


class Checks:
    """Checks logins in threads, at most ``limit`` at a time. Other logins wait in a queue, which serves hosts in turn.

    Identical waiting logins share one check. ``generation`` returns a number that changes with the users file. After a
    change the logins in ``verified`` are checked again.
    """

    _running = 0

    def __init__(
        self,
        check: Callable[[str, str], Identity | None],
        verified: VerifiedLogins,
        reactor: Any,
        limit: int = CONCURRENT_CHECKS,
        generation: Callable[[], int] = int,
    ) -> None:
        self._check, self._limit, self._generation, self._reactor = check, limit, generation, reactor
        self.verified = verified
        self._waiting: dict[bytes, list[Deferred[Identity | None]]] = {}  # by digest
        self._queue: FairQueue[_Check] = FairQueue(MAX_QUEUED_CHECKS)

    def verify(self, name: str, password: str, host: str) -> Identity | None | Deferred[Identity | None]:
        """Return the user with this name and password, None for a wrong login; a Deferred unless the result is cached.

        The Deferred fails with `Refused`, for example with status 503 if too many logins are waiting.
        """
        generation = self._generation()
        digest = self.verified.digest(generation, name, password)
        known = self.verified.get(digest)
        if known is not None:
            return known
        answer: Deferred[Identity | None] = Deferred()
        if digest in self._waiting:
            self._waiting[digest].append(answer)
            return answer
        self._waiting[digest] = [answer]
        dropped = self._queue.put(source_network(host), _Check(digest, generation, name, password))
        if dropped is not None:
            refused = Refused("Security Error occurred: too many pending logins; try again later", status=503)
            self._answer_all(dropped.digest, Failure(refused))
        self._start()
        return answer

    def _start(self) -> None:
        while self._queue and self._running < self._limit:
            check = self._queue.get()
            self._running += 1
            pool = self._reactor.getThreadPool()
            done = deferToThreadPool(self._reactor, pool, self._check, check.name, check.password)
            done.addBoth(self._checked, check)

    def _checked(self, outcome: Identity | None | Failure, check: _Check) -> None:
        self._running -= 1
        if isinstance(outcome, Identity) and check.generation == self._generation():
            self.verified.add(check.digest, outcome)
        self._answer_all(check.digest, outcome)
        self._start()

    def _answer_all(self, digest: bytes, outcome: Identity | None | Failure) -> None:
        for answer in self._waiting.pop(digest):
            answer.callback(outcome)  # if ``outcome`` is a Failure, this calls the errbacks


#: Source of the logins that the broker checks with its own files.
FILES = LoginSource("files")


class _Module(NamedTuple):
    """A login module. ``checks`` is None for client certificates."""

    flag: LoginFlag
    checks: Checks | None = None
    source: LoginSource = FILES


@dataclass(eq=False, repr=False)
class Logins:
    """The `Authenticator` of a broker with security, for STOMP and HTTP: by password, or by a verified certificate.

    The ``modules`` check a login in their order, and their flags decide on the result. Threads verify passwords. A
    verified login stays valid for ``seconds``, unless the users file changes: before each check ``follow`` reads
    changed files in a thread. ``user_of`` maps the subject of a certificate to a user. ``outcomes`` counts the results
    of logins. ``guest``: login of STOMP clients without login and passcode; None if the broker refuses such clients.
    """

    users: Users
    rights: AccessControl
    follow: Callable[[], object]
    user_of: Callable[[str], str | None]
    seconds: InitVar[float]
    reactor: Any
    guest: Login | None = None
    wall: Callable[[], float] = time.time

    def __post_init__(self, seconds: float) -> None:
        self.outcomes: Counter[str] = Counter()
        self._throttle = LoginThrottle(self.reactor.seconds)
        self._passwords = Checks(
            lambda name, password: Identity(name) if self.users.verify(name, password) else None,
            VerifiedLogins(seconds, self.reactor.seconds),
            self.reactor,
            generation=lambda: self.users.generation,
        )
        self.modules: list[_Module] = []

    def read_modules(self, configuration: BrokerConfiguration) -> list[_Module]:
        """Return the modules of a configuration. Raises `ConfigurationError`."""
        wanted = configuration.login_modules or (LoginModule("properties"),)
        modules = [self._module(each, configuration.file) for each in wanted]
        if all(each.checks is not None for each in modules):
            modules.insert(0, _Module(LoginFlag.SUFFICIENT))
        return modules

    def use(self, modules: list[_Module]) -> None:
        """Use these modules from now on, and verify each login again."""
        self.modules = modules
        self._passwords.verified.clear()

    @property
    def has_sources(self) -> bool:
        """Whether a login module uses directories or tokens, not the broker's own files."""
        return any(module.source is not FILES for module in self.modules)

    @property
    def fault(self) -> str | None:
        """The reason why a directory or the keys of tokens failed at the last attempt; None if none of them failed."""
        return next(filter(None, (each.source.fault for each in self.modules)), None)

    def _module(self, settings: AnyLogin, file: str | None) -> _Module:
        if isinstance(settings, LoginModule):
            return _Module(settings.flag, None if settings.kind == "certificate" else self._passwords)
        now = self.reactor.seconds
        source = open_source(settings, now, self.wall, file)
        verified = VerifiedLogins(source.cache_time / 1000, now, prolong=False)
        return _Module(
            settings.flag, Checks(source.check, verified, self.reactor, settings.max_logins), source
        )

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        self.log_in(credentials).addCallbacks(
            lambda login: answer(login, ""), lambda failure: answer(None, str(failure.value))
        )

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """Check credentials and count the result.

        Fails with `Refused`: status 401, 429, 503, 502 (directory or keys of tokens), or 500 (fault of the broker).
        """
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
        """Return a `Login` or a `Refused`. To raise the `Refused` would form a reference cycle with its traceback."""
        login, passcode, host = credentials.login, credentials.passcode, credentials.host
        certified = None if credentials.certificate is None else self.user_of(credentials.certificate)
        if certified is not None and login not in (None, certified):
            self._failed(host)
            return Refused(
                f"Security Error occurred: the certificate is that of user [{certified}], not of "
                f"[{(login or '')[:SHOWN]}]",
                status=401,
            )
        if self.guest is not None and login is None and passcode is None and certified is None:
            return self.guest
        token = passcode is not None and is_token(passcode)
        token = token and any(module.source.takes_tokens for module in self.modules)
        if certified is None if passcode is None else login is None and not token:
            subject = credentials.certificate
            if subject is None or certified is not None:
                return Refused("Security Error occurred: login and passcode are required", status=401)
            return Refused(
                f"Security Error occurred: certificate subject {subject} is not mapped to a user; "
                "login and passcode are required",
                status=401,
            )
        delay = 0.0 if passcode is None else self._throttle.delay(host)
        if delay:
            if not self._throttle.begin_delay(host):
                return Refused(
                    f"Security Error occurred: too many failed logins from {host}; try again later",
                    status=429,
                )
            yield deferLater(self.reactor, delay, self._throttle.end_delay, host)
        outcome: Login | Refused = yield self._run(login, passcode, host, certified, token)
        if isinstance(outcome, Refused) and outcome.status == 401:
            self._failed(host)
        return outcome

    @inlineCallbacks
    def _run(
        self, login: str | None, passcode: str | None, host: str, certified: str | None, token: bool
    ) -> Any:
        """Ask the modules in their order. Return the `Login` or `Refused` that follows from their outcomes and flags.

        ``token``: whether the passcode is a token. If so, only the modules for tokens check it; it names the user.
        """
        found: list[Identity] = []
        failed = False
        refused = Refused(
            f"Security Error occurred: User name [{(login or '')[:SHOWN]}] or password is invalid", status=401
        )
        modules = self.modules
        for module in modules:
            if not module.source.authenticates:
                continue
            must = module.flag in (LoginFlag.REQUIRED, LoginFlag.REQUISITE)
            outcome: Identity | Refused | None
            if module.checks is None:
                # if the client also sends a password, its certificate is not enough, unless the module is required
                sufficient = certified is not None and (must or passcode is None)
                outcome = Identity(certified or "") if sufficient else None
            elif token is not module.source.takes_tokens:
                outcome = None
            else:
                outcome = yield self._outcome(module.checks, "" if token else login, passcode, host)
            if isinstance(outcome, Identity):
                found.append(outcome)
                if module.flag is LoginFlag.SUFFICIENT and not failed:
                    break
                continue
            if outcome is not None and refused.status == 401:
                refused = outcome
            failed = failed or must
            if module.flag is LoginFlag.REQUISITE:
                break
        if failed or not found:
            return refused
        user = found[0].user
        for module in modules:
            if module.checks is not None and not module.source.authenticates:
                outcome = yield self._outcome(module.checks, user, "", host)
                if isinstance(outcome, Identity):
                    found.append(outcome)
                elif module.flag is not LoginFlag.OPTIONAL:
                    return outcome or refused
        if any(each.user != user for each in found) or certified not in (None, user):
            return Refused("Security Error occurred: the login modules name different users", status=401)
        return self._login(user, found)

    @inlineCallbacks
    def _outcome(self, checks: Checks, login: str | None, passcode: str | None, host: str) -> Any:
        """Return the user, None for a wrong login, or the `Refused` with the reason why the login was not checked."""
        if login is None or passcode is None:
            return None
        try:
            if checks is self._passwords:
                yield self.followed()
            found: Identity | None = yield checks.verify(login, passcode, host)
        except Refused as refused:
            return refused.with_traceback(None)
        if found and found.expires is not None and found.expires <= self.wall():
            return Refused("Security Error occurred: the token is not accepted: it has expired", status=401)
        return found

    def _login(self, user: str, found: list[Identity]) -> Login:
        rights: PermissionSource = self.rights
        roles = frozenset(role for each in found for role in each.roles or ())
        end = min((each.expires for each in found if each.expires is not None), default=None)
        if any(each.roles is not None for each in found):
            with_file = any(each.roles is None for each in found)
            rights = LoginPermissions(
                self.rights, roles, with_file, lambda: end is not None and end <= self.wall()
            )
        expires = None if end is None else int(end * 1000)
        return Login(user, Authorizer(user, rights), verified=True, expires=expires)

    def _failed(self, host: str) -> None:
        if self._throttle.failed(host):
            log.warning(
                "%d failed logins from %s: delaying further logins from there",
                FREE_FAILURES,
                host or "one host",
                extra={"peer": host},
            )

    def followed(self) -> Deferred[None]:
        """Read changed files in a thread. The Deferred fires when they are read."""
        return self.in_thread(self.follow).addCallback(lambda _: None)

    def in_thread(self, call: Callable[..., Any], *arguments: object) -> Deferred[Any]:
        """Call a function in a thread of the reactor's pool. The Deferred fires with the result."""
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), call, *arguments)


#: Maximum number of users that the warning about plain passwords names.
MAX_SHOWN_USERS = 10


class LoginPermissions:
    """The permissions of a login with ``roles`` of its own. They end when ``ended`` returns True.

    ``with_file``: whether the user also has the roles of the roles file.
    """

    def __init__(
        self,
        authority: AccessControl,
        roles: frozenset[str],
        with_file: bool = False,
        ended: Callable[[], bool] = bool,
    ) -> None:
        self.rejections = authority.rejections
        self._authority = authority
        self._roles = roles
        self._with_file = with_file
        self._ended = ended

    @property
    def generation(self) -> object:
        return self._authority.generation, self._ended()

    def roles_of(self, user: str) -> frozenset[str]:
        if self._ended():
            return NO_ROLES
        return self._roles | self._authority.roles_of(user) if self._with_file else self._roles

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        return self._authority.permissions.allows(self.roles_of(user), permission, address, queue)


def _certificate_users(path: Any) -> CertificateUsers:
    from stompring.security.certificates import CertificateUsers  # its libraries take 20 MB

    return CertificateUsers(path)


#: Minimum seconds between two checks of the files for changes, even if security-invalidation-interval is shorter.
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
        optional = not configuration.uses_users_file
        self.users = Users(configuration.users_file, hasher, optional=optional)
        self.roles = Roles(configuration.roles_file)
        certificates = configuration.certificate_users_file
        self._certificates = None if certificates is None else _certificate_users(certificates)
        files = (self.users, self.roles, self._certificates)
        self._files: list[WatchedFile[Any]] = [file for file in files if file is not None]
        self.authority = AccessControl(Permissions.of(configuration), self.roles)
        self._changed = changed
        self._reported_generation = self.authority.generation
        interval = configuration.security_invalidation_interval / 1000
        self.logins = Logins(self.users, self.authority, self._follow_files, self._user_of, interval, reactor)
        self._use_logins(configuration, self.logins.read_modules(configuration))
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
        if not self.roles.path.exists() and not self.logins.has_sources:
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
        Users(self.users.path, optional=True)
        Roles(self.roles.path)
        if self._certificates is not None:
            _certificate_users(self._certificates.path)

    def use(self, configuration: BrokerConfiguration, modules: list[_Module] | None = None) -> None:
        """Apply a new configuration. ``modules``: its login modules, if the caller has already read them."""
        self.authority.use(Permissions.of(configuration))
        self._use_logins(configuration, modules or self.logins.read_modules(configuration))
        self._report_change()

    def _use_logins(self, configuration: BrokerConfiguration, modules: list[_Module]) -> None:
        self.logins.use(modules)
        guest, login = configuration.guest, None
        if guest is not None:
            authorizer = Authorizer(guest.user, LoginPermissions(self.authority, frozenset((guest.role,))))
            login = Login(guest.user, authorizer, verified=True)
        self.logins.guest = login

    def read_changes(self) -> Deferred[None]:
        """Read changed files in a thread. The Deferred fires when the changes are in effect."""
        return self.logins.followed().addCallback(lambda _: self._report_change())

    def edit_users(self, change: Callable[[UserFiles], None]) -> Deferred[None]:
        """Change the files in a thread, after earlier changes. The Deferred fires when the change is in effect."""

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
        # called in a thread, because reading files blocks
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
