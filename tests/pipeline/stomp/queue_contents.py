"""What is in a queue, taken at once."""

from ...end_to_end.lasting import texts


def drained_bodies(lasting, queue):
    """The bodies of all that waits there, which is taken away."""
    count = lasting.management.queue(queue)["messageCount"]
    client = lasting.connect()
    client.subscribe(f"::{queue}", id="taken", ack="auto")
    found = texts([client.message() for _ in range(count)])
    client.nothing()
    client.ask("DISCONNECT")
    client.close()
    return found


def url(lasting):
    """Where it is, as an option."""
    return f"127.0.0.1:{lasting.process.port}"
