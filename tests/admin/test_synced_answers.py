"""The answer to a change comes when the change would survive a crash, or says that it would not yet."""

from types import SimpleNamespace

import pytest
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from stompring.admin.api import SYNC_TIME
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.model import (
    AddressSettingEntry,
    BridgeConfiguration,
    Connector,
    DivertConfiguration,
    PermissionType,
    Property,
    SecuritySettingEntry,
    TransformerConfiguration,
)

from ..broker_document import broker_xml, everything, permitted
from ..docs.http_reference import ROUTES
from ..session.test_slow_disk import SlowStorage
from .admin_server import AdminServer, login_header, secured
from .described import check

CHANGES = [key for key in ROUTES if key[0] != "GET"]


class Scene:
    """A broker in which every change has something to do."""

    def __init__(self, tmp_path):
        file = tmp_path / "broker.xml"
        core = f"<security-settings>{everything(role='staff')}{permitted('other', {})}</security-settings>"
        file.write_text(broker_xml(core=core))
        self.server = secured(
            tmp_path,
            {"anna": "x", "berta": "x"},
            "staff = anna\nothers = berta\n",
            SecuritySettingEntry("#", dict.fromkeys(PermissionType, frozenset(("staff",)))),
            file=str(file),
            document=read_broker_xml(file).document,
            global_max_size=1_000_000,
            address_settings=(AddressSettingEntry("a", {"dead_letter_address": "free"}),),
            bridges=(BridgeConfiguration("q", (Connector("c", "127.0.0.1", 1),), "q"),),
        )
        self.server.headers = login_header("anna", "x")
        self.server.queue("q", "a", filter="colour <> 'x'", user="anna", ring_size=50)
        self.server.queue("free")
        self.client = self.server.stomp(**{"client-id": "c", "login": "anna", "passcode": "x"})
        for number in range(4):
            self.client.put(b"\xff" if number else b"x", "/queue/a", colour="red")
        delay = {"AMQ_SCHEDULED_DELAY": "60000", "AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "3"}
        self.client.put(b"later", "/queue/a", colour="red", **delay)
        self.client.subscribe("a::q", ack="client-individual", prefetch_count="1", selector="colour = 'red'")
        letter = {"_AMQ_ORIG_ADDRESS": "a", "_AMQ_ORIG_QUEUE": "q", "stompring-imported": "true"}
        self.client.put(b"dead", "/queue/free", **letter)
        transformer = TransformerConfiguration((Property("k", "v"),), ("x",))
        divert = DivertConfiguration("d", "elsewhere", ("b", "c"), "k = '1'", transformer=transformer)
        self.server.broker.diverts.put(divert)
        self.server.service.tasks.new("move", "q", None)
        self.server.done("POST", "/api/v1/queues/q/remove", {"filter": "colour = 'x'"})

    def path(self, key):
        """The route's path with names of things that are there."""
        operation, path = ROUTES[key].operation, key[1]
        queue = "free" if operation == "deleteQueue" else "q"
        name = (
            {
                "address-settings": "%23",
                "addresses": "a",
                "bridges": "q",
                "diverts": "d",
                "loggers": "websockets",
                "queues": queue,
                "security-settings": "other",
                "users": "berta",
            }.get(path.split("/")[3], "")
            if "{" in path
            else ""
        )
        kind = "scheduled" if "scheduled" in path else "messages"
        identifier = self.client.session.number
        if name:
            page = self.server.get(f"/api/v1/queues/q/{kind}")
            identifier = page["data"][0]["messageID"]
        elif path.startswith("/api/v1/tasks"):
            identifier = "1"
        force = "?force=true" if operation == "deleteAddress" else ""
        return path.replace("{name}", name).replace("{id}", identifier) + force


BODIES = {
    "createQueue": {"name": "new", "address": "a", "ringSize": 5},
    "changeQueue": {"ringSize": 1, "paused": False},
    "changeLogger": {"level": None},
    "purgeQueue": {"filter": "colour = 'red'"},
    "moveMessages": {"address": "free"},
    "changeMessagesPriority": {"priority": 9},
    "sendMessages": {"address": "free", "body": "x"},
    "copyMessages": {"queue": "free"},
    "createAddress": {"name": "new", "routingTypes": ["ANYCAST"]},
    "changeAddress": {"paused": True},
    "createDivert": {"name": "e", "address": "e", "forwardingAddresses": ["f"]},
    "changeDivert": {"address": "e", "forwardingAddresses": ["b"]},
    "createBridge": {"name": "b", "queue": "q", "to": ["tcp://127.0.0.1:1"]},
    "changeAddressSetting": {"settings": {"maxSizeMessages": 5}},
    "changeSecuritySetting": {"permissions": {"send": ["staff"]}},
    "createUser": {"name": "clara", "password": "x", "roles": ["staff"]},
    "changeUser": {"password": "y", "roles": ["staff", "others"]},
}


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


class Asked:
    """A request whose answer has not come yet."""

    def __init__(self, server, method, path, body=None):
        self.server = server
        self.method = method
        self.channel, self.wire = server.begin(method, path, body)
        self.wait(0)

    def wait(self, seconds):
        """Time passes, and everything that is due happens."""
        self.server.advance(seconds)
        self.server.advance(0, 100)

    @property
    def reply(self):
        """The answer, where it has come."""
        return AdminServer.parse(self.wire.value(), self.method) if self.wire.value() else None

    def hang_up(self):
        """The client goes away."""
        self.channel.connectionLost(Failure(ConnectionLost()))


def slow(server):
    """From now on the disk syncs when it is told to."""
    server.broker.storage = storage = SlowStorage()
    return storage


@pytest.mark.parametrize("key", CHANGES, ids=" ".join)
def test_every_change_waits_for_its_sync(scene, key):
    path = scene.path(key)
    storage = slow(scene.server)
    asked = Asked(scene.server, key[0], path, BODIES.get(ROUTES[key].operation))
    asked.wait(1)
    assert asked.reply is None
    storage.sync()
    assert asked.reply.status in (200, 201, 204)
    check(key[0], path, asked.reply)
    asked.wait(SYNC_TIME)  # and nothing follows it


def test_get_does_not_wait_for_sync(scene):
    slow(scene.server)
    scene.server.done("GET", "/api/v1/queues/q")


@pytest.mark.parametrize("key", CHANGES, ids=" ".join)
def test_unsynced_change_gets_503(scene, key):
    path = scene.path(key)
    storage = slow(scene.server)
    scene.server.service.store = SimpleNamespace(
        writer=SimpleNamespace(failing="cannot write /data/1.journal: No space left on device")
    )
    asked = Asked(scene.server, key[0], path, BODIES.get(ROUTES[key].operation))
    asked.wait(SYNC_TIME - 0.1)
    assert asked.reply is None
    asked.wait(0.2)
    assert asked.reply.status == 503
    check(key[0], path, asked.reply)
    assert "not on disk: cannot write /data/1.journal: No space left on device" in asked.reply.json["detail"]
    storage.sync()  # later, it is not answered again
    assert asked.reply.status == 503


def test_slow_disk_is_named_in_detail(server):
    slow(server)
    asked = Asked(server, "POST", "/api/v1/addresses", {"name": "a"})
    asked.wait(SYNC_TIME)
    assert "not synced within 10 seconds" in asked.reply.json["detail"]
    assert "a" in server.directory.addresses


def test_conflict_waits_for_sync(server):
    """Who is told that a queue exists already relies on it as its maker does."""
    storage = slow(server)
    first = Asked(server, "POST", "/api/v1/queues", {"name": "q"})
    second = Asked(server, "POST", "/api/v1/queues", {"name": "q"})
    assert first.reply is None and second.reply is None
    storage.sync()
    assert first.reply is not None and second.reply is not None
    assert (first.reply.status, second.reply.status) == (201, 409)


def test_rejected_change_is_not_reported_as_made(server):
    slow(server)
    asked = Asked(server, "DELETE", "/api/v1/queues/none")
    asked.wait(SYNC_TIME)
    assert asked.reply.status == 404


@pytest.mark.parametrize(
    "path, body, status",
    [("nothing", None, 404), ("queues", [], 400), ("queues", {"nmae": "q"}, 400)],
)
def test_invalid_request_is_rejected_at_once(server, path, body, status):
    slow(server)
    assert Asked(server, "POST", f"/api/v1/{path}", body).reply.status == status


@pytest.mark.parametrize("late", [False, True], ids=["synced", "too-late"])
def test_client_disconnects_before_sync(server, late):
    storage = slow(server)
    asked = Asked(server, "POST", "/api/v1/queues", {"name": "q"})
    asked.hang_up()
    if late:
        asked.wait(SYNC_TIME + 1)
    storage.sync()
    assert asked.wire.value() == b"" and "q" in server.directory.queues
    assert not server.reactor.getDelayedCalls()
