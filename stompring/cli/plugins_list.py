"""``stompring plugins list``: which policies there are, and what one broker.xml does with them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stompring.cli import config_option

if TYPE_CHECKING:
    from stompring.policy.catalogue import Entry
    from stompring.policy.parameters import Parameter
    from stompring.settings.model import BrokerConfiguration, PluginConfiguration


@dataclass(frozen=True, slots=True)
class Use:
    """An address-setting that names a broker-plugin."""

    match: str
    line: int | None
    full: bool  # as its address-full-policy
    enabled: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """All policies, and what one broker.xml does with them."""

    file: str
    configuration: BrokerConfiguration | None  # of that file; None where it is not there
    folders: Sequence[Path]
    entries: Sequence[Entry]
    uses: Mapping[str, Sequence[Use]]  # by the names of broker-plugins

    def plugins_of(self, entry: Entry) -> list[PluginConfiguration]:
        """The broker-plugins that this policy is for."""
        if entry.shadowed_by is not None:
            return []
        return [plugin for plugin in self._plugins if _policy_name(plugin) == entry.name]

    @property
    def missing(self) -> list[PluginConfiguration]:
        """The broker-plugins whose policy is not there."""
        known = {entry.name for entry in self.entries}
        return [plugin for plugin in self._plugins if _policy_name(plugin) not in known]

    @property
    def _plugins(self) -> Sequence[PluginConfiguration]:
        return () if self.configuration is None else self.configuration.plugins


@click.command("list")
@click.option(
    "--config",
    metavar="FILE",
    help=f"The broker.xml beside which plugins are looked for.  [default: {config_option.DEFAULT}]",
)
@click.option(
    "--parameters",
    is_flag=True,
    help="Load the policies that broker.xml names, as a broker does, and show their parameters.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of text.")
def list_plugins(config: str | None, parameters: bool, as_json: bool) -> None:
    """List all policies, and where broker.xml uses them.

    Shown of each: name, first line of the docstring, file or package, class. Sources are parsed, not run: a listing
    runs no code of a plugin. With --parameters the policies that broker.xml names in <broker-plugins> are loaded, and
    no others.
    """
    listing = _listing(config, parameters)
    if listing.configuration is None:
        click.echo(
            f"no {config_option.DEFAULT} in the directory {Path.cwd()}: uses of policies are not shown; "
            "name a broker.xml with --config FILE",
            err=True,
        )
    if as_json:
        click.echo(json.dumps(fields(listing), indent=2))
    else:
        for line in lines(listing):
            click.echo(line)


def _listing(config: str | None, parameters: bool) -> Listing:
    # Here and not above: the policy package imports most of the broker, which no other command needs.
    from stompring.policy.catalogue import catalogue, load_details
    from stompring.policy.load import PluginSources
    from stompring.settings.broker_xml import read_broker_xml

    file = config if config is not None else config_option.DEFAULT
    without = config is None and not Path(file).exists()
    configuration = None if without else read_broker_xml(file)
    sources = PluginSources(file)
    uses = {} if configuration is None else _uses(configuration)
    listing = Listing(file, configuration, sources.folders, catalogue(sources), uses)
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
    for entry in listing.entries:
        yield from _entry(listing, entry)
        yield ""
    for plugin in listing.missing:
        yield _missing(listing, plugin)
        yield from _used(listing, plugin)
        yield ""
    if not listing.entries:
        yield "no policies found; only the built-in ones are available"
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
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"    {'  '.join(cells)}".rstrip()
    if entry.shadowed_by is not None:
        yield f"  not used: {entry.shadowed_by.origin} has the same name and comes first"
        return
    named = listing.plugins_of(entry)
    for plugin in named:
        yield f"  {listing.file}:{plugin.line}: broker-plugin '{plugin.name}'"
        yield from _used(listing, plugin)
    if listing.configuration is not None and not named:
        yield f"  not named in {listing.file}"


def _missing(listing: Listing, plugin: PluginConfiguration) -> str:
    from stompring.settings.suggestions import with_suggestion

    where = f"{listing.file}:{plugin.line}"
    text = f"{where}: broker-plugin '{plugin.name}': policy '{plugin.policy}' not found"
    return with_suggestion(text, _policy_name(plugin), {entry.name for entry in listing.entries})


def _used(listing: Listing, plugin: PluginConfiguration) -> Iterator[str]:
    for use in listing.uses[plugin.name]:
        how = " as address-full-policy" if use.full else ""
        off = "" if use.enabled else ", disabled"
        yield f"    line {use.line}: used{how} by address-setting '{use.match}'{off}"
    if not listing.uses[plugin.name]:
        yield "    not used by any address-setting"


# ---- JSON


def fields(listing: Listing) -> dict[str, Any]:
    """The listing as an object of JSON."""
    return {
        "config": None if listing.configuration is None else listing.file,
        "folders": [str(folder) for folder in listing.folders],
        "policies": [_entry_fields(listing, entry) for entry in listing.entries],
        "missing": [_plugin_fields(listing, plugin) for plugin in listing.missing],
    }


def _entry_fields(listing: Listing, entry: Entry) -> dict[str, Any]:
    parameters = entry.parameters
    return {
        "name": entry.name,
        "path": None if entry.path is None else str(entry.path),
        "distribution": entry.distribution,
        "version": entry.version,
        "entryPoint": entry.target,
        "class": entry.kind,
        "summary": entry.summary,
        "parameters": None if parameters is None else [_parameter_fields(one) for one in parameters.values()],
        "fault": entry.fault,
        "shadowedBy": None if entry.shadowed_by is None else entry.shadowed_by.origin,
        "plugins": [_plugin_fields(listing, plugin) for plugin in listing.plugins_of(entry)],
    }


def _parameter_fields(one: Parameter) -> dict[str, Any]:
    return {
        "key": one.key,
        "takes": one.kind,
        "least": one.least if math.isfinite(one.least) else None,
        "most": one.most if math.isfinite(one.most) else None,
        "required": one.required,
        "default": None if one.required else one.shown_default,
        "help": one.help,
    }


def _plugin_fields(listing: Listing, plugin: PluginConfiguration) -> dict[str, Any]:
    uses = [
        {"match": use.match, "line": use.line, "full": use.full, "enabled": use.enabled}
        for use in listing.uses[plugin.name]
    ]
    return {"name": plugin.name, "policy": plugin.policy, "line": plugin.line, "uses": uses}
