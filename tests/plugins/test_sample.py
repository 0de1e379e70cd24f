"""plugins/sample.py"""

from stompring.policy.testing import PolicyHarness

from . import fault, policy, remembered

KIND = policy("sample")


def house(limit=10, **parameters):
    settings = {"max_size_messages": limit, "address_full_policy": "DROP"}
    return PolicyHarness(KIND, settings=settings, **{"one_in": 3, **parameters})


def sent(harness, count, **headers):
    """1 for each message that was accepted, 0 for one that was dropped."""
    return [int(harness.send(b"x", headers).accepted) for _ in range(count)]


def drain(harness):
    for message in harness.deliver(1000):
        harness.settle(message)


def test_one_in_n_from_a_percentage_on():
    harness = house(100, address_percent=5)
    assert sent(harness, 5) == [1] * 5
    assert sent(harness, 9) == [1, 0, 0, 1, 0, 0, 1, 0, 0]
    assert harness.broker.directory.addresses["address"].dropped_messages == 6
    assert not harness.errors


def test_all_again_when_the_pressure_is_over_and_then_from_the_beginning():
    harness = house(100, address_percent=5)
    assert sent(harness, 7) == [1] * 6 + [0]
    drain(harness)
    assert sent(harness, 5) == [1] * 5
    assert sent(harness, 3) == [1, 0, 0]


def test_by_a_key():
    harness = house(100, address_percent=1, key="host")
    harness.send(b"first")
    assert sent(harness, 4, host="a") == [1, 0, 0, 1]
    assert sent(harness, 2, host="b") == [1, 0]
    assert sent(harness, 2, host="a") == [0, 0]
    assert sent(harness, 4) == [1, 0, 0, 1]  # those without the header together
    assert sent(harness, 2, host="b") == [0, 1]


def test_keys_are_bounded_and_forgotten():
    harness = house(1_000_000, broker_percent=1, key="host")
    harness.broker.memory.set_limits(-1, 100_000)
    for _ in range(1000):
        harness.send(b"first")
    for number in range(10_050):
        harness.send(b"x", {"host": str(number)})
    assert 10_000 <= remembered(harness.policy) < 10_010
    assert sent(harness, 1, host="10049") == [0]
    assert sent(harness, 1, host="0") == [1]
    harness.broker.memory.set_limits(-1, 1_000_000_000)
    harness.send(b"x")
    assert remembered(harness.policy) < 10


def test_the_limit_of_the_broker():
    harness = house(-1, broker_percent=50)
    harness.broker.memory.set_limits(-1, 4)
    assert sent(harness, 2) == [1, 1]
    assert sent(harness, 4) == [1, 0, 0, 1]


def test_while_paging():
    harness = house(-1, while_paging=True)
    address = harness.broker.directory.addresses["address"]
    assert sent(harness, 3) == [1, 1, 1]

    class Paging:
        name = "not a limit of memory"
        paging = True
        limit_percent = broker_percent = 0

    assert not harness.policy.address.paging
    harness.policy.address = Paging()
    assert sent(harness, 4) == [1, 0, 0, 1]
    assert address.dropped_messages == 2


def test_any_of_several_kinds_of_pressure_is_enough():
    harness = house(100, address_percent=90, broker_percent=50)
    harness.broker.memory.set_limits(-1, 2)
    assert sent(harness, 4) == [1, 1, 0, 0]


def test_an_address_without_a_limit_is_never_under_pressure():
    assert sent(house(-1, address_percent=1), 20) == [1] * 20


def test_a_reload():
    harness = house(100, address_percent=1)
    sent(harness, 1)
    assert sent(harness, 3) == [1, 0, 0]
    harness.reload(one_in=2, address_percent=1)
    assert sent(harness, 4) == [1, 0, 1, 0]
    harness.reload(one_in=2, address_percent=99)
    assert sent(harness, 4) == [1, 1, 1, 1]


def test_parameters():
    assert "parameter 'one-in' is required" in fault(KIND, address_percent=5)
    assert "address-percent, broker-percent or while-paging is required" in fault(KIND, one_in=2)
    assert "one-in is '1': must be at least 2" in fault(KIND, one_in=1, while_paging=True)
    assert "must be from 1 to 100" in fault(KIND, one_in=2, address_percent=101)
    assert "must be from 1 to 100" in fault(KIND, one_in=2, broker_percent=0)
