"""The log of a broker that runs: connections, management, failed logins, in both formats and in a storm."""

import json
import re
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from stompring.broker.limits import LINES

from ..broker_document import EVERYBODY
from ..broker_process import ROOT, BrokerProcess
from ..management import Answered, Management
from ..wire import SocketWire
from .steps import begin, connected, written
from .test_permissions import add
from .test_security import login

STORM = 1000

#: Those of the JSON format that docs/logging.md names.
ROWS = re.findall(
    r"^\| (`.+`) \| (?:text|number|object) \|", (ROOT / "docs/logging.md").read_text(), re.MULTILINE
)
FIELDS = re.findall(r"`(\w+)`", " ".join(ROWS))

#: Logs a line with every field when it is loaded.
PLUGIN = f"""
import logging
from stompring.policy import AddressPolicy
logging.getLogger(__name__).warning("every field", extra=dict.fromkeys({FIELDS[::-1]}, 1))
class Loud(AddressPolicy):
    pass
"""


class Logged:
    """A broker with a user, and what it logs from some moment on."""

    def __init__(self, broker):
        self.broker = broker
        self.seen = len(broker.log)

    def login(self):
        """A client that is connected, and its session."""
        client = connected(self.broker, login="ada", passcode="ada", client_id="desk")
        return client, client.connected["session"]

    def http(self, method, path, body=None, credentials=("ada", "ada")):
        """Ask; returns the peer as the broker must see it."""
        wire = SocketWire(self.broker.http_port)
        asked = Management(login=credentials, open_wire=lambda: wire)
        peer = "{}:{}".format(*wire.socket.getsockname())
        with suppress(Answered):
            asked.text(path, method, body)
        return peer

    def line(self, pattern):
        return self.broker.wait_for_log(pattern, self.seen)

    def record(self, pattern):
        """A line in JSON: its fields."""
        found = json.loads(self.line(pattern))
        assert set(found) <= {"time", "level", "logger", "message", *FIELDS}
        return found

    def lines(self):
        return self.broker.log[self.seen :]


def run(directory, style):
    core = '<broker-plugins><broker-plugin name="loud"/></broker-plugins>'
    config = written(directory, secure=True, core=core)
    (directory / "plugins").mkdir()
    (directory / "plugins" / "loud.py").write_text(PLUGIN)
    add(config, "ada", EVERYBODY)
    return BrokerProcess(config, options=("--log-format", style))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """A broker that logs as text, and one that logs JSON."""
    styles = ("text", "json")
    with ExitStack() as running:
        yield {style: running.enter_context(run(tmp_path_factory.mktemp(style), style)) for style in styles}


@pytest.fixture
def text(brokers):
    return Logged(brokers["text"])


@pytest.fixture
def records(brokers):
    return Logged(brokers["json"])


def peer_of(client):
    return "{}:{}".format(*client.socket.getsockname())


def test_every_documented_field_is_written_in_that_order(brokers):
    found = json.loads(brokers["json"].wait_for_log("every field"))
    assert list(found) == ["time", "level", "logger", "message", *FIELDS]


# ---- connections


def test_a_connection_is_logged_from_open_to_disconnect(text, name):
    client, session = text.login()
    who = rf"INFO    connection {session} \({peer_of(client)}\)"
    text.line(rf"{who} opened: acceptor stomp, TCP$")
    text.line(rf"{who} logged in: user ada, client-id desk, STOMP 1.2$")
    client.put(f"/queue/{name}", "a", "b", "c")
    client.subscribe(f"/queue/{name}")
    first, *_ = client.messages("a", "b", "c")
    begin(client)
    client.answer("ACK", first, transaction="t")
    client.ask("DISCONNECT")
    text.line(
        rf"{who} closed: DISCONNECT; user ada, unacknowledged messages: 3 \(queue {name}: 3\), "
        r"open transactions aborted: 1$"
    )


def test_the_reason_of_a_close(text):
    text.login()[0].close()
    text.line("closed: closed by the client; user ada, unacknowledged messages: 0$")
    text.login()[0].kill()
    text.line("closed: connection lost: .*; user ada, unacknowledged")
    client, _ = text.login()
    client.send("ACK", {"id": "7-7\x1b[31m"})
    client.error()
    assert "\x1b" not in text.line(r"closed: ERROR sent: .*; user ada, unacknowledged")


def test_a_failed_login_over_stomp_is_the_reason_of_the_close(text):
    client = login(text.broker, login="ada", passcode="eve")
    client.error("Security")
    text.line(rf"connection \S+ \({peer_of(client)}\) closed: ERROR sent: Security Error .*\[ada\]")
    assert not [line for line in text.lines() if "eve" in line]


def test_a_connection_closed_by_management_says_so(records):
    client, session = records.login()
    asked = records.http("DELETE", f"/api/v1/connections/{session}")
    closed = records.record(r"closed: ERROR sent: Connection closed by management")
    assert (closed["connection"], closed["user"], closed["peer"]) == (session, "ada", peer_of(client))
    change = records.record("management: .*DELETE")
    assert (change["connection"], change["user"], change["peer"]) == (session, "ada", asked)


def test_fields_of_a_connection(records, name):
    client, session = records.login()
    client.put(f"/queue/{name}", "a", "b")
    client.subscribe(f"/queue/{name}")
    client.messages("a", "b")
    client.socket.close()
    opened = records.record(f"connection {session} .* opened")
    known = {"connection": session, "peer": opened["peer"], "acceptor": "stomp"}
    assert {**known, "level": "info", "carrier": "TCP"}.items() <= opened.items()
    for word, fields in {
        "logged in": {"client_id": "desk", "version": "1.2"},
        "closed": {
            "reason": "closed by the client",
            "unacknowledged": 2,
            "unacknowledged_by_queue": {name: 2},
            "open_transactions": 0,
        },
    }.items():
        found = records.record(f"connection {session} .* {word}")
        assert {**known, "user": "ada", **fields}.items() <= found.items()


# ---- management


def test_every_change_is_logged_with_who_where_what_and_result(text, name):
    def logged(method, path, rest, body=None):
        peer = text.http(method, path, body)
        text.line(rf"INFO    management: user ada \({peer}\): {method} {path}{rest}$")

    one = f"/api/v1/queues/{name}"
    logged("POST", "/api/v1/queues", rf' {{"name":"{name}"}}: 201', {"name": name})
    logged("POST", "/api/v1/queues", rf" .*: 409 Queue {name} exists already.*", {"name": name})
    logged("PATCH", one, r' {"paused":true}: 200', {"paused": True})
    logged("POST", f"{one}/purge", r': 200 {"removed":0}')
    logged("PATCH", one, r' {"pausd":true}: 400 Unknown field .*', {"pausd": True})
    logged("DELETE", one, ": 204")
    logged("DELETE", one, f": 404 Queue {name} does not exist")
    logged("POST", "/api/v1/addresses", rf' {{"name":"{name}-a"}}: 201', {"name": f"{name}-a"})
    logged("PATCH", f"/api/v1/addresses/{name}-a", r' {"paused":true}: 200', {"paused": True})
    logged("DELETE", f"/api/v1/addresses/{name}-a", ": 204")
    logged("POST", "/api/v1/reload", ": 200.*")


def test_looking_is_not_logged(text):
    for path in ("/api/v1/queues", "/metrics", "/health/live"):
        text.http("GET", path)
    assert not [line for line in text.lines() if "HTTP" in line or "management" in line]


def test_fields_of_a_change(records, name):
    peer = records.http("POST", "/api/v1/queues", {"name": name, "address": f"{name}-a"})
    made = records.record("management: .*POST")
    assert {
        "level": "info",
        "user": "ada",
        "peer": peer,
        "queue": name,
        "address": f"{name}-a",
        "method": "POST",
        "path": "/api/v1/queues",
        "status": 201,
    }.items() <= made.items()
    records.http("DELETE", f"/api/v1/queues/{name}/messages/77-1")
    missing = records.record("management: .*DELETE")
    assert (missing["queue"], missing["address"], missing["status"]) == (name, f"{name}-a", 404)
    assert "reason" in missing


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("credentials", [("ada", "wrong"), ("eve", "ada")])
def test_a_failed_http_login_names_the_peer(brokers, style, credentials):
    logged = Logged(brokers[style])
    for method in ("GET", "POST"):
        peer = logged.http(method, "/api/v1/queues", credentials=credentials)
        logged.line(
            rf"failed login: anonymous \({peer}\): {method} /api/v1/queues: 401 .*\[{credentials[0]}\]"
        )
    assert not [line for line in logged.lines() if "wrong" in line]


# ---- storms


def test_a_storm_of_connections_logs_a_bounded_number_of_lines(tmp_path):
    with run(tmp_path, "json") as broker:
        logged = Logged(broker)
        began = time.monotonic()
        for _ in range(STORM // 50):
            sockets = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(50)]
            for one in sockets:
                one.close()
        logged.broker.wait_for_log("connection opened lines suppressed", logged.seen)
        logged.broker.wait_for_log("connection failed lines suppressed", logged.seen)
        intervals = int((time.monotonic() - began) // 10) + 1
        # all that is still open is closed and counted when the broker stops
    records = [json.loads(line) for line in logged.lines()]
    for word, kind in (("opened", "connection opened"), ("closed", "connection failed")):
        told = [one for one in records if re.match(rf"connection \S+ \(\S+\) {word}", one["message"])]
        suppressed = [one for one in records if f"{kind} lines suppressed" in one["message"]]
        assert LINES <= len(told) <= LINES * intervals
        assert len(told) + sum(one["suppressed"] for one in suppressed) == STORM
        assert all(one["peer"].startswith("127.0.0.1:") and one["connection"] for one in told)


def test_a_storm_of_changes_logs_a_bounded_number_of_lines(tmp_path):
    with run(tmp_path, "text") as broker:
        logged = Logged(broker)
        for number in range(LINES + 20):
            logged.http("DELETE", f"/api/v1/queues/none-{number}")
    told = [line for line in logged.lines() if "management: " in line]
    suppressed = [line for line in logged.lines() if "management lines suppressed" in line]
    assert len(told) >= LINES
    assert len(told) + sum(int(re.findall(r"(\d+) management", line)[0]) for line in suppressed) == LINES + 20


def test_a_start_over_the_data_of_artemis_tells_how_to_import_its_messages(tmp_path):
    journal = tmp_path / "data" / "journal"
    journal.mkdir(parents=True)
    (journal / "activemq-data-1.amq").write_bytes(b"of Artemis")
    with BrokerProcess(written(tmp_path), tmp_path / "data") as broker:
        broker.wait_for_log("has journal files of Artemis, whose messages are not read: 'artemis data exp'")
    assert (journal / "activemq-data-1.amq").read_bytes() == b"of Artemis"
