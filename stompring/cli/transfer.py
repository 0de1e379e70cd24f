"""``stompring transfer``: messages from one STOMP broker to another, each acknowledged after its RECEIPT."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import click

from stompring.pipeline.stomp.connection import BrokerError, Connection, ConnectionFailed, Endpoint
from stompring.stomp.client import ack
from stompring.stomp.frames import Head, encode_frame

from .context import Contexts
from .endpoint import (
    ANY_VERSION,
    FAILURES,
    CommandConnection,
    Interrupts,
    WaitInterrupted,
    connected,
    failure,
    resolve,
)
from .options import argument, command, header_pair, option, provided
from .output import INTERRUPTED, Interrupted, RateLine, counted, warn
from .send import INTERRUPT_GRACE, NOT_SENT, RESERVED

#: ``WAIT``: seconds of one wait for messages if none are in flight. ``PAUSE``: seconds of one wait for receipts between
#: two reads of the source.
WAIT, PAUSE = 0.5, 0.05

#: Maximum number of bytes of messages that the source delivers before an ACK.
WINDOW_BYTES = 4 << 20

DUPLICATE_ID = b"_AMQ_DUPL_ID"

#: Headers of a MESSAGE that the SEND to the target must not have: headers of its delivery and routing at the source,
#: headers of its schedule (the message was due already), and headers that this command or the target sets.
NOT_FORWARDED = {
    *(name.encode() for name in NOT_SENT if name != "expires"),
    b"JMSXDeliveryCount",
    b"JMSXRcvTimestamp",
    b"destination-type",
    b"_AMQ_ROUTING_TYPE",
    DUPLICATE_ID,
    b"AMQ_SCHEDULED_CRON",
    b"AMQ_SCHEDULED_DELAY",
    b"AMQ_SCHEDULED_PERIOD",
    b"AMQ_SCHEDULED_REPEAT",
    b"AMQ_SCHEDULED_TIME",
    b"_AMQ_SCHED_DELIVERY",
}

#: Prefixes of destinations in ``reply-to`` that belong to a connection with the source. A target would create such a
#: destination for the connection of this command.
TEMPORARY = (b"/temp-queue/", b"/temp-topic/")

Pair = tuple[bytes, bytes]
Pairs = list[Pair]


def end_options(end: str, what: str) -> Any:
    """Declare the options of the source or the target. ``end``: ``from`` or ``to``; ``what``: noun for the help.

    The value of the parameter is a function that takes the connect timeout in seconds and returns the endpoint.
    """
    variable = f"STOMPRING_{end.upper()}_PASSWORD"

    def options(
        url: str = option(
            f"--{end}",
            "URL",
            f"The {what}: stomp://[USER@]HOST:PORT, stomp+ssl:// for TLS, or the name of a context.",
        ),
        password_file: Path | None = option(
            f"--{end}-password-file",
            "FILE",
            f"File whose first line is the password. Default: {variable}, the context, a prompt.",
        ),
        ca: Path | None = option(
            f"--{end}-ca",
            "FILE",
            f"Certificates (PEM) to check that of the {what} with. Default: STOMPRING_CA, else the system's.",
            envvar="STOMPRING_CA",
        ),
        virtual_host: str | None = option(
            f"--{end}-virtual-host",
            "NAME",
            f"The host header of CONNECT to the {what}, / for most RabbitMQ brokers. Default: the host.",
        ),
    ) -> Callable[[float], Endpoint]:
        broker, context = (None, url) if url in Contexts.read().contexts else (url, None)
        return partial(resolve, end, broker, None, password_file, ca, context, virtual_host)

    return provided(options)


@command()
def transfer(
    destination: str = argument("SOURCE"),
    from_end: Callable[[float], Endpoint] = end_options("from", "source"),
    to_end: Callable[[float], Endpoint] = end_options("to", "target"),
    to_destination: str | None = option("DEST", "Destination at the target. Default: that of the source."),
    selector: str | None = option("TEXT", "Transfer only messages that match, as \"type = 'order'\"."),
    count: int | None = option("N", "End after N messages.", min=1),
    timeout: float = option(
        "DURATION", "End when the source has delivered nothing for so long.", default="5s"
    ),
    follow: bool = option("Do not end when the source is empty."),
    headers: tuple[str, ...] = option(
        "-H", "--header", "NAME=VALUE", "A header of each SEND, in place of that of the message. Repeatable."
    ),
    keep_duplicate_id: bool = option(
        "Messages keep their own _AMQ_DUPL_ID. The target then drops those whose id it has seen."
    ),
    window: int = option("N", "Messages without a receipt at any time.", default=100, min=1),
    connect_timeout: float = option(
        "DURATION", "Give up after so long without any progress of a connection.", default="30s"
    ),
    quiet: bool = option("-q", "--quiet", "No progress and no summary."),
    as_json: bool = option("--json", "Print the summary as JSON on standard output."),
) -> None:
    """Transfer the messages of the queue SOURCE to another broker, or to another queue.

    Works with any broker of STOMP 1.0, 1.1 or 1.2 at each end. A message is acknowledged at the source after the target
    has confirmed it with a RECEIPT. No message is lost: run the same command again after an interruption. Each message
    has a duplicate id, the same in each run, so that stompring and Artemis drop duplicates; other targets get at most
    --window messages twice.

    The command ends when the source is empty, after --count, after Ctrl-C, or when a broker refuses something. The exit
    code and the error text give the reason. A message that is not confirmed stays at the source.

    \b
    Examples:
      stompring transfer /queue/work --from stomp://a:61613 --to stomp://b:61613
      stompring transfer /queue/old --from stomp://guest@rabbit --from-virtual-host / --to stomp://b
      stompring transfer /queue/old --from a --to a --to-destination /queue/new
      stompring transfer /queue/orders --from prod --to test --count 100 --selector "version > 3"
      stompring transfer /queue/work --from stomp+ssl://ada@a --from-password-file a.txt --to stomp://b --follow

    Durations: 500ms, 10s, 5m, 2h, 7d; a number alone is seconds.
    """
    ends = from_end(connect_timeout), to_end(connect_timeout)
    target_destination = to_destination or destination
    fixed = list(map(_header, headers))
    plan = Plan(destination, target_destination, selector, count, None if follow else timeout, window, fixed)
    interrupts = Interrupts()
    with interrupts.handled():
        work = Transfer(plan, interrupts, quiet)
        code = work.run(*ends, keep_duplicate_id)
    if as_json:
        seconds = round(work.progress.seconds, 3)
        click.echo(json.dumps({"transferred": work.transferred, "seconds": seconds}))
    text = f"transferred {counted(work.transferred, 'message')} to {target_destination}"
    if code:
        raise Interrupted(f"interrupted: {text}; all others stay at the source")
    if not quiet:
        warn(text + work.progress.rate(work.transferred))


def _header(text: str) -> Pair:
    try:
        name, value = map(str.encode, header_pair(text, (*RESERVED, "_AMQ_DUPL_ID")))
    except UnicodeEncodeError:
        raise click.UsageError("--header is not UTF-8 text") from None
    return name, value


@dataclass(frozen=True)
class Plan:
    """The messages to transfer, and limits. ``timeout``: seconds without a message after which the source is empty."""

    source: str
    target: str
    selector: str | None
    count: int | None
    timeout: float | None
    window: int
    fixed: Iterable[Pair] = ()


class _Source(CommandConnection):
    """The connection to the source. SIGINT does not interrupt a write: ACK or UNSUBSCRIBE must follow a whole frame."""

    def _wait(self, events: int, seconds: float) -> int:
        if events & select.POLLOUT:
            return Connection._wait(self, events, seconds)
        return super()._wait(events, seconds)


class _Target(CommandConnection):
    """The connection to the target. While it waits, it services the heart-beats of the source."""

    source: CommandConnection | None = None

    def _wait(self, events: int, seconds: float) -> int:
        if self.source is None or seconds <= 0:
            return super()._wait(events, seconds)
        self.source.listen()
        return super()._wait(events, min(seconds, self.source.attention))


class Transfer:
    """Sends the messages of the source to the target, and acknowledges messages that the target has confirmed."""

    def __init__(self, plan: Plan, interrupts: Interrupts, quiet: bool = False) -> None:
        self.transferred = 0
        self._plan = plan
        self._interrupts = interrupts
        self._flying: dict[str, Head] = {}  # messages in flight, by receipt
        self._confirmed: list[Head] = []  # confirmed messages not acknowledged yet
        self._taken = 0
        self._first: bytes | None = None  # duplicate id of the first message
        self.progress = RateLine(quiet)

    def run(self, from_end: Endpoint, to_end: Endpoint, keep: bool = False) -> int:
        """Transfer. Returns 0, or 130 after SIGINT; raises `CommandFailed` with the number of transferred messages."""
        plan = self._plan
        with (
            connected(from_end, self._interrupts, ANY_VERSION, kind=_Source) as source,
            connected(to_end, self._interrupts, ANY_VERSION, self._on_receipt, _Target) as target,
        ):
            same = source.peer == target.peer
            if same and plan.source == plan.target:
                raise click.UsageError(
                    f"--from and --to are the same broker, and {plan.source} is the source and the target: "
                    "name another target with --to-destination"
                )
            if same and keep:
                raise click.UsageError(
                    "--keep-duplicate-id needs two brokers: one that has seen an id drops the message"
                )
            assert isinstance(target, _Target)
            target.source = source
            ids = DuplicateIds(f"{from_end.address} {plan.source}", source.server, keep)
            try:
                self._subscribe(source)
                self._loop(source, target, ids)
                self._leave(source)
            except WaitInterrupted:
                self.progress.clear()
                self._drain(source, target)
                return INTERRUPTED
            except FAILURES as fault:
                state = self._state(fault)
                with suppress(WaitInterrupted, *FAILURES):
                    self._leave(source)
                raise failure(fault, state) from None
            finally:
                self.progress.clear()
        return 0

    def _subscribe(self, source: CommandConnection) -> None:
        plan = self._plan
        window = str(min(plan.window, plan.count or plan.window))
        fields = [
            ("id", "0"),
            ("destination", plan.source),
            ("ack", "client-individual"),
            ("prefetch-count", window),
            ("activemq.prefetchSize", window),
            ("consumer-window-size", str(WINDOW_BYTES)),
        ]
        fields += [("selector", plan.selector)] if plan.selector is not None else []
        source.ask("SUBSCRIBE", fields)

    def _loop(self, source: CommandConnection, target: _Target, ids: DuplicateIds) -> None:
        plan = self._plan
        last = heard = time.monotonic()  # time of the last messages of the source, of the last RECEIPT
        waiting: list[tuple[Head, bytes]] = []  # received messages, not sent yet
        while True:
            self._interrupts.check()
            if not waiting:
                idle = WAIT if plan.timeout is None else min(WAIT, last + plan.timeout - time.monotonic())
                waiting = source.receive(max(idle, 0.001) if not self._flying else 0.0)[::-1]
                last = time.monotonic() if waiting else last
            room = plan.window - len(self._flying)
            if plan.count is not None:
                room = min(room, plan.count - self._taken)
            sent = min(room, len(waiting))
            target.write(self._frame(target, *waiting.pop(), ids) for _ in range(sent))
            target.listen(PAUSE if self._flying and not sent else 0.0)
            if self._confirmed or len(self._flying) == sent:
                heard = time.monotonic()
            elif time.monotonic() >= heard + target.endpoint.timeout:
                address, seconds = target.endpoint.address, target.endpoint.timeout
                raise ConnectionFailed(f"{address} sends no RECEIPT for {seconds:g} s")
            self._acknowledge(source)
            text = f"transferred {self.transferred:,}, {len(self._flying):,} in flight"
            self.progress.update(text, self.transferred)
            if self._flying:
                last = time.monotonic()
            elif self._taken == plan.count:
                return
            elif plan.timeout is not None and time.monotonic() >= last + plan.timeout:
                return

    def _frame(self, target: _Target, head: Head, body: bytes, ids: DuplicateIds) -> bytes:
        """The SEND of a message. Adds the message to those in flight."""
        if self._first is not None and head.headers.get(DUPLICATE_ID) == self._first:
            name = head.headers.get(b"message-id", b"").decode("utf-8", "replace")
            raise BrokerError(
                f"message {name} has returned: {self._plan.target} at {target.endpoint.address} leads to the source"
            )
        identifier = ids.of(head, body)
        self._first = self._first or identifier
        receipt = target.next_receipt()
        headers = [
            (b"destination", self._plan.target.encode()),
            (b"receipt", receipt.encode()),
            (DUPLICATE_ID, identifier),
        ]
        self._flying[receipt] = head
        self._taken += 1
        return send_frame(headers, self._plan.fixed, head, body, target.version)

    def _on_receipt(self, receipt: bytes) -> None:
        head = self._flying.pop(receipt.decode("utf-8", "replace"), None)
        if head is not None:
            self._confirmed.append(head)

    def _acknowledge(self, source: CommandConnection) -> None:
        if self._confirmed:
            confirmed, self._confirmed = self._confirmed, []
            self.transferred += len(confirmed)
            source.send(b"".join([ack(head, source.version) for head in confirmed]))

    def _drain(self, source: CommandConnection, target: _Target) -> None:
        """Wait after SIGINT for the receipts of messages in flight, until the next SIGINT."""
        deadline = time.monotonic() + INTERRUPT_GRACE
        with suppress(WaitInterrupted, *FAILURES):
            while self._flying and time.monotonic() < deadline:
                target.listen(PAUSE)
        with suppress(WaitInterrupted, *FAILURES):
            self._leave(source)

    def _leave(self, source: CommandConnection) -> None:
        """Acknowledge confirmed messages, and unsubscribe, which requeues the others without a failed attempt."""
        self._acknowledge(source)
        source.ask("UNSUBSCRIBE", [("id", "0"), ("destination", self._plan.source)])
        source.close()

    def _state(self, fault: Exception) -> str:
        refused = self._flying.get(getattr(fault, "receipt", None) or "")
        name = "" if refused is None else refused.headers.get(b"message-id", b"").decode("utf-8", "replace")
        which = f"message {name} was refused; " if name else ""
        done = counted(self.transferred + len(self._confirmed), "message")
        return f" ({which}{done} transferred; all others stay at the source: run the command again)"


class DuplicateIds:
    """Creates duplicate ids: the same id for each delivery of a message of ``source``, another id for another message.

    Time and body are part of the id, because a source that has lost its data may reuse the number of a message.
    """

    def __init__(self, source: str, server: str, keep: bool = False) -> None:
        """``server``: this header of the source's CONNECTED. ``keep``: whether messages keep their duplicate ids."""
        self._source = source.encode()
        self._keep = keep
        # in message-id Artemis writes the number of the consumer before the number of the message
        self._prefixed = server.startswith("ActiveMQ-Artemis")

    def of(self, head: Head, body: bytes) -> bytes:
        """The duplicate id of a message."""
        headers = head.headers
        own = headers.get(DUPLICATE_ID)
        if own and self._keep:
            return own
        number = headers.get(b"message-id", b"")
        if self._prefixed:
            number = number.rpartition(b",")[2]
        found = blake2b(digest_size=16)
        for part in (self._source, number, headers.get(b"timestamp", b""), body):
            found.update(b"%d:" % len(part))
            found.update(part)
        return b"transfer-" + found.hexdigest().encode()


def send_frame(headers: Pairs, fixed: Iterable[Pair], head: Head, body: bytes, version: bytes) -> bytes:
    """Return the SEND for a MESSAGE: ``headers``, ``fixed``, and the message's headers that are not among these."""
    written = [*headers, *fixed]
    names = {name for name, _ in written} | NOT_FORWARDED
    written += [
        (name, value)
        for name, value in head.headers.items()
        if name not in names
        # RabbitMQ creates an exclusive queue for persistent:false, and deletes it with the connection
        and (name, value) not in ((b"expires", b"0"), (b"persistent", b"false"))
        and not (name == b"reply-to" and value.startswith(TEMPORARY))
    ]
    if b"content-length" in head.headers or b"\0" in body:
        return encode_frame(b"SEND", written, body, version)
    # no content-length in the MESSAGE: it is a text message of JMS, which a content-length would make a bytes message
    return encode_frame(b"SEND", written, b"", version)[: -len(b"\0\n")] + body + b"\0\n"
