"""What ties tests to the inside of the product or to time: present uses, which may only become fewer."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PRODUCT = TESTS.parent

#: The modules that may sleep: what waits for a condition, and the clock of the machine.
WAITING = {"waiting.py", "wire.py"}

#: Of each directory of tests: calls of time.sleep, private attributes of other objects, parts of other objects that are
#: replaced. A directory that is not listed has none. Lower a number when there are fewer.
PRESENT = {
    "admin": (0, 2, 7),
    "benchmarks": (0, 0, 4),
    "broker": (0, 1, 0),
    "cli": (4, 3, 17),
    "crash": (7, 1, 0),
    "end_to_end": (15, 0, 2),
    "failover": (12, 0, 0),
    "failover_clients": (1, 1, 0),
    "hostile": (6, 0, 0),
    "pipeline": (17, 4, 14),
    "plugins": (0, 3, 0),
    "policy": (1, 15, 4),
    "property": (0, 2, 0),
    "replication": (2, 7, 15),
    "security": (0, 3, 3),
    "server": (3, 9, 13),
    "session": (0, 14, 3),
    "settings": (0, 1, 1),
    "stomp": (0, 1, 1),
    "store": (0, 11, 19),
    "tests": (3, 3, 0),
}

#: Modules of the product that tests import.
IMPORTED = 95


@cache
def nodes():
    """Of each module the nodes that rules look at."""
    looked_at = ast.Call | ast.Attribute | ast.Import | ast.ImportFrom
    paths = sorted(TESTS.rglob("*.py"))
    found = {path.relative_to(TESTS).as_posix(): path for path in paths if "node_modules" not in path.parts}
    return {
        name: [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, looked_at)]
        for name, path in found.items()
    }


def sleeps(node):
    """A call of time.sleep."""
    return is_call(node, "sleep") and ast.unparse(node.func) == "time.sleep"


def is_call(node, *names):
    """A call of a function or method of these names. It is asked first, as text of a node costs much."""
    if not isinstance(node, ast.Call):
        return False
    return (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in names


def reads_private(node):
    """A private attribute of another object."""
    if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.endswith("__"):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))


def replaces(node):
    """A part of another object that is replaced by monkeypatch or mock."""
    if not is_call(node, "setattr", "patch", "patch_object"):
        return False
    function = ast.unparse(node.func)
    return function.endswith(("monkeypatch.setattr", "patch.setattr")) or function.split(".")[-1] in (
        "patch",
        "patch_object",
    )


def count(rule):
    """Uses in each module."""
    names = [name for name in nodes() if rule is not sleeps or name not in WAITING]
    return Counter(name for name in names for node in nodes()[name] if rule(node))


def imported():
    """Modules of the product that tests import. What makes pages of the documentation from the product is no test."""
    found = set()
    for name, each in nodes().items():
        if re.match(r"docs/(?!test_)", name):
            continue
        for node in each:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                found.update(name if is_module(name) else node.module for name in names)
    return {name for name in found if name.partition(".")[0] == "stompring"}


def is_module(name):
    path = PRODUCT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


RULES = (sleeps, reads_private, replaces)


@pytest.mark.parametrize("column", range(len(RULES)), ids=[rule.__name__ for rule in RULES])
def test_there_are_no_more_than_there_were(column):
    per_directory = Counter()
    modules = count(RULES[column])
    for name, number in modules.items():
        per_directory[name.rpartition("/")[0].partition("/")[0] or "tests"] += number
    more = {name for name, number in per_directory.items() if number > PRESENT.get(name, (0, 0, 0))[column]}
    assert more == set(), {name: number for name, number in modules.items() if name.partition("/")[0] in more}


def test_tests_import_no_more_of_the_product():
    assert len(imported()) <= IMPORTED, "\n".join(sorted(imported()))


@pytest.mark.parametrize(
    "rule, text, number",
    [
        (sleeps, "time.sleep(1)\nclock.sleep(2)\ntime.monotonic()", 1),
        (reads_private, "self._a\ncls._b\nqueue._c\nqueue.__class__\nself.queue._d", 2),
        (replaces, "monkeypatch.setattr(a, 'b', 1)\nmonkeypatch.setenv('A', 'b')\nmock.patch('a')", 2),
    ],
)
def test_what_is_counted(rule, text, number):
    assert sum(map(rule, ast.walk(ast.parse(text)))) == number
