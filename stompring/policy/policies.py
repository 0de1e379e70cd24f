"""The policies of a broker's addresses: `Policies` makes the `Hooks` of each, once."""

from __future__ import annotations

from typing import ClassVar, cast

from stompring.broker.address import Address
from stompring.broker.hooks import Hooks, Told
from stompring.broker.queue import Queue
from stompring.broker.ring import Ring as RingQueue
from stompring.settings.model import FullPolicy, PolicyUse, RingPolicy

from .address_policy import AddressPolicy
from .asked import admit_of, constant, full_of, overflow_of, refuse_all, subscribed_of
from .bound_policy import BoundPolicy
from .built_in import FULL, DeadLetterRing, Ring
from .faults import PolicyFaults
from .load import Chosen, Plugins
from .message_view import MessageView
from .queue_view import QueueView, view_of
from .told import TOLD, told_by_all, told_of


class Policies:
    """See `stompring.broker.hooks.Policies`. ``plugins`` are those that broker.xml names; none but the built-in ones
    where they are not given, whatever address-settings say."""

    #: How policies are bound to their addresses.
    binding: ClassVar[type[BoundPolicy]] = BoundPolicy

    def __init__(self, plugins: Plugins | None = None) -> None:
        self.faults = PolicyFaults()
        self._plugins = plugins
        self._ring = Ring()
        self._bound: dict[Address, tuple[BoundPolicy, ...]] = {}
        self._full = {name: kind() for name, kind in FULL.items()}
        self._built_in = {
            name: Hooks(constant(full), self._ring.overflow) for name, full in self._full.items()
        }
        dead_letters = DeadLetterRing()
        self._dead_letter: Told = lambda ref: dead_letters.evicted(MessageView(ref))

    def use(self, plugins: Plugins) -> None:
        """Other plugins, or the same with other parameters: addresses get them when settings are applied next."""
        self._plugins = plugins

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """Faults so far, by policy and hook (``stompring_policy_errors_total``)."""
        return self.faults.counts

    @property
    def slow_hooks(self) -> dict[tuple[str, str], int]:
        """Hooks that took too long so far, by policy and hook (``stompring_policy_slow_hooks_total``)."""
        return self.faults.slow

    def names_for(self, address: Address) -> list[str]:
        """The policies of an address besides the built-in ones, in the order in which they are asked."""
        return [bound.name for bound in self._bound.get(address, ())]

    def policies_for(self, address: Address) -> list[AddressPolicy]:
        """The same, the objects themselves."""
        return [bound.policy for bound in self._bound.get(address, ())]

    # ---- for the broker

    def hooks_for(self, address: Address) -> Hooks:
        """See `stompring.broker.hooks.Policies.hooks_for`."""
        before = {bound.name: bound for bound in self._bound.pop(address, ())}
        bound = tuple(self._bind(address, chosen, before) for chosen in self._chosen(address))
        for one in before.values():
            one.end()
        answer = address.settings.address_full_policy
        built_in = answer if answer in FULL else FullPolicy.PAGE
        if not bound:
            return self._built_in[built_in]
        self._bound[address] = bound
        return self._compose(address, bound, self._full[built_in])

    def _chosen(self, address: Address) -> list[Chosen]:
        """What the settings of an address name, the policy of a full address last."""
        if self._plugins is None:
            return []
        settings = address.settings
        uses = [use for use in settings.address_policy if use.enabled]
        if settings.address_full_policy not in FULL:
            uses.append(PolicyUse(settings.address_full_policy))
        return [self._plugins.chosen(use) for use in uses]

    def _bind(self, address: Address, chosen: Chosen, before: dict[str, BoundPolicy]) -> BoundPolicy:
        """A policy's object for an address: the one that it has where nothing about it has changed."""
        former = before.get(chosen.name)
        if former is not None and former.broken is None and former.chosen == chosen:
            del before[chosen.name]
            return former
        bound = self.binding(chosen, address, self.faults)
        bound.begin(None if former is None or former.broken is not None else former)
        return bound

    def _compose(self, address: Address, bound: tuple[BoundPolicy, ...], built_in: AddressPolicy) -> Hooks:
        answer, full = full_of(bound, built_in, address)
        hooks = Hooks(answer, overflow_of(bound, self._ring))
        hooks.full = full
        admit_of(bound, hooks)
        hooks.subscribed = subscribed_of(bound)
        for hook in TOLD:
            setattr(hooks, hook, told_of(bound, hook))
        hooks.deleted = lambda: self._deleted(address)
        for one in bound:
            if one.broken is not None:
                refuse_all(hooks, one.broken)
        return hooks

    def _deleted(self, address: Address) -> None:
        for one in self._bound.pop(address, ()):
            one.call("deleted")
            one.end()

    def evicted(self, queue: RingQueue) -> Told | None:
        """See `stompring.broker.hooks.Policies.evicted`."""
        heard = [] if queue.address.hooks.evicted is None else [queue.address.hooks.evicted]
        if queue.attributes.ring_policy is RingPolicy.DEAD_LETTER:
            heard.append(self._dead_letter)
        return told_by_all(heard)

    def view_of(self, queue: RingQueue) -> QueueView:
        """See `stompring.broker.hooks.Policies.view_of`."""
        return view_of(cast(Queue, queue))

    def stop(self) -> None:
        """See `stompring.broker.hooks.Policies.stop`."""
        for bound in self._bound.values():
            for one in bound:
                one.end()
        self._bound.clear()
