"""When a message that came back is delivered again (Artemis, undelivered messages)."""

from __future__ import annotations

from collections.abc import Callable

from stompring.settings.model import AddressSettings

#: max-redelivery-delay when it is not set: so many times redelivery-delay.
DEFAULT_CEILING = 10


def redelivery_delay(settings: AddressSettings, attempts: int, random: Callable[[], float]) -> int:
    """Milliseconds to wait before the delivery after ``attempts`` failed ones.

    redelivery-delay × multiplier^(attempts-1), at most max-redelivery-delay, then up or down by at most
    redelivery-collision-avoidance-factor of itself; ``random`` gives numbers from 0 to 1.
    """
    base = settings.redelivery_delay
    if base <= 0:
        return 0
    ceiling = settings.max_redelivery_delay if settings.max_redelivery_delay > 0 else base * DEFAULT_CEILING
    # the exponent is capped so that a float never overflows on its way to the ceiling
    delay = min(ceiling, base * settings.redelivery_delay_multiplier ** min(max(attempts, 1) - 1, 64))
    spread = settings.redelivery_collision_avoidance_factor
    if spread > 0:
        delay *= 1 + spread * (2 * random() - 1)
    return max(0, min(ceiling, int(delay)))


def lifetime(settings: AddressSettings, now: int, asked: int) -> int:
    """When a message expires (epoch ms, 0 = never), from what its sender asked for (Artemis, message expiry).

    no-expiry beats all. expiry-delay is for messages without an expiry; then min- and max-expiry-delay bound what
    there is, and give one (the max, else the min) where there is none.
    """
    if settings.no_expiry:
        return 0
    if not asked and settings.expiry_delay >= 0:
        return now + settings.expiry_delay
    least, most = settings.min_expiry_delay, settings.max_expiry_delay
    if not asked:
        bound = most if most >= 0 else least
        return now + bound if bound >= 0 else 0
    if most >= 0:
        asked = min(asked, now + most)
    if least >= 0:
        asked = max(asked, now + least)
    return asked
