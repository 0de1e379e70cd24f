"""The catalogue of all policies, and the loading of the policies that broker.xml names.

Sources are modules in a directory ``plugins`` near broker.xml, installed packages, and the shipped plugins.

The catalogue runs no policy: it parses each source, to find the class with the base `AddressPolicy` and its docstring.
Only `load_details` adds the parameters of a policy.

The broker imports only policies that broker.xml names. It executes a module again after its file has changed. It
imports an installed package once: a new version of the package has an effect at the next start.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from stompring.broker.ports import HOOK_EXCEPTIONS
from stompring.errors import ConfigurationError
from stompring.settings.document import Faults, revealed, with_suggestion
from stompring.settings.machine import shipped_directory
from stompring.settings.model import BrokerConfiguration, PluginConfiguration, PolicyUse, Property, frozen

from .api import AddressPolicy, Parameter
from .views import QueueView

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Found = TypeVar("Found")

#: Maximum length in bytes of a source that is parsed.
LARGEST = 4 * 1024 * 1024

#: A valid value of an entry point, maybe with extras in brackets, which are obsolete. For an invalid value
#: `EntryPoint.module` fails with an AssertionError.
TARGET = re.compile(r"([\w.]+)\s*:\s*(\w+)\s*(?:\[.*\])?")


class Unreadable(Exception):
    """A source cannot be read or parsed; the text names the file and the reason."""


@dataclass
class Entry:
    """One policy. ``path`` is None if its source is missing; ``fault`` is the reason why it cannot be used.

    ``kind`` is the name of its class, None if the source does not show it; ``parameters`` is None for a policy that was
    not loaded.
    """

    name: str
    path: Path | None = None
    distribution: str | None = None  # name of the package; None for a module in a directory
    version: str | None = None
    target: str | None = None  # ``module:Class`` of the entry point
    kind: str | None = None
    summary: str = ""  # first line of the docstring
    parameters: Mapping[str, Parameter] | None = None
    fault: str | None = None
    shadowed_by: Entry | None = None  # the entry of the same name that the broker loads in place of this one
    shipped: bool = False  # whether the policy is part of stompring

    @property
    def origin(self) -> str:
        """The source as text for people: file and class, or package and entry point."""
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
    """Return all policies, sorted by name; of several with one name, the one that the broker loads is first."""
    entries = [_from_file(name, path) for folder in sources.folders for name, path in _modules(folder)]
    entries += _packages()
    for name, path in sources.shipped().items():
        entry = _from_file(name, path)
        entry.shipped = True
        entries.append(entry)
    # as in `PluginSources.load`, a module precedes packages of the same name, and the first package later ones
    first = _first((entry.name, entry) for entry in entries if entry.path or entry.target)
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
    entry.summary = summary_of(kind)
    entry.parameters = kind.parameters
    if entry.target is not None and module is not None and module.__file__ is not None:
        entry.path = Path(module.__file__)


def summary_of(kind: type[AddressPolicy]) -> str:
    """The first line of the docstring of a class, or of its module."""
    return _first_line(kind.__doc__ or getattr(inspect.getmodule(kind), "__doc__", None))


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
    """The policies of installed packages. One damaged package would make `importlib.metadata.entry_points` fail."""
    from importlib.metadata import distributions

    seen = set()
    for distribution in distributions():
        name, points = "", []
        try:
            name = re.sub("[-_.]+", "-", distribution.name or "").lower()
            if name not in seen:
                seen.add(name)
                points = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP))
        except Exception as error:  # a damaged file may raise any exception
            fault = f"entry points cannot be read: {type(error).__name__}: {error}"
            yield Entry(f"(package {name or 'without a name'})", fault=fault)
        for point in points:
            yield _entry_of_package(point)


def _entry_of_package(point: EntryPoint) -> Entry:
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
    except (OSError, KeyError, TypeError, ValueError) as error:  # damaged metadata
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
            warnings.simplefilter("ignore")  # the same warnings are shown when the policy is executed
            return ast.parse(data)
    except SyntaxError as error:
        raise Unreadable(f"{path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}") from error
    except (ValueError, LookupError, RecursionError, MemoryError) as error:
        raise Unreadable(f"{path} cannot be parsed: {type(error).__name__}: {error}") from error


def policy_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the public classes of a module that derive from `AddressPolicy`, maybe through earlier classes of the
    module.
    """
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
    """Return the name of a base class without its module (``policy.AddressPolicy``) and its parameters in brackets."""
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
    """Return the source file of a module. Does not import the module or its packages."""
    top, *inner = dotted.split(".")
    try:
        spec = find_spec(top) if top else None
    except Exception:  # an installed package may add finders; if a finder fails, the source is missing
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


class Ring(AddressPolicy):
    """A full ring evicts its oldest message for a new one. A message that returns to a full ring is dropped itself."""

    def overflow(self, queue: QueueView, returning: bool) -> None:
        if not returning:
            queue.give_up_oldest()


log = logging.getLogger(__name__)

#: The entry point group of installed packages: ``NAME = package.module:Class``.
ENTRY_POINT_GROUP = "stompring.address_policies"

#: The directory for modules: beside broker.xml, or beside the directory that broker.xml is in.
PLUGIN_DIRECTORY = "plugins"


class PluginLoadError(Exception):
    """A policy cannot be loaded; the text is the reason, with file and line."""


class PluginSources:
    """The policies that the broker.xml ``file`` may name: modules in plugin directories, installed packages, and the
    plugins that come with stompring."""

    def __init__(self, file: str | None) -> None:
        beside = Path(file or "broker.xml").absolute().parent
        self.search_path: tuple[Path, ...] = (beside / PLUGIN_DIRECTORY, beside.parent / PLUGIN_DIRECTORY)
        self._loaded: dict[Path, tuple[bytes, type[AddressPolicy]]] = {}

    @property
    def folders(self) -> list[Path]:
        """The directories of ``search_path`` that exist."""
        return [folder for folder in self.search_path if folder.is_dir()]

    def modules(self) -> dict[str, Path]:
        """The modules, by the names of their policies."""
        return _first(pair for folder in self.folders for pair in _modules(folder))

    def shipped(self) -> dict[str, Path]:
        """Return the modules that come with stompring, by the names of their policies; none if a plugin directory is
        the directory of these modules.
        """
        try:
            folder = shipped_directory(PLUGIN_DIRECTORY)
        except ConfigurationError:
            return {}
        return {} if any(folder.samefile(own) for own in self.folders) else _first(_modules(folder))

    def packages(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages, by name of the policy."""
        return _first((point.name.replace("_", "-"), point) for point in entry_points())

    def load(self, name: str) -> type[AddressPolicy]:
        """Load the class of a policy: from a module, else from a package, else from a shipped plugin.

        Raises `PluginLoadError`.
        """
        wanted = name.replace("_", "-")
        modules, packages, shipped = self.modules(), self.packages(), self.shipped()
        if wanted in modules:
            return self._from_file(modules[wanted])
        if wanted in packages:
            point = packages[wanted]
            where = f"{point.name} = {point.value}" + (
                f" of {point.dist.name} {point.dist.version}" if point.dist else ""
            )
            try:
                kind = point.load()
            except (Exception, SystemExit) as error:
                raise PluginLoadError(
                    f"{where} cannot be imported: {type(error).__name__}: {error}"
                ) from error
            if not (isinstance(kind, type) and issubclass(kind, AddressPolicy)):
                raise PluginLoadError(f"{where} is {kind!r}, not an AddressPolicy")
            return kind
        if wanted in shipped:
            return self._from_file(shipped[wanted])
        searched = "".join(f"no {wanted.replace('-', '_')}.py in {folder}, " for folder in self.folders)
        what = f"policy '{name}' not found: {searched}no entry point of that name in {ENTRY_POINT_GROUP}"
        raise PluginLoadError(with_suggestion(what, wanted, [*modules, *packages, *shipped]))

    def _from_file(self, path: Path) -> type[AddressPolicy]:
        if not path.is_file():
            raise PluginLoadError(f"{path} is not a file")
        try:
            code = path.read_bytes()
        except OSError as error:
            raise PluginLoadError(f"{path} cannot be read: {error.strerror or error}") from error
        digest = sha256(code).digest()
        loaded = self._loaded.get(path)
        if loaded is None or loaded[0] != digest:
            loaded = self._loaded[path] = (digest, _only_policy(_execute(path, code), path))
        return loaded[1]


def _modules(folder: Path) -> Iterator[tuple[str, Path]]:
    """The modules in a directory, with the names of their policies."""
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith(("_", "test_", "conftest")):
            yield path.stem.replace("_", "-"), path


def _first(named: Iterable[tuple[str, Found]]) -> dict[str, Found]:
    """Map names to values; of several values with one name, the first."""
    found: dict[str, Found] = {}
    for name, value in named:
        found.setdefault(name, value)
    return found


def entry_points() -> Iterator[EntryPoint]:
    """The entry points of installed packages. Packages whose metadata cannot be read are logged and skipped."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            yield from distribution.entry_points.select(group=ENTRY_POINT_GROUP)
        except Exception as error:
            log.warning("skipped an installed package: its entry points cannot be read: %s", error)


def _execute(path: Path, code: bytes) -> ModuleType:
    name = f"stompring_plugins.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    former = sys.modules.get(name)
    sys.modules[name] = module  # resolving the annotations of a module needs the module in sys.modules
    try:
        # do not use the loader: if the file was changed twice in quick succession, it would execute the former .pyc
        exec(compile(code, str(path), "exec", dont_inherit=True), module.__dict__)  # nosec B102
    except BaseException as error:
        if former is not None:
            sys.modules[name] = former
        else:
            del sys.modules[name]
        if not isinstance(error, Exception | SystemExit):
            raise
        raise PluginLoadError(_describe(error, path)) from error
    return module


def _only_policy(module: ModuleType, path: Path) -> type[AddressPolicy]:
    policies = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, AddressPolicy)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    )
    found = list(dict.fromkeys(policies))  # a class that has two names counts once
    if len(found) == 1:
        return found[0]
    if not found:
        raise PluginLoadError(f"{path} defines no AddressPolicy")
    names = ", ".join(kind.__name__ for kind in found)
    raise PluginLoadError(
        f"{path} defines {len(found)} policies ({names}); put each into a module of its own"
    )


def _describe(error: BaseException, path: Path) -> str:
    """Return FILE:LINE in the plugin, type and text of an exception."""
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}"
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = frames[-1].lineno if frames else 1
    return f"{path}:{line}: {type(error).__name__}: {error}"


@frozen
class SelectedPlugin:
    """A policy with the values of its parameters. Equal objects are interchangeable."""

    name: str  # name of the policy in broker.xml
    kind: type[AddressPolicy]
    values: Mapping[str, Any]
    # for each parameter whose value is a file: digest of the contents
    files: Mapping[str, bytes] = field(default_factory=dict)
    location: str = field(default="", compare=False)  # FILE:LINE of the policy in broker.xml

    def make(self) -> AddressPolicy:
        """A new object of the policy."""
        policy = self.kind()
        for name, value in self.values.items():
            setattr(policy, name, value)
        return policy


@dataclass
class Plugins:
    """The policies that one broker.xml names, loaded and with their parameters."""

    _selected: Mapping[PolicyUse, SelectedPlugin]
    kinds: Mapping[str, type[AddressPolicy]]  # classes by the name of the broker-plugin

    def selected(self, use: PolicyUse) -> SelectedPlugin:
        """The policy that an address-setting names."""
        return self._selected[use]


def load(configuration: BrokerConfiguration, sources: PluginSources) -> Plugins:
    """Load the policies that a broker.xml names, without applying them to any address.

    Raises `ConfigurationError` with all errors, by line.
    """
    faults = Faults(configuration.file or "broker.xml")
    kinds: dict[str, type[AddressPolicy]] = {}
    plugins = {plugin.name: plugin for plugin in configuration.plugins}
    for plugin in configuration.plugins:
        try:
            kinds[plugin.name] = sources.load(plugin.policy)
        except PluginLoadError as reason:
            faults.add(plugin.line, f"broker-plugin '{plugin.name}': {reason}")
    selected: dict[PolicyUse, SelectedPlugin] = {}
    for name, kind in kinds.items():
        _values(faults, kind, plugins[name].properties, f"broker-plugin '{name}'")
    for use in _uses(configuration, plugins):
        if use.name in kinds:
            found = _selected(faults, use, kinds[use.name], plugins[use.name])
            if found is not None:
                selected[use] = found
    faults.raise_if_any()
    return Plugins(selected, kinds)


def _uses(
    configuration: BrokerConfiguration, plugins: Mapping[str, PluginConfiguration]
) -> Iterator[PolicyUse]:
    """Yield the uses of plugins in address-settings and as transformers."""
    for transformer in configuration.transformers:
        if transformer.policy is not None:
            yield transformer.policy
    for entry in configuration.address_settings:
        policies: Any = entry.values.get("address_policy", ())
        yield from (use for use in policies if use.enabled)
        full = entry.values.get("address_full_policy")
        if full in plugins:
            yield PolicyUse(str(full), line=entry.line)


def _selected(
    faults: Faults, use: PolicyUse, kind: type[AddressPolicy], plugin: PluginConfiguration
) -> SelectedPlugin | None:
    """Return the policy of ``use``, whose properties override those of the plugin. None after an error."""
    what = f"policy '{use.name}'"
    line = use.line or plugin.line
    values = _values(faults, kind, (*plugin.properties, *use.properties), what)
    if values is None:
        return None
    missing = [one.key for name, one in kind.parameters.items() if name not in values and one.required]
    if missing:
        faults.add(line, f"{what}: parameter '{missing[0]}' is required")
        return None
    defaults = {name: one.default for name, one in kind.parameters.items() if name not in values}
    files = {name: value for name, value in values.items() if isinstance(value, Path)}
    # a policy with a changed file is a different policy
    digests = {name: sha256(file.read_bytes()).digest() for name, file in files.items() if file.is_file()}
    selected = SelectedPlugin(use.name, kind, defaults | values, digests, f"{faults.file}:{line}")
    try:
        selected.make().check()
    except ValueError as error:
        faults.add(line, f"{what}: {error}")
    except HOOK_EXCEPTIONS as error:
        faults.add(line, f"{what}: check failed: {type(error).__name__}: {error}")
    else:
        return selected
    return None


def _values(
    faults: Faults, kind: type[AddressPolicy], properties: Iterable[Property], what: str
) -> dict[str, Any] | None:
    """Return the values of properties, by name of the attribute. None after an error, which is added to ``faults``."""
    known = {one.key: name for name, one in kind.parameters.items()}
    values: dict[str, Any] = {}
    valid = True
    for given in properties:
        line, name = given.line or 1, known.get(given.key)
        if name is None:
            faults.add(line, with_suggestion(f"{what} has no parameter '{given.key}'", given.key, known))
            valid = False
            continue
        try:
            values[name] = kind.parameters[name].read(revealed(given.value), Path(faults.file).parent)
        except ValueError as error:
            faults.add(line, f"{what}: {given.key} is '{given.value}': {error}")
            valid = False
    return values if valid else None
