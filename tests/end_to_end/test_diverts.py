"""Diverts over sockets: copies, transactions, limits, permissions, reload, restart, HTTP and metrics."""

import pytest

from ..broker_document import anycast, broker_xml, everything, permitted
from ..broker_process import BrokerProcess
from .lasting import DURABLE
from .steps import begin, connected, leave, receive, say
from .test_permissions import add
from .test_policies import DOOR, DOOR_PLUGIN


def divert(name, address, forwarding, inside=""):
    return (
        f'<divert name="{name}"><address>{address}</address><forwarding-address>{forwarding}</forwarding-address>'
        f"{inside}</divert>"
    )


def diverts(*inside):
    return f"<diverts>{''.join(inside)}</diverts>"


EXCLUSIVE = "<exclusive>true</exclusive>"
CORE = diverts(
    divert(
        "plain",
        "a",
        "b, c",
        '<transformer><property key="region" value="eu"/><property key="priority" value="9"/>'
        '<remove-header name="card"/></transformer>',
    ),
    divert("large", "a", "d", f'<filter string="total &gt; 100"/>{EXCLUSIVE}'),
    divert("wild", "w.#", "all"),
    divert("held", "h", "full"),
    divert("failing", "f", "never"),
)
SETTINGS = {
    "full": {"max-size-messages": 1, "address-full-policy": "BLOCK"},
    "never": {"max-size-messages": 1, "address-full-policy": "FAIL"},
    "#": {"config-delete-diverts": "FORCE"},
}

pytestmark = [pytest.mark.in_memory, pytest.mark.broker(core=CORE, settings=SETTINGS)]


def take(client, destination, *bodies):
    receive(client, destination, *bodies, id=destination)
    client.nothing()
    leave(client, destination)


def test_copies_and_their_headers(client):
    client.put("a", "one", total=5, card="1234", region="us", persistent="true")
    for target in ("b", "c"):
        client.subscribe(target, ack="auto", id=target)
        copy = client.message("one")
        assert (copy["_AMQ_ORIG_ADDRESS"], copy["_AMQ_ORIG_QUEUE"]) == ("a", "plain")
        assert copy["_AMQ_ORIG_REASON"] == "divert" and copy["_AMQ_ORIG_MESSAGE_ID"].isdigit()
        assert (copy["region"], copy.get("card"), copy["total"], copy["destination"]) == (
            "eu",
            None,
            "5",
            target,
        )
        assert (copy["persistent"], copy["priority"]) == ("true", "9")
        leave(client, target)
    client.subscribe("a", ack="auto", id="a")
    original = client.message("one")
    assert (original["region"], original["card"]) == ("us", "1234")
    leave(client, "a")


def test_an_exclusive_divert_takes_the_message(client):
    client.put("a", "large", total=500)
    take(client, "d", "large")
    for other in ("a", "b", "c"):
        take(client, other)


def test_a_wildcard_address(client):
    client.put("w.x", "1")
    client.put("w.x.y", "2")
    take(client, "all", "1", "2")
    take(client, "w.x", "1")


def test_copies_are_made_at_commit(client):
    for end in ("ABORT", "COMMIT"):
        begin(client)
        client.put("a", end, transaction="t")
        client.subscribe("b", ack="auto", id="b")
        client.nothing()
        leave(client, "b")
        client.ask(end, {"transaction": "t"})
    for target in ("a", "b", "c"):
        take(client, target, "COMMIT")


def test_a_producer_waits_for_the_forwarding_address(client, connect, management):
    client.put("h", "1")
    say(client, "h", b"2", receipt="late")
    management.expect_address("full", blockedProducers=1)
    management.expect("h", messageCount=1)
    receive(connect(), "full", "1", "2")
    client.expect("RECEIPT", receipt_id="late")
    take(client, "h", "1", "2")


def test_a_commit_waits_for_the_forwarding_address(client, connect, management):
    client.put("h", "1")
    begin(client)
    client.put("h", "2", transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "late"})
    management.expect_address("full", blockedProducers=1)
    receive(connect(), "full", "1", "2")
    client.expect("RECEIPT", receipt_id="late")
    take(client, "h", "1", "2")


def test_a_full_forwarding_address_fails_a_send_and_a_commit(connect, management):
    for number, transaction in enumerate(({}, {"transaction": "t"})):
        client = connect()
        if not number:
            client.put("f", "kept")
        if transaction:
            client.ask("BEGIN", transaction)
            client.put("f", "refused", transaction="t")
            client.send("COMMIT", {**transaction, "receipt": "r"})
        else:
            say(client, "f", b"refused", receipt="r")
        client.error("never", "max-size-messages", receipt="r")
    for queue in ("f", "never"):
        management.expect(queue, messageCount=1)


def test_a_scheduled_message_is_copied_with_its_time(client, management):
    client.put("w.later", "soon", AMQ_SCHEDULED_DELAY=60_000)
    for queue in ("w.later", "all"):
        management.expect(queue, messageCount=1, scheduledCount=1)
        management.ask("POST", f"/queues/{queue}/purge")


def test_management_shows_diverts_and_their_counters(client, management):
    before = management.ask("GET", "/diverts/wild")["copiedMessageCount"]
    client.put("w.count", "x")
    shown = management.ask("GET", "/diverts/wild")
    assert shown["copiedMessageCount"] == before + 1
    assert (shown["address"], shown["forwardingAddresses"], shown["routingType"]) == ("w.#", ["all"], "STRIP")
    plain = management.ask("GET", "/diverts", name="plain")["data"][0]
    assert plain["transformer"] == {
        "addHeaders": [{"name": "region", "value": "eu"}, {"name": "priority", "value": "9"}],
        "removeHeaders": ["card"],
        "policy": None,
    }
    assert [one["name"] for one in management.ask("GET", "/diverts", sort="name")["data"]] == [
        "failing",
        "held",
        "large",
        "plain",
        "wild",
    ]
    metrics = management.text("/metrics")
    assert f'stompring_divert_messages_total{{divert="wild"}} {before + 1}' in metrics
    for queue in ("all", "w.count"):
        management.ask("POST", f"/queues/{queue}/purge")


def test_a_reload_adds_changes_and_removes(serve):
    process, _, client = serve(core=CORE, settings=SETTINGS)
    other = diverts(divert("wild", "w.#", "elsewhere", EXCLUSIVE), divert("new", "n", "target"))
    process.reload(broker_xml(core=other, settings=SETTINGS))
    log = "\n".join(process.log)
    for text in ("divert new created", "divert wild changed", "divert plain deleted"):
        assert text in log
    client.put("w.x", "moved")
    client.put("n", "copied")
    client.put("a", "alone")
    take(client, "elsewhere", "moved")
    take(client, "target", "copied")
    for address in ("w.x", "all", "b"):
        take(client, address)
    looping = diverts(divert("one", "x", "y"), divert("two", "y", "x"))
    line = process.reload(broker_xml(core=looping, settings=SETTINGS))
    assert "cannot reload the configuration" in line
    assert "divert 'one' and divert 'two' form a loop: x to y to x" in "\n".join(process.log)
    process.reload(broker_xml(core=CORE, settings={match: SETTINGS[match] for match in ("full", "never")}))
    process.reload(broker_xml(core="", settings={}))
    client.put("w.x", "still")
    take(client, "all", "still")  # without config-delete-diverts it stays


def test_copies_of_durable_messages_survive(lasting, how):
    core = diverts(divert("d", "a", "b"), divert("e", "x", "b", EXCLUSIVE))
    client = lasting.start(core=core).connect()
    client.put("a", "1", **DURABLE)
    client.put("x", "2", **DURABLE)
    client.put("a", "gone")
    lasting.again(how)
    assert lasting.drain("b") == ["1", "2"]
    assert lasting.drain("a") == ["1"]


def test_a_sender_needs_no_permission_for_the_copies(tmp_path):
    config = tmp_path / "broker.xml"
    permissions = permitted(
        "in", {"send": "senders", "createAddress": "senders", "createDurableQueue": "senders"}
    )
    core = diverts(divert("d", "in", "out"))
    config.write_text(broker_xml(core=core, secure=True, permissions=permissions + everything("#", "admins")))
    add(config, "ada", "senders")
    add(config, "grace", "admins")
    with BrokerProcess(config) as broker:
        sender, reader = broker.client(), broker.client()
        sender.connect({"login": "ada", "passcode": "ada"})
        sender.put("in", "x")
        reader.connect({"login": "grace", "passcode": "grace"})
        reader.subscribe("out", ack="auto")
        assert reader.message("x").get("JMSXUserID") in (None, "ada")
        say(sender, "out", b"y")
        sender.error("ada")
        reader.close()


def test_a_policy_transforms(tmp_path, start_broker):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "door.py").write_text(DOOR)
    core = DOOR_PLUGIN + diverts(
        divert("d", "a", "b", '<transformer><address-policy name="door"/></transformer>')
    )
    broker = start_broker(core=core, addresses=anycast("a") + anycast("b"))
    broker.may_fault = True  # a transformer must not redirect
    client = connected(broker)
    for do in ("accept", "refuse", "drop", "redirect", "fault", "change"):
        client.put("a", do, do=do)
    receive(client, "a", "accept", "refuse", "drop", "redirect", "fault", "change", id="a")
    client.subscribe("b", ack="auto", id="b")
    _, changed = client.messages("accept", "change")
    assert (changed["size"], changed.get("do"), changed["_AMQ_ORIG_QUEUE"]) == ("6", None, "d")
    client.nothing()
    shown = broker.management().ask("GET", "/diverts/d")
    assert (shown["copiedMessageCount"], shown["droppedMessageCount"]) == (2, 4)
    assert shown["transformer"]["policy"] == "door"
    client.close()
