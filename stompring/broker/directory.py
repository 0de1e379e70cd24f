"""Addresses and queues by name, and the wildcard addresses that match a concrete one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stompring.errors import LimitReached, NotFound, Refused
from stompring.settings.match import SettingsRepository, connection_of, is_internal
from stompring.settings.model import QueueConfiguration, RoutingType, WildcardSyntax

from .address import Address
from .auto_create import check_not_internal
from .last_value import LastValueQueue, NonDestructiveLastValueQueue
from .memory import GlobalMemoryLimit
from .queue import NonDestructiveQueue, Queue, QueueAttributes
from .resource_limits import ResourceLimits
from .retroactive import RetroactiveQueue

if TYPE_CHECKING:
    from .broker import Broker


class _Node:
    """One word of wildcard addresses, and the address that ends with it, if one does."""

    __slots__ = ("children", "name")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.name: str | None = None


class WildcardAddresses:
    """The wildcard addresses there are, as a tree of words (Artemis, wildcard routing).

    ``#`` stands for any number of words, also none and also in the middle; ``*`` for exactly one. Only a whole
    word is a wildcard.

    ``visited`` counts the nodes that `matching` has entered since the start. One call enters each node at most once.
    Above the first wildcard of an address a name leads to one node per word; only what is below a wildcard can be
    entered for many addresses at once. ``words_after`` is the number of such nodes, so a call enters at most
    ``words_after`` nodes and three per word of the name.
    """

    def __init__(self, syntax: WildcardSyntax) -> None:
        self.syntax = syntax
        self.visited = 0
        self.words_after = 0
        self._root = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def is_wildcard(self, name: str) -> bool:
        """Whether a name is a pattern."""
        syntax = self.syntax
        if not syntax.routing_enabled:
            return False
        words = name.split(syntax.delimiter)
        return syntax.any_words in words or syntax.single_word in words

    def growth(self, name: str) -> int:
        """By how much `add` would raise ``words_after``."""
        node: _Node | None = self._root
        below = False
        more = 0
        for word in name.split(self.syntax.delimiter):
            node = None if node is None else node.children.get(word)
            more += below and node is None
            below = below or self._is_wildcard_word(word)
        return more

    def add(self, name: str) -> None:
        """A wildcard address was made."""
        self.words_after += self.growth(name)
        node = self._root
        for word in name.split(self.syntax.delimiter):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        node.name = name
        self._size += 1

    def remove(self, name: str) -> None:
        """A wildcard address was deleted; words that nothing needs any more go with it."""
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
        """The wildcard addresses that match a concrete name."""
        if not self._size:
            return set()
        words = name.split(self.syntax.delimiter)
        any_words, single_word = self.syntax.any_words, self.syntax.single_word
        # Positions are bits: bit i of `at` says that the first i words of the name lead to a node. With all of a
        # node's positions in one number a node is entered once, whatever the number of ways that lead to it.
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
                waiting.append((child, everywhere & -(at & -at)))  # from the first position on
            at &= ~end
            if not at:
                continue
            child = children.get(single_word)
            if child is not None:
                waiting.append((child, at << 1))
            if not at & (at - 1):  # one position alone, so one word
                word = words[at.bit_length() - 1]
                child = children.get(word) if word in places else None
                if child is not None:
                    waiting.append((child, at << 1))
            elif len(children) <= len(places):
                for word, child in children.items():
                    here = at & places.get(word, 0)
                    if here:
                        waiting.append((child, here << 1))
            else:
                for word, where in places.items():
                    here = at & where
                    child = children.get(word) if here else None
                    if child is not None:
                        waiting.append((child, here << 1))
        self.visited += visited
        return found

    def _is_wildcard_word(self, word: str) -> bool:
        return word == self.syntax.any_words or word == self.syntax.single_word


class Directory:
    """Addresses by name, queues by name (a queue's name is unique in the whole broker)."""

    def __init__(
        self,
        broker: Broker,
        settings: SettingsRepository,
        wildcards: WildcardAddresses,
        memory: GlobalMemoryLimit,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.wildcards = wildcards
        self.memory = memory
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.resource_limits = ResourceLimits(broker.configuration, self)
        self.on_queue_deleted: Callable[[Queue], None] | None = None  # for whoever samples its counters
        self.generation = (
            0  # goes up when the queues of a wildcard address change: all bindings are then stale
        )

    # ---- addresses

    def address(self, name: str) -> Address:
        """The address of that name. Raises `NotFound`."""
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
        """Make an address. Raises `Refused` when it exists or its name cannot be."""
        check_name("an address", name)
        if name in self.addresses:
            raise Refused(f"Address {name} exists already")
        address = Address(name, routing_types, self.settings.lookup(name), self)
        address.auto_created, address.configured = auto_created, configured
        self.broker.effort.steps += CREATION
        self.addresses[name] = address
        if self.wildcards.is_wildcard(name):
            self.wildcards.add(name)
        self.broker.diverts.bind(address)
        self.broker.storage.bind_address(address)
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

    def create_internal_address(self, name: str) -> Address:
        """Make an address for the broker's own use."""
        address = self.addresses[name] = Address(
            name, frozenset(RoutingType), self.settings.lookup(name), self
        )
        self.broker.storage.bind_address(address)
        return address

    def create_internal_queue(self, name: str, address: Address, attributes: QueueAttributes) -> Queue:
        """Make a queue for the broker's own use."""
        queue = self._make_queue(name, address, attributes)
        self.broker.storage.bind(queue)
        return queue

    def restore_address(self, address: Address) -> None:
        """List an address that a store has made for messages it has kept."""
        self.addresses[address.name] = address
        address.deleted = False
        self.broker.diverts.bind(address)
        if self.wildcards.is_wildcard(address.name):
            self.wildcards.add(address.name)

    def update_address(self, address: Address, routing_types: frozenset[RoutingType]) -> None:
        """Change routing types. Raises `Refused` when queues of a type that goes away are bound."""
        for queue in address.queues.values():
            if queue.attributes.routing_type not in routing_types:
                raise Refused(
                    f"Address {address.name} has the {queue.attributes.routing_type} queue {queue.name}"
                )
        address.routing_types = routing_types
        self.broker.storage.bind_address(address)

    def delete_address(self, name: str, *, force: bool = False) -> None:
        """Delete an address; with ``force`` its queues and their consumers too. Raises `NotFound`, `Refused`."""
        address = self.address(name)
        if address.queues and not force:
            raise Refused(f"Address {name} still has queues: {', '.join(sorted(address.queues)[:5])}")
        for queue in list(address.queues.values()):
            self.delete_queue(queue.name, force=True)
        if self.addresses.pop(name, None) is None:
            return  # its last queue took it along
        self.broker.retroactive.remove(address)
        self.broker.effort.steps += CREATION
        address.deleted = True
        address.changed()
        if self.wildcards.is_wildcard(name):
            self.wildcards.remove(name)
        for bound in address.diverts:
            bound.stop()
        address.set_diverts(())
        self.broker.storage.unbind_address(address)
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
        """Whether clients and administrators may name an address. Raises `Refused` for an internal one.

        Raises `LimitReached` where it has too many words; an address that is there may have any number.
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
        """Whether messages may be sent to an address. Raises `Refused` for wildcards and for an internal one."""
        check_not_internal(name)
        if self.wildcards.is_wildcard(name):
            raise Refused(
                f"Address {name[:100]} has wildcards: SEND needs one address, only SUBSCRIBE accepts wildcards",
                status=400,
            )

    def wildcards_of(self, address: Address) -> list[Address]:
        """The wildcard addresses whose queues also get what is sent to this one.

        A temporary queue or topic belongs to its connection: only the wildcard addresses of that connection match it.
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
        """Make sessions plan their SENDs again, permission checks included, before the next one is sent."""
        for address in self.addresses.values():
            address.stamp += 1

    # ---- queues

    def queue(self, name: str) -> Queue:
        """The queue of that name. Raises `NotFound`."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"Queue {name} does not exist")
        return queue

    def create_queue(self, configuration: QueueConfiguration, no_local: object = None) -> Queue:
        """Make a queue, and its address when that is missing. Raises `Refused`.

        ``no_local`` is whose messages a subscription does not want.
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
        queue = self._make_queue(name, address, attributes)
        self.broker.effort.steps += CREATION
        if no_local is not None:
            queue.no_local = no_local
            queue.update_filter()
        if configuration.configured:
            queue.as_configured = attributes
        if address.paused:
            queue.pause()
        self.broker.storage.bind(queue)
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

    def _make_queue(self, name: str, address: Address, attributes: QueueAttributes) -> Queue:
        kind: type[Queue]
        if is_internal(address.name):
            kind = RetroactiveQueue
        elif attributes.last_value:
            kind = NonDestructiveLastValueQueue if attributes.non_destructive else LastValueQueue
        else:
            kind = NonDestructiveQueue if attributes.non_destructive else Queue
        queue = kind(name, address, attributes, self.broker)
        address.queues[name] = self.queues[name] = queue
        self.resource_limits.owner(None, attributes.user)
        address.used = True
        address.changed()
        return queue

    def restore_queue(self, name: str, address: str, attributes: QueueAttributes, number: int) -> Queue:
        """Make a queue as a store has kept it, with the number it had. Raises `Refused`, `NotFound`."""
        if name in self.queues:
            raise Refused(f"Queue {name} exists already on address {self.queues[name].address.name}")
        queue = self._make_queue(name, self.address(address), attributes)
        queue.set_number(number)
        return queue

    def changed_attributes(self, queue: Queue, changes: Mapping[str, Any]) -> QueueAttributes:
        """The attributes of a live queue with these changes. Raises `Refused` if it cannot have them."""
        fixed = {"routing_type", "durable", "non_destructive", "last_value", "last_value_key", "temporary"}
        attributes = queue.attributes.changed(changes)
        for name in sorted(fixed & set(changes)):
            if getattr(attributes, name) != getattr(queue.attributes, name):
                raise Refused(f"{name.replace('_', '-')} of queue {queue.name} cannot change while it exists")
        if 0 <= attributes.max_consumers < len(queue.consumers):
            raise Refused(
                f"max-consumers {attributes.max_consumers} is less than the {len(queue.consumers)} consumers "
                f"that queue {queue.name} has"
            )
        return attributes

    def update_queue(self, queue: Queue, changes: Mapping[str, Any]) -> None:
        """Change attributes of a live queue, all or none. Raises `Refused`."""
        attributes = self.changed_attributes(queue, changes)
        self.resource_limits.owner(queue.attributes.user, attributes.user)
        queue.attributes = attributes
        queue.ring_size = attributes.ring_size
        queue.update_hooks()
        queue.update_filter()
        queue.address.changed()
        queue.dispatcher.on_attributes_changed()
        self.broker.storage.bind(queue)

    def delete_queue(self, name: str, *, force: bool = False) -> None:
        """Delete a queue and its messages. Raises `NotFound`, or `Refused` while it has consumers."""
        queue = self.queue(name)
        if queue.consumers and not force:
            raise Refused(f"Queue {name} has {len(queue.consumers)} consumers")
        self.broker.effort.steps += CREATION
        del self.queues[name]
        del queue.address.queues[name]
        self.resource_limits.owner(queue.attributes.user, None)
        queue.address.changed()
        if self.on_queue_deleted is not None:
            self.on_queue_deleted(queue)
        queue.close(f"Queue {name} was deleted")
        self.broker.storage.unbind(queue)
        if not is_internal(queue.address.name):
            self.broker.notifications.notify(
                "BINDING_REMOVED",
                f"queue {name} deleted",
                {"_AMQ_Binding_ID": str(queue.number), "_AMQ_FilterString": queue.attributes.filter or ""},
                queue=name,
                address=queue.address.name,
            )
        self.broker.consider_deleting_address(queue.address)


def _shown_type(routing_types: frozenset[RoutingType]) -> RoutingType:
    """The one routing type that a notification names, as Artemis: multicast, unless the address has anycast only."""
    anycast_only = RoutingType.MULTICAST not in routing_types
    return RoutingType.ANYCAST if anycast_only else RoutingType.MULTICAST


def check_name(kind: str, name: str) -> None:
    """Names are any text that can be written on one line. Raises `Refused`."""
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
CREATION = 100

#: Longest name of an address or queue, in UTF-8 bytes: leaves room for the directory names that stores make of it.
MAX_NAME = 2048

#: Most words of an address that a client or an administrator names. Matching a name takes time by its words, and again
#: by the words of each pattern; RabbitMQ's routing keys of 255 bytes have as many at most.
MAX_WORDS = 128
