"""What is gathered and written at once is, to the byte, what is appended message by message."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from .paged_broker import PagedBroker


class Area:
    """As much of a queue's area as pages know."""

    grew = 0

    def on_growth(self):
        self.grew += 1


def place(page_size=1024):
    """A queue that has something waiting, so that more may be gathered for it."""
    everywhere = {
        "page_size_bytes": page_size,
        "auto_delete_queues": False,
        "auto_delete_addresses": False,
    }
    world = PagedBroker(settings={"#": everywhere})
    (queue,) = world.queues("q")
    queue.paged = Area()
    world.page([queue], b"first", durable=False)
    return world, queue


def messages(world, sizes, **traits):
    made = [world.message("a", bytes(size), **traits) for size in sizes]
    for message in made:
        message.traits = made[0].traits
    return made


def various(world, sizes, kinds):
    """Messages whose header blocks are ``kinds`` different ones, one after the other."""
    traits = [world.message("a", headers={"kind": "k" * kind}).traits for kind in range(kinds)]
    made = [world.message("a", bytes(size)) for size in sizes]
    for number, message in enumerate(made):
        message.traits = traits[number % kinds]
    return made


def everything(world, queue):
    """What is on disk, and what the cursor knows."""
    cursor, pages = world.cursor(queue), world.pages
    world.turn()
    known = [(page.count, page.end, bytes(cursor.states(page, 0, page.count))) for page in pages.in_order()]
    counts = cursor.remaining, cursor.waiting, list(cursor.levels), pages.bytes, pages.count
    files = {path.name: data for path, data in world.memory.data.items() if path.suffix == ".page"}
    return known, counts, files, world.drain(queue), pages.empty


@settings(max_examples=40, deadline=None)
@given(
    runs=st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=12), min_size=1, max_size=5),
    page_size=st.sampled_from([1024, 4096, 1 << 20]),
    kinds=st.sampled_from([1, 2, 100]),
)
def test_gathered_messages_equal_appended_messages(runs, page_size, kinds):
    found = []
    for together in (False, True):
        world, queue = place(page_size)
        for sizes in runs:
            world.paging.gathering = together
            for message in various(world, sizes, kinds):
                if not world.pages.gather(message, queue):
                    assert not together
                    world.pages.append(message, [queue])
            world.paging.gathering = False
            world.paging.write_gathered()
        found.append(everything(world, queue))
    assert found[0] == found[1]


def test_appended_messages_follow_gathered_messages():
    world, queue = place()
    (other,) = world.queues("other")
    world.paging.gathering = True
    gathered = messages(world, [1, 2, 3])
    assert [world.pages.gather(message, queue) for message in gathered] == [True] * 3
    assert world.cursor(queue).remaining == 1, "not written yet"
    world.page([queue, other], b"x")
    assert world.cursor(queue).remaining == 5
    numbers = [message.number for message in gathered]
    scanned = [world.load(queue, page, at).message.number for page, at in positions(world, queue)]
    assert scanned[1:4] == numbers
    assert queue.paged.grew == 1
    world.paging.write_gathered()
    assert world.cursor(queue).remaining == 5, "once"


def positions(world, queue):
    return [(page, at) for page in world.pages.in_order() for at in world.cursor(queue).waiting_of(page)]


def test_messages_with_other_headers_are_gathered_with_those_before():
    world, queue = place()
    world.paging.gathering = True
    for traits in ({}, {"headers": {"colour": "red"}}, {}, {"headers": {"colour": "blue"}}):
        for message in messages(world, [5, 5], **traits):
            assert world.pages.gather(message, queue)
    assert world.cursor(queue).remaining == 1, "nothing is written yet"
    world.paging.write_gathered()
    assert world.cursor(queue).remaining == 9


def test_another_queue_or_priority_begins_anew():
    world, queue = place()
    world.page([queue], b"urgent", durable=False, priority=7)
    world.paging.gathering = True
    for priority in (4, 7, 4):
        for message in messages(world, [5, 5], priority=priority):
            assert world.pages.gather(message, queue)
    assert world.cursor(queue).remaining == 6, "the last two are not written yet"
    world.paging.write_gathered()
    assert world.cursor(queue).remaining == 8


def test_where_more_is_to_be_done_nothing_is_gathered():
    def refused(**changed):
        world, queue = place()
        world.paging.gathering = changed.pop("gathering", True)
        for name, value in changed.pop("queue", {}).items():
            setattr(queue.dispatcher if name == "selector_lists" else queue, name, value)
        if changed.pop("inside", False):
            world.store.begin()
        return not world.pages.gather(messages(world, [5], **changed)[0], queue)

    assert not refused(), "the plain case"
    assert not refused(queue={"ready": [object()]}), "who is ready waits for those before it"
    for case in (
        {"gathering": False},
        {"expires": 1},
        {"priority": 7},  # nothing of that priority waits before it
        {"queue": {"paged": None}},
        {"queue": {"ring_size": 3}},
        {"queue": {"ready": [object()], "selector_lists": {"colour": object()}}},
        {"inside": True},
    ):
        assert refused(**case), case


def test_expiring_message_ends_the_gathered_batch():
    world, queue = place()
    world.paging.gathering = True
    plain, expiring = messages(world, [5, 5])
    expiring.expires = world.now + 1000
    assert world.pages.gather(plain, queue)
    assert not world.pages.gather(expiring, queue)
    assert world.cursor(queue).remaining == 2


def test_settings_that_change_meanwhile():
    world, queue = place(1 << 20)
    address = world.address("a")
    world.paging.gathering = True
    for message in messages(world, [300] * 10):
        world.pages.gather(message, queue)
    address.apply(replace(address.settings, page_size_bytes=1024))
    world.paging.write_gathered()
    assert world.pages.count > 2
