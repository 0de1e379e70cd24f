"""Size and number: large bodies, bursts, many connections at full speed. Nothing is lost, nothing out of order."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

from ..stomp_client import frame_bytes

MIB = 1024 * 1024


def test_16_mib_to_two_subscribers(connect, version, name):
    body = random.Random(1).randbytes(16 * MIB)
    digest = hashlib.sha256(body).digest()
    readers = [connect(version), connect(version)]
    for reader in readers:
        reader.subscribe(f"/topic/{name}", ack="client-individual")
    sender = connect(version)

    def read(reader):
        message = reader.message()
        reader.answer("ACK", message)
        return hashlib.sha256(message.body).digest()

    with ThreadPoolExecutor(3) as pool:
        got = [pool.submit(read, reader) for reader in readers]
        sender.put(f"/topic/{name}", body, content_length=len(body))
        assert [future.result() for future in got] == [digest, digest]


def test_a_burst_of_10_000(connect, name, management):
    count = 10_000
    sender, reader = connect(), connect()
    burst = b"".join(
        frame_bytes("SEND", {"destination": f"/queue/{name}", "number": n}, b"body %d" % n)
        for n in range(count)
    )
    sender.raw(burst + frame_bytes("SEND", {"destination": f"/queue/{name}", "receipt": "all"}, b"last"))
    sender.expect("RECEIPT", receipt_id="all")
    management.expect(name, messageCount=count + 1)
    reader.subscribe(f"/queue/{name}", ack="client", consumer_window_size=-1)
    for n in range(count):
        assert reader.message(b"body %d" % n)["number"] == str(n)
    reader.answer("ACK", reader.message("last"))
    management.expect(name, messageCount=0, messagesAcknowledged=count + 1)


def test_20_connections_at_full_speed(connect, name, management):
    pairs, count = 10, 2000
    producers = [connect() for _ in range(pairs)]
    consumers = [connect() for _ in range(pairs)]
    for consumer in consumers:
        consumer.subscribe(f"/queue/{name}", prefetch_count=100)

    def produce(number):
        for at in range(0, count, 100):
            frames = (
                frame_bytes("SEND", {"destination": f"/queue/{name}"}, b"%d %d" % (number, n))
                for n in range(at, at + 100)
            )
            producers[number].raw(b"".join(frames))
        producers[number].put(f"/queue/{name}", "end")

    def consume(consumer):
        got = []
        while True:
            frame = consumer.message()
            consumer.send("ACK", consumer.reference(frame))
            if frame.body == b"stop":
                return got
            got.append(frame.body)

    with ThreadPoolExecutor(2 * pairs) as pool:
        results = [pool.submit(consume, consumer) for consumer in consumers]
        for done in [pool.submit(produce, number) for number in range(pairs)]:
            done.result()
        management.expect(name, messageCount=0)
        for _ in consumers:  # each gets one: they take turns
            connect().put(f"/queue/{name}", "stop")
        received = [result.result() for result in results]
    bodies = [body for one in received for body in one if body != b"end"]
    assert sorted(bodies) == sorted(b"%d %d" % (p, n) for p in range(pairs) for n in range(count))
    for one in received:  # what one producer sent reaches a consumer in order
        for producer in range(pairs):
            numbers = [int(body.split()[1]) for body in one if body.startswith(b"%d " % producer)]
            assert numbers == sorted(numbers)


def test_a_slow_subscriber_of_a_topic_does_not_slow_the_others(connect, name):
    slow, fast, sender = connect(), connect(), connect()
    slow.subscribe(f"/topic/{name}", ack="auto")
    fast.subscribe(f"/topic/{name}", ack="auto")
    body = b"x" * 100_000
    for _ in range(10):
        sender.put(f"/topic/{name}", *[body] * 20)
        for _ in range(20):
            fast.message(body)
    for _ in range(200):  # and when it reads at last, it gets all
        slow.message(body)
