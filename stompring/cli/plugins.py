"""``stompring plugins list`` and ``stompring plugins new``: lists address policies, and creates one with a test."""

from __future__ import annotations

import keyword
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stompring.settings.model import BrokerConfiguration, FullPolicy, PluginConfiguration
from stompring.settings.value_types import plugin_name

from .options import JSON_FOR_TEXT, argument, command, option
from .output import (
    DEFAULT,
    DEFAULTS,
    CommandFailed,
    JsonObject,
    aligned,
    default_file,
    echo_json,
    existing,
    warn,
)

if TYPE_CHECKING:
    from stompring.policy.api import Parameter
    from stompring.policy.load import Entry


class Use(NamedTuple):
    """An address-setting that names a broker-plugin."""

    match: str
    line: int | None
    full: bool  # whether the address-setting names the plugin as its address-full-policy
    enabled: bool


class Listing(NamedTuple):
    """All policies, and their uses in one broker.xml."""

    file: str
    plugins: Sequence[PluginConfiguration] | None  # the broker-plugins of the file; None if there is no file
    folders: Sequence[Path]
    entries: Sequence[Entry]
    uses: Mapping[str, Sequence[Use]]  # uses by name of the broker-plugin

    def plugins_of(self, entry: Entry) -> list[PluginConfiguration]:
        """The broker-plugins that use the policy ``entry``; none if the broker loads another policy of this name."""
        if entry.shadowed_by:
            return []
        return [plugin for plugin in self.plugins or () if _policy_name(plugin) == entry.name]

    @property
    def missing(self) -> list[PluginConfiguration]:
        """The broker-plugins whose policy is missing."""
        known = {entry.name for entry in self.entries}
        return [plugin for plugin in self.plugins or () if _policy_name(plugin) not in known]


@click.group()
def plugins() -> None:
    """List address policies, and create new ones.

    Policies are modules in a directory 'plugins' beside broker.xml or beside its directory, and entry points of
    installed packages. The broker loads the policies that broker.xml names as <broker-plugin>.

    \b
    Examples:
      stompring plugins list --parameters
      stompring plugins new keep_newest
    """


@command(plugins, "list")
def list_plugins(
    config: str | None = option(
        "FILE", f"The broker.xml with the directory plugins beside it.  [default: {DEFAULT}]"
    ),
    parameters: bool = option(
        "Load the policies that broker.xml names, as a broker does, and show their parameters."
    ),
    as_json: bool = JSON_FOR_TEXT,
) -> None:
    """List all policies, and where broker.xml uses them.

    The list has the name of each policy, the first line of its docstring, its file or package, and its class. The
    command parses the sources and runs no code of a policy. With --parameters it loads the policies that broker.xml
    names in <broker-plugins>, and no others.

    \b
    Examples:
      stompring plugins list
      stompring plugins list --parameters --json
    """
    listing = _listing(config, parameters)
    if listing.plugins is None:
        warn(
            f"no {DEFAULT} in the directory {Path.cwd()}: uses of policies are not shown; "
            "name a broker.xml with --config FILE"
        )
    if as_json:
        echo_json(fields(listing), ascii=True)
    else:
        for line in lines(listing):
            click.echo(line)


def _listing(config: str | None, parameters: bool) -> Listing:
    # imported here: the policy package imports most of the broker, which other commands do not need
    from stompring.policy.load import PluginSources, catalogue, load_details
    from stompring.settings.broker_xml import read_broker_xml

    file = config or default_file() or DEFAULTS[0]
    plugins, uses = None, {}
    if config is not None or default_file() is not None:
        configuration = read_broker_xml(file)
        plugins, uses = configuration.plugins, _uses(configuration)
    sources = PluginSources(file)
    listing = Listing(file, plugins, sources.folders, catalogue(sources), uses)
    for entry in listing.entries if parameters else ():
        if listing.plugins_of(entry):
            load_details(entry, sources.load)
    return listing


def _uses(configuration: BrokerConfiguration) -> dict[str, list[Use]]:
    uses: dict[str, list[Use]] = {plugin.name: [] for plugin in configuration.plugins}
    for entry in configuration.address_settings:
        policies: Any = entry.values.get("address_policy", ())
        for use in policies:
            uses[use.name].append(Use(entry.match, use.line or entry.line, False, use.enabled))
        full = entry.values.get("address_full_policy")
        if full in uses:
            uses[str(full)].append(Use(entry.match, entry.line, True, True))
    return uses


def _policy_name(plugin: PluginConfiguration) -> str:
    return plugin.policy.replace("_", "-")


# ---- text


def lines(listing: Listing) -> Iterator[str]:
    """The listing as text."""
    from stompring.settings.document import with_suggestion

    for entry in listing.entries:
        yield from _entry(listing, entry)
        yield ""
    names = {entry.name for entry in listing.entries}
    for plugin in listing.missing:
        text = (
            f"{listing.file}:{plugin.line}: broker-plugin '{plugin.name}': policy '{plugin.policy}' not found"
        )
        yield with_suggestion(text, _policy_name(plugin), names)
        yield from _used(listing, plugin)
        yield ""
    if listing.folders:
        yield f"searched {' and '.join(map(str, listing.folders))}, and installed packages"
    else:
        beside = Path(listing.file).absolute().parent
        yield f"no directory plugins in {beside} or {beside.parent}; searched installed packages"


def _entry(listing: Listing, entry: Entry) -> Iterator[str]:
    yield f"{entry.name}: {entry.summary}" if entry.summary else entry.name
    yield f"  from {entry.origin}"
    if entry.fault is not None:
        yield f"  error: {entry.fault}"
    if entry.parameters is not None:
        rows = [(one.key, one.takes, one.shown_default, one.help) for one in entry.parameters.values()]
        yield from (f"    {line}" for line in aligned(rows))
    if entry.shadowed_by:
        yield f"  not used: {entry.shadowed_by.origin} has the same name and comes first"
        return
    named = listing.plugins_of(entry)
    for plugin in named:
        yield f"  {listing.file}:{plugin.line}: broker-plugin '{plugin.name}'"
        yield from _used(listing, plugin)
    if listing.plugins is not None and not named:
        yield f"  not named in {listing.file}"


def _used(listing: Listing, plugin: PluginConfiguration) -> Iterator[str]:
    for use in listing.uses[plugin.name]:
        how = " as address-full-policy" if use.full else ""
        off = "" if use.enabled else ", disabled"
        yield f"    line {use.line}: used{how} by address-setting '{use.match}'{off}"
    if not listing.uses[plugin.name]:
        yield "    not used by any address-setting"


# ---- JSON


def fields(listing: Listing) -> JsonObject:
    """The listing as a JSON object."""
    return {
        "config": None if listing.plugins is None else listing.file,
        "folders": [str(folder) for folder in listing.folders],
        "policies": [_entry_fields(listing, entry) for entry in listing.entries],
        "missing": [_plugin_fields(listing, plugin) for plugin in listing.missing],
    }


def _entry_fields(listing: Listing, entry: Entry) -> JsonObject:
    parameters = entry.parameters
    return {
        "name": entry.name,
        "path": entry.path and str(entry.path),
        "shipped": entry.shipped,
        "distribution": entry.distribution,
        "version": entry.version,
        "entryPoint": entry.target,
        "class": entry.kind,
        "summary": entry.summary,
        "parameters": None if parameters is None else [_parameter_fields(one) for one in parameters.values()],
        "fault": entry.fault,
        "shadowedBy": entry.shadowed_by and entry.shadowed_by.origin,
        "plugins": [_plugin_fields(listing, plugin) for plugin in listing.plugins_of(entry)],
    }


def _parameter_fields(one: Parameter) -> JsonObject:
    return {
        "key": one.key,
        "takes": one.kind,
        "least": one.least if math.isfinite(one.least) else None,
        "most": one.most if math.isfinite(one.most) else None,
        "required": one.required,
        "default": None if one.required else one.shown_default,
        "help": one.help,
    }


def _plugin_fields(listing: Listing, plugin: PluginConfiguration) -> JsonObject:
    return {
        "name": plugin.name,
        "policy": plugin.policy,
        "line": plugin.line,
        "uses": [use._asdict() for use in listing.uses[plugin.name]],
    }


TEMPLATES = Path(__file__).with_name("templates")


def _check_name(name: str) -> None:
    module = name.replace("-", "_")
    try:
        plugin_name(name)
    except ValueError as error:
        raise ValueError(f"'{name}' {error}") from None
    if name.upper() in list(FullPolicy):
        raise ValueError(f"{name.upper()} is a built-in policy; choose another name")
    if keyword.iskeyword(module):
        raise ValueError(f"'{name}' is a keyword of Python and cannot be the name of a module")
    if module.startswith(("test_", "conftest")):
        raise ValueError(f"'{name}': names that begin with test_ or conftest are reserved for tests")


@command(plugins)
def new(
    name: str = argument(check=_check_name),
    folder: str | None = option(
        "DIR",
        "Output directory, in place of the directory plugins near broker.xml; with --package, of the current one.",
    ),
    config: str | None = option(
        "FILE", f"The broker.xml beside which the directory plugins is.  [default: {DEFAULT}]"
    ),
    package: bool = option("Create a project that pip can install, in place of a single module."),
    as_json: bool = JSON_FOR_TEXT,
) -> None:
    """Create a policy NAME and a test that passes.

    The policy is a module NAME.py in the directory 'plugins' beside broker.xml, or in an existing directory 'plugins'
    beside the directory of broker.xml. The test is in the same directory. With --package the policy and the test are
    in a project stompring-NAME that pip can install. Existing files are never overwritten.

    \b
    Examples:
      stompring plugins new keep_newest
      stompring plugins new keep_newest --package --folder ~/src
    """
    module = name.replace("-", "_")
    install, distribution = "", None
    if package:
        distribution = f"stompring-{name.replace('_', '-')}"
        tested = target = Path(folder or ".") / distribution
        if os.path.lexists(target):
            raise CommandFailed(f"{target} exists already")
        # without ./ pip would search for the name in its index
        install = f"python -m pip install {target if target.is_absolute() else f'./{target}'}"
    else:
        target = Path(folder) if folder is not None else _plugin_folder(config)
        tested = target / f"test_{module}.py"
        _refuse_known_module(module, target)
    texts = _texts(name, module, distribution)
    _write(target, texts, as_json)
    xml = _filled("broker.xml", {"name": name})
    if as_json:
        echo_json(
            {
                "name": name,
                "files": [str(target / each) for each in texts],
                "xml": xml,
                "install": install or None,
                "test": f"python -m pytest {tested}",
            }
        )
        return
    click.echo("\nTo use it, add to <core> of broker.xml:\n")
    for line in xml.splitlines():
        click.echo(f"  {line}")
    if install:
        click.echo(f"\nTo install it beside the broker:\n\n  {install}")
    click.echo(f"\nTo test it:\n\n  python -m pytest {tested}")
    if not package and folder is not None:
        click.echo(
            "\nThe broker searches the directory 'plugins' beside broker.xml, and the one beside its directory."
        )


def _plugin_folder(config: str | None) -> Path:
    """The first existing plugin directory, else the path beside broker.xml."""
    from stompring.policy.load import PLUGIN_DIRECTORY, PluginSources

    file = existing(config)
    folders = PluginSources(file).folders
    folder = folders[0] if folders else Path(file).parent / PLUGIN_DIRECTORY
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _refuse_known_module(module: str, target: Path) -> None:
    """Refuse the name of another module that Python can import: the test would import that module."""
    if module in sys.stdlib_module_names:
        raise CommandFailed(f"{module} is a module of the standard library; choose another name")
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return
    if spec and spec.origin is not None and Path(spec.origin).parent != target.absolute():
        raise CommandFailed(f"a module {module} exists already, at {spec.origin}; choose another name")


def _texts(name: str, module: str, distribution: str | None) -> dict[Path, str]:
    """The texts of a policy's files, by path. ``distribution``: name of a project; None: a module and its test."""
    from stompring.policy.load import ENTRY_POINT_GROUP

    values = {
        "name": name,
        "module": module if distribution is None else f"stompring_{module}",
        "kind": _class_name(name),
        "distribution": distribution or "",
        "group": ENTRY_POINT_GROUP,
        "xml": _filled("broker.xml", {"name": name}),
    }
    policy, test = _filled("policy.py", values), _filled("test_policy.py", values)
    if distribution is None:
        return {Path(f"{module}.py"): policy, Path(f"test_{module}.py"): test}
    return {
        Path("pyproject.toml"): _filled("pyproject.toml", values),
        Path("README.md"): _filled("README.md", values),
        Path(values["module"], "__init__.py"): policy,
        Path(values["module"], "py.typed"): "",
        Path("tests", f"test_{module}.py"): test,
    }


def _class_name(name: str) -> str:
    """The class of a policy: RateLimit for rate-limit. Names that the template uses get a suffix (RefusePolicy)."""
    from stompring import policy

    kind = "".join(word[:1].upper() + word[1:] for word in re.split("[-_]", name))
    taken = keyword.iskeyword(kind) or kind in (*policy.__all__, "PolicyHarness")
    return f"{kind}Policy" if taken else kind


def _filled(template: str, values: Mapping[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(values)


def _write(target: Path, texts: Mapping[Path, str], quiet: bool) -> None:
    """Write all files, or none if one of them exists."""
    try:
        for path in texts:
            if os.path.lexists(target / path):
                raise CommandFailed(f"{target / path} exists already and is not overwritten")
        for path, text in texts.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
            if not quiet:
                click.echo(f"wrote {file}")
    except OSError as error:
        raise CommandFailed(f"{error.filename} cannot be written: {error.strerror or error}") from None
