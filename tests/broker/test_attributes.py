"""What a queue may be."""

import pytest

from stompring.broker.reference import QueueAttributes
from stompring.errors import Refused
from stompring.settings.model import AddressSettings, QueueConfiguration, RoutingType

ANYCAST = RoutingType.ANYCAST


def of(settings=None, **configuration):
    return QueueAttributes.of(
        QueueConfiguration("q", "q", ANYCAST, **configuration), settings or AddressSettings()
    )


DEFAULTS = [
    ("ring_size", "default_ring_size", 7),
    ("max_consumers", "default_max_consumers", 3),
    ("purge_on_no_consumers", "default_purge_on_no_consumers", True),
    ("exclusive", "default_exclusive_queue", True),
    ("non_destructive", "default_non_destructive", True),
    ("last_value", "default_last_value_queue", True),
    ("consumers_before_dispatch", "default_consumers_before_dispatch", 2),
    ("delay_before_dispatch", "default_delay_before_dispatch", 500),
    ("group_buckets", "default_group_buckets", 4),
    ("group_rebalance", "default_group_rebalance", True),
    ("group_rebalance_pause_dispatch", "default_group_rebalance_pause_dispatch", True),
]


@pytest.mark.parametrize("attribute, setting, value", DEFAULTS)
def test_settings_fill_what_a_queue_leaves_open(attribute, setting, value):
    settings = AddressSettings(**{setting: value})
    assert getattr(of(settings), attribute) == value
    plain = getattr(AddressSettings(), setting)
    assert getattr(of(settings, **{attribute: plain}), attribute) == plain, "what the queue says counts"


@pytest.mark.parametrize(
    "attribute, setting, value", [*DEFAULTS, ("group_first_key", "default_group_first_key", "first")]
)
def test_settings_fill_what_a_declared_queue_leaves_open(attribute, setting, value):
    """As in Artemis 2.44. Only the ring differs: there a declared queue has none by default."""
    expected = False if attribute == "purge_on_no_consumers" else value
    assert getattr(of(AddressSettings(**{setting: value}), configured=True), attribute) == expected
    assert getattr(of(configured=True, **{attribute: value}), attribute) == value


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"ring_size": 0}, "ring-size must be -1 or at least 1, not 0"),
        ({"ring_size": -5}, "ring-size"),
        ({"ring_size": True}, "ring-size"),
        ({"ring_size": "10"}, "ring-size"),
        ({"max_consumers": -2}, "max-consumers must be -1 or at least 0, not -2"),
        ({"filter": "a ="}, "filter: "),
        ({"colour": "red"}, "no attribute colour"),
    ],
)
def test_bad_values_are_refused_by_name(changes, words):
    attributes = of()
    with pytest.raises(Refused, match=words) as refused:
        attributes.changed(changes)
    assert refused.value.status == 400


def test_a_ring_of_nothing_as_default_is_refused_too():
    with pytest.raises(Refused, match="ring-size"):
        of(AddressSettings(default_ring_size=0))


@pytest.mark.parametrize("text", [None, "", "  "])
def test_an_empty_filter_is_none(text):
    attributes = of(filter=text)
    assert attributes.filter is None and attributes.accepts is None


def test_changes_keep_the_rest():
    attributes = of(ring_size=5, filter="a = 'b'").changed({"max_consumers": 1})
    assert (attributes.ring_size, attributes.max_consumers, attributes.filter) == (5, 1, "a = 'b'")
    assert attributes.accepts is not None
