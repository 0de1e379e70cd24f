"""Logins: passwords, certificates, the throttle, the line of checks."""

import json
import os
from dataclasses import replace

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from joserfc.jwk import ECKey, KeySet
from joserfc.jwt import encode
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from stompring.security.access import FREE_FAILURES, MAX_DELAYED
from stompring.server.service import BrokerService
from stompring.session.connect import Credentials, Login
from stompring.session.destination import ALLOW_ALL as FREE_PERMIT
from stompring.settings.model import (
    BrokerConfiguration,
    Guest,
    LoginFlag,
    LoginModule,
    PermissionType,
    SecuritySettingEntry,
    TokenLogin,
)

from ..security.hashers import QUICK

INVALID = "Security Error occurred: User name [me] or password is invalid"
REQUIRED = "Security Error occurred: login and passcode are required"

#: Passwords that are checked at a time, and those that may wait.
AT_ONCE, IN_LINE = min(4, max(1, (os.cpu_count() or 1) // 2)), 100

USERS = ("me", "one", *(f"user{number}" for number in range(10)))
HASHES = {QUICK.hash(name): name for name in USERS}


class Hasher(PasswordHasher):
    """Notes whose passwords are checked: the right one is ``pass:wörd`` for all."""

    def __init__(self):
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.checked = []
        self.fault = None

    def verify(self, hashed, password):
        """See PasswordHasher."""
        self.checked.append(HASHES.get(hashed))
        if self.fault is not None:
            raise self.fault
        if password != "pass:wörd" or hashed not in HASHES:
            raise VerifyMismatchError
        return True


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

    def pass_time(self, seconds):
        """All is done that is due then."""
        self.advance(seconds)
        self.run()

    def getThreadPool(self):
        return self

    def callFromThread(self, call, *arguments):
        call(*arguments)


@pytest.fixture
def clock():
    return Reactor()


@pytest.fixture
def hasher():
    return Hasher()


@pytest.fixture
def users(tmp_path):
    """The file of users."""
    found = tmp_path / "users"
    found.write_text("".join(f"{name} = {hashed}\n" for hashed, name in HASHES.items()))
    return found


@pytest.fixture
def configuration(users, tmp_path):
    """Of a broker, where guests may send and nobody else may do anything."""
    (tmp_path / "roles").write_text("admins = visitor\n")
    (tmp_path / "certificates").write_text("me = CN=me\nyou = CN=you\n")
    return BrokerConfiguration(
        persistence_enabled=False,
        users_file=str(users),
        roles_file=str(tmp_path / "roles"),
        certificate_users_file=str(tmp_path / "certificates"),
        security_invalidation_interval=10_000,
        security_settings=(SecuritySettingEntry("#", {PermissionType.SEND: frozenset({"guests"})}),),
    )


@pytest.fixture
def security(configuration, clock, hasher):
    service = BrokerService(configuration, clock, hasher=hasher)
    service.authenticator()
    return service.security


@pytest.fixture
def logins(security):
    return security.logins


@pytest.fixture
def answers():
    return []


@pytest.fixture
def verify(logins, answers):
    """Asks; nothing happens yet."""

    def verify(login, passcode="pass:wörd", host="192.0.2.1", certificate=None):
        credentials = Credentials(login, passcode, host, certificate)
        logins.authenticate(credentials, lambda *answer: answers.append(answer))

    return verify


@pytest.fixture
def begin(verify, clock):
    """Asks, and waits for no time."""

    def begin(*arguments, **named):
        verify(*arguments, **named)
        clock.run()

    return begin


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


def test_right(ask, hasher, logins):
    login, reason = ask("me", "pass:wörd")
    assert (login, reason) == (Login("me"), "")
    assert not login.authorizer.allows_all
    assert login.authorizer.user == "me"
    assert FREE_PERMIT.allows_all
    assert logins.outcomes == {"accepted": 1}
    assert hasher.checked == ["me"]


def test_wrong(ask, logins):
    assert ask("me", "no") == (None, INVALID)
    assert logins.outcomes == {"refused": 1}


def test_nothing_given(ask, hasher):
    for login, passcode in ((None, "x"), ("me", None), (None, None)):
        assert ask(login, passcode) == (None, REQUIRED)
    assert hasher.checked == []


def test_a_checker_that_fails(ask, hasher, logins, caplog):
    hasher.fault = OSError("disk")
    login, reason = ask("me", "m4rker")
    assert login is None
    assert "cannot be checked; see the broker's log" in reason
    assert caplog.records and "m4rker" not in caplog.text
    assert logins.outcomes == {"failed": 1}


# ---- guests


@pytest.fixture
def guest(security, configuration):
    """Clients without a login are this user."""
    security.use(replace(configuration, guest=Guest("visitor", "guests")))


def test_a_client_without_login_is_the_guest_where_there_is_one(ask, guest, security):
    login, _ = ask(None, None)
    assert login.user == "visitor"
    assert login.authorizer.allows(PermissionType.SEND, "a")
    assert not login.authorizer.allows(PermissionType.CONSUME, "a")
    own = security.authority
    assert not own.allows("visitor", PermissionType.SEND, "a"), "roles of a user are not the guest's"


def test_a_wrong_or_half_login_does_not_become_the_guest(ask, guest):
    assert ask("me", "no") == (None, INVALID)
    for login, passcode in ((None, "x"), ("me", None)):
        assert ask(login, passcode) == (None, REQUIRED)


# ---- certificates


def test_a_certificate_needs_no_passcode(ask, hasher):
    for login in (None, "me"):
        assert ask(login, None, "CN=me") == (Login("me"), "")
    assert hasher.checked == []


def test_a_passcode_beside_it_must_be_right(ask):
    assert ask("me", "pass:wörd", "CN=me") == (Login("me"), "")
    assert ask("me", "no", "CN=me") == (None, INVALID)


def test_a_login_beside_it_must_be_its_user(ask, hasher):
    reason = "Security Error occurred: the certificate is that of user [you], not of [me]"
    for passcode in (None, "pass:wörd"):
        assert ask("me", passcode, "CN=you") == (None, reason)
    assert hasher.checked == []


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


# ---- the order of login modules

REQUIRED_FLAG, REQUISITE, SUFFICIENT, OPTIONAL = LoginFlag


@pytest.mark.parametrize(
    "flags, both, certificate, password, checked",
    [
        # flags of certificate and properties; whether a client may log in with both, with one, with the other
        ((REQUIRED_FLAG, REQUIRED_FLAG), True, False, False, 2),
        ((REQUISITE, REQUIRED_FLAG), True, False, False, 1),
        ((REQUIRED_FLAG, SUFFICIENT), True, True, False, 2),
        ((REQUISITE, OPTIONAL), True, True, False, 1),
        ((SUFFICIENT, REQUIRED_FLAG), True, True, True, 2),
        ((SUFFICIENT, SUFFICIENT), True, True, True, 2),
        ((OPTIONAL, REQUIRED_FLAG), True, False, True, 2),
        ((OPTIONAL, OPTIONAL), True, True, True, 2),
    ],
)
def test_flags_are_those_of_jaas(
    security, configuration, ask, hasher, flags, both, certificate, password, checked
):
    modules = tuple(map(LoginModule, ("certificate", "properties"), flags))
    security.use(replace(configuration, login_modules=modules))
    assert (ask("me", "pass:wörd", "CN=me")[0] is not None) is both
    assert (ask("me", None, "CN=me")[0] is not None) is certificate
    before = len(hasher.checked)
    security.use(replace(configuration, login_modules=modules))
    assert (ask("me", "pass:wörd")[0] is not None) is password
    assert len(hasher.checked) - before == checked - 1
    assert ask("me", "no", "CN=me")[0] is None or SUFFICIENT in flags or OPTIONAL in flags


def test_a_password_module_before_the_certificate_counts_first(security, configuration, ask):
    modules = (LoginModule("properties", REQUISITE), LoginModule("certificate", REQUIRED_FLAG))
    security.use(replace(configuration, login_modules=modules))
    assert ask("me", "no", "CN=me") == (None, INVALID)
    assert ask("me", "pass:wörd", "CN=me") == (Login("me"), "")
    assert ask("me", "pass:wörd") == (None, INVALID)


def test_a_token_beside_a_certificate_is_that_of_its_user(security, configuration, ask, tmp_path):
    key = ECKey.generate_key("P-256", {"kid": "k"})
    (tmp_path / "keys").write_text(json.dumps(KeySet([key]).as_dict()))
    module = TokenLogin("https://issuer", "b", str(tmp_path / "keys"), roles_claim="groups")
    security.use(replace(configuration, login_modules=(LoginModule("properties"), module)))
    claims = {"iss": "https://issuer", "aud": "b", "sub": "me", "exp": 2**40, "groups": "guests"}
    passcode = encode({"alg": "ES256", "kid": "k"}, claims, key)
    for login in (None, "", "another"):
        found, _ = ask(login, passcode)
        assert (found.user, found.expires) == ("me", 2**40 * 1000)
        assert found.authorizer.allows(PermissionType.SEND, "a") and found.authorizer.roles == {"guests"}
    assert ask(None, passcode, "CN=me")[0].user == "me"
    assert ask(None, passcode, "CN=you")[1].endswith("the login modules name different users")


# ---- the throttle


def test_who_fails_often_waits_before_anything_is_checked(ask, begin, answers, clock, hasher):
    fail_often(ask)
    answers.clear()
    checked = len(hasher.checked)
    begin("me", "pass:wörd")
    begin("me", "pass:wörd", host="192.0.2.2")
    assert len(answers) == 1, "others do not wait"
    clock.pass_time(0.2)
    assert (len(answers), len(hasher.checked)) == (1, checked + 1)
    clock.pass_time(0.1)
    assert answers == [(Login("me"), "")] * 2
    begin("me", "no")
    clock.pass_time(0.3)
    begin("me", "no")
    clock.pass_time(0.3)
    assert len(answers) == 3, "twice as long now"
    clock.pass_time(0.3)
    assert len(answers) == 4


def test_so_many_wait_and_others_are_refused(ask, begin, answers, clock, logins):
    fail_often(ask)
    answers.clear()
    for _ in range(MAX_DELAYED + 1):
        begin("me", "pass:wörd")
    reason = "Security Error occurred: too many failed logins from 192.0.2.1; try again later"
    assert answers == [(None, reason)]
    clock.pass_time(1)
    assert answers[1:] == [(Login("me"), "")] * MAX_DELAYED
    assert logins.outcomes["throttled"] == 1


def test_a_certificate_does_not_wait(ask):
    fail_often(ask)
    assert ask(None, None, "CN=me") == (Login("me"), "")


# ---- the line of checks


def test_few_at_a_time_and_in_their_turn(verify, answers, clock, hasher):
    for number in range(5):
        verify(f"user{number}")
    clock.run(5)  # the files are looked at
    assert (hasher.checked, len(clock.work)) == ([], AT_ONCE)
    clock.run(1)
    assert (len(answers), len(clock.work)) == (1, AT_ONCE)
    clock.run()
    names = [f"user{number}" for number in range(5)]
    assert (hasher.checked, answers) == (names, [(Login(name), "") for name in names])


def test_one_who_asks_for_many_keeps_nobody_else_waiting(verify, clock, hasher):
    for number in range(10):
        verify(f"user{number}")
    verify("one", host="192.0.2.2")
    clock.run()
    assert hasher.checked.index("one") == AT_ONCE + 1, "some were at work already"


def test_the_same_question_is_asked_once(verify, answers, clock, hasher):
    for _ in range(50):
        verify("me")
        verify("me", "wrong")
    clock.run()
    assert hasher.checked == ["me"] * 2
    assert (answers.count((Login("me"), "")), answers.count((None, INVALID))) == (50, 50)


def test_what_was_right_is_remembered_and_what_was_wrong_is_not(begin, clock, hasher):
    for _ in range(3):
        begin("me")
    assert len(hasher.checked) == 1
    for _ in range(3):
        begin("me", "wrong")
    assert len(hasher.checked) == 4
    clock.pass_time(10)
    begin("me")
    assert len(hasher.checked) == 5


def test_another_file_is_asked_anew(begin, hasher, users):
    begin("me")
    users.write_text(users.read_text() + "# more\n")
    begin("me")
    assert len(hasher.checked) == 2


def test_too_many_are_refused(verify, answers, clock, logins):
    for number in range(AT_ONCE + IN_LINE + 2):
        verify(f"nobody{number}")
    clock.run()
    assert len(answers) == AT_ONCE + IN_LINE + 2
    assert logins.outcomes == {"refused": AT_ONCE + IN_LINE, "overloaded": 2}
    reason = "Security Error occurred: too many pending logins; try again later"
    assert answers.count((None, reason)) == 2


def test_a_check_that_fails_is_told_and_the_next_goes_on(verify, clock, hasher, logins):
    hasher.fault = OSError("disk")
    for number in range(3):
        verify(f"user{number}")
    clock.run()
    assert logins.outcomes == {"failed": 3}
