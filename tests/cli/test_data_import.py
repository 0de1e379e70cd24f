"""``stompring data import``: what was exported comes back, whole, once, into a directory and into a running broker."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from stompring.cli import data_import
from stompring.cli.data_import import OfflineImport, OnlineImport
from stompring.store.export import ExportWriter

from ..broker_document import EVERYBODY, broker_xml
from ..broker_process import ROOT, BrokerProcess
from ..certificates import Authority
from ..end_to_end.secured import document
from ..management import Answered, Management
from ..stomp_client import StompClient
from .command import run
from .conftest import invoke, told
from .test_data_export import exported

#: Pages almost everything.
PAGING = broker_xml(settings={"#": {"max-size-messages": 20, "page-size-bytes": "10K"}})


@pytest.fixture(scope="module")
def file(stopped, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "all.json"
    invoke(f"export {path} --data {stopped.filled.data}")
    return path


def without_numbers(messages):
    return [{name: value for name, value in message.items() if name != "number"} for message in messages]


def contents(data, tmp_path):
    """What a directory holds, in order, and that it is in order."""
    result = invoke(f"verify --data {data}")
    assert result.stdout == "", result.output
    again = tmp_path / "again.json"
    result = invoke(f"export {again} --replace --data {data}")
    addresses, queues, messages = exported(again)
    return addresses, queues, without_numbers(messages)


def expected(file):
    addresses, queues, messages = exported(file)
    return addresses, queues, without_numbers(messages)


# ---- into a directory


def test_result_as_json(file, tmp_path):
    result = invoke(f"import {file} --json --data {tmp_path}/data")
    assert json.loads(result.stdout) == {"file": str(file), "messages": len(exported(file)[2]), "earlier": 0}


def test_what_does_not_fit_into_memory_is_paged(file, tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(PAGING)
    invoke(f"import {file} --config {config}")
    shown = told(f"print --json --config {config}")
    paged = {queue["name"]: queue["pagedCount"] for queue in shown["queues"]}
    assert paged["pages.a"] > 300 and paged["plain"] > 30
    assert contents(tmp_path / "data", tmp_path) == expected(file)


def check_queues(stopped, management, other):
    """The queues have what those of the exported broker had."""
    for name, before in stopped.queues.items():
        queue = management.queue(name)
        assert queue["messageCount"] == len(stopped.filled.of(name)), name
        for field in (
            "scheduledCount",
            "ringSize",
            "filter",
            "paused",
            "maxConsumers",
            "user",
            "durable",
            other,
        ):
            assert queue[field] == before[field], (name, field)


@pytest.mark.parametrize("document", [broker_xml(), PAGING], ids=["memory", "paging"])
def test_a_broker_goes_on_with_it(stopped, file, tmp_path, document):
    config, data = tmp_path / "broker.xml", tmp_path / "data"
    config.write_text(document)
    invoke(f"import {file} --config {config}")
    with BrokerProcess(config, data) as broker:
        check_queues(stopped, Management(broker.http_port), "autoCreated")
        dialogue = StompClient(broker.port)
        dialogue.connect()
        for name in ("plain", "again", "pages.a", "news.two"):
            dialogue.subscribe(f"::{name}", id=name, ack="auto")
            wanted = sorted(
                (each for each in stopped.filled.of(name) if not each.due), key=lambda each: -each.priority
            )
            for each in wanted:
                frame = dialogue.message(each.body)
                assert frame["redelivered"] == ("true" if each.deliveries else "false")
                for header, value in each.headers.items():
                    assert frame[header] == value
        dialogue.nothing()


def test_it_comes_after_what_is_there_and_a_ring_keeps_the_newest(tmp_path):
    data = tmp_path / "data"
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write(first, list("abc"), ringSize=4)
    write(second, list("defg"), ringSize=5)
    for each in (first, second):
        invoke(f"import {each} --data {data}")
    _, (queue,), messages = contents(data, tmp_path)
    assert queue["ringSize"] == 5
    assert [message["body"] for message in messages] == list("cdefg")


def test_the_same_file_once(file, tmp_path):
    data = tmp_path / "data"
    assert f"imported {len(exported(file)[2])} messages" in invoke(f"import {file} --data {data}").stdout
    assert "--again" in invoke(f"import {file} --data {data}", code=1).stderr
    assert contents(data, tmp_path) == expected(file)
    rings = sum(place["queue"] == "ring" for message in exported(file)[2] for place in message["queues"])
    invoke(f"import {file} --again --data {data}")
    assert len(contents(data, tmp_path)[2]) == 2 * len(exported(file)[2]) - rings


@pytest.mark.parametrize("after", [0, 5, *(pytest.param(after, marks=pytest.mark.long) for after in (1, 11))])
@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("document", [broker_xml(), PAGING], ids=["memory", "paging"])
def test_an_import_that_was_interrupted_goes_on(file, tmp_path, monkeypatch, after, safe, document):
    """It ends before or after a commit, without a word."""
    config, data = tmp_path / "broker.xml", tmp_path / "data"
    config.write_text(document)
    commits = 0
    commit = OfflineImport.commit

    def interrupted(self, done):
        nonlocal commits
        commits += 1
        if commits > after and not safe:
            raise KeyboardInterrupt
        commit(self, done)
        if commits > after:
            raise KeyboardInterrupt

    monkeypatch.setattr(OfflineImport, "most_messages", 30)
    with monkeypatch.context() as patch:
        patch.setattr(OfflineImport, "commit", interrupted)
        invoke(f"import {file} --config {config}", code=130)
    result = invoke(f"import {file} --config {config}")
    before = 30 * (after + safe)
    assert (f", {before} of them by an earlier, interrupted import" in result.stdout) == (before > 0)
    assert contents(data, tmp_path) == expected(file)


@pytest.mark.long
def test_an_import_that_was_killed_goes_on(tmp_path):
    file, data = tmp_path / "many.json.gz", tmp_path / "data"
    bodies = [f"{number}" for number in range(15_000)]
    write(file, bodies)
    command = [sys.executable, "-m", "stompring", "data", "import", str(file), "--data", str(data)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    codes = []
    for size in (1, 800_000, 1_600_000):  # of 2.6 MB, in three commits
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and sum(path.stat().st_size for path in data.rglob("*.journal")) < size:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        codes.append(process.wait())
    assert -signal.SIGKILL in codes
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "already imported completely" in done.stderr, done.stderr
    assert [message["body"] for message in contents(data, tmp_path)[2]] == bodies


def write(file, bodies, **attributes):
    """A file of one queue."""
    made = {
        **{"name": "q", "address": "q", "routingType": "ANYCAST", "durable": True, "filter": None},
        **{"ringSize": -1, "ringPolicy": "DISCARD", "ringCountsPaged": False, "maxConsumers": -1},
        **{"purgeOnNoConsumers": False, "exclusive": False, "nonDestructive": False},
        **{"consumersBeforeDispatch": 0, "delayBeforeDispatch": -1, "enabled": True, "user": None},
        **{"autoCreated": False, "autoDelete": False, "temporary": False, "configured": False},
        **{"paused": False, "noLocal": None, "asConfigured": None},
        **attributes,
    }
    with ExportWriter(file, 0) as writer:
        writer.write("queue", made)
        for number, body in enumerate(bodies, 1):
            writer.write("message", message(number, body))


def message(number, text, **fields):
    place = {"queue": "q", "deliveryCount": 0, "failedAttempts": 0, "dueTime": None, "recurrence": None}
    return {
        **{"number": number, "address": "q", "queues": [place], "priority": 4, "durable": True},
        **{"timestamp": 1000 + number, "expires": 0, "routingType": None, "destination": "q", "user": None},
        **{"origin": None, "group": None, "groupEnd": False, "body": text},
        **{"headers": [["priority", "4"], ["persistent", "true"]]},
        **fields,
    }


# ---- files that cannot be


def test_a_file_that_was_cut_off_changes_nothing(tmp_path):
    part, data = tmp_path / "part.json", tmp_path / "data"
    write(part, ["a", "b"])
    part.write_bytes(part.read_bytes()[:-3])
    result = invoke(f"import {part} --data {data}", code=1)
    assert f"{part} is truncated: the last line is missing" in result.stderr
    assert contents(data, tmp_path) == ([], [], [])


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"priority": 10}, "priority is not an integer from 0 to 9"),
        ({"body": {"base64": "?"}}, "body is neither"),
        ({"queues": []}, "queues is empty"),
        ({"headers": [["a"]]}, "headers is not a list"),
        ({"routingType": "ANY"}, "routingType is one of"),
        ({"colour": 1}, "unknown field colour"),
    ],
)
def test_a_line_that_cannot_be(tmp_path, changes, words):
    file, data = tmp_path / "some.json", tmp_path / "data"
    write(file, ["a", "b"])
    lines = file.read_text().splitlines()
    lines[3] = json.dumps({"message": message(2, "b", **changes)})
    file.write_text("\n".join(lines) + "\n")
    result = invoke(f"import {file} --data {data}", code=1)
    assert f"{file}:4: " in result.stderr and words in result.stderr
    assert (
        contents(data, tmp_path)[2] == []
    )  # what came before it was not safe yet, and comes with the next import
    lines[3] = json.dumps({"message": message(2, "b")})
    file.write_text("\n".join(lines) + "\n")
    invoke(f"import {file} --data {data}")
    assert [each["body"] for each in contents(data, tmp_path)[2]] == ["a", "b"]


def test_a_queue_that_cannot_become_what_the_file_says(tmp_path):
    file, data = tmp_path / "some.json", tmp_path / "data"
    write(file, ["a"])
    invoke(f"import {file} --data {data}")
    write(file, ["b"], routingType="MULTICAST")
    result = invoke(f"import {file} --data {data}", code=1)
    assert "queue q: routing-type is ANYCAST in the broker and MULTICAST in the file" in result.stderr
    write(file, ["b"], filter="a = ")
    assert "queue q: filter" in invoke(f"import {file} --data {data}", code=1).stderr
    assert [each["body"] for each in contents(data, tmp_path)[2]] == ["a"]


def test_a_broker_that_keeps_nothing(tmp_path):
    file, config = tmp_path / "some.json", tmp_path / "broker.xml"
    write(file, ["a"])
    config.write_text(broker_xml(core="<persistence-enabled>false</persistence-enabled>"))
    assert "persistence-enabled is false" in invoke(f"import {file} --config {config}", code=1).stderr


# ---- into a running broker


def places(broker):
    return f"--broker stomp://127.0.0.1:{broker.port} --server http://127.0.0.1:{broker.http_port}"


def check_running(stopped, broker):
    management = Management(broker.http_port)
    check_queues(stopped, management, "routingType")
    for name in stopped.queues:
        shown = management.messages(name)
        wanted = sorted(stopped.filled.of(name), key=lambda each: (bool(each.due), -each.priority))
        own = {name for each in wanted for name in each.headers}
        assert len(shown) == min(len(wanted), 200)
        for each, seen in zip(wanted, shown, strict=False):
            sent = {key: value for key, value in each.headers.items() if key != "_AMQ_DUPL_ID"}
            assert {key: value for key, value in seen["headers"].items() if key in own} == sent
            assert seen["durable"] and seen["dueTime"] == (each.due or None)
            assert seen["bodySize"] == len(each.body)
            repeat = None if seen["recurrence"] is None else seen["recurrence"]["repeat"]
            assert (repeat or 0) == each.repeat
    assert not [each for each in management.ask("GET", "/queues")["data"] if "import" in each["name"]]


def test_dead_letters_of_a_running_broker_come_back_to_the_queue_of_their_origin(start_broker, tmp_path):
    """That queue's filter asks for headers which no other sender may set."""
    settings = {
        "#": {
            "dead-letter-address": "DLA",
            "auto-create-dead-letter-resources": "true",
            "max-delivery-attempts": 1,
        }
    }
    first = start_broker(settings=settings)
    client = StompClient(first.port)
    client.connect()
    client.subscribe("/queue/q")
    client.put("/queue/q", "poison", persistent="true")
    client.answer("NACK", client.message("poison"))
    Management(first.http_port).expect("DLQ.q", messageCount=1)
    client.kill()
    first.stop()
    path = tmp_path / "dead.json"
    data = first.config.with_name(f"{first.config.stem}-data")
    invoke(f"export {path} --data {data}")
    second = start_broker()
    invoke(f"import {path} {places(second)}")
    (message,) = Management(second.http_port).messages("DLQ.q")
    assert message["headers"]["_AMQ_ORIG_QUEUE"] == "q"
    assert "stompring-imported" not in message["headers"]


@pytest.mark.parametrize("after", [0, 4])
def test_a_running_import_that_was_interrupted_goes_on(stopped, file, start_broker, monkeypatch, after):
    broker = start_broker()
    commits = 0
    commit = OnlineImport.commit

    def interrupted(self, done):
        nonlocal commits
        commits += 1
        if commits > after:
            raise KeyboardInterrupt
        commit(self, done)

    monkeypatch.setattr(OnlineImport, "most_messages", 50)
    with monkeypatch.context() as patch:
        patch.setattr(OnlineImport, "commit", interrupted)
        invoke(f"import {file} {places(broker)}", code=130)
    invoke(f"import {file} {places(broker)}")
    check_running(stopped, broker)


def test_a_running_broker_is_asked_where_it_listens(file, start_broker, tmp_path):
    broker = start_broker()
    data = broker.config.with_name(f"{broker.config.stem}-data")
    assert "specify --server URL" in invoke(f"import {file} --data {data}", code=1).stderr
    with pytest.raises(Answered):
        Management(broker.http_port).queue("plain")


def test_nobody_listens(file):
    result = invoke(f"import {file} --broker stomp://127.0.0.1:1 --server http://127.0.0.1:1", code=1)
    assert "cannot connect to http://127.0.0.1:1: connection refused" in result.stderr


def test_one_import_of_a_file_at_a_time(file, start_broker, monkeypatch):
    """What the other has under way would come too late to be counted."""
    broker = start_broker()
    export = json.loads(file.read_text().partition("\n")[0])["export"]
    other = StompClient(broker.port)
    other.connect({"client-id": f"stompring.import.{export['id']}"})
    monkeypatch.setattr(data_import, "EARLIER_IMPORT_TIMEOUT", 0.3)
    result = invoke(f"import {file} {places(broker)}", code=1)
    assert "another import of this file is in progress" in result.stderr
    other.ask("DISCONNECT")
    monkeypatch.undo()
    invoke(f"import {file} {places(broker)}")


def test_over_tls(file, tmp_path):
    """As broker.xml says where its doors are, and as the command line does."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        stomp, http = (each.getsockname()[1] for each in (one, two))
    authority = Authority(tmp_path)
    authority.issue("broker.pem")
    config = tmp_path / "broker.xml"
    urls = {
        "only": "ws://127.0.0.1:0",
        "stomp": f"ssl://127.0.0.1:{stomp}",
        "http": f"https://127.0.0.1:{http}",
    }
    config.write_text(
        document(
            {
                name: f"{url}{'' if name == 'only' else '?keyStorePath=broker.pem'}"
                for name, url in urls.items()
            }
        )
    )
    with BrokerProcess(config, tmp_path / "data"):
        assert "is not trusted" in invoke(f"import {file} --config {config}", code=1).stderr
        trusting = f"--ca {authority.file}"
        invoke(f"import {file} --config {config} {trusting}")
        again = f"--broker stomp+ssl://localhost:{stomp} --server https://localhost:{http}"
        other = tmp_path / "other.json"
        write(other, ["a"])
        invoke(f"import {other} {again} {trusting}")
        assert f"--ca {file}: " in invoke(f"import {other} {again} --ca {file}", code=1).stderr


@pytest.mark.parametrize(
    "words, text",
    [
        ("--broker http://h:1 --server http://h:1", "--broker must be stomp://HOST:PORT"),
        ("--broker h:1 --server stomp://h:1", "name the management API"),
    ],
)
def test_places_that_are_none(file, words, text):
    assert text in invoke(f"import {file} {words}", code=2).stderr


def test_a_login_is_needed_where_security_is_on(start_broker, tmp_path):
    file = tmp_path / "some.json"
    write(file, ["a"])
    users = tmp_path / "users.json"
    roles = tmp_path / "roles.json"
    files = f"--users {users} --roles {roles} --role {EVERYBODY}"
    run(f"user add anna --password-stdin {files}", stdin=b"secret")
    broker = start_broker(
        secure=True, core=f"<users-file>{users}</users-file><roles-file>{roles}</roles-file>"
    )
    invoke(f"import {file} {places(broker)}", code=1)
    command = f"import {file} {places(broker)} --user anna --password-stdin"
    assert "broker rejected" in invoke(command, typed="other\n", code=1).stderr
    invoke(command, typed="secret\n")
    users.with_name("password").write_text("secret\n")
    other = tmp_path / "other.json"
    write(other, ["b"])
    invoke(f"import {other} {places(broker)} --user anna --password-file {users.with_name('password')}")
