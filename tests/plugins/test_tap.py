"""plugins/tap.py"""

from stompring.policy.testing import ADDRESS, PolicyHarness

from . import fault, policy

KIND = policy("tap")


def test_one_in_n_is_copied():
    harness = PolicyHarness(KIND, to="seen", one_in=3, settings={"max_size_messages": 5}, full=False)
    for number in range(5):
        assert harness.send(b"%d" % number, {"priority": "7"}).accepted
    assert harness.send(b"waits for memory", producer="other").waits
    assert harness.waiting("seen") == [b"0", b"3"] and harness.messages("seen")[0].priority == 7
    harness.settle(*harness.deliver(1))
    harness.send(b"6", producer="other")
    assert harness.waiting("seen") == [b"0", b"3"] and not harness.errors


def test_to_itself():
    harness = PolicyHarness(KIND, to=ADDRESS)
    assert "cannot start: address address would copy to itself" in harness.send(b"x").refused


def test_parameters():
    assert "parameter 'to' is required" in fault(KIND)
    assert "to is 'a::b': must be an address" in fault(KIND, to="a::b")
    assert "one-in is '0': must be at least 1" in fault(KIND, to="a", one_in=0)
