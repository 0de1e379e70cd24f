"""Messages in the console: browse, open, select, move, copy, retry, expire, delete, download, upload, send."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ..broker_document import anycast
from .steps import (
    alert,
    button,
    fill,
    gone,
    group,
    has,
    in_dialog,
    link,
    make_queue,
    note,
    press,
    reads,
    select,
    shown,
    visible,
)

DEAD_LETTERS = {"#": {"dead-letter-address": "DLQ", "expiry-address": "EXP", "max-delivery-attempts": "1"}}
with_dead_letters = pytest.mark.broker(settings=DEAD_LETTERS, addresses=anycast("DLQ") + anycast("EXP"))


@pytest.fixture
def browse(console, connect, name):
    """Sends messages to the test's queue and opens its page; keywords are headers."""

    def open_page(*bodies, query="", **headers):
        if bodies:
            connect().put(f"/queue/{name}", *bodies, **headers)
        return console.go(f"#/queues/{name}/messages{query}")

    return open_page


def rows(page):
    """The bodies in the table."""
    return page.locator("table.messages td.preview").all_inner_texts()


def listed(page, number):
    """There are so many rows."""
    expect(page.locator("table.messages tbody tr")).to_have_count(number)


def filtered(page, selector):
    """Show what the selector matches."""
    fill(page, "Selector", selector)
    page.keyboard.press("Enter")


def upload(page, file):
    """Upload a file to the queue of the page."""
    press(page, "Upload")
    page.get_by_label("File of JSON lines").set_input_files(file)
    in_dialog(page, "Upload")


def bodies(messages):
    """Those of messages as management shows them."""
    return [each["body"] for each in messages]


def choose(page, *numbers):
    """Select rows, from 0."""
    for number in numbers:
        page.locator("table.messages tbody input[type=checkbox]").nth(number).check()


def action(page, label):
    """Press a button above the table."""
    press(group(page, "Actions", exact=True), label, exact=True)


def test_a_queue_without_messages_names_the_next_step(browse, management, name):
    make_queue(management, name)
    page = browse()
    shown(page, "The queue has no messages.")
    link(page, "Send one").click()
    expect(page.get_by_label("Queue *")).to_have_value(name)


def test_a_queue_that_does_not_exist(console, browse):
    console.allow("404")
    shown(browse(), "Not found")


def test_a_selector_filters_and_what_matches_is_copied_to_an_address(browse, connect, management, name):
    connect().put(f"/queue/{name}", "one", "two", colour="red")
    page = browse("three", colour="blue")
    listed(page, 3)
    filtered(page, "colour = 'red'")
    listed(page, 2)
    shown(page, "All 2 messages that match")
    assert rows(page) == ["one", "two"]
    action(page, "Copy")
    dialog = page.get_by_role("dialog")
    select(dialog, "To", "address", exact=True)
    fill(dialog, "Address *", f"{name}.copy")
    select(dialog, "Routing type", "ANYCAST")
    in_dialog(page, "Copy")
    note(page, "2 messages copied.")
    assert bodies(management.messages(f"{name}.copy")) == ["one", "two"]
    management.expect(name, messageCount=3)
    filtered(page, "colour = 'green'")
    press(page, "Show all messages")
    listed(page, 3)


def test_a_wrong_selector_is_explained_where_it_is(console, browse):
    console.allow("400")
    page = browse("one")
    filtered(page, "colour = = 'red'")
    has(page.locator("#selector-error"), "filter")
    expect(page.get_by_label("Selector")).to_have_attribute("aria-invalid", "true")


def test_pages_of_messages(browse):
    page = browse(*(f"message {number}" for number in range(120)))
    shown(page, "1 to 50 of 120")
    press(page, "Next")
    shown(page, "51 to 100 of 120")
    reads(page.locator("td.preview").first, "message 50")
    press(page, "Last")
    expect(page.locator("td.preview")).to_have_count(20)
    press(page, "Previous")
    press(page, "First")
    reads(page.locator("td.preview").first, "message 0")


# ---- one message


def test_json_keeps_its_digits_and_can_be_shown_as_it_is_and_as_hex(browse):
    body = '{"id":12345678901234567890,"text":"a \\"quoted\\" {word}","list":[],"more":[1.50,{"x":null}]}'
    page = browse(body, **{"content-type": "application/json"})
    page.locator("button.link").click()
    body_shown = group(page, "Body", exact=True)
    has(body_shown, '"id": 12345678901234567890,\n  "text": "a \\"quoted\\" {word}",\n  "list": [],')
    has(body_shown, "1.50")
    press(page, "As it is")
    reads(body_shown, body)
    press(page, "Hex", exact=True)
    has(body_shown, "00000000  7b 22 69 64 22 3a 31 32")
    page.keyboard.press("Escape")
    gone(page.get_by_role("dialog"))


def test_a_binary_body_is_shown_as_hex(browse):
    page = browse(b"\x00\xff\xfe\x01", **{"content-length": 4})
    page.locator("button.link").click()
    has(group(page, "Body", exact=True), "00 ff fe 01")


def test_a_message_shows_its_headers_the_arrows_open_the_next_and_it_is_deleted(browse, management, name):
    page = browse("one", "two", colour="red", priority="7")
    page.locator("button.link").first.click()
    dialog = page.get_by_role("dialog")
    has(dialog.locator(".headers"), "colour")
    expect(button(dialog, "Previous")).to_be_disabled()
    press(dialog, "Next")
    reads(group(page, "Body", exact=True), "two")
    in_dialog(page, "Delete")
    press(page.get_by_role("dialog", name="Delete message"), "Delete", exact=True)
    note(page, "1 message deleted.")
    assert bodies(management.messages(name)) == ["one"]


def test_a_large_body_is_truncated_and_downloaded_whole(browse, tmp_path):
    body = "0123456789abcdef" * 72000  # 1.1 MiB
    page = browse(body)
    page.locator("button.link").click()
    shown(page, "The first 64 KiB of 1.1 MiB.")
    press(page, "Show up to 1 MiB")
    shown(page, "Download it to see the rest.")
    with page.expect_download() as download:
        press(page.get_by_role("dialog"), "Download")
    download.value.save_as(tmp_path / "body")
    assert (tmp_path / "body").read_text() == body


# ---- some, all, or all that match


def test_move_some(browse, management, name):
    make_queue(management, f"{name}.there")
    page = browse("one", "two", "three")
    choose(page, 0, 2)
    shown(page, "2 of 3 messages selected")
    action(page, "Move")
    fill(page.get_by_role("dialog"), "Queue *", f"{name}.there")
    in_dialog(page, "Move")
    note(page, "2 messages moved.")
    listed(page, 1)
    assert bodies(management.messages(f"{name}.there")) == ["one", "three"]


def test_a_move_to_a_queue_that_does_not_exist_is_refused_in_the_dialog(console, browse, name):
    console.allow("404")
    page = browse("one")
    action(page, "Move")
    fill(page.get_by_role("dialog"), "Queue *", f"{name}.nowhere")
    in_dialog(page, "Move")
    alert(page.get_by_role("dialog"), "does not exist")


def test_delete_all_asks_for_the_name(browse, management, name):
    page = browse("one", "two")
    action(page, "Delete")
    expect(button(page.get_by_role("dialog"), "Delete", exact=True)).to_be_disabled()
    page.keyboard.type(name)
    in_dialog(page, "Delete")
    note(page, "2 messages deleted.")
    shown(page, "The queue has no messages.")
    management.expect(name, messageCount=0)


@with_dead_letters
def test_expire_and_retry_come_back(browse, management, name, console):
    page = browse("one", "two", persistent="true")
    page.get_by_label("Select all messages of this page").check()
    action(page, "Expire")
    in_dialog(page, "Expire")
    note(page, "2 messages expired.")
    console.go("#/queues/EXP/messages?filter=" + f"_AMQ_ORIG_QUEUE%20%3D%20'{name}'")
    listed(page, 2)
    reads(page.locator("td.origin").first, name)
    has(page.locator("table.messages tbody tr").first, "expired")
    action(page, "Retry")
    in_dialog(page, "Retry")
    note(page, "2 messages sent back to where they came from.")
    management.expect(name, messageCount=2)


@pytest.mark.broker(settings={"full.#": {"max-size-messages": 5, "address-full-policy": "BLOCK"}})
def test_a_long_task_shows_its_progress_and_can_be_stopped(browse, management, name):
    make_queue(management, f"full.{name}")  # after five messages the task waits
    page = browse(*("x" for _ in range(20)))
    shown(page, "All 20 messages")
    action(page, "Move")
    fill(page.get_by_role("dialog"), "Queue *", f"full.{name}")
    in_dialog(page, "Move")
    visible(page.get_by_role("progressbar"))
    management.expect(f"full.{name}", messageCount=5)
    in_dialog(page, "Stop")
    has(page.get_by_role("dialog"), "Stopped.")
    page.get_by_role("dialog").get_by_text("Close", exact=True).click()
    management.expect(f"full.{name}", messageCount=5)
    assert management.queue(name)["messageCount"] == 15
    link(page, "Tasks").click()
    has(group(page, "Tasks").locator("tbody tr").first, "cancelled")


# ---- files


def test_download_and_upload_again(browse, management, name, tmp_path, console):
    page = browse("one", "twö", colour="red")
    with page.expect_download() as download:
        press(page, "Download", exact=True)
    assert download.value.suggested_filename == f"{name}.ndjson"
    file = tmp_path / "messages.ndjson"
    download.value.save_as(file)
    assert len(file.read_text().splitlines()) == 2
    make_queue(management, f"{name}.again")
    console.go(f"#/queues/{name}.again/messages")
    shown(page, "The queue has no messages.")
    upload(page, file)
    note(page, "2 messages uploaded.")
    found = management.messages(f"{name}.again")
    assert bodies(found) == ["one", "twö"]
    assert found[0]["headers"]["colour"] == "red"


def test_a_file_of_many_parts_is_uploaded_whole_and_a_bad_line_is_named(
    console, browse, management, name, tmp_path
):
    page = browse("x" * 100000)
    with page.expect_download() as download:
        press(page, "Download", exact=True)
    line = Path(download.value.path()).read_text().splitlines()[0]
    file = tmp_path / "many.ndjson"
    file.write_text(f"{line}\n" * 14)  # 1.4 MB: three requests
    upload(page, file)
    note(page, "14 messages uploaded.")
    management.expect(name, messageCount=15)
    console.allow("400")
    file.write_text(f"{line}\n" * 12 + "{broken\n")
    upload(page, file)
    alert(page.get_by_role("dialog"), "Line 13")


# ---- send


def test_send_with_headers_and_count(console, management, name):
    page = console.go("#/messages/send")
    fill(page, "Address *", name)
    select(page, "Routing type", "ANYCAST")
    fill(page, "Body", '{"a": 1}', exact=True)
    fill(page, "Content type", "application/json")
    shown(page, "Valid JSON.")
    fill(page, "Name of header 1", "colour")
    fill(page, "Value of header 1", "red: \u201cdark\u201d")
    fill(page, "Priority", "7")
    fill(page, "Count", "3")
    press(page, "Send 3 messages")
    shown(page, "3 messages sent.")
    found = management.messages(name)
    assert len(found) == 3
    assert found[0]["headers"]["colour"] == "red: “dark”"
    assert (found[0]["priority"], found[0]["durable"], json.loads(found[0]["body"])) == (7, True, {"a": 1})


def test_send_bytes(console, connect, name):
    client = connect()
    client.subscribe(f"/queue/{name}", ack="auto")
    page = console.go(f"#/messages/send?queue={name}")
    for encoding, body in (("base64", "AP/+\nAQ=="), ("hex", "00 ff FE\n01")):
        select(page, "The body is", encoding)
        fill(page, "Body", body, exact=True)
        press(page, "Send", exact=True)
        client.message(b"\x00\xff\xfe\x01")


@pytest.mark.parametrize(
    "choice, label, value",
    [
        ("After", "Seconds from now", "3600"),
        ("At", "Time", "2090-01-01T00:00"),
        ("Cron", "Cron expression", "0 3 * * *"),
    ],
)
def test_send_with_a_schedule(console, management, name, choice, label, value):
    make_queue(management, name)
    page = console.go(f"#/messages/send?queue={name}")
    fill(page, "Body", "later", exact=True)
    press(page, choice, exact=True)
    page.get_by_label(label).last.fill(value)
    press(page, "Send", exact=True)
    shown(page, "1 message sent.")
    [message] = management.messages(name)
    assert message["state"] == "scheduled"


def test_what_the_broker_refuses_is_shown_at_the_form(console, management, name):
    console.allow("400")
    make_queue(management, name)
    page = console.go(f"#/messages/send?queue={name}")
    press(page, "Cron", exact=True)
    fill(page, "Cron expression", "at noon")
    press(page, "Send", exact=True)
    alert(page, "AMQ_SCHEDULED_CRON")


# ---- schedules


def test_schedules_of_all_queues_are_listed_delivered_and_cancelled(console, connect, management, name):
    client = connect()
    client.put(f"/queue/{name}", "first", AMQ_SCHEDULED_DELAY="600000")
    client.put(f"/queue/{name}", "second", AMQ_SCHEDULED_DELAY="700000")
    page = console.go("#/schedules")
    press(page, "1 h", exact=True)
    has(page.get_by_role("img", name="Scheduled messages from now"), name)
    table = group(page, "Scheduled messages")
    row = table.locator("tr", has_text="first").filter(has_text=name)
    press(row, "Deliver now")
    note(page, "The message is delivered now.")
    row = table.locator("tr", has_text="second").filter(has_text=name)
    press(row, "Cancel")
    in_dialog(page, "Cancel the message")
    note(page, "The message is cancelled.")
    gone(table.locator("tr", has_text=name))
    assert bodies(management.messages(name)) == ["first"]


# ---- dead letters


@with_dead_letters
def test_dead_letters_are_grouped_by_origin_and_retried_with_one_click(console, connect, management, name):
    client = connect()
    client.put(f"/queue/{name}", "poison 1", "poison 2", persistent="true")
    client.subscribe(f"/queue/{name}", ack="client-individual")
    for _ in range(2):
        client.answer("NACK", client.message())
    client.ask("UNSUBSCRIBE", {"id": "s"})
    page = console.go("#/dead-letters")
    row = group(page, "Dead letters by origin and reason").locator("tr", has_text=name)
    has(row, "max-delivery-attempts")
    has(row, "DLQ")
    link(row, "2", exact=True).click()
    listed(page, 2)
    page.go_back()
    press(row, "Retry the messages")
    note(page, "2 messages sent back to where they came from.")
    gone(row)
    found = management.messages(name)
    assert bodies(found) == ["poison 1", "poison 2"]
    assert not [header for header in found[0]["headers"] if header.startswith("_AMQ_ORIG")]
