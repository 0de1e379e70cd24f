"""What the source says, read without running it: texts of errors, names of headers."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "stompring"

#: What stands for everything that is only known when it happens.
ANYTHING = "…"


def modules(*rooms):
    """The modules of some rooms."""
    found = [path for room in rooms for path in sorted((PACKAGE / room).rglob("*.py"))]
    assert len(found) > len(rooms), rooms
    return found


def source_of(thing):
    """The module that a class or function is in."""
    found = inspect.getsourcefile(thing)
    assert found is not None
    return Path(found)


def parsed(path):
    """A module's tree."""
    return ast.parse(path.read_text())


@cache
def bases():
    """The names of the bases of every class of the package."""
    of_class = re.compile(r"^ *class (\w+)\(([^)]*)\):", re.MULTILINE)
    return [
        (name, set(re.findall(r"\w+", listed)))
        for path in PACKAGE.rglob("*.py")
        for name, listed in of_class.findall(path.read_text())
    ]


def imports_of(importer):
    """The packages and modules of the package that the modules of one of its packages import."""
    found = set()
    for path in (PACKAGE / importer).rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                package, _, rest = node.module.partition(".")
                names = [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
                found |= set(names) if package == "stompring" else set()
            elif isinstance(node, ast.Import):
                found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("stompring.")}
    return found


def skeleton(node):
    """A text with `ANYTHING` for what is filled in; None for an expression that is no text of its own."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [skeleton(value) if isinstance(value, ast.Constant) else ANYTHING for value in node.values]
        return re.sub(f"{ANYTHING}+", ANYTHING, "".join(part or "" for part in parts))
    return None


def texts_of_calls(path, names):
    """The first argument of each call of one of ``names`` that is a text."""
    wanted = set(names)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in wanted:
            text = skeleton(node.args[0]) if node.args else ""
            if text is not None:
                yield text


def returned_texts(path, function):
    """The texts that a function returns, or hands to its caller's ``answer``."""
    for definition in ast.walk(parsed(path)):
        if isinstance(definition, ast.FunctionDef) and definition.name == function:
            for node in ast.walk(definition):
                values = []
                if isinstance(node, ast.Return) and node.value is not None:
                    values = [node.value]
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "answer":
                    values = node.args[1:]
                yield from filter(None, map(skeleton, values))


@cache
def error_names():
    """`ProtocolError`, `Refused`, and every class of the package that is one of them."""
    names = {"ProtocolError", "Refused"}
    while True:
        more = {name for name, listed in bases() if listed & names} - names
        if not more:
            return names
        names |= more


@cache
def errors_in_source():
    """Every text of an ERROR, management's included."""
    paths = modules("session", "stomp", "broker", "server", "policy")
    found = [text for path in paths for text in texts_of_calls(path, error_names())]
    found += [text for path in modules("server") for text in returned_texts(path, "authenticate")]
    found += returned_texts(PACKAGE / "broker" / "address.py", "describe_full")
    found += returned_texts(PACKAGE / "broker" / "publish.py", "describe")
    found += returned_texts(PACKAGE / "broker" / "publish.py", "describe_page_limit")
    return set(found)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LINE = re.compile(r"(?:^|\n)([A-Za-z_][A-Za-z0-9_.-]*):")


def header_names(path):
    """Every bytes literal that is, or holds, the name of a header: all that look like one."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            text = re.sub("%[bd]", "\n", node.value.decode("latin-1"))
            yield from [text] if _NAME.fullmatch(text) else _LINE.findall(text)
