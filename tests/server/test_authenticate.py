"""Logins through cred."""

from __future__ import annotations

from twisted.cred.checkers import InMemoryUsernamePasswordDatabaseDontUse
from twisted.cred.portal import Portal
from twisted.internet.defer import fail
from twisted.trial.unittest import TestCase

from stompring.server.authenticate import Logins, Realm
from stompring.session.connect import Credentials, Login


class LoginsTest(TestCase):
    def setUp(self) -> None:
        self.portal = Portal(Realm(), [InMemoryUsernamePasswordDatabaseDontUse(me="pass:wörd".encode())])
        self.answers: list[tuple[Login | None, str]] = []

    def ask(self, login: str | None, passcode: str | None) -> tuple[Login | None, str]:
        Logins(self.portal).authenticate(
            Credentials(login, passcode), lambda *answer: self.answers.append(answer)
        )
        (answer,) = self.answers
        return answer

    def test_right(self) -> None:
        self.assertEqual(self.ask("me", "pass:wörd"), (Login("me"), ""))

    def test_wrong(self) -> None:
        login, reason = self.ask("me", "no")
        self.assertIsNone(login)
        self.assertEqual(reason, "Security Error occurred: User name [me] or password is invalid")

    def test_nothing_given(self) -> None:
        for login, passcode in ((None, "x"), ("me", None), (None, None)):
            self.answers.clear()
            answered, reason = self.ask(login, passcode)
            self.assertIsNone(answered)
            self.assertIn("login and passcode are required", reason)

    def test_a_checker_that_fails(self) -> None:
        self.patch(self.portal, "login", lambda *_: fail(OSError("disk")))
        with self.assertLogs("stompring", "ERROR"):
            login, reason = self.ask("me", "x")
        self.assertIsNone(login)
        self.assertIn("could not be checked", reason)
