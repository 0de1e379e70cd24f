"""The life of policies: made with an address, kept or replaced by a reload, ended; several at one address; timers."""

from pathlib import Path

import pytest

from stompring.policy import AddressPolicy, ChangeHeaders, Redirect, Refuse, parameter
from stompring.policy.load import load
from stompring.policy.testing import START_TIME, ManualClock, PolicyHarness
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressSettingEntry,
    BrokerConfiguration,
    FullPolicy,
    PluginConfiguration,
    PolicyUse,
    Property,
)

from ..broker.broker_fixture import BrokerFixture

LIVES = []


class Lives(AddressPolicy):
    """Writes down its life."""

    number: int = parameter("A number.", 0)

    def _note(self, hook):
        LIVES.append((hook, self.address.name, self.number))

    def created(self):
        """See AddressPolicy."""
        self._note("created")
        self.seen = 0

    def replaces(self, former):
        """See AddressPolicy."""
        self._note(f"replaces {former.number}")
        self.seen = former.seen

    def deleted(self):
        """See AddressPolicy."""
        self._note("deleted")

    def closed(self):
        """See AddressPolicy."""
        self._note("closed")

    def admit(self, offer):
        """See AddressPolicy."""
        self.seen += 1


@pytest.fixture(autouse=True)
def lives():
    LIVES.clear()
    return LIVES


def test_a_life(lives):
    harness = PolicyHarness(Lives)
    assert lives == [("created", "address", 0)]
    harness.delete()
    assert lives[1:] == [("deleted", "address", 0), ("closed", "address", 0)]


def test_the_end_of_the_broker(lives):
    PolicyHarness(Lives).broker.stop()
    assert lives[1:] == [("closed", "address", 0)]


def test_a_reload_that_changes_nothing_keeps_the_object(lives):
    harness = PolicyHarness(Lives, number=1)
    policy = harness.policy
    harness.send(b"m")
    harness.reload(number=1)
    assert harness.policy is policy and len(lives) == 1
    harness.send(b"m")
    assert policy.seen == 2


def test_a_reload_with_other_parameters_hands_over(lives):
    harness = PolicyHarness(Lives, number=1)
    harness.send(b"m")
    harness.reload(number=2)
    assert lives[1:] == [("created", "address", 2), ("replaces 1", "address", 2), ("closed", "address", 1)]
    harness.send(b"m")
    assert harness.policy.seen == 2, "also for the producer whose headers were planned before"


def test_a_reload_with_other_code_hands_over(lives):
    class Lives2(Lives):
        """A later version."""

    harness = PolicyHarness(Lives)
    harness.send(b"m")
    harness.reload(Lives2)
    assert type(harness.policy) is Lives2 and harness.policy.seen == 1


# ---- several


class Sources:
    """Policies by name."""

    def __init__(self, **policies):
        self.policies = policies

    def load(self, name):
        return self.policies[name.replace("-", "_")]


class PolicyWorld(BrokerFixture):
    """A world with policies."""

    def __init__(self, settings, **policies):
        super().__init__()
        self.sources = Sources(**policies)
        self.use(settings)

    def use(self, settings):
        """As a reload does."""
        configuration = BrokerConfiguration(
            plugins=tuple(PluginConfiguration(name, name) for name in self.sources.policies),
            address_settings=tuple(AddressSettingEntry(match, values) for match, values in settings.items()),
        )
        self.broker.policies.use(load(configuration, self.sources))
        self.directory.settings = SettingsRepository.of(configuration)
        for address in self.directory.addresses.values():
            address.apply(self.directory.settings.lookup(address.name))

    def named(self, address):
        return self.broker.policies.names_for(self.address(address))


def test_an_address_has_the_policies_of_all_entries_that_match():
    world = PolicyWorld(
        {
            "#": {"address_policy": (PolicyUse("first"), PolicyUse("second"))},
            "a.#": {"address_policy": (PolicyUse("third"),), "address_full_policy": "fourth"},
            "a.b": {"address_policy": (PolicyUse("first", enabled=False), PolicyUse("second"))},
        },
        **dict.fromkeys(("first", "second", "third", "fourth"), Lives),
    )
    assert world.named("x") == ["first", "second"]
    assert world.named("a.x") == ["first", "second", "third", "fourth"]
    assert world.named("a.b") == ["second", "third", "fourth"]


def test_a_more_specific_entry_gives_other_parameters():
    numbers = {
        match: PolicyUse("lives", (Property("number", text),)) for match, text in (("#", "1"), ("a", "2"))
    }
    world = PolicyWorld({match: {"address_policy": (use,)} for match, use in numbers.items()}, lives=Lives)
    for name in ("a", "b"):
        world.address(name)
    assert sorted(LIVES) == [("created", "a", 2), ("created", "b", 1)]


def test_a_reload_gives_and_takes_policies():
    world = PolicyWorld({"#": {}}, lives=Lives)
    world.address("a")
    assert world.named("a") == [] and LIVES == []
    world.use({"#": {"address_policy": (PolicyUse("lives"),)}})
    assert world.named("a") == ["lives"] and LIVES == [("created", "a", 0)]
    world.use({"#": {}})
    assert world.named("a") == [] and LIVES[1:] == [("closed", "a", 0)]
    assert world.address("a").hooks is world.address("b").hooks, "as any address without plugins"


class Adds(AddressPolicy):
    """Adds a header that tells what was there before."""

    def admit(self, offer):
        """See AddressPolicy."""
        return ChangeHeaders({"path": (offer.header("path") or "") + "a", "gone": None})


class Looks(AddressPolicy):
    """Refuses what has come a certain way."""

    def admit(self, offer):
        """See AddressPolicy."""
        if offer.header("gone") is not None:
            return Refuse("it should be gone")
        return Redirect("elsewhere") if offer.header("path") == "xa" else None


def test_each_sees_what_the_ones_before_have_made_of_a_message():
    harness = PolicyHarness(Adds, after=Looks)
    assert harness.send(b"m", {"gone": "x"}).accepted
    (message,) = harness.messages()
    assert message.header("path") == "a" and message.header("gone") is None
    assert "it should be gone" in PolicyHarness(Looks, after=Adds).send(b"m", {"gone": "x"}).refused


def test_changes_go_along_with_a_redirect():
    harness = PolicyHarness(Adds, after=Looks)
    assert harness.send(b"m", {"path": "x"}).accepted
    assert harness.waiting() == []
    (message,) = harness.messages("elsewhere")
    assert message.header("path") == "xa"


def test_policies_that_redirect_in_a_circle():
    class Round(AddressPolicy):
        """Sends it on to the other one."""

        def admit(self, offer):
            return Redirect({"address": "b", "b": "address"}[self.address.name])

    others = {"b": {"address_policy": (PolicyUse("policy-under-test"),)}}
    harness = PolicyHarness(Round, others=others)
    assert harness.send(b"m").refused == "Policies redirect in a loop: address to b to address"


# ---- that fails


def test_policy_that_cannot_start_closes_its_address_until_a_reload():
    class Broken(AddressPolicy):
        """Cannot begin."""

        number: int = parameter("A number.", 0)

        def created(self):
            if not self.number:
                raise OSError("no such thing")

    harness = PolicyHarness(Broken)
    text = "Policy policy-under-test of address address failed in created: see the broker's log"
    assert harness.send(b"m").refused == text
    assert harness.subscribe() == text
    assert harness.send(b"m", to="other").accepted
    assert harness.errors == {"created": 1}
    harness.reload(number=1)
    assert harness.send(b"m").accepted and harness.subscribe() == ""


def test_value_error_in_created_is_sent_to_clients():
    class Picky(AddressPolicy):
        """Does not fit."""

        def created(self):
            raise ValueError("it would be its own")

    text = "Policy policy-under-test of address address cannot start: it would be its own"
    assert PolicyHarness(Picky).send(b"m").refused == text


@pytest.mark.parametrize("hook", ["replaces", "closed", "deleted"])
def test_a_fault_in_the_life_of_a_policy_stops_nothing(hook):
    def boom(self, *others):
        raise OSError(hook)

    failing = type("Failing", (Lives,), {hook: boom, "__module__": __name__})
    harness = PolicyHarness(failing)
    harness.reload(number=2)
    assert harness.send(b"m").accepted
    harness.delete()
    assert harness.errors.get(hook)


# ---- timers


class Ticks(AddressPolicy):
    """Has timers."""

    def created(self):
        """See AddressPolicy."""
        self.ticks = []
        self.timer = self.address.call_later(1.5, self.tick, "first")
        self.address.call_later(2, self.boom)

    def tick(self, what):
        """Something happens."""
        self.ticks.append((what, self.address.now))

    def boom(self):
        """Something goes wrong."""
        raise ValueError("boom")


def test_timers_ring_in_time_and_their_faults_are_counted():
    harness = PolicyHarness(Ticks)
    begin = harness.policy.address.now
    harness.advance(1499)
    assert harness.policy.ticks == []
    harness.advance(1)
    assert harness.policy.ticks == [("first", begin + 1500)] and not harness.policy.timer.active()
    harness.advance(1000)
    assert harness.errors == {"timer": 1}


def test_timers_can_be_cancelled_and_end_with_their_policy():
    harness = PolicyHarness(Ticks)
    policy = harness.policy
    policy.timer.cancel()
    harness.delete()
    harness.advance(5000)
    assert policy.ticks == [] and harness.errors == {}


def test_cancelled_timers_are_forgotten():
    view = PolicyHarness(Ticks).policy.address
    before = len(view._timers)
    for _ in range(100):
        timer = view.call_later(60, print)
        timer.cancel()
        timer.cancel()
        assert not timer.active()
    assert len(view._timers) == before


def test_the_clock_of_the_kit_is_exact():
    for n in range(1, 1000):
        clock = ManualClock()
        rung = []
        clock.callLater(n / 1000, rung.append, n)
        clock.advance((n - 1) / 1000)
        assert rung == []
        clock.advance(1 / 1000)
        assert rung == [n] and int(clock.seconds() * 1000) == START_TIME + n


def test_a_file_that_has_changed_makes_another_policy(tmp_path):
    class Reads(AddressPolicy):
        """Reads a file."""

        file: Path = parameter("A file.")

        def created(self):
            self.text = self.file.read_text()

    (tmp_path / "words").write_text("old")
    harness = PolicyHarness(Reads, folder=tmp_path, file="words")
    first = harness.policy
    harness.reload(file="words")
    assert harness.policy is first
    (tmp_path / "words").write_text("new")
    harness.reload(file="words")
    assert harness.policy is not first and harness.policy.text == "new"


# ---- what is built in


@pytest.mark.parametrize("name", list(FullPolicy))
def test_the_built_in_policies_are_what_the_broker_uses(name):
    world = BrokerFixture({"a": {"address_full_policy": name}})
    assert world.address("a").hooks.answer is name
    assert world.address("a").hooks.full is None


def test_without_plugins_settings_that_name_some_mean_nothing():
    """As for tools that work on a directory without a broker."""
    world = BrokerFixture({"a": {"address_full_policy": "plugin", "address_policy": (PolicyUse("other"),)}})
    assert world.address("a").hooks.answer is FullPolicy.PAGE
    assert world.broker.policies.names_for(world.address("a")) == []


def test_messages_recovered_into_memory_are_enqueued():
    class Received(AddressPolicy):
        """Hears of what waits."""

        def created(self):
            self.received = []

        def enqueued(self, message):
            self.received.append(message.body)

    world = PolicyWorld({"#": {"address_policy": (PolicyUse("received"),)}}, received=Received)
    queue = world.queue("q")
    message = world.message("q", b"m")
    queue.reinstate(queue.restore(message))
    (policy,) = world.broker.policies.policies_for(queue.address)
    assert isinstance(policy, Received) and policy.received == [b"m"]
