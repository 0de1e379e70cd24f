"""What address-settings say about slow consumers, as data (Artemis, slow consumers)."""

from __future__ import annotations

from enum import StrEnum


class SlowConsumerPolicy(StrEnum):
    """What becomes of a consumer that is slow (``slow-consumer-policy``)."""

    NOTIFY = "NOTIFY"
    KILL = "KILL"


class ThresholdUnit(StrEnum):
    """What ``slow-consumer-threshold`` is counted in (``slow-consumer-threshold-measurement-unit``)."""

    MESSAGES_PER_SECOND = "MESSAGES_PER_SECOND"
    MESSAGES_PER_MINUTE = "MESSAGES_PER_MINUTE"
    MESSAGES_PER_HOUR = "MESSAGES_PER_HOUR"
    MESSAGES_PER_DAY = "MESSAGES_PER_DAY"

    @property
    def seconds(self) -> int:
        """How long the time is in which so many messages are wanted."""
        return {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}[self.value.rpartition("_")[2]]
