"""``python -m tests.hostile.connection_pair PORT QUEUE``: a producer and a consumer in a process of their own, so that
an attack on the broker does not slow them directly.

Each round is a SEND with a receipt and a MESSAGE that is acknowledged with a receipt, twenty milliseconds apart at the
least. A line for each: when it ended (seconds of the monotonic clock, which processes share), and how long it took.
"""

import sys
import time

from ..stomp_client import StompClient

PAUSE = 0.02


def main():
    """Goes on until its output is closed."""
    port, queue = int(sys.argv[1]), sys.argv[2]
    producer, consumer = StompClient(port), StompClient(port)
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
