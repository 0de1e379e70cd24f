"""Permissions of a client: the answers of the access control, cached per connection.

They are checked when a SEND is planned or a subscription begins, never for a single message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stompring.errors import Refused
from stompring.settings.model import PermissionType

from .destination import TEMPORARY_QUEUE, TEMPORARY_TOPIC_ADDRESS

if TYPE_CHECKING:
    from collections import Counter

    from stompring.broker.queue import Queue

    from .session import Session

#: A queue is created with the permission on the address of its own name too.
CREATE_QUEUE = (PermissionType.CREATE_DURABLE_QUEUE, PermissionType.CREATE_NON_DURABLE_QUEUE)

#: Answers that are cached; beyond these the cache is emptied.
CACHED_ANSWERS = 1000

#: Characters of a name in an ERROR.
SHOWN = 200


class PermissionSource(Protocol):
    """Decides about permissions: the access control of the broker."""

    rejections: Counter[PermissionType]

    @property
    def generation(self) -> object:
        """Changes when an answer may have changed."""

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Whether ``user`` has a permission on an address, or on that queue of it."""


class PermissionRejected(Refused):
    """A user lacks a permission on an address."""

    def __init__(self, reason: str, permission: str, address: str) -> None:
        super().__init__(reason, status=403)
        self.permission = permission
        self.address = address


class Authorizer:
    """What one user may do: a cache of the answers of a `PermissionSource`, emptied when they may have changed."""

    __slots__ = ("_answers", "_generation", "_source", "user")

    def __init__(self, user: str, source: PermissionSource) -> None:
        self.user = user
        self._source = source
        self._generation = source.generation
        self._answers: dict[tuple[PermissionType, str, str | None], bool] = {}

    def allows(self, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Whether the user has a permission on an address, or on that queue of it."""
        source, answers = self._source, self._answers
        if source.generation != self._generation or len(answers) > CACHED_ANSWERS:
            self._generation = source.generation
            answers.clear()
        key = (permission, address, queue)
        answer = answers.get(key)
        if answer is None:
            answer = answers[key] = source.allows(self.user, permission, address, queue)
        return answer

    def check(self, permission: PermissionType, address: str, queue: str | None = None, /) -> None:
        """Raise `Refused` where the user lacks a permission."""
        if not self.allows(permission, address, queue):
            self._source.rejections[permission] += 1
            user, name = self.user[:SHOWN], permission.name
            if queue is not None and queue != address:
                shown, on = queue[:SHOWN], address[:SHOWN]
                if permission in CREATE_QUEUE:
                    raise PermissionRejected(
                        f"User {user} does not have permission='{name}' for queue {shown} on address {on} "
                        f"(also required on address {shown})",
                        name,
                        address,
                    )
                raise PermissionRejected(
                    f"User {user} does not have permission='{name}' for queue {shown} on address {on}",
                    name,
                    address,
                )
            raise PermissionRejected(
                f"User {user} does not have permission='{name}' on address {address[:SHOWN]}", name, address
            )

    def check_consume(
        self, queue: str | None, address: str, connection: str, *, browse: bool = False
    ) -> None:
        """Raise `Refused` where the user may not consume from (or browse) a queue; None for one to be created.

        Only the connection that created a temporary queue or topic may consume from it: others know its name from a
        reply-to.
        """
        permission = PermissionType.BROWSE if browse else PermissionType.CONSUME
        for kind, prefix in (("queue", TEMPORARY_QUEUE), ("topic", TEMPORARY_TOPIC_ADDRESS)):
            own = f"{prefix}{connection}."
            if address.startswith(prefix) and not address.startswith(own) and not self.allows_all:
                self._source.rejections[permission] += 1
                raise Refused(f"Temporary {kind} {address[:SHOWN]} belongs to another connection", status=403)
        self.check(permission, address, queue)

    @property
    def allows_all(self) -> bool:
        """Whether security is off."""
        return False


class AllowAll(Authorizer):
    """The authorizer while security is off."""

    __slots__ = ()

    def __init__(self) -> None:
        self.user = ""

    def allows(self, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        return True

    @property
    def allows_all(self) -> bool:
        return True


ALLOW_ALL = AllowAll()


def close_if_revoked(session: Session) -> None:
    """After a change of permissions: close a session that has a subscription it may not have any more."""
    authorizer = session.login.authorizer
    if authorizer.allows_all or session.closed:
        return
    for subscription in session.subscriptions.values():
        queue: Queue = subscription.queue
        try:
            authorizer.check_consume(
                queue.name, queue.address.name, session.number, browse=subscription.terms.browser
            )
        except Refused as refused:
            session.refuse(refused)
            return
