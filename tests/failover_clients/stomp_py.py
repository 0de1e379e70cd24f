"""A producer and consumer by stomp.py, which goes on at whichever of its brokers answers.

``python -m tests.failover_clients.stomp_py QUEUE HOST:PORT…`` prints a line for each connection, receipt and message,
and ends after a line on its standard input, when each message that was sent has a receipt and has come back.
"""

import sys
import threading
from collections import OrderedDict
from contextlib import suppress

import stomp

#: Messages that wait for their receipt at a time.
WINDOW = 5


def say(line):
    """Print a line whole: two threads do."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class End(stomp.ConnectionListener):  # type: ignore[misc, name-defined]
    """Notices the end of one connection. That of an earlier one may come when the next is open."""

    def __init__(self, client, connection):
        self.client = client
        self.connection = connection

    def on_disconnected(self):
        client = self.client
        with client.changed:
            if client.connection is self.connection:
                client.lost = True
                client.changed.notify_all()


class Client(stomp.ConnectionListener):  # type: ignore[misc, name-defined]
    """Sends numbers. Whatever has no receipt when a connection is lost is sent again, with the same duplicate id."""

    def __init__(self, queue, brokers):
        self.queue = queue
        self.brokers = brokers
        self.changed = threading.Condition()
        self.unconfirmed = OrderedDict()
        self.seen = set()
        self.last = 0
        self.finishing = False
        self.lost = True
        self.connection = None

    def on_receipt(self, frame):
        with self.changed:
            self.unconfirmed.pop(int(frame.headers["receipt-id"]), None)
            self.changed.notify_all()
        say(f"receipt {frame.headers['receipt-id']}")

    def on_message(self, frame):
        say(f"message {frame.body} {frame.headers['message-id']}")
        with self.changed:
            self.seen.add(int(frame.body))
            self.changed.notify_all()
        with suppress(stomp.exception.StompException, OSError):  # the connection is lost: it comes again
            self.connection.ack(frame.headers["ack"])

    def connect(self):
        """The first of the brokers that accepts it; they are tried again and again."""
        while True:
            if self.connection is not None:
                self.connection.transport.disconnect_socket()  # or its subscription takes messages as well
            self.lost = False
            self.connection = stomp.StompConnection12(
                self.brokers,
                heartbeats=(2000, 2000),
                reconnect_attempts_max=-1,
                reconnect_sleep_initial=0.05,
                reconnect_sleep_increase=0,
            )
            self.connection.set_listener("client", self)
            self.connection.set_listener("end", End(self, self.connection))
            try:
                self.connection.connect(wait=True)
            except (stomp.exception.StompException, OSError):
                continue  # a proxy without a broker that is ready accepts the connection and closes it
            host, port = self.connection.transport.current_host_and_port
            say(f"connected {host}:{port}")
            return

    def run(self):
        while True:
            self.connect()
            with suppress(stomp.exception.StompException, OSError):
                self.connection.subscribe(self.queue, id="s", ack="client-individual")
                for number in list(self.unconfirmed):
                    self.send(number)
                if self.go_on():
                    self.connection.disconnect()
                    return

    def go_on(self):
        """Send until the connection is lost (False) or everything is done."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.lost or len(self.unconfirmed) < WINDOW, timeout=0.05)
                if self.lost:
                    return False
                if self.finishing and not self.unconfirmed and len(self.seen) == self.last:
                    return True
                if self.finishing or len(self.unconfirmed) == WINDOW:
                    self.changed.wait(0.01)
                    continue
                self.last += 1
                self.unconfirmed[self.last] = None
                self.changed.wait(0.005)
            self.send(self.last)

    def send(self, number):
        self.connection.send(
            self.queue,
            str(number),
            headers={"persistent": "true", "_AMQ_DUPL_ID": str(number)},
            receipt=str(number),
        )


def main():
    queue, *brokers = sys.argv[1:]
    client = Client(queue, [(host, int(port)) for host, port in (broker.split(":") for broker in brokers)])

    def finish():
        sys.stdin.readline()
        client.finishing = True

    threading.Thread(target=finish, daemon=True).start()
    client.run()
    say(f"done {client.last}")


if __name__ == "__main__":
    main()
