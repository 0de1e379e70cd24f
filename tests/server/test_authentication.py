"""Logins: passwords, certificates, the throttle, the line of checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from stompring.security.access_control import AccessControl, Permissions
from stompring.security.login import FREE_FAILURES, MAX_DELAYED, FairQueue, LoginThrottle, VerifiedLogins
from stompring.security.roles import Roles
from stompring.server import authentication
from stompring.server.authentication import (
    GuestPermissions,
    Logins,
    Overloaded,
    PasswordVerifier,
)
from stompring.session.connect import Credentials, Login
from stompring.session.permissions import ALLOW_ALL as FREE_PERMIT
from stompring.session.permissions import Authorizer
from stompring.settings.model import PermissionType, SecuritySettingEntry

INVALID = "Security Error occurred: User name [me] or password is invalid"
REQUIRED = "Security Error occurred: login and passcode are required"


class Passwords:
    """Answers at once, or not at all."""

    def __init__(self):
        self.checked = 0
        self.hosts: list[str] = []
        self.failing: Exception | None = None

    def verify(self, name, password, host=""):
        self.hosts.append(host)
        self.checked += 1
        if self.failing is not None:
            return fail(self.failing)
        return succeed((name, password) == ("me", "pass:wörd"))


class LoginsTest(TestCase):
    def setUp(self):
        self.clock = Clock()
        self.passwords = Passwords()
        authority = AccessControl(Permissions(), Roles(Path(self.mktemp())))
        certificates = {"CN=me": "me", "CN=you": "you"}
        self.logins = Logins(
            authority, self.passwords, LoginThrottle(self.clock.seconds), self.clock, certificates.get
        )
        self.answers: list[tuple[Login | None, str]] = []

    def begin(self, login, passcode, host="192.0.2.1", certificate=None):
        credentials = Credentials(login, passcode, host, certificate)
        self.logins.authenticate(credentials, lambda *answer: self.answers.append(answer))

    def ask(self, login, passcode, certificate=None):
        self.answers.clear()
        self.begin(login, passcode, certificate=certificate)
        (answer,) = self.answers
        return answer

    def test_right(self):
        login, reason = self.ask("me", "pass:wörd")
        assert login is not None
        assert (login, reason) == (Login("me"), "")
        assert not login.authorizer.allows_all
        assert login.authorizer.user == "me"
        assert FREE_PERMIT.allows_all
        assert self.logins.outcomes == {"accepted": 1}
        assert self.passwords.hosts == ["192.0.2.1"]

    def test_wrong(self):
        assert self.ask("me", "no") == (None, INVALID)
        assert self.logins.outcomes == {"refused": 1}

    def test_nothing_given(self):
        for login, passcode in ((None, "x"), ("me", None), (None, None)):
            assert self.ask(login, passcode) == (None, REQUIRED)
        assert self.passwords.checked == 0

    def test_a_checker_that_fails(self):
        self.passwords.failing = OSError("disk")
        with self.assertLogs("stompring", "ERROR") as logged:
            login, reason = self.ask("me", "m4rker")
        assert login is None
        assert "cannot be checked; see the broker's log" in reason
        assert "m4rker" not in "\n".join(logged.output)
        assert self.logins.outcomes == {"failed": 1}

    def test_too_many_checks(self):
        self.passwords.failing = Overloaded("too many", status=503)
        assert self.ask("me", "x") == (None, "too many")
        assert self.logins.outcomes == {"overloaded": 1}

    # ---- guests

    def test_a_client_without_login_is_the_guest_where_there_is_one(self):
        entry = SecuritySettingEntry("#", {PermissionType.SEND: frozenset({"guests"})})
        path = Path(self.mktemp())
        path.write_text("admins = visitor")
        authority = AccessControl(Permissions((entry,)), Roles(path))
        self.logins.guest = Login("visitor", Authorizer("visitor", GuestPermissions(authority, "guests")))
        login, _ = self.ask(None, None)
        assert login is not None and login.user == "visitor"
        assert login.authorizer.allows(PermissionType.SEND, "a")
        assert not login.authorizer.allows(PermissionType.CONSUME, "a")
        assert not authority.allows("visitor", PermissionType.SEND, "a"), (
            "roles of a user are not the guest's"
        )

    def test_a_wrong_or_half_login_does_not_become_the_guest(self):
        self.logins.guest = Login("visitor")
        assert self.ask("me", "no") == (None, INVALID)
        for login, passcode in ((None, "x"), ("me", None)):
            assert self.ask(login, passcode) == (None, REQUIRED)

    # ---- certificates

    def test_a_certificate_needs_no_passcode(self):
        for login in (None, "me"):
            assert self.ask(login, None, "CN=me") == (Login("me"), "")
        assert self.passwords.checked == 0

    def test_a_passcode_beside_it_must_be_right(self):
        assert self.ask("me", "pass:wörd", "CN=me") == (Login("me"), "")
        assert self.ask("me", "no", "CN=me") == (None, INVALID)

    def test_a_login_beside_it_must_be_its_user(self):
        reason = "Security Error occurred: the certificate is that of user [you], not of [me]"
        for passcode in (None, "pass:wörd"):
            assert self.ask("me", passcode, "CN=you") == (None, reason)
        assert self.passwords.checked == 0

    def test_one_that_nobody_has_is_none(self):
        assert self.ask("me", "pass:wörd", "CN=other") == (Login("me"), "")
        reason = (
            "Security Error occurred: certificate subject CN=other is not mapped to a user; "
            "login and passcode are required"
        )
        assert self.ask(None, None, "CN=other") == (None, reason)
        assert self.ask("me", None, "CN=other") == (None, reason)

    def test_a_passcode_without_a_login_beside_it(self):
        assert self.ask(None, "x", "CN=me") == (None, REQUIRED)

    # ---- the throttle

    def fail_often(self):
        with self.assertLogs("stompring", "WARNING"):
            for _ in range(FREE_FAILURES):
                self.ask("me", "no")

    def test_who_fails_often_waits_before_anything_is_checked(self):
        self.fail_often()
        self.answers.clear()
        checked = self.passwords.checked
        self.begin("me", "pass:wörd")
        self.begin("me", "pass:wörd", host="192.0.2.2")
        assert len(self.answers) == 1, "others do not wait"
        self.clock.advance(0.2)
        assert (len(self.answers), self.passwords.checked) == (1, checked + 1)
        self.clock.advance(0.1)
        assert self.answers == [(Login("me"), "")] * 2
        self.begin("me", "no")
        self.clock.advance(0.3)
        self.begin("me", "no")
        self.clock.advance(0.3)
        assert len(self.answers) == 3, "twice as long now"
        self.clock.advance(0.3)
        assert len(self.answers) == 4

    def test_so_many_wait_and_others_are_refused(self):
        self.fail_often()
        self.answers.clear()
        for _ in range(MAX_DELAYED + 1):
            self.begin("me", "pass:wörd")
        reason = "Security Error occurred: too many failed logins from 192.0.2.1; try again later"
        assert self.answers == [(None, reason)]
        self.clock.advance(1)
        assert self.answers[1:] == [(Login("me"), "")] * MAX_DELAYED
        assert self.logins.outcomes["throttled"] == 1

    def test_a_certificate_does_not_wait(self):
        self.fail_often()
        assert self.ask(None, None, "CN=me") == (Login("me"), "")


class Pool:
    """A thread pool in which work is done when a test says so."""

    def __init__(self):
        self.work: list[Callable[[], None]] = []

    def callInThreadWithCallback(self, done, call, *a):
        def work():
            try:
                outcome = True, call(*a)
            except OSError:
                outcome = False, Failure()
            done(*outcome)

        self.work.append(work)

    def run(self, count=-1):
        while self.work and count:
            self.work.pop(0)()
            count -= 1


class Reactor(Clock):
    """With a pool of threads."""

    def __init__(self):
        super().__init__()
        self.pool = Pool()

    def getThreadPool(self):
        return self.pool

    def callFromThread(self, call, *arguments):
        call(*arguments)


class Users:
    """One user, and how often somebody asked."""

    def __init__(self):
        self.generation = 1
        self.fault: OSError | None = None
        self.checks: list[tuple[str, str]] = []

    def verify(self, name, password):
        self.checks.append((name, password))
        if self.fault is not None:
            raise self.fault
        return password == "right"


class VerificationTest(TestCase):
    def setUp(self):
        self.reactor, self.users = Reactor(), Users()
        self.followed = 0
        self.checking = PasswordVerifier(
            self.users,
            VerifiedLogins(10, self.reactor.seconds),
            self.follow,
            self.reactor,
        )
        self.patch(authentication, "CONCURRENT_CHECKS", 2)
        self.answers: list[Any] = []

    def follow(self):
        self.followed += 1

    def ask(self, name, password="right", host="192.0.2.1"):
        self.checking.verify(name, password, host).addBoth(self.answers.append)

    def test_few_at_a_time_and_in_their_turn(self):
        for number in range(5):
            self.ask(f"user{number}")
        self.reactor.pool.run(5)  # the files are looked at
        assert (self.followed, len(self.reactor.pool.work)) == (5, 2)
        self.reactor.pool.run(1)
        assert (len(self.answers), len(self.reactor.pool.work)) == (1, 2)
        self.reactor.pool.run()
        assert self.answers == [True] * 5
        assert [name for name, _ in self.users.checks] == [f"user{number}" for number in range(5)]

    def test_one_who_asks_for_many_keeps_nobody_else_waiting(self):
        for number in range(10):
            self.ask(f"many{number}")
        self.ask("one", host="192.0.2.2")
        self.reactor.pool.run()
        assert [name for name, _ in self.users.checks].index("one") == 3, "two were at work already"

    def test_the_same_question_is_asked_once(self):
        for _ in range(50):
            self.ask("me")
            self.ask("me", "wrong")
        self.reactor.pool.run()
        assert len(self.users.checks) == 2
        assert (self.answers.count(True), self.answers.count(False)) == (50, 50)

    def test_what_was_right_is_remembered_and_what_was_wrong_is_not(self):
        for _ in range(3):
            self.ask("me")
            self.ask("me", "wrong")
            self.reactor.pool.run()
        assert self.users.checks.count(("me", "right")) == 1
        assert self.users.checks.count(("me", "wrong")) == 3
        self.reactor.advance(10)
        self.ask("me")
        self.reactor.pool.run()
        assert self.users.checks.count(("me", "right")) == 2

    def test_another_file_is_asked_anew(self):
        self.ask("me")
        self.reactor.pool.run()
        self.users.generation += 1
        self.ask("me")
        self.reactor.pool.run()
        assert len(self.users.checks) == 2

    def test_a_file_that_changes_meanwhile_leaves_nothing(self):
        self.ask("me")
        self.reactor.pool.run(1)
        self.users.generation += 1
        self.reactor.pool.run()
        self.users.generation -= 1
        self.ask("me")
        self.reactor.pool.run()
        assert len(self.users.checks) == 2

    def test_too_many_are_refused(self):
        self.checking._queue = FairQueue(3)
        for number in range(7):
            self.ask(f"user{number}")
        self.reactor.pool.run()
        refused = [answer for answer in self.answers if answer is not True]
        assert (len(self.answers), len(refused)) == (7, 2)
        for failure in refused:
            assert "too many pending logins" in str(failure.trap(Overloaded) and failure.value)

    def test_a_check_that_fails_is_told_and_the_next_goes_on(self):
        self.users.fault = OSError("disk")
        for name in ("a", "b", "c"):
            self.ask(name)
        self.reactor.pool.run()
        assert [answer.check(OSError) for answer in self.answers] == [OSError] * 3
