"""A file with settings of Artemis that have no effect here: the broker starts, lists them, and serves STOMP."""

import re

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..stomp_client import StompClient

ELEMENTS = "<journal-type>ASYNCIO</journal-type><critical-analyzer>true</critical-analyzer>"
OTHERS = (
    '<acceptor name="amqp">tcp://127.0.0.1:5672?protocols=AMQP;amqpCredits=1000</acceptor>'
    '<acceptor name="vm">vm://0</acceptor>'
)


def document(core=ELEMENTS):
    return broker_xml(core=core, acceptors=OTHERS, parameters="protocols=CORE,STOMP;useEpoll=true")


def lists(broker):
    return [line for line in broker.log if "no effect here" in line]


@pytest.fixture
def config(tmp_path):
    (tmp_path / "broker.xml").write_text(document())
    return tmp_path / "broker.xml"


def test_the_start_lists_settings_without_effect_in_one_line_and_skips_other_protocols(config):
    with BrokerProcess(config) as broker:
        (line,) = lists(broker)
        assert "INFO" in line
        assert line.endswith(
            "4 settings have no effect here: journal-type, critical-analyzer, "
            "protocols other than STOMP of acceptor, useEpoll of acceptor"
        )
        skipped = [line for line in broker.log if "is skipped" in line]
        assert len(skipped) == 2 and all("WARNING" in line for line in skipped)
        assert re.search(r"acceptor 'amqp' is skipped: it speaks AMQP", skipped[0])
        assert set(broker.ports) == {"stomp", "http"}
        client = StompClient(broker.port)
        client.connect({})
        client.subscribe("/queue/a")
        client.put("/queue/a", "x")
        client.message("x")
        client.disconnect()

        broker.reload(document())
        assert len(lists(broker)) == 1, "nothing new to list"
        broker.reload(document(ELEMENTS + "<read-whole-page>true</read-whole-page>"))
        broker.wait_for_log(
            "5 settings have no effect here: journal-type, critical-analyzer, read-whole-page"
        )
