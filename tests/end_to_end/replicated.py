"""Brokers of one replicated log on a real NATS cluster, for tests."""

import json
import re
import shutil
import signal
import time
from contextlib import contextmanager
from xml.sax.saxutils import quoteattr

import pytest
from click.testing import CliRunner

from stompring.cli.main import main
from stompring.replication.engines import create_log, open_log
from stompring.settings.model import ReplicatedLogSettings

from ..broker_document import broker_xml
from ..broker_process import LISTENS, PATIENCE, BrokerProcess
from ..management import Answered, Management
from ..stomp_client import StompClient
from .steps import leave, receive, say

STANDBY = r"standby: following the replicated log .*, whose active broker is"

#: Addresses that page their messages at once.
PAGES = {"paged": {"max-size-bytes": "20000", "page-size-bytes": "10000", "address-full-policy": "PAGE"}}


class Member(BrokerProcess):
    """One broker of a log."""

    def port_of(self, acceptor):
        """The port of the active broker, once it listens; the last one that the log has."""
        self.wait_for_log(
            rf"STOMP listens on \S+:\d+ \(acceptor {acceptor}\)|HTTP listens .*acceptor {acceptor}"
        )
        return [
            int(found[1]) for line in self.log if (found := LISTENS.search(line)) and found[2] == acceptor
        ][-1]

    def client(self, version="1.2"):
        """A client, connected."""
        client = StompClient(self.port_of("stomp"), version)
        client.connect({"heart-beat": "0,0"})
        return client

    def put(self, *bodies):
        """Durable messages for the queue ``q``."""
        self.client().put("q", *bodies, persistent="true")

    def receive(self, *bodies):
        """The queue ``q`` begins with these messages; a client that goes on to receive."""
        client = self.client()
        receive(client, "q", *bodies)
        return client

    @property
    def management(self):
        """The HTTP interface of the active broker, or of the standby."""
        ports = [
            int(found[1]) for line in self.log if (found := re.search(r"HTTP listens on \S+:(\d+)", line))
        ]
        return Management(ports[-1])

    def unready(self):
        """Why ``/health/ready`` refuses."""
        with pytest.raises(Answered) as refused:
            self.management.text("/health/ready")
        assert refused.value.status == 503
        return dict(refused.value.problem)


class Brokers:
    """The brokers of one log, each with a directory of its own."""

    def __init__(self, settings, directory, user="", /, **document):
        self.settings = settings
        self.stream = settings.stream
        self.members = []
        self._directory = directory
        self.document = document
        self._attributes = {"url": settings.url, "stream": settings.stream}
        self._attributes |= {"user": user} if user else {"monitor": settings.monitor}

    def create(self, max_bytes=-1):
        """Make the log."""
        create_log(self.settings, max_bytes)

    @contextmanager
    def log(self):
        """The log, connected."""
        log = open_log(self.settings)
        try:
            log.connect()
            yield log
        finally:
            log.close()

    def lose_entries(self):
        """The engine has lost what it had confirmed: all entries of the journal but the last one."""
        with self.log() as log:
            counts = {key: count for key, count in log.counts().items() if key.startswith("journal/")}
            journal = max(counts, key=lambda key: counts[key])
            last = log.last(journal)
            assert last is not None and counts[journal] > 1
            log.purge(journal, last.sequence - 1)

    def request(self, command, broker=""):
        """Ask a broker for something as ``stompring ha`` does; without a name the active one."""
        deadline = (
            time.monotonic() + PATIENCE
        )  # a broker that has just become active asks for requests twice a second
        with self.log() as log:
            while not (answered := log.request(command, broker)) and time.monotonic() < deadline:
                time.sleep(0.1)
            return answered

    def config(self, name):
        """The broker.xml of a broker that was started."""
        return self._directory / f"{name}.xml"

    def plain(self, name):
        """A broker.xml without a log."""
        config = self._directory / f"{name}-plain.xml"
        config.write_text(broker_xml())
        return config

    def data(self, name):
        """The data directory of a broker."""
        return self._directory / f"{name}-data"

    def start(self, name, *options, **attributes):
        """Start a broker, and wait for nothing."""
        given = {**self._attributes, "broker": name, **attributes}
        words = " ".join(f"{key}={quoteattr(value)}" for key, value in given.items())
        config = self.config(name)
        core = f"<ha-policy><replicated-log {words}/></ha-policy>{self.document.get('core', '')}"
        document = {**self.document, "core": core}
        config.write_text(broker_xml(**document))  # type: ignore[arg-type]
        member = Member(config, self.data(name), options=options)
        self.members.append(member)
        return member

    def standby(self, name, *options, of="a"):
        """Start a broker, and wait until it follows another one."""
        member = self.start(name, *options)
        member.wait_for_log(f"{STANDBY} {of}")
        return member

    def stop(self):
        """End what still runs."""
        for member in self.members:
            member.terminate(9)
            member.exit_code()


@contextmanager
def brokers(cluster, stream, directory, max_bytes=-1, **document):
    """Brokers that are killed at the end, whatever has happened."""
    found = of_cluster(cluster, stream, directory, **document)
    found.create(max_bytes)
    try:
        yield found
    finally:
        found.stop()


def of_cluster(cluster, stream, directory, **document):
    """Brokers whose log is in NATS, and is not made yet."""
    url = "nats://" + ",".join(f"{node.address}:{node.port}" for node in cluster.nodes)
    settings = ReplicatedLogSettings(url, stream, "test", monitor=cluster.monitors)
    return Brokers(settings, directory, **document)


CHANGES = {
    "diverts": {"name": "audit", "address": "o", "forwardingAddresses": ["p"]},
    "bridges": {"name": "far", "queue": "later", "to": ["tcp://127.0.0.1:1"]},
    "address-settings/o": {"settings": {"maxDeliveryAttempts": 3}},
    "security-settings/o": {"permissions": {"send": ["a", "b"]}},
}


def changes(management):
    """What was changed at run time, by kind."""
    lists = {path: management.ask("GET", f"/{path.partition('/')[0]}")["data"] for path in CHANGES}
    return {
        path: [
            {name: each.get(name) for name in (*CHANGES[path], "match", "roles", "definedIn")}
            for each in found
        ]
        for path, found in lists.items()
    }


def killed_broker_is_replaced(pair):
    """Two takeovers, after a kill and after an orderly stop: every receipted message and change is there. `PAGES` are
    needed."""
    active = pair.start("a")
    client = active.client()
    for path, change in CHANGES.items():
        active.management.ask("PATCH" if "/" in path else "POST", f"/{path}", change)
    changed = changes(active.management)
    assert all(found[-1]["definedIn"] == "run time" for found in changed.values())
    client.put("q", *(f"m{number}" for number in range(200)), persistent="true")
    client.put("paged", *(f"{number:04}" * 500 for number in range(40)), persistent="true")
    client.subscribe("q")
    for number in range(50):
        client.answer("ACK", client.message(f"m{number}"))
    standby = pair.standby("b")
    assert standby.unready()["status"] == "STANDBY"
    active.terminate(signal.SIGKILL)
    standby.wait_for_log("is ready")
    assert json.loads(standby.management.text("/health/ready"))["status"] == "UP"
    assert changes(standby.management) == changed
    survivor = standby.receive(*(f"m{number}" for number in range(50, 200)))
    leave(survivor)
    receive(survivor, "paged", *(f"{number:04}" * 500 for number in range(40)))
    # the first one comes back without its directory, as a standby, and takes over in turn at once
    shutil.rmtree(pair.data("a"))
    again = pair.standby("a", of="b")
    survivor.put("q", "last", persistent="true")
    standby.stop()
    again.wait_for_log(r"active in the replicated log .*released by b")
    again.receive("last")
    again.stop()


def stopped_broker_exits_with_75(pair):
    """A broker that stands still while another takes over: it ends, and nobody hears anything from it."""
    active = pair.start("a")
    client = active.client()
    client.put("q", "one", persistent="true")
    standby = pair.standby("b")
    active.terminate(signal.SIGSTOP)
    standby.wait_for_log("is ready")
    survivor = standby.client()
    say(client, "q", b"two", persistent="true", receipt="late")
    client.send("SUBSCRIBE", {"id": "s", "destination": "q", "ack": "auto"})
    active.terminate(signal.SIGCONT)
    assert active.exit_code() == 75
    assert any("not active any more" in line for line in active.log)
    client.closed()  # neither a receipt nor a message came
    receive(survivor, "q", "one")
    survivor.nothing()


def data_directory_moves_into_the_log(pair):
    """``stompring ha init --from-data``: a log that was not made yet gets the messages of a broker without one."""
    alone = Member(pair.plain("a"), pair.data("a"))
    pair.members.append(alone)
    messages = [f"m{number}" for number in range(50)]
    alone.put(*messages)
    alone.stop()
    assert pair.start("a").exit_code() == 1
    words = ("ha", "init", "--from-data", "--data", str(pair.data("a")), "--config", str(pair.config("a")))
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0 and "is a local copy of the log now" in result.stdout, result.output
    other = pair.start("b")
    other.wait_for_log("is ready")
    other.receive(*messages)
    pair.start("a").wait_for_log("the local copy has entry [1-9]")
