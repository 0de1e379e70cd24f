"""Reload of the configuration: at the start, on SIGHUP, and when its files change.

A reload applies changes of address-settings, addresses, queues, diverts, and limits of memory and disk. Attributes of
queues that are no longer in the file return to their defaults. Queues, addresses and diverts that are no longer in the
file stay unless config-delete-queues, -addresses or -diverts is FORCE. `Security` applies the security-settings.
Listeners, other security options and the store need a restart (`restart_required`).

`ConfigurationWatch` checks the files for changes (``configuration-file-refresh-period``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.defer import inlineCallbacks
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from stompring.broker.broker import Broker
from stompring.broker.clock import cancel
from stompring.broker.ports import NoStorage
from stompring.broker.queue import Queue
from stompring.broker.reference import QueueAttributes
from stompring.errors import ConfigurationError, Refused
from stompring.security.accounts import Versions, versions_of
from stompring.settings.artemis import describe_ignored, ignored_names
from stompring.settings.broker_xml import Change, Reload, read_broker_xml
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressConfiguration,
    BrokerConfiguration,
    DeletionPolicy,
    options_of,
)

log = logging.getLogger(__name__)

#: Settings whose change requires a restart.
RESTART_REQUIRED = tuple(row.name for row in options_of(BrokerConfiguration) if not row.reloadable)

#: The elements of broker.xml, by the field of the configuration that each sets.
ELEMENTS = {row.name: row.xml_name for row in options_of(BrokerConfiguration)}
ELEMENTS["notified"] = "broker-plugins"  # a plugin of Artemis that enables notifications sets this field

#: Fields of a configuration that are compared in parts, or that are not settings.
COMPARED_SEPARATELY = frozenset(
    {
        "file",
        "files",
        "document",
        "warnings",
        "bridges",
        "ignored",
        "guest",
        "addresses",
        "address_settings",
        "security_settings",
        "plugins",
        "diverts",
    }
)


def restart_required(started: BrokerConfiguration, new: BrokerConfiguration) -> Iterator[str]:
    """Describe the differences between ``new`` and the configuration of the start that require a restart."""
    for name in RESTART_REQUIRED:
        before, now = getattr(started, name), getattr(new, name)
        if name.endswith("_acceptors"):
            named = {one.name: one for one in before}, {one.name: one for one in now}
            yield from _compared(*named, "<acceptors>: acceptor {}")
        elif before != now:
            yield f"<{ELEMENTS[name]}>"


def _compared(before: Mapping[str, object], now: Mapping[str, object], form: str) -> Iterator[str]:
    """Describe added, changed and removed elements. ``form`` formats the name of an element."""
    for name, value in now.items():
        if name not in before:
            yield f"{form.format(name)} added"
        elif before[name] != value:
            yield f"{form.format(name)} changed"
    for name in before.keys() - now.keys():
        yield f"{form.format(name)} removed"


def _parts(
    configuration: BrokerConfiguration, other: BrokerConfiguration
) -> dict[str, dict[str, dict[str, object]]]:
    """Return the elements that are compared by name. The result maps kind of element → name → values.

    It lacks diverts that both configurations share: there may be many.
    """
    same = configuration.diverts is other.diverts
    shared = set() if same else {id(divert) for divert in other.diverts}
    return {
        "address-setting": {
            entry.match: {_dashed(name): value for name, value in entry.values.items()}
            for entry in configuration.address_settings
        },
        "security-setting": {
            entry.match: {str(kind): roles for kind, roles in entry.roles.items()}
            for entry in configuration.security_settings
        },
        "broker-plugin": {
            plugin.name: {"policy": plugin.policy, **{one.key: one.value for one in plugin.properties}}
            for plugin in configuration.plugins
        },
        "divert": {
            divert.name: {
                _dashed(each.name): getattr(divert, each.name) for each in fields(divert) if each.compare
            }
            for divert in (() if same else configuration.diverts)
            if id(divert) not in shared
        },
    }


def changed_values(
    started: BrokerConfiguration, old: BrokerConfiguration, new: BrokerConfiguration, applied: list[str]
) -> Iterator[Change]:
    """Yield the settings whose values in ``new`` differ from ``old``, or from ``started`` if they require a restart.

    Adds the elements that are in effect now to ``applied``. Acceptors are left out: their URLs may contain passwords.
    """
    for each in fields(new):
        if each.name in COMPARED_SEPARATELY or each.name.endswith("_acceptors"):
            continue
        restart = each.name in RESTART_REQUIRED
        before, after = getattr(started if restart else old, each.name), getattr(new, each.name)
        if before != after:
            if not restart:
                applied.append(f"<{ELEMENTS[each.name]}>")
            yield Change("broker", None, ELEMENTS[each.name], _json(before), _json(after), restart)
    was, now = _parts(old, new), _parts(new, old)
    for what in now:
        if what != "divert":  # the caller adds the changed diverts
            key = "name" if what == "broker-plugin" else "match"
            applied += _compared(was[what], now[what], f'<{what} {key}="{{}}">')
        for name in {**now[what], **was[what]}:
            one, other = was[what].get(name, {}), now[what].get(name, {})
            for setting in {**other, **one}:
                if one.get(setting) != other.get(setting):
                    yield Change(what, name, setting, _json(one.get(setting)), _json(other.get(setting)))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _json(value: Any) -> object:
    """Convert a value to JSON, with stars in place of secrets."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)  # stars for a `Secret`
    if isinstance(value, Mapping):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    if is_dataclass(value):
        return {
            _dashed(each.name): _json(getattr(value, each.name)) for each in fields(value) if each.compare
        }
    return str(value)


def preview(broker: Broker, new: BrokerConfiguration, started: BrokerConfiguration | None = None) -> Reload:
    """Return the result that `apply` would have, and change nothing. Raises `ConfigurationError` as `apply` does."""
    settings = _settings_of(broker, new)
    diverts = _checked(broker, new, settings)
    outcome = _outcome(started, broker.configuration, new)
    for configured in new.addresses:
        _apply_address(broker, configured, settings, outcome, live=False)
    outcome.applied += [text for text, _ in (*_removals(broker, new, settings), *diverts)]
    return outcome


def _outcome(
    started: BrokerConfiguration | None, old: BrokerConfiguration, new: BrokerConfiguration
) -> Reload:
    """Return the result of a reload, to which the caller adds addresses, queues and diverts. ``started``: the
    configuration of the start, None if that is ``old``.
    """
    applied: list[str] = []
    started = started or old
    changes = list(changed_values(started, old, new, applied))
    return Reload(
        applied,
        list(restart_required(started, new)),
        changes=changes,
        warnings=list(new.warnings),
        ignored=ignored_names(new.ignored),
    )


def _settings_of(broker: Broker, new: BrokerConfiguration) -> SettingsRepository:
    """Return the address settings. The default of address-full-policy depends on the store of the running broker, not
    on ``persistence-enabled`` of the next start."""
    return SettingsRepository.of(replace(new, persistence_enabled=not isinstance(broker.storage, NoStorage)))


def _removals(
    broker: Broker, new: BrokerConfiguration, settings: SettingsRepository
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield a text and a function for each queue and address to delete because it is no longer in the file."""
    directory = broker.directory
    queues = {queue.name for address in new.addresses for queue in address.queues}
    for live in list(directory.queues.values()):
        forced = settings.lookup(live.address.name).config_delete_queues is DeletionPolicy.FORCE
        if live.attributes.configured and live.name not in queues and forced:
            yield f"queue {live.name} deleted", partial(directory.delete_queue, live.name, force=True)
    names = {address.name for address in new.addresses}
    for address in list(directory.addresses.values()):
        forced = settings.lookup(address.name).config_delete_addresses is DeletionPolicy.FORCE
        if address.configured and address.name not in names and forced:
            yield (
                f"address {address.name} deleted",
                partial(directory.delete_address, address.name, force=True),
            )


def apply(
    broker: Broker,
    new: BrokerConfiguration,
    started: BrokerConfiguration | None = None,
    *,
    starting: bool = False,
    begin: Callable[[], None] = lambda: None,
) -> Reload:
    """Apply ``new`` to addresses, queues, diverts and settings.

    A reload resets each attribute of a queue to its value in the file. At the start, only attributes whose value in the
    file has changed since the last start are reset, so that changes by management last. ``begin`` is called before the
    first change, when ``new`` is known to be valid. ``started``: configuration of the start, None for the current one.

    Raises `ConfigurationError` before the first change if a live queue cannot get an attribute of the file. At the
    start the broker deletes and creates such a queue again if it is empty, else it keeps the queue and logs an error.
    """
    old = broker.configuration
    if starting:
        for live, text in list(_conflicts(broker, new)):
            if live.message_count:
                log.error(
                    "%s: keeping the queue and its %d messages",
                    text,
                    live.message_count,
                    extra={"queue": live.name, "address": live.address.name},
                )
            else:
                broker.directory.delete_queue(live.name, force=True)
    settings = _settings_of(broker, new)
    diverts = _checked(broker, new, settings, starting)
    begin()
    outcome = _outcome(started, old, new)
    for warning in new.warnings:
        log.warning("%s", warning)
    ignored = describe_ignored(new.ignored)  # None if each ignored setting has a warning of its own
    if ignored is not None and (starting or new.ignored != old.ignored):
        log.info("%s", ignored)
    broker.configuration = new
    broker.memory.set_limits(new.global_max_size, new.global_max_messages)
    broker.transaction_bytes.limit = new.global_max_transaction_size
    broker.subscription_memory.limit = new.global_max_subscription_size
    broker.unfinished.limit = new.global_max_unfinished_size
    directory = broker.directory
    directory.resource_limits.apply(new)
    directory.settings = settings
    for address in list(directory.addresses.values()):
        address.apply(settings.lookup(address.name))
    broker.retroactive.apply()
    for configured in new.addresses:
        _apply_address(broker, configured, settings, outcome, starting=starting)
    for text, remove in _removals(broker, new, settings):
        remove()
        outcome.applied.append(text)
    for text, change in diverts:
        change()
        log.info("%s", text)
        outcome.applied.append(text)
    for divert in new.diverts:
        transformer = divert.transformer
        if transformer is not None and transformer.policy is not None:
            broker.diverts.put(divert)  # the policy of the divert may have changed
    broker.diverts.bind_all()
    for room in (
        broker.memory,
        broker.disk,
        *(address.memory_limit for address in directory.addresses.values()),
    ):
        room.retry_all()  # the policy for waiting messages may have changed
    return outcome


def apply_divert(broker: Broker, new: BrokerConfiguration, name: str) -> None:
    """Apply ``new``, which differs from the configuration in use in one divert alone."""
    live = broker.diverts.by_name.get(name)
    changed = [] if live is None else [live.configuration]
    wanted = next((divert for divert in new.diverts if divert.name == name), None)
    broker.configuration = new
    if wanted is not None:
        broker.diverts.put(wanted)
        changed.append(wanted)
    elif live is not None:
        broker.diverts.remove(name)
    for divert in changed:
        broker.diverts.bind_to(divert)


def _checked(
    broker: Broker, new: BrokerConfiguration, settings: SettingsRepository, starting: bool = False
) -> Sequence[tuple[str, Callable[[], None]]]:
    """Return a text and a function for each change of a divert.

    A divert that is not in the file is deleted if config-delete-diverts is FORCE. Raises `ConfigurationError` for a
    loop, and for a conflict with a live queue unless the broker is ``starting``.
    """
    if not starting:
        for _, text in _conflicts(broker, new):
            raise ConfigurationError(text, new.file)
    diverts = broker.diverts
    live = diverts.by_name
    if new.diverts and new.diverts is broker.configuration.diverts and not starting:
        return []  # unchanged: do not compare the diverts, there may be many
    names = {divert.name for divert in new.diverts}
    # nearly all are the same object: faster than the comparison of their values
    changed = [
        one
        for one in new.diverts
        if (old := live.get(one.name)) is None or (old.configuration is not one and old.configuration != one)
    ]
    removed = [
        name
        for name, one in live.items()
        if name not in names
        and settings.lookup(one.configuration.address).config_delete_diverts is DeletionPolicy.FORCE
    ]
    loop = None if starting else diverts.find_loop(changed, removed)
    if loop is not None:
        raise ConfigurationError(str(loop), new.file, loop.diverts[-1].line)
    return [
        (f"divert {one.name} {'changed' if one.name in live else 'created'}", partial(diverts.put, one))
        for one in changed
    ] + [(f"divert {name} deleted", partial(diverts.remove, name)) for name in removed]


def _conflicts(broker: Broker, new: BrokerConfiguration) -> Iterator[tuple[Queue, str]]:
    """Yield live queues that cannot get the attributes of the file, with the reason.

    Raises `ConfigurationError` if the attributes of a queue are invalid.
    """
    settings = SettingsRepository.of(new)
    for configured in new.addresses:
        for queue in configured.queues:
            live = broker.directory.queues.get(queue.name)
            try:
                attributes = QueueAttributes.of(queue, settings.lookup(queue.address))
            except Refused as reason:
                raise ConfigurationError(f"queue {queue.name}: {reason}", new.file) from None
            if live is None:
                continue
            if live.address.name != queue.address:
                yield live, f"queue {queue.name} is bound to address {live.address.name}"
                continue
            for name in ("routing_type", "durable", "non_destructive", "last_value", "last_value_key"):
                if getattr(live.attributes, name) != getattr(attributes, name):
                    yield (
                        live,
                        f"queue {queue.name}: {name.replace('_', '-')} cannot change while the queue exists",
                    )
                    break


def _apply_address(
    broker: Broker,
    configured: AddressConfiguration,
    settings: SettingsRepository,
    outcome: Reload,
    *,
    starting: bool = False,
    live: bool = True,
) -> None:
    """Apply the file to an address and its queues. If not ``live``, only record the changes in ``outcome``."""
    directory = broker.directory
    address = directory.addresses.get(configured.name)
    if address is None:
        outcome.applied.append(f"address {configured.name} created")
        if live:
            address = directory.create_address(configured.name, configured.routing_types, configured=True)
    elif configured.routing_types - address.routing_types:
        outcome.applied.append(f"address {configured.name} changed: routing types")
        if live:
            directory.update_address(address, address.routing_types | configured.routing_types)
    if live and address is not None and not address.configured:
        address.configured = True
        broker.store.bind_address(address)
    for queue in (replace(queue, configured=True) for queue in configured.queues):
        known = directory.queues.get(queue.name)
        if known is None:
            outcome.applied.append(f"queue {queue.name} created")
            if live:
                directory.create_queue(queue)
        elif known.address is address:
            attributes = QueueAttributes.of(queue, settings.lookup(queue.address))
            _apply_queue(broker, known, attributes, outcome, starting, live)


def _apply_queue(
    broker: Broker, queue: Queue, attributes: QueueAttributes, outcome: Reload, starting: bool, live: bool
) -> None:
    differing = _difference(attributes, queue.attributes)
    if live:
        before = queue.as_configured
        changed = None if before is None else _difference(attributes, before)
        if starting and changed is not None:
            differing = {name: value for name, value in differing.items() if name in changed}
        if changed is None or changed:
            queue.as_configured = attributes
            broker.store.bind(queue)
    if not differing:
        return
    names = ", ".join(map(_dashed, differing))
    changes = [
        Change("queue", queue.name, _dashed(name), _json(getattr(queue.attributes, name)), _json(value))
        for name, value in differing.items()
    ]
    try:
        if live:
            broker.directory.update_queue(queue, differing)
        else:
            broker.directory.changed_attributes(queue, differing)
    except Refused as reason:
        outcome.failed.append(f"queue {queue.name} not changed ({names}): {reason}")
        if live:
            log.warning(
                "queue %s not changed: %s",
                queue.name,
                reason,
                extra={"queue": queue.name, "address": queue.address.name},
            )
        return
    outcome.applied.append(f"queue {queue.name} changed: {names}")
    outcome.changes += changes


def _difference(attributes: QueueAttributes, other: QueueAttributes) -> dict[str, Any]:
    """Return the values in ``attributes`` that differ from ``other``."""
    return {
        field.name: getattr(attributes, field.name)
        for field in fields(attributes)
        if field.name not in ("accepts", "auto_created", "auto_delete")
        and getattr(attributes, field.name) != getattr(other, field.name)
    }


@dataclass(eq=False, repr=False)
class ConfigurationWatch:
    """A check of the configuration files every ``period`` ms, which calls ``reload`` when one has changed.

    It reads the versions of the files in a thread, because their disk may be slow. After a failed reload it tries again
    when a file has changed. A ``period`` of 0 or less disables the check.
    """

    files: InitVar[Iterable[str]]
    period: int
    reload: Callable[[], object]
    reactor: Any
    _running = _checking = False
    _timer: Any = None

    def __post_init__(self, files: Iterable[str]) -> None:
        self.known = versions_of(files)

    def start(self) -> None:
        self._running = True
        self._schedule()

    def stop(self) -> None:
        self._running = False
        cancel(self._timer)

    def use(self, files: Iterable[str], period: int, before: Versions) -> None:
        """Check ``files``, which were just read, from now on. ``before``: their versions before they were read."""
        files = list(files)
        self.known = versions_of(file for file in files if file not in before)
        self.known |= {file: before[file] for file in files if file in before}
        self.period = period
        self._schedule()

    @contextmanager
    def reread(self, old: BrokerConfiguration) -> Iterator[BrokerConfiguration]:
        """Context manager: reads the file of ``old`` again, and yields the configuration. If the file is invalid, its
        next change triggers a reload. Raises `ConfigurationError`.
        """
        assert old.file is not None
        before, files, period = self.current(), old.files, old.configuration_file_refresh_period
        try:
            new = read_broker_xml(old.file)
            files = new.files
            yield new
            period = new.configuration_file_refresh_period
        except ConfigurationError as fault:
            files = (*files, *(file for file in fault.files if file not in files))
            raise
        finally:
            self.use(files, period, before)

    def current(self) -> Versions:
        """Read the versions of the known files from the disk."""
        return versions_of(self.known)

    def _schedule(self) -> None:
        cancel(self._timer)
        if self._running and not self._checking and self.period > 0:
            self._timer = self.reactor.callLater(self.period / 1000, self._check)

    @inlineCallbacks
    def _check(self) -> Any:
        self._checking = True
        known = self.known
        try:
            found: Versions = yield deferToThreadPool(
                self.reactor, self.reactor.getThreadPool(), self.current
            )
            # else another reload has replaced ``self.known`` meanwhile
            if known is self.known and self._running:
                changed = [file for file, version in found.items() if version != known[file]]
                if changed:
                    log.info("%s changed: reloading the configuration", ", ".join(changed))
                    self.known = found
                    self.reload()
        except Exception:
            log.error("cannot check the configuration files for changes: %s", Failure().getTraceback())
        self._checking = False
        self._schedule()
