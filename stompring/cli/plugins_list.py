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
    from stompring.policy.catalogue import Entry, ReadParameter
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
    """All that is told."""

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of a text.")
def list_plugins(config: str | None, as_json: bool) -> None:
    """Show every policy that is there, and where broker.xml uses it.

    Of each: where it is from, what it is for, and the parameters that it takes. All of this is read from the source;
    nothing is imported, so that a policy that no broker.xml names does nothing here either. What its source computes
    is shown as it is written.
    """
    listing = _listing(config)
    if listing.configuration is None:
        click.echo(
            f"there is no {config_option.DEFAULT} in the directory {Path.cwd()}: which policies are used is not told; "
            "name yours with --config FILE",
            err=True,
        )
    if as_json:
        click.echo(json.dumps(fields(listing), indent=2))
    else:
        for line in lines(listing):
            click.echo(line)


def _listing(config: str | None) -> Listing:
    # Here and not above: what a policy is drags in most of the broker, and every other command would wait for it.
    from stompring.policy.catalogue import catalogue
    from stompring.policy.source import Sources
    from stompring.settings.broker_xml import read_broker_xml

    file = config if config is not None else config_option.DEFAULT
    without = config is None and not Path(file).exists()
    configuration = None if without else read_broker_xml(file)
    sources = Sources(file)
    uses = {} if configuration is None else _uses(configuration)
    return Listing(file, configuration, sources.folders, catalogue(sources), uses)


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


# ---- for people


def lines(listing: Listing) -> Iterator[str]:
    """What there is, for people."""
    for entry in listing.entries:
        yield from _entry(listing, entry)
        yield ""
    for plugin in listing.missing:
        yield _missing(listing, plugin)
        yield from _used(listing, plugin)
        yield ""
    if not listing.entries:
        yield "there is no policy but those that are built in"
    if listing.folders:
        yield f"looked in {' and '.join(map(str, listing.folders))}, and at installed packages"
    else:
        beside = Path(listing.file).absolute().parent
        yield f"there is no directory plugins in {beside} or {beside.parent}; looked at installed packages"


def _entry(listing: Listing, entry: Entry) -> Iterator[str]:
    policy = entry.policy
    yield f"{entry.name}: {policy.summary or 'has no docstring'}" if policy is not None else entry.name
    yield f"  from {entry.where}"
    if entry.fault is not None:
        yield f"  cannot be shown: {entry.fault}"
    if policy is not None:
        rows = [
            (one.key, one.takes, "required" if one.default is None else one.default, one.help)
            for one in policy.parameters
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"    {'  '.join(cells)}".rstrip()
    if entry.shadowed_by is not None:
        yield f"  not used: {entry.shadowed_by.where} has the same name and counts"
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
    text = f"{where}: broker-plugin '{plugin.name}' is missing: there is no policy '{plugin.policy}'"
    return with_suggestion(text, _policy_name(plugin), {entry.name for entry in listing.entries})


def _used(listing: Listing, plugin: PluginConfiguration) -> Iterator[str]:
    for use in listing.uses[plugin.name]:
        how = " as address-full-policy" if use.full else ""
        off = "" if use.enabled else ", not enabled"
        yield f"    line {use.line}: used{how} by address-setting '{use.match}'{off}"
    if not listing.uses[plugin.name]:
        yield "    no address-setting uses it"


# ---- for machines


def fields(listing: Listing) -> dict[str, Any]:
    """The same as what JSON has."""
    return {
        "config": None if listing.configuration is None else listing.file,
        "folders": [str(folder) for folder in listing.folders],
        "policies": [_entry_fields(listing, entry) for entry in listing.entries],
        "missing": [_plugin_fields(listing, plugin) for plugin in listing.missing],
    }


def _entry_fields(listing: Listing, entry: Entry) -> dict[str, Any]:
    policy = entry.policy
    return {
        "name": entry.name,
        "path": None if entry.path is None else str(entry.path),
        "distribution": entry.distribution,
        "version": entry.version,
        "entryPoint": entry.target,
        "class": None if policy is None else policy.kind,
        "summary": None if policy is None else policy.summary,
        "parameters": None if policy is None else [_parameter_fields(one) for one in policy.parameters],
        "fault": entry.fault,
        "shadowedBy": None if entry.shadowed_by is None else entry.shadowed_by.where,
        "plugins": [_plugin_fields(listing, plugin) for plugin in listing.plugins_of(entry)],
    }


def _parameter_fields(one: ReadParameter) -> dict[str, Any]:
    return {
        "key": one.key,
        "takes": one.kind,
        "least": one.least if math.isfinite(one.least) else None,
        "most": one.most if math.isfinite(one.most) else None,
        "required": one.default is None,
        "default": one.default,
        "help": one.help,
    }


def _plugin_fields(listing: Listing, plugin: PluginConfiguration) -> dict[str, Any]:
    uses = [
        {"match": use.match, "line": use.line, "full": use.full, "enabled": use.enabled}
        for use in listing.uses[plugin.name]
    ]
    return {"name": plugin.name, "policy": plugin.policy, "line": plugin.line, "uses": uses}
