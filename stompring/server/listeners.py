"""Listeners: the sockets of the acceptors, and the layers between a socket and its protocol (PROXY header, TLS).

Twisted keeps a spare descriptor to accept with when the process may open no more files. It tries only once to take it
back, while a thread of ours may open a file at the same moment; without it the reactor would spin on the same socket.
`ReserveDescriptorSocket` therefore keeps one of its own.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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

from stompring.errors import ConfigurationError
from stompring.security.certificates import CertificateError, Identity, source_files
from stompring.settings.acceptor import HttpAcceptor, ProxyProtocol, StompAcceptor
from stompring.settings.model import BrokerConfiguration
from stompring.settings.network import is_loopback

from .protocol_detection import ProtocolDetectionFactory
from .proxy_protocol import ProxyFactory
from .tls import TlsContext, TlsFactory, tls_context

#: Connections that may wait to be accepted: bursts of thousands of clients come after a network fault.
BACKLOG = 4096


def endpoint(acceptor: StompAcceptor | HttpAcceptor, reactor: Any) -> IStreamServerEndpoint:
    """Where ``acceptor`` listens."""
    kind = TCP6ServerEndpoint if ":" in acceptor.host else TCP4ServerEndpoint
    return kind(reactor, acceptor.port, backlog=BACKLOG, interface=acceptor.host)


def listen(
    acceptor: StompAcceptor | HttpAcceptor, factory: IProtocolFactory, reactor: Any
) -> Deferred[IListeningPort]:
    """Open the listener of ``acceptor``. Fails with CannotListenError."""
    return endpoint(acceptor, reactor).listen(factory)


#: What accept(2) fails with when there is no descriptor, or no memory, for another connection.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

#: How many are sent away before others have their turn: twice what Twisted accepts at once.
MAX_CLOSED_AT_ONCE = 200

#: Seconds until a listener is asked again that could not even send anybody away.
RETRY_DELAY = 0.1


def close_when_out_of_files(port: IListeningPort, turned_away: Callable[[int], None], reactor: Any) -> None:
    """Have ``port`` turn connections away while there are no descriptors, and tell ``turned_away`` how many."""
    if isinstance(port, Port):  # those of tests, which listen to nothing, are others
        port.socket = ReserveDescriptorSocket(port, turned_away, reactor)


class ReserveDescriptorSocket:
    """What a `Port` takes for its socket. A descriptor is kept to accept with, and to close at once."""

    __slots__ = ("_port", "_reactor", "_resting", "_socket", "_spare", "_turned_away")

    def __init__(self, port: Any, turned_away: Callable[[int], None], reactor: Any) -> None:
        self._port = port
        self._socket = port.socket
        self._turned_away = turned_away
        self._reactor = reactor
        self._resting: IDelayedCall | None = None
        self._spare: int | None = None
        self._keep()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def accept(self) -> Any:
        """As of a socket. Raises BlockingIOError where that would fail for want of descriptors or memory."""
        if self._spare is None:
            self._keep()
        try:
            return self._socket.accept()
        except OSError as fault:
            if fault.errno not in OUT_OF_RESOURCES:
                raise
            if not self._send_away():
                self._rest()
            raise BlockingIOError(errno.EAGAIN, os.strerror(fault.errno)) from fault

    def close(self) -> None:
        """Close it, and what is kept for it."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._release()
        self._socket.close()

    def _keep(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._spare = None  # the next accept tries again

    def _release(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _send_away(self) -> bool:
        """Close connections that wait, with the descriptor that is kept. Returns whether that was possible."""
        self._release()
        number = 0
        able = True
        try:
            while number < MAX_CLOSED_AT_ONCE:
                connection, _ = self._socket.accept()
                connection.close()
                number += 1
        except BlockingIOError:
            pass  # nobody waits any more: Linux looks for a descriptor first, even then
        except OSError:
            able = False  # another thread took the descriptor, or it is memory that is wanting
        self._keep()
        if number:
            self._turned_away(number)
        return able

    def _rest(self) -> None:
        """Leave those who knock waiting for a moment: asked again at once, the socket would say the same."""
        self._port.stopReading()
        self._resting = self._reactor.callLater(RETRY_DELAY, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        if not self._port.disconnecting:
            self._port.startReading()


log = logging.getLogger(__name__)

#: Seconds between looks at the files of an acceptor with sslAutoReload; Artemis's default for its own.
FILE_CHECK_INTERVAL = 5.0
#: Seconds between looks at the dates of certificates, and how long before its end one is spoken of.
DAY = 86_400.0
EXPIRY_WARNING = 30 * DAY
#: Seconds that a PROXY header may take where the acceptor has no handshake-timeout: an HTTP one.
HTTP_PROXY_TIMEOUT = 10

ANY_PROXY = "any client can claim any address by a PROXY header: list the proxies in proxyProtocolTrusted"

Acceptor = StompAcceptor | HttpAcceptor
Contexts = Mapping[str, TlsContext]
FileStamp = tuple[tuple[str, int, int, int], ...]


def all_acceptors(configuration: BrokerConfiguration) -> tuple[Acceptor, ...]:
    """Those for STOMP, then those for HTTP."""
    return (*configuration.stomp_acceptors, *configuration.http_acceptors)


def tls_acceptors(configuration: BrokerConfiguration) -> dict[str, Acceptor]:
    """The acceptors with TLS, by name."""
    return {one.name: one for one in all_acceptors(configuration) if one.tls is not None}


def read_tls_contexts(configuration: BrokerConfiguration) -> Contexts:
    """What a broker would show and ask for, by acceptor. Raises `ConfigurationError`."""
    found = tls_acceptors(configuration)
    return {name: _read_tls_context(acceptor, configuration.file) for name, acceptor in found.items()}


def _read_tls_context(acceptor: Acceptor, file: str | None) -> TlsContext:
    assert acceptor.tls is not None
    speaks_http = isinstance(acceptor, HttpAcceptor) or acceptor.websocket.only
    application = b"http/1.1" if speaks_http else None
    try:
        return tls_context(acceptor.tls, application)
    except CertificateError as fault:
        raise ConfigurationError(f"acceptor '{acceptor.name}': {fault}", file) from None


class ListenerStack:
    """TLS and the PROXY protocol of all acceptors. Failures by acceptor, since the start."""

    def __init__(
        self, configuration: BrokerConfiguration, reactor: Any, now: Callable[[], float] = time.time
    ) -> None:
        """Reads all certificates. ``now`` tells epoch seconds. Raises `ConfigurationError`."""
        self._file = configuration.file
        self._reactor = reactor
        self._now = now
        self._secured = tls_acceptors(configuration)
        self._stamps: dict[str, FileStamp] = {one.name: _file_stamp(one) for one in self._watched()}
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
            wrapped = ProtocolDetectionFactory(factory, partial(self._tell, name))
        else:
            wrapped = TlsFactory(
                factory,
                lambda: self._contexts[name],
                partial(self._failed, self.tls_failures, name),
                self._reactor,
            )
        if acceptor.proxy is None:
            return wrapped
        timeout = acceptor.handshake_timeout if isinstance(acceptor, StompAcceptor) else HTTP_PROXY_TIMEOUT
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
        return {name: _read_tls_context(acceptor, self._file) for name, acceptor in self._secured.items()}

    def use(self, contexts: Contexts) -> list[str]:
        """New connections get these; those that are open keep what they began with. Names the acceptors that differ."""
        changed = [name for name in contexts if not _same_certificates(contexts[name], self._contexts[name])]
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

    # ---- as time goes by

    def start(self) -> None:
        """Say which certificates there are, and look after them from now on."""
        self._describe(list(self._secured))
        for acceptor in self._proxied:
            if acceptor.proxy == ProxyProtocol() and not is_loopback(acceptor.host):
                log.warning("acceptor %s: %s", acceptor.name, ANY_PROXY, extra={"acceptor": acceptor.name})
        if self._secured:
            self._every(DAY, lambda: self._warn(list(self._secured)))
        if self._stamps:
            self._every(FILE_CHECK_INTERVAL, self._look)

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
            stamp = _file_stamp(acceptor)
            if stamp == self._stamps[acceptor.name]:
                continue
            self._stamps[acceptor.name] = stamp
            try:
                self.use({acceptor.name: _read_tls_context(acceptor, self._file)})
            except ConfigurationError as fault:
                log.error("cannot reload certificates, keeping the current ones: %s", fault)

    # ---- what goes wrong

    def _failed(self, counter: Counter[str], name: str, peer: IAddress | None, why: str) -> None:
        counter[name] += 1
        self._tell(name, peer, why)

    def _tell(self, name: str, peer: IAddress | None, why: str) -> None:
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


def _same_certificates(one: TlsContext, other: TlsContext) -> bool:
    return [i.chain for i in one.identities] == [i.chain for i in other.identities]


def _file_stamp(acceptor: Acceptor) -> FileStamp:
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
