"""The broker: all that its layers share."""

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
    """Addresses, queues, time and memory of one broker. One thread; nothing here waits or does I/O."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Reactor,
        policies: Policies,
        store: Store | None = None,
        now: Seconds | None = None,
    ) -> None:
        """``now`` measures slices of work, in seconds: a clock that never jumps, where the reactor's may."""
        super().__init__(configuration, reactor, policies, store or NoStorage(), now)
        self.started_at = self.clock.now
        self.begun = self.clock.steady.now  # by which its age is told, whatever the wall clock is set to
        self.rejections = RejectionLog(self.clock.steady)
        self.log_limit = LogLimit(self.clock.steady)
        self.subscription_memory = SubscriptionMemory(configuration.global_max_subscription_size)
        self.unfinished = UnfinishedFrames(configuration.global_max_unfinished_size, self.clock)
        self.slow_consumers = SlowConsumers(self)
        self.watch = self.slow_consumers.watch
        self.send_dead_letter, self.send_expired = send_dead_letter, send_expired
        self.notifications.send_message = partial(send_notification, self)
        #: where requests are sent; it is no address of the directory, and has no queues
        name = configuration.management_address
        self.management = Address(name, frozenset(), self.directory.settings.lookup(name), self)
        self.diverts = Diverts(self)
        self.bind_diverts = self.diverts.bind
        for divert in configuration.diverts:
            self.diverts.add(divert)

    def suspend_delivery(self) -> None:
        """Deliver no message of any queue, in memory or in pages, until `resume_delivery`. All else goes on."""
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
        """All that was begun is done, no timer is left, and all is safe."""
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
