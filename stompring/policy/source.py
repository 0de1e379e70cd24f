"""Where the code of policies is: modules in a directory ``plugins`` near broker.xml, and installed packages.

Nothing is imported but what is named. A module is executed again after its file has changed; an installed package is
imported once, as all packages are: a new version of it counts from the next start on.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from stompring.settings.suggestions import with_suggestion

from .address_policy import AddressPolicy

log = logging.getLogger(__name__)

#: The entry point group of installed packages: ``NAME = package.module:Class``.
GROUP = "stompring.address_policies"

#: The directory for modules: beside broker.xml, or beside the directory that broker.xml is in.
FOLDER = "plugins"


class NotLoaded(Exception):
    """A policy could not be loaded; the text says why and where."""


class Sources:
    """What can be named in the broker.xml ``file``."""

    def __init__(self, file: str | None) -> None:
        beside = Path(file or "broker.xml").absolute().parent
        self.places: tuple[Path, ...] = (beside / FOLDER, beside.parent / FOLDER)
        self._loaded: dict[Path, tuple[bytes, type[AddressPolicy]]] = {}

    @property
    def folders(self) -> list[Path]:
        """Those of the places where there may be modules that are there now."""
        return [folder for folder in self.places if folder.is_dir()]

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
        for point in offered():
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
        what = f"there is no policy '{name}'{looked}, no installed package with it (entry points {GROUP})"
        raise NotLoaded(with_suggestion(what, wanted, [*modules, *packages]))

    def _from_file(self, path: Path) -> type[AddressPolicy]:
        if not path.is_file():
            raise NotLoaded(f"{path} is no file")
        try:
            code = path.read_bytes()
        except OSError as error:
            raise NotLoaded(f"{path} cannot be read: {error.strerror or error}") from error
        digest = sha256(code).digest()
        before = self._loaded.get(path)
        if before is None or before[0] != digest:
            before = self._loaded[path] = (digest, _only_policy(_execute(path), path))
        return before[1]


def offered() -> Iterator[EntryPoint]:
    """What installed packages offer, but for those whose metadata cannot be read: they must not hide the others."""
    for distribution in distributions():
        try:
            yield from distribution.entry_points.select(group=GROUP)
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
        raise NotLoaded(_describe(error, path)) from error
    return module


def _from_package(point: EntryPoint) -> type[AddressPolicy]:
    where = f"{point.name} = {point.value}" + (
        f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    )
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:
        raise NotLoaded(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, AddressPolicy)):
        raise NotLoaded(f"{where} is {kind!r}, which is no AddressPolicy")
    return kind


def _only_policy(module: ModuleType, path: Path) -> type[AddressPolicy]:
    found = list(dict.fromkeys(_policies(module)))  # one may have two names
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotLoaded(f"{path} defines no AddressPolicy")
    names = ", ".join(kind.__name__ for kind in found)
    raise NotLoaded(f"{path} defines {len(found)} policies ({names}); put each into a module of its own")


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
