"""Address policies in a running broker: every answer over a socket, faults, reload, and what survives a crash."""

import pytest

from ..broker_document import anycast, broker_xml
from ..management import Answered
from .lasting import DURABLE
from .steps import connected, leave, receive, say
from .test_security import stompring

pytestmark = pytest.mark.in_memory

DOOR = '''
"""A policy that does what the header ``do`` says."""

import time

from stompring.policy import ACCEPT, DROP, AddressPolicy, ChangeHeaders, Offer, Redirect, Refuse, Wait, parameter


class Door(AddressPolicy):
    """Acts as headers of the message say."""

    greeting: str = parameter("What it says when it refuses.", "Not now")

    def created(self):
        self.waited = False

    def admit(self, offer: Offer):
        match offer.header("do"):
            case "accept":
                return ACCEPT
            case "refuse":
                return Refuse(self.greeting)
            case "drop":
                return DROP
            case "redirect":
                return Redirect("elsewhere")
            case "change":
                return ChangeHeaders({"by": offer.connection, "do": None, "size": str(offer.size)})
            case "wait" if not self.waited:
                self.waited = True
                return Wait(300)
            case "sleep":
                time.sleep(0.03)
            case "fault":
                return 1 / 0
        return None
'''

RECORDER = '''
"""A policy that tells another address of all that happens."""

from stompring.policy import AddressPolicy


class Recorder(AddressPolicy):
    """Counts notifications, and copies evicted messages."""

    def created(self):
        self.waiting = [message.body for queue in self.address.queues for message in queue.messages()]

    def enqueued(self, message):
        self.waiting.append(message.body)

    def evicted(self, message):
        message.copy_to("evicted")

    def expired(self, message):
        message.copy_to("expired")

    def killed(self, message):
        message.copy_to("killed")

    def dead_lettered(self, message):
        message.copy_to("seen-dead")

    def settled(self, message):
        message.copy_to("settled")
'''

DOOR_PLUGIN = '<broker-plugins><broker-plugin name="door"/></broker-plugins>'
DOOR_USE = {"q": {"address-policy": '<address-policy name="door"/>'}}
DOORS = {"core": DOOR_PLUGIN, "settings": DOOR_USE}


@pytest.fixture
def plugins(tmp_path):
    """The folder beside every broker.xml of the test, with two policies."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "door.py").write_text(DOOR)
    (folder / "recorder.py").write_text(RECORDER)
    return folder


def test_every_answer_of_admit(serve, plugins):
    broker, management, client = serve(**DOORS, addresses=anycast("q") + anycast("elsewhere"))
    client.put("q", "accepted", do="accept")
    client.put("q", "dropped", do="drop")
    client.put("q", "redirected", do="redirect", color="red")
    client.put("q", "changed", do="change")
    client.put("q", "plain")
    refused = connected(broker)
    say(refused, "q", b"m", do="refuse", receipt="r")
    refused.error("Not now (policy door of address q)", receipt="r")
    began = client.time.steady()
    client.put("q", "waited", do="wait")
    assert client.time.steady() - began >= 0.29
    client.subscribe("q")
    first, changed, *_ = client.messages("accepted", "changed", "plain", "waited")
    assert changed["size"] == "7" and changed["by"] and changed.get("do") is None
    assert first["do"] == "accept"
    management.expect_address("q", droppedMessageCount=1, policies=["door"])
    client.subscribe("elsewhere", id="e")
    assert client.message("redirected")["color"] == "red"


def test_every_answer_of_admit_over_http(start_broker, plugins):
    broker = start_broker(**DOORS, addresses=anycast("q") + anycast("elsewhere"))
    management = broker.management()

    def send(do, count=1):
        body = {"address": "q", "headers": {"do": do}, "body": do, "count": count}
        answer = management.ask("POST", "/messages", body)
        return answer["sent"], answer["rejected"]

    assert send("accept") == send("redirect") == send("change") == (1, 0)
    assert send("drop", 3) == (0, 3)
    began = management.time.steady()
    assert send("wait") == (1, 0)
    assert management.time.steady() - began >= 0.29
    with pytest.raises(Answered, match="Not now .policy door of address q") as refused:
        send("refuse")
    assert refused.value.status == 409
    assert [message["body"] for message in management.messages("q")] == ["accept", "change", "wait"]
    assert [message["body"] for message in management.messages("elsewhere")] == ["redirect"]
    management.expect_address("q", droppedMessageCount=3)


def test_a_connection_that_waits_serves_its_consumers(start_broker, plugins):
    broker = start_broker(**DOORS, addresses=anycast("q") + anycast("other"))
    client, other = connected(broker), connected(broker)
    client.subscribe("other", ack="auto")
    say(client, "q", b"m", do="wait", receipt="late")
    other.put("other", "meanwhile")
    client.message("meanwhile")
    client.expect("RECEIPT", receipt_id="late")


def test_a_slow_hook_is_counted_and_logged(serve, plugins):
    broker, management, client = serve(**DOORS, addresses=anycast("q"))
    client.put("q", "a", "b", do="sleep")
    metrics = management.text("/metrics")
    assert 'stompring_policy_slow_hooks_total{hook="admit",policy="door"} 2.0' in metrics
    logged = [line for line in broker.log if "policy door of address q: admit blocked the broker" in line]
    assert len(logged) == 1 and "WARNING" in logged[0]


def test_a_fault_refuses_one_operation_and_is_counted(start_broker, plugins):
    broker = start_broker(**DOORS, addresses=anycast("q") + anycast("other"))
    broker.may_fault = True
    management = broker.management()
    for _ in range(3):
        client = connected(broker)
        say(client, "q", b"m", do="fault", receipt="r")
        frame = client.error("Policy door of address q failed in admit", receipt="r")
        assert b"ZeroDivision" not in frame.raw
    client = connected(broker)
    client.put("q", "good")
    client.put("other", "good")
    management.expect("q", messageCount=1)
    assert management.ask("GET", "/broker")["policyErrors"] == [
        {"policy": "door", "hook": "admit", "count": 3}
    ]
    metrics = management.text("/metrics")
    assert 'stompring_policy_errors_total{hook="admit",policy="door"} 3.0' in metrics
    log = "\n".join(broker.log)
    assert log.count("ZeroDivisionError") == 1 and "door.py" in log
    named = next(
        n for n, line in enumerate(broker.config.read_text().splitlines(), 1) if "address-policy" in line
    )
    assert f"{broker.config}:{named}: policy door of address q failed in admit" in log


@pytest.mark.parametrize(
    "core, use, line, fault",
    [
        ('<broker-plugin name="none"/>', "", 4, "broker-plugin 'none': policy 'none' not found"),
        ('<broker-plugin name="broken"/>', "", 4, "broken.py:2: NameError: name 'nonsense' is not defined"),
        (
            '<broker-plugin name="door"><property key="greting" value="x"/></broker-plugin>',
            "",
            4,
            "has no parameter 'greting'; did you mean 'greeting'?",
        ),
        (
            '<broker-plugin name="door"/>',
            '<address-policy name="dor"/>',
            None,
            "<address-policy name=\"dor\"> names no <broker-plugin>; did you mean 'door'?",
        ),
    ],
)
def test_plugin_errors_are_reported_at_start_and_reload(
    core, use, line, fault, start_broker, plugins, tmp_path
):
    (plugins / "broken.py").write_text("\nnonsense\n")
    document = broker_xml(
        core=f"<broker-plugins>\n{core}</broker-plugins>", settings={"q": {"address-policy": use}}
    )
    config = tmp_path / "wrong.xml"
    config.write_text(document)
    for command in (
        ["check-config", str(config)],
        ["run", "--config", str(config), "--data", str(tmp_path / "d")],
    ):
        done = stompring(*command)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert fault in done.stderr, done.stderr
        assert f"wrong.xml:{'' if line is None else line}" in done.stderr
    broker = start_broker(**DOORS, addresses=anycast("q"))
    assert "cannot reload the configuration" in broker.reload(document)
    client = connected(broker)
    say(client, "q", b"m", do="refuse")
    client.error("Not now")


def test_parameters_and_code_are_read_again(start_broker, plugins):
    broker = start_broker(**DOORS, addresses=anycast("q"))
    sender = connected(broker)
    sender.put("q", "before")  # its headers are planned
    greeting = '<address-policy name="door"><property key="greeting" value="Tomorrow"/></address-policy>'
    document = broker_xml(
        core=DOOR_PLUGIN, settings={"q": {"address-policy": greeting}}, addresses=anycast("q")
    )
    broker.reload(document)
    client = connected(broker)
    say(client, "q", b"m", do="refuse")
    client.error("Tomorrow")
    (plugins / "door.py").write_text(DOOR.replace("        return None", '        return Refuse("Closed")'))
    broker.reload(document)
    say(sender, "q", b"m")
    sender.error("Closed")
    broker.reload(broker_xml(addresses=anycast("q")))
    client = connected(broker)
    client.put("q", "after", do="refuse")
    broker.management().expect_address("q", policies=[])


RECORDS = {
    "core": '<broker-plugins><broker-plugin name="recorder"/></broker-plugins>',
    "settings": {
        "r": {
            "address-policy": '<address-policy name="recorder"/>',
            "default-ring-size": 2,
            "max-delivery-attempts": 1,
            "dead-letter-address": "dead",
        }
    },
    "addresses": "".join(map(anycast, ("r", "evicted", "expired", "killed", "dead", "seen-dead", "settled"))),
}


def test_what_happens_to_messages_is_told(serve, plugins):
    _, management, client = serve(**RECORDS)
    client.put("r", "1", "2", "3")
    client.subscribe("r", prefetch_count=2)
    good, bad = client.messages("2", "3")
    client.answer("ACK", good)
    client.answer("NACK", bad)
    leave(client)
    client.put("r", "soon over", expires=client.in_ms(100))
    management.expect("expired", messageCount=1)
    client.put("r", "purged")
    management.ask("POST", "/queues/r/purge")
    for queue, bodies in {
        "evicted": ["1"], "expired": ["soon over"], "killed": ["purged"], "settled": ["2"],
        "dead": ["3"], "seen-dead": ["3"],
    }.items():  # fmt: skip
        receive(client, queue, *bodies, id=queue)
        client.nothing()


@pytest.mark.parametrize("counts_paged", ["false", "true"])
def test_what_a_ring_gave_up_is_in_one_place_after_a_crash(counts_paged, lasting, plugins):
    """In memory and on disk, where a message must be read before it can be copied."""
    ring = {"ring-counts-paged": counts_paged, "max-size-messages": 3 if counts_paged == "true" else -1}
    settings = {"r": {**RECORDS["settings"]["r"], "default-ring-size": 10, **ring}}
    lasting.start(**{**RECORDS, "settings": settings})
    client = lasting.connect()
    bodies = [str(number) for number in range(40)]
    client.put("r", *bodies, **DURABLE)
    lasting.kill()
    lasting.start()
    evicted, kept = lasting.drain("evicted"), lasting.drain("r")
    assert sorted(evicted + kept, key=int) == bodies, (evicted, kept)
    if counts_paged == "false":
        assert len(kept) == 10
    assert evicted == sorted(evicted, key=int)


FULL = '''
"""A policy of a full address."""

from stompring.policy import BLOCK, DROP, DROP_OLDEST, FAIL, PAGE, AddressPolicy, Refuse


class Full(AddressPolicy):
    """Answers as the header ``do`` says."""

    def full(self, offer):
        answers = {"page": PAGE, "drop": DROP, "oldest": DROP_OLDEST, "fail": FAIL, "block": BLOCK}
        return answers.get(offer.header("do"), Refuse("No room"))
'''


def test_every_answer_of_a_full_address(start_broker, plugins):
    (plugins / "full.py").write_text(FULL)
    limits = {"max-size-messages": 2, "address-full-policy": "full"}
    broker = start_broker(
        core='<broker-plugins><broker-plugin name="full"/></broker-plugins>',
        settings={name: limits for name in ("p", "q")},
        addresses=anycast("p") + anycast("q"),
    )
    management = broker.management()
    for words, do in (("No room (policy full of address q)", "refuse"), ("Address q is full", "fail")):
        client = connected(broker)
        if do == "refuse":
            client.put("q", "1", "2")
        say(client, "q", b"m", do=do, receipt="r")
        client.error(words, receipt="r")
    client = connected(broker)
    client.put("q", "dropped", do="drop")
    client.put("q", "3", do="oldest")
    management.expect("q", messageCount=2, messagesReplaced=1)
    say(client, "q", b"4", do="block", receipt="late")
    management.expect_address("q", blockedProducers=1, droppedMessageCount=1)
    consumer = connected(broker)
    consumer.subscribe("q", ack="auto")
    client.expect("RECEIPT", receipt_id="late")
    consumer.messages("2", "3", "4")
    client.put("p", "1", "2")
    client.put("p", *"3456", do="page", persistent="true")
    management.expect("p", messageCount=6)
    management.expect_address("p", paging=True, numberOfPages=1)
    receive(consumer, "p", *"123456", id="p")
    management.expect_address("p", paging=False)


def test_what_waits_is_known_to_a_policy_after_a_restart(lasting, plugins, how):
    known = RECORDER.replace('message.copy_to("killed")', "[message.copy_to('known') for _ in self.waiting]")
    (plugins / "recorder.py").write_text(known)
    document = {**RECORDS, "addresses": anycast("r") + anycast("known")}
    lasting.start(**document)
    lasting.connect().put("r", "1", "2", **DURABLE)
    lasting.again(how)
    lasting.management.ask("POST", "/queues/r/purge")
    assert lasting.drain("known") == ["1", "1", "2", "2"]
