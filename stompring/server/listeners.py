"""Listeners: the sockets of the acceptors, and the layers between a socket and its protocol (PROXY header, TLS).

When the process may open no more files, Twisted closes a spare descriptor, accepts connections with it and closes them.
It tries only once to open the spare again, and a thread of the broker may open a file at that moment. Without a spare
the reactor would spin on the socket. `ReserveDescriptorSocket` therefore has its own spare, and tries again.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IListeningPort,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.internet.tcp import Port

from stompring.broker.clock import cancel
from stompring.errors import CertificateError, ConfigurationError
from stompring.security.accounts import Versions, certificate_files, versions_of
from stompring.settings.model import BrokerConfiguration, HttpAcceptor, ProxyProtocol, StompAcceptor
from stompring.settings.network import is_loopback

from .protocol import ProtocolDetectionFactory, ProxyFactory

if TYPE_CHECKING:
    from stompring.security.certificates import Identity

    from .tls import TlsContext

#: Maximum number of connections that wait to be accepted. After a network fault thousands of clients reconnect at the
#: same time.
BACKLOG = 4096


def listen(acceptor: Acceptor, factory: IProtocolFactory, reactor: Any) -> Deferred[IListeningPort]:
    """Open the listener of ``acceptor``. Fails with CannotListenError."""
    kind = TCP6ServerEndpoint if ":" in acceptor.host else TCP4ServerEndpoint
    endpoint: IStreamServerEndpoint = kind(reactor, acceptor.port, backlog=BACKLOG, interface=acceptor.host)
    return endpoint.listen(factory)


#: Errors of accept(2) if the process has no descriptor, or the system no memory, for another connection.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

#: Maximum number of waiting connections that one accept closes: twice the number that Twisted accepts in one read.
MAX_CLOSED_AT_ONCE = 200

#: Seconds for which a listener pauses if it can neither accept nor close a waiting connection.
RETRY_DELAY = 0.1


def close_when_out_of_files(port: IListeningPort, closed: Callable[[int], None], reactor: Any) -> None:
    """Make ``port`` close new connections while no descriptor is free. ``closed`` is called with their number."""
    if isinstance(port, Port):  # tests use ports without a socket
        port.socket = ReserveDescriptorSocket(port, closed, reactor)


class ReserveDescriptorSocket:
    """The socket of a `Port`. A spare descriptor lets it accept and close connections when no other is free."""

    _paused: IDelayedCall | None = None
    _spare: int | None = None

    def __init__(self, port: Any, closed: Callable[[int], None], reactor: Any) -> None:
        self._port = port
        self._socket = port.socket
        self._closed = closed
        self._reactor = reactor
        self._open_spare()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def accept(self) -> Any:
        """Accept a connection. Raises BlockingIOError if none waits, or if descriptors or memory are missing."""
        if self._spare is None:
            self._open_spare()
        try:
            return self._socket.accept()
        except OSError as fault:
            if fault.errno not in OUT_OF_RESOURCES:
                raise
            if not self._close_waiting():
                self._pause()
            raise BlockingIOError(errno.EAGAIN, os.strerror(fault.errno)) from fault

    def close(self) -> None:
        """Close the socket and the spare descriptor."""
        cancel(self._paused)
        self._close_spare()
        self._socket.close()

    def _open_spare(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._spare = None  # the next accept tries to open the spare again

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _close_waiting(self) -> bool:
        """Accept and close waiting connections with the spare descriptor. Return False if accept(2) still fails."""
        self._close_spare()
        number = 0
        able = True
        try:
            while number < MAX_CLOSED_AT_ONCE:
                connection, _ = self._socket.accept()
                connection.close()
                number += 1
        except BlockingIOError:
            pass  # no further connection waits; Linux reports a missing descriptor even if none has waited
        except OSError:
            able = False  # another thread took the descriptor, or memory is missing
        self._open_spare()
        if number:
            self._closed(number)
        return able

    def _pause(self) -> None:
        # without a pause, the reactor would call accept again immediately, which would fail in the same way
        self._port.stopReading()
        self._paused = self._reactor.callLater(RETRY_DELAY, self._resume)

    def _resume(self) -> None:
        if not self._port.disconnecting:
            self._port.startReading()


log = logging.getLogger(__name__)

#: Seconds between checks of the files of an acceptor with sslAutoReload, as in Artemis.
FILE_CHECK_INTERVAL = 5.0
#: Seconds between two checks of expiry dates. ``EXPIRY_WARNING``: seconds before the expiry of a certificate at which
#: warnings begin.
DAY = 86_400.0
EXPIRY_WARNING = 30 * DAY
#: Seconds that a PROXY header may take on an HTTP acceptor, which has no handshake-timeout.
HTTP_PROXY_TIMEOUT = 10

ANY_PROXY = "any client can claim any address by a PROXY header: list the proxies in proxyProtocolTrusted"

Acceptor = StompAcceptor | HttpAcceptor
Contexts = Mapping[str, "TlsContext"]


def all_acceptors(configuration: BrokerConfiguration) -> tuple[Acceptor, ...]:
    """Return the STOMP acceptors, then the HTTP acceptors."""
    return (*configuration.stomp_acceptors, *configuration.http_acceptors)


def tls_acceptors(configuration: BrokerConfiguration) -> dict[str, Acceptor]:
    """Return the acceptors with TLS by name."""
    return {one.name: one for one in all_acceptors(configuration) if one.tls is not None}


def read_tls_contexts(configuration: BrokerConfiguration) -> Contexts:
    """Read the certificates and TLS settings of all acceptors, by name of the acceptor. Raises `ConfigurationError`."""
    return {
        name: _read_tls_context(acceptor, configuration.file)
        for name, acceptor in tls_acceptors(configuration).items()
    }


def _read_tls_context(acceptor: Acceptor, file: str | None) -> TlsContext:
    assert acceptor.tls is not None
    from .tls import tls_context  # imported here: its libraries take 20 MB

    speaks_http = isinstance(acceptor, HttpAcceptor) or acceptor.websocket.only
    try:
        return tls_context(acceptor.tls, b"http/1.1" if speaks_http else None)
    except CertificateError as fault:
        raise ConfigurationError(f"acceptor '{acceptor.name}': {fault}", file) from None


class ListenerStack:
    """The layers of all acceptors: PROXY protocol, TLS. It counts the connections that fail in them, by acceptor."""

    def __init__(self, configuration: BrokerConfiguration, reactor: Any) -> None:
        """Read all certificates. Raises `ConfigurationError`."""
        self._configuration = configuration
        self._reactor = reactor
        self._now: Callable[[], float] = getattr(reactor, "wall_seconds", reactor.seconds)
        self._secured = tls_acceptors(configuration)
        self._stamps = {
            name: _file_stamp(one)
            for name, one in self._secured.items()
            if one.tls is not None and one.tls.ssl_auto_reload
        }
        self._contexts = self.read()
        self._timers: list[IDelayedCall] = []
        self.tls_failures = Counter(dict.fromkeys(self._secured, 0))
        self._proxied = [one for one in all_acceptors(configuration) if one.proxy is not None]
        self.proxy_failures = Counter({one.name: 0 for one in self._proxied})

    def wrap(self, acceptor: Acceptor, factory: IProtocolFactory) -> IProtocolFactory:
        """Return ``factory`` behind the layers of ``acceptor``."""
        name = acceptor.name
        wrapped: IProtocolFactory
        if acceptor.tls is None:
            wrapped = ProtocolDetectionFactory(factory, partial(self._log_connection, name))
        else:
            from .tls import TlsFactory

            wrapped = TlsFactory(
                factory,
                lambda: self._contexts[name],
                partial(self._failed, self.tls_failures, name),
                self._reactor,
            )
        if acceptor.proxy is None:
            return wrapped
        timeout = acceptor.handshake_timeout if isinstance(acceptor, StompAcceptor) else HTTP_PROXY_TIMEOUT
        return ProxyFactory(
            wrapped, acceptor.proxy, timeout, partial(self._failed, self.proxy_failures, name), self._reactor
        )

    # ---- certificates

    def identities(self) -> Iterator[tuple[str, Identity]]:
        """Yield each certificate that an acceptor presents, with the name of the acceptor."""
        for name, context in self._contexts.items():
            for identity in context.identities:
                yield name, identity

    def read(self) -> Contexts:
        """Read all certificate files again; `use` then applies them. Raises `ConfigurationError`."""
        return read_tls_contexts(self._configuration)

    def differing(self, contexts: Contexts) -> list[str]:
        """Return the names of the acceptors whose certificates in ``contexts`` differ from the current ones."""
        return [name for name in contexts if _chains(contexts[name]) != _chains(self._contexts[name])]

    def use(self, contexts: Contexts) -> list[str]:
        """Use ``contexts`` for new connections. Returns the names of the acceptors whose certificates differ."""
        changed = self.differing(contexts)
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
            warning = identity.expiry_warning(self._now(), EXPIRY_WARNING)
            if name in names and warning is not None:
                log.warning("acceptor %s: %s", name, warning, extra={"acceptor": name})

    # ---- periodic checks

    def start(self) -> None:
        """Log the certificates, and begin to check their files and expiry dates."""
        self._describe(list(self._secured))
        for acceptor in self._proxied:
            if acceptor.proxy == ProxyProtocol() and not is_loopback(acceptor.host):
                log.warning("acceptor %s: %s", acceptor.name, ANY_PROXY, extra={"acceptor": acceptor.name})
        if self._secured:
            self._every(DAY, lambda: self._warn(list(self._secured)))
        if self._stamps:
            self._every(FILE_CHECK_INTERVAL, self._check_files)

    def stop(self) -> None:
        """Cancel the checks."""
        for timer in self._timers:
            cancel(timer)
        self._timers.clear()

    def _every(self, seconds: float, call: Callable[[], None]) -> None:
        index = len(self._timers)

        def again() -> None:
            self._timers[index] = self._reactor.callLater(seconds, again)
            call()

        self._timers.append(self._reactor.callLater(seconds, again))

    def _check_files(self) -> None:
        for name, known in self._stamps.items():
            acceptor = self._secured[name]
            stamp = _file_stamp(acceptor)
            if stamp == known:
                continue
            self._stamps[name] = stamp
            try:
                self.use({name: _read_tls_context(acceptor, self._configuration.file)})
            except ConfigurationError as fault:
                log.error("cannot reload certificates, keeping the current ones: %s", fault)

    # ---- failed connections

    def _failed(self, counter: Counter[str], name: str, peer: IAddress | None, why: str) -> None:
        counter[name] += 1
        self._log_connection(name, peer, why)

    def _log_connection(self, name: str, peer: IAddress | None, why: str) -> None:
        host, port = getattr(peer, "host", ""), getattr(peer, "port", "")
        shown = f"[{host}]" if ":" in str(host) else host
        log.info(
            "acceptor %s: connection from %s:%s closed: %s",
            name,
            shown,
            port,
            why,
            extra={"acceptor": name, "peer": f"{host}:{port}"},
        )


def _chains(context: TlsContext) -> list[object]:
    return [identity.chain for identity in context.identities]


def _file_stamp(acceptor: Acceptor) -> Versions:
    """Return the versions of the certificate files of an acceptor: they differ if one of the files has changed."""
    assert acceptor.tls is not None
    tls = acceptor.tls
    sources = map(str, certificate_files(tls.key_store_path, tls.key_path))
    return versions_of([*sources, *filter(None, [tls.trust_store_path])])
