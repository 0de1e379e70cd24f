"""The answer to a change comes when the change would survive a crash, or says that it would not yet."""

from __future__ import annotations

from json import dumps
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from stompring.admin.http import SYNC_TIME

from ..session.test_slow_disk import SlowStorage
from .admin_server import AdminServer, Wire
from .test_openapi import ALL, BODIES, label, scene

__all__ = ["scene"]

CHANGES = [operation for operation in ALL if operation.method != "GET"]


def request(server, method, path, body=b""):
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    )
    head += "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
    content_type = "Content-Type: application/json\r\n" if body else ""
    return f"{head}{content_type}\r\n".encode() + body


class Asked:
    """A request whose answer has not come yet."""

    def __init__(self, server, method, path, body=b""):
        self.server = server
        self.method = method
        self.channel: Any
        self.wire: Wire
        self.channel, self.wire = server.channel()
        self.channel.dataReceived(request(server, method, path, body))
        self.wait(0)

    def wait(self, seconds):
        """Time passes, and everything that is due happens."""
        self.server.reactor.advance(seconds)
        for _ in range(100):
            self.server.reactor.advance(0)

    @property
    def reply(self):
        """The answer, where it has come."""
        return AdminServer.parse(self.wire.value(), self.method) if self.wire.value() else None

    def hang_up(self):
        """The client goes away."""
        self.channel.connectionLost(Failure(ConnectionLost()))


def slow(server):
    """From now on the disk syncs when it is told to."""
    storage = server.broker.storage = SlowStorage()
    return storage


@pytest.mark.parametrize("operation", CHANGES, ids=label)
def test_every_change_waits_for_its_sync(scene, operation):
    path = scene.path(operation)
    storage = slow(scene.server)
    body = BODIES.get(operation.identifier)
    asked = Asked(scene.server, operation.method, path, b"" if body is None else dumps(body).encode())
    asked.wait(1)
    assert asked.reply is None
    storage.sync()
    assert asked.reply is not None and asked.reply.status in (200, 201, 204)
    operation.check(asked.reply)
    asked.wait(SYNC_TIME)  # and nothing follows it


def test_get_does_not_wait_for_sync(scene):
    slow(scene.server)
    assert scene.server.ask("GET", "/api/v1/queues/q").status == 200


@pytest.mark.parametrize("operation", CHANGES, ids=label)
def test_unsynced_change_gets_503(scene, operation):
    path = scene.path(operation)
    storage = slow(scene.server)
    scene.server.service.store = SimpleNamespace(
        writer=SimpleNamespace(failing="cannot write /data/1.journal: No space left on device")
    )
    body = BODIES.get(operation.identifier)
    asked = Asked(scene.server, operation.method, path, b"" if body is None else dumps(body).encode())
    asked.wait(SYNC_TIME - 0.1)
    assert asked.reply is None
    asked.wait(0.2)
    assert asked.reply is not None and asked.reply.status == 503
    operation.check(asked.reply)
    assert "not on disk: cannot write /data/1.journal: No space left on device" in asked.reply.json["detail"]
    storage.sync()  # later, it is not answered again
    assert asked.reply.status == 503


def test_slow_disk_is_named_in_detail():
    server = AdminServer()
    slow(server)
    asked = Asked(server, "POST", "/api/v1/addresses", b'{"name": "a"}')
    asked.wait(SYNC_TIME)
    assert asked.reply is not None
    assert "not synced within 10 seconds" in asked.reply.json["detail"]
    assert "a" in server.directory.addresses


def test_conflict_waits_for_sync():
    """Who is told that a queue exists already relies on it as its maker does."""
    server = AdminServer()
    storage = slow(server)
    first = Asked(server, "POST", "/api/v1/queues", b'{"name": "q"}')
    second = Asked(server, "POST", "/api/v1/queues", b'{"name": "q"}')
    assert first.reply is None and second.reply is None
    storage.sync()
    assert first.reply is not None and second.reply is not None
    assert (first.reply.status, second.reply.status) == (201, 409)


def test_rejected_change_is_not_reported_as_made():
    server = AdminServer()
    slow(server)
    asked = Asked(server, "DELETE", "/api/v1/queues/none")
    asked.wait(SYNC_TIME)
    assert asked.reply is not None and asked.reply.status == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("nothing", b"", 404), ("queues", b"[", 400), ("queues", b'{"nmae": "q"}', 400)],
)
def test_invalid_request_is_rejected_at_once(path, body, status):
    server = AdminServer()
    slow(server)
    asked = Asked(server, "POST", f"/api/v1/{path}", body)
    assert asked.reply is not None and asked.reply.status == status


@pytest.mark.parametrize("late", [False, True], ids=["synced", "too-late"])
def test_client_disconnects_before_sync(late):
    server = AdminServer()
    storage = slow(server)
    asked = Asked(server, "POST", "/api/v1/queues", b'{"name": "q"}')
    asked.hang_up()
    if late:
        asked.wait(SYNC_TIME + 1)
    storage.sync()
    assert asked.wire.value() == b"" and "q" in server.directory.queues
    assert not server.reactor.getDelayedCalls()
