"""docs/dev/architecture.md: every package has a row, with its subject."""

import re

from .architecture_tables import PACKAGES
from .pages import text_of


def test_every_package_has_a_row():
    rows = re.findall(
        r"^\| `(\w+)` +\| \S[^|]+ \|[^|]*\|$", text_of("docs/dev/architecture.md"), re.MULTILINE
    )
    assert "broker" in PACKAGES
    assert rows == PACKAGES
