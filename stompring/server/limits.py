"""Limits that depend on the machine: open files, connections, and memory for messages.

A process without a free file descriptor can accept nobody and write nothing, so connections are limited below that.
"""

from __future__ import annotations

import logging
import resource

from stompring.settings.machine_memory import default_global_max_size, machine_memory
from stompring.settings.model import BrokerConfiguration

log = logging.getLogger(__name__)

#: Where the system sets no limit, or none is known.
UNLIMITED_FILES = 1_048_576

#: Descriptors that are left for files, for the HTTP side and for what Python itself opens: of the journal and of each
#: address that pages some are open. At most half of what there is.
RESERVED_FILES = 1000

#: Bytes of memory that a connection is reckoned with. An idle one takes 4 KiB, one that is used may keep up to 256 KiB
#: of headers that come again, and as much waits in its outbox when it is slow: few of many do so at a time.
MEMORY_PER_CONNECTION = 64 * 1024

#: The share of the memory that connections may take.
CONNECTION_MEMORY_SHARE = 4


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard one, where that is possible. Returns what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as fault:
            log.warning("cannot raise the limit of open files, %d: %s", soft, fault)
    return open_file_limit()


def open_file_limit() -> int:
    """How many files and sockets this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED_FILES if soft == resource.RLIM_INFINITY else soft


def connections_for_files(available: int) -> int:
    """How many connections ``available`` descriptors are enough for, with all that must be opened besides."""
    return max(1, available - min(RESERVED_FILES, available // 2))


def default_connections(available: int, memory: int) -> int:
    """The default of ``global-max-connections``, by descriptors and memory."""
    return max(
        1, min(connections_for_files(available), memory // CONNECTION_MEMORY_SHARE // MEMORY_PER_CONNECTION)
    )


def max_connections(configured: int | None, memory: int) -> int:
    """``global-max-connections`` in force. A value beyond the descriptors is logged and used as it is."""
    available = open_file_limit()
    if configured is None:
        return default_connections(available, memory)
    if configured < 0 or configured > connections_for_files(available):
        log.warning(
            "global-max-connections is %d, and the limit of open files is %d: with more than %d connections the broker "
            "may be unable to open its files; raise the limit (ulimit -n, LimitNOFILE)",
            configured,
            available,
            connections_for_files(available),
        )
    return configured


UNITS = ("bytes", "KB", "MB", "GB", "TB")


def format_size(size: int) -> str:
    """A number of bytes for people, in 1024s as in broker.xml."""
    amount, unit = float(size), UNITS[0]
    for unit in UNITS:
        if amount < 1024 or unit == UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"


def describe_limits(configuration: BrokerConfiguration, memory: int | None = None) -> str:
    """What messages may take together; ``memory`` is what the process may use, measured by default."""
    memory = machine_memory() if memory is None else memory
    size = configuration.global_max_size
    if size < 0:
        text = "no limit (global-max-size -1)"
    elif size == default_global_max_size(memory):
        text = f"{format_size(size)}, a quarter of {format_size(memory)}"
    else:
        text = f"{format_size(size)} of {format_size(memory)} (global-max-size)"
    if configuration.global_max_messages >= 0:
        text += f", {configuration.global_max_messages} messages (global-max-messages)"
    if configuration.persistence_enabled:
        text += f"; {format_size(configuration.dispatch_memory)} for messages read back from pages"
    return f"memory for messages: {text}"


def describe_connections(limit: int) -> str:
    """How many STOMP connections there may be."""
    return "no limit (global-max-connections -1)" if limit < 0 else f"at most {limit}"
