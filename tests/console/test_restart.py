"""A broker that restarts beneath the pages, and one with 10,000 queues."""

import socket

import pytest
from playwright.sync_api import expect

from ..broker_document import anycast, broker_xml
from ..broker_process import BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from .steps import alert, fill, group, has, make_queue, note, press, reads, shown, visible


class Restarted:
    """A broker on the same ports each time."""

    def __init__(self, directory):
        sockets = [socket.socket() for _ in range(2)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        self.stomp, self.http = (one.getsockname()[1] for one in sockets)
        for one in sockets:
            one.close()
        self.config = directory / "broker.xml"
        document = broker_xml().replace("http://127.0.0.1:0", f"http://127.0.0.1:{self.http}")
        self.config.write_text(document.replace("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{self.stomp}"))

    def run(self):
        """Not yet entered."""
        return BrokerProcess(self.config)


@pytest.fixture
def restarted(tmp_path):
    """A broker to start more than once."""
    return Restarted(tmp_path)


def send(port, destination, *bodies):
    """Send durable messages."""
    client = StompClient(port)
    client.connect()
    client.put(destination, *bodies, persistent="true")
    client.close()


@pytest.mark.long
def test_messages_stay_in_view_and_an_action_meanwhile_says_that_there_is_no_answer(open_console, restarted):
    console = open_console(restarted.http)
    console.allow("ERR_CONNECTION|ERR_EMPTY_RESPONSE")
    with restarted.run():
        send(restarted.stomp, "/queue/orders", "one", "two")
        page = console.open("#/queues/orders/messages")
        expect(page.locator("table.messages tbody tr")).to_have_count(2)
    page.locator("table.messages tbody input").first.check()
    press(page, "Delete")
    dialog = page.get_by_role("dialog")
    press(dialog, "Delete", exact=True)
    alert(dialog, "does not answer")
    expect(page.locator("table.messages tbody tr")).to_have_count(2)
    with restarted.run():
        press(dialog, "Delete", exact=True)
        note(page, "1 message deleted.")
        reads(page.locator("td.preview"), ["two"])


@pytest.mark.long
def test_live_and_events_continue_after_a_restart(open_console, restarted):
    live, events = open_console(restarted.http), open_console(restarted.http)
    for console in (live, events):
        console.allow("ERR_|WebSocket connection")
    with restarted.run():
        page = live.open("#/live?destination=/queue/work&mode=consume")
        press(page, "Subscribe", exact=True)
        shown(page, "live", exact=True)
        send(restarted.stomp, "/queue/work", "before")
        table = group(page, "Received messages")
        has(table, "before")
        happened = events.open("#/events")
        shown(happened, "live", exact=True)
        expect(happened.locator("tbody tr", has_text="queue work created")).to_have_count(1)
    shown(page, "connection lost, trying again")
    shown(happened, "not connected")
    with restarted.run():
        send(restarted.stomp, "/queue/work", "after")
        expect(table).to_contain_text("after")
        has(table, "before")
        make_queue(Management(restarted.http), "since")
        row = happened.locator("tbody tr", has_text="queue since created")
        expect(row).to_have_count(1)
        expect(happened.locator("tbody tr", has_text="queue work created")).to_have_count(1)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_pages_with_many_queues(open_console, start_broker, count):
    broker = start_broker(
        settings={"#": {"dead-letter-address": "DLQ", "max-delivery-attempts": "1"}}, addresses=anycast("DLQ")
    )
    client = StompClient(broker.port)
    client.connect()
    for number in range(count):
        client.send("SEND", {"destination": f"/queue/many.{number:04}"})
    client.put("/queue/many.late", "later", AMQ_SCHEDULED_DELAY="3600000")
    client.subscribe("/queue/many.0042", ack="client-individual")
    client.answer("NACK", client.message())
    console = open_console(broker.http_port)
    page = console.open("#/dead-letters")
    row = group(page, "Dead letters by origin and reason").locator("tbody tr")
    expect(row).to_have_count(1)
    has(row, "many.0042")
    for route, text in (
        ("#/schedules", "later"),
        ("#/consumers", "many.0042"),
        ("#/queues/many.0900/messages", "message"),
    ):
        console.go(route)
        visible(page.locator("main").get_by_text(text).first)
    console.go("#/messages/send")
    fill(page, "Address *", "many.077")
    suggestions = page.locator("datalist option[value^='many.077']")
    expect(suggestions).to_have_count(10)
    client.close()
