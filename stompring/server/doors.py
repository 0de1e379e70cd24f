"""What stands between a listener and the protocol of its acceptor: the PROXY protocol, TLS and its certificates."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocolFactory

from stompring.errors import ConfigurationError
from stompring.security.certificates import CertificateFault, Identity, source_files
from stompring.settings.acceptor import HttpAcceptor, ProxyProtocol, StompAcceptor
from stompring.settings.acceptor_url import is_loopback
from stompring.settings.model import BrokerConfiguration

from .first_bytes import FirstBytesFactory
from .proxy_connection import ProxyFactory
from .tls_connection import TlsFactory
from .tls_context import TlsContext, tls_context

log = logging.getLogger(__name__)

#: Seconds between looks at the files of an acceptor with sslAutoReload; Artemis's default for its own.
AUTO_RELOAD = 5.0
#: Seconds between looks at the dates of certificates, and how long before its end one is spoken of.
DAY = 86_400.0
NOTICE = 30 * DAY
#: Seconds that a PROXY header may take where the acceptor has no handshake-timeout: an HTTP one.
HTTP_HANDSHAKE = 10

ANYBODY = "whoever reaches it may claim any address by a PROXY header; proxyProtocolTrusted says who the proxies are"

Acceptor = StompAcceptor | HttpAcceptor
Contexts = Mapping[str, TlsContext]
Stamp = tuple[tuple[str, int, int, int], ...]


def all_acceptors(configuration: BrokerConfiguration) -> tuple[Acceptor, ...]:
    """Those for STOMP, then those for HTTP."""
    return (*configuration.stomp_acceptors, *configuration.http_acceptors)


def secured(configuration: BrokerConfiguration) -> dict[str, Acceptor]:
    """The acceptors with TLS, by name."""
    return {one.name: one for one in all_acceptors(configuration) if one.tls is not None}


def read_contexts(configuration: BrokerConfiguration) -> Contexts:
    """What a broker would show and ask for, by acceptor. Raises `ConfigurationError`."""
    found = secured(configuration)
    return {name: _read(acceptor, configuration.file) for name, acceptor in found.items()}


def _read(acceptor: Acceptor, file: str | None) -> TlsContext:
    assert acceptor.tls is not None
    speaks_http = isinstance(acceptor, HttpAcceptor) or acceptor.websocket.only
    application = b"http/1.1" if speaks_http else None
    try:
        return tls_context(acceptor.tls, application)
    except CertificateFault as fault:
        raise ConfigurationError(f"acceptor '{acceptor.name}': {fault}", file) from None


class Doors:
    """The doors of all acceptors. Counts by acceptor since the start."""

    def __init__(
        self, configuration: BrokerConfiguration, reactor: Any, now: Callable[[], float] = time.time
    ) -> None:
        """Reads all certificates. ``now`` tells epoch seconds. Raises `ConfigurationError`."""
        self._file = configuration.file
        self._reactor = reactor
        self._now = now
        self._secured = secured(configuration)
        self._stamps: dict[str, Stamp] = {one.name: _stamp(one) for one in self._watched()}
        self._contexts = self.read()
        self._timers: list[IDelayedCall] = []
        self.tls_failures = Counter(dict.fromkeys(self._secured, 0))
        self._proxied = [one for one in all_acceptors(configuration) if one.proxy is not None]
        self.proxy_failures = Counter({one.name: 0 for one in self._proxied})

    def wrap(self, acceptor: Acceptor, factory: IProtocolFactory) -> IProtocolFactory:
        """What to listen with, so that ``factory`` gets what comes through the door of ``acceptor``."""
        name = acceptor.name
        wrapped: IProtocolFactory
        if acceptor.tls is None:
            wrapped = FirstBytesFactory(factory, partial(self._tell, name))
        else:
            wrapped = TlsFactory(
                factory,
                lambda: self._contexts[name],
                partial(self._failed, self.tls_failures, name),
                self._reactor,
            )
        if acceptor.proxy is None:
            return wrapped
        timeout = acceptor.handshake_timeout if isinstance(acceptor, StompAcceptor) else HTTP_HANDSHAKE
        failed = partial(self._failed, self.proxy_failures, name)
        return ProxyFactory(wrapped, acceptor.proxy, timeout, failed, self._reactor)

    # ---- certificates

    def identities(self) -> Iterator[tuple[str, Identity]]:
        """The name of an acceptor and a certificate that it shows, for each."""
        for name, context in self._contexts.items():
            for identity in context.identities:
                yield name, identity

    def read(self) -> Contexts:
        """Read all files again, for `use`. Raises `ConfigurationError`, and nothing has changed then."""
        return {name: _read(acceptor, self._file) for name, acceptor in self._secured.items()}

    def use(self, contexts: Contexts) -> list[str]:
        """New connections get these; those that are open keep what they began with. Names the acceptors that differ."""
        changed = [name for name in contexts if not _alike(contexts[name], self._contexts[name])]
        self._contexts = {**self._contexts, **contexts}
        self._describe(changed)
        return changed

    def _describe(self, names: list[str]) -> None:
        for name, identity in self.identities():
            if name in names:
                log.info("acceptor %s: %s", name, identity.describe(), extra={"acceptor": name})
        self._warn(names)

    def _warn(self, names: list[str]) -> None:
        for name, identity in self.identities():
            worry = identity.worry(self._now(), NOTICE)
            if name in names and worry is not None:
                log.warning("acceptor %s: %s", name, worry, extra={"acceptor": name})

    # ---- as time goes by

    def start(self) -> None:
        """Say which certificates there are, and look after them from now on."""
        self._describe(list(self._secured))
        for acceptor in self._proxied:
            if acceptor.proxy == ProxyProtocol() and not is_loopback(acceptor.host):
                log.warning("acceptor %s: %s", acceptor.name, ANYBODY, extra={"acceptor": acceptor.name})
        if self._secured:
            self._every(DAY, lambda: self._warn(list(self._secured)))
        if self._stamps:
            self._every(AUTO_RELOAD, self._look)

    def stop(self) -> None:
        """Look no more."""
        for timer in self._timers:
            if timer.active():
                timer.cancel()
        self._timers.clear()

    def _every(self, seconds: float, call: Callable[[], None]) -> None:
        place = len(self._timers)

        def again() -> None:
            self._timers[place] = self._reactor.callLater(seconds, again)
            call()

        self._timers.append(self._reactor.callLater(seconds, again))

    def _watched(self) -> Iterator[Acceptor]:
        for acceptor in self._secured.values():
            if acceptor.tls is not None and acceptor.tls.ssl_auto_reload:
                yield acceptor

    def _look(self) -> None:
        for acceptor in self._watched():
            stamp = _stamp(acceptor)
            if stamp == self._stamps[acceptor.name]:
                continue
            self._stamps[acceptor.name] = stamp
            try:
                self.use({acceptor.name: _read(acceptor, self._file)})
            except ConfigurationError as fault:
                log.error("the certificates are not read again, the old ones stay in force: %s", fault)

    # ---- what goes wrong

    def _failed(self, counter: Counter[str], name: str, peer: IAddress | None, why: str) -> None:
        counter[name] += 1
        self._tell(name, peer, why)

    def _tell(self, name: str, peer: IAddress | None, why: str) -> None:
        host, port = getattr(peer, "host", ""), getattr(peer, "port", "")
        shown = f"[{host}]" if ":" in str(host) else host
        log.info(
            "acceptor %s: a connection from %s:%s: %s",
            name,
            shown,
            port,
            why,
            extra={"acceptor": name, "peer": f"{host}:{port}"},
        )


def _alike(one: TlsContext, other: TlsContext) -> bool:
    return [i.chain for i in one.identities] == [i.chain for i in other.identities]


def _stamp(acceptor: Acceptor) -> Stamp:
    """What changes when one of the files does."""
    assert acceptor.tls is not None
    tls = acceptor.tls
    trust = [] if tls.trust_store_path is None else [Path(tls.trust_store_path)]
    found = []
    for path in (*source_files(tls.key_store_path, tls.key_path), *trust):
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
