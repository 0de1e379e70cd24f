"""The memory that a broker takes for messages, told in the log at the start: defaults depend on the machine."""

from __future__ import annotations

from stompring.settings.machine_memory import default_global_max_size, machine_memory
from stompring.settings.model import BrokerConfiguration

UNITS = ("bytes", "KB", "MB", "GB", "TB")


def shown_size(size: int) -> str:
    """A number of bytes for people, in 1024s as in broker.xml."""
    amount, unit = float(size), UNITS[0]
    for unit in UNITS:
        if amount < 1024 or unit == UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"


def describe_limits(configuration: BrokerConfiguration, memory: int | None = None) -> str:
    """What messages may take together; ``memory`` is what the process may use, asked for where it is not given."""
    memory = machine_memory() if memory is None else memory
    size = configuration.global_max_size
    if size < 0:
        text = "no limit (global-max-size -1)"
    elif size == default_global_max_size(memory):
        text = f"{shown_size(size)}, a quarter of the {shown_size(memory)} that there are"
    else:
        text = f"{shown_size(size)} of {shown_size(memory)} (global-max-size)"
    if configuration.global_max_messages >= 0:
        text += f", {configuration.global_max_messages} messages (global-max-messages)"
    if configuration.persistence_enabled:
        text += f"; for what is read back from pages {shown_size(configuration.dispatch_memory)}"
    return f"memory for messages: {text}"


def describe_connections(limit: int) -> str:
    """How many STOMP connections there may be."""
    return "no limit (global-max-connections -1)" if limit < 0 else f"at most {limit}"
