"""``python -m tests.hostile.pair PORT QUEUE``: a producer and a consumer that mind their own business, in a process of
their own, so that an attack is not in their way but in the broker's.

Each round is a SEND with a receipt and a MESSAGE that is acknowledged with a receipt, twenty milliseconds apart at the
least. A line for each: when it ended (seconds of the monotonic clock, which processes share), and how long it took.
"""

from __future__ import annotations

import sys
import time

from ..dialogue import Dialogue

PAUSE = 0.02


def main() -> None:
    """Goes on until its output is closed."""
    port, queue = int(sys.argv[1]), sys.argv[2]
    producer, consumer = Dialogue(port), Dialogue(port)
    producer.connect()
    consumer.connect()
    consumer.subscribe(queue)
    number = 0
    while True:
        number += 1
        begun = time.monotonic()
        producer.put(queue, str(number))
        consumer.answer("ACK", consumer.message(str(number)))
        ended = time.monotonic()
        print(ended, ended - begun, flush=True)
        time.sleep(max(0.0, PAUSE - (ended - begun)))


if __name__ == "__main__":
    main()
