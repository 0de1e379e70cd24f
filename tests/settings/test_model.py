"""What settings say that depends on others."""

import pytest

from stompring.settings.match import SettingsRepository, defaults_of
from stompring.settings.model import (
    AddressSettingEntry,
    AddressSettings,
    BrokerConfiguration,
    FullPolicy,
    PageFullPolicy,
)

MB = 1024**2

READING = [
    # given; max-read-page-messages, -bytes, prefetch-page-messages, -bytes in force
    ({}, -1, 20 * MB, -1, 20 * MB),
    ({"page_size_bytes": MB}, -1, 2 * MB, -1, 2 * MB),
    ({"max_read_page_bytes": 5 * MB}, -1, 5 * MB, -1, 5 * MB),
    ({"max_read_page_bytes": -1}, -1, -1, -1, -1),
    ({"max_read_page_messages": 100}, 100, 20 * MB, 100, 20 * MB),
    ({"max_read_page_messages": 100, "prefetch_page_messages": 10}, 100, 20 * MB, 10, 20 * MB),
    ({"prefetch_page_bytes": MB}, -1, 20 * MB, -1, MB),
]


@pytest.mark.parametrize("given, messages, size, prefetched, prefetched_size", READING)
def test_how_much_is_read_from_pages(given, messages, size, prefetched, prefetched_size):
    settings = AddressSettings(**given)
    assert (settings.max_read_page_messages, settings.read_bytes) == (messages, size)
    assert (settings.prefetch_messages, settings.prefetch_bytes) == (prefetched, prefetched_size)


DROP = PageFullPolicy.DROP

FILES = [
    ({}, 10 * MB),
    ({"page_limit_bytes": 4 * MB}, 10 * MB),  # no policy: no limit
    ({"page_limit_bytes": 4 * MB, "page_full_policy": DROP}, MB),
    ({"page_limit_bytes": 1024 * MB, "page_full_policy": DROP}, 10 * MB),
    ({"page_limit_bytes": 1, "page_full_policy": DROP}, 1024),
    ({"page_limit_messages": 5, "page_full_policy": DROP}, 10 * MB),
    ({"page_limit_bytes": 4 * MB, "page_full_policy": DROP, "page_size_bytes": 4096}, 4096),
]


@pytest.mark.parametrize("given, size", FILES)
def test_how_long_a_page_file_becomes(given, size):
    assert AddressSettings(**given).page_file_bytes == size


@pytest.mark.parametrize("store, policy", [(True, FullPolicy.PAGE), (False, FullPolicy.BLOCK)])
def test_the_default_policy(store, policy):
    entry = AddressSettingEntry("a", {"max_size_messages": 3})
    configuration = BrokerConfiguration(persistence_enabled=store, address_settings=(entry,))
    repository = SettingsRepository.of(configuration)
    assert repository.lookup("a").address_full_policy is policy
    assert repository.lookup("b").address_full_policy is policy
    assert repository.lookup("b") == defaults_of(store)
