"""`promtool check metrics` accepts what a broker and an ingest expose, with every family that docs/metrics.md names."""

import re
import shutil
import subprocess

import pytest
from prometheus_client import generate_latest

from stompring.pipeline.lake.ingest import IngestMetrics

from ..admin.test_ha import ACTIVE, server_with
from ..broker_document import EVERYBODY, PREFIXES, anycast
from ..broker_process import BrokerProcess
from ..certificates import Authority
from ..docs.pages import text_of
from .steps import say, written
from .test_permissions import add, http
from .test_security import login

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)"
)

METRICS = text_of("docs/metrics.md")
OF_A_LOG = set(re.findall(r"\| `(stompring_ha_\w+)` \|", METRICS))

POLICY = '''
"""A policy with a slow hook, which fails when it is asked to."""

import time

from stompring.policy import AddressPolicy


class Slow(AddressPolicy):
    """Takes longer than 20 ms for each message."""

    def admit(self, offer):
        time.sleep(0.03)
        if offer.header("fail"):
            return 1 / 0
        return None
'''


def check(text):
    """Raise where promtool finds fault with metrics in the text format."""
    encoded = text.encode() if isinstance(text, str) else text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=encoded, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.fixture
def config(tmp_path):
    """A broker with security, TLS, the PROXY protocol, paging, retention, a policy, a bridge and a divert."""
    Authority(tmp_path).issue("broker.pem")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "slow.py").write_text(POLICY)
    config = written(
        tmp_path,
        secure=True,
        core="<journal-retention-directory>data/retention</journal-retention-directory>"
        '<connectors><connector name="nobody">tcp://127.0.0.1:1</connector></connectors>'
        '<bridges><bridge name="b"><queue-name>watched</queue-name><filter string="never = 1"/>'
        "<static-connectors><connector-ref>nobody</connector-ref></static-connectors></bridge></bridges>"
        '<diverts><divert name="d"><address>other</address><forwarding-address>copies</forwarding-address></divert>'
        "</diverts>"
        '<broker-plugins><broker-plugin name="slow"/></broker-plugins>',
        acceptors=f'<acceptor name="tls">ssl://127.0.0.1:0?keyStorePath=broker.pem;{PREFIXES}</acceptor>'
        f'<acceptor name="proxy">tcp://127.0.0.1:0?proxyProtocolEnabled=true;{PREFIXES}</acceptor>',
        settings={
            "watched": {"address-policy": '<address-policy name="slow"/>'},
            "paged": {"max-size-messages": 1},
        },
        addresses=anycast("watched") + anycast("paged"),
    )
    add(config, "anna", EVERYBODY)
    return config


def test_metrics_of_a_broker_with_every_family(config):
    with BrokerProcess(config) as broker:
        broker.may_fault = True
        client = login(broker, login="anna", passcode="anna")
        client.expect("CONNECTED")
        for number in range(20):
            client.put("paged", str(number), persistent="true")
        client.put("watched", "slow")
        say(client, "watched", b"m", fail="1", receipt="r")
        client.expect("ERROR")
        status, text = http(broker, "GET", "/metrics", "anna:anna")
    assert status == 200
    check(text)
    documented = re.findall(r"`((?:stompring|process|python)_\w+)`", METRICS)
    exposed = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    assert exposed == set(documented) - OF_A_LOG


def test_metrics_of_a_replicated_log():
    scraped = server_with(ACTIVE).ask("GET", "/metrics").text
    assert all(name in scraped for name in OF_A_LOG)
    check(scraped)


def test_metrics_of_an_ingest():
    metrics = IngestMetrics()
    metrics.upkeep("messages", 1, 1, 1)
    check(generate_latest(metrics.registry))
