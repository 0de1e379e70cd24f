"""Loading of policies: from the names in broker.xml to classes and the values of their parameters.

Sources are modules in a directory ``plugins`` near broker.xml, and installed packages. Only named policies are
imported. A module is executed again after its file has changed; an installed package is imported once, as all
packages are: a new version of it is used from the next start on.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Protocol

from stompring.broker.hooks import HOOK_EXCEPTIONS
from stompring.settings.document import Faults
from stompring.settings.model import BrokerConfiguration, PluginConfiguration, PolicyUse, Property
from stompring.settings.references import revealed
from stompring.settings.suggestions import with_suggestion

from .api import AddressPolicy

log = logging.getLogger(__name__)

#: The entry point group of installed packages: ``NAME = package.module:Class``.
ENTRY_POINT_GROUP = "stompring.address_policies"

#: The directory for modules: beside broker.xml, or beside the directory that broker.xml is in.
PLUGIN_DIRECTORY = "plugins"


class PluginLoadError(Exception):
    """A policy could not be loaded; the text says why and where."""


class PluginSources:
    """What can be named in the broker.xml ``file``."""

    def __init__(self, file: str | None) -> None:
        beside = Path(file or "broker.xml").absolute().parent
        self.search_path: tuple[Path, ...] = (beside / PLUGIN_DIRECTORY, beside.parent / PLUGIN_DIRECTORY)
        self._loaded: dict[Path, tuple[bytes, type[AddressPolicy]]] = {}

    @property
    def folders(self) -> list[Path]:
        """Those of the search_path where there may be modules that are there now."""
        return [folder for folder in self.search_path if folder.is_dir()]

    def modules(self) -> dict[str, Path]:
        """The modules there are, by the names of their policies. Of two of one name the first one counts."""
        found: dict[str, Path] = {}
        for folder in self.folders:
            for path in sorted(folder.glob("*.py")):
                if not path.name.startswith(("_", "test_", "conftest")):
                    found.setdefault(path.stem.replace("_", "-"), path)
        return found

    def packages(self) -> dict[str, EntryPoint]:
        """What installed packages offer, by the names of the policies. Of two of one name the first one counts."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points():
            found.setdefault(point.name.replace("_", "-"), point)
        return found

    def load(self, name: str) -> type[AddressPolicy]:
        """The policy of that name; a module is taken before a package. Raises `NotLoaded`."""
        wanted = name.replace("_", "-")
        modules, packages = self.modules(), self.packages()
        if wanted in modules:
            return self._from_file(modules[wanted])
        if wanted in packages:
            return _from_package(packages[wanted])
        looked = "".join(f", no {wanted.replace('-', '_')}.py in {folder}" for folder in self.folders)
        what = f"there is no policy '{name}'{looked}, no installed package with it (entry points {ENTRY_POINT_GROUP})"
        raise PluginLoadError(with_suggestion(what, wanted, [*modules, *packages]))

    def _from_file(self, path: Path) -> type[AddressPolicy]:
        if not path.is_file():
            raise PluginLoadError(f"{path} is no file")
        try:
            code = path.read_bytes()
        except OSError as error:
            raise PluginLoadError(f"{path} cannot be read: {error.strerror or error}") from error
        digest = sha256(code).digest()
        before = self._loaded.get(path)
        if before is None or before[0] != digest:
            before = self._loaded[path] = (digest, _only_policy(_execute(path), path))
        return before[1]


def entry_points() -> Iterator[EntryPoint]:
    """What installed packages offer, but for those whose metadata cannot be read: they must not hide the others."""
    for distribution in distributions():
        try:
            yield from distribution.entry_points.select(group=ENTRY_POINT_GROUP)
        except Exception as error:
            log.warning("the entry points of an installed package cannot be read: %s", error)


def _execute(path: Path) -> ModuleType:
    name = f"stompring_plugins.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    former = sys.modules.get(name)
    sys.modules[name] = module  # annotations are looked up there
    try:
        # not by way of the loader: a cached .pyc goes by the time of the file, which may be that of the change before
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)  # nosec B102
    except BaseException as error:
        if former is not None:
            sys.modules[name] = former
        else:
            del sys.modules[name]
        if not isinstance(error, Exception | SystemExit):
            raise
        raise PluginLoadError(_describe(error, path)) from error
    return module


def _from_package(point: EntryPoint) -> type[AddressPolicy]:
    where = f"{point.name} = {point.value}" + (
        f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    )
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:
        raise PluginLoadError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, AddressPolicy)):
        raise PluginLoadError(f"{where} is {kind!r}, which is no AddressPolicy")
    return kind


def _only_policy(module: ModuleType, path: Path) -> type[AddressPolicy]:
    found = list(dict.fromkeys(_policies(module)))  # one may have two names
    if len(found) == 1:
        return found[0]
    if not found:
        raise PluginLoadError(f"{path} defines no AddressPolicy")
    names = ", ".join(kind.__name__ for kind in found)
    raise PluginLoadError(
        f"{path} defines {len(found)} policies ({names}); put each into a module of its own"
    )


def _policies(module: ModuleType) -> Iterator[type[AddressPolicy]]:
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, AddressPolicy)
            and value.__module__ == module.__name__
            and not value.__name__.startswith("_")
        ):
            yield value


def _describe(error: BaseException, path: Path) -> str:
    """One line with the place in the plugin."""
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}"
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = frames[-1].lineno if frames else 1
    return f"{path}:{line}: {type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class SelectedPlugin:
    """A policy with the values of its parameters. Equal ones behave alike."""

    name: str  # as broker.xml calls it
    kind: type[AddressPolicy]
    values: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)  # digests of those among the values
    place: str = field(default="", compare=False)  # FILE:LINE where it is named

    def make(self) -> AddressPolicy:
        """A new object."""
        policy = self.kind()
        for name, value in self.values.items():
            setattr(policy, name, value)
        return policy


class Plugins:
    """The policies that one broker.xml names, each loaded and with its parameters read."""

    def __init__(self, selected: Mapping[PolicyUse, SelectedPlugin]) -> None:
        self._selected = selected

    def selected(self, use: PolicyUse) -> SelectedPlugin:
        """What an address-setting names."""
        return self._selected[use]


class PluginLoader(Protocol):
    """Where policies come from."""

    def load(self, name: str) -> type[AddressPolicy]:
        """The policy of that name. Raises `NotLoaded`."""


def load(configuration: BrokerConfiguration, sources: PluginLoader) -> Plugins:
    """Load what a broker.xml names; nothing is in use yet.

    Raises `ConfigurationError` with all that is wrong, by line.
    """
    file = configuration.file or "broker.xml"
    faults = Faults(file)
    kinds: dict[str, type[AddressPolicy]] = {}
    plugins = {plugin.name: plugin for plugin in configuration.plugins}
    for plugin in configuration.plugins:
        try:
            kinds[plugin.name] = sources.load(plugin.policy)
        except PluginLoadError as reason:
            faults.add(plugin.line, f"broker-plugin '{plugin.name}': {reason}")
    reading = _ParameterReader(file, faults)
    selected: dict[PolicyUse, SelectedPlugin] = {}
    for name, kind in kinds.items():
        reading.values(kind, plugins[name].properties, f"broker-plugin '{name}'")
    for use in _uses(configuration, plugins):
        if use.name in kinds:
            found = reading.selected(use, kinds[use.name], plugins[use.name])
            if found is not None:
                selected[use] = found
    faults.raise_if_any()
    return Plugins(selected)


def _uses(
    configuration: BrokerConfiguration, plugins: Mapping[str, PluginConfiguration]
) -> Iterator[PolicyUse]:
    """Where address-settings name a plugin."""
    for entry in configuration.address_settings:
        policies: Any = entry.values.get("address_policy", ())
        yield from (use for use in policies if use.enabled)
        full = entry.values.get("address_full_policy")
        if full in plugins:
            yield PolicyUse(str(full), line=entry.line)


class _ParameterReader:
    """Reads properties, and notes what is wrong with them."""

    def __init__(self, file: str, faults: Faults) -> None:
        self._file = file
        self._folder = Path(file).parent
        self._faults = faults

    def selected(
        self, use: PolicyUse, kind: type[AddressPolicy], plugin: PluginConfiguration
    ) -> SelectedPlugin | None:
        """What ``use`` means: the properties of the plugin and over them its own. None where that is wrong."""
        what = f"policy '{use.name}'"
        line = use.line or plugin.line
        values = self.values(kind, (*plugin.properties, *use.properties), what)
        if values is None:
            return None
        lacking = [one.key for name, one in kind.parameters.items() if name not in values and one.required]
        if lacking:
            self._faults.add(line, f"{what} lacks its parameter '{lacking[0]}'")
            return None
        defaults = {name: one.default for name, one in kind.parameters.items() if name not in values}
        selected = SelectedPlugin(use.name, kind, defaults | values, _digests(values), f"{self._file}:{line}")
        try:
            selected.make().check()
        except ValueError as error:
            self._faults.add(line, f"{what}: {error}")
        except HOOK_EXCEPTIONS as error:
            self._faults.add(line, f"{what} failed in check: {type(error).__name__}: {error}")
        else:
            return selected
        return None

    def values(
        self, kind: type[AddressPolicy], properties: Iterable[Property], what: str
    ) -> dict[str, Any] | None:
        """The values of properties, by the names of their attributes; None where something is wrong with one."""
        known = {one.key: name for name, one in kind.parameters.items()}
        values: dict[str, Any] = {}
        right = True
        for given in properties:
            name = known.get(given.key)
            if name is None:
                self._faults.add(
                    given.line or 1,
                    with_suggestion(f"{what} has no parameter '{given.key}'", given.key, known),
                )
                right = False
                continue
            try:
                values[name] = kind.parameters[name].read(revealed(given.value), self._folder)
            except ValueError as error:
                self._faults.add(given.line or 1, f"{what}: {given.key} is '{given.value}': {error}")
                right = False
        return values if right else None


def _digests(values: Mapping[str, Any]) -> dict[str, bytes]:
    """What the files among some values hold: a policy is another one when one of them has changed."""
    files = {name: value for name, value in values.items() if isinstance(value, Path)}
    return {name: sha256(file.read_bytes()).digest() for name, file in files.items() if file.is_file()}
