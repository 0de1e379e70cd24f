"""Users and roles over HTTP: their life, hostile input, files changed by hand meanwhile, the last manager."""

import fcntl
import logging
import os
from urllib.parse import quote

import pytest
from argon2 import PasswordHasher

from stompring.admin.api import MANAGEMENT
from stompring.security import accounts
from stompring.settings.model import PermissionType, SecuritySettingEntry

from ..security.hashers import QUICK, QUICK_BUT_OTHER
from .admin_server import AdminServer, login_header, path

P = PermissionType


class Hasher(PasswordHasher):
    """A quick one, before whose work something happens."""

    before = staticmethod(lambda: None)

    def hash(self, password):
        self.before()
        return super().hash(password)


class Broker(AdminServer):
    """A broker with the managers' role ``admins``, and its files."""

    def __init__(self, tmp_path, **more):
        self.users, self.roles = tmp_path / "users.properties", tmp_path / "roles.properties"
        self.users.write_text(f"# people\nanna = {QUICK.hash('a')}\nberta = {QUICK.hash('b')}\n")
        self.roles.write_text("# who does what\nadmins = anna\nstaff = berta\n")
        self.hasher = Hasher(time_cost=1, memory_cost=8, parallelism=1)
        super().__init__(
            hasher=self.hasher,
            security_enabled=True,
            users_file=str(self.users),
            roles_file=str(self.roles),
            security_settings=(
                SecuritySettingEntry(MANAGEMENT, {P.MANAGE: frozenset(("admins", "chiefs"))}),
                SecuritySettingEntry(
                    "orders", {P.VIEW: frozenset(("staff",)), P.SEND: frozenset(("sales",))}
                ),
            ),
            **more,
        )
        self.queue("orders")
        self.headers = login_header("anna", "a")

    @property
    def files(self):
        return self.users.read_text(), self.roles.read_text()

    def names(self):
        return [user["name"] for user in self.get("/api/v1/users")["data"]]


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


def test_life_of_a_user(broker):
    reply = broker.ask("POST", "/api/v1/users", {"name": "clara", "password": "sécret", "roles": ["staff"]})
    assert (reply.status, reply.headers["location"]) == (201, "/api/v1/users/clara")
    clara = {
        "name": "clara",
        "roles": ["staff"],
        "hasPassword": True,
        "certificate": None,
        "hashOutdated": False,
    }
    assert reply.json == broker.get("/api/v1/users/clara") == clara
    assert broker.get("/api/v1/queues/orders", headers=login_header("clara", "sécret"))["name"] == "orders"

    reply = broker.ask("PATCH", "/api/v1/users/clara", {"password": "other"})
    assert (reply.status, reply.json["roles"]) == (200, ["staff"])
    assert broker.ask("GET", "/api/v1/queues/orders", headers=login_header("clara", "sécret")).status == 401
    broker.done("GET", "/api/v1/queues/orders", headers=login_header("clara", "other"))

    reply = broker.ask("PATCH", "/api/v1/users/clara", {"roles": ["sales", "admins", "sales"]})
    assert reply.json["roles"] == ["admins", "sales"]
    broker.done("GET", "/api/v1/users", headers=login_header("clara", "other"))
    broker.ask("PATCH", "/api/v1/users/clara", {"roles": []})
    assert broker.ask("GET", "/api/v1/users", headers=login_header("clara", "other")).status == 403

    broker.done("DELETE", "/api/v1/users/clara")
    assert broker.ask("GET", "/api/v1/whoami", headers=login_header("clara", "other")).status == 401
    broker.refused(404, "GET", "/api/v1/users/clara")
    users, roles = broker.files
    assert users.startswith("# people\nanna") and roles.startswith(
        "# who does what\nadmins = anna\nstaff = berta"
    )
    assert broker.users.stat().st_mode & 0o777 == 0o600


def test_lists(broker):
    assert broker.names() == ["anna", "berta"]
    page = broker.get("/api/v1/users?roles=staff&size=1")
    assert (page["count"], page["data"][0]["name"]) == (1, "berta")
    assert broker.get("/api/v1/roles")["data"] == [
        {"name": "admins", "users": ["anna"], "granted": True},
        {"name": "chiefs", "users": [], "granted": True},
        {"name": "sales", "users": [], "granted": True},
        {"name": "staff", "users": ["berta"], "granted": True},
    ]
    broker.ask("PATCH", "/api/v1/users/berta", {"roles": ["misspelt"]})
    assert {"name": "misspelt", "users": ["berta"], "granted": False} in broker.get("/api/v1/roles")["data"]


def test_hash_with_outdated_parameters_is_shown(broker):
    broker.users.write_text(f"anna={QUICK.hash('a')}\nold={QUICK_BUT_OTHER.hash('x')}\n")
    assert {user["name"]: user["hashOutdated"] for user in broker.get("/api/v1/users")["data"]} == {
        "anna": False,
        "old": True,
    }


def test_new_permissions_apply_to_open_connections(broker):
    client = broker.stomp(login="berta", passcode="b")
    client.put(to="/queue/orders", receipt="1")
    assert b"does not have permission='SEND'" in client.received
    client = broker.stomp(login="berta", passcode="b")
    broker.ask("PATCH", "/api/v1/users/berta", {"roles": ["sales"]})
    client.put(to="/queue/orders", receipt="1")
    assert b"RECEIPT" in client.received
    broker.ask("DELETE", "/api/v1/users/berta")
    client.put(to="/queue/orders", receipt="2")
    assert b"does not have permission='SEND'" in client.received


# ---- hostile and wrong input

ODD_NAMES = [
    "<script>alert(1)</script>",
    "ü ñ",
    "a/b",
    "../../etc/passwd",
    "%2F",
    "$(id)",
    "a:b",
    '"',
    "{name}",
    "😀",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_only_names(broker, name):
    reply = broker.ask("POST", "/api/v1/users", {"name": name, "password": "x", "roles": ["staff"]})
    assert (reply.status, reply.json["name"]) == (201, name)
    assert reply.headers["location"] == f"/api/v1/users/{quote(name, safe='')}"
    assert reply.headers["content-type"] == "application/json"
    assert broker.get(reply.headers["location"])["roles"] == ["staff"]
    broker.done("PATCH", path("users", name), {"roles": []})
    broker.done("DELETE", path("users", name))
    assert broker.names() == ["anna", "berta"]


@pytest.mark.parametrize(
    "field, value",
    [
        *(("name", each) for each in ("", "a=b", "a\nroot", "a\0", "a\u2028b", "a\ud800", "a,b", 5)),
        *(("password", each) for each in ("", None, ["x"], "x\n", "x\ud800")),
        *(("roles", each) for each in ("staff", [5], [""], ["r = anna"], ["r\nadmins = a"])),
        ("role", "staff"),
    ],
)
def test_invalid_input_changes_nothing(broker, field, value):
    before = broker.files
    body = {"name": "a", "password": "x", "roles": ["staff"], field: value}
    assert broker.refused(400, "POST", "/api/v1/users", body)["field"] == field
    if field in ("password", "roles"):
        change = {field: value}
        assert broker.refused(400, "PATCH", "/api/v1/users/berta", change)["field"] == field
    assert broker.files == before


@pytest.mark.parametrize("field", ["name", "password"])
def test_what_is_missing_is_named(broker, field):
    body = {"name": "a", "password": "x"}
    del body[field]
    assert broker.refused(400, "POST", "/api/v1/users", body)["field"] == field


def test_existing_and_unknown_users(broker):
    before = broker.files
    problem = broker.refused(409, "POST", "/api/v1/users", {"name": "berta", "password": "x"})
    assert problem["detail"] == "User berta exists already"
    for method, body in (("PATCH", {"password": "x"}), ("PATCH", {"roles": ["staff"]}), ("DELETE", None)):
        assert (
            broker.refused(404, method, "/api/v1/users/ghost", body)["detail"] == "User ghost does not exist"
        )
    broker.done("PATCH", "/api/v1/users/berta", {})
    assert broker.files == before


def test_new_user_does_not_get_roles_of_an_earlier_one(broker):
    broker.roles.write_text("admins = anna, clara\nstaff = berta\n")
    broker.ask("POST", "/api/v1/users", {"name": "clara", "password": "x"})
    assert broker.get("/api/v1/users/clara")["roles"] == []


def test_passwords_are_in_no_answer_and_no_log(broker, caplog):
    caplog.set_level(logging.DEBUG)
    marker = "sécret-marker"
    answers = [
        broker.ask("POST", "/api/v1/users", {"name": "clara", "password": marker}),
        broker.ask("PATCH", "/api/v1/users/clara", {"password": marker}),
        broker.ask("PATCH", "/api/v1/users/clara", {"password": marker + "\n"}),
        broker.ask("PATCH", "/api/v1/users/clara", {"password": [marker]}),
        broker.ask("PATCH", "/api/v1/users/clara", {"passwort": marker}),
        broker.ask("PATCH", "/api/v1/users/ghost", {"password": marker}),
        broker.ask("GET", "/api/v1/users"),
        broker.ask("GET", "/api/v1/users/clara"),
    ]
    assert [answer.status for answer in answers] == [201, 200, 400, 400, 400, 404, 200, 200]
    for text in (
        *caplog.messages,
        *map(str, (vars(record) for record in caplog.records)),
        *(a.text for a in answers),
    ):
        assert "marker" not in text and "argon2" not in text
    assert any(
        'POST /api/v1/users {"name":"clara","password":"***"}: 201' in line for line in caplog.messages
    )


# ---- the last manager

#: What anna does, the request, the roles file before, whether it is done.
MANAGERS = [
    ("removes himself", "DELETE", None, {"admins": "anna"}, False),
    ("drops the role", "PATCH", {"roles": ["staff"]}, {"admins": "anna"}, False),
    ("drops all roles", "PATCH", {"roles": []}, {"admins": "anna"}, False),
    ("changes to another managing role", "PATCH", {"roles": ["chiefs"]}, {"admins": "anna"}, True),
    (
        "keeps one of two managing roles",
        "PATCH",
        {"roles": ["chiefs"]},
        {"admins": "anna", "chiefs": "anna"},
        True,
    ),
    ("removes himself beside another", "DELETE", None, {"admins": "anna, berta"}, True),
    (
        "removes himself beside one with another role",
        "DELETE",
        None,
        {"admins": "anna", "chiefs": "berta"},
        True,
    ),
    ("removes himself beside one who does not exist", "DELETE", None, {"admins": "anna, ghost"}, False),
    ("sets a new password", "PATCH", {"password": "new"}, {"admins": "anna"}, True),
]


@pytest.mark.parametrize("what, method, body, roles, done", MANAGERS, ids=[case[0] for case in MANAGERS])
def test_last_manager_stays(broker, what, method, body, roles, done):
    broker.roles.write_text("".join(f"{role} = {users}\n" for role, users in roles.items()))
    before = broker.files
    reply = broker.ask(method, "/api/v1/users/anna", body)
    if done:
        assert reply.status in (200, 204), reply.body
    else:
        assert (reply.status, broker.files) == (409, before)
        assert (
            "User anna is the last user with permission='MANAGE' on address activemq.management"
            in reply.json["detail"]
        )
        assert "Grant a role with this permission to another user first" in reply.json["detail"]


def test_manager_with_a_certificate_counts(tmp_path):
    certificates = tmp_path / "certificates.properties"
    certificates.write_text("carla = CN=carla, O=Example\n")
    broker = Broker(tmp_path, certificate_users_file=str(certificates))
    broker.roles.write_text("admins = anna, carla\n")
    assert broker.get("/api/v1/users/carla") == {
        "name": "carla",
        "roles": ["admins"],
        "hasPassword": False,
        "certificate": "CN=carla,O=Example",
        "hashOutdated": False,
    }
    assert "certificate users file" in broker.refused(409, "DELETE", "/api/v1/users/carla")["detail"]
    broker.done("DELETE", "/api/v1/users/anna")


def test_roles_of_a_user_with_a_certificate_can_be_changed(tmp_path):
    certificates = tmp_path / "certificates.properties"
    certificates.write_text("carla = CN=carla\n")
    broker = Broker(tmp_path, certificate_users_file=str(certificates))
    assert broker.ask("PATCH", "/api/v1/users/carla", {"roles": ["staff"]}).json["roles"] == ["staff"]
    assert "carla" not in broker.users.read_text()
    assert broker.ask("PATCH", "/api/v1/users/carla", {"password": "c"}).json["hasPassword"]


# ---- files changed by hand


def test_changes_by_hand_are_seen_and_preserved(broker):
    with broker.users.open("a") as file:
        file.write(f"\n# by hand\ndora = {QUICK.hash('d')}\n")
    with broker.roles.open("a") as file:
        file.write("# by hand\nstaff2 = dora\n")
    broker.ask("POST", "/api/v1/users", {"name": "clara", "password": "x", "roles": ["staff2"]})
    assert broker.names() == ["anna", "berta", "dora", "clara"]
    users, roles = broker.files
    assert "# by hand\ndora" in users and "# by hand\nstaff2 = dora, clara" in roles


def test_change_by_an_editor_at_the_same_moment_is_not_lost(broker):
    text = broker.users.read_text() + f"dora = {QUICK.hash('d')}\n"
    broker.hasher.before = lambda: broker.users.write_text(text)
    problem = broker.refused(409, "POST", "/api/v1/users", {"name": "clara", "password": "x"})
    assert problem["detail"] == f"{broker.users}: another program has just changed the users file: try again"
    assert broker.names() == ["anna", "berta", "dora"]
    assert broker.ask("POST", "/api/v1/users", {"name": "clara", "password": "x"}).status == 409
    broker.hasher.before = lambda: None
    broker.done("POST", "/api/v1/users", {"name": "clara", "password": "x"})
    assert [file.name for file in broker.users.parent.iterdir() if file.name.startswith(".")] == []


def test_lock_of_another_program_is_not_awaited_forever(broker, monkeypatch):
    monkeypatch.setattr(accounts, "LOCK_TIME", 0.05)
    directory = os.open(broker.users.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        problem = broker.refused(409, "DELETE", "/api/v1/users/berta")
    finally:
        os.close(directory)
    assert problem["detail"] == (
        f"{broker.roles}: another program has locked the roles file for 0.05 seconds: end it, or try again"
    )
    broker.done("DELETE", "/api/v1/users/berta")


@pytest.mark.parametrize("which", ["users", "roles"])
def test_invalid_line_by_hand_is_named_and_nothing_changed(broker, which):
    file = getattr(broker, which)
    file.write_text(file.read_text() + "no equals sign\n")
    before = broker.files
    for method, name, body in (
        ("POST", "", {"name": "clara", "password": "x", "roles": ["staff"]}),
        ("PATCH", "/berta", {"roles": ["sales"]}),
        ("DELETE", "/berta", None),
    ):
        detail = broker.refused(409, method, f"/api/v1/users{name}", body)["detail"]
        assert detail.startswith(f"{file}:4: "), detail
    assert broker.files == before
    assert broker.names() == ["anna", "berta"], "the last valid files stay in effect"


def test_half_done_change_says_what_was_done(broker):
    def unusable():
        broker.roles.unlink()
        broker.roles.mkdir()

    broker.hasher.before = unusable
    body = {"name": "clara", "password": "x", "roles": ["staff"]}
    detail = broker.refused(409, "POST", "/api/v1/users", body)["detail"]
    assert detail.startswith(
        f"User clara is saved, but the roles are not: {broker.roles}: the roles file cannot be read"
    )
    assert "clara" in broker.users.read_text()


def test_without_security_there_are_no_users(server, broker):
    for method, where, body in (
        ("GET", "users", None),
        ("GET", "roles", None),
        ("POST", "users", {"name": "a", "password": "x"}),
        ("DELETE", "users/a", None),
    ):
        assert "Security is disabled" in server.refused(409, method, f"/api/v1/{where}", body)["detail"]


# ---- threads


class LaterThreads:
    """A thread pool whose work the test runs."""

    def __init__(self):
        self.waiting = []

    def callInThreadWithCallback(self, done, work, *a):
        """See IThreadPool."""
        self.waiting.append(lambda: done(True, work(*a)))


def test_passwords_are_hashed_in_a_thread_one_at_a_time(broker, monkeypatch):
    hashed = []
    broker.hasher.before = lambda: hashed.append(1)
    broker.get("/api/v1/whoami")  # the login is verified from now on
    threads = LaterThreads()
    wires = []
    for name in ("clara", "dora"):
        with monkeypatch.context() as context:
            pool = broker.reactor.getThreadPool()
            # the check of the files before the login at once, the edit later
            calls = iter([pool, *[threads] * 10])
            context.setattr(broker.reactor, "getThreadPool", lambda calls=calls: next(calls))
            wires.append(broker.begin("POST", "/api/v1/users", {"name": name, "password": "x"})[1])
            broker.advance(0, 10)
    assert len(threads.waiting) == 1 and not hashed, "the second waits for the first"
    assert broker.get("/health/live"), "others are answered meanwhile"
    threads.waiting.pop()()
    assert hashed == [1, 1]
    broker.advance(0, 50)
    assert all(wire.value().startswith(b"HTTP/1.1 201") for wire in wires)
    assert broker.names() == ["anna", "berta", "clara", "dora"]
