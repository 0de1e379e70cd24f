"""Who may do what, of a broker that runs: STOMP, HTTP, reloads, files that change, and what is never shown."""

import base64
import json
import time

import pytest

from stompring.security.accounts import edit_roles, edit_users

from ..broker_document import broker_xml, everything, permitted
from ..broker_process import BrokerProcess
from ..management import Management
from ..security.hashers import QUICK
from ..stomp_client import spelled
from ..waiting import Deadline
from .steps import receive, say, written
from .test_security import login, stompring

#: A password that would be found wherever it is shown.
MARKER = "mark3r-of-a-password"

SENDS = {"send": "writers", "createAddress": "writers", "createDurableQueue": "writers"}
READS = {"consume": "readers", "createNonDurableQueue": "readers", "deleteNonDurableQueue": "readers"}

PERMISSIONS = (
    permitted("orders.#", {**SENDS, **READS})
    + permitted("orders.secret", SENDS)
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
    login = None if credentials is None else credentials.partition(":")[::2]
    answer, content = Management(broker.http_port, login=login).exchange(method, path)
    assert answer.getheader("Set-Cookie") is None
    text = content.decode()
    return answer.status, json.loads(text) if "json" in (answer.getheader("Content-Type") or "") else text


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    config = written(
        tmp_path_factory.mktemp("permissions"),
        secure=True,
        permissions=PERMISSIONS,
        core="<security-invalidation-interval>1000</security-invalidation-interval>",
    )
    for user in ("writer", "reader", "auditor", "admin"):
        add(config, user, f"{user}s")
    add(config, "both", "writers", "readers")
    add(config, "squatter", "squatters", "readers")
    add(config, "marked", "writers", password=MARKER)
    return config


@pytest.fixture
def own(config, tmp_path):
    """The same configuration and users for a broker of the test's own."""
    for name in ("users.properties", "roles.properties"):
        (tmp_path / name).write_bytes((config.parent / name).read_bytes())
    return written(tmp_path, secure=True, permissions=PERMISSIONS)


@pytest.fixture(scope="module")
def broker(config):
    with BrokerProcess(config) as broker:
        yield broker


def connected(broker, user, version="1.2", **headers):
    client = login(broker, version, login=user, passcode=user, **spelled(headers))
    client.expect("CONNECTED")
    return client


def answered(client, command, destination, *lacking, **headers):
    """SEND or SUBSCRIBE is answered by an ERROR with what is lacking, or else by a RECEIPT."""
    known = {"id": "1"} if command == "SUBSCRIBE" else {}
    client.send(command, {"destination": destination, "receipt": "r", **known, **spelled(headers)})
    if any(lacking):
        client.error(*lacking, receipt="r")
    else:
        client.expect("RECEIPT")
        client.disconnect()


@pytest.mark.parametrize(
    "user, command, destination, lacking",
    [
        ("reader", "SEND", "/queue/orders.x", "permission='SEND' on address orders.x"),
        ("writer", "SUBSCRIBE", "/topic/news.x", "permission='CONSUME' on address news.x"),
        ("reader", "SUBSCRIBE", "/queue/orders.n", "='CREATE_ADDRESS' on address orders.n"),
        ("reader", "SUBSCRIBE", "/topic/#", "permission='CONSUME' on address #"),
        ("reader", "SUBSCRIBE", "/queue/orders.eu::audit", "'CONSUME' for queue audit on address orders.eu"),
        ("both", "SUBSCRIBE", "/topic/news.*.sport", ""),
        ("writer", "SEND", "/queue/orders.eu::audit", ""),
        ("auditor", "SUBSCRIBE", "/queue/orders.eu::audit", ""),
    ],
)
def test_stomp(broker, version, user, command, destination, lacking):
    if "audit" in destination:
        connected(broker, "writer").put("/queue/orders.eu::audit", "x")
    client = connected(broker, user, version)
    answered(client, command, destination, lacking and f"User {user} does not have", lacking)


@pytest.mark.parametrize(
    "user, topic, lacking",
    [("both", "news.d", ""), ("reader", "news.e", "='CREATE_ADDRESS' on address news.e")],
)
def test_durable_subscriptions(broker, version, user, topic, lacking):
    client = connected(broker, user, version, client_id=f"clients.c{version}-{user}")
    answered(client, "SUBSCRIBE", f"/topic/{topic}", lacking, durable_subscription_name="d")


def test_a_transaction_that_is_refused_sends_nothing(broker):
    client = connected(broker, "writer")
    client.send("BEGIN", {"transaction": "t"})
    say(client, "/queue/orders.t", b"x", transaction="t")
    say(client, "/queue/elsewhere", b"x", transaction="t")
    client.error("permission='SEND' on address elsewhere")
    assert broker.management(("admin", "admin")).queue("orders.t")["messageCount"] == 0


@pytest.mark.parametrize(
    "command, destination, headers",
    [
        ("SEND", "/queue/mal.x::orders.new", {}),
        ("SUBSCRIBE", "/queue/mal.x::orders.new", {}),
        ("SUBSCRIBE", "/topic/mal.t", {"durable_subscription_name": "new"}),
    ],
)
def test_the_name_of_anothers_queue_is_not_taken(broker, command, destination, headers):
    """Who may create queues below mal.# alone cannot have one that another address is going to need."""
    lacking = "permission='CREATE_DURABLE_QUEUE' for queue orders.new", "also required on address orders.new"
    answered(connected(broker, "squatter", client_id="orders"), command, destination, *lacking, **headers)
    assert http(broker, "GET", "/api/v1/queues/orders.new", "admin:admin")[0] == 404
    connected(broker, "squatter").put("/queue/mal.x::mal.y", "x")


def test_replies(broker):
    """A temporary queue is an address like any other: nobody here has been given anything on it."""
    client = connected(broker, "both")
    say(client, "/queue/orders.r", b"x", reply_to="/temp-queue/r")
    client.error("permission='CONSUME' on address temp-queue.")


def test_roles_follow_their_file(broker, config):
    """Who loses a role is refused, and who reads is closed, without a reload."""
    add(config, "guest", "writers", "readers")
    reader, writer = connected(broker, "guest"), connected(broker, "guest")
    writer.put("/queue/orders.g", "one")
    receive(reader, "/queue/orders.g", "one")
    done = stompring("user", "revoke", "guest", "readers", "--config", str(config))
    assert done.returncode == 0, done.stderr
    reader.error("User guest does not have permission='CONSUME' on address orders.g")
    writer.put("/queue/orders.g", "two")
    assert stompring("user", "rm", "guest", "--config", str(config)).returncode == 0
    deadline = Deadline()
    while "guest" not in (told := _send_once(writer)) and not deadline.passed():
        time.sleep(0.1)
    assert "User guest does not have permission='SEND' on address orders.g" in told


def _send_once(client):
    say(client, "/queue/orders.g", b"x", receipt="again")
    return client.frame().get("message") or ""


def test_a_reload_changes_permissions(own):
    with BrokerProcess(own) as broker:
        writer, reader = connected(broker, "both"), connected(broker, "both")
        writer.put("/queue/orders.x", "one")
        reader.subscribe("/queue/orders.x", ack="client")
        reader.message("one")
        assert "reloaded" in broker.reload(broker_xml(secure=True, permissions=permitted("orders.#", SENDS)))
        reader.error("permission='CONSUME' on address orders.x")
        writer.put("/queue/orders.x", "two")
        assert "reloaded" in broker.reload(broker_xml(secure=True, permissions=everything("news.#")))
        say(writer, "/queue/orders.x", b"three")
        writer.error("permission='SEND' on address orders.x")


def test_a_broken_roles_file_does_not_stop_anybody(broker, config):
    roles = config.parent / "roles.properties"
    right = roles.read_text()
    roles.write_text("readers = reader, reader\n")
    broker.wait_for_log("roles file not reloaded, the previous roles stay in effect")
    assert http(broker, "GET", "/metrics", "reader:reader")[0] == 200
    roles.write_text(right)


def test_no_password_is_shown_anywhere(own, tmp_path):
    """Logins over STOMP and HTTP, right and wrong, with everything logged that can be."""
    seen = []
    with BrokerProcess(own, tmp_path / "data", options=("--log-level", "debug")) as broker:
        right = login(broker, login="marked", passcode=MARKER)
        seen.append(str(right.expect("CONNECTED").raw))
        right.put("/queue/orders.m", "x", persistent="true")
        known = f"CONNECT\naccept-version:1.2\nlogin:marked\npasscode:{MARKER}"
        for raw in (
            f"{known}X\n\n\0",
            f"CONNECT\naccept-version:1.2\nlogin:nobody\npasscode:{MARKER}\n\n\0",
            f"CONNECT\npasscode {MARKER}\n\n\0",
            f"CONNECT\nlogin:marked\npasscode:x\n{MARKER}\n\n\0",
            f"CONNECT\naccept-version:9\nlogin:marked\npasscode:{MARKER}\n\n\0",
            f"{known}\nheart-beat:x\n\n\0",
            f"CONNECT\nlogin:marked\npasscode:{MARKER}\0",
            f"{known}\n\n\0" * 2,
        ):
            client = broker.client()
            client.raw(raw.encode())
            while (frame := client.frame()).command != "ERROR":
                seen.append(str(frame.raw))
            seen.append(str(frame.raw))
            client.close()
        for credentials in (f"marked:{MARKER}", f"marked:{MARKER}X", f"admin:{MARKER}"):
            seen.append(str(http(broker, "GET", "/metrics", credentials)))
        for path in ("/metrics", "/api/v1/connections", "/api/v1/broker", "/api/v1/queues/orders.m/messages"):
            status, document = http(broker, "GET", path, "admin:admin")
            assert status == 200
            seen.append(str(document))
    seen += broker.log
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
        shown = broker.management().address("q")
        assert shown["policies"] == ["signed"] and MARKER not in str(shown)
        (tmp_path / "key").unlink()
        refused = broker.reload()
        assert (
            f"{config}:" in refused and "cannot read file" in refused and MARKER not in "\n".join(broker.log)
        )
    checked = stompring("check-config", str(config))
    assert checked.returncode == 1 and MARKER not in checked.stdout + checked.stderr
