"""Who may ask what over HTTP: every route, the permissions that it needs, and what is answered without them."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from stompring.admin.access import MANAGEMENT
from stompring.security.login import FREE_FAILURES, MAX_DELAYED
from stompring.settings.model import PermissionType, SecuritySettingEntry

from ..security.hashers import QUICK
from .admin_server import AdminServer

P = PermissionType

#: Method and path of every route that needs something, its body, and what it needs.
NEEDS: list[tuple[str, str, Any, list[tuple[PermissionType, str]]]] = [
    ("GET", "/metrics", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/broker", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/ha", None, [(P.VIEW, MANAGEMENT)]),
    ("POST", "/api/v1/reload", None, [(P.EDIT, MANAGEMENT)]),
    ("GET", "/api/v1/queues", None, [(P.VIEW, MANAGEMENT)]),
    (
        "POST",
        "/api/v1/queues",
        {"name": "q2", "address": "a"},
        [(P.EDIT, "a"), (P.CREATE_DURABLE_QUEUE, "a"), (P.CREATE_DURABLE_QUEUE, "q2")],
    ),
    (
        "POST",
        "/api/v1/queues",
        {"name": "new", "durable": False},
        [(P.EDIT, "new"), (P.CREATE_ADDRESS, "new"), (P.CREATE_NON_DURABLE_QUEUE, "new")],
    ),
    ("GET", "/api/v1/queues/q", None, [(P.VIEW, "a")]),
    ("PATCH", "/api/v1/queues/q", {"ringSize": 5}, [(P.EDIT, "a")]),
    ("DELETE", "/api/v1/queues/q", None, [(P.EDIT, "a"), (P.DELETE_DURABLE_QUEUE, "a")]),
    ("POST", "/api/v1/queues/q/purge", None, [(P.EDIT, "a")]),
    (
        "POST",
        "/api/v1/queues/q/move",
        {"address": "new"},
        [(P.BROWSE, "a"), (P.EDIT, "a"), (P.SEND, "new"), (P.CREATE_ADDRESS, "new")],
    ),
    (
        "POST",
        "/api/v1/queues/q/copy",
        {"address": "new"},
        [(P.BROWSE, "a"), (P.SEND, "new"), (P.CREATE_ADDRESS, "new")],
    ),
    (
        "POST",
        "/api/v1/messages",
        {"address": "new"},
        [(P.SEND, "new"), (P.CREATE_ADDRESS, "new")],
    ),
    ("GET", "/api/v1/queues/q/messages/1", None, [(P.BROWSE, "a")]),
    ("GET", "/api/v1/queues/q/export", None, [(P.BROWSE, "a")]),
    ("POST", "/api/v1/queues/q/import", None, [(P.MANAGE, MANAGEMENT)]),
    ("GET", "/api/v1/dead-letters", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/queues/q/messages/1/body", None, [(P.BROWSE, "a")]),
    ("POST", "/api/v1/queues/q/retry", None, [(P.EDIT, "a")]),
    ("POST", "/api/v1/queues/q/remove", None, [(P.EDIT, "a")]),
    ("POST", "/api/v1/queues/q/expire", None, [(P.EDIT, "a")]),
    ("GET", "/api/v1/tasks", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/tasks/1", None, [(P.VIEW, MANAGEMENT)]),
    ("DELETE", "/api/v1/tasks/1", None, [(P.EDIT, MANAGEMENT)]),
    ("POST", "/api/v1/queues/q/trim", None, [(P.EDIT, "a")]),
    ("GET", "/api/v1/queues/q/messages", None, [(P.BROWSE, "a")]),
    ("DELETE", "/api/v1/queues/q/messages/1", None, [(P.EDIT, "a")]),
    ("GET", "/api/v1/queues/q/scheduled", None, [(P.BROWSE, "a")]),
    ("DELETE", "/api/v1/queues/q/scheduled/1", None, [(P.EDIT, "a")]),
    ("POST", "/api/v1/queues/q/scheduled/1/deliver", None, [(P.EDIT, "a")]),
    ("GET", "/api/v1/addresses", None, [(P.VIEW, MANAGEMENT)]),
    ("POST", "/api/v1/addresses", {"name": "new"}, [(P.EDIT, "new"), (P.CREATE_ADDRESS, "new")]),
    ("GET", "/api/v1/addresses/a", None, [(P.VIEW, "a")]),
    ("PATCH", "/api/v1/addresses/a", {"paused": True}, [(P.EDIT, "a")]),
    (
        "DELETE",
        "/api/v1/addresses/a?force=true",
        None,
        [(P.EDIT, "a"), (P.DELETE_ADDRESS, "a"), (P.DELETE_DURABLE_QUEUE, "a")],
    ),
    ("POST", "/api/v1/addresses/a/forget-duplicates", None, [(P.EDIT, "a")]),
    ("POST", "/api/v1/queues/q/groups/reset", None, [(P.EDIT, "a")]),
    ("GET", "/api/v1/diverts", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/diverts/x", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/bridges", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/bridges/x", None, [(P.VIEW, MANAGEMENT)]),
    *(
        ("POST", f"/api/v1/bridges/x/{what}", None, [(P.EDIT, MANAGEMENT)])
        for what in ("start", "stop", "pause", "resume")
    ),
    ("GET", "/api/v1/connections", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/connections/x", None, [(P.VIEW, MANAGEMENT)]),
    ("DELETE", "/api/v1/connections/x", None, [(P.EDIT, MANAGEMENT)]),
    ("GET", "/api/v1/consumers", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/events", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/drain", None, [(P.VIEW, MANAGEMENT)]),
    ("POST", "/api/v1/drain", None, [(P.EDIT, MANAGEMENT)]),
    ("POST", "/api/v1/undrain", None, [(P.EDIT, MANAGEMENT)]),
    ("GET", "/api/v1/loggers", None, [(P.VIEW, MANAGEMENT)]),
    ("PATCH", "/api/v1/loggers/stompring", {"level": None}, [(P.EDIT, MANAGEMENT)]),
    ("GET", "/api/v1/broker/history", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/connections/x/history", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/queues/q/history", None, [(P.VIEW, "a")]),
    ("GET", "/api/v1/addresses/a/history", None, [(P.VIEW, "a")]),
    ("GET", "/api/v1/queues/q/consumers", None, [(P.VIEW, "a")]),
    ("GET", "/api/v1/queues/q/settings", None, [(P.VIEW, "a")]),
    ("GET", "/api/v1/addresses/a/settings", None, [(P.VIEW, "a")]),
    ("GET", "/api/v1/plugins", None, [(P.VIEW, MANAGEMENT)]),
    ("GET", "/api/v1/retention", None, [(P.VIEW, MANAGEMENT)]),
    ("POST", "/api/v1/reload", {"dryRun": True}, [(P.EDIT, MANAGEMENT)]),
    ("GET", "/api/v1/users", None, [(P.MANAGE, MANAGEMENT)]),
    ("POST", "/api/v1/users", {"name": "new", "password": "x"}, [(P.MANAGE, MANAGEMENT)]),
    ("GET", "/api/v1/users/anna", None, [(P.MANAGE, MANAGEMENT)]),
    ("PATCH", "/api/v1/users/anna", {"roles": ["staff"]}, [(P.MANAGE, MANAGEMENT)]),
    ("DELETE", "/api/v1/users/none", None, [(P.MANAGE, MANAGEMENT)]),
    ("GET", "/api/v1/roles", None, [(P.MANAGE, MANAGEMENT)]),
    ("GET", "/api/v1/permissions?user=berta", None, [(P.MANAGE, MANAGEMENT)]),
    ("GET", "/api/v1/security-settings", None, [(P.VIEW, MANAGEMENT)]),
]

#: What anybody may who has logged in.
LOGIN_ALONE = [("GET", "/api/v1/openapi.json"), ("GET", "/api/v1/whoami"), ("GET", "/api/v1/permissions")]
PUBLIC = [("GET", "/health/live"), ("GET", "/health/ready")]


def server_where(tmp_path: Path, *given: tuple[PermissionType, str]) -> AdminServer:
    """A broker whose one user has these permissions, and no others anywhere."""
    users, roles = tmp_path / "users.properties", tmp_path / "roles.properties"
    users.write_text(f"anna={QUICK.hash('sécret:1')}\n", encoding="utf-8")
    roles.write_text("staff = anna\n")
    matches: dict[str, dict[PermissionType, frozenset[str]]] = {}
    for permission, address in given:
        matches.setdefault(address, {})[permission] = frozenset(("staff",))
    entries = tuple(SecuritySettingEntry(match, found) for match, found in matches.items())
    server = AdminServer(
        security_enabled=True,
        users_file=str(users),
        roles_file=str(roles),
        security_settings=entries,
        file=str(tmp_path / "broker.xml"),
    )
    server.queue("q", "a")
    return server


def basic(credentials: str = "anna:sécret:1") -> dict[str, str | None]:
    return {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}


def test_every_route_has_a_case() -> None:
    from stompring.admin.http import admin_routes

    def general(path: str) -> str:
        parts = path.partition("?")[0].split("/")
        for place, part in enumerate(parts):
            if place == 0 or not part:
                continue
            if parts[place - 1] in ("queues", "addresses", "users", "loggers", "bridges", "diverts"):
                parts[place] = "{name}"
            elif parts[place - 1] in ("messages", "scheduled", "connections", "tasks"):
                parts[place] = "{id}"
        return "/".join(parts)

    listed = {(method, general(path)) for method, path, *_ in NEEDS}  # some only with certain parameters
    assert listed | {*LOGIN_ALONE, *PUBLIC} == {(route.method, route.path) for route in admin_routes().all}
    assert {(route.method, route.path) for route in admin_routes().all if route.public} == set(PUBLIC)


@pytest.mark.parametrize(("method", "path", "body", "needed"), NEEDS)
def test_required_permissions_of_each_route(
    tmp_path: Path, method: str, path: str, body: Any, needed: list[tuple[PermissionType, str]]
) -> None:
    reply = server_where(tmp_path, *needed).ask(method, path, body, headers=basic())
    assert reply.status in (200, 201, 204, 404, 409), (
        reply.body
    )  # 404 and 409: it got as far as the thing itself
    for place, (permission, address) in enumerate(needed):
        server = server_where(tmp_path, *needed[:place], *needed[place + 1 :])
        problem = server.refused(403, method, path, body, headers=basic())
        assert f"User anna does not have permission='{permission.name}'" in problem["detail"]
        assert problem["detail"].endswith((f"address {address}", "address a (also required on address q2)"))
        assert server.directory.queue("q") and "new" not in server.directory.addresses


@pytest.mark.parametrize(("method", "path", "body", "needed"), NEEDS)
def test_manage_allows_everything(
    tmp_path: Path, method: str, path: str, body: Any, needed: list[tuple[PermissionType, str]]
) -> None:
    server = server_where(tmp_path, (P.MANAGE, MANAGEMENT))
    assert server.ask(method, path, body, headers=basic()).status in (200, 201, 204, 404, 409)


@pytest.mark.parametrize(("method", "path"), [*((method, path) for method, path, *_ in NEEDS), *LOGIN_ALONE])
@pytest.mark.parametrize("headers", [{}, basic("anna:wrong"), basic("nobody:x"), {"Cookie": "login=anna"}])
def test_request_without_login_gets_401(
    tmp_path: Path, method: str, path: str, headers: dict[str, str | None]
) -> None:
    server = server_where(tmp_path, (P.MANAGE, MANAGEMENT))
    reply = server.ask(method, path, headers=headers)
    assert reply.status == 401 and reply.headers["www-authenticate"].startswith("Basic ")
    assert reply.headers["content-type"] == "application/problem+json"
    assert server.directory.queue("q")


@pytest.mark.parametrize(("method", "path"), [*LOGIN_ALONE, *PUBLIC])
def test_requests_without_required_permission(tmp_path: Path, method: str, path: str) -> None:
    server = server_where(tmp_path)
    assert server.ask(method, path, headers=basic()).status == 200


def test_no_cookie_is_ever_set(tmp_path: Path) -> None:
    server = server_where(tmp_path, (P.MANAGE, MANAGEMENT))
    for method, path, body, _ in NEEDS:
        assert "set-cookie" not in server.ask(method, path, body, headers=basic()).headers


def test_entry_of_a_queue_applies(tmp_path: Path) -> None:
    server = server_where(tmp_path, (P.VIEW, "a"), (P.EDIT, "a::q"))
    assert (
        "for queue q on address a"
        in server.refused(403, "GET", "/api/v1/queues/q", headers=basic())["detail"]
    )
    assert server.ask("POST", "/api/v1/queues/q/purge", headers=basic()).status == 200
    assert server.ask("GET", "/api/v1/addresses/a", headers=basic()).status == 200


@pytest.mark.parametrize("path", ["/api/v1/queues/none", "/api/v1/addresses/none"])
def test_unknown_queue_gets_403_without_permission(tmp_path: Path, path: str) -> None:
    assert server_where(tmp_path).ask("GET", path, headers=basic()).status == 403
    assert server_where(tmp_path, (P.VIEW, "none")).ask("GET", path, headers=basic()).status == 404


def test_metrics_of_logins_and_refusals(tmp_path: Path) -> None:
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT), (P.SEND, "a"))
    server.ask("GET", "/metrics", headers=basic("anna:wrong"))
    server.ask("POST", "/api/v1/reload", headers=basic())
    client = server.stomp(login="anna", passcode="sécret:1")
    client.send("SUBSCRIBE", destination="/queue/a", id="1")
    text = server.ask("GET", "/metrics", headers=basic()).text
    assert 'stompring_logins_total{outcome="accepted"} 3.0' in text
    assert 'stompring_logins_total{outcome="refused"} 1.0' in text
    assert 'stompring_permission_refusals_total{permission="consume"} 1.0' in text
    assert 'stompring_permission_refusals_total{permission="edit"} 1.0' in text
    broker = server.get("/api/v1/broker", headers=basic())
    assert (broker["acceptedLoginCount"], broker["refusedLoginCount"]) == (4, 1)
    assert (broker["editRefusalCount"], broker["sendRefusalCount"]) == (1, 0)
    assert AdminServer().get("/api/v1/broker")["acceptedLoginCount"] is None


def test_verified_login_is_cached(tmp_path: Path) -> None:
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT))
    assert server.service.security is not None
    users = server.service.security.users
    checks: list[str] = []
    verify = users.verify
    users.verify = lambda name, password: checks.append(name) or verify(name, password)  # type: ignore
    for _ in range(5):
        assert server.ask("GET", "/metrics", headers=basic()).status == 200
    assert checks == ["anna"]
    server.ask("GET", "/metrics", headers=basic("anna:wrong"))
    server.ask("GET", "/metrics", headers=basic("anna:wrong"))
    assert len(checks) == 3, "what is wrong is checked each time"
    server.reactor.advance(10)
    server.ask("GET", "/metrics", headers=basic())
    assert len(checks) == 4, "security-invalidation-interval"
    file = tmp_path / "users.properties"
    file.write_text(f"anna={QUICK.hash('another')}\n")
    assert server.ask("GET", "/metrics", headers=basic()).status == 401, "the file has changed"


def test_repeated_failed_logins_are_throttled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT))
    caplog.set_level(logging.INFO)
    for _ in range(FREE_FAILURES):
        assert server.ask("GET", "/metrics", headers=basic("anna:wrong")).status == 401
    assert [line for line in caplog.messages if "delaying further logins" in line] == [
        f"{FREE_FAILURES} failed logins from 127.0.0.1: delaying further logins from there"
    ]

    def begin(credentials: str) -> Any:
        channel, wire = server.channel()
        told = basic(credentials)["Authorization"]
        channel.dataReceived(  # type: ignore[attr-defined]
            f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {told}\r\n\r\n".encode()
        )
        server.reactor.advance(0)
        return wire

    waiting = [begin("anna:sécret:1") for _ in range(MAX_DELAYED)]
    refused = begin("anna:sécret:1")
    assert not any(wire.value() for wire in waiting)
    reply = server.parse(refused.value())
    assert (reply.status, reply.headers["retry-after"]) == (429, "5")
    assert "too many failed logins from 127.0.0.1" in json.loads(reply.body)["detail"]
    server.reactor.advance(0.3)
    for _ in range(200):
        server.reactor.advance(0)
    assert all(wire.value().startswith(b"HTTP/1.1 200") for wire in waiting)


def test_log_has_permissions_and_no_passwords(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = server_where(tmp_path)
    server.ask("GET", "/metrics", headers=basic("anna:wrong marker"))
    server.ask("GET", "/metrics", headers=basic())
    text = "\n".join(caplog.messages)
    assert "User anna does not have permission='VIEW' on address activemq.management" in text
    assert "User name [anna] or password is invalid" in text
    assert "wrong marker" not in text and "sécret" not in text
