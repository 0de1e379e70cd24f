"""The compatibility table in docs/artemis.md."""

from . import artemis_reference
from .pages import text_of


def test_the_page_has_every_table():
    assert artemis_reference.reference().strip() in text_of("docs/artemis.md")


def test_settings_of_this_broker_only_are_not_in_the_table():
    found = artemis_reference.elements()
    assert "ring-policy" not in found["queue"] and "ring-size" in found["queue"]
    assert "roles-file" not in found["core"] and "address-policy" not in found["address-setting"]
    assert "maxBodyLength" not in artemis_reference.parameters()
