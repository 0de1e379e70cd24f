"""Makes an instance for tests of upgrades: configuration, users, and the data directory of a broker that was killed.

``python -m tests.shipping.old_instance FILE.tar.gz``, in the checkout of a version, before a version with another
format of anything is released. The archive has ``etc`` and ``data``, the examples of ``config`` of that version, and
``expected.json`` with what its management API told of every queue.
"""

import json
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from ..broker_process import ROOT, BrokerProcess
from ..end_to_end.test_permissions import add
from ..stomp_client import StompClient, spelled

BROKER_XML = """<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>upgraded</name>
  <security-enabled>true</security-enabled>
  <users-file>users.properties</users-file>
  <roles-file>roles.properties</roles-file>
  <journal-file-size>20K</journal-file-size>
  <journal-retention-directory period="100" unit="DAYS">data/retention</journal-retention-directory>
  <security-settings>
    <security-setting match="#">
      <permission type="send" roles="admins, clients"/>
      <permission type="consume" roles="admins, clients"/>
      <permission type="browse" roles="admins"/>
      <permission type="createAddress" roles="admins"/>
      <permission type="createDurableQueue" roles="admins, clients"/>
      <permission type="createNonDurableQueue" roles="admins, clients"/>
      <permission type="view" roles="admins, monitoring"/>
      <permission type="edit" roles="admins"/>
      <permission type="manage" roles="admins"/>
    </security-setting>
  </security-settings>
  <acceptors>
    <acceptor name="stomp">tcp://127.0.0.1:0?anycastPrefix=/queue/;multicastPrefix=/topic/</acceptor>
    <acceptor name="http">http://127.0.0.1:0</acceptor>
  </acceptors>
  <address-settings>
    <address-setting match="#">
      <default-address-routing-type>ANYCAST</default-address-routing-type>
      <default-queue-routing-type>ANYCAST</default-queue-routing-type>
      <auto-delete-queues>false</auto-delete-queues>
      <auto-delete-addresses>false</auto-delete-addresses>
      <dead-letter-address>DLQ</dead-letter-address>
      <auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>
      <max-delivery-attempts>2</max-delivery-attempts>
    </address-setting>
    <address-setting match="paged.#">
      <max-size-messages>10</max-size-messages>
      <page-size-bytes>2K</page-size-bytes>
    </address-setting>
    <address-setting match="ring.#"><default-ring-size>4</default-ring-size></address-setting>
    <address-setting match="redelivered"><redelivery-delay>3153600000000</redelivery-delay></address-setting>
  </address-settings>
</core></configuration>
"""

#: The year 2100, in milliseconds.
LATER = 4_102_444_800_000


def management(broker):
    """The management API, for the user ``ada``."""
    return broker.management(("ada", "ada's password"))


def told(broker):
    """Queues with their attributes and messages, as the management API shows them."""
    api = management(broker)
    return {
        queue["name"]: {"queue": queue, "messages": api.messages(queue["name"])}
        for queue in api.ask("GET", "/queues", size=1000)["data"]
    }


def connect(broker, **headers):
    client = StompClient(broker.port)
    login = {"login": "ada", "passcode": "ada's password"}
    client.connect({**login, **spelled(headers)})
    return client


def populate(broker):
    """Messages of every kind that a data directory may have."""
    client = connect(broker)
    numbers = [f"{number} ".ljust(150, "x") for number in range(40)]
    client.put("plain", *numbers, persistent="true", priority="7", colour="blue\nand white")
    client.put("plain", b"\x00\xff bytes", persistent="true", content_length=8)
    client.put("paged.orders", *numbers, persistent="true")
    client.put("paged.orders", *numbers, persistent="true", kind="second")
    client.put("ring.prices", *numbers, persistent="true")
    client.put("later", "once", persistent="true", AMQ_SCHEDULED_TIME=LATER)
    client.put("later", "cron", persistent="true", AMQ_SCHEDULED_CRON="0 12 1 1 *")
    client.put("paged.later", *numbers, persistent="true", AMQ_SCHEDULED_TIME=LATER)
    for number in range(5):
        client.put("unique", f"{number}", persistent="true", _AMQ_DUPL_ID=f"id-{number}")
    client.put("expiring", "not soon", persistent="true", expires=LATER)
    make = {
        "routingType": "ANYCAST",
        "durable": True,
        "filter": "kind = 'red'",
        "ringSize": 7,
        "exclusive": True,
    }
    management(broker).ask("POST", "/queues", {"name": "made", "address": "made", **make})
    client.put("made", "kept", persistent="true", kind="red")
    client.put("made", "filtered", persistent="true", kind="blue")
    client.send("BEGIN", {"transaction": "t"})
    client.put("transacted", "1", "2", persistent="true", transaction="t")
    client.ask("COMMIT", {"transaction": "t"})
    durable = connect(broker, client_id="desk")
    durable.subscribe("/topic/news", id="n", durable_subscription_name="desk-news")
    client.put("/topic/news", "first", "second", persistent="true")
    durable.answer("ACK", durable.message("first"))
    # some acknowledged, one dead, one that waits for its redelivery
    for queue, acknowledged in (("plain", numbers[:7]), ("paged.orders", numbers[:30])):
        consumer = connect(broker)
        consumer.subscribe(queue, id="c")
        for body in acknowledged:
            consumer.answer("ACK", consumer.message(body))
        consumer.disconnect()
    client.put("poison", "bad", persistent="true")
    client.put("redelivered", "again", persistent="true")
    for queue, body, times in (("poison", "bad", 2), ("redelivered", "again", 1)):
        consumer = connect(broker)
        consumer.subscribe(queue, id="c")
        for _ in range(times):
            consumer.answer("NACK", consumer.message(body))
        consumer.disconnect()
    durable.disconnect()
    client.put("plain", "last", persistent="true")
    client.disconnect()


def create(directory):
    """The instance. Its broker is killed: there is no clean end."""
    config = directory / "etc" / "broker.xml"
    config.parent.mkdir(parents=True)
    config.write_text(BROKER_XML)
    shutil.copytree(ROOT / "config", directory / "config", ignore=shutil.ignore_patterns("*.properties"))
    shutil.copytree(ROOT / "plugins", directory / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    for name, role in (("ada", "admins"), ("carl", "clients"), ("mona", "monitoring")):
        add(config, name, role, password=f"{name}'s password")
    broker = BrokerProcess(config, directory / "data", forked=False).__enter__()
    populate(broker)
    expected = told(broker)
    broker.kill()
    (directory / "expected.json").write_text(json.dumps(expected, indent=1))


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "instance")
        create(directory)
        with tarfile.open(sys.argv[1], "w:gz", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(directory.rglob("*")):
                if path.is_file() and not re.search(r"broker\.lock$|__pycache__", str(path)):
                    member = archive.gettarinfo(path, path.relative_to(directory).as_posix())
                    member.uid = member.gid = 0
                    member.uname = member.gname = ""
                    with path.open("rb") as file:
                        archive.addfile(member, file)


if __name__ == "__main__":
    main()
