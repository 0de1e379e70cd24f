"""Queues: the list at any length, one queue with its ring, consumers and plots, and every action on it."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from ..stomp_client import StompClient
from .steps import (
    button,
    fill,
    gone,
    group,
    has,
    heading,
    link,
    make_queue,
    press,
    reads,
    region,
    select,
    shown,
    stat,
    visible,
)


def names(page):
    """The links of the rows that are shown."""
    return page.locator("tbody tr[data-row] td:first-child a")


# ---- the list


def test_list_searches_sorts_and_filters(console, management, connect, name):
    for number, queue in enumerate(("b", "a", "c")):
        make_queue(management, f"{name}.{queue}", paused=queue == "c")
        if number:
            connect().put(f"/queue/{name}.{queue}", *["x"] * number)
    page = console.go("#/queues")
    fill(page, "Search queues by name", name)
    reads(names(page), [f"{name}.{queue}" for queue in "abc"])
    press(page, "Messages")
    reads(names(page), [f"{name}.{queue}" for queue in "cab"])
    expect(page.get_by_role("columnheader", name="Messages")).to_have_attribute("aria-sort", "descending")
    press(page, "Messages")
    reads(names(page), [f"{name}.{queue}" for queue in "bac"])
    select(page, "State", "Paused")
    reads(names(page), [f"{name}.c"])
    has(page.get_by_role("row").nth(1), "paused")
    reads(page.get_by_role("status").filter(has_text="found"), "1 queue found")
    page.reload()  # the address of the page has search, filter and order
    reads(names(page), [f"{name}.c"])
    select(page, "Routing type", "MULTICAST")
    shown(page, "No queue matches")
    button(page, "Clear filters").first.click()
    expect(page.get_by_role("status").filter(has_text="queue")).not_to_contain_text("found")


def test_chosen_columns_are_remembered(console, management, name):
    make_queue(management, name, address=f"{name}.address")
    page = console.go(f"#/queues?search={name}")
    visible(page.get_by_role("columnheader", name="Scheduled"))
    press(page, "Columns")
    dialog = page.get_by_role("dialog", name="Columns")
    dialog.get_by_label("Address").check()
    dialog.get_by_label("Scheduled").uncheck()
    press(page, "Apply")
    expect(link(page, f"{name}.address")).to_be_attached()
    gone(page.get_by_role("columnheader", name="Scheduled"))
    page.reload()
    expect(link(page, f"{name}.address")).to_be_attached()
    gone(page.get_by_role("columnheader", name="Scheduled"))
    press(page, "Columns")
    press(page, "Default")
    visible(page.get_by_role("columnheader", name="Scheduled"))


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_long_list_holds_few_rows_and_asks_for_what_is_visible(open_console, start_broker, count):
    broker = start_broker()
    client = StompClient(broker.port)
    client.connect()
    for number in range(count - 1):
        client.send("SEND", {"destination": f"/queue/many.{number:04}"})
    client.put(f"/queue/many.{count - 1:04}", "x")
    client.close()
    console = open_console(broker.http_port)
    page = console.go("#/queues")
    reads(page.get_by_role("status").filter(has_text="queue"), f"{count:,} queues")
    expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", str(count + 1))
    reads(names(page).first, "many.0000")
    box = group(page, "Queues")
    for fraction, number in ((0.5, count // 2), (1, count - 1), (0.25, count // 4), (0, 0)):
        box.evaluate("(box, fraction) => { box.scrollTop = fraction * box.scrollHeight; }", fraction)
        expect(link(page, f"many.{number:04}", exact=True)).to_be_attached()
        assert page.locator("tbody tr").count() < 100
    requests = [line for line in console.requests if "/api/v1/queues?" in line]
    assert all(int(re.findall(r"size=(\d+)", line)[0]) <= 100 for line in requests), requests
    fill(page, "Search queues by name", "MANY.177")
    reads(names(page), [f"many.{number}" for number in range(1770, 1780)])


# ---- one queue


def test_queue_page_shows_counts_consumers_and_bindings(console, management, connect, name):
    producer = connect()
    producer.put(f"/queue/{name}", *["x"] * 20)
    producer.put(f"/queue/{name}", "later", AMQ_SCHEDULED_DELAY=600_000)
    consumer = connect(client_id="till-7")
    consumer.subscribe(f"/queue/{name}", ack="client-individual", prefetch_count=5)
    management.expect(name, deliveringCount=5, scheduledCount=1, messageCount=21)
    page = console.go(f"#/queues/{name}")
    for label, value in (
        ("Messages", "21"),
        ("Pending", "15"),
        ("Delivering", "5"),
        ("Scheduled", "1"),
        ("Consumers", "1"),
    ):
        reads(stat(page, label), value)
    row = region(page, "Consumers").get_by_role("row").nth(1)
    for text in ("till-7", "127.0.0.1:", "client-individual", "none left"):
        has(row, text)
    consumer.answer("ACK", consumer.message("x"))
    bindings = region(page, "Bindings")
    expect(link(bindings, name)).to_have_attribute("href", f"#/addresses/{name}")
    has(bindings, "ANYCAST")
    reads(stat(page, "Messages"), "20")


def test_depth_rates_and_age_are_plotted(console, connect, name):
    connect().put(f"/queue/{name}", *["x"] * 20)
    page = console.go(f"#/queues/{name}")
    for title, label in (
        ("Depth", r"pending 20, delivering 0, scheduled 0, paged 0"),
        ("Rates", r"Messages per second: in .*, out .*, ack "),
        ("Age of the oldest message", r"age [\d.]+ (ms|s)"),
    ):
        plot = region(page, title, exact=True).get_by_role("img")
        expect(plot).to_have_attribute("aria-label", re.compile(label))
        visible(plot.locator("canvas"))


def test_ring_is_drawn_with_its_fill_and_evictions(console, management, connect, name):
    make_queue(management, name, ringSize=8)
    client = connect()
    client.put(f"/queue/{name}", *["x"] * 6)
    page = console.go(f"#/queues/{name}")
    ring = region(page, "Ring").get_by_role("img")
    expect(ring).to_have_attribute("aria-label", re.compile("6 of 8 pending, 75 % full; 0 messages evicted"))
    expect(page.locator(".ring-segment")).to_have_count(8)
    expect(page.locator(".ring-segment.filled")).to_have_count(6)
    client.put(f"/queue/{name}", *["x"] * 5)
    expect(ring).to_have_attribute("aria-label", re.compile("8 of 8 pending, 100 % full; 3 messages evicted"))
    expect(page.locator(".ring-segment.filled")).to_have_count(8)
    shown(page, "3 since you opened this page")
    expect(page.locator(".ring-segments")).to_have_attribute("style", re.compile(r"rotate\(-135deg\)"))


def test_queue_that_is_deleted_beneath_the_page(console, management, name):
    make_queue(management, name)
    page = console.go(f"#/queues/{name}")
    visible(button(page, "Pause"))
    management.ask("DELETE", f"/queues/{name}")
    console.allow("status of 404")
    shown(page, "This queue no longer exists")
    gone(button(page, "Pause"))


# ---- actions


def test_create_change_pause_and_resume(console, management, name):
    page = console.go("#/queues")
    button(page, "Create a queue").first.click()
    dialog = page.get_by_role("dialog", name="Create a queue")
    fill(dialog, "Name", name)
    fill(dialog, "Address", f"{name}.address")
    fill(dialog, "Ring size", "5")
    fill(dialog, "Filter", "colour =")
    press(dialog, "Create")
    expect(dialog.get_by_label("Filter")).to_have_attribute("aria-invalid", "true")  # and the rest stays
    console.allow("status of 400")
    fill(dialog, "Filter", "colour = 'red'")
    press(dialog, "Create")
    heading(page, name)
    queue = management.queue(name)
    assert (queue["address"], queue["ringSize"], queue["filter"]) == (f"{name}.address", 5, "colour = 'red'")
    press(page, "Change", exact=True)
    dialog = page.get_by_role("dialog", name=f"Change {name}")
    expect(dialog.get_by_label("Ring size")).to_have_value("5")
    fill(dialog, "Ring size", "7")
    dialog.get_by_text("More settings").click()
    dialog.get_by_label("Exclusive").check()
    press(dialog, "Apply")
    gone(dialog)
    queue = management.queue(name)
    assert (queue["ringSize"], queue["exclusive"], queue["filter"]) == (7, True, "colour = 'red'")
    shown(page, "exclusive")
    press(page, "Pause")
    visible(button(page, "Resume"))
    management.expect(name, paused=True)
    press(page, "Resume")
    visible(button(page, "Pause"))
    management.expect(name, paused=False)


def choose(page, action):
    """Choose an action of the menu by keyboard; returns the dialog that asks."""
    button(page, "More").focus()
    page.keyboard.press("ArrowDown")
    items = page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    item = items.filter(has_text=re.compile(f"^{action}"))
    while not item.evaluate("item => item === document.activeElement"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    return page.get_by_role("dialog")


@pytest.mark.parametrize("action", ["Purge", "Trim", "Delete"])
def test_destructive_actions_ask_for_the_name(console, management, connect, name, action):
    connect().put(f"/queue/{name}", *["x"] * 3)
    management.update(name, ringSize=1)
    page = console.go(f"#/queues/{name}")
    reads(stat(page, "Pending"), "3")
    dialog = choose(page, action)
    confirm = button(dialog, action, exact=True)
    expect(confirm).to_be_disabled()
    fill(dialog, "to confirm", name[:-1])
    expect(confirm).to_be_disabled()
    page.keyboard.press("Enter")
    fill(dialog, "to confirm", name)
    assert management.queue(name)["messageCount"] == 3
    page.keyboard.press("Enter")
    gone(dialog)
    if action == "Purge":
        management.expect(name, messageCount=0)
        reads(stat(page, "Messages"), "0")
        shown(page, "3 messages removed")
    elif action == "Trim":
        management.expect(name, messageCount=1, messagesReplaced=2)
        shown(page, "2 messages evicted")
    else:
        console.allow("status of 404")  # a poll may follow the deletion
        management.gone(name)
        heading(page, "Queues")


def test_escape_cancels_and_focus_returns(console, management, name):
    make_queue(management, name)
    page = console.go(f"#/queues/{name}")
    visible(button(page, "More"))
    dialog = choose(page, "Delete")
    visible(dialog)
    page.keyboard.press("Escape")
    gone(dialog)
    expect(button(page, "More")).to_be_focused()
    assert management.queue(name)


def test_queue_with_consumers_is_deleted_after_a_warning(console, management, connect, name):
    consumer = connect()
    consumer.subscribe(f"/queue/{name}")
    page = console.go(f"#/queues/{name}")
    reads(stat(page, "Consumers"), "1")
    dialog = choose(page, "Delete")
    has(dialog, "1 consumer will get an ERROR")
    fill(dialog, "to confirm", name)
    page.keyboard.press("Enter")
    management.gone(name)
    consumer.error()


@pytest.mark.broker(settings={"#": {"max-delivery-attempts": 1, "dead-letter-address": "dead"}})
def test_copy_move_and_retry(console, management, connect, name):
    for queue in ("dead", f"{name}.other"):
        make_queue(management, queue)
    client = connect()
    client.put(f"/queue/{name}", *["x"] * 2, colour="red")
    client.put(f"/queue/{name}", *["x"] * 3, colour="blue")
    page = console.go(f"#/queues/{name}")
    for action, left, there, done in (
        ("Copy", 5, 2, "2 messages copied"),
        ("Move", 3, 4, "2 messages moved"),
    ):
        reads(stat(page, "Messages"), "5")
        dialog = choose(page, action)
        dialog.get_by_role("combobox", name="Queue").fill(f"{name}.other")
        fill(dialog, "Only messages that match", "colour = 'red'")
        press(dialog, action, exact=True)
        shown(page, done)
        gone(page.get_by_role("dialog"))
        management.expect(f"{name}.other", messageCount=there)
        management.expect(name, messageCount=left)
    client.subscribe(f"/queue/{name}", ack="client-individual")
    for _ in range(3):
        client.answer("NACK", client.message("x"))
    management.expect("dead", messageCount=3)
    console.go("#/queues/dead")
    reads(stat(page, "Messages"), "3")
    press(choose(page, "Retry"), "Retry")
    management.expect(name, messageCount=3)
    shown(page, "3 messages sent back to where they came from")
    reads(stat(page, "Messages"), "0")


def test_links_to_messages_and_sending(console, management, name):
    queue = f"{name}/a b"
    make_queue(management, queue, address=name)
    page = console.go(f"#/queues/{quote(queue, safe='')}")
    browse = link(page, "Browse messages")
    expect(browse).to_have_attribute("href", f"#/queues/{quote(queue, safe='')}/messages")
    send = link(page.get_by_role("main"), "Send", exact=True)
    expect(send).to_have_attribute(
        "href", re.compile(rf"^#/messages/send\?queue=.*&address={name}&routingType=")
    )


def test_pages_begin_with_the_verdict_and_the_next_command(console, management, connect, name):
    make_queue(management, name, paused=True)
    connect().put(f"/queue/{name}", "one", "two")
    for route, sentence in {
        f"#/queues/{name}": f"2 messages wait: the queue is paused.Next: stompring queue resume {name}",
        f"#/addresses/{name}": "It takes messages.",
    }.items():
        reads(console.go(route).get_by_role("note", name="What is going on"), [re.compile(f"^{sentence}")])
