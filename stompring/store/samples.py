"""Counters of queues, written down every few seconds beside what is retained: so traffic is seen that no journal has.

A file of samples is a segment that can be read alone: names before they are used, all queues in its first sample, and
after that only those in which something has changed since the sample before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompring.broker.queue import Queue

from .encoder import RecordEncoder
from .record import SAMPLE, SAMPLE_ROW, Kind
from .retention import SAMPLES as FOLDER
from .segment import HEADER, SAMPLES, pack_header

if TYPE_CHECKING:
    from stompring.broker.broker import Broker

    from .retention import Retention
    from .writer import AppendOnlyFile

#: Queues that are looked at in one turn of the reactor: about a millisecond.
QUEUES_AT_ONCE = 500

#: Bytes, and milliseconds, after which the next file is begun: what a file has is read as a whole.
MAX_FILE_BYTES, MAX_FILE_AGE = 10 * 1024 * 1024, 3_600_000


class Samples:
    """Takes samples of a broker's queues every ``period`` ms."""

    def __init__(
        self, retention: Retention, broker: Broker, period: int, next_address: Iterator[int]
    ) -> None:
        """``next_address`` gives numbers to addresses that have none."""
        self._retention = retention
        self._next_address = next_address
        self._broker = broker
        self._period = period
        self._timer: Any = None
        self._stream: AppendOnlyFile | None = None
        self._encoder: RecordEncoder | None = None
        self._begun = 0  # epoch ms
        self._last: dict[int, bytes] = {}  # by queue, as it stands in the file
        self._slices: Iterator[None] | None = None
        self._next_number = count(retention.last_samples + 1).__next__

    def start(self) -> None:
        """Take the first one, and go on."""
        self._on_timer()

    def stop(self) -> None:
        """Take a last one, and complete the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._slices is not None:
            for _ in self._slices:
                pass
        for _ in self._sample(self._broker.clock.refresh()):
            pass
        self._close()

    def _on_timer(self) -> None:
        clock = self._broker.clock
        now = clock.refresh()
        self._timer = clock.steady.call_at(clock.steady.now + self._period, self._on_timer)
        if self._slices is None:  # else the last one is still under way
            self._slices = self._sample(now)
            self._go_on()

    def _go_on(self) -> None:
        if self._slices is not None and next(self._slices, self) is self:
            self._slices = None
        elif self._slices is not None:
            self._broker.clock.soon(self._go_on)

    def _sample(self, now: int) -> Iterator[None]:
        if self._stream is not None and (
            self._stream.size >= MAX_FILE_BYTES or now - self._begun >= MAX_FILE_AGE
        ):
            self._close()
        if self._stream is None:
            self._open(now)
        queues = list(self._broker.directory.queues.values())
        for at in range(0, len(queues), QUEUES_AT_ONCE):
            if at:
                yield
            self._write(now, queues[at : at + QUEUES_AT_ONCE])

    def _write(self, now: int, queues: list[Queue]) -> None:
        encoder, stream = self._encoder, self._stream
        if encoder is None or stream is None:
            return  # it was stopped meanwhile
        rows = []
        for queue in queues:
            row = self._row(encoder, queue)
            if self._last.get(queue.number) != row:
                self._last[queue.number] = row
                rows.append(row)
        if rows:
            encoder.footer.include(0, now)
            encoder.add(SAMPLE.pack(Kind.SAMPLE, 0, 0, len(rows), now) + b"".join(rows))
            stream.append(encoder.take(), False)

    @staticmethod
    def _row(encoder: RecordEncoder, queue: Queue) -> bytes:
        encoder.name_queue_alone(queue)
        return SAMPLE_ROW.pack(
            queue.number,
            encoder.name_address(queue.address),
            max(0, queue.ring_size),
            queue.message_count,
            queue.delivering,
            queue.scheduled_count,
            queue.paged_count,
            len(queue.consumers),
            queue.messages_added,
            queue.messages_acknowledged,
            queue.messages_expired,
            queue.messages_killed,
            queue.messages_replaced,
            queue.persistent_size,
        )

    def _open(self, now: int) -> None:
        number = self._next_number()
        path = samples_path(self._retention.directory, number)
        self._stream = self._retention.open(path)
        self._encoder = RecordEncoder(HEADER.size, self._next_address)
        self._begun, self._last = now, {}
        self._stream.append(pack_header(SAMPLES, 0, now, number, self._retention.identity), False)

    def _close(self) -> None:
        stream, encoder = self._stream, self._encoder
        self._stream = self._encoder = None
        if stream is not None and encoder is not None:
            stream.close(encoder.ending)
            self._retention.add_file(stream.path, stream.size)


def samples_path(directory: Path, number: int) -> Path:
    """Where a file of samples is."""
    return directory / FOLDER / f"{number:09d}.samples"
