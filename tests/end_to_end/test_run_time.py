"""Changes at run time: diverts, bridges, address-settings and security-settings, by HTTP and by messages."""

from urllib.parse import quote

import pytest

from ..broker_document import anycast
from ..management import Answered
from ..service import Service
from .steps import receive
from .test_diverts import divert, diverts
from .test_management_messages import VOID, Manager

FILED = divert("filed", "f", "g")
CORE = diverts(FILED) + '<connectors><connector name="far">tcp://127.0.0.1:1</connector></connectors>'
pytestmark = [pytest.mark.in_memory, pytest.mark.broker(core=CORE, addresses=anycast("q"))]


def refused(management, method, path, body=None, status=400):
    with pytest.raises(Answered) as caught:
        management.ask(method, f"/{path}", body)
    assert caught.value.status == status
    return caught.value.problem["detail"]


def setting(management, kind, name):
    (found,) = [each for each in management.ask("GET", f"/{kind}")["data"] if each.get("match") == name]
    return found


def quoted(name):
    return quote(name, safe="")


ODD = "a/ü?#*&<\"'%20"


def test_a_divert_copies_messages_until_it_is_deleted(client, management):
    made = management.ask(
        "POST",
        "/diverts",
        {
            "name": ODD,
            "address": "o.#",
            "forwardingAddresses": ["x", "y"],
            "filter": "a = '${env:HOME}'",
            "transformer": {"addHeaders": [{"name": "k", "value": "${file:x}"}], "removeHeaders": ["r"]},
        },
    )
    assert (made["definedIn"], made["filter"]) == ("run time", "a = '${env:HOME}'")
    client.put("o.1", "one", a="${env:HOME}", r="gone")
    client.put("o.1", "two")
    for target in ("x", "y"):
        client.subscribe(target, ack="auto", id=target)
        copy = client.message("one")
        assert (copy["k"], copy.get("r"), copy["_AMQ_ORIG_QUEUE"]) == ("${file:x}", None, ODD)
    changed = management.ask(
        "PATCH", f"/diverts/{quoted(ODD)}", {"filter": None, "exclusive": True, "transformer": None}
    )
    assert (changed["filter"], changed["exclusive"], changed["transformer"]) == (None, True, None)
    client.put("o.2", "three")
    client.messages("three", "three")
    management.ask("DELETE", f"/diverts/{quoted(ODD)}")
    refused(management, "GET", f"diverts/{quoted(ODD)}", status=404)
    client.put("o.2", "four")
    receive(client, "o.2", "four", id="o.2")


@pytest.mark.parametrize(
    "body, text",
    [
        ({"address": "a"}, "<divert> has no <forwarding-address>; it is required"),
        ({"address": "a", "forwardingAddresses": ["b.*"]}, "forwarding address 'b.*' has wildcards"),
        (
            {"address": "a", "forwardingAddresses": ["b"], "exclusive": 3},
            "<exclusive> is '3': must be true or false",
        ),
        ({"address": "a", "forwardingAddresses": ["b"], "filter": "(("}, "filter"),
        (
            {"address": "g", "forwardingAddresses": ["f"]},
            "divert 'd' and divert 'filed' form a loop: g to f to g",
        ),
        ({"address": "a", "forwardingAddresses": ["a"]}, "divert 'd' forms a loop: a to a"),
        ({"address": "a", "forwardingAddresses": [3]}, "forwardingAddresses must be a string, not 3"),
        (
            {"address": "a", "forwardingAddresses": ["b"], "transformer": {"x": 1}},
            "must be an object with addHeaders",
        ),
        ({"address": "a\u0000", "forwardingAddresses": ["b"]}, "a character that XML cannot contain"),
        (
            {"name": " d", "address": "a", "forwardingAddresses": ["b"]},
            "must not begin or end with white space",
        ),
        (
            {"address": "a", "forwardingAddresses": ["b"], "transformer": {"policy": "none"}},
            "names no <broker-plugin>",
        ),
    ],
)
def test_errors_are_those_of_broker_xml(management, body, text):
    before = [management.ask("GET", path) for path in ("/diverts", "/configuration")]
    assert text in refused(management, "POST", "diverts", {"name": "d", **body})
    assert [management.ask("GET", path) for path in ("/diverts", "/configuration")] == before


@pytest.mark.parametrize(
    "path, body, text",
    [
        (
            "address-settings/none",
            {"settings": {"maxSizeMessages": None}},
            "Address-setting none does not exist",
        ),
        ("address-settings/%23", {"settings": {"nope": None}}, "unknown element <nope> in <address-setting>"),
        ("security-settings/none", {"permissions": {"nope": None}}, "'nope': unknown permission"),
        ("security-settings/none", {"permissions": {"send": None}}, "Security-setting none does not exist"),
    ],
)
def test_a_removal_of_what_does_not_exist(management, path, body, text):
    before = management.ask("GET", "/configuration")
    assert text in refused(management, "PATCH", path, body, 404 if "does not exist" in text else 400)
    assert management.ask("GET", "/configuration") == before


def test_names_are_unique(management):
    text = refused(
        management, "POST", "diverts", {"name": "filed", "address": "a", "forwardingAddresses": ["b"]}, 409
    )
    assert "Divert filed already exists" in text
    for method, path in (
        ("PATCH", "diverts/none"),
        ("DELETE", "diverts/none"),
        ("DELETE", "bridges/none"),
        ("DELETE", "address-settings/none"),
        ("DELETE", "security-settings/none"),
    ):
        refused(management, method, path, {} if method == "PATCH" else None, 404)


def test_address_settings(client, management):
    management.ask(
        "PATCH",
        "/address-settings/lim%23",
        {"settings": {"maxSizeMessages": 2, "address-full-policy": "FAIL"}},
    )
    found = setting(management, "address-settings", "lim.#")
    assert found["settings"] == {"maxSizeMessages": 2, "addressFullPolicy": "FAIL"}
    assert (found["definedIn"], found["line"]) == ("run time", None)
    assert setting(management, "address-settings", "#")["definedIn"] == "broker.xml"
    client.put("lim.x", "1")
    client.put("lim.x", "2")
    rows = {row["name"]: row for row in management.ask("GET", "/addresses/lim.x/settings")["data"]}
    row = rows["maxSizeMessages"]
    assert (row["value"], row["match"], row["definedIn"], row["line"]) == (2, "lim.#", "run time", None)
    client.send("SEND", {"destination": "lim.x", "receipt": "r"}, b"3")
    client.error("full", receipt="r")
    management.ask("PATCH", "/address-settings/lim.%23", {"settings": {"maxSizeMessages": None}})
    assert setting(management, "address-settings", "lim.#")["settings"] == {"addressFullPolicy": "FAIL"}
    text = refused(management, "PATCH", "address-settings/lim.%23", {"settings": {"max-size-mesages": 1}})
    assert (
        "unknown element <max-size-mesages> in <address-setting>; did you mean 'max-size-messages'?" in text
    )
    text = refused(management, "PATCH", "address-settings/lim.%23", {"settings": {"maxSizeMessages": 0}})
    assert "with FAIL the address would accept no message" in text
    management.ask("DELETE", "/address-settings/lim.%23")
    refused(management, "GET", "address-settings/lim.%23", status=404)


def test_a_bridge_to_this_broker_must_not_return_its_messages(broker, client, management):
    url = f"tcp://127.0.0.1:{broker.port}"
    body = {"name": "self", "queue": "later", "to": [url]}
    text = "bridge 'self' forms a loop: later to later; a message would be copied without end. Remove it"
    assert text in refused(management, "POST", "bridges", body)
    management.ask("POST", "/diverts", {"name": "back", "address": "there", "forwardingAddresses": ["later"]})
    text = refused(management, "POST", "bridges", {**body, "forwardingAddress": "there"})
    assert "bridge 'self' and divert 'back' form a loop: later to there to later" in text
    management.ask("DELETE", "/diverts/back")
    made = management.ask(
        "POST", "/bridges", {**body, "forwardingAddress": "there", "password": "geheim", "user": "u"}
    )
    assert made["definedIn"] == "run time" and "geheim" not in str(made)
    text = refused(
        management, "POST", "diverts", {"name": "back", "address": "there", "forwardingAddresses": ["later"]}
    )
    assert "form a loop" in text
    assert "geheim" not in management.ask("GET", "/configuration")["document"]
    assert "geheim" in management.ask("GET", "/configuration", secrets="true")["document"]
    assert management.ask("POST", "/bridges/self/pause")["paused"]
    management.ask("DELETE", "/bridges/self")
    assert "has no connector" in refused(management, "POST", "bridges", {"name": "b", "queue": "q"})
    assert "http://" in refused(
        management, "POST", "bridges", {"name": "b", "queue": "q", "to": ["http://x:1"]}
    )
    both = {"name": "b", "queue": "q", "to": [url], "staticConnectors": ["far"]}
    assert "both URLs and static-connectors" in refused(management, "POST", "bridges", both)


LISTS = "diverts bridges address-settings security-settings addresses queues".split()
#: Fields that a broker started from an export has for itself.
OWN = "definedIn line paused state queueID queueNumber configured creationTime nextCommand lastErrorTime".split()


def shown(answer):
    """A list or an object of the API without `OWN`, and without what was created automatically."""
    if "data" in answer:
        return sorted(
            (shown(each) for each in answer["data"] if not each.get("autoCreated")), key=lambda one: str(one)
        )
    return {name: value for name, value in answer.items() if name not in OWN}


def test_changes_survive_a_kill_until_broker_xml_changes(lasting, tmp_path):
    lasting.start(core=CORE)
    management = lasting.management
    management.ask("PATCH", "/diverts/filed", {"exclusive": True})
    management.ask("POST", "/diverts", {"name": "audit", "address": "o", "forwardingAddresses": ["p"]})
    management.ask("PATCH", "/address-settings/%23", {"settings": {"maxDeliveryAttempts": 3}})
    management.ask("PATCH", "/security-settings/s", {"permissions": {"send": ["a", "b"]}})
    management.ask("POST", "/bridges", {"name": "b", "queue": "later", "staticConnectors": ["far"]})
    management.ask("POST", "/bridges/b/pause")

    def state():
        ask = lasting.management.ask
        return (
            {each["name"]: (each["exclusive"], each["definedIn"]) for each in ask("GET", "/diverts")["data"]},
            {each["match"]: each["settings"] for each in ask("GET", "/address-settings")["data"]},
            [each["roles"] for each in ask("GET", "/security-settings")["data"]],
            {each["name"]: each["paused"] for each in ask("GET", "/bridges")["data"]},
        )

    management.ask("POST", "/addresses", {"name": "made", "routingTypes": ["MULTICAST"]})
    queue = {
        "name": "mq",
        "address": "made",
        "filter": "a = '${env:X}'",
        "ringSize": 7,
        "routingType": "MULTICAST",
    }
    management.ask("POST", "/queues", {**queue, "user": "ann", "durable": False})
    client = lasting.connect()
    client.put("automatic", "not in the export")
    client.disconnect()
    before = state()
    assert before[0] == {"filed": (True, "run time"), "audit": (False, "run time")}
    assert (
        before[3] == {"b": True} and before[1]["#"]["maxDeliveryAttempts"] == 3 and before[2] == [["a", "b"]]
    )
    lists = (*LISTS, "queues/mq")
    found = [shown(management.ask("GET", f"/{each}")) for each in lists]
    exported = management.ask("GET", "/configuration?secrets=true")["document"]
    assert "automatic" not in exported
    (tmp_path / "new").mkdir()
    other = Service(tmp_path / "new", tmp_path / "new" / "data").start(exported)
    assert [shown(other.management().ask("GET", f"/{each}")) for each in lists] == found
    other.stop()
    lasting.again("kill")
    assert state() == before
    assert lasting.management.ask("POST", "/reload")["warnings"] == [] and state() == before
    lasting.management.ask("DELETE", "/diverts/filed")
    lasting.again("kill")
    assert list(state()[0]) == ["audit"]
    changed = CORE.replace("<address>f<", "<address>ff<")
    lasting.again("stop", core=changed)
    assert state()[0] == {"filed": (False, "broker.xml"), "audit": (False, "run time")}
    # broker.xml and the run time form a loop: the start leaves the divert of the run time out
    back = changed.replace("</diverts>", divert("back", "p", "o") + "</diverts>")
    lasting.again("stop", core=back)
    assert sorted(state()[0]) == ["back", "filed"]
    assert lasting.running.wait_for_log("'audit' form a loop: p to o to p")


JSON_DIVERT = (
    '{"name": "m4", "address": "z", "forwarding-address": "y", "filter-string": "b = 2", "exclusive": true,'
    ' "transformer-configuration": {"class-name": null, "properties": {"p": "q"}}}'
)
JSON_BRIDGE = (
    '{"name": "mb", "queue-name": "later", "static-connectors": ["far"], "retry-interval": 900,'
    ' "user": "u", "password": "geheim"}'
)
BRIDGE = ["mb", "later", "x", "", None, 900, 1.5, -1, -1, True, 9, 9, 9, "far", False, True, "u", "geheim"]
SETTINGS = [
    *("DLQ", None, -1, False, 3, 9999, 2000, 5, 0, 2.5, -1, -1, True, "BLOCK", 7, 8, "KILL", True, True, True, True),
    *(True, True, False, False, "FORCE", "OFF", -1, None, False, True, False, -1, None, 9, False, 0, -1, "ANYCAST"),
    *("ANYCAST", 9, -1, False, 0, 0, 0, 0.5, 0, True, "DLQ.", "", True, "EXP.", "", -1, -1, True),
]  # fmt: skip
ADD_HEADERS = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"


@pytest.mark.parametrize(
    "name, parameters, result",
    [
        ("createDivert", ["m1", "r", "a", "b, c", False, "a = 1", None], VOID),
        ("createDivert", ["m2", "r", "a", "b", True, None, ADD_HEADERS, {"k": 1}, "ANYCAST"], VOID),
        ("createDivert", ["m3", None, "a", "b", True, None, None, '{"k": "v"}', None], VOID),
        ("createDivert", ["m3", None, "a", "b", True, None, "x.Y"], "transformers in Java are not supported"),
        ("createDivert", [JSON_DIVERT], VOID),
        ("createDivert", ["filed", "r", "a", "b", False, None, None], "already exists"),
        ("updateDivert", ["filed", "x", "", None, None, "PASS"], VOID),
        ("destroyDivert", ["filed"], VOID),
        ("destroyDivert", ["none"], "does not exist"),
        ("createBridge", [JSON_BRIDGE], VOID),
        ("createBridge", ['{"name": "b"}'], "queue"),
        ("updateDivert", ['{"name": "filed", "exclusive": true}'], VOID),
        ("createBridge", [*BRIDGE[:5], *BRIDGE[5:]], VOID),
        ("createBridge", [*BRIDGE[:5], {"k": 1}, *BRIDGE[5:]], VOID),
        ("createBridge", [*BRIDGE[:5], '{"k": "v"}', *BRIDGE[5:]], VOID),
        ("createBridge", [*BRIDGE[:11], *BRIDGE[12:]], VOID),
        ("createBridge", [*BRIDGE[:14], True, *BRIDGE[15:]], "Unknown field 'useDiscoveryGroup'"),
        ("destroyBridge", ["none"], "does not exist"),
        ("addAddressSettings", ["a.#", '{"maxSizeMessages": 7, "addressFullMessagePolicy": "BLOCK"}'], VOID),
        ("addAddressSettings", ["a.#", '{"maxSizeMessages": "x"}'], "<max-size-messages> is 'x'"),
        *(("addAddressSettings", ["a.#", *SETTINGS[:length]], VOID) for length in (21, 25, 48, 54, 57)),
        ("addAddressSettings", ["a.#", *SETTINGS[:17], False, *SETTINGS[18:25]], "auto-create-jms-queues"),
        ("removeAddressSettings", ["#"], VOID),
        ("removeAddressSettings", ["none"], "does not exist"),
        ("addSecuritySettings", ["a.#", "a,b", "c", "", "", "", "", None], VOID),
        ("addSecuritySettings", ["a.#", "a", "c", "", "", "", "", "", "", "x", "y"], VOID),
        ("addSecuritySettings", ["a.#", "a", "c", "", "", "", "", "", "", "x", "y", "v", "e"], VOID),
        ("removeSecuritySettings", ["none"], "does not exist"),
        ("getRoles", ["a.1"], []),
    ],
)
def test_operations_of_artemis(serve, name, parameters, result):
    _, management, client = serve(core=CORE, addresses=anycast("q"))
    succeeded, found = Manager(client, "/queue/replies").ask("broker", [name, parameters])
    if isinstance(result, str) and result is not VOID:
        assert not succeeded and result in found
    else:
        assert (succeeded, found) == (True, result)
    assert "geheim" not in management.ask("GET", "/configuration")["document"]
