"""Checks passwords off the reactor's thread, a few at a time: argon2 is slow and takes 64 MiB on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from stompring.errors import Refused
from stompring.security.fair_line import FairLine
from stompring.security.remembered import Remembered
from stompring.security.users import Users
from stompring.settings.network import source_network

#: Passwords that are checked at a time. Each check works on several cores itself.
AT_ONCE = min(4, max(1, (os.cpu_count() or 1) // 2))

#: Checks that may wait for their turn: some seconds' worth.
WAITING = 100


class Overloaded(Refused):
    """More logins wait to be checked than can be in good time."""


@dataclass(frozen=True, slots=True)
class _Check:
    """One login that waits to be checked. ``generation`` is that of the users file when it came."""

    digest: bytes
    generation: int
    name: str
    password: str = field(repr=False)


class Verification:
    """The door to `Users.verify`. A login that was right a moment ago is not checked again while its file stays.

    ``follow`` looks at the files of users; it is called in a thread, before each check.
    """

    def __init__(
        self, users: Users, remembered: Remembered, follow: Callable[[], object], reactor: Any
    ) -> None:
        self._users = users
        self._remembered = remembered
        self._follow = follow
        self._reactor = reactor
        self._asked: dict[bytes, list[Deferred[bool]]] = {}  # who asks the same is told the same
        self._line: FairLine[_Check] = FairLine(WAITING)
        self._running = 0

    def followed(self) -> Deferred[None]:
        """Fires when the files have been looked at."""
        return self._in_thread(self._follow).addCallback(lambda _: None)

    def verify(self, name: str, password: str, host: str = "") -> Deferred[bool]:
        """Whether ``password`` is that of user ``name``. Fails with `Overloaded`. Hosts take turns."""
        return self.followed().addCallback(lambda _: self._answer(name, password, host))

    def _answer(self, name: str, password: str, host: str) -> bool | Deferred[bool]:
        generation = self._users.generation
        digest = self._remembered.digest(generation, name, password)
        if self._remembered.knows(digest):
            return True
        answer: Deferred[bool] = Deferred()
        if digest in self._asked:
            self._asked[digest].append(answer)
            return answer
        self._asked[digest] = [answer]
        gone = self._line.put(source_network(host), _Check(digest, generation, name, password))
        if gone is not None:
            self._tell(gone.digest, Failure(_overloaded()))
        self._go_on()
        return answer

    def _go_on(self) -> None:
        while self._line and self._running < AT_ONCE:
            check = self._line.take()
            self._running += 1
            checked = self._in_thread(self._users.verify, check.name, check.password)
            checked.addBoth(self._checked, check)

    def _checked(self, outcome: bool | Failure, check: _Check) -> None:
        self._running -= 1
        if outcome is True and check.generation == self._users.generation:
            self._remembered.keep(check.digest)
        self._tell(check.digest, outcome)
        self._go_on()

    def _tell(self, digest: bytes, outcome: bool | Failure) -> None:
        for answer in self._asked.pop(digest):
            answer.callback(outcome)  # a Failure goes to the errbacks

    def _in_thread(self, call: Callable[..., Any], *arguments: object) -> Deferred[Any]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call, *arguments)


def _overloaded() -> Overloaded:
    return Overloaded(
        "Security Error occurred: too many logins wait to be checked; try again later", status=503
    )
