"""Retroactive addresses: the last messages of an address, for queues that are created later."""

from stompring.broker.clock import Recurrence
from stompring.settings.match import SettingsRepository
from stompring.settings.model import AddressSettingEntry, DivertConfiguration, FullPolicy, QueueConfiguration

from ..paging.stored_pages import StoredPages, drained
from .broker_fixture import MULTICAST, BrokerFixture, assert_nothing_held, bodies, join

RETRO = {"retroactive_message_count": 3}


def broker(count=3, match="#", **more):
    return BrokerFixture({match: {"retroactive_message_count": count}}, **more)


def settings(world, **values):
    world.directory.settings = SettingsRepository((AddressSettingEntry("#", values),))
    for address in list(world.directory.addresses.values()):
        address.apply(world.directory.settings.lookup(address.name))
    world.broker.retroactive.apply()
    world.settle_down()


def send(world, *texts, address="a", **more):
    for text in texts:
        world.send(address, text.encode(), **more)


def texts(queue):
    return b"".join(bodies(queue)).decode()


def test_a_wildcard_queue_gets_those_of_all_addresses_in_order():
    world = broker(2, "n.*")
    for text, address in [("1", "n.a"), ("2", "n.b"), ("3", "n.a"), ("4", "n.c"), ("5", "n.a"), ("6", "x.a")]:
        send(world, text, address=address)
    assert texts(world.queue("all", "n.#", MULTICAST)) == "2345"
    assert texts(world.queue("every", "#", MULTICAST)) == "2345"
    assert texts(world.queue("none", "x.*", MULTICAST)) == ""


def test_a_wildcard_queue_gets_no_copy_of_what_is_kept():
    world = broker()
    queue = world.queue("every", "#", MULTICAST)
    send(world, "1")
    assert texts(queue) == "1"


def test_copies_tell_that_they_are_some():
    world = broker()
    first = world.send(
        "a",
        b"x",
        priority=7,
        durable=True,
        group=b"g",
        user="ada",
        destination=b"/topic/a",
        headers={"k": "v"},
    )
    dead = {"_AMQ_ORIG_ADDRESS": "elsewhere", "_AMQ_ORIG_REASON": "expired"}
    world.send("a", b"y", headers={"first": "line", **dead})
    one, two = (ref.message for ref in world.queue("q", "a", MULTICAST).dispatcher.in_order())
    assert one.header(b"_AMQ_ORIG_ADDRESS") == b"a" and one.header(b"_AMQ_ORIG_REASON") == b"retroactive"
    assert one.header(b"_AMQ_ORIG_MESSAGE_ID") == b"%d" % first.number and one.header(b"k") == b"v"
    traits = one.traits
    assert (traits.priority, traits.durable, traits.group, traits.user) == (7, True, b"g", "ada")
    assert (traits.destination, one.address.name, one.timestamp) == (b"/topic/a", "a", first.timestamp)
    assert one.number > first.number
    assert two.header(b"_AMQ_ORIG_REASON") == b"expired"  # a copy itself


def test_the_oldest_leaves_whatever_its_priority():
    world = broker()
    for priority, text in [(9, "1"), (0, "2"), (5, "3"), (9, "4")]:
        send(world, text, priority=priority)
    assert texts(world.queue("q", "a", MULTICAST)) == "432"


def test_scheduled_messages_count_from_their_time_on():
    world = broker()
    world.send("a", b"later", due=world.now + 1000, recurrence=Recurrence(1000, 1))
    send(world, *"123")
    assert texts(world.queue("before", "a", MULTICAST)) == "123"
    world.pass_time(1000)
    assert texts(world.queue("after", "a", MULTICAST)) == "23later"


def test_expired_messages_leave_without_a_copy():
    world = BrokerFixture({"#": {**RETRO, "expiry_address": "EXP"}})
    expired = world.queue("EXP")
    world.send("a", b"soon", expires=world.now + 500)
    send(world, "1")
    world.pass_time(600)
    assert texts(world.queue("q", "a", MULTICAST)) == "1"
    assert texts(expired) == ""


def test_an_own_message_is_not_for_a_subscription_without_local_ones():
    world = broker()
    send(world, "mine", origin="me")
    send(world, "yours", origin="you")
    queue = world.directory.create_queue(QueueConfiguration("q", "a", MULTICAST), "me")
    assert texts(queue) == "yours"


def test_the_limits_of_the_address_do_not_count_what_is_kept():
    world = BrokerFixture({"#": {**RETRO, "max_size_messages": 1, "address_full_policy": FullPolicy.BLOCK}})
    send(world, *"123")
    assert world.address("a").full is None
    assert world.address("a").retroactive is not None and world.address("a").retroactive.count == 3


def test_it_works_while_the_address_pages():
    world = StoredPages(2, RETRO)
    queue = world.queue("q", "a", MULTICAST)
    sent = world.fill(8, "a")
    assert world.address("a").pages is not None
    late = world.queue("late", "a", MULTICAST)
    assert drained(world, join(late, auto=True)) == sent[-3:]
    world.fill(1, "a", 8)
    assert drained(world, join(queue, auto=True)) == [*sent, b"8"]


def test_it_is_resized_live():
    world = broker()
    send(world, *"123")
    settings(world, retroactive_message_count=2)
    assert texts(world.queue("two", "a", MULTICAST)) == "23"
    settings(world, retroactive_message_count=4)
    send(world, *"456")
    assert texts(world.queue("four", "a", MULTICAST)) == "3456"
    settings(world)
    assert texts(world.queue("none", "a", MULTICAST)) == ""
    assert not [name for name in world.directory.addresses if name.startswith("$")]
    assert not world.address("a").memory_limit.slow_path


def test_settings_may_begin_it():
    world = BrokerFixture()
    world.queue("q", "a", MULTICAST)
    send(world, "1")
    settings(world, retroactive_message_count=2)
    send(world, "2")
    assert texts(world.queue("late", "a", MULTICAST)) == "2"


def test_it_is_removed_with_the_address():
    world = broker()
    send(world, *"123")
    world.queue("q", "a", MULTICAST)
    world.directory.delete_address("a", force=True)
    world.settle_down()
    assert not world.directory.addresses and not world.directory.queues
    assert_nothing_held(world)


def test_an_address_that_keeps_messages_is_not_deleted_for_want_of_a_queue():
    world = broker()
    queue = world.queue("q", "a", MULTICAST, auto_created=True, auto_delete=True)
    taker = join(queue, auto=True)
    send(world, "1")
    taker.close()
    world.pass_time(100_000)
    assert queue.deleted
    assert texts(world.queue("late", "a", MULTICAST)) == "1"


def test_what_an_exclusive_divert_takes_is_not_kept():
    exclusive = DivertConfiguration("d", "a", ("b",), "k = '1'", exclusive=True)
    world = broker(diverts=(exclusive,))
    world.send("a", b"taken", headers={"k": "1"})
    send(world, "1")
    assert texts(world.queue("q", "a", MULTICAST)) == "1"


def test_many_messages_come_in_slices_and_before_those_sent_meanwhile():
    world = broker(5000)
    sent = [str(number) for number in range(3000)]
    send(world, *sent)
    world.slice_finely()
    queue = world.queue("q", "a", MULTICAST)
    taker = join(queue, auto=True)
    assert queue.message_count < 3000 and not taker.got
    world.one_turn()
    send(world, "last")
    assert not taker.got
    world.settle_down()
    assert [body.decode() for body in taker.bodies] == [*sent, "last"]


def test_a_queue_that_is_deleted_meanwhile():
    world = broker(50)
    send(world, *map(str, range(50)))
    world.slice_finely()
    queue = world.queue("q", "a", MULTICAST)
    world.directory.delete_queue("q", force=True)
    world.settle_down()
    assert queue.persistent_size == 0
    world.directory.delete_address("a", force=True)
    world.settle_down()
    assert_nothing_held(world)


def test_what_is_kept_does_not_keep_others_from_paging():
    world = StoredPages(-1, {"retroactive_message_count": 0}, global_max_messages=10, more={"a": {**RETRO}})
    settings_of_a = {"retroactive_message_count": 100}
    world.directory.settings = SettingsRepository(
        (AddressSettingEntry("#", {}), AddressSettingEntry("a", settings_of_a))
    )
    world.address("a").apply(world.directory.settings.lookup("a"))
    world.broker.retroactive.apply()
    world.fill(9, "a")  # nobody reads these
    world.queue("q", "b", MULTICAST)
    world.fill(5, "b")
    assert world.address("b").pages is not None
