"""Makes a running broker agree with a configuration: at the start, and again on SIGHUP.

What a reload changes live: address-settings, addresses, queues (also attributes that vanished from the file, which
go back to their defaults). What vanished is kept unless config-delete-queues or -addresses is FORCE. Listeners,
security and global limits need a restart; a change there is told in the log.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace

from stompring.broker.attributes import QueueAttributes
from stompring.broker.broker import Broker
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
    "wildcard",
    "literal_match_markers",
)


def apply(broker: Broker, new: BrokerConfiguration) -> None:
    """Bring addresses, queues and settings in line with ``new``.

    Raises `ConfigurationError`, before anything was changed, where a live queue cannot become what it says.
    """
    old = broker.configuration
    _check(broker, new)
    for name in FIXED:
        if getattr(old, name) != getattr(new, name) and old is not new:
            log.warning("a change of %s takes effect with the next start", name.replace("_", "-"))
    broker.configuration = new
    broker.memory.limit(new.global_max_size)
    directory = broker.directory
    directory.settings = SettingsRepository(new.address_settings, new.wildcard, new.literal_match_markers)
    for address in directory.addresses.values():
        address.apply(directory.settings.lookup(address.name))
    for configured in new.addresses:
        _apply_address(broker, configured)
    _delete_vanished(broker, new)


def _check(broker: Broker, new: BrokerConfiguration) -> None:
    settings = SettingsRepository(new.address_settings, new.wildcard, new.literal_match_markers)
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
                raise ConfigurationError(
                    f"queue {queue.name} is bound to address {live.address.name}", new.file
                )
            for name in ("routing_type", "durable", "non_destructive"):
                if getattr(live.attributes, name) != getattr(attributes, name):
                    raise ConfigurationError(
                        f"queue {queue.name}: {name.replace('_', '-')} cannot change while the queue exists",
                        new.file,
                    )


def _apply_address(broker: Broker, configured: AddressConfiguration) -> None:
    directory = broker.directory
    address = directory.addresses.get(configured.name)
    if address is None:
        address = directory.create_address(configured.name, configured.routing_types, configured=True)
    elif configured.routing_types - address.routing_types:
        directory.update_address(address, address.routing_types | configured.routing_types)
    address.configured = True
    for queue in (replace(queue, configured=True) for queue in configured.queues):
        live = directory.queues.get(queue.name)
        if live is None:
            directory.create_queue(queue)
            continue
        attributes = QueueAttributes.of(queue, directory.settings.lookup(queue.address))
        changes = {
            field.name: getattr(attributes, field.name)
            for field in fields(attributes)
            if field.name not in ("accepts", "auto_created", "auto_delete")
            and getattr(attributes, field.name) != getattr(live.attributes, field.name)
        }
        if changes:
            try:
                directory.update_queue(live, changes)
            except Refused as reason:
                log.warning("queue %s is not changed: %s", queue.name, reason)


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
