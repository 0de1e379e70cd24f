"""Logins: passwords, certificates, the throttle, the line of checks."""

import pytest
from twisted.internet.defer import fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from stompring.security.access import (
    FREE_FAILURES,
    MAX_DELAYED,
    AccessControl,
    FairQueue,
    LoginThrottle,
    Permissions,
    VerifiedLogins,
)
from stompring.security.accounts import Roles
from stompring.server import authentication
from stompring.server.authentication import (
    GuestPermissions,
    Logins,
    Overloaded,
    PasswordVerifier,
)
from stompring.session.connect import Credentials, Login
from stompring.session.destination import ALLOW_ALL as FREE_PERMIT
from stompring.session.destination import Authorizer
from stompring.settings.model import PermissionType, SecuritySettingEntry

INVALID = "Security Error occurred: User name [me] or password is invalid"
REQUIRED = "Security Error occurred: login and passcode are required"


class Passwords:
    """Answers at once, or not at all."""

    def __init__(self):
        self.checked = 0
        self.hosts = []
        self.failing = None

    def verify(self, name, password, host=""):
        self.hosts.append(host)
        self.checked += 1
        if self.failing is not None:
            return fail(self.failing)
        return succeed((name, password) == ("me", "pass:wörd"))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def passwords():
    return Passwords()


@pytest.fixture
def logins(clock, passwords, tmp_path):
    authority = AccessControl(Permissions(), Roles(tmp_path / "none"))
    certificates = {"CN=me": "me", "CN=you": "you"}
    return Logins(authority, passwords, LoginThrottle(clock.seconds), clock, certificates.get)


@pytest.fixture
def answers():
    return []


@pytest.fixture
def begin(logins, answers):
    """Asks, and waits for no answer."""

    def ask(login, passcode, host="192.0.2.1", certificate=None):
        credentials = Credentials(login, passcode, host, certificate)
        logins.authenticate(credentials, lambda *answer: answers.append(answer))

    return ask


@pytest.fixture
def ask(begin, answers):
    """Asks, and returns the answer."""

    def answered(login, passcode, certificate=None):
        answers.clear()
        begin(login, passcode, certificate=certificate)
        (answer,) = answers
        return answer

    return answered


def fail_often(ask):
    for _ in range(FREE_FAILURES):
        ask("me", "no")


def test_right(ask, passwords, logins):
    login, reason = ask("me", "pass:wörd")
    assert (login, reason) == (Login("me"), "")
    assert not login.authorizer.allows_all
    assert login.authorizer.user == "me"
    assert FREE_PERMIT.allows_all
    assert logins.outcomes == {"accepted": 1}
    assert passwords.hosts == ["192.0.2.1"]


def test_wrong(ask, logins):
    assert ask("me", "no") == (None, INVALID)
    assert logins.outcomes == {"refused": 1}


def test_nothing_given(ask, passwords):
    for login, passcode in ((None, "x"), ("me", None), (None, None)):
        assert ask(login, passcode) == (None, REQUIRED)
    assert passwords.checked == 0


def test_a_checker_that_fails(ask, passwords, logins, caplog):
    passwords.failing = OSError("disk")
    login, reason = ask("me", "m4rker")
    assert login is None
    assert "cannot be checked; see the broker's log" in reason
    assert caplog.records and "m4rker" not in caplog.text
    assert logins.outcomes == {"failed": 1}


def test_too_many_checks(ask, passwords, logins):
    passwords.failing = Overloaded("too many", status=503)
    assert ask("me", "x") == (None, "too many")
    assert logins.outcomes == {"overloaded": 1}


# ---- guests


def test_a_client_without_login_is_the_guest_where_there_is_one(ask, logins, tmp_path):
    entry = SecuritySettingEntry("#", {PermissionType.SEND: frozenset({"guests"})})
    path = tmp_path / "roles"
    path.write_text("admins = visitor")
    authority = AccessControl(Permissions((entry,)), Roles(path))
    logins.guest = Login("visitor", Authorizer("visitor", GuestPermissions(authority, "guests")))
    login, _ = ask(None, None)
    assert login is not None and login.user == "visitor"
    assert login.authorizer.allows(PermissionType.SEND, "a")
    assert not login.authorizer.allows(PermissionType.CONSUME, "a")
    assert not authority.allows("visitor", PermissionType.SEND, "a"), "roles of a user are not the guest's"


def test_a_wrong_or_half_login_does_not_become_the_guest(ask, logins):
    logins.guest = Login("visitor")
    assert ask("me", "no") == (None, INVALID)
    for login, passcode in ((None, "x"), ("me", None)):
        assert ask(login, passcode) == (None, REQUIRED)


# ---- certificates


def test_a_certificate_needs_no_passcode(ask, passwords):
    for login in (None, "me"):
        assert ask(login, None, "CN=me") == (Login("me"), "")
    assert passwords.checked == 0


def test_a_passcode_beside_it_must_be_right(ask):
    assert ask("me", "pass:wörd", "CN=me") == (Login("me"), "")
    assert ask("me", "no", "CN=me") == (None, INVALID)


def test_a_login_beside_it_must_be_its_user(ask, passwords):
    reason = "Security Error occurred: the certificate is that of user [you], not of [me]"
    for passcode in (None, "pass:wörd"):
        assert ask("me", passcode, "CN=you") == (None, reason)
    assert passwords.checked == 0


def test_one_that_nobody_has_is_none(ask):
    assert ask("me", "pass:wörd", "CN=other") == (Login("me"), "")
    reason = (
        "Security Error occurred: certificate subject CN=other is not mapped to a user; "
        "login and passcode are required"
    )
    assert ask(None, None, "CN=other") == (None, reason)
    assert ask("me", None, "CN=other") == (None, reason)


def test_a_passcode_without_a_login_beside_it(ask):
    assert ask(None, "x", "CN=me") == (None, REQUIRED)


# ---- the throttle


def test_who_fails_often_waits_before_anything_is_checked(ask, begin, answers, clock, passwords):
    fail_often(ask)
    answers.clear()
    checked = passwords.checked
    begin("me", "pass:wörd")
    begin("me", "pass:wörd", host="192.0.2.2")
    assert len(answers) == 1, "others do not wait"
    clock.advance(0.2)
    assert (len(answers), passwords.checked) == (1, checked + 1)
    clock.advance(0.1)
    assert answers == [(Login("me"), "")] * 2
    begin("me", "no")
    clock.advance(0.3)
    begin("me", "no")
    clock.advance(0.3)
    assert len(answers) == 3, "twice as long now"
    clock.advance(0.3)
    assert len(answers) == 4


def test_so_many_wait_and_others_are_refused(ask, begin, answers, clock, logins):
    fail_often(ask)
    answers.clear()
    for _ in range(MAX_DELAYED + 1):
        begin("me", "pass:wörd")
    reason = "Security Error occurred: too many failed logins from 192.0.2.1; try again later"
    assert answers == [(None, reason)]
    clock.advance(1)
    assert answers[1:] == [(Login("me"), "")] * MAX_DELAYED
    assert logins.outcomes["throttled"] == 1


def test_a_certificate_does_not_wait(ask):
    fail_often(ask)
    assert ask(None, None, "CN=me") == (Login("me"), "")


class Reactor(Clock):
    """With a pool of threads, whose work is done when a test says so."""

    def __init__(self):
        super().__init__()
        self.work = []

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

    def getThreadPool(self):
        return self

    def callFromThread(self, call, *arguments):
        call(*arguments)


class Users:
    """One user, and how often somebody asked."""

    def __init__(self):
        self.generation = 1
        self.fault = None
        self.checks = []

    def verify(self, name, password):
        self.checks.append((name, password))
        if self.fault is not None:
            raise self.fault
        return password == "right"


@pytest.fixture
def reactor():
    return Reactor()


@pytest.fixture
def users():
    return Users()


@pytest.fixture
def followed():
    """How often the files were looked at."""
    return []


@pytest.fixture
def checking(monkeypatch, reactor, users, followed):
    monkeypatch.setattr(authentication, "CONCURRENT_CHECKS", 2)
    remembered = VerifiedLogins(10, reactor.seconds)
    return PasswordVerifier(users, remembered, lambda: followed.append(1), reactor)


@pytest.fixture
def verify(checking, answers):
    def ask(name, password="right", host="192.0.2.1"):
        checking.verify(name, password, host).addBoth(answers.append)

    return ask


def test_few_at_a_time_and_in_their_turn(verify, answers, reactor, users, followed):
    for number in range(5):
        verify(f"user{number}")
    reactor.run(5)  # the files are looked at
    assert (len(followed), len(reactor.work)) == (5, 2)
    reactor.run(1)
    assert (len(answers), len(reactor.work)) == (1, 2)
    reactor.run()
    assert answers == [True] * 5
    assert [name for name, _ in users.checks] == [f"user{number}" for number in range(5)]


def test_one_who_asks_for_many_keeps_nobody_else_waiting(verify, reactor, users):
    for number in range(10):
        verify(f"many{number}")
    verify("one", host="192.0.2.2")
    reactor.run()
    assert [name for name, _ in users.checks].index("one") == 3, "two were at work already"


def test_the_same_question_is_asked_once(verify, answers, reactor, users):
    for _ in range(50):
        verify("me")
        verify("me", "wrong")
    reactor.run()
    assert len(users.checks) == 2
    assert (answers.count(True), answers.count(False)) == (50, 50)


def test_what_was_right_is_remembered_and_what_was_wrong_is_not(verify, reactor, users):
    for _ in range(3):
        verify("me")
        verify("me", "wrong")
        reactor.run()
    assert users.checks.count(("me", "right")) == 1
    assert users.checks.count(("me", "wrong")) == 3
    reactor.advance(10)
    verify("me")
    reactor.run()
    assert users.checks.count(("me", "right")) == 2


def test_another_file_is_asked_anew(verify, reactor, users):
    verify("me")
    reactor.run()
    users.generation += 1
    verify("me")
    reactor.run()
    assert len(users.checks) == 2


def test_a_file_that_changes_meanwhile_leaves_nothing(verify, reactor, users):
    verify("me")
    reactor.run(1)
    users.generation += 1
    reactor.run()
    users.generation -= 1
    verify("me")
    reactor.run()
    assert len(users.checks) == 2


def test_too_many_are_refused(verify, answers, reactor, checking):
    checking._queue = FairQueue(3)
    for number in range(7):
        verify(f"user{number}")
    reactor.run()
    refused = [answer for answer in answers if answer is not True]
    assert (len(answers), len(refused)) == (7, 2)
    for failure in refused:
        assert "too many pending logins" in str(failure.trap(Overloaded) and failure.value)


def test_a_check_that_fails_is_told_and_the_next_goes_on(verify, answers, reactor, users):
    users.fault = OSError("disk")
    for name in ("a", "b", "c"):
        verify(name)
    reactor.run()
    assert [answer.check(OSError) for answer in answers] == [OSError] * 3
