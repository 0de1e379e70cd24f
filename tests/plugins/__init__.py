"""The policies that are shipped in plugins/, tested as anybody would test a policy of their own."""

from pathlib import Path

import pytest

from stompring.errors import ConfigurationError
from stompring.policy.load import PluginSources
from stompring.policy.testing import PolicyHarness

ROOT = Path(__file__).resolve().parents[2]
SOURCES = PluginSources(str(ROOT / "config" / "broker.xml"))


def policy(name):
    """The shipped policy of that name, as config/broker.xml would find it."""
    assert SOURCES.modules()[name].parent == ROOT / "plugins"
    return SOURCES.load(name)


def fault(kind, **arguments):
    """What is said about parameters that cannot be."""
    with pytest.raises(ConfigurationError) as found:
        PolicyHarness(kind, **arguments)
    return str(found.value)


def remembered(thing):
    """How much a policy keeps: the entries of all collections that it has."""
    if isinstance(thing, dict | list):
        return len(thing) + sum(map(remembered, thing.values() if isinstance(thing, dict) else thing))
    inside = getattr(thing, "__dict__", {})
    return sum(remembered(value) for name, value in inside.items() if name != "address")


def timers(harness):
    """Timers of the policy that will still ring."""
    return sum(timer.active() for timer in harness.policy.address._timers)
