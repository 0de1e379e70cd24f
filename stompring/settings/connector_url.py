"""The URL of a ``<connector>``: ``tcp://host:port?parameters`` or ``ssl://…``, as in the URL of an acceptor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stompring.settings import value_types
from stompring.settings.acceptor_url import (
    PARAMETER_TYPES,
    SCHEMES,
    TLS_PARAMETERS,
    Ignored,
    Parameter,
    Resolve,
    read_parameters,
    resolved_endpoint,
)
from stompring.settings.artemis import CONNECTOR_PARAMETERS as ROWS
from stompring.settings.connector import Connector, ConnectorTls
from stompring.settings.options import options_of

_TLS_SHARED = (
    "sslEnabled",
    "keyStorePath",
    "keyPath",
    "keyStorePassword",
    "keyStoreType",
    "trustStorePath",
    "trustStorePassword",
    "trustStoreType",
    "enabledProtocols",
    "enabledCipherSuites",
)

CONNECTOR_TLS_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        **{name: TLS_PARAMETERS[name] for name in _TLS_SHARED},
        "verifyHost": Parameter("verify_host", value_types.boolean, "tls"),
        "sniHost": Parameter("sni_host", value_types.name, "tls"),
    }
)

CONNECTOR_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        **{
            row.parameter_name: Parameter(row.name, PARAMETER_TYPES[row.type].read)
            for row in options_of(Connector)
        },
        **CONNECTOR_TLS_PARAMETERS,
    }
)


def parse_connector(name: str, url: str, resolve: Resolve = str, ignored: Ignored | None = None) -> Connector:
    """The connector with this URL. Parameters of Artemis without effect are added to ``ignored``.

    Raises `ValueError` whose text is all that is wrong with it, a fault per line.
    """
    endpoint, _, query = url.partition("?")
    split, host, port = resolved_endpoint(endpoint.strip(), resolve)
    scheme = SCHEMES[split.scheme]
    if split.scheme not in ("tcp", "ssl"):
        raise ValueError(f"{split.scheme}:// is not supported for a connector; use tcp:// or ssl://")
    if not port:
        raise ValueError("the port of a connector must be from 1 to 65535")
    faults: list[str] = []
    parts = read_parameters(
        query, CONNECTOR_PARAMETERS, faults, resolve, [] if ignored is None else ignored, ROWS
    )
    tls = _tls(parts["tls"], scheme.secure, faults)
    if faults:
        raise ValueError("\n".join(faults))
    return Connector(name, host, port, **parts[""], tls=tls)


def _tls(values: dict[str, Any], secure: bool, faults: list[str]) -> ConnectorTls | None:
    enabled = values.pop("enabled", secure)
    for kind in ("key_store_type", "trust_store_type"):  # there is one, which was checked
        values.pop(kind, None)
    if secure and not enabled:
        faults.append("sslEnabled=false contradicts the URL: use tcp:// without TLS")
    if not enabled:
        if values and not secure:
            given = next(name for name, one in CONNECTOR_TLS_PARAMETERS.items() if one.field in values)
            faults.append(f"{given} has no effect without TLS: use ssl://, or set sslEnabled=true")
        return None
    tls = ConnectorTls(**values)
    if len(tls.key_store_path) > 1:
        faults.append(
            "keyStorePath of a connector is one file: the certificate that the remote broker is shown"
        )
    if len(tls.key_path) > len(tls.key_store_path):
        faults.append("keyPath requires keyStorePath, the certificate of that key")
    return tls


def with_absolute_paths(connector: Connector, directory: Path) -> Connector:
    """The connector with its relative paths starting at ``directory``."""
    tls = connector.tls
    if tls is None:
        return connector
    return replace(
        connector,
        tls=replace(
            tls,
            key_store_path=tuple(str(directory / path) for path in tls.key_store_path),
            key_path=tuple(str(directory / path) for path in tls.key_path),
            trust_store_path=None if tls.trust_store_path is None else str(directory / tls.trust_store_path),
        ),
    )
