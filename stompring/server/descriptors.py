"""File descriptors: how many this process may have, and how many connections there are to be for that and for memory.

A process that has none left can accept nobody and write nothing: connections end before they are used up.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

#: Where the system sets no limit, or none is known.
ENOUGH = 1_048_576

#: Descriptors that are left for files, for the HTTP side and for what Python itself opens: of the journal and of each
#: address that pages some are open. At most half of what there is.
RESERVE = 1000

#: Bytes of memory that a connection is reckoned with. An idle one takes 4 KiB, one that is used may keep up to 256 KiB
#: of headers that come again, and as much waits in its outbox when it is slow: few of many do so at a time.
CONNECTION = 64 * 1024

#: The share of the memory that connections may take.
SHARE = 4


def raise_descriptors() -> int:
    """Raise the soft limit of open files to the hard one, where that is possible. Returns what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as fault:
            log.warning("the limit of open files stays at %d: %s", soft, fault)
    return descriptors()


def descriptors() -> int:
    """How many files and sockets this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def places_for_connections(available: int) -> int:
    """How many connections ``available`` descriptors are enough for, with all that must be opened besides."""
    return max(1, available - min(RESERVE, available // 2))


def default_connections(available: int, memory: int) -> int:
    """``global-max-connections`` where nobody says it: what there are descriptors and memory for."""
    return max(1, min(places_for_connections(available), memory // SHARE // CONNECTION))


def most_connections(said: int | None, memory: int) -> int:
    """``global-max-connections`` in force. More than there are descriptors for is said, and taken as it is."""
    available = descriptors()
    if said is None:
        return default_connections(available, memory)
    if said < 0 or said > places_for_connections(available):
        log.warning(
            "global-max-connections is %d, and %d files and sockets may be open: beyond %d connections there may be "
            "none left to write files with; raise the limit (ulimit -n, LimitNOFILE)",
            said,
            available,
            places_for_connections(available),
        )
    return said
