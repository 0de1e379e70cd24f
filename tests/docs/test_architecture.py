"""docs/architecture.md speaks of what is there: packages, modules, classes, and who imports whom."""

from __future__ import annotations

import ast
import re

import pytest

from .source import PACKAGE, ROOT, label, parsed

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SPANS = re.findall(r"`([^`\n]+)`", TEXT)
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
SHARED = "errors"


def imports_of(importer):
    """The other packages that the modules of a package import."""
    found: set[str] = set()
    for path in (PACKAGE / importer).rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                package, _, rest = node.module.partition(".")
                names = [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
                found |= set(names) if package == "stompring" else set()
            elif isinstance(node, ast.Import):
                found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("stompring.")}
    return found & {*PACKAGES, SHARED} - {importer}


def table():
    """Package and its imports, as the document says."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", TEXT, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", imports)) for name, imports in rows if name in PACKAGES}


def test_every_package_has_a_row():
    assert "broker" in PACKAGES
    assert sorted(table()) == PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_who_imports_whom(package):
    assert table()[package] == imports_of(package)


@pytest.mark.parametrize("span", sorted({span for span in SPANS if re.fullmatch(r"\w+/[\w/]+\.py", span)}))
def test_every_module_named_exists(span):
    top = ROOT if span.startswith(("tests/", "benchmarks/")) else PACKAGE
    assert (top / span).is_file()


def test_every_package_named_exists():
    named = {span.rstrip("/") for span in SPANS if re.fullmatch(r"\w+/", span)}
    assert named <= set(PACKAGES)


def test_every_class_named_exists():
    trees = {label(path): parsed(path) for path in PACKAGE.rglob("*.py")}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    named = {span for span in SPANS if re.fullmatch(r"[A-Z][a-z]\w+(\.\w+)?", span)}
    assert len(named) > 20
    for name in sorted(named):
        owner, _, member = name.partition(".")
        assert owner in classes, name
        if member:
            lineage = [classes[owner]]
            lineage += [
                classes[b.id] for b in classes[owner].bases if isinstance(b, ast.Name) and b.id in classes
            ]
            assert any(re.search(rf"\b{member}\b", ast.unparse(node)) for node in lineage), name


def test_every_call_of_the_storage_interface_is_documented():
    module = parsed(PACKAGE / "broker" / "storage.py")
    storage = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Storage")
    calls = {node.name for node in storage.body if isinstance(node, ast.FunctionDef)}
    section = TEXT.partition("## The storage interface")[2].partition("\n## ")[0]
    rows = "".join(re.findall(r"^\|([^|]+)\|", section, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == calls


def test_links_lead_somewhere():
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        file, _, anchor = target.partition("#")
        assert (ROOT / "docs" / file).is_file() if file else anchor in headings, target
