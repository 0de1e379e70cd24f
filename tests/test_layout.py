"""The habits of the house that a linter cannot hold: docstrings of modules, names, nothing unfinished."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "stompring"
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Terms of the field that have such a word in them: systemd is a service manager, HTTP servers have request handlers.
TERMS = {"ServiceManager", "RequestHandler"}
SAYS_NOTHING = {"manager", "handler", "helper", "helpers", "util", "utils", "engine"}
TEXTS = sorted(
    path
    for folder in ("stompring", "benchmarks", "config", "docs", "plugins")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".c", ".xml", ".xsd", ".yml", ".md", ".lark", ".json"}
)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def label(path):
    return path.relative_to(ROOT).as_posix()


def words(name):
    """The words of a snake_case or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def definitions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_package_is_found():
    assert {"errors.py", "settings/model.py", "cli/main.py"} <= {
        path.relative_to(PACKAGE).as_posix() for path in MODULES
    }


def test_every_room_is_a_package():
    folders = {path.parent for path in MODULES}
    assert [label(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "the module has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_names_say_something(path):
    names = [*path.relative_to(PACKAGE).with_suffix("").parts]
    names += [node.name for node in definitions(ast.parse(path.read_text(encoding="utf-8")))]
    assert [name for name in names if words(name) & SAYS_NOTHING and name not in TERMS] == []


@pytest.mark.parametrize("path", TEXTS, ids=label)
def test_nothing_is_left_for_later(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {line}" for number, line in enumerate(lines, 1) if UNFINISHED.search(line)] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("error_handler", {"error", "handler"}),
        ("HTTPManager", {"http", "manager"}),
        ("QueueManager", {"queue", "manager"}),
        ("on_SEND", {"on", "send"}),
        ("managed", {"managed"}),
    ],
)
def test_words_of_a_name(name, expected):
    assert words(name) == expected
