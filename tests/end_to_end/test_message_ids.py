"""A message-id is given once, however often the broker starts."""

import pytest

from .lasting import DURABLE

pytestmark = pytest.mark.in_memory


def ids(lasting, count=25):
    """The ids of messages that are consumed at once, every other one durable."""
    client = lasting.connect()
    client.subscribe("q", ack="auto")
    found = []
    for number in range(count):
        client.put("q", str(number), **(DURABLE if number % 2 else {}))
        found.append(client.message(str(number))["message-id"])
    return found


@pytest.mark.parametrize("settings", [{}, {"q": {"max-size-messages": 0}}], ids=["memory", "paging"])
def test_ids_do_not_repeat_after_a_restart(lasting, how, settings):
    lasting.start(settings=settings)
    found = ids(lasting)
    for _ in range(3):
        lasting.again(how)
        found += ids(lasting)
    assert len(set(found)) == len(found) == 100
    numbers = [int(each.rpartition("-")[2]) for each in found]
    assert numbers == sorted(numbers) and numbers[-1] < 1_000_000_000
    assert len({each.rpartition("-")[0] for each in found}) == 1


def test_ids_of_a_broker_without_persistence(lasting, how):
    lasting.start(core="<persistence-enabled>false</persistence-enabled>")
    found = ids(lasting)
    lasting.again(how)
    found += ids(lasting)
    numbers = [int(each.rpartition("-")[2]) for each in found]
    assert len(set(numbers)) == 50 and numbers == sorted(numbers)
    assert abs(lasting.management.time.now() * 1_000_000 - numbers[-1]) < 3_600_000_000
