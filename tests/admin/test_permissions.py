"""The permissions of all operations through all doors, and the answers without permission."""

import json
import logging
from functools import partial
from itertools import product

import pytest

from stompring.admin.api import MANAGEMENT
from stompring.admin.http import admin_routes
from stompring.admin.management import OPERATIONS as MANAGEMENT_OPERATIONS
from stompring.security.access import FREE_FAILURES, MAX_DELAYED
from stompring.session.commands import VERBS
from stompring.settings.model import DivertConfiguration, PermissionType, SecuritySettingEntry

from .admin_server import AdminServer, login_header, path, pick, secured
from .permission_table import (
    EDITED,
    HTTP,
    INTERNAL,
    LOGIN_ALONE,
    NOTIFIED,
    OF_THE_BROKER,
    OF_THE_CONNECTION,
    OPERATIONS,
    OWN,
    PUBLIC,
    STOMP,
    TEMPORARY,
    VALUES,
    VIEWED,
    Scene,
)

P = PermissionType


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("scene"))


# ---- the table is complete


def test_every_route_is_in_the_table():
    """A new route needs a row in `permission_table.HTTP`, or in `OF_THE_BROKER` if it has no queue or address."""
    known = {operation.covers for operation in HTTP} | {*OF_THE_BROKER, *LOGIN_ALONE, *PUBLIC}
    assert known == {(route.method, route.path) for route in admin_routes().all}
    assert {(route.method, route.path) for route in admin_routes().all if route.public} == set(PUBLIC)


def test_every_command_is_in_the_table():
    """A new command needs rows in `permission_table.STOMP`, or a place in `OF_THE_CONNECTION`."""
    known = {operation.covers for operation in STOMP}
    assert known | OF_THE_CONNECTION == {verb.decode() for verb in VERBS}
    assert not known & OF_THE_CONNECTION


def test_every_operation_of_the_management_is_in_the_table():
    """A new operation needs a place in `permission_table.VIEWED` or `EDITED`."""
    known = {
        (kind, name) for table in (VIEWED, EDITED) for kind, names in table.items() for name in names.split()
    }
    assert known == {(kind, name) for kind, names in MANAGEMENT_OPERATIONS.items() for name in names}


# ---- the rule


def cases(needs):
    """Exactly what is needed; all but one of that; manage alone, and with all others."""
    yield needs
    yield from (frozenset(P) - {each} - ({P.MANAGE} - needs) for each in needs)
    yield from (frozenset((P.MANAGE,)), frozenset(P))


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_the_rule(scene, operation):
    """On each kind of address the rule decides alone, and a refusal changes nothing."""
    wrong = []
    for kind, has in product(operation.kinds, cases(operation.needs)):
        scene.grant(has)
        before = scene.state()
        refused = scene.refused(partial(operation.act, scene, kind))
        if refused == operation.allowed(has, kind):
            wrong.append(f"{operation} on {kind} is {'refused' if refused else 'allowed'} with {sorted(has)}")
        if refused:
            assert scene.state() == before, (str(operation), str(kind), has)
        else:
            scene.restore()
    assert not wrong, "\n".join(wrong)


def test_the_rule_for_the_broker_as_a_whole(scene):
    for (method, route), needed in OF_THE_BROKER.items():
        parts = [{"{name}": "stompring", "{id}": "0"}.get(part, part) for part in route.split("/")[3:]]
        where = path(*parts) if route.startswith("/api/") else route
        body = {"level": None} if "loggers" in route else None
        for has in cases(frozenset((needed,))):
            scene.grant(has)
            refused = scene.refused(partial(scene.ask, method, where, body))
            assert refused == (needed not in has and P.MANAGE not in has), (method, route, has)
    scene.ask("POST", "/api/v1/undrain")
    scene.grant(frozenset())
    for method, route in (*LOGIN_ALONE, *PUBLIC):
        assert scene.ask(method, route).status == 200
    assert scene.refused(lambda: scene.ask("GET", "/api/v1/permissions?user=root"))


def test_the_rule_for_management_by_messages(scene):
    for needed, table in ((P.VIEW, VIEWED), (P.EDIT, EDITED)):
        for kind, names in table.items():
            for name in names.split():
                values = [VALUES[letter] for letter in MANAGEMENT_OPERATIONS[kind][name][0].parameters]
                needs = frozenset((P.MANAGE, needed))
                for has in cases(needs):
                    scene.grant(has)
                    refused = scene.refused(partial(_requested, scene, kind, name, values))
                    assert refused == (not needs <= has), (kind, name, has)
                scene.restore()


def _requested(scene, kind, name, values):
    client = scene.connect()
    client.put(
        json.dumps(values).encode(),
        MANAGEMENT,
        _AMQ_ResourceName=kind if kind == "broker" else f"{kind}.work",
        _AMQ_OperationName=name,
    )
    for _ in range(10):
        scene.server.advance()
    client.close()
    return client.received


def test_message_that_the_management_sends_for_a_user_needs_what_that_user_has(scene):
    scene.grant(frozenset(P))
    for user, refused in (("anna", False), ("bert", True)):
        values = [{}, 3, "x", False, user, "x"]
        assert refused == scene.refused(partial(_requested, scene, "queue", "sendMessage", values))
    scene.restore()


def test_diverts_make_no_request_and_reach_nothing_internal(tmp_path):
    """They copy to any other address that broker.xml names, whatever the client may send."""
    targets = (
        "other",
        MANAGEMENT,
        NOTIFIED.address,
        INTERNAL.address,
        TEMPORARY.address.format(connection="1"),
    )
    server = AdminServer(
        settings={"work": {"retroactive_message_count": 5}},
        diverts=(DivertConfiguration("d", "given", targets),),
    )
    server.queue("work")
    server.queue("other")
    server.stomp().put(b"", "given", _AMQ_ResourceName="queue.other", _AMQ_OperationName="removeAllMessages")
    assert server.directory.queue("other").message_count == 1
    assert server.service.management.succeeded + server.service.management.failed == 0
    assert all(
        queue.message_count == 0 for queue in server.directory.address(INTERNAL.address).queues.values()
    )


def test_dead_letter_goes_to_no_queue_of_another_address_by_its_name(scene):
    """Its queue was deleted, and another address has one of that name now: who retries may send to the first alone."""
    scene.grant(frozenset())
    client = scene.connect("root")
    origin = {"_AMQ_ORIG_ADDRESS": "free", "_AMQ_ORIG_QUEUE": OWN.queue}
    client.put(to="source", **{"stompring-imported": "true"}, **origin)
    count = scene.directory.queue(OWN.queue).message_count
    assert scene.ask("POST", "/api/v1/queues/source/retry").json["done"] == 1
    assert scene.directory.queue(OWN.queue).message_count == count
    scene.restore()


# ---- logins and answers


def server_where(tmp_path, *given):
    """A broker whose one user has these permissions, and no others anywhere."""
    matches = {}
    for permission, address in given:
        matches.setdefault(address, {})[permission] = frozenset(("staff",))
    entries = (SecuritySettingEntry(match, found) for match, found in matches.items())
    file = str(tmp_path / "broker.xml")
    server = secured(tmp_path, {"anna": "sécret:1"}, "staff = anna\n", *entries, file=file)
    server.queue("q", "a")
    return server


def basic(credentials="anna:sécret:1"):
    return login_header(*credentials.split(":", 1))


def test_request_without_login_gets_401_and_no_cookie(scene):
    for route in admin_routes().all:
        for headers in ({}, {"Cookie": "login=root"}):
            reply = scene.server.ask(route.method, route.path, headers=headers)
            if route.public:
                assert reply.status == 200
                continue
            assert reply.status == 401 and reply.headers["www-authenticate"].startswith("Basic ")
            assert reply.headers["content-type"] == "application/problem+json"
            assert "set-cookie" not in reply.headers


def test_entry_of_a_queue_applies(tmp_path):
    server = server_where(tmp_path, (P.VIEW, "a"), (P.EDIT, "a::q"))
    assert (
        "for queue q on address a"
        in server.refused(403, "GET", "/api/v1/queues/q", headers=basic())["detail"]
    )
    server.done("POST", "/api/v1/queues/q/purge", headers=basic())
    server.done("GET", "/api/v1/addresses/a", headers=basic())


@pytest.mark.parametrize("path", ["/api/v1/queues/none", "/api/v1/addresses/none"])
def test_unknown_queue_gets_403_without_permission(tmp_path, path):
    assert server_where(tmp_path).ask("GET", path, headers=basic()).status == 403
    assert server_where(tmp_path, (P.VIEW, "none")).ask("GET", path, headers=basic()).status == 404


def test_metrics_of_logins_and_refusals(tmp_path):
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT), (P.SEND, "a"))
    server.ask("GET", "/metrics", headers=basic("anna:wrong"))
    server.ask("POST", "/api/v1/reload", headers=basic())
    server.stomp(login="anna", passcode="sécret:1").subscribe("/queue/a")
    text = server.ask("GET", "/metrics", headers=basic()).text
    assert 'stompring_logins_total{outcome="accepted"} 3.0' in text
    assert 'stompring_logins_total{outcome="refused"} 1.0' in text
    assert 'stompring_permission_refusals_total{permission="consume"} 1.0' in text
    assert 'stompring_permission_refusals_total{permission="edit"} 1.0' in text
    broker = server.get("/api/v1/broker", headers=basic())
    assert pick(broker, "acceptedLoginCount", "refusedLoginCount") == (4, 1)
    assert pick(broker, "editRefusalCount", "sendRefusalCount") == (1, 0)
    assert AdminServer().get("/api/v1/broker")["acceptedLoginCount"] is None


def test_repeated_failed_logins_are_throttled(tmp_path, caplog):
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT))
    caplog.set_level(logging.INFO)
    for _ in range(FREE_FAILURES):
        assert server.ask("GET", "/metrics", headers=basic("anna:wrong")).status == 401
    assert [line for line in caplog.messages if "delaying further logins" in line] == [
        f"{FREE_FAILURES} failed logins from 127.0.0.1: delaying further logins from there"
    ]

    def begin(credentials):
        _, wire = server.begin("GET", "/metrics", headers=basic(credentials))
        server.advance()
        return wire

    waiting = [begin("anna:sécret:1") for _ in range(MAX_DELAYED)]
    refused = begin("anna:sécret:1")
    assert not any(wire.value() for wire in waiting)
    reply = server.parse(refused.value())
    assert (reply.status, reply.headers["retry-after"]) == (429, "5")
    assert "too many failed logins from 127.0.0.1" in json.loads(reply.body)["detail"]
    server.advance(0.3)
    server.advance(0, 200)
    assert all(wire.value().startswith(b"HTTP/1.1 200") for wire in waiting)


def test_log_has_permissions_and_no_passwords(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    server = server_where(tmp_path)
    server.ask("GET", "/metrics", headers=basic("anna:wrong marker"))
    server.ask("GET", "/metrics", headers=basic())
    text = "\n".join(caplog.messages)
    assert "User anna does not have permission='VIEW' on address activemq.management" in text
    assert "User name [anna] or password is invalid" in text
    assert "wrong marker" not in text and "sécret" not in text
