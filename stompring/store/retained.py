"""Messages that are retained and need not come back: one record for many of them, by columns (docs/store-format.md).

What the reactor's thread does for each is a few items of lists. The tails are joined and their checksum is taken for
all of them together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

from stompring.broker.address import Address
from stompring.broker.message import Message, Traits
from stompring.broker.queue import Queue
from stompring.broker.storage import Entries

from .record import RETAINED_ENTRIES, RETAINED_TRAITS, encode_traits

#: Messages, and bytes of them, in one record: a millisecond or two of work. A message that is larger has one to itself.
MOST, LARGEST = 2000, 1 << 20

#: What RETAINED tells of messages in a queue: they wait there, or went out to a consumer that has acknowledged them.
WAITS, TAKEN = 0, 1


class Part:
    """What goes into one record: messages, and which of them entered a queue in which way."""

    __slots__ = ("entries", "messages")

    def __init__(self, messages: list[Message], entries: list[tuple[Entries, array[int] | None]]) -> None:
        self.messages = messages
        self.entries = entries  # with their places among the messages; None: all of them


def parts(found: Sequence[Entries]) -> Iterator[Part]:
    """What is in entries, put into records of bearable size. The entries are empty then."""
    if len(found) == 1:
        entries = found[0]
        messages, entries.messages = entries.messages, []
        for some in _slices(messages):
            yield Part(some, [(entries, None)])
        return
    places: dict[Message, int] = {}  # a message that enters several queues at once is written once
    within: list[tuple[Entries, array[int] | None]] = []
    size = 0
    for entries in found:
        messages, entries.messages = entries.messages, []
        for some in _slices(messages):
            if places and (len(places) + len(some) > MOST or size > LARGEST):
                yield Part(list(places), within)
                places, within, size = {}, [], 0
            before = len(places)
            at = array("I", [places.setdefault(message, len(places)) for message in some])
            within.append((entries, at))
            if len(places) > before:
                size += sum([len(message.tail) for message in some])
    if places:
        yield Part(list(places), within)


def _slices(messages: list[Message]) -> Iterator[list[Message]]:
    if len(messages) <= MOST and sum([message.size for message in messages]) <= LARGEST:
        yield messages
        return
    begin = size = 0
    for place, message in enumerate(messages):
        size += message.size
        if place > begin and (size > LARGEST or place - begin >= MOST):
            yield messages[begin:place]
            begin, size = place, message.size
    yield messages[begin:]


def columns(messages: Sequence[Message], name_address: Callable[[Address], int]) -> tuple[int, bytes, bytes]:
    """How many traits the messages have, the columns of their record, and the traits.

    ``name_address`` gives the number of an address, and tells its name if need be.
    """
    which, known = _traits(messages, name_address)
    fixed = (
        array("Q", [message.number for message in messages]),
        array("Q", [message.timestamp for message in messages]),
        array("Q", [message.expires for message in messages]),
        which,
        array("I", [message.body_at for message in messages]),
        array("I", [len(message.tail) for message in messages]),
    )
    return len(known), b"".join(fixed), b"".join(known)


def _traits(
    messages: Sequence[Message], name_address: Callable[[Address], int]
) -> tuple[array[int], list[bytes]]:
    """Of which traits each message is, and the traits as they stand in the record."""
    first, home = messages[0].traits, messages[0].address
    if (
        [message.traits for message in messages].count(first)
        == len(messages)
        == [message.address for message in messages].count(home)
    ):
        record = first.record or encode_traits(first)
        return array("I", bytes(4 * len(messages))), [
            RETAINED_TRAITS.pack(name_address(home), len(record)) + record
        ]
    known: dict[bytes, int] = {}
    seen: dict[tuple[Traits, Address], int] = {}
    which = array("I")
    for message in messages:
        traits, address = message.traits, message.address
        place = seen.get((traits, address))
        if place is None:
            record = traits.record or encode_traits(traits)
            key = RETAINED_TRAITS.pack(name_address(address), len(record)) + record
            place = seen[traits, address] = known.setdefault(key, len(known))
        which.append(place)
    return which, list(known)


def pack_entries(part: Part, ids: Callable[[Queue], int], name_consumer: Callable[[str], int]) -> bytes:
    """Which queues had the messages of a part; ``ids`` gives the number of one."""
    packed = []
    for entries, places in part.entries:
        consumer = name_consumer(entries.taker) if entries.taker else 0
        outcome = WAITS if entries.taker is None else TAKEN
        if places is None or len(places) == len(part.messages):
            packed.append(RETAINED_ENTRIES.pack(ids(entries.queue), outcome, 0, consumer, 0))
        else:
            packed.append(RETAINED_ENTRIES.pack(ids(entries.queue), outcome, 0, consumer, len(places)))
            packed.append(places.tobytes())
    return b"".join(packed)
