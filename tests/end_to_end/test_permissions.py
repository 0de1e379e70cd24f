"""Who may do what, of a broker that runs: STOMP, HTTP, reloads, files that change, and what is never shown."""

import base64
import json
import os
import subprocess
import sys
import time
from http.client import HTTPConnection

import pytest

from stompring.security.roles import edit_roles
from stompring.security.users import edit_users

from ..broker_document import broker_xml, everything, permitted
from ..broker_process import PATIENCE, ROOT, BrokerProcess
from ..security.hashers import QUICK
from ..stomp_client import StompClient
from .test_security import login, stompring

#: A password that would be found wherever it is shown.
MARKER = "mark3r-of-a-password"

SENDS = {"send": "writers", "createAddress": "writers", "createDurableQueue": "writers"}
READS = {"consume": "readers", "createNonDurableQueue": "readers", "deleteNonDurableQueue": "readers"}

PERMISSIONS = (
    permitted("orders.#", {**SENDS, **READS})
    + permitted(
        "orders.secret", {"send": "writers", "createAddress": "writers", "createDurableQueue": "writers"}
    )
    + permitted("news.#", {**SENDS, **READS})
    + permitted("orders.eu::audit", {**SENDS, "consume": "auditors"})
    + permitted("clients.#", {"createDurableQueue": "readers, writers"})
    + permitted(
        "mal.#",
        {**SENDS, **READS}
        | {"send": "squatters", "createAddress": "squatters", "createDurableQueue": "squatters"},
    )
    + permitted("activemq.management", {"view": "readers", "manage": "admins"})
)


def add(config, user, *roles, password=""):
    """A user with roles, whose password is the name where none is given."""
    with edit_users(config.parent / "users.properties", QUICK) as users:
        users.put(user, password or user)
    with edit_roles(config.parent / "roles.properties") as edit:
        for role in roles:
            edit.grant(role, user)


def http(broker, method, path, credentials=None):
    """Status and document of an answer."""
    headers = {}
    if credentials is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
    connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.getheader("Set-Cookie") is None
        return answer.status, json.loads(text) if "json" in (answer.getheader("Content-Type") or "") else text
    finally:
        connection.close()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    config = tmp_path_factory.mktemp("permissions") / "broker.xml"
    config.write_text(
        broker_xml(
            secure=True,
            permissions=PERMISSIONS,
            core="<security-invalidation-interval>1000</security-invalidation-interval>",
        )
    )
    add(config, "writer", "writers")
    add(config, "reader", "readers")
    add(config, "auditor", "auditors")
    add(config, "both", "writers", "readers")
    add(config, "admin", "admins")
    add(config, "squatter", "squatters", "readers")
    add(config, "marked", "writers", password=MARKER)
    return config


@pytest.fixture(scope="module")
def broker(config):
    with BrokerProcess(config) as broker:
        yield broker


def connected(broker, user, **headers):
    client = login(broker, login=user, passcode=user, **headers)
    client.expect("CONNECTED")
    return client


@pytest.mark.parametrize(
    ("user", "command", "headers", "lacking"),
    [
        ("reader", "SEND", {"destination": "/queue/orders.x"}, "permission='SEND' on address orders.x"),
        ("writer", "SEND", {"destination": "/queue/elsewhere"}, "permission='SEND' on address elsewhere"),
        ("auditor", "SEND", {"destination": "/queue/orders.x"}, "permission='SEND' on address orders.x"),
        ("writer", "SUBSCRIBE", {"destination": "/topic/news.x"}, "permission='CONSUME' on address news.x"),
        ("reader", "SUBSCRIBE", {"destination": "/topic/none"}, "permission='CONSUME' on address none"),
        ("reader", "SUBSCRIBE", {"destination": "/queue/orders.n"}, "='CREATE_ADDRESS' on address orders.n"),
        ("reader", "SUBSCRIBE", {"destination": "/topic/#"}, "permission='CONSUME' on address #"),
        (
            "reader",
            "SUBSCRIBE",
            {"destination": "/topic/orders.*"},
            "permission='CONSUME' on address orders.*",
        ),
        (
            "reader",
            "SUBSCRIBE",
            {"destination": "/queue/orders.secret"},
            "='CONSUME' on address orders.secret",
        ),
        (
            "reader",
            "SUBSCRIBE",
            {"destination": "/queue/orders.eu::audit"},
            "permission='CONSUME' for queue audit on address orders.eu",
        ),
        (
            "both",
            "SUBSCRIBE",
            {"destination": "/topic/news.d", "durable-subscription-name": "d", "client-id": "c"},
            "",
        ),
        (
            "reader",
            "SUBSCRIBE",
            {"destination": "/topic/news.e", "durable-subscription-name": "d"},
            "='CREATE_ADDRESS' on address news.e",
        ),
        ("both", "SUBSCRIBE", {"destination": "/topic/news.*.sport"}, ""),
        ("writer", "SEND", {"destination": "/queue/orders.secret"}, ""),
        ("writer", "SEND", {"destination": "/queue/orders.eu::audit"}, ""),
        ("auditor", "SUBSCRIBE", {"destination": "/queue/orders.eu::audit"}, ""),
    ],
)
def test_stomp(broker, version, user, command, headers, lacking):
    connected(broker, "writer").close()
    if "audit" in headers["destination"]:
        writer = connected(broker, "writer")
        writer.put("/queue/orders.eu::audit", "x")
        writer.close()
    client = login(
        broker,
        version,
        login=user,
        passcode=user,
        **{"client-id": f"clients.c{version}-{user}-{time.monotonic()}"},
    )
    client.expect("CONNECTED")
    told = {"id": "1", **headers} if command == "SUBSCRIBE" else headers
    client.send(command, {**told, "receipt": "r"})
    if lacking:
        client.error(f"User {user} does not have", lacking, receipt="r")
    else:
        client.expect("RECEIPT")
        client.disconnect()


def test_a_transaction_that_is_refused_sends_nothing(broker):
    client = connected(broker, "writer")
    client.send("BEGIN", {"transaction": "t"})
    client.send("SEND", {"destination": "/queue/orders.t", "transaction": "t"}, b"x")
    client.send("SEND", {"destination": "/queue/elsewhere", "transaction": "t"}, b"x")
    client.error("permission='SEND' on address elsewhere")
    status, queue = http(broker, "GET", "/api/v1/queues/orders.t", "admin:admin")
    assert (status, queue["messageCount"]) == (200, 0)


@pytest.mark.parametrize(
    ("command", "headers", "name"),
    [
        ("SEND", {"destination": "/queue/mal.x::orders.new"}, "orders.new"),
        ("SUBSCRIBE", {"destination": "/queue/mal.x::orders.new"}, "orders.new"),
        ("SUBSCRIBE", {"destination": "/topic/mal.t", "durable-subscription-name": "new"}, "orders.new"),
    ],
)
def test_the_name_of_anothers_queue_is_not_taken(broker, command, headers, name):
    """Who may create queues below mal.# alone cannot have one that another address is going to need."""
    client = connected(broker, "squatter", **{"client-id": "orders"})
    told = {"id": "1", "receipt": "r", **headers}
    client.send(command, told if command == "SUBSCRIBE" else {**headers, "receipt": "r"})
    client.error(
        "permission='CREATE_DURABLE_QUEUE' for queue orders.new",
        "also required on address orders.new",
        receipt="r",
    )
    assert http(broker, "GET", f"/api/v1/queues/{name}", "admin:admin")[0] == 404
    own = connected(broker, "squatter")
    own.put("/queue/mal.x::mal.y", "x")
    own.close()


def test_replies(broker):
    """A temporary queue is an address like any other: nobody here has been given anything on it."""
    client = connected(broker, "both")
    client.send("SEND", {"destination": "/queue/orders.r", "reply-to": "/temp-queue/r"}, b"x")
    client.error("permission='CONSUME' on address temp-queue.")


def test_roles_follow_their_file(broker, config):
    """Who loses a role is refused, and who reads is closed, without a reload."""
    add(config, "guest", "writers", "readers")
    reader, writer = connected(broker, "guest"), connected(broker, "guest")
    writer.put("/queue/orders.g", "one")
    reader.subscribe("/queue/orders.g", ack="auto")
    reader.message("one")
    done = stompring("user", "revoke", "guest", "readers", "--config", str(config))
    assert done.returncode == 0, done.stderr
    reader.error("User guest does not have permission='CONSUME' on address orders.g")
    writer.put("/queue/orders.g", "two")
    assert stompring("user", "rm", "guest", "--config", str(config)).returncode == 0
    deadline = time.monotonic() + PATIENCE
    while "guest" not in (told := _send_once(writer)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "User guest does not have permission='SEND' on address orders.g" in told


def _send_once(client):
    client.send("SEND", {"destination": "/queue/orders.g", "receipt": "again"}, b"x")
    frame = client.frame()
    return frame.get("message") or ""


def test_a_reload_changes_permissions(config, tmp_path):
    own = tmp_path / "broker.xml"
    for name in ("users.properties", "roles.properties"):
        (tmp_path / name).write_bytes((config.parent / name).read_bytes())
    own.write_text(broker_xml(secure=True, permissions=PERMISSIONS))
    with BrokerProcess(own) as broker:
        writer, reader = connected(broker, "both"), connected(broker, "both")
        writer.put("/queue/orders.x", "one")
        reader.subscribe("/queue/orders.x", ack="client")
        reader.message("one")
        assert "reloaded" in broker.reload(broker_xml(secure=True, permissions=permitted("orders.#", SENDS)))
        reader.error("permission='CONSUME' on address orders.x")
        writer.put("/queue/orders.x", "two")
        assert "reloaded" in broker.reload(broker_xml(secure=True, permissions=everything("news.#")))
        writer.send("SEND", {"destination": "/queue/orders.x"}, b"three")
        writer.error("permission='SEND' on address orders.x")


def test_a_broken_roles_file_does_not_stop_anybody(broker, config):
    roles = config.parent / "roles.properties"
    right = roles.read_text()
    roles.write_text("readers = reader, reader\n")
    broker.wait_for_log("roles file not reloaded, the previous roles stay in effect")
    assert http(broker, "GET", "/metrics", "reader:reader")[0] == 200
    roles.write_text(right)


def test_no_password_is_shown_anywhere(config, tmp_path):
    """Logins over STOMP and HTTP, right and wrong, with everything logged that can be."""
    own = tmp_path / "broker.xml"
    for name in ("users.properties", "roles.properties"):
        (tmp_path / name).write_bytes((config.parent / name).read_bytes())
    own.write_text(broker_xml(secure=True, permissions=PERMISSIONS))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "stompring", "run", "--config", str(own), "--log-level", "debug"),
            *("--data", str(tmp_path / "data")),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    seen = []
    try:
        ports = {}
        for line in process.stdout:
            seen.append(line)
            if "listens on" in line:
                ports[line.rstrip(")\n").rpartition(" ")[2]] = int(
                    line.partition(" (acceptor")[0].rpartition(":")[2]
                )
            if "is ready" in line:
                break
        running = type("Running", (), {"port": ports["stomp"], "http_port": ports["http"]})
        right = login(running, login="marked", passcode=MARKER)
        seen.append(str(right.expect("CONNECTED").raw))
        right.send("SEND", {"destination": "/queue/orders.m", "persistent": "true", "receipt": "r"}, b"x")
        seen.append(str(right.expect("RECEIPT").raw))
        for raw in (
            f"CONNECT\naccept-version:1.2\nlogin:marked\npasscode:{MARKER}X\n\n\0",
            f"CONNECT\naccept-version:1.2\nlogin:nobody\npasscode:{MARKER}\n\n\0",
            f"CONNECT\npasscode {MARKER}\n\n\0",
            f"CONNECT\nlogin:marked\npasscode:x\n{MARKER}\n\n\0",
            f"CONNECT\naccept-version:9\nlogin:marked\npasscode:{MARKER}\n\n\0",
            f"CONNECT\naccept-version:1.2\nlogin:marked\npasscode:{MARKER}\nheart-beat:x\n\n\0",
            f"CONNECT\nlogin:marked\npasscode:{MARKER}\0",
            f"CONNECT\naccept-version:1.2\nlogin:marked\npasscode:{MARKER}\n\n\0CONNECT\nlogin:marked\n"
            f"passcode:{MARKER}\n\n\0",
        ):
            client = StompClient(ports["stomp"])
            client.raw(raw.encode())
            while (frame := client.frame()).command != "ERROR":
                seen.append(str(frame.raw))
            seen.append(str(frame.raw))
            client.close()
        for credentials in (f"marked:{MARKER}", f"marked:{MARKER}X", f"admin:{MARKER}"):
            seen.append(str(http(running, "GET", "/metrics", credentials)))
        for path in ("/metrics", "/api/v1/connections", "/api/v1/broker", "/api/v1/queues/orders.m/messages"):
            status, document = http(running, "GET", path, "admin:admin")
            assert status == 200
            seen.append(str(document))
    finally:
        process.terminate()
        seen.append(process.stdout.read())
        process.wait(PATIENCE)
    printed = stompring("data", "print", "--data", str(tmp_path / "data"))
    assert printed.returncode == 0, printed.stderr
    seen.append(printed.stdout)
    everything_shown = "\n".join(seen)
    assert MARKER not in everything_shown
    assert base64.b64encode(f"marked:{MARKER}".encode()).decode() not in everything_shown
    assert "marked" in everything_shown and "orders.m" in printed.stdout
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert MARKER.encode() not in kept and b"orders.m" in kept


POLICY = '''
from stompring.policy import AddressPolicy, ChangeHeaders, parameter


class Signed(AddressPolicy):
    """Signs messages with a key."""

    key: str = parameter("The key.")

    def admit(self, message):
        return ChangeHeaders({"signature": str(len(self.key)) + self.key[-1]})
'''


def test_a_secret_from_outside_is_used_and_not_shown(tmp_path, monkeypatch):
    config = tmp_path / "broker.xml"
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "signed.py").write_text(POLICY)
    (tmp_path / "key").write_text(f"{MARKER}\n")
    monkeypatch.setenv("STOMP_PREFIX", "/only;here/&")
    text = broker_xml(
        core='<broker-plugins><broker-plugin name="signed"><property key="key" value="${file:key}"/>'
        "</broker-plugin></broker-plugins>",
        settings={"#": {"address-policy": '<address-policy name="signed"/>'}},
    )
    config.write_text(text.replace("anycastPrefix=/queue/,queue/", "anycastPrefix=${env:STOMP_PREFIX}"))
    with BrokerProcess(config) as broker:
        client = broker.client()
        client.connect()
        client.put("/only;here/&q", "x")
        client.subscribe("/only;here/&q", ack="auto")
        assert client.message("x")["signature"] == f"{len(MARKER)}{MARKER[-1]}"
        client.disconnect()
        status, shown = http(broker, "GET", "/api/v1/addresses/q")
        assert status == 200 and shown["policies"] == ["signed"] and MARKER not in str(shown)
        (tmp_path / "key").unlink()
        refused = broker.reload()
        assert (
            f"{config}:" in refused and "cannot read file" in refused and MARKER not in "\n".join(broker.log)
        )
    checked = stompring("check-config", str(config))
    assert checked.returncode == 1 and MARKER not in checked.stdout + checked.stderr
