"""Two brokers, an active one and a standby, at addresses that clients have in their lists."""

import signal
import time
from contextlib import ExitStack
from http.client import HTTPException
from typing import NamedTuple

from ..broker_document import PREFIXES, broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..management import Management
from ..ports import free_ports
from ..stomp_client import StompClient, spelled
from ..waiting import Deadline

#: How the standby has what the active broker stored.
SHARED, REPLICATED = "shared data directory", "replicated log on NATS"

#: The exit code of a broker that has lost its role to another one.
FENCED = 75


class Endpoints(NamedTuple):
    """The ports of one broker, the same in each of its lives."""

    stomp: int
    http: int
    websocket: int


class BrokerPair:
    """Broker 0 is active at first, broker 1 waits. Use as a context manager.

    ``options`` are those of ``stompring run`` for both, ``core`` what each has in its broker.xml. ``shared``: both
    have the same data directory; otherwise each has its own.
    """

    def __init__(self, directory, options, shared, core=lambda number: ""):
        ports = free_ports(6)
        self.endpoints = [Endpoints(*ports[:3]), Endpoints(*ports[3:])]
        self.directory = directory
        self.takeovers = 0
        self._options = options
        self._opened = ExitStack()
        self._active = 0
        self._brokers = [None, None]
        self._data = [directory / ("data" if shared else f"data-{number}") for number in (0, 1)]
        self._configs = [directory / f"broker-{number}.xml" for number in (0, 1)]
        for data in self._data:
            data.mkdir(exist_ok=True)  # a standby waits for a directory that is not there
        for number, endpoints in enumerate(self.endpoints):
            text = broker_xml(
                acceptors=f'<acceptor name="ws">ws://127.0.0.1:{endpoints.websocket}/stomp?{PREFIXES}</acceptor>',
                core=core(number),
            )
            text = text.replace("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{endpoints.stomp}")
            text = text.replace("http://127.0.0.1:0", f"http://127.0.0.1:{endpoints.http}")
            self._configs[number].write_text(text)

    def __enter__(self):
        try:
            self._begin(0).__enter__()
            self._begin(1)
            self.wait_until_standby()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.stop()

    def _begin(self, number):
        broker = BrokerProcess(self._configs[number], self._data[number], options=self._options)
        self._brokers[number] = broker
        return broker

    @property
    def active(self):
        """Where the active broker listens."""
        return self.endpoints[self._active]

    @property
    def standby(self):
        """Where the next one will listen."""
        return self.endpoints[1 - self._active]

    @property
    def management(self):
        """The management API of the active broker."""
        return Management(self.active.http)

    def connect(self, version="1.2", **headers):
        """A client of the active broker."""
        client = StompClient(self.active.stomp, version)
        self._opened.callback(client.close)
        client.connect(spelled(headers))
        return client

    def ready(self, endpoints):
        """The answer of ``/health/ready``: status and text; status 0 where nobody listens."""
        try:
            answer, text = Management(endpoints.http).exchange("GET", "/health/ready")
        except (OSError, HTTPException):
            return 0, ""
        return answer.status, text.decode()

    def wait_until_standby(self):
        """The standby answers, and not as the active does."""
        deadline = Deadline()
        while (found := self.ready(self.standby))[0] != 503 or "standby" not in found[1]:
            broker = self._brokers[1 - self._active]
            log = "\n".join(broker.log) if broker is not None else ""
            assert not deadline.passed(), (found, log)
            time.sleep(0.02)

    def take_over(self, how="kill"):
        """End the active broker and wait until the standby is ready. The first one is a standby then.

        ``kill``: SIGKILL. ``stop``: SIGTERM. ``freeze``: SIGSTOP, and SIGCONT when the standby is active.
        """
        ended, successor = self._active, 1 - self._active
        before, after = self._brokers[ended], self._brokers[successor]
        assert before is not None and after is not None
        process = before._process
        signals = {"kill": signal.SIGKILL, "stop": signal.SIGTERM, "freeze": signal.SIGSTOP}
        process.send_signal(signals[how])
        if how == "kill":
            assert process.wait(PATIENCE) == -signal.SIGKILL, "\n".join(before.log)
        after.__enter__()
        self._active = successor
        if how == "freeze":
            process.send_signal(signal.SIGCONT)
            assert process.wait(PATIENCE) == FENCED, "\n".join(before.log)
        elif how == "stop":
            assert process.wait(PATIENCE) == 0, "\n".join(before.log)
        self._brokers[ended] = None
        self._begin(ended)
        self.takeovers += 1

    def stop(self):
        """The standby first, so that it does not take over; both must stop well."""
        self._opened.close()
        if None not in self._brokers:
            self.wait_until_standby()  # a process that has just begun ends by the signal, and not in order
        with ExitStack() as stopping:
            for number in (self._active, 1 - self._active):
                if (broker := self._brokers[number]) is not None:
                    stopping.callback(broker.stop)
