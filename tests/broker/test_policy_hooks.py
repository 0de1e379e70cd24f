"""Hooks of one queue or address: copies have everything that the original has."""

from stompring.broker.ports import Hooks, hooks_with_notifications, hooks_with_settled
from stompring.settings.model import FullPolicy


def overflow(view, returns):
    """No ring."""


def full_hooks():
    """Each attribute has a value of its own."""
    hooks = Hooks(FullPolicy.DROP, overflow)
    for name in Hooks.__slots__:
        if getattr(hooks, name) in (None, False):
            setattr(hooks, name, lambda *arguments: None)
    return hooks


def listen(ref):
    """A listener."""


def test_hooks_with_another_listener_keep_all_others():
    hooks = full_hooks()
    before = {name: getattr(hooks, name) for name in Hooks.__slots__}
    settled = hooks_with_settled(hooks, listen)
    notified = hooks_with_notifications(hooks, listen, listen)
    assert {name for name in Hooks.__slots__ if getattr(settled, name) is not before[name]} == {"settled"}
    changed = {name for name in Hooks.__slots__ if getattr(notified, name) is not before[name]}
    assert changed == {"delivered", "expired"}
    assert {name: getattr(hooks, name) for name in Hooks.__slots__} == before
