"""The directory of addresses and queues: lookup by name, creation, deletion and limits.

Resource limits: the maximum numbers of addresses, queues and sessions, in total and per user (Artemis).

They apply when a client or an administrator creates an address or queue. Those of broker.xml, those that a store
recovers, and queues for dead letters and expired messages are always created, and count as well.

Auto-creation: addresses and queues that a SEND or SUBSCRIBE creates.

The routing type is the one that the client requests (header or prefix), else that of the address, else
``default-address-routing-type``. A client that requests a type may add it to the address if ``auto-create-addresses``
is on. A client without a request never changes an address (in Artemis it makes an anycast address a mixed one).

Auto-deletion: unused queues and addresses are deleted (Artemis, auto-delete-queues, auto-delete-addresses).

Wildcard addresses: their queues also receive the messages of the addresses that match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final, Protocol

from stompring.errors import LimitReached, NotFound, Refused, counted
from stompring.settings.match import Pattern, SettingsRepository, connection_of, is_internal
from stompring.settings.model import (
    BrokerConfiguration,
    PermissionType,
    QueueConfiguration,
    ResourceLimit,
    RoutingType,
    WildcardSyntax,
)

from .address import (
    ANYCAST,
    MULTICAST,
    Address,
    AddressServices,
    Policies,
    RetroactiveMessages,
    RetroactiveQueue,
    Store,
    address_behind,
    internal_address,
    internal_queue,
)
from .clock import Reactor, Seconds, Timer, cancel
from .last_value import LastValueQueue
from .limits import ByteQuota
from .message import Message, copied
from .ports import POLICY_STATE, NoStorage
from .queue import Queue
from .reference import QueueAttributes, expiry_time

#: Maximum number of characters of a name in an error.
SHOWN: Final = 200


#: Bytes of a subscription to a topic, with its queue (``benchmarks/micro/sizes.py``).
SUBSCRIPTION_SIZE: Final = 3 * 1024

#: Bytes of a compiled selector: a fixed part, and a part for each character. Measured: 34 bytes for each character of
#: a selector with many short terms.
SELECTOR_SIZE, SELECTOR_FACTOR = 2 * 1024, 40


def subscription_size(selector: str | None) -> int:
    """Return the number of bytes by which a subscription counts for ``global-max-subscription-size``."""
    return SUBSCRIPTION_SIZE + (0 if selector is None else SELECTOR_SIZE + SELECTOR_FACTOR * len(selector))


@dataclass
class SubscriptionMemory:
    """The memory of all subscriptions and its limit, ``global-max-subscription-size`` (bytes, -1 for no limit)."""

    limit: int
    bytes: int = 0

    def check(self, size: int) -> None:
        """Check that another subscription of ``size`` bytes stays within the limit. Raises `LimitReached`."""
        if 0 <= self.limit < self.bytes + size:
            raise LimitReached(
                f"All subscriptions hold {self.bytes} bytes, this one needs {size}, and the limit is {self.limit} "
                "(global-max-subscription-size)",
                "global-max-subscription-size",
            )


class ResourceLimits:
    """The resource limits, and the numbers of sessions and queues of each user."""

    def __init__(self, configuration: BrokerConfiguration, directory: Directory) -> None:
        self._directory = directory
        self.sessions: Counter[str] = Counter()
        self.queues: Counter[str] = Counter()  # number of queues by their attribute ``user``
        self.apply(configuration)

    def apply(self, configuration: BrokerConfiguration) -> None:
        """Apply new limits. Existing addresses, queues and sessions stay, even beyond a limit."""
        self._max_queues = configuration.global_max_queues
        self._max_addresses = configuration.global_max_addresses
        self._max_wildcard_words = configuration.global_max_wildcard_words
        self._of_users: dict[str | None, ResourceLimit] = {
            limit.user: limit for limit in configuration.resource_limits
        }

    # ---- sessions

    def enter(self, user: str | None) -> None:
        """Count a session of a user who logs in. Raises `LimitReached` beyond max-sessions."""
        if user is None:
            return
        limit = self._of_users.get(user)
        if limit is not None and 0 <= limit.max_sessions <= self.sessions[user]:
            raise LimitReached(
                f"User {user} has {self.sessions[user]} sessions, and the limit is {limit.max_sessions} (max-sessions)",
                "max-sessions",
            )
        self.sessions[user] += 1

    def leave(self, user: str | None) -> None:
        """Subtract an ended session that `enter` has counted."""
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
        limit = self._of_users.get(user)
        if limit is not None and 0 <= limit.max_queues <= self.queues[limit.user]:
            raise LimitReached(
                f"User {user} has {self.queues[limit.user]} queues, and the limit is {limit.max_queues} (max-queues)",
                "max-queues",
            )

    def owner(self, before: str | None, now: str | None) -> None:
        """Count a queue for the user ``now``, and no longer for the user ``before``; None: no user."""
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


class PermissionCheck(Protocol):
    """Checks a permission: raises `Refused` if a user lacks it on an address, or on one queue of the address."""

    def __call__(self, permission: PermissionType, address: str, queue: str | None = None, /) -> None: ...


def allow_all(permission: PermissionType, address: str, queue: str | None = None, /) -> None:
    """Allow everything: the `PermissionCheck` for the broker's own operations."""


def check_not_internal(name: str) -> None:
    """Raises `Refused` for the name of an internal address or queue."""
    if is_internal(name):
        raise Refused(f"{name[:200]} is internal: it is for messages of a retroactive address", status=400)


class AutoCreate:
    """Finds the address or queue of a destination, and creates it if that is allowed.

    Each method checks the permissions for all objects that it would create before it creates the first.
    """

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._directory = broker.directory

    def type_for(self, name: str, requested: RoutingType | None) -> RoutingType:
        """Return the routing type of a SEND or SUBSCRIBE: by default ANYCAST on an address with both types."""
        if requested is not None:
            return requested
        address = self._directory.addresses.get(name)
        if address is not None and address.routing_types:
            return ANYCAST if ANYCAST in address.routing_types else MULTICAST
        if name == self._broker.notifications.address:
            return MULTICAST  # notifications are for subscribers, and no shared queue collects them
        return self._directory.settings.lookup(name).default_address_routing_type

    def address_for_send(
        self, name: str, requested: RoutingType | None, check: PermissionCheck, user: str | None = None
    ) -> Address:
        """Find or create the address for a SEND, with its anycast queue. Raises `Refused`, `NotFound`."""
        self._directory.check_concrete(name)
        routing_type = self.type_for(name, requested)
        self._check_address(name, routing_type, check)
        lacks_queue = (
            routing_type is ANYCAST
            and self.anycast_queue(name) is None
            and self._directory.settings.lookup(name).auto_create_queues
        )
        if lacks_queue:
            check(PermissionType.CREATE_DURABLE_QUEUE, name)
        address = self._address(name, routing_type, user, with_queue=routing_type is ANYCAST)
        if lacks_queue:
            self._create_queue(address, name, ANYCAST, user)
        elif not address.queues:
            self._broker.auto_delete.watch_unread(address, coming=1)
        return address

    def address_of(self, address_name: str, queue_name: str) -> str:
        """Return the address in ``address::queue``, or if that is empty the address of the queue. Raises `NotFound`."""
        return address_name or self._directory.queue(queue_name).address.name

    def queue_for(
        self,
        address_name: str,
        queue_name: str,
        requested: RoutingType | None,
        check: PermissionCheck,
        user: str | None = None,
    ) -> Queue:
        """Find or create the queue of ``address::queue``. Raises `Refused`, `NotFound`."""
        check_not_internal(queue_name)
        queue = self._directory.queues.get(queue_name)
        if queue is not None:
            if address_name and queue.address.name != address_name:
                raise Refused(
                    f"Queue {queue_name} is bound to address {queue.address.name}, not to {address_name}"
                )
            if requested is not None and requested is not queue.attributes.routing_type:
                raise Refused(f"Queue {queue_name} is {queue.attributes.routing_type}, not {requested}")
            return queue
        if not address_name:
            raise NotFound(f"Queue {queue_name} does not exist")
        return self._new_queue(address_name, queue_name, self.type_for(address_name, requested), check, user)

    def anycast_queue(self, name: str) -> Queue | None:
        """Return the anycast queue for a subscriber to address ``name``, None if the address has none.

        If the address has several, it is the queue with the name of the address, else the one with the fewest
        consumers.
        """
        address = self._directory.addresses.get(name)
        if address is None:
            return None
        own = [queue for queue in address.queues.values() if queue.attributes.routing_type is ANYCAST]
        return min(own, key=lambda queue: (queue.name != name, len(queue.consumers)), default=None)

    def queue_to_consume(self, name: str, check: PermissionCheck, user: str | None = None) -> Queue:
        """Find or create the anycast queue for a subscriber to address ``name``."""
        queue = self.anycast_queue(name)
        return self._new_queue(name, None, ANYCAST, check, user) if queue is None else queue

    def subscription_queue(
        self, configuration: QueueConfiguration, check: PermissionCheck, no_local: object = None
    ) -> Queue:
        """Create the queue of a multicast subscription, or return the existing one of a durable subscription."""
        check_not_internal(configuration.name)
        self._check_address(configuration.address, MULTICAST, check)
        queue = self._directory.queues.get(configuration.name)
        if queue is None and configuration.durable:
            check(PermissionType.CREATE_DURABLE_QUEUE, configuration.address, configuration.name)
        elif queue is None:
            check(PermissionType.CREATE_NON_DURABLE_QUEUE, configuration.address)
        self._address(configuration.address, MULTICAST, configuration.user)
        if queue is None:
            self._directory.resource_limits.check_queue(configuration.user)
            return self._directory.create_queue(configuration, no_local)
        if queue.address.name != configuration.address or queue.attributes.routing_type is not MULTICAST:
            raise Refused(
                f"Durable subscription {configuration.name} exists on address {queue.address.name}, "
                f"not on {configuration.address}"
            )
        if queue.attributes.filter != configuration.filter:
            if queue.consumers:
                raise Refused(f"Durable subscription {configuration.name} is in use with another selector")
            self._directory.update_queue(queue, {"filter": configuration.filter})
        return queue

    def _check_address(self, name: str, routing_type: RoutingType, check: PermissionCheck) -> None:
        """Check the permission for the address that `_address` would create or change."""
        address = self._directory.addresses.get(name)
        if address is None or routing_type not in address.routing_types:
            if self._directory.settings.lookup(name).auto_create_addresses:
                check(PermissionType.CREATE_ADDRESS, name)

    def _address(
        self, name: str, routing_type: RoutingType, user: str | None, *, with_queue: bool = True
    ) -> Address:
        """Find or create an address. ``with_queue``: the caller then creates a queue on the address."""
        address = self._directory.addresses.get(name)
        if address is None:
            settings = self._directory.settings.lookup(name)
            if not settings.auto_create_addresses:
                raise NotFound(f"Destination {name} does not exist, and auto-create-addresses is off for it")
            self._directory.resource_limits.check_address(name)
            if with_queue:
                self._directory.resource_limits.check_queue(user)
            return self._directory.create_address(name, frozenset({routing_type}), auto_created=True)
        if routing_type not in address.routing_types:
            if not address.settings.auto_create_addresses:
                have = " and ".join(sorted(address.routing_types)) or "no routing type"
                raise Refused(
                    f"Not allowed to specify {routing_type} semantics on address {name}, which has {have}"
                )
            self._directory.update_address(address, address.routing_types | {routing_type})
        return address

    def _new_queue(
        self,
        name: str,
        queue: str | None,
        routing_type: RoutingType,
        check: PermissionCheck,
        user: str | None,
    ) -> Queue:
        """Create a queue on the address ``name``. Without ``queue`` it has the name of the address."""
        self._check_address(name, routing_type, check)
        if self._directory.settings.lookup(name).auto_create_queues:
            check(PermissionType.CREATE_DURABLE_QUEUE, name, queue)
        address = self._address(name, routing_type, user)
        if not address.settings.auto_create_queues:
            self._broker.auto_delete.watch_unread(address)
            if queue is None:
                raise NotFound(f"Queue {name} does not exist, and auto-create-queues is off for it")
            raise NotFound(f"Queue {queue} does not exist, and auto-create-queues is off for {name}")
        return self._create_queue(address, queue or name, routing_type, user)

    def _create_queue(
        self, address: Address, name: str, routing_type: RoutingType, user: str | None
    ) -> Queue:
        self._directory.resource_limits.check_queue(user)
        return self._directory.create_queue(
            QueueConfiguration(
                name=name,
                address=address.name,
                routing_type=routing_type,
                user=user,
                auto_created=True,
                auto_delete=address.settings.auto_delete_queues,
            )
        )


#: Milliseconds without a message after which an address that never had a queue counts as unused: the interval at which
#: Artemis scans its addresses (address-queue-scan-period).
UNUSED_AFTER: Final = 30_000

#: Number of addresses that one timer call checks for use, and number that the creation of an address without a queue
#: checks. The second is above 1, so that checks are faster than creations.
CHECKED_AT_ONCE, CHECKED_PER_CREATION = 100, 2


class AutoDelete:
    """Deletes auto-created queues and addresses once they are unused, after their delays."""

    def __init__(self, broker: Services) -> None:
        self._check_timer: Timer | None = None
        self._check_due = 0  # due time of ``_check_timer`` (ms of the steady clock)
        self._broker = broker
        self._directory = broker.directory
        self._timers: dict[Queue | Address, Timer] = {}
        # number of messages sent up to the last check, by name of an address that never had a queue
        self._unread: dict[str, int] = {}
        self._checks: list[tuple[int, str]] = []  # heap: time of the check (ms of the steady clock), address

    def consider(self, queue: Queue) -> None:
        """Delete a queue if it is unused, immediately or after its delay. Called when it lost a consumer or message."""
        if self._is_unused(queue):
            delay = 0 if queue.attributes.temporary else queue.address.settings.auto_delete_queues_delay
            self._delete_after(delay, queue)

    def consider_address(self, address: Address) -> None:
        """Delete an address if it is unused, immediately or after its delay. Called when it lost a queue."""
        if self._is_unused_address(address):
            self._delete_after(address.settings.auto_delete_addresses_delay, address)

    def watch_unread(self, address: Address, coming: int = 0) -> None:
        """Check at intervals whether messages are sent to an address that never had a queue. ``coming`` is 1 if the
        message for which the address was created is not counted yet, else 0.
        """
        if address.name not in self._unread and self._never_read(address):
            self._check_later(address, coming)
            self._check_some(CHECKED_PER_CREATION, self._broker.clock.steady.now)

    def stop(self) -> None:
        """Cancel all timers."""
        cancel(self._check_timer)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _delete_after(self, delay: int, thing: Queue | Address) -> None:
        """Delete ``thing`` after ``delay`` ms. The delay starts again each time that ``thing`` becomes unused."""
        cancel(self._timers.pop(thing, None))
        if delay <= 0:
            self._delete(thing)
            return

        def over() -> None:
            del self._timers[thing]
            self._delete(thing)

        clock = self._broker.clock.steady
        self._timers[thing] = clock.call_at(clock.now + delay, over)

    def _is_unused(self, queue: Queue) -> bool:
        settings = queue.address.settings
        if queue.deleted or queue.consumers or not queue.attributes.auto_delete:
            return False
        if queue.attributes.temporary:
            return True
        if not queue.used and not settings.auto_delete_queues_skip_usage_check:
            return False
        allowed = settings.auto_delete_queues_message_count
        return allowed < 0 or queue.message_count <= allowed

    def _delete(self, thing: Queue | Address) -> None:
        if isinstance(thing, Queue):
            if self._is_unused(thing):
                self._directory.delete_queue(thing.name)
        elif self._is_unused_address(thing):
            self._directory.delete_address(thing.name)

    @staticmethod
    def _deletes_itself(address: Address) -> bool:
        return address.auto_created and address.settings.auto_delete_addresses and not address.temporary

    def _is_unused_address(self, address: Address) -> bool:
        return bool(
            self._deletes_itself(address)
            and address.used
            and not address.queues
            and not address.deleted
            and not self._broker.retroactive.keeps(address)
            and address.pages is None  # a wildcard queue may have messages in the pages
        )

    # ---- addresses that never had a queue

    def _never_read(self, address: Address) -> bool:
        return self._deletes_itself(address) and not address.used

    def _check_later(self, address: Address, coming: int = 0) -> None:
        self._unread[address.name] = address.sent_messages + coming
        delay = max(UNUSED_AFTER, address.settings.auto_delete_addresses_delay)
        heappush(self._checks, (self._broker.clock.steady.now + delay, address.name))
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._checks[0][0]
        if self._check_timer is None or due < self._check_due:
            cancel(self._check_timer)
            self._check_due = due
            self._check_timer = self._broker.clock.steady.call_at(due, self._check)

    def _check(self) -> None:
        self._check_timer = None
        self._check_some(CHECKED_AT_ONCE, self._broker.clock.steady.refresh())
        if self._checks:
            self._set_timer()

    def _check_some(self, most: int, now: int) -> None:
        for _ in range(most):
            if not self._checks or self._checks[0][0] > now:
                break
            _, name = heappop(self._checks)
            sent, address = self._unread.pop(name), self._directory.addresses.get(name)
            if address is None or not self._never_read(address):
                continue
            # the address is in use if its memory limit counts messages, which are in queues of wildcard addresses
            if (
                self._broker.retroactive.keeps(address)
                or address.sent_messages != sent
                or address.memory_limit.messages
                or address.pages is not None
            ):
                self._check_later(address)
            else:
                self._directory.delete_address(name)


class _Node:
    """A word of wildcard addresses. ``name``: the address that ends with this word, None if there is none."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.children: dict[str, _Node] = {}


class WildcardAddresses:
    """The wildcard addresses of the broker, as a tree of words (Artemis, wildcard routing).

    ``#`` stands for zero or more words, also in the middle; ``*`` for exactly one. Only a whole word is a wildcard.

    ``visited`` counts the nodes that `matching` has entered since the start. One call enters each node at most once: at
    most all nodes below a wildcard, whose number is ``words_after``, and for each word of the name three other nodes
    (the word, ``#`` and ``*``).
    """

    def __init__(self, syntax: WildcardSyntax) -> None:
        self.visited = 0
        self.words_after = 0
        self._size = 0
        self.syntax = syntax
        self._root = _Node()

    def __len__(self) -> int:
        return self._size

    def is_wildcard(self, name: str) -> bool:
        """Return whether a name has a wildcard."""
        syntax = self.syntax
        return syntax.routing_enabled and any(map(self._is_wildcard_word, name.split(syntax.delimiter)))

    def growth(self, name: str) -> int:
        """Return the number of words by which `add` would raise ``words_after``."""
        node: _Node | None = self._root
        below = False
        more = 0
        for word in name.split(self.syntax.delimiter):
            node = None if node is None else node.children.get(word)
            more += below and node is None
            below = below or self._is_wildcard_word(word)
        return more

    def add(self, name: str) -> None:
        """Add a wildcard address."""
        self.words_after += self.growth(name)
        node = self._root
        for word in name.split(self.syntax.delimiter):
            node = node.children.setdefault(word, _Node())
        node.name = name
        self._size += 1

    def remove(self, name: str) -> None:
        """Remove a wildcard address, with the words that no other address has."""
        path = [self._root]
        words = name.split(self.syntax.delimiter)
        for word in words:
            path.append(path[-1].children[word])
        path[-1].name = None
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = parent.children[word]
            if child.name is not None or child.children:
                break
            del parent.children[word]
        self.words_after -= self.growth(name)
        self._size -= 1

    def matching(self, name: str) -> set[str]:
        """Return the wildcard addresses that match a concrete name."""
        if not self._size:
            return set()
        words = name.split(self.syntax.delimiter)
        any_words, single_word = self.syntax.any_words, self.syntax.single_word
        # Positions are bits: bit i of `at` is set if the first i words of the name lead to the node. One number has all
        # positions of a node, so that the search enters each node once, however many paths lead to it.
        end = 1 << len(words)
        everywhere = 2 * end - 1
        places: dict[str, int] = {}
        for place, word in enumerate(words):
            if not self._is_wildcard_word(word):
                places[word] = places.get(word, 0) | 1 << place
        found: set[str] = set()
        waiting = [(self._root, 1)]
        visited = 0
        while waiting:
            node, at = waiting.pop()
            visited += 1
            if at & end and node.name is not None:
                found.add(node.name)
            children = node.children
            if not children:
                continue
            child = children.get(any_words)
            if child is not None:
                # ``#``: all positions from the first one on
                waiting.append((child, everywhere & -(at & -at)))
            at &= ~end
            if not at:
                continue
            child = children.get(single_word)
            if child is not None:
                waiting.append((child, at << 1))
            if not at & (at - 1):  # only one position is set in ``at``: look up its next word directly
                word = words[at.bit_length() - 1]
                child = children.get(word) if word in places else None
                if child is not None:
                    waiting.append((child, at << 1))
            else:
                fewer: Collection[str] = children if len(children) <= len(places) else places
                for word in fewer:
                    here = at & places.get(word, 0)
                    child = children.get(word) if here else None
                    if child is not None:
                        waiting.append((child, here << 1))
        self.visited += visited
        return found

    def _is_wildcard_word(self, word: str) -> bool:
        return word == self.syntax.any_words or word == self.syntax.single_word


class Directory:
    """Addresses and queues by name. The name of a queue is unique in the broker."""

    def __init__(self, broker: Services) -> None:
        self.broker = broker
        self.settings = SettingsRepository.of(broker.configuration)
        self.wildcards = WildcardAddresses(broker.configuration.wildcard)
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.resource_limits = ResourceLimits(broker.configuration, self)
        self.on_queue_deleted: Callable[[Queue], None] | None = None  # callback of the sampler of counters

    # ---- addresses

    def address(self, name: str) -> Address:
        """Return the address with this name. Raises `NotFound`."""
        address = self.addresses.get(name)
        if address is None:
            raise NotFound(f"Address {name} does not exist")
        return address

    def create_address(
        self,
        name: str,
        routing_types: frozenset[RoutingType],
        *,
        auto_created: bool = False,
        configured: bool = False,
        temporary: bool = False,
    ) -> Address:
        """Create an address. Raises `Refused` if it exists or its name is not allowed."""
        check_name("an address", name)
        if name in self.addresses:
            raise Refused(f"Address {name} exists already")
        address = Address(name, routing_types, self.settings.lookup(name), self.broker)
        address.auto_created, address.configured = auto_created, configured
        self.broker.effort.steps += CREATION
        self.add_address(address)
        self.broker.store.bind_address(address)
        kinds = ", ".join(sorted(routing_types))
        self.broker.notifications.notify(
            "ADDRESS_ADDED",
            f"address {name} created: {kinds}",
            address=name,
            routingType=_shown_type(routing_types),
        )
        if not temporary:
            self.broker.retroactive.update(address)
        return address

    def add_address(self, address: Address) -> None:
        """Add an address that is new, or that a store has recreated for its messages."""
        self.addresses[address.name] = address
        address.deleted = False
        address.wildcard = self.wildcards.is_wildcard(address.name)
        if address.wildcard:
            self.wildcards.add(address.name)
        self.broker.bind_diverts(address)

    def update_address(self, address: Address, routing_types: frozenset[RoutingType]) -> None:
        """Change the routing types of an address. Raises `Refused` if a queue has a removed type."""
        for queue in address.queues.values():
            if queue.attributes.routing_type not in routing_types:
                raise Refused(
                    f"Address {address.name} has the {queue.attributes.routing_type} queue {queue.name}"
                )
        address.routing_types = routing_types
        self.broker.store.bind_address(address)

    def delete_address(self, name: str, *, force: bool = False) -> None:
        """Delete an address; with ``force`` its queues and their consumers too. Raises `NotFound`, `Refused`."""
        address = self.address(name)
        if address.queues and not force:
            raise Refused(f"Address {name} still has queues: {', '.join(sorted(address.queues)[:5])}")
        for queue in list(address.queues.values()):
            self.delete_queue(queue.name, force=True)
        if self.addresses.pop(name, None) is None:
            return  # the address was auto-deleted with its last queue
        self.broker.retroactive.remove(address)
        self.broker.effort.steps += CREATION
        address.deleted = True
        address.changed()
        if address.wildcard:
            self.wildcards.remove(name)
        for bound in address.diverts:
            bound.stop()
        address.set_diverts(())
        self.broker.storage.values.put(POLICY_STATE, name, None)
        self.broker.store.unbind_address(address)
        if not is_internal(name):
            self.broker.notifications.notify(
                "ADDRESS_REMOVED",
                f"address {name} deleted",
                address=name,
                routingType=_shown_type(address.routing_types),
            )
        if address.hooks.deleted is not None:
            address.hooks.deleted()

    def check_words(self, name: str) -> None:
        """Check an address that a client or an administrator names. Raises `Refused` for an internal address.

        Raises `LimitReached` if a new address has too many words.
        """
        check_not_internal(name)
        words = name.count(self.wildcards.syntax.delimiter) + 1
        if words > MAX_WORDS and name not in self.addresses:
            raise LimitReached(
                f"The address {name[:100]}… has {words} words, and the limit is {MAX_WORDS}",
                "address-words",
                400,
            )

    def check_concrete(self, name: str) -> None:
        """Check that messages may be sent to an address. Raises `Refused` for wildcard and internal addresses."""
        check_not_internal(name)
        if self.wildcards.is_wildcard(name):
            raise Refused(
                f"Address {name[:100]} has wildcards: SEND needs one address, only SUBSCRIBE accepts wildcards",
                status=400,
            )

    def wildcards_of(self, address: Address) -> list[Address]:
        """Return the wildcard addresses whose queues also receive messages of an address.

        A temporary queue or topic belongs to its connection: only wildcard addresses of that connection match it.
        """
        wildcards = self.wildcards
        before = wildcards.visited
        names = wildcards.matching(address.name) - {address.name}
        self.broker.effort.steps += wildcards.visited - before
        owner = connection_of(address.name)
        return [
            self.addresses[name] for name in sorted(names) if owner is None or connection_of(name) == owner
        ]

    def invalidate_plans(self) -> None:
        """Make every session plan its next SEND again, with permission checks."""
        for address in self.addresses.values():
            address.stamp += 1

    # ---- queues

    def queue(self, name: str) -> Queue:
        """Return the queue with this name. Raises `NotFound`."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"Queue {name} does not exist")
        return queue

    def create_queue(self, configuration: QueueConfiguration, no_local: object = None) -> Queue:
        """Create a queue, and its address if that is missing. Raises `Refused`.

        ``no_local``: the origin whose messages the queue rejects (`Traits.origin`).
        """
        check_name("a queue", configuration.name)
        name, routing_type = configuration.name, configuration.routing_type
        if name in self.queues:
            raise Refused(f"Queue {name} exists already on address {self.queues[name].address.name}")
        settings = self.settings.lookup(configuration.address)
        if (
            settings.auto_delete_created_queues
            and not configuration.auto_created
            and not configuration.configured
        ):
            configuration = replace(configuration, auto_delete=True)
        attributes = QueueAttributes.of(configuration, settings)
        address = self.addresses.get(configuration.address)
        if address is None:
            address = self.create_address(
                configuration.address,
                frozenset({routing_type}),
                auto_created=configuration.auto_created,
                configured=configuration.configured,
                temporary=configuration.temporary,
            )
        elif routing_type not in address.routing_types:
            self.update_address(address, address.routing_types | {routing_type})
        queue = self.make_queue(name, address, attributes)
        self.broker.effort.steps += CREATION
        if no_local is not None:
            queue.no_local = no_local
            queue.update_filter()
        if configuration.configured:
            queue.as_configured = attributes
        if address.paused:
            queue.pause()
        self.broker.store.bind(queue)
        self.broker.notifications.notify(
            "BINDING_ADDED",
            f"queue {name} created on address {address.name}",
            {"_AMQ_Binding_ID": str(queue.number)},
            queue=name,
            address=address.name,
            routingType=routing_type,
            filter=attributes.filter,
        )
        self.broker.retroactive.replay(queue)
        return queue

    def make_queue(self, name: str, address: Address, attributes: QueueAttributes) -> Queue:
        """Create a queue in memory. The caller stores it."""
        kind: type[Queue]
        if is_internal(address.name):
            kind = RetroactiveQueue
        elif attributes.last_value:
            kind = LastValueQueue
        else:
            kind = Queue
        queue = kind(name, address, attributes, self.broker, address.hooks)
        address.queues[name] = self.queues[name] = queue
        self.resource_limits.owner(None, attributes.user)
        address.used = True
        address.changed()
        return queue

    def restore_queue(self, name: str, address: str, attributes: QueueAttributes, number: int) -> Queue:
        """Create a queue from the store, with its former number. Raises `Refused`, `NotFound`."""
        if name in self.queues:
            raise Refused(f"Queue {name} exists already on address {self.queues[name].address.name}")
        queue = self.make_queue(name, self.address(address), attributes)
        queue.set_number(number)
        return queue

    def changed_attributes(self, queue: Queue, changes: Mapping[str, Any]) -> QueueAttributes:
        """Return the attributes of an existing queue with these changes. Raises `Refused` if one is not allowed."""
        fixed = {"routing_type", "durable", "non_destructive", "last_value", "last_value_key", "temporary"}
        attributes = queue.attributes.changed(changes)
        for name in sorted(fixed & set(changes)):
            if getattr(attributes, name) != getattr(queue.attributes, name):
                raise Refused(f"{name.replace('_', '-')} of queue {queue.name} cannot change while it exists")
        if 0 <= attributes.max_consumers < len(queue.consumers):
            raise Refused(
                f"max-consumers {attributes.max_consumers} is less than the "
                f"{counted(len(queue.consumers), 'consumer')} that queue {queue.name} has"
            )
        return attributes

    def update_queue(self, queue: Queue, changes: Mapping[str, Any]) -> None:
        """Change attributes of an existing queue, all or none. Raises `Refused`."""
        attributes = self.changed_attributes(queue, changes)
        self.resource_limits.owner(queue.attributes.user, attributes.user)
        queue.attributes = attributes
        queue.ring_size = attributes.ring_size
        queue.update_hooks(self.addresses[queue.address.name].hooks)
        queue.update_filter()
        queue.address.changed()
        queue.dispatcher.on_attributes_changed()
        self.broker.store.bind(queue)

    def delete_queue(self, name: str, *, force: bool = False) -> None:
        """Delete a queue and its messages. Raises `NotFound`, and `Refused` if it has consumers, unless ``force``."""
        queue = self.queue(name)
        if queue.consumers and not force:
            raise Refused(f"Queue {name} has {counted(len(queue.consumers), 'consumer')}")
        self.broker.effort.steps += CREATION
        del self.queues[name]
        address = self.addresses[queue.address.name]
        del address.queues[name]
        self.resource_limits.owner(queue.attributes.user, None)
        address.changed()
        if self.on_queue_deleted is not None:
            self.on_queue_deleted(queue)
        queue.close()
        self.broker.store.unbind(queue)
        if not is_internal(address.name):
            self.broker.notifications.notify(
                "BINDING_REMOVED",
                f"queue {name} deleted",
                {"_AMQ_Binding_ID": str(queue.number), "_AMQ_FilterString": queue.attributes.filter or ""},
                queue=name,
                address=address.name,
            )
        self.broker.consider_deleting_address(address)


def _shown_type(routing_types: frozenset[RoutingType]) -> RoutingType:
    """Return the routing type in a notification. As in Artemis, an address with both types is shown as multicast."""
    return MULTICAST if MULTICAST in routing_types else ANYCAST


def check_name(kind: str, name: str) -> None:
    """Check the name of an address or a queue: one line of text without ``::``. Raises `Refused`."""
    if not name or name != name.strip():
        raise Refused(
            f"{name!r} cannot be the name of {kind}: it is empty or begins or ends with blanks", status=400
        )
    if "::" in name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise Refused(
            f"{name!r} cannot be the name of {kind}: it contains '::' or a control character", status=400
        )
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise Refused(f"{name!r} cannot be the name of {kind}: it is not Unicode", status=400) from None
    if len(encoded) > MAX_NAME:
        raise Refused(f"the name of {kind} is longer than {MAX_NAME} bytes", status=400)


#: Steps (`Effort`) that the creation or deletion of an address or queue costs.
CREATION: Final = 100

#: Maximum length of a name of an address or queue, in UTF-8 bytes: stores derive directory names from it.
MAX_NAME: Final = 2048

#: Maximum number of words of a new address. The time for matching grows with the words of the name and of each pattern;
#: RabbitMQ's routing keys of 255 bytes have at most as many.
MAX_WORDS: Final = 128


class RetroactiveAddresses:
    """The retroactive addresses of a broker."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._directory = broker.directory
        #: False until the store has restored its queues and broker.xml is applied
        self._started = isinstance(broker.storage, NoStorage)
        self._by_name: dict[str, RetroactiveMessages] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def apply(self) -> None:
        """Start, resize or stop the retention of messages, as the settings require, at a start or reload."""
        self._started = True
        directory = self._directory
        for address in list(directory.addresses.values()):
            if is_internal(address.name):
                if address_behind(address.name) not in directory.addresses:
                    directory.delete_address(address.name, force=True)
            else:
                self.update(address)

    def update(self, address: Address) -> None:
        """Apply the settings of a new or changed address."""
        if not self._started or is_internal(address.name):
            return
        count, messages = address.settings.retroactive_message_count, address.retroactive
        if count <= 0 or address.wildcard:  # clients cannot send to a wildcard address
            self.remove(address)
            return
        if messages is None:
            messages = self._by_name[address.name] = self._begin(address, count)
            address.set_retroactive(messages)
        messages.resize(count)

    def _begin(self, address: Address, count: int) -> RetroactiveMessages:
        """Return the retained messages of an address, with rings from the store or new rings."""
        directory = self._directory
        name = internal_address(address.name)
        internal = directory.addresses.get(name)
        if internal is None:
            settings = directory.settings.lookup(name)
            internal = Address(name, frozenset(RoutingType), settings, self._broker)
            directory.addresses[name] = internal
            self._broker.store.bind_address(internal)
        rings: dict[RoutingType, RetroactiveQueue] = {}
        for kind in RoutingType:
            name = internal_queue(address.name, kind)
            queue = directory.queues.get(name)
            if queue is None:
                queue = directory.make_queue(name, internal, QueueAttributes(kind, ring_size=count))
                self._broker.bind(queue)
            assert isinstance(queue, RetroactiveQueue)
            rings[kind] = queue
        return RetroactiveMessages(self._broker, address, internal, rings)

    def remove(self, address: Address) -> None:
        """Drop the retained messages of an address: it is deleted, or no longer retroactive."""
        address.set_retroactive(None)
        self._by_name.pop(address.name, None)
        internal = internal_address(address.name)
        if internal in self._directory.addresses:
            self._directory.delete_address(internal, force=True)
            if address.name in self._directory.addresses:
                self._broker.consider_deleting_address(address)

    def keeps(self, address: Address) -> bool:
        """Return whether an address has retained messages. Those that the store restored count even before `apply`."""
        if not address.settings.retroactive_message_count:
            return False
        internal = self._directory.addresses.get(internal_address(address.name))
        return internal is not None and internal.memory_limit.messages > 0

    def replay(self, queue: Queue) -> None:
        """Copy retained messages to a new queue: those of its address, or of all that match its wildcard address."""
        if not self._by_name or not queue.attributes.enabled:
            return
        kept = [
            (ref.sequence, address, ref.message)
            for address in self._sources(queue.address.name)
            if address.retroactive is not None
            for ref in address.retroactive.rings[queue.attributes.routing_type].references()
        ]
        if kept:
            kept.sort(key=itemgetter(0))
            queue.run_suspended(self._copy(queue, kept))

    def _sources(self, name: str) -> list[Address]:
        addresses = self._directory.addresses
        if not addresses[name].wildcard:
            return [addresses[name]]
        pattern = Pattern(name, self._broker.configuration.wildcard)
        return [addresses[each] for each in self._by_name if pattern.matches(each)]

    def _copy(self, queue: Queue, kept: list[tuple[int, Address, Message]]) -> Iterator[None]:
        """Copy messages to a queue in time slices. The copies precede messages that are sent meanwhile, because the
        numbers of the copies are allocated first.
        """
        broker = self._broker
        numbers = [broker.next_message_number() for _ in kept]
        present = queue.messages_added
        broker.write_gathered()  # write earlier messages first: they are not part of this transaction
        with broker.together():
            for number, (_, address, message) in zip(numbers, kept, strict=True):
                if queue.deleted:
                    return
                requested = message.expires
                expires = requested and expiry_time(address.settings, broker.clock.now, requested)
                traits = address.mark(copied(message.traits, message.traits.block))
                copy = Message(number, address, traits, message.body, message.timestamp, expires)
                if queue.accepts is None or queue.accepts(copy):
                    if queue.messages_added == present:
                        queue.enqueue(copy)
                    else:
                        queue.enqueue_earlier(copy)
                    present += 1
                yield


def services_of(owner: Queue | Address) -> Services:
    """Return the broker of a queue or an address as `Services`: their attribute ``broker`` has only a base type."""
    broker = owner.broker
    assert isinstance(broker, Services)
    return broker


class Services(AddressServices):
    """The services of the broker for the modules above addresses; see `QueueServices`."""

    bind_diverts: Callable[[Address], None]  # gives an address the diverts that apply to it

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Reactor,
        policies: Policies,
        store: Store,
        now: Seconds | None,
    ) -> None:
        super().__init__(configuration, reactor, now, policies, store, self._pageable_addresses)
        # quota of bytes in the open transactions of all clients
        self.transaction_bytes = ByteQuota(configuration.global_max_transaction_size)
        # addresses of the copies in progress, each caused by the one before: a copy to any of them would be a loop
        self.copying_to: list[str] = []
        self.directory = Directory(self)
        self.retroactive = RetroactiveAddresses(self)
        self.auto_create = AutoCreate(self)
        self.auto_delete = AutoDelete(self)
        self.bind, self.evicted, self.view_of = store.bind, policies.evicted, policies.view_of
        self.consider_deleting = self.auto_delete.consider
        self.consider_deleting_address = self.auto_delete.consider_address
        self.wildcards_of = self.directory.wildcards_of
        self.notifications.is_observed = self._is_observed

    def _pageable_addresses(self) -> Collection[Address]:
        """Return all addresses that are not internal."""
        addresses = self.directory.addresses.values()
        if not len(self.retroactive):
            return addresses
        return [address for address in addresses if not is_internal(address.name)]

    def _is_observed(self) -> bool:
        address = self.directory.addresses.get(self.notifications.address)
        return address is not None and bool(address.queues)
