"""docs/dev/architecture.md speaks of what is there: packages, modules, classes, and who imports whom."""

import re

import pytest

from .source import PACKAGE, ROOT, imports_of

TEXT = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
SHARED = "errors"


def table():
    """Package and its imports, as the document says."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", TEXT, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", imports)) for name, imports in rows if name in PACKAGES}


def test_every_package_has_a_row():
    assert "broker" in PACKAGES
    assert sorted(table()) == PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_who_imports_whom(package):
    assert table()[package] == imports_of(package) & {*PACKAGES, SHARED} - {package}
