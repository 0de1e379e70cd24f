"""Connections, consumers, events and live subscriptions in the console, with real clients."""

import pytest
from playwright.sync_api import expect

from ..broker_document import anycast
from ..waiting import until
from .steps import (
    alert,
    fill,
    gone,
    group,
    has,
    heading,
    make_queue,
    note,
    press,
    reads,
    select,
    shown,
    visible,
)

PREFIXES = "anycastPrefix=/queue/;multicastPrefix=/topic/"
WEB = f'<acceptor name="web">ws://127.0.0.1:0/stomp?{PREFIXES}</acceptor>'


def rows(page, label, text):
    """The rows with a text in a table."""
    return group(page, label).locator("tbody tr", has_text=text)


# ---- connections and consumers


def test_connections_show_who_holds_messages_and_are_closed(console, connect, management, name):
    holder, idle = connect(client_id=f"{name}.holder"), connect(client_id=f"{name}.idle")
    idle.put(f"/queue/{name}", "one", "two", "three")
    holder.subscribe(f"/queue/{name}", ack="client-individual", id=name)
    holder.messages("one", "two", "three")
    page = console.go("#/connections")
    table = group(page, "Connections")
    has(table.locator("tbody tr").first, f"{name}.holder"[:8])
    row = table.locator("tbody tr", has_text=f"{name}.holder")
    reads(row.locator("td.number").nth(1), "3")
    row.get_by_role("link").first.click()
    has(page.get_by_role("heading", level=1), "Connection")
    has(group(page, "Subscriptions"), "client-individual")
    press(page, "Close")
    dialog = page.get_by_role("dialog")
    has(dialog, "return to their queues")
    press(dialog, "Close the connection")
    heading(page, "Connections")
    holder.expect("ERROR")
    gone(table.locator("tbody tr", has_text=f"{name}.holder"))
    management.expect(name, messageCount=3, deliveringCount=0)


def test_connections_are_searched_sorted_and_their_columns_chosen(console, connect):
    for _ in range(3):
        connect()
    page = console.go("#/connections")
    visible(group(page, "Connections").locator("tbody tr").nth(2))
    press(page, "Client", exact=True)
    expect(page.get_by_role("columnheader", name="Client", exact=True)).to_have_attribute(
        "aria-sort", "ascending"
    )
    first = page.locator("tbody tr td a").first.inner_text()
    fill(page, "Search connections", first.rstrip("…"))
    press(page, "Blocked")
    shown(page, "No connection matches.")
    press(page, "Show all")
    press(page, "Columns")
    page.get_by_role("dialog").get_by_label("Acceptor").check()
    press(page, "Apply")
    visible(page.get_by_role("columnheader", name="Acceptor"))


@pytest.mark.broker(
    settings={
        "#": {
            "slow-consumer-threshold": "5",
            "slow-consumer-check-period": "1",
            "slow-consumer-policy": "NOTIFY",
        }
    }
)
def test_consumers_are_sorted_by_what_they_hold_and_slow_ones_marked(console, connect, management, name):
    producer, slow, quick = connect(), connect(), connect()
    slow.subscribe(f"/queue/{name}.slow", ack="client-individual", prefetch_count="5")
    quick.subscribe(f"/queue/{name}.quick", ack="auto")
    producer.put(f"/queue/{name}.slow", *("x" for _ in range(20)))
    page = console.go("#/consumers")
    table = group(page, "Consumers")
    has(table.locator("tbody tr").first, f"{name}.slow")
    row = table.locator("tbody tr", has_text=f"{name}.slow")
    reads(row.locator("td.number").first, "5")
    reads(row.locator("td.number").nth(2), "0")  # credit
    # The next poll may be a minute away on a busy machine: the page is loaded anew
    until(lambda: management.ask("GET", "/consumers", search=name, slow="true")["count"], "a slow consumer")
    console.open("#/consumers")
    visible(row.get_by_text("slow", exact=True))
    press(page, "Slow", exact=True)
    gone(table.locator("tbody tr", has_text=f"{name}.quick"))
    press(row, "Close")
    press(page.get_by_role("dialog"), "Close the connection")
    note(page, "is closed")


# ---- events


def test_events_appear_as_they_happen_and_can_be_paused_and_filtered(console, connect, management, name):
    page = console.go("#/events")
    shown(page, "live", exact=True)
    make_queue(management, name)
    table = group(page, "Events")
    expect(table.locator("tr", has_text="BINDING_ADDED").filter(has_text=name)).to_have_count(1)
    press(page, "Pause")
    make_queue(management, f"{name}.later")
    client = connect(client_id=f"{name}.client")
    shown(page, "paused", exact=True)
    gone(table.locator("tr", has_text=f"{name}.later"))
    press(page, "Resume")
    expect(table.locator("tr", has_text="BINDING_ADDED").filter(has_text=f"{name}.later")).to_have_count(1)
    client.close()
    fill(page, "Filter events", f"{name}.later")
    gone(table.locator("tr", has_text="CONNECTION_CREATED"))
    fill(page, "Filter events", "")
    select(page, "Type", "CONNECTION_CREATED")
    gone(table.locator("tr", has_text="BINDING_ADDED"))
    visible(table.locator("tr", has_text="CONNECTION_CREATED").first)


def test_a_hidden_tab_follows_no_events_and_catches_up(open_console, broker, management, name):
    console = open_console(broker.http_port)
    page = console.go("#/events")
    shown(page, "live", exact=True)
    make_queue(management, f"{name}.before")
    events = group(page, "Events").locator("tr")
    expect(events.filter(has_text=f"queue {name}.before created")).to_have_count(1)
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    shown(page, "not connected")
    make_queue(management, name)
    console.requests.clear()
    page.evaluate(hide, False)
    expect(events.filter(has_text=f"queue {name} created")).to_have_count(1)
    assert [line for line in console.requests if "/api/v1/events" in line] == [
        f"GET {console.root}/api/v1/events"
    ]


# ---- live

with_websocket = pytest.mark.broker(acceptors=WEB, addresses=anycast("console.tests"))


def subscribe(page, destination, selector=""):
    """Fill the form and subscribe."""
    fill(page, "Destination", destination)
    fill(page, "Selector", selector)
    press(page, "Subscribe", exact=True)


@with_websocket
def test_live_shows_a_topic_with_selector_filter_and_pause(console, connect, name):
    page = console.go("#/live")
    subscribe(page, f"/topic/{name}", "size > 1")
    shown(page, "live", exact=True)
    producer = connect()
    producer.put(f"/topic/{name}", "small", size="1")
    producer.put(f"/topic/{name}", '{"first": 1}', size="2")
    producer.put(f"/topic/{name}", b"\x00\xff", size="3", **{"content-length": 2})
    table = group(page, "Received messages")
    expect(table.locator("tbody tr")).to_have_count(2)
    has(table.locator("tbody tr").first, "00 ff")  # the newest first
    fill(page, "Filter what is shown", "FIRST")
    expect(table.locator("tbody tr")).to_have_count(1)
    table.get_by_role("button").click()
    reads(group(page, "Body", exact=True), '{\n  "first": 1\n}')
    page.keyboard.press("Escape")
    fill(page, "Filter what is shown", "")
    press(page, "Pause")
    producer.put(f"/topic/{name}", "while paused", size="4")
    shown(page, "1 waiting")
    expect(table.locator("tbody tr")).to_have_count(2)
    press(page, "Resume")
    has(table.locator("tbody tr").first, "while paused")
    press(page, "Unsubscribe")
    shown(page, "not subscribed")


@with_websocket
def test_live_consumes_a_queue_and_keeps_a_bounded_list(console, connect, management, name):
    connect().put(f"/queue/{name}", *(f"message {number}" for number in range(700)))
    page = console.go(f"#/live?destination=/queue/{name}&mode=consume")
    press(page, "Subscribe", exact=True)
    expect(page.get_by_text("700 messages, the last 500 kept")).to_be_visible()
    expect(group(page, "Received messages").locator("tbody tr")).to_have_count(500)
    management.expect(name, messageCount=0)
    press(page, "Clear")
    shown(page, "Subscribed. Messages appear here as they come.")


@with_websocket
def test_live_holds_few_messages_while_paused_and_returns_them(console, connect, management, name):
    page = console.go(f"#/live?destination=/queue/{name}&mode=consume")
    press(page, "Subscribe", exact=True)
    shown(page, "live", exact=True)
    press(page, "Pause")
    connect().put(f"/queue/{name}", *("x" for _ in range(200)))
    shown(page, "50 waiting")
    management.expect(name, messageCount=200, deliveringCount=50)
    console.go("#/queues")
    management.expect(name, messageCount=200, deliveringCount=0, consumerCount=0)


@with_websocket
def test_live_browses_a_queue_without_taking_its_messages(console, connect, management, name):
    connect().put(f"/queue/{name}", "one", "two")
    page = console.go("#/live")
    subscribe(page, f"/queue/{name}")
    shown(page, "all messages shown")
    expect(group(page, "Received messages").locator("tbody tr")).to_have_count(2)
    management.expect(name, messageCount=2)


@with_websocket
def test_live_shows_why_a_subscription_is_refused(console, name):
    page = console.go("#/live")
    subscribe(page, f"/queue/{name}", "colour = = 1")
    alert(page, "selector")
    shown(page, "not subscribed")


@pytest.mark.broker(parameters="protocols=STOMP")
def test_live_uses_any_listener_that_accepts_websocket(console):
    page = console.go("#/live")
    heading(page, "Live")
