"""The standby: a broker that waits for the lock of its data directory, or to become active in a replicated log.

A standby has read its configuration and answers HTTP: live, not ready. It opens no other listener, so that clients and
load balancers connect to the active broker.

`Replication` connects this process with a replicated log: it has the node and the files, and passes the node's reports
to the reactor.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThreadPool

from stompring.admin.standby import StandbyContext, StandbySite
from stompring.broker.clock import cancel
from stompring.errors import ConfigurationError, Refused, StoreError
from stompring.policy.load import PluginSources, load
from stompring.replication.copy import LocalCopy
from stompring.replication.engines import open_log
from stompring.replication.files import ReplicatedFiles
from stompring.replication.log import Beat, UnsafeLog, this_process
from stompring.replication.role import Node, NodeStatus, NodeThread, Role, StepDown, Timing
from stompring.selector import compile_selector
from stompring.settings.machine import data_directory
from stompring.settings.model import BrokerConfiguration, HttpAcceptor
from stompring.store.datadir import DataBusy, DataLock, weak_locks
from stompring.store.files import Disk
from stompring.store.writer import MAX_PENDING_BYTES

from .authentication import Security
from .disk import LogUsage
from .listeners import ListenerStack, all_acceptors, listen
from .reactor import call_before_rounds
from .reload import ConfigurationWatch
from .sd_notify import SystemdNotifier

log = logging.getLogger(__name__)

#: Seconds between two attempts to lock the data directory.
LOCK_INTERVAL = 0.2


class Standby(StandbyContext):
    """The base of all standbys: HTTP, reload, the status for the service manager, and the reason of the wait."""

    #: Names of settings whose values a reload of the standby keeps: only a restart changes them.
    kept: tuple[str, ...] = ()

    reason = "starting"
    node: Node | None = None  # None: no replicated log
    security: Security | None = None
    _running = False
    _timer: Any = None  # timer of the next attempt to lock, or of the next read of the node's status

    def __init__(self, configuration: BrokerConfiguration, reactor: Any, systemd: SystemdNotifier) -> None:
        """Check the files that the configuration refers to. Raises `ConfigurationError`."""
        self.configuration = configuration
        self.reactor = reactor
        self._systemd = systemd
        self._sources = PluginSources(configuration.file)
        self._stack, self._next_security = self._check(configuration)
        self._ports: list[tuple[IListeningPort, StandbySite, str]] = []
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
        """The names of all acceptors of the configuration."""
        return sorted(each.name for each in all_acceptors(self.configuration))

    # ---- from the start to the end of the wait

    def start(self) -> None:
        """Open the HTTP listeners. A port in use only causes a warning: the active broker may use it."""
        self._running = True
        self._open()
        self._watch.start()
        # the first selector loads the grammar: compile one before clients wait for a takeover
        compile_selector("TRUE = TRUE")

    def use_reason(self, reason: str) -> None:
        """Set the reason for which the standby waits. Log it if it has changed."""
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
            self._listen(acceptor)

    @inlineCallbacks
    def _listen(self, acceptor: HttpAcceptor) -> Any:
        site, fields = StandbySite(self), {"acceptor": acceptor.name}
        try:
            port: Any = yield listen(acceptor, self._stack.wrap(acceptor, site), self.reactor)
        except CannotListenError as fault:
            log.warning(
                "standby: cannot listen on %s:%s (acceptor %s): %s; health and metrics are not served while this "
                "broker waits",
                fault.interface,
                fault.port,
                acceptor.name,
                fault.socketError,
                extra=fields,
            )
            return
        self._ports.append((port, site, acceptor.name))
        bound = port.getHost()
        shown = f"[{bound.host}]" if ":" in bound.host else bound.host
        log.info(
            "standby HTTP listens on %s:%d (acceptor %s)", shown, bound.port, acceptor.name, extra=fields
        )

    @property
    def plain_addresses(self) -> list[tuple[str, int]]:
        """The addresses of listeners without TLS and PROXY protocol."""
        plain = {
            one.name for one in self.configuration.http_acceptors if one.tls is None and one.proxy is None
        }
        bound: list[Any] = [port.getHost() for port, _, name in self._ports if name in plain]
        return [(each.host, each.port) for each in bound]

    def stop(self) -> Deferred[Any]:
        """Stop waiting. Fires when the listeners are closed."""
        cancel(self._timer)
        self._running = False
        self._watch.stop()
        return self._close()

    def _close(self) -> Deferred[Any]:
        self._stack.stop()
        if self.security is not None:
            self.security.stop()
        ports, self._ports = self._ports, []
        closing = [maybeDeferred(port.stopListening) for port, _, _ in ports]
        for _, site, _ in ports:
            site.close()
        return gatherResults(closing, consumeErrors=True)

    # ---- reload

    def reload(self) -> None:
        """Read the configuration file again, for the HTTP listeners and for the start of the active broker."""
        if self._running:
            with self._systemd.reloading():
                self._reload()

    def _reload(self) -> None:
        old = self.configuration
        try:
            with self._watch.reread(old) as new:
                stack, security = self._check(new)
        except (ConfigurationError, Refused) as fault:
            log.error("cannot reload the configuration, keeping the current one: %s", fault)
            return
        for name in self.kept:
            if getattr(new, name) != getattr(old, name):
                log.warning("restart required: %s changed", name.replace("_", "-"))
        self.configuration = replace(new, **{name: getattr(old, name) for name in self.kept})

        def reopen(_: object) -> None:
            if self._running:
                self._open()
            log.info("configuration reloaded from %s: in effect when this broker is active", new.file)

        closed = self._close()
        self._stack, self._next_security = stack, security
        closed.addCallback(reopen)


class LockStandby(Standby):
    """A standby that waits for the lock of the data directory, on this or another machine."""

    _warned: str | None = None

    def __init__(
        self,
        configuration: BrokerConfiguration,
        data: str | None,
        reactor: Any,
        systemd: SystemdNotifier,
        active: Callable[[DataLock], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """``active`` is called with the lock when this standby has it, ``failed`` with a fault that waiting cannot end.

        Raises `ConfigurationError`.
        """
        super().__init__(configuration, reactor, systemd)
        self._data = data
        self._active = active
        self._failed = failed

    def try_lock(self) -> DataLock | None:
        """Return the lock if it is free, else set `reason`. Raises `StoreError` for a fault that waiting cannot end. A
        standby does not create the directory: if its volume is not mounted, an empty directory would hide the data.
        """
        root = data_directory(self.configuration, self._data).root
        if not root.is_dir():
            self.use_reason(
                f"waiting for the data directory {root}, which does not exist: mount its volume, or create it for a "
                "first start"
            )
            return None
        weakness = weak_locks(root)
        if weakness is not None and weakness != self._warned:
            log.warning(
                "the lock of the data directory is not reliable: %s; two brokers may run on it at once. Use a block "
                "device, a cluster file system or a replicated log",
                weakness,
            )
        self._warned = weakness
        try:
            return DataLock(root, copy=self.configuration.replicated_log is not None)
        except DataBusy as fault:
            self.use_reason(f"waiting for the lock of {root}, which is in use by {fault.holder}")
        except StoreError as fault:
            if not isinstance(fault.__cause__, OSError):
                raise
            self.use_reason(f"waiting for the data directory: {fault}")
        return None

    def start(self) -> None:
        """Open the HTTP listeners, and try to lock the directory periodically."""
        super().start()
        self._timer = self.reactor.callLater(LOCK_INTERVAL, self._poll)

    def _poll(self) -> None:
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


#: Seconds between two calls of ``touch`` of the node, and between two comparisons of the log's usage with its limit.
TOUCH_INTERVAL = 0.5

#: Seconds between two reads of the node's status.
REASON_INTERVAL = 0.25


#: Seconds by which the clocks of this machine and of the engine may differ without a warning.
MAX_SKEW = 20.0

#: Number of consecutive beats with a difference above `MAX_SKEW` that cause no warning yet.
SKEWED_BEATS = 3

#: Number of beats of another process with this broker's name at which the broker logs a warning.
NAMESAKE_BEATS = 3

#: The bytes that may wait to be written to the log are its limit divided by ``PENDING_SHARE``, but at least
#: ``MIN_PENDING_BYTES``.
PENDING_SHARE = 50
MIN_PENDING_BYTES = 64 * 1024


@dataclass(eq=False, repr=False)
class Replication:
    """This process in a replicated log. It locks the data directory until the process ends.

    The reactor calls ``active`` and ``step_down``, and ``failed`` if the broker was never active. If the broker loses
    the active role, the process ends immediately, without sending buffered data. ``lock``: lock of the data directory,
    if this process has it already. Raises `StoreError`, `ConfigurationError`.
    """

    configuration: InitVar[BrokerConfiguration]
    data: InitVar[str | None]
    reactor: Any
    active: Callable[[], object]
    failed: Callable[[str], object]
    step_down: Callable[[StepDown], object]
    lock: DataLock | None = None
    _liveness: Liveness | None = None
    _fresh = True
    _released = False

    def __post_init__(self, configuration: BrokerConfiguration, data: str | None) -> None:
        settings = configuration.replicated_log
        assert settings is not None
        self.stream = settings.stream
        directory = data_directory(configuration, data)
        self._copy = LocalCopy(directory)
        try:
            engine = open_log(settings)
        except UnsafeLog as fault:
            raise ConfigurationError(str(fault), configuration.file) from None
        self.identity = this_process(settings.broker)
        self.node = Node(engine, self._copy, self.identity, self, Timing(settings.takeover_timeout / 1000))
        self._thread = NodeThread(self.node)
        self.lock = self.lock or DataLock(directory.root, copy=True)

    def start(self) -> None:
        """Begin to follow the log."""
        self._thread.start()

    # ---- see NodeCallbacks; called in other threads

    def on_active(self) -> None:
        self.reactor.callFromThread(self.active)

    def on_suspended(self) -> None:
        self.reactor.callFromThread(bool)  # wakes up the reactor: its next round checks the node

    on_resumed = on_suspended

    def on_lost(self, reason: str, exit_code: int) -> None:
        if self.node.status().role is Role.FAILED:
            self.reactor.callFromThread(self.failed, reason)
            return
        log.error("this broker is not active any more: exit code %d", exit_code)
        logging.shutdown()
        discard_unsent()
        os._exit(exit_code)

    def on_step_down(self, request: StepDown) -> None:
        self.reactor.callFromThread(self.step_down, request)

    # ---- active

    def files(self) -> ReplicatedFiles:
        """Create the files of the active broker."""
        files = ReplicatedFiles(self.node.log, self._copy, self.node.lose)
        self.node.on_idle = files.trim
        self.node.check_log = files.check
        return files

    def log_usage(self) -> LogUsage:
        """Return the usage of the log in bytes, including entries appended since the engine's last report."""
        return LogUsage(*self.node.log.usage())

    @property
    def pending_limit(self) -> int | None:
        """Maximum bytes that may wait to be written to the log; None: the store's own limit applies. A full log has a
        reserve for acknowledgements: more waiting bytes could fill it.
        """
        _, limit = self.node.log.usage()
        share = max(MIN_PENDING_BYTES, limit // PENDING_SHARE)
        return share if 0 < limit and share < MAX_PENDING_BYTES else None

    def watch(self, suspend: Callable[[], object], resume: Callable[[], object]) -> None:
        """Call ``suspend`` or ``resume`` when `Node.is_fresh` changes. It is checked before each reactor round."""
        is_fresh = self.node.is_fresh

        def check() -> None:
            if self._released or is_fresh() is self._fresh:
                return
            self._fresh = not self._fresh
            if self._fresh:
                log.info("delivery resumed: the replicated log stores again")
                resume()
            else:
                log.warning("delivery suspended: the replicated log has not stored anything lately")
                suspend()

        call_before_rounds(self.reactor, check)

    def ready(self, check_log: Callable[[], object], disk: Disk) -> None:
        """Report to the node that the broker accepts clients, and start `Liveness`. ``disk``: the writing thread."""
        self.node.mark_ready()
        self._liveness = Liveness(self.reactor, disk, self.node.touch, check_log)
        self._liveness.start()

    @property
    def fault(self) -> str | None:
        """The reason why the broker delivers no message; None: it delivers."""
        if self._fresh:
            return None
        return self.node.status().fault or "the replicated log has not stored anything lately"

    # ---- the end

    def release(self, reason: str, successor: str = "") -> Deferred[Any]:
        """Release the role in a thread. The Deferred fires when the log has stored the release or is unreachable."""
        self._released = True
        if self._liveness is not None:
            self._liveness.stop()  # the disk thread has ended already
        return deferToThreadPool(
            self.reactor, self.reactor.getThreadPool(), self.node.release, reason, successor
        )

    def stop(self) -> Deferred[Any]:
        """Disconnect and close the local copy in a thread. Call this after `release`."""
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), self._thread.stop)


@dataclass(eq=False, repr=False)
class Liveness:
    """The liveness check of the disk: calls ``touch`` of the node twice a second while the disk thread completes jobs.
    Beats of the node go to the log, not to the disk. Without this check a broker with a hanging disk would stay active.
    """

    reactor: Any
    disk: Disk
    touch: Callable[[], object]
    check_log: Callable[[], object]
    _waits = False  # whether a job for the disk thread is not complete yet
    _timer: Any = None

    def start(self) -> None:
        self.check_log()
        if not self._waits:
            self._waits = True
            self.disk.run(bool, self._done)
        self._timer = self.reactor.callLater(TOUCH_INTERVAL, self.start)

    def _done(self, _: object) -> None:
        self._waits = False
        self.touch()

    def stop(self) -> None:
        cancel(self._timer)


class LogStandby(Standby):
    """A standby that follows a replicated log until the active broker is silent."""

    kept = (
        "replicated_log",
        "journal_directory",
        "paging_directory",
        "journal_retention_directory",
        "persistence_enabled",
    )

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Any,
        systemd: SystemdNotifier,
        replication: Replication,
    ) -> None:
        """Check the files that the configuration refers to. Raises `ConfigurationError`."""
        super().__init__(configuration, reactor, systemd)
        self.node: Node | None = replication.node
        self._replication = replication
        self._beat_time = self._skews = 0
        self._namesake = Namesake(replication.identity, replication.stream)

    def start(self) -> None:
        super().start()
        self._replication.start()
        self._look()

    def _look(self) -> None:
        status = self._replication.node.status()
        self.use_reason(standby_reason(status, self._replication.stream))
        self._check_clock(status)
        self._namesake.check(status)
        self._timer = self.reactor.callLater(REASON_INTERVAL, self._look)

    def _check_clock(self, status: NodeStatus) -> None:
        """Compare this machine's clock with the time of each new beat. Warn once of a lasting difference."""
        if self._skews > SKEWED_BEATS or status.active_time == self._beat_time:
            return
        self._beat_time = status.active_time
        skew = clock_skew(status, getattr(self.reactor, "wall_seconds", self.reactor.seconds)())
        self._skews = 0 if skew is None else self._skews + 1
        if skew is not None and self._skews > SKEWED_BEATS:
            log.warning(
                "the clock of this machine is %.0f s %s that of the replicated log: expiry and schedules would come at "
                "another time after a takeover; synchronize the clocks",
                abs(skew),
                "ahead of" if skew > 0 else "behind",
            )


@dataclass(eq=False, repr=False)
class Namesake:
    """Detects an active broker that has the name of this standby. ``own`` describes this process.

    No data is lost, since each entry has the number of its writer. But ``stompring ha`` finds brokers by name, and a
    takeover takes longer: a `Node` lets other brokers take over first after a broker of its own name has released the
    log.
    """

    own: Beat
    stream: str
    _time: int | None = None  # epoch ms of the last beat; None: this standby is not up to date yet
    _beats = 0

    def check(self, status: NodeStatus) -> None:
        """Count the beats of another process with this broker's name, and log one warning.

        Beats before this standby is up to date do not count: an earlier process of this broker may have written them.
        """
        if status.role is not Role.STANDBY or status.rebuilding or status.active_time == self._time:
            return
        known, self._time = self._time is not None, status.active_time
        active, own = status.active, self.own
        if not known or active is None or active.broker != own.broker or _process(active) == _process(own):
            return
        self._beats += 1
        if self._beats == NAMESAKE_BEATS:
            log.warning(
                "two brokers of the replicated log %s have the name %s: process %d on %s, which is active, and this "
                "one, process %d on %s. 'stompring ha' cannot tell them apart, and a takeover takes longer: give each "
                "a name of its own (attribute broker of <replicated-log>) and restart it",
                self.stream,
                own.broker,
                active.pid,
                active.host,
                own.pid,
                own.host,
            )


def _process(beat: Beat) -> tuple[str, int, int]:
    return beat.host, beat.pid, beat.started


def discard_unsent() -> None:
    """Make the system reset the TCP connections of this process when it ends. Otherwise the system would still send
    buffered messages, which the next active broker delivers again.
    """
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return  # no /proc: the system is not Linux
    for descriptor in descriptors:
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                found = socket.socket(fileno=descriptor)
                try:
                    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                finally:
                    found.detach()


def clock_skew(status: NodeStatus, wall: float) -> float | None:
    """Return the seconds by which this machine's clock is ahead of the engine's; None if at most `MAX_SKEW`, or
    unknown. ``wall``: time of day in epoch seconds.
    """
    if status.active is None or status.rebuilding or status.lag_entries or status.fault:
        return None
    skew = wall - status.active_time / 1000
    return skew if abs(skew) > MAX_SKEW else None


def standby_reason(status: NodeStatus, stream: str) -> str:
    """Describe why a broker of a replicated log waits."""
    if status.role is Role.CONNECTING:
        return f"connecting to the replicated log {stream}" + (f": {status.fault}" if status.fault else "")
    if status.fault:
        return f"waiting for the replicated log {stream}: {status.fault}"
    if status.rebuilding:
        return f"reading the replicated log {stream}"
    if status.missing_entries:
        return (
            f"following the replicated log {stream}, which has lost {status.missing_entries} or more entries that are "
            "missing here: no takeover until they are written again"
        )
    if status.active is None:
        return f"following the replicated log {stream}, which has no active broker"
    return f"following the replicated log {stream}, whose active broker is {status.active.broker}"
