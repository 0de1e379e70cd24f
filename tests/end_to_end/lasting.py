"""A broker that is stopped or killed and started again on the same data: in memory, or in a process."""

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..service import Service

DURABLE = {"persistent": "true"}


class LastingBroker:
    """One data directory, and whatever broker runs on it at the moment: ``over`` memory or sockets."""

    def __init__(self, directory, opened, over="tcp"):
        self.data = directory / "data"
        self._config = directory / "broker.xml"
        self._document = {}
        self._running = None
        self._service = Service(directory, self.data) if over == "memory" else None
        self._opened = opened

    def start(self, **document):
        """Run it; takes what `broker_xml` takes, and without anything the configuration it had."""
        if document:
            self._document = document
        if self._service is not None:
            self._running = self._service.start(broker_xml(**self._document))
            return self
        self._config.write_text(broker_xml(**self._document))
        self._running = BrokerProcess(self._config, self.data).__enter__()
        return self

    def document(self, **changed):
        """Its configuration, for a reload, with something in it changed."""
        return broker_xml(**{**self._document, **changed})

    @property
    def running(self):
        """The one that runs."""
        assert self._running is not None
        return self._running

    @property
    def process(self):
        """That, where it is a process."""
        assert isinstance(self._running, BrokerProcess)
        return self._running

    @property
    def management(self):
        """Its management API."""
        return self.running.management()

    def connect(self, version="1.2", **headers):
        """A client of it."""
        dialogue = self.running.client(version)
        self._opened.callback(dialogue.close)
        dialogue.connect({name.replace("_", "-"): value for name, value in headers.items()})
        return dialogue

    def stop(self):
        """In good order."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def kill(self):
        """SIGKILL."""
        self.running.kill()
        self._running = None

    def again(self, how="kill", **document):
        """End it by ``kill`` or ``stop``, and start it again."""
        (self.kill if how == "kill" else self.stop)()
        return self.start(**document)

    def drain(self, queue, **headers):
        """Take all that is pending there, until the broker counts nothing but what is scheduled."""
        client, got = self.connect(), []
        client.subscribe(f"::{queue}", id="drain", ack="client", **headers)
        while True:
            try:
                message = client.inbox.pop(0) if client.inbox else client.frame(patience=0.1)
            except TimeoutError:
                found = self.management.queue(queue)
                if found["messageCount"] == found["scheduledCount"]:
                    break
                continue
            got += texts([message])
            client.ask("ACK", client.reference(message))
        client.disconnect()
        return got

    # ---- what is on disk

    def pages(self):
        """All page files, oldest first."""
        return sorted((self.data / "paging").rglob("*.page"), key=lambda path: path.name)

    def directories(self):
        """The directories of addresses."""
        paging = self.data / "paging"
        return sorted(paging.iterdir()) if paging.exists() else []


def texts(frames):
    """Their bodies, up to the first blank: the rest is padding."""
    return [frame.body.decode().partition(" ")[0] for frame in frames]


def padded(first, last, size=100):
    """Bodies that begin with the numbers from ``first`` to ``last``, and have this size."""
    return [f"{number} ".ljust(size, "x") for number in range(first, last + 1)]


def numbers(first, last):
    """What `texts` makes of them."""
    return [str(number) for number in range(first, last + 1)]


def take(client, queue, count, ack="ACK"):
    """Take so many messages, acknowledge each, and give nothing else back."""
    client.subscribe(queue, id="take", prefetch_count=1)
    taken = []
    for _ in range(count):
        message = client.message()
        taken += texts([message])
        client.answer(ack, message)
    client.ask("UNSUBSCRIBE", {"id": "take"})
    client.inbox.clear()
    return taken
