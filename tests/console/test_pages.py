"""Every page with data of every kind: accessible, in light and dark, on a phone, and without faults."""

import pytest
from playwright.sync_api import expect

from .demo import demo
from .steps import gone, group, heading, note, press, reads, shown, visible

#: Route, heading, and a text that is there once the data are.
PAGES = [
    ("#/", "Overview", "demo"),
    ("#/queues", "Queues", "reminders"),
    ("#/queues/prices.ring", "prices.ring", "50"),
    ("#/queues/orders/messages", "Messages of orders", "All 60 messages"),
    ("#/queues/DLQ/messages", "Messages of DLQ", "max-delivery-attempts"),
    ("#/queues/payments", "payments", "ledger"),
    ("#/addresses", "Addresses", "invoices"),
    ("#/addresses/orders", "orders", "ANYCAST"),
    ("#/dead-letters", "Dead letters", "max-delivery-attempts"),
    ("#/schedules", "Schedules", "nightly report"),
    ("#/messages/send?queue=orders", "Send messages", "A queue that exists."),
    ("#/live", "Live", "Subscription"),
    ("#/tasks", "Tasks", "No task has run since the broker started."),
    ("#/routing", "Diverts and bridges", "orders.audit"),
    ("#/connections", "Connections", "warehouse"),
    ("#/consumers", "Consumers", "orders"),
    ("#/events", "Events", "BINDING_ADDED"),
    ("#/admin/users", "Users and roles", "Security is disabled."),
    ("#/admin/permissions?address=orders", "Permissions", "every operation is allowed"),
    ("#/admin/settings?address=orders", "Settings and security", "max-delivery-attempts"),
    ("#/admin/plugins", "Plugins", "stamp"),
    ("#/admin/configuration", "Configuration", "The broker accepts connections."),
    ("#/admin/ha", "High availability", "There is no replicated log."),
    ("#/admin/retention", "Retention", "No lake has ingested the files yet."),
    ("#/admin/logging", "Logging", "stompring"),
    ("#/nowhere", "Not found", "This page does not exist."),
]
MODES = {
    "light": {"color_scheme": "light"},
    "dark phone": {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}},
}
HIDDEN_ACTIONS = """() => [...document.querySelectorAll('.row-actions button')]
    .some((button) => button.getBoundingClientRect().right > innerWidth)"""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The broker of `demo`."""
    with demo(tmp_path_factory.mktemp("demo")) as broker:
        yield broker


@pytest.mark.parametrize("mode", MODES)
def test_pages_are_accessible_and_fit(open_console, full, axe, mode):
    console = open_console(full.http_port, **MODES[mode])
    page = console.open("#/")
    found = []
    for route, title, text in PAGES:
        console.go(route)
        heading(page, title)
        expect(page.locator("main").get_by_text(text).first).to_be_attached()
        found += [f"{route}: {violation}" for violation in axe(console)]
        if console.overflow():
            found.append(f"{route}: {console.overflow()} pixels wider than the window")
        if page.evaluate(HIDDEN_ACTIONS):
            found.append(f"{route}: actions of a row are outside of the window")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("mode", MODES)
def test_dialogs_are_accessible_and_fit(open_console, full, axe, mode):
    console = open_console(full.http_port, **MODES[mode])
    page = console.open("#/queues/orders/messages")
    found = []
    for role, name, title in [
        ("button", "1-", "Message"),
        ("button", "Move", "Move all messages"),
        ("button", "Delete", "Delete all messages"),
        ("button", "Upload", "Upload messages to"),
    ]:
        page.get_by_role(role, name=name).first.click()
        dialog = page.get_by_role("dialog", name=title)
        visible(dialog)
        if title == "Message":
            visible(group(dialog, "Body", exact=True))
        found += [f"{title}: {violation}" for violation in axe(console)]
        page.keyboard.press("Escape")
        gone(dialog)
    console.go("#/queues/prices.ring")
    press(page, "More")
    page.get_by_role("menuitem").filter(has_text="Move messages").click()
    visible(page.get_by_role("dialog", name="Move"))
    found += [f"Move: {violation}" for violation in axe(console)]
    if console.overflow():
        found.append("Move: wider than the window")
    page.keyboard.press("Escape")
    for route, name, title in [
        ("#/routing", "Create a divert", "Create a divert"),
        ("#/routing", "Change audit", "Change the divert"),
        ("#/routing", "Create a bridge", "Create a bridge"),
        ("#/admin/settings?address=orders", "Set a value", "Set a value"),
        ("#/admin/settings?address=orders", "Set permissions", "Set permissions"),
    ]:
        console.go(route)
        press(page, name)
        visible(page.get_by_role("dialog", name=title))
        found += [f"{title}: {violation}" for violation in axe(console)]
        if console.overflow():
            found.append(f"{title}: wider than the window")
        page.keyboard.press("Escape")
    assert not found, "\n".join(found)


def test_messages_are_opened_selected_and_moved_by_keyboard_alone(open_console, full):
    page = open_console(full.http_port).open("#/queues/orders/messages")
    reads(page.locator("h1"), "Messages of orders")
    visible(page.locator("table.messages"))

    def tab_to(name):
        """Press Tab until the control with this label has the focus."""
        for _ in range(40):
            page.keyboard.press("Tab")
            label = page.evaluate(
                "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
            )
            if label.startswith(name):
                return
        raise AssertionError(f"Tab does not reach {name}")

    page.keyboard.press("/")
    expect(page.get_by_label("Selector")).to_be_focused()
    tab_to("Select 1-")
    page.keyboard.press("Space")
    shown(page, "1 of 60 messages selected")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    visible(page.get_by_role("dialog", name="Message"))
    page.keyboard.press("Escape")
    expect(page.locator("button.link").first).to_be_focused()
    page.keyboard.press("/")
    tab_to("Copy")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Queue *")).to_be_focused()
    page.keyboard.type("prices.ring")
    page.keyboard.press("Enter")
    note(page, "1 message copied.")


def test_every_page_can_be_reached_by_its_shortcut(open_console, full):
    page = open_console(full.http_port).open("#/")
    heading(page, "Overview")
    for key, title in {
        "d": "Dead letters", "s": "Schedules", "m": "Send messages", "l": "Live", "t": "Tasks",
        "b": "Diverts and bridges", "r": "Settings and security",
        "c": "Connections", "u": "Consumers", "e": "Events", "p": "Permissions",
    }.items():  # fmt: skip
        page.keyboard.press("g")
        page.keyboard.press(key)
        heading(page, title)


def test_pages_ask_no_other_host_and_poll_modestly(open_console, full):
    console = open_console(full.http_port)
    page = console.open("#/queues/orders/messages")
    shown(page, "All 60 messages")
    console.requests.clear()
    page.wait_for_timeout(4000)
    polls = [request for request in console.requests if "/messages" in request]
    assert polls == [], "an open list of messages is not fetched again and again"
