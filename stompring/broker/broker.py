"""The broker: the services that all of its layers share."""

from __future__ import annotations

from functools import partial

from stompring.settings.model import BrokerConfiguration

from .address import Address, Policies, Store
from .clock import Reactor, Seconds
from .directory import Services, SubscriptionMemory
from .limits import LogLimit, RejectionLog, UnfinishedFrames
from .ports import NoStorage
from .publish import Diverts, send_dead_letter, send_expired, send_notification
from .slow_consumers import SlowConsumers


class Broker(Services):
    """Addresses, queues, clocks and memory of one broker. Single-threaded: its methods do not block, and do no I/O."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Reactor,
        policies: Policies,
        store: Store | None = None,
        now: Seconds | None = None,
    ) -> None:
        """``now``: steady clock in seconds for time slices; needed if the reactor's clock can jump."""
        super().__init__(configuration, reactor, policies, store or NoStorage(), now)
        self.started_at = self.clock.now
        self.begun = self.clock.steady.now  # ms of the steady clock, for the uptime
        self.rejections = RejectionLog(self.clock.steady)
        self.log_limit = LogLimit(self.clock.steady)
        self.subscription_memory = SubscriptionMemory(configuration.global_max_subscription_size)
        self.unfinished = UnfinishedFrames(configuration.global_max_unfinished_size, self.clock)
        self.slow_consumers = SlowConsumers(self)
        self.watch = self.slow_consumers.watch
        self.send_dead_letter, self.send_expired = send_dead_letter, send_expired
        self.notifications.send_message = partial(send_notification, self)
        #: the address of management requests, outside the directory and without queues
        name = configuration.management_address
        self.management = Address(name, frozenset(), self.directory.settings.lookup(name), self)
        self.diverts = Diverts(self)
        self.bind_diverts = self.diverts.bind
        for divert in configuration.diverts:
            self.diverts.put(divert)

    def suspend_delivery(self) -> None:
        """Suspend the delivery of all queues, in memory and in pages, until `resume_delivery`. All else continues."""
        if not self.delivery_suspended:
            self.delivery_suspended = True
            for queue in self.directory.queues.values():
                queue.dispatcher.suspend()

    def resume_delivery(self) -> None:
        """Undo `suspend_delivery`."""
        if self.delivery_suspended:
            self.delivery_suspended = False
            for queue in list(self.directory.queues.values()):
                queue.dispatcher.resume()

    def stop(self) -> None:
        """Finish background jobs, cancel all timers, and close the store, which syncs it."""
        self.background.finish()
        self.scans.abandon()
        self.schedule.stop()
        self.delays.stop()
        self.expiry.stop()
        self.auto_delete.stop()
        self.slow_consumers.stop()
        self.rejections.stop()
        self.log_limit.stop()
        self.policies.stop()
        if self.areas is not None:
            self.areas.stop()
        self.storage.close()
