"""Modules of Python as text: the names in them, and what they stand for, without running any of it."""

from __future__ import annotations

import ast
import builtins
import io
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path

#: Bytes. A longer source is not read: somebody has put something else there.
LARGEST = 4 * 1024 * 1024

#: What a policy is written with, wherever in ``stompring.policy`` it is imported from.
PUBLIC = frozenset({"AddressPolicy", "Bytes", "Milliseconds", "parameter"})

#: Modules of which names are enough, and those in them.
OUTER = sys.stdlib_module_names | {"typing_extensions"}


class Unreadable(Exception):
    """A source cannot be read, or has no policy; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import has bound: a module, or with ``name`` something in it."""

    module: str
    name: str | None = None


#: What a statement binds a name to.
Binding = ast.ClassDef | ast.expr | Imported


@dataclass(frozen=True, slots=True)
class StaticModule:
    """The text of one module."""

    path: Path
    lines: tuple[bytes, ...]
    tree: ast.Module
    names: Mapping[str, Binding]
    stars: tuple[str, ...]  # modules all names of which it imports
    package: str

    @property
    def scope(self) -> Scope:
        """Its own names."""
        return Scope(self, self.names)

    def within(self, node: ast.ClassDef) -> Scope:
        """The names as they are seen in the body of a class."""
        return Scope(self, {**self.names, **dict(_bindings(node.body, self.package, []))})

    def classes(self) -> Iterator[ast.ClassDef]:
        """The classes that it defines."""
        return (node for node in self.names.values() if isinstance(node, ast.ClassDef))

    def source(self, node: ast.expr) -> str:
        """How something is written, in one line."""
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset
        # not by ast.get_source_segment: it takes the whole text apart each time
        lines = list(self.lines[node.lineno - 1 : end_line])
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode("utf-8", "replace").split())


@dataclass(frozen=True, slots=True)
class Scope:
    """Names with what they are bound to, and the module they are of."""

    module: StaticModule
    names: Mapping[str, Binding]


@dataclass(frozen=True, slots=True)
class ClassIn:
    """A class with the module that defines it."""

    module: StaticModule
    node: ast.ClassDef


#: What an expression stands for: a class whose source was found, an expression that a name is bound to, or the full
#: name of something whose source is of no interest. None where it is not known.
Meaning = ClassIn | tuple[Scope, ast.expr] | str | None


class StaticModules:
    """Modules that were read, each of them once."""

    #: Steps from a name to what it stands for; more of them go in circles.
    DEEPEST = 32

    builtins = frozenset(f"builtins.{name}" for name in vars(builtins))

    def __init__(self) -> None:
        self._found: dict[str, StaticModule | Unreadable | None] = {}

    def read(self, path: Path, dotted: str = "") -> StaticModule:
        """The module in that file. Raises `Unreadable`."""
        try:
            if not path.is_file():  # to open a pipe would wait for somebody to write into it
                raise Unreadable(f"{path} is no file")
            if path.stat().st_size > LARGEST:
                raise Unreadable(f"{path} is longer than {LARGEST} bytes")
            data = path.read_bytes()
        except OSError as error:
            raise Unreadable(f"{path} cannot be read: {error.strerror or error}") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # whoever runs it will hear them
                tree = ast.parse(data)
            package = dotted if path.name == "__init__.py" else dotted.rpartition(".")[0]
            stars: list[str] = []
            names = dict(_bindings(tree.body, package, stars))
            return StaticModule(path, _lines(data), tree, names, tuple(stars), package)
        except SyntaxError as error:
            raise Unreadable(f"{path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}") from error
        except (ValueError, LookupError, RecursionError, MemoryError) as error:
            raise Unreadable(f"{path} cannot be parsed: {type(error).__name__}: {error}") from error

    def find(self, dotted: str) -> StaticModule | None:
        """The module of that name, None where its source is not found. Raises `Unreadable` for one that is no text."""
        if dotted not in self._found:
            path = _locate(dotted)
            try:
                self._found[dotted] = None if path is None else self.read(path, dotted)
            except Unreadable as reason:
                self._found[dotted] = reason
        found = self._found[dotted]
        if isinstance(found, Unreadable):
            raise found
        return found

    def resolve(self, scope: Scope, node: ast.expr, depth: int = 0) -> Meaning:
        """What a name, or a name in a module, stands for."""
        if depth > self.DEEPEST:
            return None
        if isinstance(node, ast.Name):
            if node.id not in scope.names:
                return self._in_stars(scope.module, node.id, depth + 1) or f"builtins.{node.id}"
            bound = scope.names[node.id]
            if isinstance(bound, ast.ClassDef):
                return ClassIn(scope.module, bound)
            if isinstance(bound, Imported):
                return None if bound.name is None else self._in_module(bound.module, bound.name, depth + 1)
            if isinstance(bound, ast.Name | ast.Attribute):
                return self.resolve(scope, bound, depth + 1)
            return scope, bound
        if isinstance(node, ast.Attribute):
            module = _module_name(scope, node.value)
            return None if module is None else self._in_module(module, node.attr, depth + 1)
        return None

    def _in_module(self, dotted: str, name: str, depth: int) -> Meaning:
        if dotted.partition(".")[0] in OUTER:
            return f"{dotted}.{name}"
        if name in PUBLIC and (dotted == "stompring.policy" or dotted.startswith("stompring.policy.")):
            return f"stompring.policy.{name}"
        try:
            module = self.find(dotted)
        except Unreadable:
            return None
        if module is None or depth > self.DEEPEST:
            return None
        if name in module.names:
            return self.resolve(module.scope, ast.Name(name), depth + 1)
        return self._in_stars(module, name, depth + 1)

    def _in_stars(self, module: StaticModule, name: str, depth: int) -> Meaning:
        found = (self._in_module(star, name, depth) for star in module.stars)
        return next((one for one in found if one is not None), None)


def _module_name(scope: Scope, node: ast.expr) -> str | None:
    """The module that an expression stands for, as ``stompring.policy`` in ``stompring.policy.Bytes``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    bound = scope.names.get(node.id) if isinstance(node, ast.Name) else None
    if not isinstance(bound, Imported):
        return None
    return ".".join(filter(None, (bound.module, bound.name, *reversed(parts))))


def _bindings(body: Iterable[ast.stmt], package: str, stars: list[str]) -> Iterator[tuple[str, Binding]]:
    """The names that statements bind, in their order; the first branch of several comes last, for it counts."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name):
                yield name, statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Import(names=aliases):
                for alias in aliases:
                    first = alias.name.partition(".")[0]
                    yield alias.asname or first, Imported(alias.name if alias.asname else first)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                origin = _absolute(module or "", level, package)
                for alias in aliases:
                    if alias.name == "*":
                        stars.append(origin)
                    else:
                        yield alias.asname or alias.name, Imported(origin, alias.name)
            case ast.If(body=inner, orelse=other) | ast.Try(body=inner, orelse=other):
                for handler in getattr(statement, "handlers", ()):
                    yield from _bindings(handler.body, package, stars)
                yield from _bindings(other, package, stars)
                yield from _bindings(inner, package, stars)
            case ast.With(body=inner):
                yield from _bindings(inner, package, stars)


def _absolute(module: str, level: int, package: str) -> str:
    """The full name of a module that is imported; empty where there is none."""
    if not level:
        return module
    try:
        return resolve_name("." * level + module, package).rstrip(".") if package else ""
    except ImportError:
        return ""


def _locate(dotted: str) -> Path | None:
    """The source of a module. Nothing is imported, not even the packages that it is in."""
    top, *rest = dotted.split(".")
    spec = _top_level(top)
    if spec is None:
        return None
    if not rest:
        return _source_of(spec)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    for part in rest[:-1]:
        folders = [folder / part for folder in folders]
    for folder in folders:
        for path in (folder / rest[-1] / "__init__.py", folder / f"{rest[-1]}.py"):
            if path.is_file():
                return path
    return None


def _top_level(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name) if name else None
    except Exception:  # finders are anybody's code; one that fails has found nothing
        return None


def _source_of(spec: ModuleSpec) -> Path | None:
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _lines(data: bytes) -> tuple[bytes, ...]:
    """The lines as they are counted by ``ast``, in UTF-8 as it counts columns."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    return tuple(text.encode().split(b"\n"))
