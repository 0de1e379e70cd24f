"""``stompring data import --from artemis-xml`` with an export that Artemis 2.44 made: clients get what was sent."""

import json

import pytest

from stompring.cli.data_import import OfflineImport

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from .artemis_messages import EXPORT, NEWS, PRODUCED, SCHEDULED, STOMP
from .conftest import invoke
from .test_data_import import places

#: Messages of the file.
COUNT = len(STOMP) + len(SCHEDULED) + len(PRODUCED) + 4 + 1 + 1

CONFIGURED = broker_xml(
    addresses='<address name="pages"><anycast><queue name="pages" ring-size="100"/></anycast></address>'
)


def artemis(file, options, **more):
    return invoke(f"import --from artemis-xml {file} {options}", **more)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker on a directory that the export was imported into."""
    root = tmp_path_factory.mktemp("moved")
    config = root / "broker.xml"
    config.write_text(CONFIGURED)
    result = artemis(EXPORT, f"--config {config}")
    assert f"imported {COUNT} messages" in result.stdout
    assert "1 message of type object" in result.stderr
    with BrokerProcess(config, root / "data") as process:
        yield process


def received(broker, queue, number):
    client = StompClient(broker.port)
    client.connect()
    client.subscribe(f"::{queue}", ack="auto")
    found = [client.message() for _ in range(number)]
    client.nothing()
    return found


def check(frame, sent):
    """Header values are in the frame as in 1.2."""
    assert frame.body == sent.body
    for name, value in sent.arrives.items():
        assert frame.get(name) == value, name
    assert frame["persistent"] == "true"
    for name in ("receipt", "transaction", "_AMQ_ROUTING_TYPE", "_AMQ_LARGE_SIZE"):
        assert frame.get(name) is None


def test_stomp_messages_arrive_as_they_were_sent(broker):
    for queue in ("orders", "large"):
        wanted = [each for each in STOMP if each.queue == queue]
        wanted.sort(key=lambda each: -int(each.headers.get("priority", "4")))
        for frame, sent in zip(received(broker, queue, len(wanted)), wanted, strict=True):
            check(frame, sent)


def test_paged_messages_come_in_their_order(broker):
    bodies = [each.body for each in STOMP if each.queue == "pages"]
    assert [frame.body for frame in received(broker, "pages", 6)] == [*bodies, b"not durable"]


def test_durable_subscriptions_have_what_they_had_not_acknowledged(broker):
    for queue, bodies in NEWS.items():
        if queue == "app.all":
            continue
        assert [frame.body for frame in received(broker, queue, len(bodies))] == bodies


def test_subscriber_comes_back_to_its_durable_subscription(broker):
    client = StompClient(broker.port)
    client.connect({"client-id": "app"})
    client.subscribe("/topic/news.eu", ack="auto", durable_subscription_name="all")
    assert [client.message().body for _ in range(2)] == NEWS["app.all"]
    client.nothing()


def test_scheduled_messages_keep_their_time(broker):
    assert Management(broker.http_port).queue("later")["scheduledCount"] == len(SCHEDULED)
    assert not received(broker, "later", 0)


def test_messages_of_artemis_own_producer(broker):
    for queue, _, _, body in PRODUCED:
        (frame,) = received(broker, queue, 1)
        if body is not None:
            assert frame.body == body
        if queue == "core.text":
            found = {name: frame[name] for name in "sbyhilfd"}
            assert found == {
                **{"s": "a<&>b", "b": "true", "y": "7", "h": "300", "i": "70000", "l": "5000000000"},
                **{"f": "1.5", "d": "2.25E10"},
            }
            assert frame["JMSXGroupID"] == "g"


def test_expired_message_tells_where_it_came_from(broker):
    (frame,) = received(broker, "ExpiryQueue", 1)
    assert frame.body == b"expired" and frame["_AMQ_ORIG_QUEUE"] == "soon"


def test_configured_queue_has_the_attributes_of_broker_xml(broker):
    management = Management(broker.http_port)
    assert management.queue("pages")["ringSize"] == 100
    assert management.queue("orders")["ringSize"] == -1
    assert management.queue("app.red")["filter"] == "colour = 'red'"


def test_message_that_is_sent_again_after_the_move_is_a_duplicate(broker):
    client = StompClient(broker.port)
    client.connect()
    client.put("/queue/orders", "once", persistent="true", _AMQ_DUPL_ID="id-1")
    client.put("/queue/orders", "twice", persistent="true", _AMQ_DUPL_ID="id-2")
    client.subscribe("::orders", ack="auto")
    bodies = []
    while not bodies or bodies[-1] != b"twice":
        bodies.append(client.message().body)
    assert bodies.count(b"once") <= 1  # the imported one, where no other test has taken it


# ---- the command


def test_import_goes_into_a_running_broker(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(CONFIGURED)
    with BrokerProcess(config, tmp_path / "data") as process:
        artemis(EXPORT, places(process))
        wanted = sorted(
            (each for each in STOMP if each.queue == "orders"),
            key=lambda each: -int(each.headers.get("priority", "4")),
        )
        for frame, sent in zip(received(process, "orders", len(wanted)), wanted, strict=True):
            if "_AMQ_DUPL_ID" not in sent.headers:
                check(frame, sent)
        management = Management(process.http_port)
        assert management.queue("later")["scheduledCount"] == len(SCHEDULED)
        assert management.queue("pages")["ringSize"] == 100
        assert management.queue("app.wild")["messageCount"] == 4


def test_interrupted_import_goes_on(tmp_path, monkeypatch):
    commit, commits = OfflineImport.commit, 0

    def interrupted(self, done):
        nonlocal commits
        commit(self, done)
        commits += 1
        if commits == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(OfflineImport, "most_messages", 10)
    with monkeypatch.context() as patch:
        patch.setattr(OfflineImport, "commit", interrupted)
        artemis(EXPORT, f"--data {tmp_path}", code=130)
    result = artemis(EXPORT, f"--data {tmp_path} --json")
    assert json.loads(result.stdout) == {
        **{"file": str(EXPORT), "messages": COUNT, "earlier": 20},
        **{"skipped": {}, "javaBodies": {"object": 1}},
    }
    assert json.loads(invoke(f"print --json --data {tmp_path}").stdout)["messages"] == COUNT


def test_the_same_file_is_imported_once(tmp_path):
    artemis(EXPORT, f"--data {tmp_path}")
    assert "--again" in artemis(EXPORT, f"--data {tmp_path}", code=1).stderr


def test_fault_stops_the_import_with_file_and_line(tmp_path):
    file = tmp_path / "broken.xml"
    file.write_bytes(EXPORT.read_bytes().replace(b'priority="9"', b'priority="11"'))
    line = file.read_bytes().partition(b'priority="11"')[0].count(b"\n") + 1
    result = artemis(file, f"--data {tmp_path}/data", code=1)
    assert f"{file}:{line}: <message>: priority is an integer from 0 to 9, not '11'" in result.stderr


def test_queue_that_is_another_one_in_the_broker_is_refused(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    file = tmp_path / "other.xml"
    file.write_bytes(EXPORT.read_bytes().replace(b'address="pages" ', b'address="large" '))
    artemis(EXPORT, f"--config {config}")
    line = file.read_bytes().partition(b'name="pages" id="60"')[0].count(b"\n") + 1
    result = artemis(file, f"--config {config}", code=1)
    assert (
        f"{file}:{line}: queue pages is bound to address pages in the broker, not to large" in result.stderr
    )


def test_filter_that_is_no_selector_is_refused(tmp_path):
    file = tmp_path / "other.xml"
    file.write_bytes(EXPORT.read_bytes().replace(b"\"colour = 'red'\"", b'"colour = "'))
    result = artemis(file, f"--data {tmp_path}/data", code=1)
    assert f"{file}:25: queue app.red: filter: " in result.stderr


def test_an_export_of_stompring_is_not_taken_for_one_of_artemis(tmp_path):
    artemis(EXPORT, f"--data {tmp_path}/data")
    file = tmp_path / "own.json"
    invoke(f"export {file} --data {tmp_path}/data")
    result = artemis(file, f"--data {tmp_path}/other", code=1)
    assert "not an 'artemis data exp' file" in result.stderr
    result = invoke(f"import {EXPORT} --data {tmp_path}/other", code=1)
    assert f"{EXPORT}:1: " in result.stderr
