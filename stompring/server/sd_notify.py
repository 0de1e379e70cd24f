"""Notifications of a service manager: ready, reloading, stopping, alive (sd_notify(3) of systemd).

``NOTIFY_SOCKET`` names the datagram socket of the manager; if it is missing, the broker sends no notification. With
``WATCHDOG_USEC`` the manager restarts a service that is silent for this time. The reactor sends notifications at
intervals of half this time, so that the manager restarts a broker whose reactor hangs.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from twisted.internet.task import LoopingCall

log = logging.getLogger(__name__)

#: Maximum number of digits of a time in microseconds: 30,000 years.
MAX_DIGITS = 18


class SystemdNotifier:
    """The sender of notifications. If the socket of the manager fails, it logs one warning."""

    _ready = False
    _status = "ready"
    _failed = False

    def __init__(self, reactor: Any, environment: Mapping[str, str] | None = None) -> None:
        found = os.environ if environment is None else environment
        self._address = found.get("NOTIFY_SOCKET", "")
        self._watchdog = LoopingCall(self._send, "WATCHDOG=1")
        self._watchdog.clock = reactor
        self._interval = _watchdog_seconds(found) / 2

    def ready(self) -> None:
        """Notify that every listener is open and the store is recovered. Start the watchdog notifications."""
        self._begin("ready")

    def standby(self, reason: str) -> None:
        """Notify that the broker waits to become active: the manager counts the service as started. A later call with
        another reason changes the status.
        """
        self._begin(f"standby: {reason}")

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """Context manager: a thread sends watchdog notifications, because the reactor is busy with the recovery."""
        done = threading.Event()
        if self._ready:
            self._send("STATUS=recovering")
        if not self._watchdog.running:
            yield
            return

        def alive() -> None:
            while not done.wait(self._interval):
                self._send("WATCHDOG=1")

        thread = threading.Thread(target=alive, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _begin(self, status: str) -> None:
        self._ready = True
        self._status = " ".join(status.split())
        self._send(f"READY=1\nSTATUS={self._status}")
        if self._address and self._interval > 0 and not self._watchdog.running:
            self._watchdog.start(self._interval)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Context manager: the body reloads the configuration. Notify of the reload, then that the broker is ready."""
        if self._ready:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reloading")
        try:
            yield
        finally:
            if self._ready:
                self._send(f"READY=1\nSTATUS={self._status}")

    def stopping(self) -> None:
        """Notify that the broker stops. Watchdog notifications continue until the reactor ends."""
        self._ready = False
        self._send("STOPPING=1\nSTATUS=stopping")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            notify(self._address, state)
        except OSError as fault:
            if not self._failed:
                log.warning("cannot notify the service manager at %s: %s", self._address, fault)
            self._failed = True


def notify(address: str, state: str) -> None:
    """Send one notification to the socket at ``address``. Raises `OSError`."""
    # a leading @ stands for the abstract namespace of Linux
    address = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
        sending.setblocking(False)
        sending.sendto(state.encode(), address)


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return the seconds of silence after which the manager restarts this process; 0: the manager does not watch the
    process.
    """
    text = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    return int(text) / 1_000_000 if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0.0
