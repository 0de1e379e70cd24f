"""The compatibility table in docs/artemis.md."""

from . import artemis_reference
from .artemis_reference import PAGE


def test_the_page_is_as_generated():
    """``make docs-reference`` writes it."""
    assert artemis_reference.page() == PAGE.read_text(encoding="utf-8")


def test_settings_of_this_broker_only_are_not_in_the_table():
    found = artemis_reference.elements()
    assert "ring-policy" not in found["queue"] and "ring-size" in found["queue"]
    assert "roles-file" not in found["core"] and "address-policy" not in found["address-setting"]
    assert "maxBodyLength" not in artemis_reference.parameters()
