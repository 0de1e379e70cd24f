"""``make lint``: constructs that mypyc compiles to something else than Python runs, and mypy does not report.

Each was found by running the same module in both builds. The modules are those of ``[tool.stompring]`` in
pyproject.toml. ``# compiled: same`` at the end of a line exempts it, with the reason in front of it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXEMPT = "# compiled: same"

ORDERING = {"__lt__", "__le__", "__gt__", "__ge__"}
BUILT_IN = {
    "int",
    "str",
    "bytes",
    "bytearray",
    "float",
    "dict",
    "list",
    "tuple",
    "set",
    "frozenset",
}
#: Modules that look at the inside of objects, and their functions for it.
COPYING = {"copy", "pickle", "copyreg"}
INTROSPECTION = {"vars", "signature", "isfunction", "ismethod", "getfullargspec"}
ATTRIBUTES = {"__dict__", "__func__", "__code__", "__annotations__", "__closure__", "__defaults__"}
DECORATORS = {"cached_property", "runtime_checkable", "total_ordering", "singledispatchmethod"}


#: One place in a module: its line and what to say of it.
Difference = tuple[int, str]

#: The same, while it is looked for.
Found = Iterator[tuple[ast.stmt | ast.expr | ast.excepthandler, str]]


def compiled_modules(root: Path = ROOT) -> list[Path]:
    """The modules that a compiled wheel has as extension modules."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["stompring"]
    found: list[Path] = []
    for name in settings["compiled"]:
        path = root / "stompring" / name.replace(".", "/")
        found += sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [path for path in found if path.name != "__init__.py"]


def differences(source: str) -> list[Difference]:
    """What a compiled module would do otherwise, by line."""
    lines, tree = source.splitlines(), ast.parse(source)
    interpreted = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _attribute_of_mypyc(node, "native_class") is False
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    found = {
        (at.lineno, text) for node in ast.walk(tree) for at, text in _of(node) if at.lineno not in interpreted
    }
    found |= {(at.lineno, text) for at, text in (*_of_fields(tree), *_of_generators(tree))}
    return sorted(each for each in found if not lines[each[0] - 1].rstrip().endswith(EXEMPT))


def interpreted_subclasses(root: Path = ROOT) -> Iterator[tuple[Path, Difference]]:
    """Classes of other modules with a base that is compiled and does not permit that. Protocols do, and exceptions that
    have no methods or a compiled subclass.
    """
    compiled = compiled_modules(root)
    closed: set[str] = set()
    with_methods: set[str] = set()  # exceptions
    subclassed: set[str] = set()
    for path in compiled:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {_name(base) for base in node.bases}
            subclassed |= bases
            if "Protocol" in bases or _attribute_of_mypyc(node, "allow_interpreted_subclasses"):
                continue
            if node.name not in EXCEPTIONS and not node.name.endswith("Error"):
                closed.add(node.name)
            elif any(isinstance(each, ast.FunctionDef) for each in node.body):
                with_methods.add(node.name)
    closed |= with_methods - subclassed
    for path in sorted(
        {*(root / "stompring").rglob("*.py"), *(root / "plugins").rglob("*.py")} - set(compiled)
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    if _name(base) in closed:
                        text = f"{_name(base)} is compiled: it needs mypyc_attr(allow_interpreted_subclasses=True)"
                        yield path, (node.lineno, text)


def _of(node: ast.AST) -> Found:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            for decorator in node.decorator_list:
                if _name(decorator) in DECORATORS:
                    yield node, f"{_name(decorator)} does not work with native classes"
            yield from _of_class(node) if isinstance(node, ast.ClassDef) else _of_function(node)
        case ast.Attribute(attr="__new__", value=ast.Name()):
            yield node, "__new__ of a class does not make a native object: call the class"
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in ATTRIBUTES:
            yield node, f"native objects and functions have no {name}"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in INTROSPECTION:
            yield node, f"{name}() does not see the inside of native objects and functions"
        case ast.Call(func=ast.Attribute(attr="group"), args=[*_, ast.Starred()]):
            yield node, "group() of one place returns no tuple, as its annotation says: call it as Any"
        case ast.Import() | ast.ImportFrom():
            modules = {each.name for each in node.names} if isinstance(node, ast.Import) else {node.module}
            if modules & COPYING:
                yield (
                    node,
                    "native objects can be neither copied nor pickled: call the class with the attributes",
                )


def _of_class(node: ast.ClassDef) -> Found:
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    assigned = {_name(target) for each in node.body for target in _targets(each)}
    if methods & ORDERING and "__hash__" not in methods | assigned:
        yield node, f"{node.name} compares but has no __hash__: native objects of it have no hash"
    bases = {_name(base) for base in node.bases}
    if bases & BUILT_IN:
        yield node, f"{node.name} has a built-in base: it needs mypyc_attr(native_class=False)"
    if not _attribute_of_mypyc(node, "supports_weakref") and "__weakref__" in _slots(node):
        yield node, f"{node.name} has __weakref__: it needs mypyc_attr(supports_weakref=True)"
    if any(base.endswith(("Exception", "Error")) or base in EXCEPTIONS for base in bases):
        for each in node.body:
            if isinstance(each, ast.Assign) or (isinstance(each, ast.AnnAssign) and each.value is not None):
                yield each, "instances of a native exception lack the defaults of the class"
        if any(_name(decorator) == "dataclass" for decorator in node.decorator_list):
            yield node, f"{node.name} is an exception: it cannot be a dataclass"


def _of_fields(tree: ast.Module) -> Found:
    """Types of fields that only the type checker imports: a compiled module looks them up when it is imported."""
    absent = {
        each.asname or each.name
        for node in tree.body
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom | ast.Import)
        for each in statement.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and {
            "NamedTuple",
            "dataclass",
        } & {_name(each) for each in (*node.bases, *node.decorator_list)}:
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and _name(each.annotation) in absent:
                    name = _name(each.annotation)
                    yield each, f"'{name}' is looked up at the import: put it in quotes"


#: What takes all of a generator expression at once, or is compiled to a loop with an early end.
EAGER = {
    "all",
    "any",
    "bytes",
    "dict",
    "frozenset",
    "list",
    "max",
    "min",
    "next",
    "set",
    "sorted",
    "sum",
    "tuple",
}
EAGER |= {"Counter", "deque", "extend", "extendleft", "join", "update"}


def _of_generators(tree: ast.Module) -> Found:
    """Generator expressions become lists: what is lazy, or may be left before its end, is something else then."""
    allowed: set[ast.expr] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=arguments) if _name(function) in EAGER:
                allowed.update(arguments[:1])
            case ast.Starred(value=value):
                allowed.add(value)
            case ast.Assign(targets=[ast.Tuple()], value=value):
                allowed.add(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp) and node not in allowed:
            yield node, "a generator expression becomes a list at once: write a list or a generator function"


#: Exceptions of this package whose names do not end in Error.
EXCEPTIONS = {"Refused", "NotFound", "MalformedHead"}


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Found:
    types: dict[str, str] = {}
    for each in _own(node):
        if isinstance(each, ast.ExceptHandler) and each.name is not None:
            kind = ast.unparse(each.type) if each.type is not None else ""
            if types.setdefault(each.name, kind) != kind:
                yield each, f"'{each.name}' is of type {types[each.name]} in all of the function: rename it"


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without those of functions within it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own(child)


def _attribute_of_mypyc(node: ast.ClassDef, name: str) -> object:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and _name(decorator) == "mypyc_attr":
            for keyword in decorator.keywords:
                if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                    return keyword.value.value
    return None


def _slots(node: ast.ClassDef) -> set[object]:
    return {
        constant.value
        for each in node.body
        if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in _targets(each))
        for constant in ast.walk(each)
        if isinstance(constant, ast.Constant)
    }


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _name(inner)
    return ""


def main() -> int:
    """Print the differences; the exit status is 1 if there is one."""
    found = [(path, each) for path in compiled_modules() for each in differences(path.read_text())]
    found += interpreted_subclasses()
    for path, (line, text) in found:
        print(f"{path.relative_to(ROOT)}:{line}: {text}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
