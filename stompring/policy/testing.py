"""A harness to test policies: one address, and a clock that only tests advance.

It runs the code of the broker, without sockets, files and reactor.

    from .testing import PolicyHarness

    def test_it_keeps_to_its_rate():
        harness = PolicyHarness(RateLimit, messages_per_second=1)
        assert harness.send(b"first").accepted
        assert "Rate of" in harness.send(b"second").refused
        harness.advance(1000)
        assert harness.send(b"third").accepted
"""

from __future__ import annotations

import sched
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from stompring.broker.broker import Broker
from stompring.broker.clock import ScheduledTimer
from stompring.broker.message import Message
from stompring.broker.ports import NoStorage, Offer
from stompring.broker.queue import Consumer, Queue
from stompring.broker.reference import SCHEDULED, Reference
from stompring.session.commands import StompSession
from stompring.session.connect import Anonymous
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.settings.document import with_suggestion
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressSettingEntry,
    AddressSettings,
    BrokerConfiguration,
    PluginConfiguration,
    PolicyUse,
    Property,
    QueueConfiguration,
    RoutingType,
    StompAcceptor,
    frozen,
)
from stompring.stomp.frames import encode_frame, unescape

from .api import AddressPolicy, Wait, as_text
from .hooks import BoundPolicy, Policies
from .load import PluginSources, load
from .views import AddressView, MessageView, PolicyTimer, QueueView, view_of

#: Time at which every test begins, epoch milliseconds.
START_TIME = 1_700_000_000_000

#: Longest plausible value of a duration in seconds (a day), and of a duration in milliseconds (a year). A test that
#: exceeds one of them has confused the units.
DAY, YEAR = 86_400, 366 * 86_400_000


class HarnessError(BaseException):
    """A test, or the policy under test, makes an obvious mistake: an unknown name, a time in the wrong unit.

    Not an `Exception`: exceptions of a policy are caught and counted, and this one must reach the test.
    """


def check_seconds(what: str, seconds: object) -> None:
    """Raise `HarnessError` unless ``seconds`` is a plausible duration in seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise HarnessError(f"{what} takes seconds, 0 or more, not {seconds!r}")
    if seconds > DAY:
        raise HarnessError(
            f"{what} takes seconds: {seconds!r} would be {seconds / DAY:.1f} days, and looks like milliseconds"
        )


def check_milliseconds(what: str, milliseconds: object) -> None:
    """Raise `HarnessError` unless ``milliseconds`` is a plausible duration in milliseconds."""
    if isinstance(milliseconds, float):
        raise HarnessError(f"{what} takes whole milliseconds: {milliseconds!r} looks like seconds")
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int) or milliseconds < 0:
        raise HarnessError(f"{what} takes whole milliseconds, 0 or more, not {milliseconds!r}")
    if milliseconds > YEAR:
        raise HarnessError(
            f"{what} takes milliseconds: {milliseconds!r} would be more than a year, and looks like a point in time"
        )


class ManualClock(sched.scheduler):
    """A clock for tests: time advances only by `advance` and `forward`."""

    def __init__(self) -> None:
        super().__init__(lambda: self._now)
        self._now = START_TIME * 1000  # microseconds as an int, because sums of float seconds are not exact

    def seconds(self) -> float:
        """Seconds since the epoch."""
        # half a microsecond more: the float must not be below a whole millisecond
        return (self._now + 0.5) / 1_000_000

    def callLater(
        self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any
    ) -> ScheduledTimer:
        """Implement ``reactor.callLater``."""
        return ScheduledTimer(self, self.enter(round(delay * 1_000_000), 0, call, args, kw))

    def advance(self, seconds: float) -> None:
        """Advance time by seconds, and call each timer at its due time. Raises `HarnessError`."""
        check_seconds("clock.advance", seconds)
        self._forward(seconds)

    def forward(self, milliseconds: int) -> None:
        """Advance time by milliseconds, as `advance` does by seconds. Raises `HarnessError`."""
        check_milliseconds("advance", milliseconds)
        self._forward(milliseconds / 1000)

    def _forward(self, seconds: float) -> None:
        until = self._now + round(seconds * 1_000_000)
        while (timers := self.queue) and timers[0].time <= until:
            self._now = max(self._now, round(timers[0].time))
            self.run(blocking=False)
        self._now = until


#: Name of the address that has the policy under test, and name of its queue.
ADDRESS = "address"


@frozen
class Sent:
    """The outcome of a SEND. At most one field is set, none for an accepted message."""

    refused: str = ""  # text of the ERROR
    dropped: bool = False  # whether a policy or a full address discarded the message
    waits: bool = False  # whether the broker has stopped reading the producer

    @property
    def accepted(self) -> bool:
        """Whether the message entered the address."""
        return not (self.refused or self.dropped or self.waits)


class PolicyHarness:
    """An address with one policy, producers and a consumer.

    ``parameters`` are the parameters of the policy, by their names in Python, read as from broker.xml. ``settings`` are
    address-settings for the address, as ``{"max_size_messages": 10, "default_ring_size": 3}``; ``others`` are
    settings for other addresses by their match. With ``full`` the policy is the address-full-policy. ``after`` is a
    second policy of the address, without parameters, called after the first.
    """

    def __init__(
        self,
        policy: type[AddressPolicy],
        *,
        settings: Mapping[str, Any] = {},
        others: Mapping[str, Mapping[str, Any]] = {},
        full: bool = False,
        after: type[AddressPolicy] | None = None,
        folder: Path | None = None,
        **parameters: Any,
    ) -> None:
        for kind in (policy, after):
            if not (kind is None or (isinstance(kind, type) and issubclass(kind, AddressPolicy))):
                raise HarnessError(f"PolicyHarness takes a class of AddressPolicy, not {kind!r}")
        for match, values in {ADDRESS: settings, **others}.items():
            _check_fields(f"settings of {match}", AddressSettings, values)
        self._kind = policy
        self._after = after
        self._settings, self._others, self._full = settings, others, full
        self._folder = folder
        self._policies = _CheckedPolicies()
        self.clock = ManualClock()
        configuration = self._configured(parameters)
        self._store = NoStorage()
        self._stopped = False
        self.broker = Broker(configuration, self.clock, self._policies, self._store)
        self._acceptor = StompAcceptor("test", "127.0.0.1", 0)
        self._outgoing = Outgoing(self.broker.clock)
        self._clients: dict[str, _Client] = {}
        self._receiver = _HarnessConsumer()
        self.queue_of(ADDRESS)

    def _configured(self, parameters: Mapping[str, Any]) -> BrokerConfiguration:
        name, second = "policy-under-test", "policy-after-it"
        properties = tuple(
            Property(key.replace("_", "-"), as_text(value)) for key, value in parameters.items()
        )
        kinds = {name: self._kind}
        if self._after is not None:
            kinds[second] = self._after
        uses = tuple(map(PolicyUse, kinds))
        values: dict[str, Any] = {**self._settings, "address_policy": uses}
        if self._full:
            values |= {"address_full_policy": name, "address_policy": uses[1:]}
        entries = [AddressSettingEntry("#", {"default_address_routing_type": RoutingType.ANYCAST})]
        entries += [AddressSettingEntry(match, values) for match, values in self._others.items()]
        entries.append(AddressSettingEntry(ADDRESS, values))
        configuration = BrokerConfiguration(
            file=None if self._folder is None else str(self._folder / "broker.xml"),
            persistence_enabled=False,
            plugins=tuple(PluginConfiguration(one, one, properties if one == name else ()) for one in kinds),
            address_settings=tuple(entries),
        )
        self._policies.use(load(configuration, _GivenPolicies(kinds)))
        return configuration

    def reload(self, policy: type[AddressPolicy] | None = None, **parameters: Any) -> None:
        """Reload the configuration with these parameters, and with another version of the policy if given."""
        self._kind = policy or self._kind
        configuration = self._configured(parameters)
        self.broker.configuration = configuration
        directory = self.broker.directory
        directory.settings = SettingsRepository.of(configuration)
        for address in directory.addresses.values():
            address.apply(directory.settings.lookup(address.name))

    def stop(self) -> None:
        """Stop the broker. Connections are lost, and `AddressPolicy.closed` is called."""
        for client in list(self._clients):
            self.disconnect(client)
        if self._receiver in self._queue(ADDRESS).consumers:
            self._receiver.cancelled("the broker stops")
        self.broker.stop()
        self._stopped = True

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again. States of policies and durable messages survive."""
        if not self._stopped:
            self.stop()
        before = self.broker
        self.broker = Broker(before.configuration, self.clock, self._policies, self._store)
        self.broker.numbers, self.broker.next_queue_number = before.numbers, before.next_queue_number
        self._outgoing, self._receiver, self._stopped = Outgoing(self.broker.clock), _HarnessConsumer(), False
        directory = self.broker.directory
        for address in before.directory.addresses.values():
            directory.create_address(address.name, address.routing_types, auto_created=address.auto_created)
        refs: list[tuple[Reference, Queue]] = []
        for one in before.directory.queues.values():
            if one.durable:
                queue = directory.restore_queue(one.name, one.address.name, one.attributes, one.number)
                found = [*one.dispatcher.snapshot(), *one.scheduled.values()]
                refs += [(ref, queue) for ref in found if ref.message.traits.durable]
        messages: dict[int, Message] = {}
        for ref, queue in sorted(refs, key=lambda each: each[0].message.number):
            sent = ref.message
            if sent.number not in messages:
                address = directory.address(sent.address.name)
                messages[sent.number] = Message(
                    sent.number, address, sent.traits, sent.body, sent.timestamp, sent.expires
                )
            restored = queue.restore(messages[sent.number])
            restored.deliveries, restored.attempts = ref.deliveries, ref.attempts
            if ref.state == SCHEDULED:
                restored.due, restored.recurrence = ref.due, ref.recurrence
            queue.reinstate(restored)
            for _ in queue.trim():
                pass

    # ---- state

    @property
    def policy(self) -> Any:
        """The object of the policy for the address."""
        address = self.broker.directory.addresses[ADDRESS]
        return self._policies.policies_for(address)[0]

    @property
    def queue(self) -> QueueView:
        """The queue of the address, as policies see it."""
        return view_of(self._queue(ADDRESS))

    def queue_of(self, address: str, **attributes: Any) -> QueueView:
        """The queue of an address, created if there is none, with ``attributes`` such as ``ring_size``.

        Raises `HarnessError` for an attribute that does not exist.
        """
        _check_fields("queue_of", QueueConfiguration, attributes)
        if address not in self.broker.directory.queues:
            self.broker.directory.create_queue(
                QueueConfiguration(address, address, RoutingType.ANYCAST, **attributes)
            )
        return view_of(self._queue(address))

    def _queue(self, name: str) -> Queue:
        self._check_running()
        return self.broker.directory.queues[name]

    def waiting(self, address: str = ADDRESS) -> list[bytes]:
        """Bodies of the messages that wait in the queue of an address, in order of delivery."""
        return [message.body for message in self.messages(address)]

    def messages(self, address: str = ADDRESS) -> list[MessageView]:
        """The messages that wait in the queue of an address, in order of delivery."""
        return list(self.queue_of(address).messages())

    @property
    def errors(self) -> dict[str, int]:
        """Number of exceptions of the policy, by hook."""
        return {hook: number for (_, hook), number in self._policies.errors.items()}

    # ---- actions

    def advance(self, milliseconds: int) -> None:
        """Advance time by milliseconds. Raises `HarnessError` for values that look like seconds or a point in time."""
        self.clock.forward(milliseconds)
        self.broker.clock.refresh()

    def send(
        self,
        body: bytes = b"",
        headers: Mapping[str, str] = {},
        *,
        to: str = ADDRESS,
        producer: str = "producer",
        user: str | None = None,
    ) -> Sent:
        """Send a message over the connection called ``producer``, which is opened if necessary.

        Raises `HarnessError` for a body that is not bytes, and for headers that are not strings.
        """
        if not isinstance(body, bytes):
            raise HarnessError(f"send takes a body of bytes, not {body!r}")
        for name, value in headers.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise HarnessError(f"send takes headers of strings, not {name!r}: {value!r}")
        client = self._client(producer, user)
        dropped = self._dropped()
        text = [("destination", to), *headers.items(), ("receipt", "1"), ("content-length", str(len(body)))]
        client.send_frame(b"SEND", text, body)
        answer = self._answer(producer)
        if answer is None:
            return Sent(waits=True)
        return Sent(refused=answer, dropped=self._dropped() > dropped and not answer)

    def sends_on(self, producer: str = "producer") -> bool:
        """Return whether the broker reads a blocked producer again, and has accepted its message.

        Raises `HarnessError` without a connection of that name.
        """
        if producer not in self._clients:
            raise HarnessError(f"sends_on: no connection called {producer!r}")
        return self._clients[producer].last_reply() is not None

    def subscribe(
        self,
        headers: Mapping[str, str] = {},
        *,
        to: str = ADDRESS,
        client: str = "subscriber",
        user: str | None = None,
    ) -> str:
        """Subscribe with ``ack:auto``; the subscriber consumes all messages. Returns the text of the ERROR, or ''."""
        connection = self._client(client, user)
        connection.send_frame(
            b"SUBSCRIBE", [("destination", to), ("id", client), *headers.items(), ("receipt", "1")]
        )
        return self._answer(client) or ""

    def _answer(self, client: str) -> str | None:
        """The text of the ERROR that ended a connection, '' for a RECEIPT, None without an answer."""
        frame = self._clients[client].last_reply()
        if frame is None or not frame.startswith(b"ERROR"):
            return None if frame is None else ""
        del self._clients[client]
        message = frame.partition(b"\nmessage:")[2].partition(b"\n")[0]
        return unescape(message).decode()

    def disconnect(self, client: str = "producer") -> None:
        """Lose a connection. Raises `HarnessError` without a connection of that name."""
        if client not in self._clients:
            raise HarnessError(f"disconnect: no connection called {client!r}")
        self._clients.pop(client).session.lost()
        self.advance(0)

    def deliver(self, most: int = 1) -> list[MessageView]:
        """Deliver up to ``most`` waiting messages to a consumer, for `settle` or `reject`."""
        queue = self._queue(ADDRESS)
        if self._receiver not in queue.consumers:
            queue.add_consumer(self._receiver)
        return self._receiver.take_some(most)

    def settle(self, message: MessageView) -> None:
        """Acknowledge a message that `deliver` has returned."""
        self._receiver.settle(message)

    def reject(self, message: MessageView) -> None:
        """Reject a message that `deliver` has returned (NACK). Its delivery counts as a failed attempt."""
        self._receiver.reject(message)

    def purge(self) -> int:
        """Purge the queue of the address. Returns the number of removed messages."""
        return self._queue(ADDRESS).purge()

    def delete(self) -> None:
        """Delete the address."""
        self._receiver = _HarnessConsumer()
        self.broker.directory.delete_address(ADDRESS, force=True)

    def _check_running(self) -> None:
        if self._stopped:
            raise HarnessError("the broker is stopped: call restart")

    def _client(self, name: str, user: str | None) -> _Client:
        self._check_running()
        client = self._clients.get(name)
        if client is None or client.user != user:
            client = self._clients[name] = _Client(self, name, self._acceptor, self._outgoing, user)
        return client

    def _dropped(self) -> int:
        return sum(address.dropped_messages for address in self.broker.directory.addresses.values())


def _check_fields(what: str, kind: type[Any], values: Mapping[str, object]) -> None:
    """Raise `HarnessError` for an unknown field of the dataclass, and for a number of the wrong type."""
    known = {each.name: str(each.type) for each in fields(kind)}
    for name, value in values.items():
        if name not in known:
            near = name.replace("-", "_")
            hint = f"; did you mean '{near}'?" if near in known else ""
            text = f"{what}: unknown '{name}'"
            raise HarnessError(f"{text}{hint}" if hint else with_suggestion(text, name, known))
        if known[name] == "int" and (isinstance(value, bool) or not isinstance(value, int)):
            raise HarnessError(f"{what}: {name} must be a whole number, not {value!r}")


class _CheckedView(AddressView):
    """An `AddressView` that refuses timers in an obviously wrong unit."""

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> PolicyTimer:
        check_seconds("call_later", seconds)
        return super().call_later(seconds, call, *args)


class _CheckedBinding(BoundPolicy):
    """A `BoundPolicy` that refuses `Wait` with a time in an obviously wrong unit."""

    view = _CheckedView

    @property
    def admit(self) -> Callable[[Offer], object]:
        admit_of_policy = self.policy.admit

        def admit(offer: Offer) -> object:
            answer = admit_of_policy(offer)
            if isinstance(answer, Wait):
                check_milliseconds("Wait", answer.milliseconds)
            return answer

        return admit


class _CheckedPolicies(Policies):
    binding = _CheckedBinding


@dataclass(eq=False)
class _GivenPolicies(PluginSources):
    """The policies of a harness, by name."""

    kinds: Mapping[str, type[AddressPolicy]]

    def load(self, name: str) -> type[AddressPolicy]:
        return self.kinds[name]


class _Client:
    """A connection, and the transport of its session."""

    def __init__(
        self, harness: PolicyHarness, name: str, acceptor: StompAcceptor, outgoing: Outgoing, user: str | None
    ) -> None:
        self.peer = f"{name}:1"
        self.host = name
        self.certificate: str | None = None
        self.carrier = "TCP"
        self.user = user
        self._harness = harness
        self._outgoing = outgoing
        self._written = b""
        broker = harness.broker
        self.session = StompSession(
            broker, acceptor, Destinations(acceptor), Anonymous(), self, outgoing, name
        )
        login = [] if user is None else [("login", user)]
        self.send_frame(b"CONNECT", [("accept-version", "1.2"), ("host", "/"), *login])
        self._written = b""

    def send_frame(self, command: bytes, headers: list[tuple[str, str]], body: bytes = b"") -> None:
        self._harness.broker.clock.refresh()
        pairs = [(name.encode(), value.encode()) for name, value in headers]
        self._outgoing.within_read = True
        self.session.receive(encode_frame(command, pairs, body, b"1.2"))
        self._outgoing.within_read = False
        self._outgoing.flush()

    def last_reply(self) -> bytes | None:
        """The last RECEIPT or ERROR since the last call, None without one. MESSAGEs are skipped."""
        written, self._written = self._written, b""
        frames = [written[at:] for at in (written.rfind(b"RECEIPT\n"), written.rfind(b"ERROR\n")) if at >= 0]
        return frames[-1] if frames else None

    # ---- transport

    def write(self, data: bytes) -> None:
        self._written += data

    def close(self) -> None:
        """Do nothing: the harness has no socket."""

    pause_reading = resume_reading = close


class _HarnessConsumer(Consumer):
    """A consumer that accepts a given number of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.willing = False
        self._wanted = 0
        self._taken: list[Reference] = []
        self._unsettled: dict[tuple[str, int], Reference] = {}

    def take_some(self, most: int) -> list[MessageView]:
        self._wanted, self._taken = most, []
        self.queue.dispatcher.resume_consumer(self)
        self.queue.dispatcher.pause_consumer(self)
        return [MessageView(ref) for ref in self._taken]

    def deliver_message(self, message: Message) -> None:
        self.deliver_reference(self.queue.mark_delivering(message))

    def deliver_reference(self, ref: Reference) -> None:
        self._unsettled[ref.queue.name, ref.message.number] = ref
        self._taken.append(ref)
        if len(self._taken) >= self._wanted:
            self.queue.dispatcher.pause_consumer(self)

    def settle(self, message: MessageView) -> None:
        self.queue.settle(self._unsettled.pop((message.queue, message.number)))

    def reject(self, message: MessageView) -> None:
        ref = self._unsettled.pop((message.queue, message.number))
        self.queue.requeue([ref], self, failed=True)

    def cancelled(self, reason: str) -> None:
        self.queue.remove_consumer(self, list(self._unsettled.values()))
