"""Ports for servers of the tests that must know theirs before they listen, or have it again after an end."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Ports that are free now, none of those that the system gives to connections and to servers that name no port."""
    found: list[int] = []
    with ExitStack() as opened:
        for port in random.SystemRandom().sample(range(20_000, 30_000), 200):
            if len(found) == count:
                return found
            with suppress(OSError):
                opened.enter_context(socket.create_server((address, port)))
                found.append(port)
    raise AssertionError("no ports are free")


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
