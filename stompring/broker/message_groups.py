"""Message groups: which consumer of a queue owns which group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from .consumer import Consumer
from .reference import PendingList, Reference

#: Owners that one step of `MessageGroups.sweep` looks at.
SWEPT = 256


class GroupOwner:
    """A consumer as the owner of groups. It is shared by all of these, so that they are unpinned in one step."""

    __slots__ = ("backlog_keys", "consumer", "count")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer: Consumer | None = consumer  # None once its groups are unpinned
        self.count = 0
        self.backlog_keys: set[bytes | int] = set()  # of groups that may have messages in its backlog


class MessageGroups:
    """The owner of each message group: all messages with one JMSXGroupID go to one consumer, in order, while it lives.

    ``buckets`` above 0 puts the groups into that number of buckets, by a hash of their ids: a bucket has an owner, and
    the table no more entries than that. -1: each group has an entry.

    A message whose owner has no credit goes to that consumer's ``group_backlog``, so that other groups do not wait
    behind it; it stays pending and counts for the ring.
    """

    __slots__ = ("buckets", "first", "owners", "stale")

    def __init__(self, buckets: int = -1) -> None:
        self.buckets = buckets
        self.owners: dict[bytes | int, GroupOwner] = {}
        self.stale = 0  # entries of consumers that have left
        self.first = 0  # the number of the message with which a group was last pinned, until it is delivered

    def _key(self, group: bytes) -> bytes | int:
        return group if self.buckets < 0 else crc32(group) % self.buckets

    def owner_of(self, group: bytes) -> Consumer | None:
        """The consumer to which a group is pinned, None for nobody."""
        owner = self.owners.get(self._key(group))
        return None if owner is None else owner.consumer

    def owner(self, ref: Reference) -> Consumer | None:
        """The consumer to which the group of a message is pinned, None for nobody."""
        group = ref.message.traits.group
        return None if group is None else self.owner_of(group)

    def claim(self, ref: Reference, consumer: Consumer) -> Consumer:
        """Who gets a message: the owner of its group, which is ``consumer`` from now on where it had none.

        A message that the selector of the owner refuses goes to ``consumer`` too: nobody else would ever get it.
        """
        group = ref.message.traits.group
        if group is None:
            return consumer
        key = self._key(group)
        owner = self.owners.get(key)
        owning = None if owner is None else owner.consumer
        if owning is None:
            self._pin(key, consumer)
            self.first = ref.message.number
            return consumer
        refused = owning is not consumer and owning.matches is not None and not owning.matches(ref.message)
        return consumer if refused else owning

    def _pin(self, key: bytes | int, consumer: Consumer) -> None:
        if key in self.owners:
            self.stale -= 1
        owner = _owner(consumer)
        owner.count += 1
        self.owners[key] = owner

    def release(self, group: bytes) -> list[Reference]:
        """Unpin one group, or the bucket it is in; returns its backlog, in order: it may be pinned anew."""
        key = self._key(group)
        owner = self.owners.pop(key, None)
        if owner is None:
            return []
        consumer = owner.consumer
        if consumer is None:
            self.stale -= 1
            return []
        owner.count -= 1
        if consumer.group_backlog is None or key not in owner.backlog_keys:
            return []
        owner.backlog_keys.discard(key)
        freed, others = [], PendingList()
        for ref in consumer.group_backlog:
            group_of_ref = ref.message.traits.group
            if group_of_ref is not None and self._key(group_of_ref) == key:
                freed.append(ref)
            else:
                others.append(ref)
        if freed:
            consumer.group_backlog = others
        return freed

    def add_to_backlog(self, ref: Reference, owner: Consumer) -> None:
        """A message waits for an owner that cannot take it now."""
        if owner.group_backlog is None:
            owner.group_backlog = PendingList()
        owner.group_backlog.insert(ref)
        group = ref.message.traits.group
        if group is not None:
            _owner(owner).backlog_keys.add(self._key(group))

    def remove(self, consumer: Consumer) -> list[Reference]:
        """Unpin all groups of a consumer; returns its backlog, in order."""
        owner, consumer.group_owner = consumer.group_owner, None
        if owner is not None:
            owner.consumer = None
            self.stale += owner.count
        backlog, consumer.group_backlog = consumer.group_backlog, None
        return [] if backlog is None else list(backlog)

    def sweep(self) -> Iterator[None]:
        """Remove the entries of consumers that have left, in steps."""
        for index, key in enumerate(list(self.owners), 1):
            owner = self.owners.get(key)
            if owner is not None and owner.consumer is None:
                del self.owners[key]
                self.stale -= 1
            if index % SWEPT == 0:
                yield

    def count(self, consumers: Iterable[Consumer]) -> int:
        """The number of groups, or buckets, that are pinned to one of these consumers."""
        return sum(consumer.group_count for consumer in consumers)

    def pinned(self) -> Iterator[tuple[bytes | int, Consumer]]:
        """Each group, or the number of its bucket, with its owner. They must not change meanwhile."""
        for key, owner in self.owners.items():
            if owner.consumer is not None:
                yield key, owner.consumer


def _owner(consumer: Consumer) -> GroupOwner:
    """The consumer as an owner, made where it is none yet."""
    owner = consumer.group_owner
    if owner is None:
        owner = consumer.group_owner = GroupOwner(consumer)
    return owner
