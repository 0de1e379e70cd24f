"""The catalogue of policies: those of plugin directories, installed packages and stompring itself, none of them run.

A source is parsed and only looked at: which class names `AddressPolicy` as its base, and its docstring. Parameters
are known of policies that were loaded (`load_details`).
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from importlib.util import find_spec
from pathlib import Path

from .api import AddressPolicy
from .load import ENTRY_POINT_GROUP, PluginLoadError, PluginSources
from .parameters import Parameter

#: Bytes. A longer source is not parsed.
LARGEST = 4 * 1024 * 1024

#: What an entry point names; extras in brackets mean nothing any more. `EntryPoint.module` asserts where it is wrong.
TARGET = re.compile(r"([\w.]+)\s*:\s*(\w+)\s*(?:\[.*\])?")


class Unreadable(Exception):
    """A source cannot be read or parsed; the text says where and why."""


@dataclass(slots=True)
class Entry:
    """One policy. ``path`` is None where its source is not found; ``fault`` says what is wrong with it.

    ``kind`` is the name of its class, None where a look at the source does not show it; ``parameters`` is None for a
    policy that was not loaded.
    """

    name: str
    path: Path | None = None
    distribution: str | None = None  # of a package; None for a module in a directory
    version: str | None = None
    target: str | None = None  # module:Class
    kind: str | None = None
    summary: str = ""  # first line of the docstring
    parameters: Mapping[str, Parameter] | None = None
    fault: str | None = None
    shadowed_by: Entry | None = None  # the entry of this name that the broker loads
    shipped: bool = False  # comes with stompring

    @property
    def origin(self) -> str:
        """Where it is from: file and class, or package and entry point."""
        if self.target is not None:
            return (
                f"{self.distribution or 'unknown package'} {self.version or ''}".rstrip() + f", {self.target}"
            )
        if self.shipped and self.path is not None:
            return f"stompring, {self.path.name}, class {self.kind}"
        if self.path is None:
            return "an installed package"
        return str(self.path) if self.kind is None else f"{self.path}, class {self.kind}"


def catalogue(sources: PluginSources) -> list[Entry]:
    """All policies, by name; of several of one name the one that the broker loads comes first."""
    loadable = sources.modules()
    entries = [_from_file(name, path) for name, path in _files(sources)]
    first = {entry.name: entry for entry in entries if loadable.get(entry.name) == entry.path}
    packages = list(_packages())
    # a module before a package, and of packages the first one, as `Sources.load` has it
    first = {entry.name: entry for entry in reversed(packages) if entry.target is not None} | first
    entries += packages
    for name, path in sources.shipped().items():
        entry = _from_file(name, path)
        entry.shipped = True
        entries.append(entry)
        first.setdefault(name, entry)
    for entry in entries:
        winner = first.get(entry.name, entry)
        entry.shadowed_by = None if winner is entry else winner
    return sorted(entries, key=lambda entry: (entry.name, entry.shadowed_by is not None))


def load_details(entry: Entry, load: Callable[[str], type[AddressPolicy]]) -> None:
    """Load a policy, and complete its entry from the class. A failure becomes the entry's ``fault``."""
    try:
        kind = load(entry.name)
    except PluginLoadError as reason:
        entry.fault = str(reason)
        return
    module = inspect.getmodule(kind)
    entry.kind = kind.__name__
    entry.summary = _first_line(kind.__doc__) or _first_line(module.__doc__ if module else None)
    entry.parameters = kind.parameters
    if entry.target is not None and module is not None and module.__file__ is not None:
        entry.path = Path(module.__file__)


def _files(sources: PluginSources) -> Iterator[tuple[str, Path]]:
    """Every module with a policy's name, those included that another one of the same name shadows."""
    for folder in sources.folders:
        alone = PluginSources(None)
        alone.search_path = (folder,)
        names = alone.modules()
        for path in sorted(folder.glob("*.py")):
            name = path.stem.replace("_", "-")
            if name in names and not path.stem.startswith("_"):
                yield name, path


def _from_file(name: str, path: Path) -> Entry:
    entry = Entry(name, path)
    try:
        tree = parse(path)
    except Unreadable as reason:
        entry.fault = str(reason)
        return entry
    entry.summary = _docstring(tree)
    policies = policy_classes(tree)
    if len(policies) == 1:
        entry.kind = policies[0].name
        entry.summary = _docstring(policies[0]) or entry.summary
    elif policies:
        names = ", ".join(node.name for node in policies)
        entry.fault = f"{path} defines {len(policies)} policies ({names}); put each into a module of its own"
    return entry


def _packages() -> Iterator[Entry]:
    """The policies of installed packages. `importlib.metadata.entry_points` would fail for all where one is damaged."""
    seen = set()
    for distribution in distributions():
        name, points = "", []
        try:
            name = re.sub("[-_.]+", "-", distribution.name or "").lower()
            if name not in seen:
                seen.add(name)
                points = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP))
        except Exception as error:  # whatever a damaged file makes of it
            fault = f"entry points cannot be read: {type(error).__name__}: {error}"
            yield Entry(f"(package {name or 'without a name'})", fault=fault)
        for point in points:
            yield _from_package(point)


def _from_package(point: EntryPoint) -> Entry:
    entry = Entry(point.name.replace("_", "-"), target=point.value)
    try:
        if point.dist is not None:
            entry.distribution, entry.version = point.dist.name, point.dist.version
        form = TARGET.fullmatch(point.value)
        if form is None:
            raise Unreadable(f"'{point.value}' is not of the form module:Class")
        entry.kind = form[2]
        path = _source_of(form[1])
        if path is None:
            raise Unreadable(f"the source of {form[1]} is not found")
        tree = parse(path)
        entry.path = path
        own = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == entry.kind]
        entry.summary = _docstring(own[-1] if own else tree)
    except Unreadable as reason:
        entry.fault = str(reason)
    except (OSError, KeyError, TypeError, ValueError) as error:  # metadata that somebody has damaged
        entry.fault = f"package metadata cannot be read: {type(error).__name__}: {error}"
    return entry


def parse(path: Path) -> ast.Module:
    """The syntax tree of a source file. Raises `Unreadable`."""
    try:
        if not path.is_file():  # opening a pipe would block
            raise Unreadable(f"{path} is not a file")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"{path} is longer than {LARGEST} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whoever runs it will see them
            return ast.parse(data)
    except SyntaxError as error:
        raise Unreadable(f"{path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}") from error
    except (ValueError, LookupError, RecursionError, MemoryError) as error:
        raise Unreadable(f"{path} cannot be parsed: {type(error).__name__}: {error}") from error


def policy_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """The public classes at the top of a module that name `AddressPolicy`, or a class above that does, as a base."""
    names = {"AddressPolicy"}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            names |= {
                alias.asname for alias in statement.names if alias.name == "AddressPolicy" and alias.asname
            }
    found: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(_base_name(base) in names for base in node.bases):
            names.add(node.name)
            if not node.name.startswith("_"):
                found[node.name] = node
    return list(found.values())


def _base_name(base: ast.expr) -> str | None:
    """The last name of ``AddressPolicy``, ``policy.AddressPolicy``, ``Base[int]``."""
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _base_name(value)
    return None


def _docstring(node: ast.Module | ast.ClassDef) -> str:
    return _first_line(ast.get_docstring(node))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].strip()


def _source_of(dotted: str) -> Path | None:
    """The source of a module. Nothing is imported, not even the packages that it is in."""
    top, *inner = dotted.split(".")
    try:
        spec = find_spec(top) if top else None
    except Exception:  # finders are anybody's code; one that fails has found nothing
        return None
    if spec is None:
        return None
    if not inner:
        return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None
    for folder in spec.submodule_search_locations or ():
        module = Path(folder, *inner)
        for path in (module / "__init__.py", module.with_suffix(".py")):
            if path.is_file():
                return path
    return None
