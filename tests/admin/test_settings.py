"""Where each value comes from, what a reload would change, and the policies in force: over HTTP."""

from dataclasses import fields

import pytest

from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.model import QueueConfiguration

from .admin_server import ANYCAST, AdminServer, login_header, path, pick, secured

FILE = """<configuration><core>
<security-enabled>false</security-enabled>
<persistence-enabled>false</persistence-enabled>
{core}
<addresses>
  <address name="orders.eu"><anycast>
    <queue name="orders.eu" ring-size="5"/>
    <queue name="plain"/>
  </anycast></address>
  {addresses}
</addresses>
<broker-plugins>{plugins}</broker-plugins>
<address-settings>
<address-setting match="#"><max-delivery-attempts>3</max-delivery-attempts>{everywhere}</address-setting>
<address-setting match="orders.#"><default-ring-size>100</default-ring-size>
  <default-max-consumers>7</default-max-consumers>{orders}</address-setting>
<address-setting match="orders.eu"><max-size-bytes>1MB</max-size-bytes></address-setting>
{settings}
</address-settings>
</core></configuration>
"""


class Broker(AdminServer):
    """A broker with a broker.xml that the test rewrites."""

    def __init__(self, tmp_path, **parts):
        self.file = tmp_path / "broker.xml"
        self.write(**parts)
        configuration = read_broker_xml(str(self.file))
        super().__init__(**{each.name: getattr(configuration, each.name) for each in fields(configuration)})

    def write(self, **parts):
        empty = dict.fromkeys(("core", "addresses", "plugins", "everywhere", "orders", "settings"), "")
        self.file.write_text(FILE.format(**{**empty, **parts}))

    def settings(self, kind, name):
        return {row["name"]: row for row in self.get(path(kind, name, "settings"))["data"]}

    def reload(self, dry):
        reply = self.ask("POST", "/api/v1/reload", {"dryRun": dry})
        assert reply.status == 200, reply.body
        answer = reply.json
        assert answer.pop("dryRun") is dry
        return answer

    def state(self):
        """Whatever a reload might change."""
        return (
            {name: (queue.attributes, queue.as_configured) for name, queue in self.directory.queues.items()},
            {name: (one.routing_types, one.settings) for name, one in self.directory.addresses.items()},
            self.broker.configuration,
            self.service.configuration,
            self.broker.memory.max_bytes,
            {name: self.service.policies.names_for(one) for name, one in self.directory.addresses.items()},
        )


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


# ---- where values come from


@pytest.mark.parametrize(
    "queue, name, value, source, match",
    [
        ("orders.eu", "ringSize", 5, "queue", None),
        ("plain", "ringSize", 100, "address-setting", "orders.#"),
        ("orders.eu", "maxConsumers", 7, "address-setting", "orders.#"),
        ("plain", "exclusive", False, "default", None),
        ("plain", "durable", True, "default", None),
        ("plain", "filter", None, "default", None),
        ("plain", "routingType", "ANYCAST", "queue", None),
    ],
)
def test_origin_of_attributes_of_a_queue(broker, queue, name, value, source, match):
    row = broker.settings("queues", queue)[name]
    assert pick(row, "value", "source", "match") == (value, source, match)


def test_changed_attribute_is_the_queues_own(broker):
    broker.ask("PATCH", "/api/v1/queues/plain", {"ringSize": 9, "filter": "a = 1"})
    found = broker.settings("queues", "plain")
    assert (found["ringSize"]["value"], found["ringSize"]["source"]) == (9, "queue")
    assert (found["filter"]["value"], found["filter"]["source"]) == ("a = 1", "queue")


def test_queue_keeps_values_when_address_settings_change(broker):
    broker.directory.create_queue(QueueConfiguration("other", "orders.us", ANYCAST))
    assert broker.settings("queues", "other")["ringSize"]["match"] == "orders.#"
    broker.write(
        settings='<address-setting match="orders.us"><default-ring-size>3</default-ring-size></address-setting>'
    )
    broker.reload(dry=False)
    found = broker.settings("queues", "other")["ringSize"]
    assert pick(found, "value", "source") == (100, "queue")


@pytest.mark.parametrize(
    "name, value, source, match, unit",
    [
        ("maxSizeBytes", 1_000_000, "address-setting", "orders.eu", "bytes"),
        ("defaultRingSize", 100, "address-setting", "orders.#", "messages"),
        ("maxDeliveryAttempts", 3, "address-setting", "#", "deliveries"),
        ("addressFullPolicy", "BLOCK", "default", None, None),
        ("addressPolicy", [], "default", None, None),
    ],
)
def test_origin_of_address_settings(broker, name, value, source, match, unit):
    row = broker.settings("addresses", "orders.eu")[name]
    if name == "maxSizeBytes":
        assert row["value"] in (1_000_000, 1_048_576)
    else:
        assert row["value"] == value
    assert pick(row, "source", "match") == (source, match)
    assert row["unit"] == unit and row["meaning"]
    assert (row["line"] is not None) == (source == "address-setting")


def test_every_attribute_and_every_setting_is_shown(broker):
    shown = broker.settings("addresses", "orders.eu")
    detail = broker.get("/api/v1/addresses/orders.eu")["settings"]
    assert shown.keys() == detail.keys()
    assert {name: row["value"] for name, row in shown.items() if name != "addressPolicy"} == {
        name: value for name, value in detail.items() if name != "addressPolicy"
    }
    queue = broker.get("/api/v1/queues/plain")
    for name, row in broker.settings("queues", "plain").items():
        assert queue[name] == row["value"], name


def test_line_of_the_entry_is_shown(broker):
    row = broker.settings("addresses", "orders.eu")["maxSizeBytes"]
    assert (
        broker.file.read_text()
        .splitlines()[row["line"] - 1]
        .startswith('<address-setting match="orders.eu">')
    )


# ---- a dry run of a reload

#: Parts of broker.xml.
CHANGES = {
    "nothing": {},
    "limit of the broker": {"core": "<global-max-size>5MB</global-max-size>"},
    "restart required": {"core": "<journal-file-size>20MB</journal-file-size><name>other</name>"},
    "address-setting": {
        "everywhere": "<expiry-delay>5</expiry-delay>",
        "orders": "<dead-letter-address>d</dead-letter-address>",
    },
    "address-setting added": {
        "settings": '<address-setting match="a.*"><max-size-bytes>5</max-size-bytes></address-setting>'
    },
    "address and queues": {
        "addresses": '<address name="new"><multicast><queue name="n1"/></multicast>'
        '<anycast><queue name="n2"/></anycast></address>'
    },
    "default of queues": {
        "orders": "<ring-policy>DEAD_LETTER</ring-policy><default-exclusive-queue>true</default-exclusive-queue>"
    },
    "address alone": {"addresses": '<address name="new"><multicast/></address>'},
    "security": {
        "core": '<security-settings><security-setting match="x"><permission type="send" roles="b a"/>'
        "</security-setting></security-settings>"
    },
    "plugin": {
        "plugins": '<broker-plugin name="rate-limit"/>',
        "orders": '<address-policy name="rate-limit"><property key="messages-per-second" value="5"/></address-policy>',
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_dry_run_tells_what_the_reload_does(tmp_path, change):
    broker = Broker(tmp_path)
    broker.write(**CHANGES[change])
    before = broker.state()
    told = broker.reload(dry=True)
    assert broker.state() == before
    assert broker.reload(dry=True) == told
    assert broker.reload(dry=False) == told
    assert (broker.state() == before) == (change == "nothing") or change == "restart required"
    assert bool(told["changes"] or told["applied"] or told["restartRequired"]) == (change != "nothing")
    again = broker.reload(dry=True)
    assert again["applied"] == [] and again["restartRequired"] == told["restartRequired"]


def test_dry_run_of_removed_queues_and_addresses(tmp_path):
    forced = "".join(f"<{one}>FORCE</{one}>" for one in ("config-delete-queues", "config-delete-addresses"))
    gone = '<address name="gone"><anycast><queue name="gone"/></anycast></address>'
    broker = Broker(tmp_path, addresses=gone, everywhere=forced)
    broker.write(everywhere=forced)
    told = broker.reload(dry=True)
    assert told["applied"] == ["queue gone deleted", "address gone deleted"]
    assert "gone" in broker.directory.queues
    assert broker.reload(dry=False) == told
    assert "gone" not in broker.directory.queues and "gone" not in broker.directory.addresses


def test_dry_run_of_a_change_that_fails(broker):
    client = broker.stomp()
    for number in range(2):
        client.subscribe("/queue/orders.eu", str(number))
    broker.file.write_text(
        broker.file.read_text().replace('ring-size="5"', 'ring-size="5" max-consumers="1"')
    )
    told = broker.reload(dry=True)
    assert "max-consumers 1 is less than the 2 consumers" in told["failed"][0]
    assert broker.reload(dry=False) == told


def test_values_before_and_after(broker):
    broker.write(
        core="<name>other</name>",
        everywhere="<expiry-delay>5</expiry-delay>",
        orders="<ring-policy>DEAD_LETTER</ring-policy>",
    )
    assert broker.reload(dry=True)["changes"] == [
        {
            "what": what,
            "name": name,
            "setting": setting,
            "before": before,
            "after": after,
            "restart": False,
        }
        for what, name, setting, before, after in (
            ("broker", None, "name", "stompring", "other"),
            ("address-setting", "#", "expiry-delay", None, 5),
            ("address-setting", "orders.#", "ring-policy", None, "DEAD_LETTER"),
            ("queue", "orders.eu", "ring-policy", "DISCARD", "DEAD_LETTER"),
            ("queue", "plain", "ring-policy", "DISCARD", "DEAD_LETTER"),
        )
    ]


def test_secrets_are_not_shown(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("marker-1")
    plugin = (
        '<broker-plugin name="stamp"><property key="user-header" value="${file:secret.txt}"/></broker-plugin>'
    )
    broker = Broker(tmp_path, plugins=plugin, orders='<address-policy name="stamp"/>')
    shown = broker.ask("GET", "/api/v1/plugins").text
    assert "***" in shown and "marker" not in shown
    secret.write_text("marker-2")
    reply = broker.ask("POST", "/api/v1/reload", {"dryRun": True})
    assert "marker" not in reply.text
    assert {"before": "***", "after": "***"}.items() <= reply.json["changes"][-1].items()


@pytest.mark.parametrize("dry", [True, False])
def test_file_with_an_error_is_refused_with_its_line(broker, dry):
    broker.write(everywhere="<max-size>5</max-size>")
    before = broker.state()
    detail = broker.refused(409, "POST", "/api/v1/reload", {"dryRun": dry})["detail"]
    assert detail.startswith(f"{broker.file}:") and "max-size" in detail
    assert broker.state() == before


def test_dry_run_checks_users_and_plugins_without_using_them(tmp_path):
    file = Broker(tmp_path).file
    text = file.read_text().replace("<security-enabled>false", "<security-enabled>true")
    rights = (
        '<security-settings><security-setting match="#"><permission type="manage" roles="admins"/>'
        "</security-setting></security-settings>"
    )
    file.write_text(text.replace("<addresses>", f"{rights}<addresses>"))
    settings = read_broker_xml(str(file)).security_settings
    server = secured(tmp_path, {"anna": "x"}, "admins = anna\n", *settings, file=str(file))
    server.headers = login_header("anna", "x")
    server.done("POST", "/api/v1/reload", {"dryRun": True})
    file.write_text(
        file.read_text().replace(
            "<broker-plugins></broker-plugins>",
            '<broker-plugins><broker-plugin name="none"/></broker-plugins>',
        )
    )
    assert (
        "policy 'none' not found" in server.refused(409, "POST", "/api/v1/reload", {"dryRun": True})["detail"]
    )
    file.write_text(file.read_text().replace('<broker-plugin name="none"/>', ""))
    roles = tmp_path / "roles.properties"
    roles.write_text("admins = anna\nno equals sign\n")
    detail = server.refused(409, "POST", "/api/v1/reload", {"dryRun": True})["detail"]
    assert detail.startswith(f"{roles}:2: ")


def test_invalid_dry_run_gets_400(broker):
    assert broker.refused(400, "POST", "/api/v1/reload", {"dryRun": "yes"})["field"] == "dryRun"


# ---- plugins

FAULTY = '''
"""A policy of a test."""
from stompring.policy import AddressPolicy, parameter


class Faulty(AddressPolicy):
    """Fails <b>always</b>.

    More text.
    """

    limit: int = parameter("A number.", 1, least=1)

    def enqueued(self, message):
        raise KeyError("<script>alert(1)</script>" + "x" * 1000)
'''


def test_plugins_with_parameters_uses_and_errors(tmp_path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "faulty.py").write_text(FAULTY)
    broker = Broker(
        tmp_path,
        plugins='<broker-plugin name="mine" policy="faulty"><property key="limit" value="5"/></broker-plugin>'
        '<broker-plugin name="unused" policy="faulty"/>',
        orders='<address-policy name="mine"><property key="limit" value="7"/></address-policy>',
        settings='<address-setting match="off"><address-policy name="mine" enabled="false"/></address-setting>',
    )
    client = broker.stomp()
    for _ in range(3):
        client.put(to="/queue/orders.eu")
    mine, unused = broker.get("/api/v1/plugins")["data"]
    lines = broker.file.read_text().splitlines()
    assert pick(mine, "name", "plugin", "class") == ("mine", "faulty", "Faulty")
    assert mine["description"] == "Fails <b>always</b>."
    assert mine["parameters"] == [
        {
            "name": "limit",
            "value": "5",
            "default": "1",
            "required": False,
            "type": "whole number, at least 1",
            "source": "broker-plugin",
            "meaning": "A number.",
        }
    ]
    assert pick(mine, "matches", "addresses") == (["orders.#"], 1)
    assert [pick(use, "match", "enabled", "parameters") for use in mine["uses"]] == [
        ("orders.#", True, {"limit": "7"}),
        ("off", False, {}),
    ]
    assert all("address-policy" in lines[use["line"] - 1] for use in mine["uses"])
    assert mine["hooks"] == [{"hook": "enqueued", "errors": 3, "slow": 0, "longest": 0}]
    last = mine["lastError"]
    assert pick(last, "address", "hook") == ("orders.eu", "enqueued")
    assert last["text"].startswith("KeyError: '<script>") and len(last["text"]) == 300
    assert pick(unused, "matches", "addresses", "lastError") == ([], 0, None)
    assert unused["parameters"][0]["source"] == "default" and unused["parameters"][0]["value"] == "1"


def test_slow_hooks_are_shown_with_the_longest(broker):
    recorded = broker.service.policies.recorded
    broker.write(plugins='<broker-plugin name="stamp"/>')
    broker.reload(dry=False)
    for seconds in (0.03, 0.07, 0.05):
        recorded.slow_hook("stamp", "a", "timer", seconds)
    (found,) = broker.get("/api/v1/plugins")["data"]
    assert {"hook": "timer", "errors": 0, "slow": 3, "longest": 70.0} in found["hooks"]


def test_policy_of_full_addresses_is_a_use(tmp_path):
    broker = Broker(
        tmp_path,
        plugins='<broker-plugin name="mine" policy="spill"><property key="to" value="x"/></broker-plugin>',
        orders="<address-full-policy>mine</address-full-policy>",
    )
    (found,) = broker.get("/api/v1/plugins")["data"]
    assert [pick(use, "match", "element") for use in found["uses"]] == [("orders.#", "address-full-policy")]
    assert found["matches"] == ["orders.#"]


def test_without_plugins_the_list_is_empty():
    assert AdminServer().get("/api/v1/plugins") == {"data": []}


def test_a_reload_lists_settings_of_artemis_without_effect(broker):
    assert broker.reload(dry=True)["ignored"] == []
    broker.write(core="<journal-type>NIO</journal-type><read-whole-page>true</read-whole-page>")
    for dry in (True, False):
        assert broker.reload(dry)["ignored"] == ["journal-type", "read-whole-page"]
