"""The policies there are, and what their sources say of them, read without running any of it.

What `AddressPolicy.parameters` knows of a class that was loaded is told here of one that was not: a list of policies
must not execute code that no broker.xml names. What a source computes when it runs is shown as it is written.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

from .parameter import READERS, REQUIRED, Bytes, Milliseconds, Parameter
from .source import GROUP, Sources
from .static_module import ClassIn, Scope, StaticModules, Unreadable
from .static_value import NotLiteral, value_of

#: Where the names that count come from; however a source imports them, they are told by these.
POLICY = "stompring.policy."

#: The types that a parameter may have, as `READERS` knows them.
TYPES: Mapping[str, Any] = {
    "builtins.str": str,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.bool": bool,
    "pathlib.Path": Path,
    POLICY + "Milliseconds": Milliseconds,
    POLICY + "Bytes": Bytes,
}
#: What an entry point names; extras in brackets mean nothing any more. `EntryPoint.module` asserts where it is wrong.
TARGET = re.compile(r"([\w.]+)\s*:\s*(\w+)\s*(?:\[.*\])?")

TYPING = ("typing.", "typing_extensions.")


@dataclass(frozen=True, slots=True)
class ReadParameter:
    """One parameter as its declaration says. ``default`` is as it would be written, None where it must be given."""

    key: str
    kind: str
    default: str | None
    help: str
    least: float = -math.inf
    most: float = math.inf

    @property
    def takes(self) -> str:
        """What it takes, with its bounds."""
        if self.least == -math.inf and self.most == math.inf:
            return self.kind
        if self.most == math.inf:
            return f"{self.kind}, at least {self.least:.15g}"
        if self.least == -math.inf:
            return f"{self.kind}, at most {self.most:.15g}"
        return f"{self.kind}, from {self.least:.15g} to {self.most:.15g}"


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """A policy as its source says."""

    kind: str  # the name of its class
    summary: str  # the first line of its docstring
    parameters: tuple[ReadParameter, ...]


@dataclass(slots=True)
class Entry:
    """One policy that is there. ``path`` is None where its source is not found; ``fault`` says what is wrong."""

    name: str
    path: Path | None = None
    distribution: str | None = None  # of a package; None for a module in a folder
    version: str | None = None
    target: str | None = None  # module:Class
    policy: ReadPolicy | None = None
    fault: str | None = None
    shadowed_by: Entry | None = None  # the one of that name that counts

    @property
    def where(self) -> str:
        """Where it is from."""
        if self.path is None and self.target is None:
            return "an installed package"
        if self.target is None:
            return str(self.path) if self.policy is None else f"{self.path}, class {self.policy.kind}"
        return f"{self.distribution or 'unknown package'} {self.version or ''}".rstrip() + f", {self.target}"


def catalogue(sources: Sources) -> list[Entry]:
    """All policies there are, by name; of one name the one that counts comes first."""
    modules = StaticModules()
    winners = sources.modules()
    entries = [_from_file(modules, name, path) for name, path in _files(sources)]
    counting = {entry.name: entry for entry in entries if winners.get(entry.name) == entry.path}
    packages = list(_packages(modules))
    # a module before a package, and of packages the first one, as `Sources.load` has it
    counting = {entry.name: entry for entry in reversed(packages) if entry.target is not None} | counting
    entries += packages
    for entry in entries:
        winner = counting.get(entry.name, entry)
        entry.shadowed_by = None if winner is entry else winner
    return sorted(entries, key=lambda entry: (entry.name, entry.shadowed_by is not None))


def _files(sources: Sources) -> Iterator[tuple[str, Path]]:
    """Every module with a policy's name, those included that another one of the same name keeps from being used."""
    for folder in sources.folders:
        alone = Sources(None)
        alone.places = (folder,)
        names = alone.modules()
        for path in sorted(folder.glob("*.py")):
            name = path.stem.replace("_", "-")
            if name in names and not path.stem.startswith("_"):
                yield name, path


def _from_file(modules: StaticModules, name: str, path: Path) -> Entry:
    entry = Entry(name, path)
    try:
        entry.policy = read_module(path, modules)
    except Unreadable as reason:
        entry.fault = str(reason)
    except RecursionError:
        entry.fault = f"{path} is too deep to be read"
    return entry


def _packages(modules: StaticModules) -> Iterator[Entry]:
    """What installed packages offer. `importlib.metadata.entry_points` would fail for all where one is damaged."""
    before = set()
    for distribution in distributions():
        name, points = "", []
        try:
            name = re.sub("[-_.]+", "-", distribution.name or "").lower()
            if name not in before:
                before.add(name)
                points = list(distribution.entry_points.select(group=GROUP))
        except Exception as error:  # whatever a damaged file makes of it
            fault = f"its entry points cannot be read: {type(error).__name__}: {error}"
            yield Entry(f"(package {name or 'without a name'})", fault=fault)
        for point in points:
            yield _from_package(modules, point)


def _from_package(modules: StaticModules, point: EntryPoint) -> Entry:
    entry = Entry(point.name.replace("_", "-"), target=point.value)
    try:
        if point.dist is not None:
            entry.distribution, entry.version = point.dist.name, point.dist.version
        entry.policy, entry.path = read_entry_point(point, modules)
    except Unreadable as reason:
        entry.fault = str(reason)
    except RecursionError:
        entry.fault = f"{point.value} is too deep to be read"
    except (OSError, KeyError, TypeError, ValueError) as error:  # metadata that somebody has damaged
        entry.fault = f"its package's metadata cannot be read: {type(error).__name__}: {error}"
    return entry


def read_module(path: Path, modules: StaticModules | None = None) -> ReadPolicy:
    """The one policy of a module in a plugin folder. Raises `Unreadable`."""
    modules = modules or StaticModules()
    module = modules.read(path)
    certain, doubtful = [], []
    answers: dict[ast.ClassDef, bool | None] = {}
    for node in module.classes():
        if not node.name.startswith("_"):
            is_policy = _is_policy(modules, ClassIn(module, node), answers)
            if is_policy:
                certain.append(node)
            elif is_policy is None:
                doubtful.append(node)
    if len(certain) == 1:
        return _policy(modules, ClassIn(module, certain[0]))
    if certain:
        names = ", ".join(node.name for node in certain)
        raise Unreadable(
            f"{path} defines {len(certain)} policies ({names}); put each into a module of its own"
        )
    if doubtful:
        names = ", ".join(node.name for node in doubtful)
        raise Unreadable(
            f"{path}: what {names} is derived from is not found, so it is not known if it is a policy"
        )
    raise Unreadable(f"{path} defines no AddressPolicy")


def read_entry_point(point: EntryPoint, modules: StaticModules | None = None) -> tuple[ReadPolicy, Path]:
    """The policy that a package offers, and where its source is. Raises `Unreadable`."""
    modules = modules or StaticModules()
    form = TARGET.fullmatch(point.value)
    if form is None:
        raise Unreadable(f"'{point.value}' is not of the form module:Class")
    dotted, attribute = form[1], form[2]
    module = modules.find(dotted)
    if module is None:
        raise Unreadable(f"the source of {dotted} is not found")
    found = modules.resolve(module.scope, ast.Name(attribute))
    if not isinstance(found, ClassIn):
        raise Unreadable(f"{module.path} has no class {attribute}")
    if _is_policy(modules, found, {}) is False:
        raise Unreadable(f"{found.module.path}: {attribute} is no AddressPolicy")
    return _policy(modules, found), found.module.path


def _is_policy(
    modules: StaticModules, found: ClassIn, answers: dict[ast.ClassDef, bool | None]
) -> bool | None:
    """Whether it is derived from `AddressPolicy`; None where something that it is derived from is not found."""
    if found.node not in answers:
        answers[found.node] = False  # for one that is derived from itself
        of_bases: list[bool | None] = []
        for base in _bases(found.node):
            known = modules.resolve(found.module.scope, base)
            if isinstance(known, ClassIn):
                of_bases.append(_is_policy(modules, known, answers))
            elif not isinstance(known, str) or (
                known.startswith("builtins.") and known not in modules.builtins
            ):
                of_bases.append(None)
            else:
                of_bases.append(known == POLICY + "AddressPolicy")
        answers[found.node] = True if True in of_bases else None if None in of_bases else False
    return answers[found.node]


def _bases(node: ast.ClassDef) -> list[ast.expr]:
    """What a class is derived from, without type arguments."""
    return [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]


def _policy(modules: StaticModules, found: ClassIn) -> ReadPolicy:
    text = ast.get_docstring(found.node) or ast.get_docstring(found.module.tree) or ""
    return ReadPolicy(
        found.node.name, text.split("\n")[0].strip(), tuple(_parameters(modules, found, set()).values())
    )


def _parameters(
    modules: StaticModules, found: ClassIn, before: set[ast.ClassDef]
) -> dict[str, ReadParameter]:
    """The parameters of a class, its bases' first, by the names of its attributes."""
    parameters: dict[str, ReadParameter] = {}
    if found.node in before:
        return parameters
    before.add(found.node)
    for base in reversed(_bases(found.node)):
        known = modules.resolve(found.module.scope, base)
        if isinstance(known, ClassIn):
            parameters |= _parameters(modules, known, before)
    scope = found.module.within(found.node)
    for statement in found.node.body:
        hint: ast.expr | None
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=hint, value=ast.Call() as call):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                hint = None
            case _:
                continue
        if modules.resolve(scope, call.func) == POLICY + "parameter":
            kind = "(has no annotation)" if hint is None else _kind(modules, scope, hint)
            parameters[name] = _parameter(modules, scope, name, kind, call)
    return parameters


def _parameter(modules: StaticModules, scope: Scope, name: str, kind: str, call: ast.Call) -> ReadParameter:
    given = dict(zip(("help", "default"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}

    def literal(what: str, otherwise: Any) -> Any:
        try:
            return value_of(modules, scope, given[what]) if what in given else otherwise
        except NotLiteral:
            return otherwise

    text, default = literal("help", None), None
    if not isinstance(text, str):
        text = scope.module.source(given["help"]) if "help" in given else ""
    if "default" in given:
        value = literal("default", REQUIRED)
        try:
            default = None if value is REQUIRED else Parameter("", value).shown_default
        except (TypeError, ValueError):
            default = None
        if default is None:
            default = scope.module.source(given["default"])
    least, most = literal("least", -math.inf), literal("most", math.inf)
    return ReadParameter(
        name.replace("_", "-"),
        kind,
        default,
        text,
        least if isinstance(least, int | float) else -math.inf,
        most if isinstance(most, int | float) else math.inf,
    )


def _kind(modules: StaticModules, scope: Scope, hint: ast.expr) -> str:
    """What a parameter of that type takes, in the words of `READERS`; the annotation itself where it is another."""
    return _known_kind(modules, scope, hint, 0) or scope.module.source(hint)


def _known_kind(modules: StaticModules, scope: Scope, hint: ast.expr, depth: int) -> str | None:
    if depth > StaticModules.DEEPEST:
        return None
    match hint:
        case ast.Constant(value=str(text)):
            try:
                quoted = ast.parse(text, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
            return _known_kind(modules, scope, quoted, depth + 1)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _one_kind(modules, scope, (left, right), depth)
        case ast.Subscript(value=outer, slice=inner):
            return _subscript_kind(modules, scope, outer, inner, depth)
    found = modules.resolve(scope, hint)
    if isinstance(found, tuple):  # another name for a type, as of a Literal
        return _known_kind(modules, found[0], found[1], depth + 1)
    return READERS[TYPES[found]][0] if isinstance(found, str) and found in TYPES else None


def _subscript_kind(
    modules: StaticModules, scope: Scope, outer: ast.expr, inner: ast.expr, depth: int
) -> str | None:
    found = modules.resolve(scope, outer)
    parts = tuple(inner.elts) if isinstance(inner, ast.Tuple) else (inner,)
    if found == "builtins.tuple":
        words = len(parts) == 2 and modules.resolve(scope, parts[0]) == "builtins.str"
        last = parts[-1]
        if words and isinstance(last, ast.Constant) and last.value is ...:
            return READERS[tuple[str, ...]][0]
    if not isinstance(found, str) or not found.startswith(TYPING):
        return None
    match found.rpartition(".")[2]:
        case "Literal":
            texts = [
                part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            if len(texts) == len(parts):
                return ", ".join(dict.fromkeys(texts))
        case "Optional" | "Union":
            return _one_kind(modules, scope, parts, depth)
    return None


def _one_kind(modules: StaticModules, scope: Scope, parts: tuple[ast.expr, ...], depth: int) -> str | None:
    """Of a union, which may be of one type and None."""
    others = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
    return _known_kind(modules, scope, others[0], depth + 1) if len(others) == 1 else None
