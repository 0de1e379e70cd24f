"""The service that assembles the parts of a broker, and the process around it (signals, start, reload, stop).

Twisted's reactors schedule by ``time.time()``: if an operator sets the clock back by a day, every timer is a day late.
`use_monotonic_clock` replaces the reactor's ``seconds``, which is possible before the first timer.
"""

from __future__ import annotations

import logging
import platform
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import CannotListenError, ReactorNotRunning
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from twisted.python import log as twisted_log

from stompring import __version__, advice, build
from stompring.admin.context import AdminContext, TaskList
from stompring.admin.http import admin_site
from stompring.admin.management import ManagementRequests
from stompring.admin.sampler import Sampler
from stompring.admin.standby import live, ready
from stompring.broker.bridge import Bridges
from stompring.broker.broker import Broker
from stompring.broker.message import Numbers, clock_number
from stompring.errors import ConfigurationError, Refused, StoreError
from stompring.paging.paged_queue import TargetAreas
from stompring.policy.hooks import Policies
from stompring.policy.load import PluginSources, load
from stompring.replication.role import START_FAILED, Node, StepDown
from stompring.security.accounts import HASHER, PasswordHasher
from stompring.selector import compile_selector
from stompring.session.connect import Anonymous, Authenticator
from stompring.session.outbox import Outgoing
from stompring.settings.broker_xml import Reload, read_broker_xml
from stompring.settings.machine import machine_memory
from stompring.settings.model import BrokerConfiguration, StompAcceptor
from stompring.store.datadir import DataLock
from stompring.store.files import Files
from stompring.store.pages import Paging

from .authentication import Security
from .bridges import STOP_TIMEOUT, BridgeConnection
from .disk import DiskMonitor, Drain
from .gc_tuning import GcTuning, tune_malloc
from .listeners import Acceptor, ListenerStack, all_acceptors, close_when_out_of_files, listen
from .logs import begin_logging
from .persistence import Persistence, answer_health
from .protocol import (
    Connections,
    StompFactory,
    describe_limits,
    max_connections,
    raise_open_file_limit,
)
from .reactor import reactor_name
from .reload import ConfigurationWatch, apply, apply_divert, preview
from .run_time import RunTimeChanges
from .sd_notify import SystemdNotifier
from .standby import LockStandby, LogStandby, Replication, Standby


def use_monotonic_clock(reactor: Any) -> None:
    """Make the timers of a reactor use the monotonic clock. `Clock` then reads the time of day from ``wall_seconds``.
    Raises `RuntimeError` if the reactor already has a timer, which would use the wrong clock.
    """
    if reactor.seconds is time.monotonic:
        return
    if reactor.getDelayedCalls():
        raise RuntimeError("cannot use the monotonic clock: the reactor already has timers")
    reactor.wall_seconds = time.time
    reactor.seconds = time.monotonic


log = logging.getLogger(__name__)


class BrokerService(AdminContext):
    """A broker with its listeners. `start_listening` opens them, `stop_listening` closes them and every connection."""

    security: Security | None = None  # None: security-enabled is false
    paging: Paging | None = None  # None, like the next two attributes, without persistence
    dispatch: TargetAreas | None = None
    disk_monitor: DiskMonitor | None = None
    run_time: RunTimeChanges
    stopping = False
    listen_until = 0.0  # `reactor.seconds` until which the broker retries ports in use

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Any,
        persistence: Persistence | None = None,
        systemd: SystemdNotifier | None = None,
        replication: Replication | None = None,
        hasher: PasswordHasher = HASHER,
    ) -> None:
        """Recover ``persistence``, and apply the configuration. ``persistence`` None: the broker stores nothing.

        Raises `StoreError`, `ConfigurationError`.
        """
        self.configuration = configuration
        self.reactor = reactor
        self.reactor_name = reactor_name(reactor)
        self.persistence = persistence
        self.listener_stack: ListenerStack = ListenerStack(configuration, reactor)
        self._started_with = configuration
        self.acceptors = {each.name: each for each in all_acceptors(configuration)}
        self._watch = ConfigurationWatch(
            configuration.files, configuration.configuration_file_refresh_period, self.reload, reactor
        )
        self._sources = PluginSources(configuration.file)
        self.policies = Policies(load(configuration, self._sources))
        self.store = store = None if persistence is None else persistence.durable  # None: no persistence
        self.broker = broker = Broker(configuration, reactor, self.policies, store, time.perf_counter)
        if persistence is None:
            # begin above the message numbers of earlier runs, which were not recorded
            broker.numbers = Numbers(clock_number(broker.clock.now))
        self._notify = broker.notifications.notify
        self.policies.recorded.on_error = lambda text, address: self._notify(
            "POLICY_ERROR", text, address=address
        )
        self.connections: Connections = Connections(broker.clock.now)
        self.connections.global_limit.limit = max_connections(
            configuration.global_max_connections, machine_memory()
        )
        self.outgoing = Outgoing(broker.clock.steady)
        self.garbage = GcTuning(broker, self.connections)
        self.sampler: Sampler = Sampler(self)
        self.drain: Drain = Drain(broker, self.connections)
        self._hasher = hasher
        self.replication = replication
        self.node: Node | None = None if replication is None else replication.node
        self.ports: list[IListeningPort] = []
        self.listening: list[tuple[str, str, int]] = []  # acceptor, host, port
        self.systemd = systemd or SystemdNotifier(reactor)
        self.tasks = TaskList(reactor, lambda: self.broker.clock.now)
        self.management: ManagementRequests = ManagementRequests(self)
        # without a data directory a random identity: no message outlives the process, so that no later run resends one
        identity = uuid.uuid4().hex if store is None else store.journal.identity.hex()
        self.bridges = Bridges(
            broker,
            identity.encode(),
            lambda worker, connector: BridgeConnection(worker, connector, self.outgoing, reactor),
        )
        if persistence is not None:
            self.paging = persistence.paging
            self.dispatch = persistence.attach(broker)
            log_usage = None if replication is None else replication.log_usage
            self.disk_monitor = persistence.disk_monitor(broker, log_usage)
            durable = persistence.durable
            durable.writer.around = self.outgoing.gather if replication is None else self._confirm
            if replication is not None:
                limit = replication.pending_limit
                if limit is not None:
                    durable.write_limit.set_limits(limit)
            durable.writer.on_failure = lambda fault: self._notify(
                "STORE_RECOVERED" if fault is None else "STORE_FAILED", fault or "the store is writable again"
            )
            persistence.recover(broker)
        self.run_time = RunTimeChanges(
            broker,
            reactor,
            self._use_run_time,
            lambda: {
                port
                for name, _, port in self.listening
                if isinstance(self.acceptors.get(name), StompAcceptor)
            },
        )
        configuration = self.run_time.start(configuration, lambda new: load(new, self._sources))
        if configuration is not self.configuration:
            self.policies.use(load(configuration, self._sources))
            self.configuration = self._started_with = configuration
        apply(broker, configuration, starting=True)
        self.bridges.apply(configuration.bridges)
        if persistence is not None:
            persistence.take_samples(broker)
            self.garbage.freeze()
        if replication is not None:
            replication.watch(self.suspend_delivery, self.resume_delivery)

    def _confirm(self, call: Callable[[], None]) -> None:
        """Process the confirmations of a batch that the replicated log has stored, and check the log's usage."""
        if self.disk_monitor is not None:
            self.disk_monitor.check_log()
        self.outgoing.gather(call)

    def suspend_delivery(self) -> None:
        """Stop deliveries: another broker may be active by now. Clients stay connected."""
        self.broker.suspend_delivery()
        self._notify(
            "SUSPENDED",
            f"delivery suspended: {self.replication_fault or 'the replicated log does not store'}",
        )

    def resume_delivery(self) -> None:
        """Undo `suspend_delivery`."""
        self.broker.clock.refresh()
        self.outgoing.gather(self.broker.resume_delivery)
        self._notify("RESUMED", "delivery resumed: the replicated log stores again")

    def notify_takeover(self) -> None:
        """Send the notification of a takeover, when the broker accepts clients."""
        takeover = None if self.node is None else self.node.status().last_takeover
        if takeover is not None:
            seconds = "" if takeover.seconds is None else f", ready after {takeover.seconds:.1f} s"
            self._notify("TAKEOVER", f"this broker is active: {takeover.reason}{seconds}")

    @property
    def replication_fault(self) -> str | None:
        """The reason why the broker delivers no message; None: it delivers."""
        return None if self.replication is None else self.replication.fault

    def authenticator(self) -> Authenticator:
        """Create the authenticator. Raises `ConfigurationError` if the users file cannot be read."""
        if not self.configuration.security_enabled:
            return Anonymous()
        self.security = Security(self.configuration, self.reactor, self._permissions_changed, self._hasher)
        return self.security.logins

    def _permissions_changed(self) -> None:
        """Check permissions again: of producers at their next SEND; of subscriptions now, as deliveries check none."""
        self.broker.directory.invalidate_plans()
        for session in self.connections:
            session.close_if_revoked()

    @inlineCallbacks
    def start_listening(self) -> Any:
        """Open every acceptor. Fails with CannotListenError."""
        # the first selector loads the grammar: compile one before clients wait for it
        compile_selector("TRUE = TRUE")
        log.info("%s", describe_limits(self.configuration))
        self.listener_stack.start()
        limit = self.connections.global_limit.limit
        shown = "no limit (global-max-connections -1)" if limit < 0 else f"at most {limit}"
        log.info("connections: %s", shown)
        if self.disk_monitor is not None:
            self.disk_monitor.start()
        authenticator = self.authenticator()
        if self.security is not None:
            self.security.start()
        self._watch.start()
        for acceptor in self.configuration.stomp_acceptors:
            factory = StompFactory(
                self.broker,
                acceptor,
                authenticator,
                self.connections,
                self.outgoing,
                self.reactor,
                self.management,
            )
            carrier = " over WebSocket" if acceptor.websocket.only else ""
            yield self._listen(f"STOMP{carrier}", acceptor, factory)
        if self.configuration.http_acceptors:
            self.sampler.start()
        for http in self.configuration.http_acceptors:
            yield self._listen("HTTP", http, admin_site(self))
        self.bridges.start()

    @inlineCallbacks
    def _listen(self, kind: str, acceptor: Acceptor, factory: Any) -> Any:
        while True:
            try:
                listening = yield listen(acceptor, self.listener_stack.wrap(acceptor, factory), self.reactor)
                break
            except CannotListenError:
                if self.reactor.seconds() >= self.listen_until:
                    raise
            yield deferLater(self.reactor, PORT_INTERVAL, bool)
        close_when_out_of_files(
            listening,
            lambda number: self.broker.rejections.add(
                "open-files",
                f"acceptor {acceptor.name}",
                f"Open file limit reached: closed {number} new connections",
                number,
            ),
            self.reactor,
        )
        self.ports.append(listening)
        bound, host = listening.getHost().port, acceptor.host
        self.listening.append((acceptor.name, host, bound))
        shown = f"[{host}]" if ":" in host else host
        log.info(
            "%s%s listens on %s:%d (acceptor %s)",
            kind,
            "" if acceptor.tls is None else " over TLS",
            shown,
            bound,
            acceptor.name,
            extra={"acceptor": acceptor.name},
        )

    def reload(self) -> Reload:
        """Read the configuration file again, apply and log the changes. An invalid file has no effect."""
        with self.systemd.reloading():
            return self._reload()

    def _reload(self) -> Reload:
        try:
            with self._watch.reread(self.configuration) as file:
                new = self.run_time.merge(file)
                modules = None
                if self.security is not None:
                    self.security.refresh()
                    modules = self.security.logins.read_modules(new)
                plugins = load(new, self._sources)
                certificates = self.listener_stack.read()
                outcome = apply(
                    self.broker, new, self._started_with, begin=lambda: self.policies.use(plugins)
                )
        except (ConfigurationError, Refused) as fault:
            text = f"cannot reload the configuration, keeping the current one: {fault}"
            log.error("%s", text)
            self._notify("RELOADED", text)
            return Reload(refused=str(fault))
        self.configuration = new
        outcome.warnings += self.run_time.drop(file)
        outcome.applied += self.bridges.apply(new.bridges)
        outcome.applied += [
            f"acceptor {name}: new certificates" for name in self.listener_stack.use(certificates)
        ]
        self.connections.global_limit.limit = max_connections(new.global_max_connections, machine_memory())
        if self.security is not None:
            self.security.use(new, modules)
        if self.dispatch is not None:
            self.dispatch.budget.limit = new.dispatch_memory
        if self.disk_monitor is not None:
            self.disk_monitor.measure_now()
        self._log_reload(new.file, outcome)
        return outcome

    def preview_reload(self) -> Reload:
        """Return the result that a reload would have, and change nothing. Changed plugins are loaded, but not used."""
        file = self.configuration.file
        assert file is not None
        try:
            found = read_broker_xml(file)
            new = self.run_time.merge(found)
            if self.security is not None:
                self.security.check_files()
                self.security.logins.read_modules(new)
            load(new, self._sources)
            certificates = self.listener_stack.read()
            outcome = preview(self.broker, new, self._started_with)
        except (ConfigurationError, Refused) as fault:
            return Reload(refused=str(fault))
        outcome.warnings += self.run_time.replaced(found)
        outcome.applied += self.bridges.compare({each.name: each for each in new.bridges})
        outcome.applied += [
            f"acceptor {name}: new certificates" for name in self.listener_stack.differing(certificates)
        ]
        return outcome

    def _use_run_time(self, new: BrokerConfiguration, kind: str, name: str) -> None:
        """Apply a configuration that differs in one element. Raises `ConfigurationError`."""
        plugins = load(new, self._sources) if new.plugins else None

        def begin() -> None:
            if plugins is not None:
                self.policies.use(plugins)

        if kind == "divert":
            begin()
            apply_divert(self.broker, new, name)
        else:
            apply(self.broker, new, self._started_with, begin=begin)
        self.configuration = new
        if kind == "bridge":
            self.bridges.apply(new.bridges)
        elif kind == "security-setting" and self.security is not None:
            self.security.use(new)

    def _log_reload(self, file: str | None, outcome: Reload) -> None:
        for text in outcome.restart_required:
            log.warning("restart required: %s", text)
        applied = outcome.applied
        if applied:
            shown = applied[:MAX_LOGGED_CHANGES]
            if len(applied) > MAX_LOGGED_CHANGES:
                shown.append(f"and {len(applied) - MAX_LOGGED_CHANGES} more")
            log.info("reload applied: %s", "; ".join(shown))
        text = (
            f"configuration reloaded from {file}: {len(applied)} applied, {len(outcome.restart_required)} require a "
            f"restart, {len(outcome.failed)} failed"
        )
        self._notify("RELOADED", text)
        # log the change when a crash can no longer undo it, like every confirmation
        self.broker.storage.when_synced(lambda: log.info("%s", text))

    @inlineCallbacks
    def stop_listening(self) -> Any:
        """Stop the bridges, close the listeners, then every connection, and requeue their messages."""
        self.stopping = True
        if self.bridges.by_name:
            stopped: Deferred[None] = Deferred()
            self.bridges.stop(STOP_TIMEOUT, lambda: stopped.callback(None))
            yield stopped
        self._notify("SHUTDOWN", "the broker is stopping")
        self._watch.stop()
        self.garbage.stop()
        self.sampler.stop()
        self.listener_stack.stop()
        if self.security is not None:
            self.security.stop()
        if self.disk_monitor is not None:
            self.disk_monitor.stop()
        closing = [maybeDeferred(port.stopListening) for port in self.ports]
        self.ports = []
        self.tasks.stop()
        background = self.broker.background
        background.finish()
        self.broker.storage.drain()  # sends all outstanding receipts
        self.broker.stopping = True
        for session in self.connections:
            session.refuse(Refused("The broker is shutting down"))
        self.outgoing.flush()
        while len(background):  # the end of many subscriptions takes several time slices
            background.finish(STOP_SLICE)
            yield deferLater(self.reactor, 0, bool)
        if self.persistence is not None:
            self.persistence.stop()
        self.broker.stop()
        if self.persistence is not None:
            self.persistence.close()
        yield gatherResults(closing, consumeErrors=True)


def run(
    config_path: str,
    data_dir: str | None = None,
    log_level: str = "info",
    log_format: str = "text",
    reactor: Any = installed_reactor,
    notice: str | None = None,
    drain_timeout: float = 0,
    stock_because: str | None = None,
    wait: bool = False,
) -> int:
    """Run a broker until a signal stops it. Returns the exit code. Raises `ConfigurationError`.

    ``notice`` is the first line of the log. A signal first drains the broker for up to ``drain_timeout`` seconds.
    ``stock_because``: reason why the broker's own reactor is not available. ``wait``: wait as a standby while another
    process has the data directory.
    """
    tune_malloc()
    use_monotonic_clock(reactor)
    configuration = read_broker_xml(config_path)
    begin_logging(log_level, log_format)
    if notice is not None:
        log.info("%s", notice)
    log.info("stompring %s (%s), Python %s", __version__, build(), platform.python_version())
    if text := advice():
        log.info("%s", text)
    if stock_because is not None:
        log.warning("using Twisted's stock reactor: --reactor stompring is not available: %s", stock_because)
    log.info("reactor: %s", reactor_name(reactor))
    raise_open_file_limit()
    process = BrokerRun(configuration, data_dir, reactor, drain_timeout)
    if wait and not configuration.persistence_enabled:
        log.warning("--wait ignored: persistence-enabled is false")
        wait = False
    try:
        if wait:
            process.wait_for_lock()
        else:
            process.begin()
    except StoreError as fault:
        log.error("cannot start the broker: %s", fault)
        return 1
    reactor.addSystemEventTrigger("before", "shutdown", process.shut_down)
    signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(process.reload))
    reactor.callWhenRunning(process.heed_signals)  # after Twisted has set its signal handlers
    reactor.run()
    for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not kill the process at its end
        signal.signal(number, signal.SIG_IGN)
    return process.exit_code


@dataclass(eq=False, repr=False)
class BrokerRun:
    """The broker of this process: a standby if it has to wait, then the service."""

    configuration: BrokerConfiguration
    data: str | None
    reactor: Any
    drain_timeout: float
    exit_code = 0
    standby: Standby | None = None
    service: BrokerService | None = None
    _stopping = False
    _hurried = False  # whether a signal arrived during the stop
    _taking_over_since: float | None = None  # reactor time at which the takeover began; None: never a standby
    _replication: Replication | None = None
    _request: StepDown | None = None
    _start_failed = False
    #: Answers health checks during the recovery of a former standby.
    recovery_health: Callable[[], AbstractContextManager[None]] = nullcontext

    def __post_init__(self) -> None:
        self._systemd = SystemdNotifier(self.reactor)

    # ---- start

    def start(self, lock: DataLock | None = None) -> None:
        """Recover, and open the listeners when the reactor runs. Raises `StoreError`, `ConfigurationError`."""
        replication = self._replication
        files = None
        if replication is not None:
            lock, files = replication.lock, replication.files()
        with self.recovery_health():
            persistence = open_data(self.configuration, self.data, self.reactor, lock, files)
            self.service = BrokerService(
                self.configuration, self.reactor, persistence, self._systemd, replication
            )
        if self._taking_over_since is not None:
            self.service.listen_until = self.reactor.seconds() + PORT_PATIENCE
        self.reactor.callWhenRunning(self._listen)

    def wait_for_lock(self) -> None:
        """Start now, or when the data directory is free. Raises `StoreError`, `ConfigurationError`."""
        standby = LockStandby(
            self.configuration,
            self.data,
            self.reactor,
            self._systemd,
            lambda lock: self._end_wait(partial(self.begin, lock)),
            self._cannot_start,
        )
        lock = standby.try_lock()
        if lock is not None:
            self.begin(lock)
        else:
            self._wait_as(standby)

    def begin(self, lock: DataLock | None = None) -> None:
        """Start now, or when this broker is active in its replicated log.

        Raises `StoreError`, `ConfigurationError`.
        """
        if self.configuration.replicated_log is None:
            self.start(lock)
            return
        self._replication = Replication(
            self.configuration,
            self.data,
            self.reactor,
            lambda: self._end_wait(self.start),
            lambda reason: self._cannot_start(Exception(reason)),
            self._step_down,
            lock,
        )
        self._wait_as(LogStandby(self.configuration, self.reactor, self._systemd, self._replication))

    def _wait_as(self, standby: Standby) -> None:
        self.standby = standby
        self.reactor.callWhenRunning(standby.start)

    def _end_wait(self, start: Callable[[], None]) -> None:
        """End the wait of a standby: close its listeners, then call ``start``."""
        if self.standby is None or self._stopping:
            return
        self._taking_over_since = self.reactor.seconds()
        standby, self.standby = self.standby, None
        self.configuration = standby.configuration
        self.recovery_health = partial(
            answer_health, standby.plain_addresses, live(), ready(standby, recovering=True)
        )

        def closed(_: object) -> None:
            if self._stopping:
                return
            with self._systemd.recovering():
                start()

        standby.stop().addCallback(closed).addErrback(self._failed)

    def _cannot_start(self, fault: Exception) -> None:
        if self._stopping:
            return
        log.error("cannot start the broker: %s", fault)
        self._end_failed()

    def _listen(self) -> None:
        assert self.service is not None
        self.service.start_listening().addCallbacks(self._started, self._failed)

    def _started(self, _: object) -> None:
        service = self.service
        assert service is not None
        service.garbage.start()
        service.systemd.ready()
        persistence, monitor = service.persistence, service.disk_monitor
        if self._replication is not None and persistence is not None and monitor is not None:
            self._replication.ready(partial(monitor.check_log, free=True), persistence.pool.writing)
            service.notify_takeover()
        elif self._taking_over_since is not None:
            log.info("takeover complete after %.1f s", self.reactor.seconds() - self._taking_over_since)
        log.info("broker %s is ready", self.configuration.name)

    def _failed(self, failure: Any) -> None:
        if failure.check(CannotListenError):
            fault = failure.value
            log.error("cannot listen on %s:%s: %s", fault.interface, fault.port, fault.socketError)
        elif failure.check(ConfigurationError):
            log.error("%s", failure.value)
        elif failure.check(StoreError):
            log.error("cannot start the broker: %s", failure.value)
        else:
            log.error("cannot start the broker: %s", failure.getTraceback())
        self._end_failed()

    def _end_failed(self) -> None:
        self._start_failed = True
        self._stop(1)

    def _stop(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code or self.exit_code
        # the reactor has already stopped in this round, or does not run yet
        with suppress(ReactorNotRunning):
            self.reactor.stop()

    # ---- signals

    def heed_signals(self) -> None:
        """Make SIGINT and SIGTERM stop the broker. A second signal only ends the drain."""
        for number in (signal.SIGINT, signal.SIGTERM):
            # keep an ignored signal ignored: a shell starts its background jobs with SIGINT ignored
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda which, _: self.reactor.callFromThread(self._signalled, which))

    def _signalled(self, number: int) -> None:
        if not self._stopping:
            self._stop()
            return
        log.info("%s received: the broker is stopping already", signal.Signals(number).name)
        self._hurried = True

    def reload(self) -> None:
        """Reload the configuration of the service or of the standby."""
        if self.service is not None:
            self.service.reload()
        elif self.standby is not None:
            self.standby.reload()

    def _step_down(self, request: StepDown) -> None:
        log.info("stepping down: %s", request.command)
        self._request = request
        self._stop(request.exit_code)

    def shut_down(self) -> Deferred[Any] | None:
        """Stop the service or the standby. Release the role in a replicated log when all data is stored."""
        self._stopping = True
        if self.service is not None:
            return self._stop_service(self.service)
        log.info(
            "stopping: %s", "the start has failed" if self._start_failed else "this broker was a standby"
        )
        self._systemd.stopping()
        return (succeed(None) if self.standby is None else self.standby.stop()).addBoth(
            lambda _: self._release()
        )

    @inlineCallbacks
    def _stop_service(self, service: BrokerService) -> Any:
        connections = service.connections
        if self.drain_timeout > 0 and len(connections):
            service.drain.begin()
            log.info("stopping: draining for up to %g s", self.drain_timeout)
            service.systemd.stopping()
            left = self.drain_timeout
            while left > 0 and len(connections) and not self._hurried:  # a second signal ends the wait
                yield deferLater(self.reactor, DRAIN_INTERVAL, bool)
                left -= DRAIN_INTERVAL
        log.info("stopping: closing %d connections", len(connections))
        service.systemd.stopping()
        try:
            yield service.stop_listening()
        except Exception:  # an error in one component must not keep the other components running
            twisted_log.err()
        released = self._release().addBoth(bool)
        left = SHUTDOWN_GRACE
        while left > 0 and len(connections):
            yield deferLater(self.reactor, SHUTDOWN_INTERVAL, bool)
            left -= SHUTDOWN_INTERVAL
        log.info("stopped")
        yield released

    def _release(self) -> Deferred[Any]:
        replication = self._replication
        if replication is None:
            return succeed(None)
        request = self._request
        reason, successor = ("stopped", "") if request is None else (request.command, request.successor)
        if self._start_failed:
            reason = START_FAILED
        return replication.release(reason, successor).addBoth(lambda _: replication.stop())


def open_data(
    configuration: BrokerConfiguration,
    data: str | None,
    reactor: Any,
    lock: DataLock | None = None,
    files: Files | None = None,
) -> Persistence | None:
    """Open the data directory; None if persistence is disabled. ``lock``: its lock, if held. Raises `StoreError`."""
    if configuration.persistence_enabled:
        return Persistence(configuration, data, reactor, lock, files)
    if data is not None:
        log.warning("--data %s ignored: persistence-enabled is false", data)
    return None


#: Seconds for which a former standby waits for the ports of its predecessor, and seconds between two attempts.
PORT_PATIENCE, PORT_INTERVAL = 5.0, 0.05

#: Maximum number of changes in the log line of a reload.
MAX_LOGGED_CHANGES = 20

#: Seconds of background work per round of the reactor while the broker stops.
STOP_SLICE = 0.02

#: Seconds that clients have to read their last frames when the broker stops, and seconds between two checks.
SHUTDOWN_GRACE, SHUTDOWN_INTERVAL = 0.5, 0.01

#: Seconds between two checks for open connections during the drain before a stop.
DRAIN_INTERVAL = 0.1
