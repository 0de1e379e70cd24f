"""Where a running broker is reached, over TLS or not, and what its certificates are checked against."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import click

from stompring.pipeline.stomp.endpoint import parse_address, trusting
from stompring.settings.acceptor import HttpAcceptor, StompAcceptor
from stompring.settings.model import BrokerConfiguration


@dataclass(frozen=True, slots=True)
class Doors:
    """``[ssl://]HOST:PORT`` and ``http[s]://HOST:PORT``, None where nobody has said it."""

    stomp: str | None
    http: str | None
    ca_file: Path | None = None

    def completed(self, meant: BrokerConfiguration) -> Doors:
        """With what a broker.xml says where nobody else has. Raises `click.ClickException` where it says nothing."""
        found = replace(self, stomp=self.stomp or _stomp(meant), http=self.http or _http(meant))
        if found.stomp is None or found.http is None:
            option = "--stomp HOST:PORT" if found.stomp is None else "--http URL"
            raise click.ClickException(f"a broker is running there; say where it listens with {option}")
        return found

    def stomp_place(self) -> tuple[str, int, bool]:
        """Host, port, and whether it is TLS. Raises `click.UsageError`."""
        try:
            return parse_address(self.stomp or "")
        except ValueError as reason:
            raise click.UsageError(f"--stomp {reason}") from None

    def http_root(self) -> str:
        """The URL. Raises `click.UsageError`."""
        root = self.http or ""
        if not root.startswith(("http://", "https://")):
            raise click.UsageError(f"--http must be a URL as http://localhost:8161, not {root!r}")
        return root

    def context(self) -> ssl.SSLContext:
        """What certificates are checked with. Raises `click.ClickException` for a file that has none."""
        try:
            return trusting(self.ca_file)
        except OSError as fault:
            raise click.ClickException(f"--ca-file {self.ca_file}: {fault}") from None


def _stomp(meant: BrokerConfiguration) -> str | None:
    """A listener that takes STOMP as it is."""
    return _first([each for each in meant.stomp_acceptors if not each.websocket.only], "", "ssl://")


def _http(meant: BrokerConfiguration) -> str | None:
    return _first(meant.http_acceptors, "http://", "https://")


def _first(acceptors: Iterable[StompAcceptor | HttpAcceptor], plain: str, secure: str) -> str | None:
    """The first of them that anybody may connect to, one without TLS if there is one."""
    open_ = [each for each in acceptors if each.port and each.proxy is None]
    for each in sorted(open_, key=lambda each: each.tls is not None):
        return f"{secure if each.tls else plain}{_loopback(each.host)}:{each.port}"
    return None


def _loopback(host: str) -> str:
    """An address to connect to where a listener takes all."""
    if host in ("0.0.0.0", "::"):  # nosec B104
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # nosec B104
    return f"[{host}]" if ":" in host else host
