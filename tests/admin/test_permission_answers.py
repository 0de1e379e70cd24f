"""Who may do what, and by which rule: whoami, permissions and security-settings over HTTP."""

from itertools import product

import pytest

from stompring.admin.api import MANAGEMENT
from stompring.security.access import Permissions
from stompring.settings.model import PermissionType, SecuritySettingEntry

from .admin_server import AdminServer, login_header, pick, secured

P = PermissionType


def entry(match, line=None, **roles):
    return SecuritySettingEntry(
        match, {P(kind): frozenset(names.split()) for kind, names in roles.items()}, line
    )


ENTRIES = (
    entry(MANAGEMENT, 3, manage="admins", view="viewers admins"),
    entry("#", 7, view="viewers"),
    entry("orders.#", 9, send="sales shop", consume="shop", createDurableQueue="shop", edit="sales"),
    entry("orders.eu::archive", 14, consume="audit"),
    entry("closed", 16),
)
ROLES = {"anna": "admins", "berta": "sales", "carl": "viewers", "dora": "audit", "emil": ""}


@pytest.fixture
def server(tmp_path):
    roles = "".join(f"{role} = {name}\n" for name, role in ROLES.items() if role)
    found = secured(tmp_path, dict.fromkeys(ROLES, "x"), roles, *ENTRIES)
    found.queue("archive", "orders.eu")
    found.headers = login("anna")
    return found


def login(name):
    return login_header(name, "x")


# ---- whoami


@pytest.mark.parametrize(
    "name, allowed",
    [("anna", {*P}), ("carl", {P.VIEW}), ("berta", set()), ("emil", set())],
)
def test_whoami(server, name, allowed):
    assert server.get("/api/v1/whoami", headers=login(name)) == {
        "securityEnabled": True,
        "user": name,
        "roles": [ROLES[name]] if ROLES[name] else [],
        "permissions": {str(permission): permission in allowed for permission in P},
    }


def test_whoami_without_security():
    found = AdminServer().get("/api/v1/whoami")
    assert pick(found, "securityEnabled", "user", "roles") == (False, None, [])
    assert all(found["permissions"].values())


# ---- may X do Y on Z


def asked(server, permission, query, **more):
    data = server.get(f"/api/v1/permissions?{query}", **more)["data"]
    assert [each["permission"] for each in data] == [str(kind) for kind in P]
    return next(each for each in data if each["permission"] == permission)


@pytest.mark.parametrize(
    "permission, query, allowed, match, roles, reason",
    [
        (
            "send",
            "user=berta&address=orders.eu",
            True,
            "orders.%23",
            ["sales", "shop"],
            '<security-setting match="orders.#"> grants send to sales',
        ),
        (
            "consume",
            "user=berta&address=orders.eu",
            False,
            "orders.%23",
            ["shop"],
            '<security-setting match="orders.#"> grants consume to shop; user berta has sales',
        ),
        (
            "browse",
            "user=emil&address=orders.eu",
            False,
            "orders.%23",
            [],
            '<security-setting match="orders.#"> grants browse to no role; user emil has no role',
        ),
        (
            "consume",
            "user=dora&queue=archive",
            True,
            "orders.eu::archive",
            ["audit"],
            '<security-setting match="orders.eu::archive"> grants consume to audit',
        ),
        (
            "view",
            "user=carl&address=closed",
            False,
            "closed",
            [],
            '<security-setting match="closed"> grants view to no role; user carl has viewers',
        ),
        (
            "createDurableQueue",
            "user=carl&address=orders.eu&queue=mine",
            False,
            "%23",
            [],
            "Creating a queue requires the permission on the address of its name (mine) too. "
            '<security-setting match="#"> grants createDurableQueue to no role; user carl has viewers',
        ),
        (
            "send",
            "user=anna&address=orders.eu",
            False,
            "orders.%23",
            ["sales", "shop"],
            '<security-setting match="orders.#"> grants send to sales, shop; user anna has admins. '
            "The HTTP API allows it to users with manage on activemq.management",
        ),
        (
            "send",
            "user=berta&address=$.artemis.internal.orders.eu.address.retro",
            True,
            "orders.%23",
            ["sales", "shop"],
            "$.artemis.internal.orders.eu.address.retro is internal, the permission on address orders.eu decides. "
            '<security-setting match="orders.#"> grants send to sales',
        ),
        (
            "view",
            "user=carl&address=temp-queue.1.x",
            True,
            "%23",
            ["viewers"],
            '<security-setting match="#"> grants view to viewers',
        ),
        (
            "browse",
            "user=carl&address=temp-queue.1.x",
            False,
            "%23",
            [],
            "temp-queue.1.x belongs to another connection. For its own connection: "
            '<security-setting match="#"> grants browse to no role; user carl has viewers',
        ),
    ],
)
def test_permission_and_its_rule(server, permission, query, allowed, match, roles, reason):
    assert asked(server, permission, query) == {
        "permission": permission,
        "allowed": allowed,
        "allowedOverHTTP": allowed or "anna" in query,
        "match": match.replace("%23", "#"),
        "definedIn": "broker.xml",
        "roles": roles,
        "reason": reason,
    }


def test_without_matching_entry_everything_is_denied(server):
    server.service.security.authority.use(Permissions((entry("orders", view="viewers"),)))
    found = asked(server, "send", "address=other", headers=login("berta"))
    assert pick(found, "allowed", "match") == (False, None)
    assert found["reason"] == "No <security-setting> matches address other: every operation is denied"


def test_wildcard_address_needs_every_entry(server):
    security = server.service.security
    security.authority.use(
        Permissions((*ENTRIES[:1], entry("a.b", consume="sales"), entry("a.#", consume="sales admins")))
    )
    found = asked(server, "consume", "user=berta&address=a.*")
    assert found["allowed"] and found["reason"].startswith(
        '<security-setting match="a.b">, and 1 more grants'
    )
    refused = asked(server, "consume", "user=anna&address=a.*")
    assert pick(refused, "allowed", "match") == (False, "a.b")


def test_defaults_are_the_caller_and_the_broker(server):
    found = server.get("/api/v1/permissions", headers=login("carl"))
    assert pick(found, "user", "roles", "address", "queue") == (
        "carl",
        ["viewers"],
        MANAGEMENT,
        None,
    )
    assert [each["permission"] for each in found["data"] if each["allowed"]] == ["view"]
    assert server.get("/api/v1/permissions?queue=archive")["address"] == "orders.eu"
    assert server.get("/api/v1/permissions?queue=none")["address"] == "none"


def test_without_view_only_own_roles_are_shown(server):
    found = asked(server, "consume", "address=orders.eu", headers=login("berta"))
    assert found["roles"] == []
    assert (
        found["reason"]
        == '<security-setting match="orders.#"> grants consume to other roles; user berta has sales'
    )
    assert asked(server, "send", "address=orders.eu", headers=login("berta"))["roles"] == ["sales"]
    assert asked(server, "consume", "address=orders.eu", headers=login("carl"))["roles"] == ["shop"]


def test_permissions_of_others_need_manage(server):
    for name in ("berta", "carl"):
        server.refused(403, "GET", "/api/v1/permissions?user=anna", headers=login(name))
        server.done("GET", f"/api/v1/permissions?user={name}", headers=login(name))


def test_unknown_user_gets_404(server):
    assert (
        server.refused(404, "GET", "/api/v1/permissions?user=ghost")["detail"] == "User ghost does not exist"
    )


def test_without_security_everything_is_allowed():
    found = AdminServer().get("/api/v1/permissions?user=anna&address=a")
    assert pick(found, "user", "address") == ("anna", "a")
    assert all(each["allowed"] and each["allowedOverHTTP"] for each in found["data"])


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a\r\nX-Evil: 1", "ü", '"', "#", "*", ">"])
def test_hostile_names_stay_text(server, name):
    from urllib.parse import quote

    reply = server.ask("GET", f"/api/v1/permissions?address={quote(name)}&queue={quote(name)}")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json["address"] == reply.json["queue"] == name
    assert "x-evil" not in reply.headers


def test_answer_agrees_with_the_check(server):
    """Whatever is asked: what the answer says is what the broker does."""
    security = server.service.security
    assert security is not None
    places = product(
        ROLES,
        [None, "archive", "orders.eu"],
        ["orders.eu", "orders", "closed", "other", MANAGEMENT, "orders.#", "#"],
    )
    from urllib.parse import quote

    for name, queue, address in places:
        query = f"user={name}&address={quote(address)}" + ("" if queue is None else f"&queue={queue}")
        for each in server.get(f"/api/v1/permissions?{query}")["data"]:
            allowed = security.authority.allows(name, P(each["permission"]), address, queue)
            assert each["allowed"] is allowed, (query, each)


# ---- the matrix


def test_security_settings(server):
    data = server.get("/api/v1/security-settings", headers=login("carl"))["data"]
    assert data[:3] == [
        {
            "match": MANAGEMENT,
            "permission": "manage",
            "roles": ["admins"],
            "definedIn": "broker.xml",
            "line": 3,
        },
        {
            "match": MANAGEMENT,
            "permission": "view",
            "roles": ["admins", "viewers"],
            "definedIn": "broker.xml",
            "line": 3,
        },
        {"match": "#", "permission": "view", "roles": ["viewers"], "definedIn": "broker.xml", "line": 7},
    ]
    assert data[-1] == {
        "match": "closed",
        "permission": None,
        "roles": [],
        "definedIn": "broker.xml",
        "line": 16,
    }
    assert len(data) == 9
    shop = server.get("/api/v1/security-settings?roles=shop&sort=permission")["data"]
    assert [row["permission"] for row in shop] == ["consume", "createDurableQueue", "send"]


def test_security_settings_without_security():
    page = AdminServer(security_settings=ENTRIES).get("/api/v1/security-settings?search=orders")
    assert {row["match"] for row in page["data"]} == {"orders.#", "orders.eu::archive"}
