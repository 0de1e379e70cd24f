"""Admission: whether a message may enter an address now. Memory, pages or the disk may be full, or the store slow.

Checked for SEND and COMMIT only, where a producer can wait or be refused. What the broker itself sends (dead letters,
expired messages, scheduled ones that fall due) is always admitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stompring.errors import Refused
from stompring.settings.model import FullPolicy, PageFullPolicy

from . import page_mode
from .message import EVERYWHERE, MESSAGE_OVERHEAD, REFERENCE_OVERHEAD, TAIL_OVERHEAD, Message
from .policy_hooks import FullAnswer, Offer

if TYPE_CHECKING:
    from .address import Address
    from .memory import MemoryLimit
    from .queue import Queue
    from .reference import Reference


class Rejection(NamedTuple):
    """Why a message may not enter an address now.

    ``policy`` is BLOCK, DROP or FAIL; with BLOCK ``limit`` is what to wait for.
    """

    address: "Address"  # noqa: UP037 (in quotes: the compiled build would look it up here)
    policy: FullPolicy
    limit: MemoryLimit | None  # None: the pages have reached their limit
    reason: str | None = None  # instead of the text for a limit

    @property
    def of_memory(self) -> bool:
        """The address or the broker holds too much."""
        return self.limit is self.address.memory_limit or self.limit is self.address.memory

    def describe(self) -> str:
        """For an ERROR frame or a log line."""
        address, limit = self.address, self.limit
        if self.reason is not None:
            return self.reason
        if limit is None:
            return describe_page_limit(address)
        if self.of_memory:
            return address.describe_full()
        own, reason = address.memory_limit, limit.fault or "the disk is too slow"
        if own.paging or own.full or address.memory.full:
            return f"Address {address.name} rejects durable messages, and all others while it pages: {reason}"
        if address.retained == EVERYWHERE:
            return f"Address {address.name} rejects durable messages, and all others to retain them: {reason}"
        return f"Address {address.name} rejects durable messages: {reason}"

    @property
    def of_backlog(self) -> bool:
        """The store has much to write, and a healthy disk: there will be room soon."""
        limit = self.limit
        storage = self.address.directory.broker.storage
        return limit is not None and limit is storage.write_limit and limit.fault is None


def check(address: Address, durable: bool, offer: Offer | None = None, body: bytes = b"") -> Rejection | None:
    """Why a message may not enter ``address`` now, None where it may.

    Where a policy decides for each message what a full address does with it (`Hooks.full`), it is shown the ``offer``.
    """
    limit, memory = address.memory_limit, address.memory
    paging = limit.paging
    if not limit.unbounded and (limit.full or memory.full):
        full = limit if limit.full else memory
        policy = address.policy
        if policy is None:
            assert offer is not None
            answer = _answer(address, offer, body)
            if isinstance(answer, Refused):
                return Rejection(address, FullPolicy.FAIL, full, str(answer))
            policy = answer
        if policy is FullPolicy.PAGE:
            paging = limit.paging or memory.should_page(limit)
        elif policy is not None:
            return Rejection(address, policy, full)
    if not (paging or durable or address.retained == EVERYWHERE):
        return None
    if paging and not limit.unbounded and (rejection := _page_limit(address)) is not None:
        return rejection
    broker = address.directory.broker
    if broker.disk.full:
        return Rejection(address, FullPolicy(address.settings.disk_full_policy), broker.disk)
    if broker.storage.write_limit.full:
        return Rejection(address, FullPolicy.BLOCK, broker.storage.write_limit)
    return None


def _answer(address: Address, offer: Offer, body: bytes) -> FullAnswer:
    """What the policies of a full address say to one message; None where it may enter all the same."""
    assert address.hooks.full is not None
    paging = address.directory.broker.paging
    if paging is not None and paging.gathered:
        paging.write_gathered()  # a policy may look at what is in pages
    offer.body = body
    answer = address.hooks.full(offer)
    offer.body = b""
    if isinstance(answer, Refused):
        return answer
    answer = address.without_store(answer)
    if answer is FullPolicy.PAGE and address.memory.should_page(address.memory_limit):
        page_mode.enter(address)
    return answer


def _page_limit(address: Address) -> Rejection | None:
    settings, pages = address.settings, address.pages
    policy = settings.page_full_policy
    if policy is None or pages is None:
        return None
    if (0 <= settings.page_limit_bytes <= pages.bytes) or (
        0 <= settings.page_limit_messages <= pages.messages
    ):
        return Rejection(address, FullPolicy(policy), None)
    address.pages_not_full()
    return None


def describe_page_limit(address: Address) -> str:
    """Which limit the pages of an address have reached."""
    settings, pages = address.settings, address.pages
    if pages is not None and 0 <= settings.page_limit_bytes <= pages.bytes:
        return f"Address {address.name} is full: page-limit-bytes {settings.page_limit_bytes}"
    return f"Address {address.name} is full: page-limit-messages {settings.page_limit_messages}"


def exceeded_by(loads: Mapping[Address, Sequence[int]], acknowledged: Iterable[Reference]) -> str | None:
    """Which limit a transaction would break, where the policy is FAIL: the text for its ERROR, None where none.

    ``loads`` has the bytes of each message that it sends to an address, ``acknowledged`` what it settles. A limit is
    reached, not passed, as by one message after the other: all but the last of them must leave it unreached.
    """
    bounded = [address for address in loads if _fails(address)]
    if not bounded:
        return None
    freed, settled = _freed(acknowledged)
    memory = bounded[0].memory
    everything: list[int] = []
    for address in bounded:
        sizes = [size + TAIL_OVERHEAD for size in loads[address]]
        if address.policy is FullPolicy.FAIL:
            grows = address.growth(len(sizes))
            held = [size + MESSAGE_OVERHEAD for size in sizes[len(sizes) - grows :]]
            everything += held
            limit = _exceeded(address.memory_limit, held, freed.get(address, NOTHING))
            if limit is not None:
                setting, most = (
                    ("max-size-bytes", "max-size-messages")[limit],
                    _most(address.memory_limit, limit),
                )
                return _describe_exceeded(address, sizes, f"{setting} {most}")
        elif (text := _exceeded_pages(address, sizes, freed.get(address, NOTHING), settled)) is not None:
            return text
    whole = FreedMemory(sum(f.bytes for f in freed.values()), sum(f.messages for f in freed.values()))
    limit = _exceeded(memory, everything, whole)
    if limit is not None:
        setting = ("global-max-size", "global-max-messages")[limit]
        return _describe_exceeded(bounded[0], everything, f"{setting} {_most(memory, limit)}")
    return None


class FreedMemory(NamedTuple):
    """What acknowledgements free of an address's memory."""

    bytes: int
    messages: int


NOTHING = FreedMemory(0, 0)


def _fails(address: Address) -> bool:
    if address.hooks.full is not None:
        return False  # which is asked about each message
    settings = address.settings
    pages_fail = settings.page_full_policy is PageFullPolicy.FAIL
    return address.policy is FullPolicy.FAIL or (address.policy is FullPolicy.PAGE and pages_fail)


def _freed(acknowledged: Iterable[Reference]) -> tuple[dict[Address, FreedMemory], Counter[Queue]]:
    """What the acknowledged messages give back to their addresses' memory, and how many each queue has in pages."""
    holders: Counter[Message] = Counter()
    paged: Counter[Queue] = Counter()
    freed: dict[Address, FreedMemory] = {}
    for ref in acknowledged:
        message = ref.message
        if ref.queue.attributes.non_destructive:
            continue
        if ref.position is not None:
            paged[ref.queue] += 1
        holders[message] += 1
        if message.account is not message.address:
            continue
        before = freed.get(message.address, NOTHING)
        if holders[message] == message.holders:
            freed[message.address] = FreedMemory(before.bytes + message.size, before.messages + 1)
        else:
            freed[message.address] = FreedMemory(before.bytes + REFERENCE_OVERHEAD, before.messages)
    return freed, paged


def _exceeded(limit: MemoryLimit, sizes: Sequence[int], freed: FreedMemory) -> int | None:
    """Which limit is reached before the last of some messages: 0 that of bytes, 1 that of messages, None neither."""
    if not sizes:
        return None
    if limit.bytes - freed.bytes + sum(sizes[:-1]) >= limit.threshold_bytes:
        return 0
    return 1 if limit.messages - freed.messages + len(sizes) - 1 >= limit.threshold_messages else None


def _exceeded_pages(
    address: Address, sizes: Sequence[int], freed: FreedMemory, settled: Mapping[Queue, int]
) -> str | None:
    """The same for the pages of an address, of those messages that exceed its memory."""
    limit, pages, settings = address.memory_limit, address.pages, address.settings
    if pages is None:
        held, count = limit.bytes - freed.bytes, limit.messages - freed.messages
        first = 0
        for size in sizes:
            if held >= limit.threshold_bytes or count >= limit.threshold_messages:
                break
            held, count, first = held + size + MESSAGE_OVERHEAD, count + 1, first + 1
        sizes = sizes[first:]
    if not sizes:
        return None
    there = 0 if pages is None else pages.bytes
    if 0 <= settings.page_limit_bytes <= there + sum(sizes[:-1]):
        return _describe_exceeded(address, sizes, f"page-limit-bytes {settings.page_limit_bytes}")
    left = 0
    if pages is not None:
        left = max((cursor.remaining - settled.get(q, 0) for q, cursor in pages.cursors.items()), default=0)
    if 0 <= settings.page_limit_messages <= left + len(sizes) - 1:
        return _describe_exceeded(address, sizes, f"page-limit-messages {settings.page_limit_messages}")
    return None


def _most(limit: MemoryLimit, which: int) -> int:
    return (limit.max_bytes, limit.max_messages)[which]


def _describe_exceeded(address: Address, sizes: Sequence[int], limit: str) -> str:
    messages = "one message" if len(sizes) == 1 else f"{len(sizes)} messages"
    return f"Address {address.name} is too full for {messages} of {sum(sizes)} bytes: {limit}"


def drop(rejection: Rejection) -> None:
    """Drop a message, as the policy says. Logged once until the address is no longer full."""
    address = rejection.address
    address.dropped_messages += 1
    if rejection.limit is None:
        address.log_pages_full(rejection.describe())
    elif rejection.of_memory:
        address.log_full("messages are dropped")
    # a full disk is logged once for all addresses
