"""A line in which hosts take turns, so that one that sends many waits for itself and not others for it."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairLine(Generic[Item]):
    """At most ``most`` items: beyond that the host with most of them loses its last one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_host: OrderedDict[str, deque[Item]] = OrderedDict()  # who is next comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, host: str, item: Item) -> Item | None:
        """Let an item wait; returns the one that has to go for it, which may be itself."""
        self._by_host.setdefault(host, deque()).append(item)
        self._length += 1
        if self._length <= self._most:
            return None
        # of hosts with as many the one that comes now, so that none has to go for one who is no better
        most = max(self._by_host, key=lambda one: (len(self._by_host[one]), one == host))
        gone = self._by_host[most].pop()
        self._left(most)
        return gone

    def take(self) -> Item:
        """The next one, of the host whose turn it is. Raises `KeyError` where nobody waits."""
        host = next(iter(self._by_host), None)
        if host is None:
            raise KeyError("nobody waits")
        item = self._by_host[host].popleft()
        self._by_host.move_to_end(host)
        self._left(host)
        return item

    def _left(self, host: str) -> None:
        self._length -= 1
        if not self._by_host[host]:
            del self._by_host[host]
