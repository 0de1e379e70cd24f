"""``stompring settings [NAME]``: the settings of broker.xml with their defaults, and the meaning of one."""

from __future__ import annotations

from collections.abc import Mapping

from stompring.settings import model
from stompring.settings.document import with_suggestion
from stompring.settings.model import Option, options_of
from stompring.settings.urls import PARAMETER_TYPES

from .options import JSON_FOR_TEXT, command
from .output import (
    NOT_FOUND,
    CommandFailed,
    JsonObject,
    columns,
    echo_json,
    fields,
    print_fields,
    print_table,
)

#: Classes of settings by the kind of element in broker.xml. The settings are child elements or attributes of the
#: element, or parameters of its URL.
KINDS: Mapping[str, tuple[type, ...]] = {
    "core": (model.BrokerConfiguration,),
    "journal-retention-directory": (model.Retention,),
    "replicated-log": (model.ReplicatedLogSettings,),
    "login-modules": (model.LoginModule,),
    "ldap": (model.LdapLogin,),
    "token": (model.TokenLogin,),
    "wildcard-addresses": (model.WildcardSyntax,),
    "acceptor": (model.StompAcceptor, model.FrameLimits, model.WebSocketSettings),
    "bridge": (model.BridgeConfiguration,),
    "connector": (model.Connector,),
    "resource-limit-setting": (model.ResourceLimit,),
    "address-setting": (model.AddressSettings,),
    "queue": (model.QueueConfiguration,),
    "divert": (model.DivertConfiguration,),
}

#: The elements whose settings are parameters of a URL.
URLS = ("acceptor", "connector")

#: Elements whose changes need a restart.
AT_RESTART = ("journal-retention-directory", "replicated-log", "wildcard-addresses", "acceptor")


def shown_default(row: Option) -> str:
    """The default of a setting as Markdown: a value, the setting that it comes from, or a word such as required."""
    if row.default_text:
        return row.default_text
    if row.inherits:
        return f"from `{row.inherits.replace('_', '-')}`"
    if row.default is None or row.default == ():
        return "required" if row.written_as.endswith("required") else "none"
    if row.default == "":
        return "empty"
    return f"`{str(row.default).lower() if isinstance(row.default, bool) else row.default}`"


def shown_values(row: Option) -> str:
    """The values of a setting in words."""
    return PARAMETER_TYPES[row.type].accepts if row.type else "a policy"


def _settings() -> list[JsonObject]:
    return [
        {
            "name": row.parameter_name if element in URLS else row.xml_name,
            "element": element,
            "writtenAs": "parameter of the URL" if element in URLS else row.written_as,
            "default": shown_default(row).replace("`", ""),
            "unit": row.unit,
            "values": shown_values(row),
            "meaning": row.meaning,
            "source": row.source,
            "reload": row.reloadable and element not in AT_RESTART,
        }
        for element, kinds in KINDS.items()
        for kind in kinds
        for row in options_of(kind)
        if row.meaning
    ]


@command()
def settings(name: str | None, as_json: bool = JSON_FOR_TEXT) -> None:
    """List the settings of broker.xml, or show what NAME means.

    NAME is an element, an attribute or a parameter of a URL, in any case. Several elements may have a setting of that
    name; each is shown with its default, unit, values, meaning, source, and whether a reload applies a change. NAME
    may also be one of the elements of the list: its settings are listed. No broker is needed. The parameters of TLS
    and of the PROXY protocol are in docs/settings.md.

    \b
    Examples:
      stompring settings
      stompring settings ring-size
      stompring settings acceptor
      stompring settings max-delivery-attempts --json | jq -r '.settings[].default'
    """
    every = found = _settings()
    whole = name is None or name.lower() in KINDS
    if name is not None:
        found = [row for row in every if name.lower() == row["element" if whole else "name"].lower()]
    if not found:
        known = dict.fromkeys([*KINDS, *(row["name"] for row in every)])
        raise CommandFailed(with_suggestion(f"there is no setting {name!r}", str(name), known), NOT_FOUND)
    if as_json:
        echo_json({"settings": found})
    elif whole:
        print_table(found, columns(element=0, name=0, default=0))
    else:
        for row in found:
            print_fields(row, {"Setting": fields(*row)})
