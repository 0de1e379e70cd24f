"""docs/architecture.md speaks of what is there: rooms, modules, classes, and who imports whom."""

from __future__ import annotations

import ast
import re

import pytest

from .source import PACKAGE, ROOT, label, parsed

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SPANS = re.findall(r"`([^`\n]+)`", TEXT)
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
SHARED = "errors"


def imports_of(room: str) -> set[str]:
    """The other rooms that modules of a room name in an import."""
    found: set[str] = set()
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                package, _, rest = node.module.partition(".")
                names = [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
                found |= set(names) if package == "stompring" else set()
            elif isinstance(node, ast.Import):
                found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("stompring.")}
    return found & {*ROOMS, SHARED} - {room}


def table() -> dict[str, set[str]]:
    """Room and what it imports, as the document says."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", TEXT, re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in rows if room in ROOMS}


def test_every_room_is_named() -> None:
    assert "broker" in ROOMS
    assert sorted(table()) == ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_who_imports_whom(room: str) -> None:
    assert table()[room] == imports_of(room)


@pytest.mark.parametrize("span", sorted({span for span in SPANS if re.fullmatch(r"\w+/[\w/]+\.py", span)}))
def test_every_module_named_exists(span: str) -> None:
    assert (PACKAGE / span).is_file()


def test_every_package_named_exists() -> None:
    named = {span.rstrip("/") for span in SPANS if re.fullmatch(r"\w+/", span)}
    assert named <= set(ROOMS)


def test_every_class_named_exists() -> None:
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


def test_the_seam_is_told_whole() -> None:
    module = parsed(PACKAGE / "broker" / "storage.py")
    storage = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Storage")
    calls = {node.name for node in storage.body if isinstance(node, ast.FunctionDef)}
    seam = TEXT.partition("## The seam to the store")[2].partition("\n## ")[0]
    rows = "".join(re.findall(r"^\|([^|]+)\|", seam, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == calls


def test_links_lead_somewhere() -> None:
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        file, _, anchor = target.partition("#")
        assert (ROOT / "docs" / file).is_file() if file else anchor in headings, target
