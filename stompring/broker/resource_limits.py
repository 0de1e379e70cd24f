"""Resource limits: how many addresses, queues and sessions there may be, in total and per user (Artemis).

They are checked when a client or an administrator creates one. What broker.xml configures, what a store recovers, and
queues for dead letters and expired messages are always created; they count all the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stompring.errors import LimitReached
from stompring.settings.model import BrokerConfiguration, ResourceLimit

if TYPE_CHECKING:
    from .directory import Directory

#: Characters of a name in an error.
SHOWN = 200


#: Bytes of a subscription: one to a topic, with its queue (``benchmarks/micro/sizes.py``).
SUBSCRIPTION_SIZE = 3 * 1024

#: Bytes of a compiled selector, and those for each character of its text: of many short terms it needs 34.
SELECTOR_SIZE, SELECTOR_FACTOR = 2 * 1024, 40


def subscription_size(selector: str | None) -> int:
    """Bytes that a subscription counts for in ``global-max-subscription-size``."""
    return SUBSCRIPTION_SIZE + (0 if selector is None else SELECTOR_SIZE + SELECTOR_FACTOR * len(selector))


class SubscriptionMemory:
    """``global-max-subscription-size``: the memory of all subscriptions, -1 for no limit."""

    __slots__ = ("bytes", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0

    def check(self, size: int) -> None:
        """Check that one of ``size`` bytes may begin. Raises `LimitReached`."""
        if 0 <= self.limit < self.bytes + size:
            raise LimitReached(
                f"All subscriptions hold {self.bytes} bytes, this one needs {size}, and the limit is {self.limit} "
                "(global-max-subscription-size)",
                "global-max-subscription-size",
            )


class ResourceLimits:
    """The limits in force, and the sessions and queues of each user."""

    def __init__(self, configuration: BrokerConfiguration, directory: Directory) -> None:
        self._directory = directory
        self.sessions: Counter[str] = Counter()
        self.queues: Counter[str] = Counter()  # by their attribute ``user``: kept by the directory
        self.apply(configuration)

    def apply(self, configuration: BrokerConfiguration) -> None:
        """Put new limits in force. What exceeds them stays."""
        self._max_queues = configuration.global_max_queues
        self._max_addresses = configuration.global_max_addresses
        self._max_wildcard_words = configuration.global_max_wildcard_words
        self._of_users = {limit.user: limit for limit in configuration.resource_limits}

    def _of(self, user: str | None) -> ResourceLimit | None:
        return None if user is None else self._of_users.get(user)

    # ---- sessions

    def enter(self, user: str | None) -> None:
        """Count a session of a user who logs in. Raises `LimitReached` beyond max-sessions."""
        limit = self._of(user)
        if user is None:
            return
        if limit is not None and 0 <= limit.max_sessions <= self.sessions[user]:
            raise LimitReached(
                f"User {user} has {self.sessions[user]} sessions, and the limit is {limit.max_sessions} (max-sessions)",
                "max-sessions",
            )
        self.sessions[user] += 1

    def leave(self, user: str | None) -> None:
        """A session that `enter` has counted has ended."""
        if user is not None:
            self._less(self.sessions, user)

    # ---- queues and addresses

    def check_address(self, name: str) -> None:
        """Check that the address ``name`` may be created. Raises `LimitReached`."""
        self._directory.check_words(name)
        if 0 <= self._max_addresses <= len(self._directory.addresses):
            raise LimitReached(
                f"There are {len(self._directory.addresses)} addresses, and the limit is {self._max_addresses} "
                "(global-max-addresses)",
                "global-max-addresses",
            )
        wildcards, most = self._directory.wildcards, self._max_wildcard_words
        if most >= 0 and wildcards.is_wildcard(name):
            there, more = wildcards.words_after, wildcards.growth(name)
            if there + more > most:
                raise LimitReached(
                    f"Wildcard addresses have {there} words after their first wildcard, {name[:SHOWN]} would add "
                    f"{more}, and the limit is {most} (global-max-wildcard-words)",
                    "global-max-wildcard-words",
                )

    def check_queue(self, user: str | None) -> None:
        """Check that a queue may be created, for ``user`` if it is given. Raises `LimitReached`."""
        if 0 <= self._max_queues <= len(self._directory.queues):
            raise LimitReached(
                f"There are {len(self._directory.queues)} queues, and the limit is {self._max_queues} "
                "(global-max-queues)",
                "global-max-queues",
            )
        limit = self._of(user)
        if user is not None and limit is not None and 0 <= limit.max_queues <= self.queues[user]:
            raise LimitReached(
                f"User {user} has {self.queues[user]} queues, and the limit is {limit.max_queues} (max-queues)",
                "max-queues",
            )

    def owner(self, before: str | None, now: str | None) -> None:
        """A queue belongs to the user ``now``, and no longer to ``before``; None: to no user."""
        if before != now:
            if before is not None:
                self._less(self.queues, before)
            if now is not None:
                self.queues[now] += 1

    @staticmethod
    def _less(counts: Counter[str], user: str) -> None:
        counts[user] -= 1
        if counts[user] <= 0:
            del counts[user]
