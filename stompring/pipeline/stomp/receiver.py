"""From a broker to a spool: a thread that receives, writes, syncs, and only then acknowledges.

A message is forgotten by the broker after it is on disk here, and never before. What was written and not acknowledged
yet, when either side dies, comes again and is there twice: at least once.
"""

from __future__ import annotations

import logging
import threading
import time

from stompring.pipeline.stomp.connection import BrokerError, Connection, ConnectionFailed
from stompring.pipeline.stomp.options import SourceOptions
from stompring.pipeline.stomp.rows import to_record
from stompring.pipeline.stomp.spool import Position, Spool
from stompring.stomp.frames import Head

log = logging.getLogger(__name__)

#: Seconds between two tries to connect: the first, and the longest.
SOONEST, LATEST = 0.1, 10.0

#: Seconds in which the connection is looked at when nothing comes: for heart-beats.
LOOK = 1.0


def is_farewell(error: BrokerError) -> bool:
    """Whether an ERROR says that the broker stops: in good order that is how it goes away, and it may come back."""
    return "shutting down" in str(error).lower() or "shutdown" in str(error).lower()


class Receiver:
    """Receives from `start` to `stop`. A broker that cannot be reached at first, or refuses, is a ``failure``; one that
    goes away later is waited for."""

    def __init__(self, options: SourceOptions, spool: Spool) -> None:
        self._options = options
        self._spool = spool
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._taken = spool.head  # what Spark has been told of ends here
        self._heard = 0.0  # when something came last, or receiving began; monotonic seconds, 0 for not yet
        self._stopped = False
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="STOMP receiver", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait until it has. What was received and not written is not acknowledged, and comes again."""
        with self._changed:
            self._stopped = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.interrupt()
        self._thread.join()

    def check(self) -> None:
        """Raises what ended the receiving."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def taken(self, position: Position) -> None:
        """Spark has everything before this: there is room for more."""
        with self._changed:
            self._taken = max(self._taken, position)
            self._changed.notify_all()

    def wait_until_idle(self, idle: float, longest: float) -> None:
        """Return when nothing has come for ``idle`` seconds, or when the spool is full; after ``longest`` seconds of
        receiving anyway."""
        with self._changed:
            deadline = 0.0
            while self._failure is None and not self._stopped and not self._is_full():
                now = time.monotonic()
                if self._heard:
                    deadline = deadline or now + longest
                    end = min(self._heard + idle, deadline)
                    if now >= end:
                        return
                    self._changed.wait(end - now)
                else:
                    self._changed.wait()

    # ---- the thread

    def _run(self) -> None:
        try:
            self._receive()
        except Exception as reason:  # told where Spark asks next
            with self._changed:
                self._failure = reason
                self._changed.notify_all()

    def _receive(self) -> None:
        """Connect again and again, without end once that has worked, and before for as long as ``timeout`` says."""
        pause, until = SOONEST, time.monotonic() + self._options.endpoint.timeout
        while not self._is_stopped():
            begun = self._heard
            try:
                self._receive_once()
            except (BrokerError, ConnectionFailed) as reason:
                if self._is_stopped():
                    return
                if isinstance(reason, BrokerError) and not is_farewell(reason):
                    raise
                if not self._heard and time.monotonic() >= until:
                    raise
                pause = SOONEST if self._heard > begun else min(2 * pause, LATEST)
                log.warning("%s; trying again in %.1f s", reason, pause)
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, pause)

    def _receive_once(self) -> None:
        with Connection(self._options.endpoint) as connection:
            with self._changed:
                self._connection = connection
            connection.subscribe(self._options.destination, self._options.headers)
            log.info("Receiving %s from %s", self._options.destination, self._options.endpoint.address)
            self._note()
            coming: list[tuple[Head, bytes]] = []
            while not self._is_stopped():
                coming += connection.receive(0 if coming else LOOK)
                if coming and self._has_room():
                    self._keep(coming)
                    connection.acknowledge(coming[-1][0])
                    coming = []

    def _keep(self, messages: list[tuple[Head, bytes]]) -> None:
        now = time.time_ns() // 1_000_000
        self._spool.append([to_record(head, body, now) for head, body in messages])
        self._note()

    def _note(self) -> None:
        with self._changed:
            self._heard = time.monotonic()
            self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait for room, but no longer than the heart-beats of the connection can."""
        with self._changed:
            return (
                self._changed.wait_for(lambda: self._stopped or not self._is_full(), LOOK)
                and not self._stopped
            )

    def _is_full(self) -> bool:
        """Whether what Spark has not been told of has reached ``spoolLimit``."""
        spool = self._spool
        return spool.bytes_between(self._taken, spool.tail) >= self._options.spool_limit

    def _is_stopped(self) -> bool:
        with self._changed:
            return self._stopped
