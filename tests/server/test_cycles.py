"""What is closed is freed by its reference counts: no cycle is left for Python's garbage collector.

A whole broker with its listeners runs on trial's reactor, and clients in a thread open and close one kind of thing
again and again. Meanwhile the collector is off; what it finds at the end is what would have piled up.
"""

import gc
import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater
from twisted.internet.threads import blockingCallFromThread, deferToThread
from twisted.trial import unittest

from stompring.server.service import BrokerService, open_data
from stompring.settings.broker_xml import read_broker_xml

from ..broker_document import PREFIXES, broker_xml
from ..certificates import Authority
from ..management import Answered, Management
from ..security.hashers import QUICK
from ..stomp_client import StompClient
from ..websocket_client import WebSocketClient, WebSocketDialogue

#: How often each thing is opened and closed: what is found more often than that divided by two is no accident.
TIMES = 8

#: Everything goes as soon as nobody needs it.
SETTINGS = {
    "#": {"max-delivery-attempts": -1},
    "ring.#": {"default-ring-size": 2},
    "all.#": {"default-non-destructive": "true"},
    "paged.#": {"max-size-messages": 2, "address-full-policy": "PAGE"},
    "full.#": {"max-size-messages": 1, "address-full-policy": "BLOCK"},
}

#: Headers of a transaction.
T = {"transaction": "t"}

#: Whose objects there must be none of.
OURS = ("stompring", "twisted", "websockets", "OpenSSL")

#: Twisted's pool of threads, which checks passwords, leaves one small function for each call that refers to itself.
NOT_OURS = "twisted.python.threadpool"


class Clients:
    """What clients do, in a thread. ``number`` is another one each time."""

    def __init__(self, service, authority):
        self.service = service
        self.ports = {name: port for name, _, port in service.listening}
        self.context = authority.trusting()
        self.management = Management(self.ports["http"])
        self.number = 0
        self._lasting = None

    @property
    def lasting(self):
        """A client that stays until all is done."""
        if self._lasting is None:
            self._lasting = self.client()
        self._lasting.inbox.clear()
        return self._lasting

    def end(self):
        """The lasting one goes."""
        if self._lasting is not None:
            self._lasting.close()

    def client(self, acceptor="stomp", **headers):
        client = StompClient(self.ports[acceptor])
        client.connect({name.replace("_", "-"): value for name, value in headers.items()})
        return client

    def delete(self, queue):
        """Delete a queue and whoever reads it."""
        directory = self.service.broker.directory
        blockingCallFromThread(reactor, partial(directory.delete_queue, queue, force=True))

    def leave(self):
        """The lasting client subscribes no more."""
        self.lasting.ask("UNSUBSCRIBE", {"id": "s"})

    def taken(self, client, number):
        """The next messages, acknowledged."""
        found = [client.message() for _ in range(number)]
        for message in found:
            client.answer("ACK", message)
        return found

    # ---- connections

    def connection_without_a_word(self):
        StompClient(self.ports["stomp"]).close()

    def connection_that_says_good_bye(self):
        client = self.client(heart_beat="10000,10000")
        client.ask("SEND", {"destination": "/queue/kept"})
        client.disconnect()

    def connection_that_is_lost(self):
        client = self.client(heart_beat="10000,10000")
        client.put("/queue/kept", "a", persistent="true")
        client.subscribe("/queue/kept")
        client.message()
        client.close()
        self.lasting.ask("BEGIN", {"transaction": f"t{self.number}"})

    def connection_that_makes_a_mistake(self):
        client = self.client()
        client.provoke()
        client.close()

    def connection_with_a_password(self):
        client = self.client("secured", login="anna", passcode="secret")
        client.subscribe(f"/queue/{self.number}")
        client.disconnect()

    def connection_with_a_wrong_password(self):
        client = StompClient(self.ports["secured"])
        client.send("CONNECT", {"login": "anna", "passcode": f"wrong {self.number}"})
        client.expect("ERROR")
        client.close()

    def connection_over_tls(self):
        client = StompClient(self.ports["tls"], context=self.context)
        client.connect()
        client.subscribe(f"/queue/{self.number}")
        client.disconnect()

    def connection_over_tls_that_is_lost(self):
        client = StompClient(self.ports["tls"], context=self.context)
        client.connect()
        client.close()

    def connection_that_speaks_no_tls(self):
        client = StompClient(self.ports["tls"])
        client.raw(b"CONNECT\n\n\0")
        client.closed()
        client.close()

    def websocket(self):
        client = WebSocketDialogue(self.ports["stomp"])
        client.connect()
        client.subscribe(f"/queue/{self.number}")
        client.ask("DISCONNECT")
        client.closed()
        client.close()

    def websocket_that_is_lost(self):
        client = WebSocketDialogue(self.ports["stomp"])
        client.connect()
        client.close()

    def websocket_that_is_refused(self):
        client = WebSocketClient(self.ports["stomp"])
        client.ask(sec_websocket_version="3")
        client.close()

    # ---- subscriptions, their queues and addresses

    def subscription_of_a_queue(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        client.put(queue, "a", "b", persistent="true")
        client.subscribe(queue)
        self.taken(client, 2)
        self.leave()

    def subscription_of_a_topic(self):
        client, topic = self.lasting, f"/topic/{self.number}"
        client.subscribe(topic, ack="auto")
        client.put(topic, "a")
        client.message("a")
        self.leave()

    def subscription_with_a_wildcard(self):
        client, topic = self.lasting, f"/topic/{self.number}"
        client.subscribe(f"{topic}.#")
        client.put(f"{topic}.a", "a")
        self.taken(client, 1)
        self.leave()

    def subscription_with_a_selector(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        client.put(queue, "a", colour="red")
        client.put(queue, "b", colour=f"blue{self.number}")
        for colour in (f"blue{self.number}", "red"):
            client.subscribe(queue, selector=f"colour = '{colour}'")
            self.taken(client, 1)
            self.leave()

    def subscription_that_is_durable(self):
        client = self.client(client_id=f"c{self.number}")
        client.subscribe("/topic/d", durable_subscription_name="n")
        client.put("/topic/d", "a", persistent="true")
        client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscription-name": "n"})
        client.disconnect()

    def subscription_to_a_temporary_queue(self):
        client = self.client()
        client.subscribe("/temp-queue/a")
        client.put("/temp-queue/a", "a", reply_to="/temp-queue/b")
        client.disconnect()

    def subscription_whose_queue_is_deleted(self):
        client, queue = self.client(), f"forced{self.number}"
        client.put(f"/queue/{queue}", "a", "b")
        client.subscribe(f"/queue/{queue}")
        self.delete(queue)
        [client.message(), client.message(), client.expect("ERROR")]
        client.close()

    def browser(self):
        client, queue = self.lasting, str(self.number)
        client.put(f"/queue/{queue}", "a", "b")
        client.subscribe(f"/queue/{queue}", browser="true", ack="auto")
        while client.message().get("browser") != "end":
            pass
        self.leave()
        self.delete(queue)

    # ---- what messages went through

    def messages_that_were_refused(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        client.put(queue, "a", "b", persistent="true")
        client.subscribe(queue)
        for message in client.messages("a", "b"):
            client.send("NACK", client.reference(message))
        self.taken(client, 2)
        self.leave()

    def messages_of_a_group(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        for group in ("g", "h"):
            client.put(queue, "a", "b", JMSXGroupID=group)
        client.subscribe(queue, prefetch_count="2")
        client.messages("a", "b")
        self.leave()
        self.delete(str(self.number))

    def messages_that_expire_and_fall_due(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        client.put(queue, "gone", expires=int(time.time() * 1000) + 1)
        client.put(queue, "late", AMQ_SCHEDULED_DELAY=5)
        time.sleep(0.01)
        client.subscribe(queue)
        assert client.message().body == b"late"
        self.leave()
        self.delete(str(self.number))

    def messages_in_a_ring(self):
        queue = f"ring.{self.number}"
        self.lasting.put(f"/queue/{queue}", *"abcd")
        self.delete(queue)

    def messages_that_stay(self):
        client, queue = self.lasting, f"all.{self.number}"
        client.put(f"/queue/{queue}", "a", "b")
        client.subscribe(f"/queue/{queue}")
        self.taken(client, 2)
        self.leave()
        self.delete(queue)

    def messages_in_pages(self):
        client, queue = self.lasting, f"/queue/paged.{self.number}"
        client.put(queue, *"abcdefgh", persistent="true")
        client.subscribe(queue)
        self.taken(client, 8)
        self.leave()

    def messages_in_pages_that_are_purged(self):
        queue = f"paged.{self.number}"
        self.lasting.put(f"/queue/{queue}", *"abcdefgh", persistent="true")
        self.delete(queue)

    def messages_with_an_id(self):
        client, topic = self.lasting, f"/topic/{self.number}"
        client.subscribe(topic)
        client.ask("SEND", {"destination": topic, "_AMQ_DUPL_ID": "a", "persistent": "true"})
        self.taken(client, 1)
        self.leave()

    def messages_of_a_blocked_producer(self):
        client, queue = self.client(), f"full.{self.number}"
        client.send("SEND", {"destination": f"/queue/{queue}"})
        client.send("SEND", {"destination": f"/queue/{queue}", "receipt": "1"})
        taker = self.client()
        taker.subscribe(f"/queue/{queue}", ack="auto")
        client.expect("RECEIPT")
        for one in (client, taker):
            one.close()

    def messages_of_a_blocked_producer_that_is_lost(self):
        client, queue = self.client(), f"full.{self.number}"
        client.put(f"/queue/{queue}", "a")
        client.send("SEND", {"destination": f"/queue/{queue}"})
        client.close()
        self.delete(queue)

    def messages_to_nobody(self):
        self.lasting.put(f"/topic/{self.number}", "a")

    # ---- transactions

    def transaction_that_is_committed(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        client.send("BEGIN", T)
        client.send("SEND", {"destination": queue, "transaction": "t", "persistent": "true"})
        client.ask("COMMIT", T)
        client.subscribe(queue)
        client.send("BEGIN", T)
        client.answer("ACK", client.message(), transaction="t")
        client.ask("COMMIT", T)
        self.leave()

    def transaction_that_is_aborted(self):
        client, queue = self.lasting, f"/queue/{self.number}"
        client.put(queue, "a")
        client.subscribe(queue)
        client.send("BEGIN", T)
        client.answer("ACK", client.message(), transaction="t")
        client.send("SEND", {"destination": queue, **T})
        client.ask("ABORT", T)
        self.leave()
        self.delete(str(self.number))

    def transaction_that_is_lost(self):
        client = self.client()
        client.send("BEGIN", T)
        client.ask("SEND", {"destination": f"/queue/{self.number}", "transaction": "t"})
        client.close()

    # ---- HTTP

    def request(self):
        self.management.text("/metrics")
        self.management.ask("GET", "/queues")

    def request_that_makes_a_queue(self):
        self.management.ask("POST", "/queues", {"name": str(self.number), "routingType": "ANYCAST"})
        self.management.ask("DELETE", f"/queues/{self.number}")

    def request_that_is_refused(self):
        try:
            self.management.ask("POST", "/queues", {"name": str(self.number), "ringSize": 0})
        except Answered as answered:
            assert answered.status == 400

    def request_that_is_broken_off(self):
        client = WebSocketClient(self.ports["http"])
        client.socket.sendall(b"POST /api/v1/queues HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        client.close()


class CycleTest(unittest.TestCase):
    """One test for each thing that `Clients` can open and close."""

    @inlineCallbacks
    def setUp(self):
        directory = Path(self.mktemp())
        directory.mkdir()
        authority = Authority(directory)
        authority.issue("broker.pem")
        (directory / "users").write_text(f"anna = {QUICK.hash('secret')}\n")
        (directory / "roles").write_text("everybody = anna\n")
        config = directory / "broker.xml"
        config.write_text(
            broker_xml(
                settings=SETTINGS,
                base={"#": {"default-address-routing-type": "ANYCAST"}},
                secure=self.secure,
                core="<users-file>users</users-file><roles-file>roles</roles-file>" if self.secure else "",
                acceptors=f'<acceptor name="secured">tcp://127.0.0.1:0?{PREFIXES}</acceptor>'
                f'<acceptor name="tls">ssl://127.0.0.1:0?keyStorePath=broker.pem;{PREFIXES}</acceptor>',
            )
        )
        configuration = read_broker_xml(str(config))
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        data = open_data(configuration, str(directory / "data"), reactor)
        self.service = BrokerService(configuration, reactor, data)
        yield self.service.start_listening()
        self.addCleanup(self.service.stop_listening)
        self.clients = Clients(self.service, authority)

    @property
    def secure(self):
        """Whether security is on: for those who have a password."""
        return "password" in self._testMethodName

    @inlineCallbacks
    def check(self, what):
        """Nothing of what was closed is garbage, and nothing of it is left."""
        yield self.repeat(what, 2)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        gc.set_debug(gc.DEBUG_SAVEALL)
        self.addCleanup(gc.set_debug, 0)
        yield self.repeat(what, TIMES)
        gc.collect()
        found, gc.garbage[:] = list(gc.garbage), []
        ours = Counter(name for each in found if (name := name_of(each)).startswith(OURS))
        ours = Counter({name: number for name, number in ours.items() if not name.startswith(NOT_OURS)})
        assert {name: number for name, number in ours.items() if number > TIMES // 2} == {}

    @inlineCallbacks
    def repeat(self, what, times):
        def work():
            try:
                for _ in range(times):
                    self.clients.number += 1
                    what(self.clients)
            finally:
                self.clients.end()
                self.clients._lasting = None

        yield deferToThread(work)
        until = time.monotonic() + 10
        while len(self.service.connections) and time.monotonic() < until:
            yield self.wait(0.01)
        assert len(self.service.connections) == 0
        synced = Deferred()
        self.service.broker.storage.when_synced(lambda: synced.callback(None))
        yield synced
        yield self.wait(0.05)

    @staticmethod
    def wait(seconds):
        return deferLater(reactor, seconds, lambda: None)


def name_of(found):
    """Whose an object is: the module and name of its class, or of the function that it is."""
    if isinstance(found, MethodType):
        return f"{type(found.__self__).__module__}.{found.__qualname__}"
    if isinstance(found, FunctionType | BuiltinFunctionType):
        return f"{found.__module__}.{found.__qualname__}"
    return f"{type(found).__module__}.{type(found).__qualname__}"


def _test_of(what):
    def test(self):
        return self.check(what)

    return test


for _name, _what in vars(Clients).items():
    if _name.split("_")[0] in (
        *("browser", "connection", "messages", "request", "subscription", "transaction", "websocket"),
    ):
        setattr(CycleTest, f"test_{_name}_leaves_no_cycle", _test_of(_what))
