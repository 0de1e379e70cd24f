"""What a client is told while the disk has not taken yet what it asked for: nothing that could turn out untrue."""

from stompring.broker.ports import NoStorage

from .session_fixture import Server


class SlowStorage(NoStorage):
    """A disk that takes everything, but only when it is told to."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    def when_synced(self, call, transactional=False):
        """Not before `sync`."""
        self.waiting.append(call)

    def sync(self):
        """All that was told is safe."""
        calls, self.waiting = self.waiting, []
        for call in calls:
            call()


def slow():
    server = Server()
    storage = server.broker.storage = SlowStorage()
    return server, server.client(client_id="me"), storage


def commands(client):
    client.server.pass_time()
    return [frame.command for frame in client.read()]


def test_a_durable_subscription_is_confirmed_when_it_would_survive():
    server, client, storage = slow()
    client.subscribe("/topic/news", durable_subscription_name="n", receipt="r")
    client.send(destination="/topic/news")
    assert commands(client) == []
    storage.sync()
    assert commands(client) == ["RECEIPT", "MESSAGE"]


def test_a_subscription_that_ended_meanwhile_gets_nothing():
    server, client, storage = slow()
    client.send()
    client.subscribe(receipt="r")
    client.say("UNSUBSCRIBE", id="s")
    storage.sync()
    assert commands(client) == ["RECEIPT"]
    assert server.queue().message_count == 1


def test_the_end_of_a_durable_subscription_is_confirmed_when_it_would_survive():
    _, client, storage = slow()
    client.subscribe("/topic/news", durable_subscription_name="n")
    client.say("UNSUBSCRIBE", id="s", durable_subscription_name="n", receipt="gone")
    assert commands(client) == []
    storage.sync()
    assert commands(client) == ["RECEIPT"]


def test_disconnect_waits_for_what_was_sent_before():
    server, client, storage = slow()
    client.send(persistent="true", receipt="sent")
    client.say("DISCONNECT", receipt="bye")
    client.send(b"late")
    assert commands(client) == [] and not client.wire.closed
    storage.sync()
    assert commands(client) == ["RECEIPT", "RECEIPT"] and client.wire.closed
    assert server.queue().message_count == 1


def test_a_message_that_is_due_comes_before_the_receipt_of_disconnect():
    _, client, storage = slow()
    client.send()
    client.subscribe(receipt="r")
    client.say("DISCONNECT", receipt="bye")
    storage.sync()
    assert commands(client) == ["RECEIPT", "MESSAGE", "RECEIPT"]


def test_a_connection_that_breaks_after_its_good_bye_is_one_failed_attempt():
    """DISCONNECT counts against max-delivery-attempts as a lost connection does, and both together count once."""
    server, client, _ = slow()
    client.subscribe(ack="client-individual")
    client.send()
    client.say("DISCONNECT", receipt="bye")
    client.lose()
    assert (
        server.queue().dispatcher.first().attempts == 1 and server.queue().dispatcher.first().deliveries == 1
    )


def test_a_client_that_has_left_is_not_silent():
    server, client, storage = slow()
    client.say("DISCONNECT", receipt="bye")
    server.pass_time(10 * 60_000)
    storage.sync()
    assert commands(client) == ["RECEIPT"]


def test_a_broker_that_stops_does_not_refuse_who_has_left():
    _, client, storage = slow()
    client.say("DISCONNECT", receipt="bye")
    storage.sync()
    client.session.refuse(RuntimeError("stopping"))
    assert commands(client) == ["RECEIPT"]
