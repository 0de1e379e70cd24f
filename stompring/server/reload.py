"""Makes a running broker agree with a configuration: at the start, and again on SIGHUP.

What a reload changes live: address-settings, addresses, queues (also attributes that vanished from the file, which
go back to their defaults), limits of memory and disk; security-settings are `Security`'s own. What vanished is kept
unless config-delete-queues or -addresses is FORCE. Listeners, the rest of security and the store need a restart; a
change there is told in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from stompring.broker.attributes import QueueAttributes
from stompring.broker.broker import Broker
from stompring.broker.queue import Queue
from stompring.broker.storage import NoStorage
from stompring.errors import ConfigurationError, Refused
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressConfiguration,
    BrokerConfiguration,
    DeletionPolicy,
    QueueConfiguration,
)

log = logging.getLogger(__name__)

#: Parts of a configuration that only a restart applies.
FIXED = (
    "stomp_acceptors",
    "http_acceptors",
    "security_enabled",
    "users_file",
    "roles_file",
    "certificate_users_file",
    "security_invalidation_interval",
    "wildcard",
    "literal_match_markers",
    "persistence_enabled",
    "journal_directory",
    "journal_file_size",
    "journal_buffer_timeout",
    "journal_sync_transactional",
    "journal_sync_non_transactional",
    "journal_compact_min_files",
    "journal_compact_percentage",
    "journal_retention_directory",
    "paging_directory",
    "page_sync_timeout",
    "purge_page_folders",
)


def apply(
    broker: Broker,
    new: BrokerConfiguration,
    *,
    starting: bool = False,
    begin: Callable[[], None] | None = None,
) -> None:
    """Bring addresses, queues and settings in line with ``new``.

    At the start, with queues as they were when the broker stopped, only what the file says otherwise than it did
    then is changed: what management changed meanwhile lasts. A reload changes whatever differs from the file.
    ``begin`` is called before anything is changed, once it is clear that it can be.

    Raises `ConfigurationError`, before anything was changed, where a live queue cannot become what it says. At the
    start such a queue is made anew if it is empty; else it stays as it is, and that is logged.
    """
    old = broker.configuration
    if starting:
        _make_way(broker, new)
    else:
        _check(broker, new)
    if begin is not None:
        begin()
    for name in FIXED:
        if getattr(old, name) != getattr(new, name) and old is not new:
            log.warning("a change of %s takes effect with the next start", name.replace("_", "-"))
    for warning in new.warnings:
        log.warning("%s", warning)
    broker.configuration = new
    broker.memory.limit(new.global_max_size, new.global_max_messages)
    broker.held.limit = new.global_max_transaction_size
    directory = broker.directory
    directory.allowance.apply(new)
    # what the default policy of full addresses is goes by the store that there is, not by one of the next start
    stored = not isinstance(broker.storage, NoStorage)
    directory.settings = SettingsRepository.of(replace(new, persistence_enabled=stored))
    for address in directory.addresses.values():
        address.apply(directory.settings.lookup(address.name))
    for configured in new.addresses:
        _apply_address(broker, configured, starting)
    _delete_vanished(broker, new)
    for room in (broker.memory, broker.disk, *(address.room for address in directory.addresses.values())):
        room.retry()  # there may be another policy for those who wait


def _check(broker: Broker, new: BrokerConfiguration) -> None:
    for _, text in _conflicts(broker, new):
        raise ConfigurationError(text, new.file)


def _make_way(broker: Broker, new: BrokerConfiguration) -> None:
    for live, text in list(_conflicts(broker, new)):
        if live.message_count:
            log.error(
                "%s; it stays as it is, with %d messages",
                text,
                live.message_count,
                extra={"queue": live.name, "address": live.address.name},
            )
        else:
            broker.directory.delete_queue(live.name, force=True)


def _conflicts(broker: Broker, new: BrokerConfiguration) -> Iterator[tuple[Queue, str]]:
    """Live queues that cannot become what the file says. Raises `ConfigurationError` for what no queue can be."""
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
            for name in ("routing_type", "durable", "non_destructive"):
                if getattr(live.attributes, name) != getattr(attributes, name):
                    yield (
                        live,
                        f"queue {queue.name}: {name.replace('_', '-')} cannot change while the queue exists",
                    )
                    break


def _apply_address(broker: Broker, configured: AddressConfiguration, starting: bool) -> None:
    directory = broker.directory
    address = directory.addresses.get(configured.name)
    if address is None:
        address = directory.create_address(configured.name, configured.routing_types, configured=True)
    elif configured.routing_types - address.routing_types:
        directory.update_address(address, address.routing_types | configured.routing_types)
    if not address.configured:
        address.configured = True
        broker.storage.bind_address(address)
    for queue in (replace(queue, configured=True) for queue in configured.queues):
        live = directory.queues.get(queue.name)
        if live is None:
            directory.create_queue(queue)
        elif live.address is address:
            _apply_queue(broker, live, queue, starting)


def _apply_queue(broker: Broker, live: Queue, queue: QueueConfiguration, starting: bool) -> None:
    attributes = QueueAttributes.of(queue, broker.directory.settings.lookup(queue.address))
    before = live.as_configured
    differing = _difference(attributes, live.attributes)
    if starting and before is not None:
        changed = _difference(attributes, before)
        differing = {name: value for name, value in differing.items() if name in changed}
    if before is None or _difference(attributes, before):
        live.as_configured = attributes
        broker.storage.bind(live)
    if differing:
        try:
            broker.directory.update_queue(live, differing)
        except Refused as reason:
            log.warning(
                "queue %s is not changed: %s",
                queue.name,
                reason,
                extra={"queue": queue.name, "address": queue.address},
            )


def _difference(attributes: QueueAttributes, other: QueueAttributes) -> dict[str, Any]:
    """What in ``attributes`` is otherwise than in ``other``."""
    return {
        field.name: getattr(attributes, field.name)
        for field in fields(attributes)
        if field.name not in ("accepts", "auto_created", "auto_delete")
        and getattr(attributes, field.name) != getattr(other, field.name)
    }


def _delete_vanished(broker: Broker, new: BrokerConfiguration) -> None:
    directory = broker.directory
    kept: dict[str, QueueConfiguration] = {queue.name: queue for a in new.addresses for queue in a.queues}
    for queue in list(directory.queues.values()):
        forced = queue.address.settings.config_delete_queues is DeletionPolicy.FORCE
        if queue.attributes.configured and queue.name not in kept and forced:
            directory.delete_queue(queue.name, force=True)
    names = {address.name for address in new.addresses}
    for address in list(directory.addresses.values()):
        forced = address.settings.config_delete_addresses is DeletionPolicy.FORCE
        if address.configured and address.name not in names and forced:
            directory.delete_address(address.name, force=True)
