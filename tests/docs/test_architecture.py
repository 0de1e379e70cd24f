"""docs/architecture.md speaks of what is there: packages, modules, classes, and who imports whom."""

from __future__ import annotations

import ast
import re

import pytest

from .source import PACKAGE, ROOT, classes_of_package, imports_of, parsed

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SPANS = re.findall(r"`([^`\n]+)`", TEXT)
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


@pytest.mark.parametrize("span", sorted({span for span in SPANS if re.fullmatch(r"\w+/[\w/]+\.py", span)}))
def test_every_module_named_exists(span):
    top = ROOT if span.startswith(("tests/", "benchmarks/")) else PACKAGE
    assert (top / span).is_file()


def test_every_package_named_exists():
    named = {span.rstrip("/") for span in SPANS if re.fullmatch(r"\w+/", span)}
    assert named <= set(PACKAGES)


def test_every_class_named_exists():
    classes: dict[str, list[ast.ClassDef]] = {}
    for node in classes_of_package():
        classes.setdefault(node.name, []).append(node)
    named = {span for span in SPANS if re.fullmatch(r"[A-Z][a-z]\w+(\.\w+)?", span)}
    assert len(named) > 20
    for name in sorted(named):
        owner, _, member = name.partition(".")
        assert owner in classes, name
        if member:
            bases = {base.id for each in classes[owner] for base in each.bases if isinstance(base, ast.Name)}
            lineage = [each for name in {owner, *bases} for each in classes.get(name, [])]
            assert any(re.search(rf"\b{member}\b", ast.unparse(node)) for node in lineage), name


def test_every_call_of_the_storage_interface_is_documented():
    module = parsed(PACKAGE / "broker" / "storage.py")
    storage = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Storage")
    calls = {node.name for node in storage.body if isinstance(node, ast.FunctionDef)}
    section = TEXT.partition("## The storage interface")[2].partition("\n## ")[0]
    rows = "".join(re.findall(r"^\|([^|]+)\|", section, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == calls
