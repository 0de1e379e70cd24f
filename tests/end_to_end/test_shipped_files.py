"""The files of config/, run as they are but for their ports: none of them loses a message that nobody could use."""

import re
import shutil
import time
from pathlib import Path

import pytest

from ..broker_process import ROOT, BrokerProcess
from ..certificates import Authority
from ..stomp_client import StompClient
from .test_permissions import add

FILES = sorted(path.name for path in (ROOT / "config").glob("*.xml"))

#: Attempts, where a file gives other than ten.
ATTEMPTS = {"dead-letter.xml": 3, "wildcards.xml": 5}

#: Where the queues of dead letters and expired messages are named in the file, and are for all addresses.
CONFIGURED = {"broker.xml": ("/queue/DLQ", "/queue/ExpiryQueue")}

#: The expiry-address, where it is another.
EXPIRED = {"dead-letter.xml": "Expired"}


def where(name, address):
    """What to subscribe to for what became of messages that were sent to an address."""
    expired = EXPIRED.get(name, "ExpiryQueue")
    return CONFIGURED.get(name, (f"DLQ::DLQ.{address}", f"{expired}::EXP.{address}"))


@pytest.fixture(scope="module", params=FILES)
def shipped(request, tmp_path_factory):
    name = request.param
    home = tmp_path_factory.mktemp(Path(name).stem)
    shutil.copytree(ROOT / "config", home / "config")
    shutil.copytree(ROOT / "plugins", home / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    config = home / "config" / name
    config.write_text(re.sub(r"://[0-9.]+:[0-9]+", "://127.0.0.1:0", config.read_text()))
    context = None
    if name == "tls.xml":
        authority = Authority(home / "config")
        authority.issue("broker.pem")
        context = authority.trusting()
    add(config, "ada", "clients")
    add(config, "grace", "clients" if name == "tls.xml" else "admins")
    with BrokerProcess(config) as broker:
        opened = []

        def connects(user):
            client = StompClient(broker.ports["stomp"], context=context)
            opened.append(client)
            client.connect({"login": user, "passcode": user})
            return client

        yield name, connects
        for client in opened:
            client.close()


def test_a_message_that_is_refused_ten_times_is_a_dead_letter(shipped):
    name, connects = shipped
    client = connects("ada")
    client.put("/queue/work", "poison", colour="red")
    client.subscribe("/queue/work", ack="client-individual")
    for _ in range(ATTEMPTS.get(name, 10)):
        client.answer("NACK", client.message("poison"))
    client.put("/queue/work", "next")
    client.message("next")
    administrator = connects("grace")
    administrator.subscribe(where(name, "work")[0], ack="client-individual")
    letter = administrator.message("poison")
    assert (letter["colour"], letter["_AMQ_ORIG_ADDRESS"]) == ("red", "work")


def test_a_message_whose_time_runs_out_is_kept(shipped):
    name, connects = shipped
    client = connects("ada")
    client.put("/queue/late", "late", expires=int(time.time() * 1000) + 50)
    administrator = connects("grace")
    time.sleep(0.5)  # a subscriber that came before the message would make the queue itself
    administrator.subscribe(where(name, "late")[1], ack="client-individual")
    assert administrator.message("late")["_AMQ_ORIG_ADDRESS"] == "late"


@pytest.mark.parametrize("shipped", ["security.xml"], indirect=True)
def test_dead_letters_are_for_administrators_alone(shipped):
    _, connects = shipped
    for destination in (
        "DLQ::DLQ.mine",
        "/topic/DLQ",
        "/queue/ExpiryQueue",
        "/topic/#",
        "/queue/mine::DLQ.orders",
    ):
        client = connects("ada")
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        client.error("User ada does not have permission")
