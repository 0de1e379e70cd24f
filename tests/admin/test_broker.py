"""``/health/…``, ``/api/v1/broker`` and ``/api/v1/reload``."""

import re

import pytest

import stompring
from stompring.broker.limits import LIMITS

from ..broker_document import anycast, broker_xml
from .admin_server import BEGIN, HTTP_PORT, STOMP_PORT, AdminServer


def test_live():
    assert AdminServer().get("/health/live") == {"status": "UP"}


LISTENERS = [
    {
        "acceptor": "stomp",
        "host": "127.0.0.1",
        "port": STOMP_PORT,
        "protocols": ["STOMP", "WebSocket"],
        "tls": False,
        "webSocket": "/",
    },
    {
        "acceptor": "http",
        "host": "127.0.0.1",
        "port": HTTP_PORT,
        "protocols": ["HTTP"],
        "tls": False,
        "webSocket": None,
    },
]


def test_ready():
    assert AdminServer().get("/health/ready") == {
        "status": "UP",
        "stopping": False,
        "draining": False,
        "listeners": LISTENERS,
        "missingListeners": [],
        "diskFault": None,
        "storeFault": None,
        "replicationFault": None,
        "loginFault": None,
    }


def test_not_ready_while_a_listener_is_missing(server):
    server.service.ports.pop(0)
    reply = server.ask("GET", "/health/ready")
    assert reply.status == 503
    assert reply.json["status"] == "DOWN"
    assert reply.json["missingListeners"] == ["stomp"]
    server.done("GET", "/health/live")


@pytest.mark.parametrize("which", ["disk", "store"])
def test_not_ready_while_nothing_can_be_written(server, which):
    room = {"disk": server.broker.disk, "store": server.broker.storage.write_limit}[which]
    room.set_fault("the disk of /d is full")
    reply = server.ask("GET", "/health/ready")
    assert reply.status == 503 and reply.json["status"] == "DOWN"
    assert reply.json[f"{which}Fault"] == "the disk of /d is full"
    server.done("GET", "/health/live")
    room.set_fault(None)
    assert server.get("/health/ready")["status"] == "UP"


def test_not_ready_once_the_broker_stops(server):
    server.service.stopping = True
    reply = server.ask("GET", "/health/ready")
    assert (reply.status, reply.json["stopping"]) == (503, True)


#: Fields of a store: those of `StoreFigures`.
OF_STORE = {
    "diskUsage": 0.21,
    "diskFree": 22,
    "diskFull": True,
    "storeFailing": True,
    "storeFailures": 1,
    "storeWaitingSize": 2,
    "storeBatches": 3,
    "storeBytesWritten": 4,
    "storeTime": 5,
    "journalFiles": 6,
    "journalSize": 7,
    "journalLiveSize": 8,
    "journalCompactions": 24,
    "journalRewritten": 9,
    "journalLost": 23,
    "retentionFiles": 25,
    "retentionSize": 26,
    "retentionDeleted": 27,
    "retentionDeletedNotIngested": 28,
    "pageBytesRead": 10,
    "damagedPages": 11,
    "lostMessageCount": 12,
    "dispatchBudget": 13,
    "dispatchUsed": 14,
    "dispatchPendingCacheSize": 15,
    "dispatchHeadCacheSize": 16,
    "dispatchDirectReferences": 17,
    "dispatchCacheReferences": 18,
    "dispatchWatermarkLag": 19,
    "dispatchBlocksRead": 20,
}


def test_the_broker():
    server = AdminServer(name="mine", global_max_size=1000)
    server.queue()
    server.stomp().put(b"x" * 50)
    server.advance(3)
    used = server.broker.memory.bytes
    shown = server.get("/api/v1/broker")
    unknown = {name for name, value in shown.items() if value is None}
    of_security = {name for name in unknown if re.search("(Login|Refusal)Count$", name)}
    assert unknown == {*OF_STORE, *of_security, "configurationFile"} and len(of_security) == 17
    assert shown == {
        "name": "mine",
        "version": stompring.__version__,
        "build": stompring.build(),
        "buildAdvice": stompring.ADVICE,
        "reactor": "TestReactor",
        "started": BEGIN * 1000,
        "uptime": 3000,
        "connectionCount": 1,
        "totalConnectionCount": 1,
        "addressCount": 1,
        "queueCount": 1,
        "heldMessageCount": 1,
        "addressMemoryUsage": used,
        "globalMaxSize": 1000,
        "globalMaxMessages": -1,
        "globalMaxConnections": server.service.connections.global_limit.limit,
        "globalMaxAddresses": 100_000,
        "globalMaxQueues": 100_000,
        "transactionSize": 0,
        "globalMaxTransactionSize": -1,
        "subscriptionSize": 0,
        "globalMaxSubscriptionSize": -1,
        "unfinishedSize": 0,
        "globalMaxUnfinishedSize": -1,
        "slowConnections": 0,
        "exhaustedConsumers": 0,
        "slowConsumers": 0,
        "stalledConsumers": 0,
        "slowConsumersNotified": 0,
        "slowConsumersKilled": 0,
        "managementRequestCount": 0,
        "managementFailureCount": 0,
        "notificationsSent": 0,
        "notificationsDropped": 0,
        **dict.fromkeys(unknown),
        "addressMemoryUsagePercentage": round(used / 10, 2),
        "listeners": LISTENERS,
        "policyErrors": [],
        "refusals": dict.fromkeys(LIMITS, 0),
        "stopping": False,
        "draining": False,
        "problems": [],
        "securityEnabled": False,
        "persistenceEnabled": False,
    }


def test_the_broker_with_a_store(server):
    server.set_store_figures()
    server.broker.disk.set_fault("the disk of /d is full")
    shown = server.get("/api/v1/broker")
    assert {name: shown[name] for name in OF_STORE} == OF_STORE


def test_no_limit_is_no_percentage():
    assert AdminServer().get("/api/v1/broker")["addressMemoryUsagePercentage"] == 0


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "broker.xml"
    file.write_text(broker_xml())
    return file


def test_reload(file):
    server = AdminServer(file=str(file))
    file.write_text(broker_xml(addresses=anycast("added", 'ring-size="4"')))
    answer = server.ask("POST", "/api/v1/reload").json
    assert answer["configurationFile"] == str(file) and answer["failed"] == []
    assert answer["applied"][-2:] == ["address added created", "queue added created"]
    # the service in this test was not started with what the file says of listeners
    assert "<acceptors>: acceptor stomp changed" in answer["restartRequired"]
    assert server.get("/api/v1/queues/added")["ringSize"] == 4
    assert server.get("/api/v1/queues/added")["configured"] is True
    (event,) = server.get("/api/v1/events?type[]=RELOADED")["data"]
    assert event["text"].startswith(f"configuration reloaded from {file}: ")


def test_without_a_file_there_is_nothing_to_reload(server):
    server.refused(409, "POST", "/api/v1/reload")
