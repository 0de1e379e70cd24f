"""A queue that is stuck: messages wait in it, consumers want them, and nothing comes."""

import asyncio

from ..management import Answered
from ..waiting import Deadline
from .audit import everything

#: Seconds in which something must happen in each queue that has consumers and messages for them.
PATIENCE = 10.0

#: What goes up when a message leaves a queue.
LEFT = ("messagesAcknowledged", "messagesExpired", "messagesKilled", "messagesReplaced")


async def find_stuck(world):
    """Watch every queue until something has happened in it, or nobody waits for anything there any more."""
    management = world.management
    before = await asyncio.to_thread(_could_deliver, management)
    deadline = Deadline(PATIENCE)
    while before:
        await asyncio.sleep(0.02)
        world.check()
        now = await asyncio.to_thread(_could_deliver, management)
        before = {
            name: queue for name, queue in before.items() if name in now and not _moved(queue, now[name])
        }
        if deadline.passed():
            for name, queue in before.items():
                world.ledger.fault(
                    "stuck", f"queue {name}: nothing has left it for {PATIENCE:.0f} s: {queue}"
                )
            return


def _moved(before, now):
    return any(before[counter] != now[counter] for counter in LEFT)


def _could_deliver(management):
    """The queues with messages that wait for no time, and a consumer that takes any message."""
    found = {}
    for queue in everything(management, "/queues", size=1000):
        waiting = queue["messageCount"] - queue["deliveringCount"] - queue["scheduledCount"]
        if waiting > 0 and queue["consumerCount"] and not queue["paused"]:
            try:
                detailed = management.queue(queue["name"])
            except Answered:
                continue  # it was deleted meanwhile
            if any(consumer["filter"] is None for consumer in detailed["consumers"]):
                found[queue["name"]] = detailed
    return found
