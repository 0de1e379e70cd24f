"""Whether a message may enter an address now: full addresses, full pages, a full disk, a store that cannot keep up.

Asked for SEND and COMMIT alone, where a producer can be told. What the broker itself sends (dead letters, expired
messages, scheduled ones that fall due) always enters.
"""

from __future__ import annotations

from typing import NamedTuple

from stompring.errors import Refused
from stompring.settings.model import FullPolicy

from . import page_mode
from .address import Address
from .hooks import FullAnswer
from .memory import Room
from .offer import Offer


class Obstacle(NamedTuple):
    """What stands in a message's way. ``policy`` is BLOCK, DROP or FAIL; with BLOCK ``room`` is what to wait for."""

    address: Address
    policy: FullPolicy
    room: Room | None  # None: the pages have reached their limit
    reason: str | None = None  # where a policy has given one

    @property
    def of_memory(self) -> bool:
        """The address or the broker holds too much."""
        return self.room is self.address.room or self.room is self.address.memory

    def describe(self) -> str:
        """For an ERROR frame or a log line."""
        address, room = self.address, self.room
        if self.reason is not None:
            return self.reason
        if room is None:
            return describe_page_limit(address)
        if self.of_memory:
            return address.describe_full()
        return f"Address {address.name} takes nothing that must be written: {room.fault or 'the disk is too slow'}"


def obstacle(
    address: Address, durable: bool, offer: Offer | None = None, body: bytes = b""
) -> Obstacle | None:
    """What stands in the way of a message to ``address``, None where nothing does.

    Where a policy decides for each message what a full address does with it (`Hooks.full`), it is shown the ``offer``.
    """
    room, memory = address.room, address.memory
    paging = room.paging
    if not room.endless and (room.full or memory.full):
        full = room if room.full else memory
        policy = address.policy
        if policy is None:
            assert offer is not None
            answer = _answer(address, offer, body)
            if isinstance(answer, Refused):
                return Obstacle(address, FullPolicy.FAIL, full, str(answer))
            policy = answer
        if policy is FullPolicy.PAGE:
            paging = room.paging or memory.should_page(room)
        elif policy is not None:
            return Obstacle(address, policy, full)
    if not (paging or durable):
        return None
    if paging and not room.endless and (limit := _page_limit(address)) is not None:
        return limit
    broker = address.directory.broker
    if broker.disk.full:
        return Obstacle(address, FullPolicy(address.settings.disk_full_policy), broker.disk)
    if broker.storage.room.full:
        return Obstacle(address, FullPolicy.BLOCK, broker.storage.room)
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
    if answer is FullPolicy.PAGE and address.memory.should_page(address.room):
        page_mode.enter(address)
    return answer


def _page_limit(address: Address) -> Obstacle | None:
    settings, pages = address.settings, address.pages
    policy = settings.page_full_policy
    if policy is None or pages is None:
        return None
    if (0 <= settings.page_limit_bytes <= pages.bytes) or (
        0 <= settings.page_limit_messages <= pages.messages
    ):
        return Obstacle(address, FullPolicy(policy), None)
    address.pages_have_room()
    return None


def describe_page_limit(address: Address) -> str:
    """Which limit the pages of an address have reached."""
    settings, pages = address.settings, address.pages
    if pages is not None and 0 <= settings.page_limit_bytes <= pages.bytes:
        return f"Address {address.name} is full: page-limit-bytes {settings.page_limit_bytes}"
    return f"Address {address.name} is full: page-limit-messages {settings.page_limit_messages}"


def drop(hindered: Obstacle) -> None:
    """Throw a message away, as the policy says. Said once, until there is room again."""
    address = hindered.address
    address.dropped_messages += 1
    if hindered.room is None:
        address.say_pages_full(hindered.describe())
    elif hindered.of_memory:
        address.say_full("messages are dropped")
    # that the disk is full is said once for all addresses
