"""Hostile names, headers and bodies are text on every page: no script runs, and nothing leaves its place."""

import json
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from ..broker_document import anycast, broker_xml
from ..broker_process import BrokerProcess
from ..stomp_client import StompClient
from .steps import gone, group, has, note, press, visible

#: Each is a body, a header's name and value, a client-id and a queue's name.
TEXTS = {
    "markup": "<img src=x onerror=window.ran=1><script>window.ran=1</script>",
    "link": "javascript:window.ran=1//",
    "quotes": "\"'`${window.ran=1}{{7*7}}</textarea></pre>",
    "path": "../../..//%2e%2e?#&=;\\",
    "rtl": "\u202egnp.exe\u2066\u200f\u0627\u0644\u0639",
    "emoji": "👩‍👩‍👧‍👦🏴\U000e0067\U000e007f",
    "control": "\x01\x02\x07\x08\x0b\x0c\x1b[31m\x7f\x85",
    "long": "m" * 3000,
}

PAGES = (
    "#/",
    "#/queues",
    "#/addresses",
    "#/dead-letters",
    "#/schedules",
    "#/connections",
    "#/consumers",
    "#/events",
    "#/tasks",
    "#/live",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A broker with these texts wherever a client can put them; and the names of the queues."""
    config = tmp_path_factory.mktemp("hostile") / "broker.xml"
    config.write_text(
        broker_xml(
            settings={"#": {"dead-letter-address": "DLQ", "max-delivery-attempts": "1"}},
            addresses=anycast("DLQ"),
        )
    )
    with BrokerProcess(config) as broker, ExitStack() as opened:
        names = {}
        for key, text in TEXTS.items():
            client = StompClient(broker.port)
            opened.callback(client.close)
            client.connect({"client-id": text[:200]})
            # Names of queues: what the protocol allows in them.
            name = names[key] = "q." + "".join(
                each for each in text[:120] if ord(each) >= 32 and each not in "\x7f\x85#*"
            ).replace("..", ".")
            for destination in (name, f"dead.{key}"):
                client.ask(
                    "SEND",
                    {
                        "destination": f"/queue/{destination}",
                        text[:200]: text[:200],
                        "content-type": text[:200],
                        "persistent": "true",
                    },
                    text.encode(),
                )
            client.ask(
                "SEND", {"destination": f"/queue/{name}", "AMQ_SCHEDULED_DELAY": "3600000"}, text.encode()
            )
            client.subscribe(
                f"/queue/dead.{key}",
                id=text[:100],
                selector=f"absent IS NULL OR absent = '{text[:50].replace(chr(39), '')}'",
            )
            client.answer("NACK", client.message())
        yield broker, names


def test_no_page_runs_what_clients_sent(open_console, hostile):
    broker, names = hostile
    console = open_console(broker.http_port)
    page = console.open("#/")
    for route in PAGES:
        console.go(route)
        visible(page.get_by_role("heading", level=1))
        page.wait_for_load_state("networkidle")
        assert console.overflow() == 0, route
    assert page.evaluate("() => window.ran") is None
    assert page.locator("img, script[src*='x'], iframe, a[href^='javascript']").count() == 0


def test_messages_are_shown_as_text(open_console, hostile):
    broker, names = hostile
    console = open_console(broker.http_port, viewport={"width": 360, "height": 740})
    for key in TEXTS:
        check_message(console, names, key)


def check_message(console, names, key):
    page = console.go(f"#/queues/{quote(names[key], safe='')}/messages")
    has(page.get_by_role("heading", level=1), names[key][:20])
    expect(page.locator("table.messages tbody tr")).to_have_count(2)
    page.locator("button.link").first.click()
    body = group(page, "Body", exact=True)
    visible(body)
    text = body.inner_text()
    if key in ("markup", "link", "quotes", "path", "long", "emoji"):
        assert text == TEXTS[key]
    elif key == "rtl":
        assert text.startswith("<U+202E>gnp.exe<U+2066><U+200F>")
    else:
        assert text == "␁␂␇␈␋␌␛[31m␡<U+0085>"
    has(page.locator(".headers"), "content-type")
    assert console.overflow() == 0
    assert page.evaluate("() => window.ran") is None
    page.keyboard.press("Escape")
    # A file's name has nothing of a path, of another direction or of a shell.
    with page.expect_download() as download:
        press(page, "Download", exact=True)
    name = download.value.suggested_filename
    assert not set(name) & set("/\\<>|\"'`$&;?*\u202e\u2066\u200f") and not name.startswith(".")
    lines = Path(download.value.path()).read_text().split("\n")
    assert len([json.loads(line) for line in lines if line]) == 2


def test_dead_letters_of_hostile_queues_are_retried(open_console, hostile):
    broker, _ = hostile
    console = open_console(broker.http_port)
    page = console.open("#/dead-letters")
    table = group(page, "Dead letters by origin and reason")
    expect(table.locator("tbody tr")).to_have_count(len(TEXTS))
    press(page, "Retry the messages from dead.markup")
    note(page, "1 message sent back")
    gone(table.locator("tbody tr", has_text="dead.markup"))
