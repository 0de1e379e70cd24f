"""Messages in the console: browse, open, select, move, copy, retry, expire, delete, download, upload, send."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ..broker_document import anycast

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


def choose(page, *numbers):
    """Select rows, from 0."""
    for number in numbers:
        page.locator("table.messages tbody input[type=checkbox]").nth(number).check()


def action(page, label):
    """Press a button above the table."""
    page.get_by_role("group", name="Actions", exact=True).get_by_role(
        "button", name=label, exact=True
    ).click()


def in_dialog(page, label):
    """Press a button of the open dialog."""
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


def note(page, text):
    """Wait for a note."""
    expect(page.locator(".notes")).to_contain_text(text)


def test_a_queue_without_messages_names_the_next_step(browse, management, name):
    management.ask("POST", "/queues", {"name": name})
    page = browse()
    expect(page.get_by_text("The queue has no messages.")).to_be_visible()
    page.get_by_role("link", name="Send one").click()
    expect(page.get_by_label("Queue *")).to_have_value(name)


def test_a_queue_that_does_not_exist(console, browse):
    console.allow("404")
    expect(browse().get_by_text("Not found")).to_be_visible()


def test_a_selector_filters_and_what_matches_is_copied_to_an_address(browse, connect, management, name):
    connect().put(f"/queue/{name}", "one", "two", colour="red")
    page = browse("three", colour="blue")
    expect(page.locator("table.messages tbody tr")).to_have_count(3)
    page.get_by_label("Selector").fill("colour = 'red'")
    page.keyboard.press("Enter")
    expect(page.locator("table.messages tbody tr")).to_have_count(2)
    expect(page.get_by_text("All 2 messages that match")).to_be_visible()
    assert rows(page) == ["one", "two"]
    action(page, "Copy")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).select_option("address")
    dialog.get_by_label("Address *").fill(f"{name}.copy")
    dialog.get_by_label("Routing type").select_option("ANYCAST")
    in_dialog(page, "Copy")
    note(page, "2 messages copied.")
    assert [each["body"] for each in management.messages(f"{name}.copy")] == ["one", "two"]
    management.expect(name, messageCount=3)
    page.get_by_label("Selector").fill("colour = 'green'")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Show all messages").click()
    expect(page.locator("table.messages tbody tr")).to_have_count(3)


def test_a_wrong_selector_is_explained_where_it_is(console, browse):
    console.allow("400")
    page = browse("one")
    page.get_by_label("Selector").fill("colour = = 'red'")
    page.keyboard.press("Enter")
    expect(page.locator("#selector-error")).to_contain_text("filter")
    expect(page.get_by_label("Selector")).to_have_attribute("aria-invalid", "true")


def test_pages_of_messages(browse):
    page = browse(*(f"message {number}" for number in range(120)))
    expect(page.get_by_text("1 to 50 of 120")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("51 to 100 of 120")).to_be_visible()
    expect(page.locator("td.preview").first).to_have_text("message 50")
    page.get_by_role("button", name="Last").click()
    expect(page.locator("td.preview")).to_have_count(20)
    page.get_by_role("button", name="Previous").click()
    page.get_by_role("button", name="First").click()
    expect(page.locator("td.preview").first).to_have_text("message 0")


# ---- one message


def test_json_keeps_its_digits_and_can_be_shown_as_it_is_and_as_hex(browse):
    body = '{"id":12345678901234567890,"text":"a \\"quoted\\" {word}","list":[],"more":[1.50,{"x":null}]}'
    page = browse(body, **{"content-type": "application/json"})
    page.locator("button.link").click()
    shown = page.get_by_role("group", name="Body", exact=True)
    expect(shown).to_contain_text(
        '"id": 12345678901234567890,\n  "text": "a \\"quoted\\" {word}",\n  "list": [],'
    )
    expect(shown).to_contain_text("1.50")
    page.get_by_role("button", name="As it is").click()
    expect(shown).to_have_text(body)
    page.get_by_role("button", name="Hex", exact=True).click()
    expect(shown).to_contain_text("00000000  7b 22 69 64 22 3a 31 32")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_binary_body_is_shown_as_hex(browse):
    page = browse(b"\x00\xff\xfe\x01", **{"content-length": 4})
    page.locator("button.link").click()
    expect(page.get_by_role("group", name="Body", exact=True)).to_contain_text("00 ff fe 01")


def test_a_message_shows_its_headers_the_arrows_open_the_next_and_it_is_deleted(browse, management, name):
    page = browse("one", "two", colour="red", priority="7")
    page.locator("button.link").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".headers")).to_contain_text("colour")
    expect(dialog.get_by_role("button", name="Previous")).to_be_disabled()
    dialog.get_by_role("button", name="Next").click()
    expect(page.get_by_role("group", name="Body", exact=True)).to_have_text("two")
    in_dialog(page, "Delete")
    page.get_by_role("dialog", name="Delete message").get_by_role("button", name="Delete", exact=True).click()
    note(page, "1 message deleted.")
    assert [each["body"] for each in management.messages(name)] == ["one"]


def test_a_large_body_is_truncated_and_downloaded_whole(browse, tmp_path):
    body = "0123456789abcdef" * 72000  # 1.1 MiB
    page = browse(body)
    page.locator("button.link").click()
    expect(page.get_by_text("The first 64 KiB of 1.1 MiB.")).to_be_visible()
    page.get_by_role("button", name="Show up to 1 MiB").click()
    expect(page.get_by_text("Download it to see the rest.")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("dialog").get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "body")
    assert (tmp_path / "body").read_text() == body


# ---- some, all, or all that match


def test_move_some(browse, management, name):
    management.ask("POST", "/queues", {"name": f"{name}.there"})
    page = browse("one", "two", "three")
    choose(page, 0, 2)
    expect(page.get_by_text("2 of 3 messages selected")).to_be_visible()
    action(page, "Move")
    page.get_by_role("dialog").get_by_label("Queue *").fill(f"{name}.there")
    in_dialog(page, "Move")
    note(page, "2 messages moved.")
    expect(page.locator("table.messages tbody tr")).to_have_count(1)
    assert [each["body"] for each in management.messages(f"{name}.there")] == ["one", "three"]


def test_a_move_to_a_queue_that_does_not_exist_is_refused_in_the_dialog(console, browse, name):
    console.allow("404")
    page = browse("one")
    action(page, "Move")
    page.get_by_role("dialog").get_by_label("Queue *").fill(f"{name}.nowhere")
    in_dialog(page, "Move")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("does not exist")


def test_delete_all_asks_for_the_name(browse, management, name):
    page = browse("one", "two")
    action(page, "Delete")
    button = page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True)
    expect(button).to_be_disabled()
    page.keyboard.type(name)
    button.click()
    note(page, "2 messages deleted.")
    expect(page.get_by_text("The queue has no messages.")).to_be_visible()
    management.expect(name, messageCount=0)


@with_dead_letters
def test_expire_and_retry_come_back(browse, management, name, console):
    page = browse("one", "two", persistent="true")
    page.get_by_label("Select all messages of this page").check()
    action(page, "Expire")
    in_dialog(page, "Expire")
    note(page, "2 messages expired.")
    console.go("#/queues/EXP/messages?filter=" + f"_AMQ_ORIG_QUEUE%20%3D%20'{name}'")
    expect(page.locator("table.messages tbody tr")).to_have_count(2)
    expect(page.locator("td.origin").first).to_have_text(name)
    expect(page.locator("table.messages tbody tr").first).to_contain_text("expired")
    action(page, "Retry")
    in_dialog(page, "Retry")
    note(page, "2 messages sent back to where they came from.")
    management.expect(name, messageCount=2)


@pytest.mark.broker(settings={"full.#": {"max-size-messages": 5, "address-full-policy": "BLOCK"}})
def test_a_long_task_shows_its_progress_and_can_be_stopped(browse, management, name):
    management.ask("POST", "/queues", {"name": f"full.{name}"})  # after five messages the task waits
    page = browse(*("x" for _ in range(20)))
    expect(page.get_by_text("All 20 messages")).to_be_visible()
    action(page, "Move")
    page.get_by_role("dialog").get_by_label("Queue *").fill(f"full.{name}")
    in_dialog(page, "Move")
    expect(page.get_by_role("progressbar")).to_be_visible()
    management.expect(f"full.{name}", messageCount=5)
    in_dialog(page, "Stop")
    expect(page.get_by_role("dialog")).to_contain_text("Stopped.")
    page.get_by_role("dialog").get_by_text("Close", exact=True).click()
    management.expect(f"full.{name}", messageCount=5)
    assert management.queue(name)["messageCount"] == 15
    page.get_by_role("link", name="Tasks").click()
    expect(page.get_by_role("group", name="Tasks").locator("tbody tr").first).to_contain_text("cancelled")


# ---- files


def test_download_and_upload_again(browse, management, name, tmp_path, console):
    page = browse("one", "twö", colour="red")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download", exact=True).click()
    assert download.value.suggested_filename == f"{name}.ndjson"
    file = tmp_path / "messages.ndjson"
    download.value.save_as(file)
    assert len(file.read_text().splitlines()) == 2
    management.ask("POST", "/queues", {"name": f"{name}.again"})
    console.go(f"#/queues/{name}.again/messages")
    expect(page.get_by_text("The queue has no messages.")).to_be_visible()
    page.get_by_role("button", name="Upload").click()
    page.get_by_label("File of JSON lines").set_input_files(file)
    in_dialog(page, "Upload")
    note(page, "2 messages uploaded.")
    found = management.messages(f"{name}.again")
    assert [each["body"] for each in found] == ["one", "twö"]
    assert found[0]["headers"]["colour"] == "red"


def test_a_file_of_many_parts_is_uploaded_whole_and_a_bad_line_is_named(
    console, browse, management, name, tmp_path
):
    page = browse("x" * 100000)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download", exact=True).click()
    line = Path(download.value.path()).read_text().splitlines()[0]
    file = tmp_path / "many.ndjson"
    file.write_text(f"{line}\n" * 14)  # 1.4 MB: three requests
    page.get_by_role("button", name="Upload").click()
    page.get_by_label("File of JSON lines").set_input_files(file)
    in_dialog(page, "Upload")
    note(page, "14 messages uploaded.")
    management.expect(name, messageCount=15)
    console.allow("400")
    file.write_text(f"{line}\n" * 12 + "{broken\n")
    page.get_by_role("button", name="Upload").click()
    page.get_by_label("File of JSON lines").set_input_files(file)
    in_dialog(page, "Upload")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Line 13")


# ---- send


def test_send_with_headers_and_count(console, management, name):
    page = console.go("#/messages/send")
    page.get_by_label("Address *").fill(name)
    page.get_by_label("Routing type").select_option("ANYCAST")
    page.get_by_label("Body", exact=True).fill('{"a": 1}')
    page.get_by_label("Content type").fill("application/json")
    expect(page.get_by_text("Valid JSON.")).to_be_visible()
    page.get_by_label("Name of header 1").fill("colour")
    page.get_by_label("Value of header 1").fill("red: \u201cdark\u201d")
    page.get_by_label("Priority").fill("7")
    page.get_by_label("Count").fill("3")
    page.get_by_role("button", name="Send 3 messages").click()
    expect(page.get_by_text("3 messages sent.")).to_be_visible()
    found = management.messages(name)
    assert len(found) == 3
    assert found[0]["headers"]["colour"] == "red: “dark”"
    assert (found[0]["priority"], found[0]["durable"], json.loads(found[0]["body"])) == (7, True, {"a": 1})


def test_send_bytes(console, connect, name):
    client = connect()
    client.subscribe(f"/queue/{name}", ack="auto")
    page = console.go(f"#/messages/send?queue={name}")
    for encoding, body in (("base64", "AP/+\nAQ=="), ("hex", "00 ff FE\n01")):
        page.get_by_label("The body is").select_option(encoding)
        page.get_by_label("Body", exact=True).fill(body)
        page.get_by_role("button", name="Send", exact=True).click()
        client.message(b"\x00\xff\xfe\x01")


@pytest.mark.parametrize(
    ("choice", "label", "value"),
    [
        ("After", "Seconds from now", "3600"),
        ("At", "Time", "2090-01-01T00:00"),
        ("Cron", "Cron expression", "0 3 * * *"),
    ],
)
def test_send_with_a_schedule(console, management, name, choice, label, value):
    management.ask("POST", "/queues", {"name": name})
    page = console.go(f"#/messages/send?queue={name}")
    page.get_by_label("Body", exact=True).fill("later")
    page.get_by_role("button", name=choice, exact=True).click()
    page.get_by_label(label).last.fill(value)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("1 message sent.")).to_be_visible()
    [message] = management.messages(name)
    assert message["state"] == "scheduled"


def test_what_the_broker_refuses_is_shown_at_the_form(console, management, name):
    console.allow("400")
    management.ask("POST", "/queues", {"name": name})
    page = console.go(f"#/messages/send?queue={name}")
    page.get_by_role("button", name="Cron", exact=True).click()
    page.get_by_label("Cron expression").fill("at noon")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("AMQ_SCHEDULED_CRON")


# ---- schedules


def test_schedules_of_all_queues_are_listed_delivered_and_cancelled(console, connect, management, name):
    client = connect()
    client.put(f"/queue/{name}", "first", AMQ_SCHEDULED_DELAY="600000")
    client.put(f"/queue/{name}", "second", AMQ_SCHEDULED_DELAY="700000")
    page = console.go("#/schedules")
    page.get_by_role("button", name="1 h", exact=True).click()
    expect(page.get_by_role("img", name="Scheduled messages from now")).to_contain_text(name)
    table = page.get_by_role("group", name="Scheduled messages")
    row = table.locator("tr", has_text="first").filter(has_text=name)
    row.get_by_role("button", name="Deliver now").click()
    note(page, "The message is delivered now.")
    row = table.locator("tr", has_text="second").filter(has_text=name)
    row.get_by_role("button", name="Cancel").click()
    in_dialog(page, "Cancel the message")
    note(page, "The message is cancelled.")
    expect(table.locator("tr", has_text=name)).to_have_count(0)
    assert [each["body"] for each in management.messages(name)] == ["first"]


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
    row = page.get_by_role("group", name="Dead letters by origin and reason").locator("tr", has_text=name)
    expect(row).to_contain_text("max-delivery-attempts")
    expect(row).to_contain_text("DLQ")
    row.get_by_role("link", name="2", exact=True).click()
    expect(page.locator("table.messages tbody tr")).to_have_count(2)
    page.go_back()
    row.get_by_role("button", name="Retry the messages").click()
    note(page, "2 messages sent back to where they came from.")
    expect(row).to_have_count(0)
    found = management.messages(name)
    assert [each["body"] for each in found] == ["poison 1", "poison 2"]
    assert not [header for header in found[0]["headers"] if header.startswith("_AMQ_ORIG")]
