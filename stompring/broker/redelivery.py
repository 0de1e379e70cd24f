"""Redelivery: when a message that came back is delivered again, and when not (Artemis, "Undelivered Messages")."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompring.settings.model import AddressSettings

from . import publish
from .storage import Reason

if TYPE_CHECKING:
    from .reference import Reference

log = logging.getLogger(__name__)

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


def redelivery_delay_of(ref: Reference) -> int:
    """Milliseconds until a message that came back may be delivered again."""
    queue = ref.queue
    return redelivery_delay(queue.address.settings, ref.attempts, queue.broker.random)


def remove_if_exhausted(ref: Reference) -> bool:
    """Remove a message from its queue if its last allowed attempt has failed; a copy goes to the dead-letter-address.

    In a queue of the dead-letter address itself messages stay, whatever the number of attempts.
    """
    queue = ref.queue
    settings = queue.address.settings
    limit = settings.max_delivery_attempts
    if limit <= 0 or ref.attempts < limit or settings.dead_letter_address == queue.address.name:
        return False
    queue.detach(ref)
    queue.messages_killed += 1
    with queue.broker.together():
        if publish.send_dead_letter(ref):
            hook = queue.hooks.dead_lettered
        else:
            hook = queue.hooks.killed
            log.warning(
                "message %d of queue %s dropped after %d failed deliveries: %s",
                ref.message.number,
                queue.name,
                ref.attempts,
                "no dead-letter-address is set"
                if settings.dead_letter_address is None
                else f"dead-letter-address {settings.dead_letter_address} has no queue for it",
                extra={"queue": queue.name, "address": queue.address.name},
            )
        if hook is not None:
            hook(ref)
        queue.drop(ref, Reason.KILLED)
    return True
