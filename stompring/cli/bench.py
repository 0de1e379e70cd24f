"""``stompring bench``: throughput and latency of any STOMP 1.2 broker, with a process for each client."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import secrets
import signal
import socket
import struct
import sys
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, product
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import click

from stompring.pipeline.stomp.connection import Connection, Endpoint
from stompring.stomp.client import ack, frame

from .endpoint import FAILURES, Interrupts, WaitInterrupted, failure, stomp_broker
from .options import JSON, command, header_pair, option
from .output import (
    CommandFailed,
    Interrupted,
    JsonObject,
    Parsed,
    ProgressLine,
    Values,
    echo_json,
    report,
    warn,
)

#: The beginning of each body: time of its SEND in monotonic ns, and the number of the run.
STAMP = struct.Struct("<qQ")

#: Prefixes of destinations that are topics: each consumer of a topic receives every message.
TOPICS = ("/topic/", "topic/")

#: Maximum number of bytes, and of messages, in one write of a producer.
BATCH, MOST_AT_ONCE = 1 << 16, 500

#: Seconds without a message after which a consumer ends. ``IDLE``: if the consumer does not know how many messages to
#: expect. ``STALLED``: if some of the expected messages are missing.
IDLE, STALLED = 2.0, 10.0

#: Time limit in seconds for all clients to connect and subscribe.
START = 60.0

#: Error texts about slow clients, formatted with the number of these clients and the time limit in seconds.
SILENT, LATE = "a client does not answer for {1:g} s", "{0} clients do not finish within {1:g} s"

#: Maximum number of clients of one run: each is a process.
MAX_CLIENTS = 256

#: Share of a processor above which the client, not the broker, limited the result.
SATURATED = 0.9

_fork = multiprocessing.get_context("fork")


class Case(NamedTuple):
    """One run of the benchmark. ``receipts``: n if every n-th message requests a receipt, 0: no message does.

    ``window``: maximum number of unconfirmed messages of a producer.
    """

    producers: int
    consumers: int
    size: int
    ack: str
    receipts: int
    window: int
    persistent: bool


@dataclass(frozen=True)
class Plan:
    """The settings of all runs. ``count``: messages per producer, None: send for ``duration`` seconds."""

    destination: str
    duration: float
    count: int | None
    warmup: float
    rate: float | None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Counts:
    """Results of one client, or of several clients together.

    ``messages``: number of messages in the measured time. ``total``: number of messages including the warm-up.
    """

    messages: int = 0
    total: int = 0
    begin: float = 0.0  # start of the measured time, monotonic s
    end: float = 0.0
    busy: float = 0.0  # used share of a processor, the highest of several clients
    times: Counter[int] = field(default_factory=Counter)  # rounded latencies of messages or receipts (ns)

    def add(self, other: Counts) -> None:
        """Add the results of another client."""
        self.messages += other.messages
        self.total += other.total
        self.begin = min(self.begin or other.begin, other.begin)
        self.end = max(self.end, other.end)
        self.busy = max(self.busy, other.busy)
        self.times.update(other.times)

    @property
    def per_second(self) -> float:
        """Messages per second in the measured time."""
        return self.messages / max(self.end - self.begin, 1e-9) if self.messages else 0.0


def _list(parse: Callable[[str], Any], values: str = "", pattern: str = ".*") -> Parsed:
    """Return the type of an option that is a comma-separated list of values.

    ``values`` describes the values in error texts. ``pattern`` must match each value.
    """

    def values_of(text: str) -> tuple[Any, ...]:
        parts = list(map(str.strip, text.split(",")))
        for part in parts:
            if not re.fullmatch(pattern, part, re.DOTALL):
                raise ValueError(f"must be {values}, separated by commas, not {part!r}")
        return tuple(dict.fromkeys(map(parse, parts)))

    return Parsed("list", values_of)


def parse_size(text: str) -> int:
    """Parse a size: ``100``, ``1k``, ``64KiB``, ``1M``. Raises `ValueError`."""
    found = re.fullmatch(r"([0-9]{1,9})\s*([kKmM]?)(?:i?[bB])?", text)
    size = int(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()] if found else 0
    if not STAMP.size <= size <= 1 << 28:
        raise ValueError(
            f"must be sizes from {STAMP.size} bytes (a timestamp) to 256M, as 100,1k,64k, not {text!r}"
        )
    return size


COUNTS = _list(int, "numbers from 0 on", "[0-9]{1,9}")
WINDOWS = _list(int, "numbers from 1 on", "(?=.*[1-9])[0-9]{1,9}")
SIZES = _list(parse_size)
MODES = _list(str, "auto, client, client-individual", "auto|client|client-individual")
ANSWERS = _list(str, "no, yes", "no|yes")

Numbers = tuple[int, ...]
Words = tuple[str, ...]


@command()
def bench(
    producers: Numbers = option("N,…", "Producers.", type=COUNTS, default="1"),
    consumers: Numbers = option("N,…", "Consumers.", type=COUNTS, default="1"),
    sizes: Numbers = option("--size", "BYTES,…", "Sizes of bodies: 100, 1k, 1M.", type=SIZES, default="100"),
    acks: Words = option("--ack", "MODE,…", "auto, client, client-individual.", type=MODES, default="auto"),
    receipts: Numbers = option("N,…", "A receipt for every Nth message; 0: none.", type=COUNTS, default="0"),
    windows: Numbers = option(
        "--window",
        "N,…",
        "With --receipts: messages without a receipt per producer. 1 sends one at a time.",
        type=WINDOWS,
        default="1000",
    ),
    persistent: Words = option("no,yes", "Durable messages.", type=ANSWERS, default="no"),
    duration: float = option("DURATION", "Measured time of each run.", default="10s"),
    count: int | None = option("N", "Messages per producer, in place of --duration.", min=1),
    warmup: float = option("DURATION", "Time before the measurement, which does not count.", default="2s"),
    rate: float | None = option(
        "N", "Messages per second and producer. Default: as fast as it goes.", min=0, min_open=True
    ),
    destination: str = option(
        "DEST",
        "Destination of all messages. On a topic each consumer receives all.",
        default="/queue/stompring.bench",
    ),
    headers: tuple[str, ...] = option("-H", "--header", "NAME=VALUE", "A header of SEND. Repeatable."),
    ceiling: bool = option("Measure this driver instead of a broker: the limit of its own clients."),
    as_json: bool = JSON,
    endpoint: Endpoint = stomp_broker,
) -> None:
    """Measure throughput and latency of a STOMP broker.

    Every combination of --producers, --consumers, --size, --ack, --receipts and --persistent is one run. Each client is
    a process. Latency is the time from SEND to MESSAGE: all clients are on this machine and share its clock. Without
    --rate producers send as fast as they can, and latency is mostly the time in the queue: for latencies of an
    application use --rate.

    The driver is Python. On a current machine one consumer receives some 300,000 small messages per second; one
    producer sends millions without receipts and some 200,000 with one for each. --ceiling measures both here. The
    column DRIVER is the processor share of the busiest client: near 100 % (marked *) the client was the limit and
    not the broker. Clients on the broker's machine take processor time from it.

    \b
    Examples:
      stompring bench
      stompring bench --size 100,1k,16k --producers 1,4 --consumers 1,4
      stompring bench --persistent yes --receipts 1 --window 1,100
      stompring bench --rate 1000 --ack client-individual --duration 30s
      stompring bench --broker stomp://rabbit:61613 --user guest --json
      stompring bench --ceiling --size 100,16k
    """
    plan = Plan(destination, max(duration, 0.1), count, warmup, rate, tuple(map(header_pair, headers)))
    cases = [
        Case(*values[:6], persistent=values[6] == "yes")
        for values in product(producers, consumers, sizes, acks, receipts, windows, persistent)
        if values[4] or values[5] == windows[0]  # without receipts the window has no effect: one run suffices
    ]
    for case in cases:
        if not 1 <= case.producers + case.consumers <= MAX_CLIENTS:
            raise click.UsageError(f"producers and consumers of a run must be 1 to {MAX_CLIENTS} together")
        if case.producers == 0 and count is not None:
            raise click.UsageError("--count is messages per producer: there is none")
    if ceiling:
        _show_ceiling(sizes, duration, as_json)
        return
    rows: list[JsonObject] = []
    progress = ProgressLine()
    interrupts = Interrupts()
    try:
        with interrupts.handled():
            for number, case in enumerate(cases, 1):
                progress.show(f"run {number} of {len(cases)}: {_title(case)}")
                rows.append(run_case(endpoint, plan, case, interrupts))
                progress.clear()
                if not as_json:
                    _print_row(rows[-1], first=number == 1)
    except WaitInterrupted:
        progress.clear()
        if as_json:
            echo_json(rows)
        raise Interrupted(f"interrupted: {len(rows)} of {len(cases)} runs are complete") from None
    finally:
        progress.clear()
    if as_json:
        echo_json(rows)
    elif any(row["driverBusy"] >= SATURATED for row in rows):
        warn("* a client used a whole processor: the driver was the limit, not the broker")


# ---- one run


def run_case(endpoint: Endpoint, plan: Plan, case: Case, interrupts: Interrupts) -> JsonObject:
    """Run a case, and return a row of the report. Raises `CommandFailed`, and `WaitInterrupted` at SIGINT."""
    run = secrets.randbits(64)
    with clients(
        [_consume] * case.consumers + [_produce] * case.producers, (endpoint, plan, case, run)
    ) as pipes:
        consuming, producing = pipes[: case.consumers], pipes[case.consumers :]
        list(_answers(pipes, interrupts, START, SILENT))
        begin = time.monotonic() + 0.1 + plan.warmup
        for pipe in pipes:
            pipe.send(begin)
        patience = START + plan.warmup + (plan.duration if plan.count is None else 86_400.0)
        sent, received = Counts(), Counts()
        for each in _answers(producing, interrupts, patience):
            sent.add(each)
        if not producing:
            with interrupts.waiting():
                time.sleep(max(0.0, begin + plan.duration - time.monotonic()))
        copies = case.consumers if plan.destination.startswith(TOPICS) else 1
        for pipe in consuming:
            pipe.send(sent.total if producing else None)
        for each in _answers(consuming, interrupts, patience + 60):
            received.add(each)
    return {
        **case._asdict(),
        "rate": plan.rate,
        "sent": sent.messages,
        "received": received.messages,
        "missing": max(0, sent.total * copies - received.total)
        if case.consumers and case.producers
        else None,
        "sentPerSecond": round(sent.per_second, 1),
        "receivedPerSecond": round(received.per_second, 1),
        "receivedBytesPerSecond": round(received.per_second * case.size),
        "latency": percentiles(received.times),
        "receiptTime": percentiles(sent.times),
        "driverBusy": round(max(sent.busy, received.busy), 3),
    }


Work = Callable[[Pipe, Endpoint, Plan, Case, int], None]


@contextmanager
def clients(kinds: Sequence[Work], arguments: tuple[Any, ...]) -> Iterator[list[Pipe]]:
    """Context manager: run a process for each client, and yield the pipes to the processes. Waits for their end."""
    started: list[BaseProcess] = []
    pipes: list[Pipe] = []
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for kind in kinds:
            ours, theirs = _fork.Pipe()
            process = _fork.Process(
                target=_client, args=(kind, theirs, [*pipes, ours], arguments), daemon=True
            )
            process.start()
            theirs.close()
            started.append(process)
            pipes.append(ours)
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()
        for each in started:
            each.join(0.5)
            if each.is_alive():
                each.kill()
                each.join()


def _client(work: Work, pipe: Pipe, others: Sequence[Pipe], arguments: tuple[Any, ...]) -> None:
    """Run a client in its process. If the client fails, send the error text and the exit code to the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    try:
        work(pipe, *arguments)
    except FAILURES as fault:
        failed = failure(fault)
        with suppress(OSError):
            pipe.send((failed.message, failed.exit_code))
    except (EOFError, BrokenPipeError):
        pass  # the command has ended
    os._exit(0)


def _answers(
    pipes: Iterable[Pipe], interrupts: Interrupts, patience: float, late: str = LATE
) -> Iterator[Any]:
    """Yield the next message of each client's pipe as it arrives.

    Raises `CommandFailed` for an error of a client, or with the text ``late`` if a message is missing after
    ``patience`` seconds. Raises `WaitInterrupted` at SIGINT.
    """
    left = list(pipes)
    deadline = time.monotonic() + patience
    while left:
        with interrupts.waiting():
            ready = wait(left, 0.5)
        if not ready and time.monotonic() > deadline:
            raise CommandFailed(late.format(len(left), patience))
        for pipe in ready:
            assert isinstance(pipe, Pipe)
            try:
                answer = pipe.recv()
            except EOFError:
                raise CommandFailed("a client process ended unexpectedly") from None
            if isinstance(answer, tuple):
                raise CommandFailed(*answer)
            left.remove(pipe)
            yield answer


# ---- the clients


def _produce(pipe: Pipe, endpoint: Endpoint, plan: Plan, case: Case, run: int) -> None:
    with Connection(endpoint) as connection:
        pipe.send(None)
        pipe.send(Producer(connection, plan, case, run).run(pipe.recv()))
        with suppress(*FAILURES):
            connection.close()


@dataclass
class Producer:
    """Sends messages in batches, until ``plan.count`` messages are sent or ``plan.duration`` is over."""

    connection: Connection
    plan: Plan
    case: Case
    number: int  # number of the run

    def __post_init__(self) -> None:
        plan, case = self.plan, self.case
        self._fields = [("destination", plan.destination), *plan.headers]
        if case.persistent:
            self._fields.append(("persistent", "true"))
        whole = frame("SEND", self._fields, bytes(case.size))
        end = len(whole) - 2  # NUL and LF
        self._before = whole[: end - case.size]
        self._after = whole[end - case.size + STAMP.size :]
        most = case.window if case.receipts else MOST_AT_ONCE
        self._batch = max(1, min(BATCH // (len(self._before) + case.size), MOST_AT_ONCE, most))
        # for each receipt: number of messages sent up to its SEND, and the time of the SEND (ns)
        self._unconfirmed: list[tuple[int, int]] = []
        self._confirmed = self._sent = 0
        self._times = array("q")

    def run(self, begin: float) -> Counts:
        """Warm up, measure, and wait for the last receipts."""
        plan = self.plan
        if plan.warmup:
            self._send_until(begin, None)
        time.sleep(max(0.0, begin - time.monotonic()))
        warm, cpu = self._sent, time.process_time()
        self._times = array("q")
        started = time.monotonic()
        self._send_until(started + plan.duration if plan.count is None else math.inf, plan.count)
        self.connection.await_receipts()
        self._settle()
        ended = time.monotonic()
        busy = (time.process_time() - cpu) / max(ended - started, 1e-9)
        # a receipt shows that the broker has all messages: only then do the consumers get the number to expect
        self.connection.ask("SEND", self._fields, STAMP.pack(time.monotonic_ns(), 0) + bytes(8))
        return Counts(self._sent - warm, self._sent, started, ended, busy, rounded(self._times))

    def _send_until(self, end: float, count: int | None) -> None:
        """Send until the time ``end``, or ``count`` messages: at the rate of the plan, or as fast as possible."""
        rate, due = self.plan.rate, time.monotonic()
        left = sys.maxsize if count is None else count
        while left > 0 and due < end:
            now = time.monotonic()
            if due > now:
                self.connection.receive(due - now)
                self._settle()
                continue
            several = self._batch if rate is None else min(1 + int((now - due) * rate), MOST_AT_ONCE)
            several = min(several, left)
            self._send(several)
            left -= several
            due = time.monotonic() if rate is None else due + several / rate

    def _send(self, number: int) -> None:
        connection, every = self.connection, self.case.receipts
        now = time.monotonic_ns()
        stamped = self._before + STAMP.pack(now, self.number) + self._after
        if not every:
            self._sent += number
            connection.send(stamped * number)
            return
        parts = []
        for _ in range(number):
            self._sent += 1
            if self._sent % every:
                parts.append(stamped)
            else:
                receipt = b"receipt:%b\n\n" % connection.next_receipt().encode()
                head, _, body = stamped.partition(b"\n\n")
                parts.append(b"%b\n%b%b" % (head, receipt, body))
                self._unconfirmed.append((self._sent, now))
        connection.send(b"".join(parts))
        self._settle()
        while self._unconfirmed and self._sent - self._confirmed >= self.case.window:
            connection.await_receipts(len(self._unconfirmed) - 1)
            self._settle()

    def _settle(self) -> None:
        arrived = len(self._unconfirmed) - self.connection.unconfirmed
        if arrived > 0:
            now = time.monotonic_ns()
            for number, requested in self._unconfirmed[:arrived]:
                self._times.append(now - requested)
                self._confirmed = number
            del self._unconfirmed[:arrived]


def _consume(pipe: Pipe, endpoint: Endpoint, plan: Plan, case: Case, run: int) -> None:
    with Connection(endpoint) as connection:
        connection.ask("SUBSCRIBE", [("id", "0"), ("destination", plan.destination), ("ack", case.ack)])
        pipe.send(None)
        # several consumers of a queue share its messages: none of them knows how many it will receive
        alone = case.consumers == 1 or plan.destination.startswith(TOPICS)
        pipe.send(_receive(pipe, connection, case.ack, run, alone))
        with suppress(*FAILURES):
            connection.ask("UNSUBSCRIBE", [("id", "0")])
            connection.close()


def _receive(pipe: Pipe, connection: Connection, mode: str, run: int, alone: bool) -> Counts:
    """Receive messages. ``alone``: the consumer receives all messages sent, and ends when the last one has arrived.

    Any other consumer ends `IDLE` seconds after its last message.
    """
    unpack, length = STAMP.unpack_from, STAMP.size
    begin_ns, times, counts = sys.maxsize, array("q"), Counts()
    cpu, finished, last = 0.0, False, time.monotonic()
    expected: int | None = None
    while True:
        messages = connection.receive(0.05, most=0)
        now = time.monotonic_ns()
        if messages:
            last = now / 1e9
            for _, body in messages:
                if len(body) < length:
                    continue
                sent, number = unpack(body)
                if number != run:  # a message of an earlier run
                    continue
                counts.total += 1
                if sent >= begin_ns:
                    times.append(now - sent)
            if not times:
                cpu = time.process_time()
            _settle(connection, mode, messages)
        if not finished and pipe.poll():
            if counts.begin == 0:
                counts.begin = pipe.recv()
                begin_ns = int(counts.begin * 1e9)
            else:
                expected = pipe.recv()
                finished = True
        if finished and alone and expected is not None:
            if counts.total >= expected or now / 1e9 - last > STALLED:
                break
        elif finished and now / 1e9 - last > IDLE:
            break
    counts.messages = len(times)
    counts.end = last
    counts.busy = (time.process_time() - cpu) / max(last - counts.begin, 1e-9)
    counts.times = rounded(times)
    return counts


def _settle(connection: Connection, mode: str, messages: Sequence[tuple[Any, bytes]]) -> None:
    if mode == "client":
        connection.send(ack(messages[-1][0]))
    elif mode == "client-individual":
        connection.send(b"".join([ack(head) for head, _ in messages]))


# ---- times


def rounded(times: Iterable[int]) -> Counter[int]:
    """Round each time down, by less than 2 %, and count how often each rounded time occurs."""
    return Counter(value >> (shift := max(0, value.bit_length() - 7)) << shift for value in times)


def percentiles(times: Mapping[int, int]) -> dict[str, float] | None:
    """p50, p95, p99 and maximum of ``times`` in ms; None without times. ``times``: count of each time in ns."""
    if not times:
        return None
    values = sorted(times)
    reached = list(accumulate(times[value] for value in values))
    found = {}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        value = values[bisect_left(reached, share * reached[-1])]
        found[name] = round(max(value, 0) / 1e6, 4)
    return found


# ---- the report


def _title(case: Case) -> str:
    kind = "persistent" if case.persistent else "non-persistent"
    receipts = f", a receipt per {case.receipts}" if case.receipts else ""
    return f"{case.producers} → {case.consumers}, {case.size} bytes, ack {case.ack}, {kind}{receipts}"


TITLES = (
    "PROD", "CONS", "BYTES", "ACK", "RECEIPTS", "DURABLE", "SENT/S", "RECEIVED/S", "MB/S", "P50 MS", "P95 MS", "P99 MS",
    "MAX MS", "RECEIPT P99", "DRIVER",
)  # fmt: skip

#: Format of a line in the table of results.
ROW = "{:>4}  {:>4}  {:>8}  {:>10}  {:>8}  {:>7}  {:>9}  {:>10}  {:>7}  {:>8}  {:>8}  {:>8}  {:>8}  {:>11}  {:>7}"


def _print_row(row: Values, first: bool) -> None:
    if first:
        click.echo(ROW.format(*TITLES))
    latency, receipt = row["latency"] or {}, row["receiptTime"] or {}
    cells = [
        row["producers"],
        row["consumers"],
        row["size"],
        "individual" if row["ack"] == "client-individual" else row["ack"],
        f"{row['receipts']}/{row['window']}" if row["receipts"] else "-",
        "yes" if row["persistent"] else "no",
        f"{row['sentPerSecond']:,.0f}",
        f"{row['receivedPerSecond']:,.0f}",
        f"{row['receivedBytesPerSecond'] / 1e6:,.1f}",
        *(milliseconds(latency.get(name)) for name in ("p50", "p95", "p99", "max")),
        milliseconds(receipt.get("p99")),
        f"{row['driverBusy']:.0%}{'*' if row['driverBusy'] >= SATURATED else ''}",
    ]
    click.echo(ROW.format(*cells))
    if row["missing"]:
        warn(f"{row['missing']:,} messages were sent and not received")


def milliseconds(value: float | None) -> str:
    """Format milliseconds with about three digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# ---- the driver alone


def ceiling_of(size: int, seconds: float) -> JsonObject:
    """Measure the client alone: messages per second of one producer, and of one consumer.

    The peer of the producer discards the messages. The peer of the consumer sends prepared frames.
    """
    plan = Plan("/queue/stompring.bench", seconds, None, 0.0, None)
    row: JsonObject = {"size": size}
    for name, work, peer in (("send", _produce, _discard), ("receive", _consume, _supply)):
        case = Case(1, 1, size, "auto", 0, 1000, False)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = _fork.Process(target=peer, args=(listener, size), daemon=True)
            server.start()
            endpoint = Endpoint("127.0.0.1", listener.getsockname()[1])
            try:
                with clients([work], (endpoint, plan, case, 0)) as (pipe,):
                    interrupts = Interrupts()
                    list(_answers([pipe], interrupts, START, SILENT))
                    pipe.send(time.monotonic())
                    if work is _consume:
                        time.sleep(seconds)
                        pipe.send(0)
                    (counts,) = _answers([pipe], interrupts, START + seconds, SILENT)
            finally:
                server.kill()
                server.join()
        row[f"{name}PerSecond"] = round(counts.per_second)
    return row


def _discard(listener: socket.socket, size: int) -> None:
    """Act as a broker that discards all frames, and sends a RECEIPT if a frame requests one."""
    peer, _ = listener.accept()
    peer.recv(BATCH)
    peer.sendall(b"CONNECTED\nversion:1.2\n\n\0")
    buffer = bytearray(1 << 20)
    while length := peer.recv_into(buffer):
        if found := re.search(rb"\nreceipt:([0-9]+)\n", memoryview(buffer)[:length]):
            peer.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % found[1])


def _supply(listener: socket.socket, size: int) -> None:
    """Act as a broker that sends the same MESSAGE frames repeatedly."""
    peer, _ = listener.accept()
    peer.recv(BATCH)
    peer.sendall(b"CONNECTED\nversion:1.2\n\n\0")
    peer.recv(BATCH)  # SUBSCRIBE
    peer.sendall(b"RECEIPT\nreceipt-id:1\n\n\0")
    body = STAMP.pack(time.monotonic_ns() + 3_600_000_000_000, 0) + bytes(size - STAMP.size)
    several = max(1, (1 << 20) // (size + 200))
    headers = [("subscription", "0"), ("destination", "/queue/stompring.bench")]
    block = b"".join(
        frame("MESSAGE", [*headers, ("message-id", f"1-{number}"), ("timestamp", str(10**12 + number))], body)
        for number in range(several)
    )
    with suppress(OSError):
        while True:
            peer.sendall(block)


def _show_ceiling(sizes: Iterable[int], seconds: float, as_json: bool) -> None:
    rows = [ceiling_of(size, min(seconds, 10.0)) for size in sizes]
    lines = (
        f"{row['size']:,} bytes: one producer sends at most {row['sendPerSecond']:,} messages/s, "
        f"one consumer receives at most {row['receivePerSecond']:,} messages/s"
        for row in rows
    )
    report(as_json, rows, *lines)
