"""The standby: a broker that is not active yet, and waits for the lock of its data directory.

It has read its configuration and answers HTTP: live, not ready. No other listener is open, so that clients and load
balancers go to the active broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort

from stompring.admin.context import Node
from stompring.admin.standby import StandbySite
from stompring.errors import ConfigurationError, Refused, StoreError
from stompring.policy.load import PluginSources, load
from stompring.selector import compile_selector
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.data_directory import data_directory
from stompring.settings.model import BrokerConfiguration
from stompring.store.datadir import DataBusy, DataLock, weak_locks

from .authentication import Security
from .configuration_watch import ConfigurationWatch
from .listeners import ListenerStack, all_acceptors, listen
from .sd_notify import SystemdNotifier

log = logging.getLogger(__name__)

#: Seconds between two attempts to lock the data directory.
LOCK_INTERVAL = 0.2


class Standby:
    """What every standby has: HTTP, reload, the status of the service. `use_reason` gives what it waits for."""

    #: Settings of the start that a reload does not change.
    kept: tuple[str, ...] = ()

    def __init__(self, configuration: BrokerConfiguration, reactor: Any, systemd: SystemdNotifier) -> None:
        """Check what the configuration refers to. Raises `ConfigurationError`."""
        self.configuration = configuration
        self.reactor = reactor
        self.reason = "starting"
        self.node: Node | None = None  # with a replicated log
        self.security: Security | None = None
        self._systemd = systemd
        self._sources = PluginSources(configuration.file)
        self._stack, self._next_security = self._check(configuration)
        self._ports: list[tuple[IListeningPort, StandbySite, str]] = []
        self._running = False
        self._watch = ConfigurationWatch(
            configuration.files, configuration.configuration_file_refresh_period, self.reload, reactor
        )

    def _check(self, configuration: BrokerConfiguration) -> tuple[ListenerStack, Security | None]:
        """Load the plugins, certificates, users and roles. Raises `ConfigurationError`."""
        load(configuration, self._sources)
        security = None
        if configuration.security_enabled:
            security = Security(configuration, self.reactor, lambda: None)
        return ListenerStack(configuration, self.reactor), security

    # ---- see StandbyContext

    @property
    def acceptor_names(self) -> list[str]:
        """The acceptors of the active broker."""
        return sorted(each.name for each in all_acceptors(self.configuration))

    # ---- from the start to the end of the wait

    def start(self) -> None:
        """Open the HTTP listeners. Those that cannot be opened are left out: the active broker may have the port."""
        self._running = True
        self._open()
        self._watch.start()
        # the grammar is read with the first selector: now, and not while clients wait for the takeover
        compile_selector("TRUE = TRUE")

    def use_reason(self, reason: str) -> None:
        """What the broker waits for, logged when it is another than before."""
        if reason != self.reason:
            self.reason = reason
            log.info("standby: %s", reason)
            self._systemd.standby(reason)

    def _open(self) -> None:
        self.security = self._next_security
        if self.security is not None:
            self.security.start()
        self._stack.start()
        for acceptor in self.configuration.http_acceptors:
            site = StandbySite(self)
            opened = listen(acceptor, self._stack.wrap(acceptor, site), self.reactor)
            opened.addCallbacks(
                self._opened,
                self._not_opened,
                callbackArgs=(site, acceptor.name),
                errbackArgs=(acceptor.name,),
            )

    def _opened(self, port: IListeningPort, site: StandbySite, acceptor: str) -> None:
        self._ports.append((port, site, acceptor))
        bound: Any = port.getHost()
        shown = f"[{bound.host}]" if ":" in bound.host else bound.host
        log.info(
            "standby HTTP listens on %s:%d (acceptor %s)",
            shown,
            bound.port,
            acceptor,
            extra={"acceptor": acceptor},
        )

    def _not_opened(self, failure: Any, acceptor: str) -> None:
        failure.trap(CannotListenError)
        fault = failure.value
        log.warning(
            "standby: cannot listen on %s:%s (acceptor %s): %s; health and metrics are not served while this broker "
            "waits",
            fault.interface,
            fault.port,
            acceptor,
            fault.socketError,
            extra={"acceptor": acceptor},
        )

    @property
    def plain_addresses(self) -> list[tuple[str, int]]:
        """Where it listens without TLS and the PROXY protocol."""
        plain = {
            one.name for one in self.configuration.http_acceptors if one.tls is None and one.proxy is None
        }
        bound: list[Any] = [port.getHost() for port, _, name in self._ports if name in plain]
        return [(each.host, each.port) for each in bound]

    def stop(self) -> Deferred[Any]:
        """The wait is over. Fires when the listeners are closed."""
        self._running = False
        self._watch.stop()
        return self._close()

    def _close(self) -> Deferred[Any]:
        self._stack.stop()
        if self.security is not None:
            self.security.stop()
        closing = [port.stopListening() for port, _, _ in self._ports]
        for _, site, _ in self._ports:
            site.close()
        self._ports = []
        return gatherResults([each for each in closing if each is not None], consumeErrors=True)

    # ---- reload

    def reload(self) -> None:
        """Read the configuration file again, for the HTTP listeners and for the start of the active broker."""
        if not self._running:
            return
        self._systemd.reloading()
        try:
            self._reload()
        finally:
            self._systemd.reloaded()

    def _reload(self) -> None:
        old = self.configuration
        assert old.file is not None
        before = self._watch.current()
        files = old.files
        try:
            new = read_broker_xml(old.file)
            files = new.files
            stack, security = self._check(new)
        except (ConfigurationError, Refused) as fault:
            self._watch.use(files, old.configuration_file_refresh_period, before)
            log.error("cannot reload the configuration, keeping the current one: %s", fault)
            return
        for name in self.kept:
            if getattr(new, name) != getattr(old, name):
                log.warning("restart required: %s changed", name.replace("_", "-"))
        self.configuration = replace(new, **{name: getattr(old, name) for name in self.kept})
        self._watch.use(files, new.configuration_file_refresh_period, before)
        closed = self._close()
        self._stack, self._next_security = stack, security
        closed.addCallback(lambda _: self._reopen(new.file))

    def _reopen(self, file: str | None) -> None:
        if self._running:
            self._open()
        log.info("configuration reloaded from %s: in effect when this broker is active", file)


class LockStandby(Standby):
    """Waits for the lock of the data directory, of which there may be one on several machines."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        data: str | None,
        reactor: Any,
        systemd: SystemdNotifier,
        active: Callable[[DataLock], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """``active`` is called with the lock, in the reactor; ``failed`` where no wait helps.

        Raises `ConfigurationError`.
        """
        super().__init__(configuration, reactor, systemd)
        self._data = data
        self._active = active
        self._failed = failed
        self._timer: Any = None
        self._lock: DataLock | None = None
        self._warned: str | None = None

    def try_lock(self) -> DataLock | None:
        """The lock if it is free, else `reason` says why not. Raises `StoreError` where no wait helps.

        The directory is not made: where its volume is not mounted, an empty one would be taken for the data.
        """
        root = data_directory(self.configuration, self._data).root
        if not root.is_dir():
            self.use_reason(
                f"waiting for the data directory {root}, which does not exist: mount its volume, or create it for a "
                "first start"
            )
            return None
        self._warn(weak_locks(root))
        try:
            return DataLock(root, copy=self.configuration.replicated_log is not None)
        except DataBusy as fault:
            self.use_reason(f"waiting for the lock of {root}, which is in use by {fault.holder}")
        except StoreError as fault:
            if not isinstance(fault.__cause__, OSError):
                raise
            self.use_reason(f"waiting for the data directory: {fault}")
        return None

    def _warn(self, weakness: str | None) -> None:
        if weakness is not None and weakness != self._warned:
            log.warning(
                "the lock of the data directory is not reliable: %s; two brokers may run on it at once. Use a block "
                "device, a cluster file system or a replicated log",
                weakness,
            )
        self._warned = weakness

    def start(self) -> None:
        """Open the HTTP listeners, and try again and again."""
        super().start()
        self._timer = self.reactor.callLater(LOCK_INTERVAL, self._poll)

    def _poll(self) -> None:
        self._timer = None
        try:
            lock = self.try_lock()
        except StoreError as fault:
            self._failed(fault)
            return
        if lock is None:
            self._timer = self.reactor.callLater(LOCK_INTERVAL, self._poll)
            return
        log.info("standby: the data directory is free: this broker becomes active")
        self._active(lock)

    def stop(self) -> Deferred[Any]:
        """See `Standby.stop`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return super().stop()
