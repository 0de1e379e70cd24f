"""Administration in the console: users, permissions, plugins, reloads, drain, retention, log levels; who may what."""

import pytest
from playwright.sync_api import expect

from ..broker_document import PERMISSIONS as PERMISSION_TYPES
from ..broker_document import broker_xml, everything, permitted
from ..broker_process import BrokerProcess
from ..end_to_end.test_permissions import add
from ..management import Management
from ..stomp_client import StompClient

VIEWS = {"view": "admins, operators, viewers"}
PERMISSIONS = (
    everything("#", "admins")
    + permitted(
        "orders.#",
        dict.fromkeys(PERMISSION_TYPES, "admins")
        | VIEWS
        | {"browse": "admins, operators, viewers", "edit": "admins, operators"},
    )
    + permitted("activemq.management", {**VIEWS, "edit": "admins, operators", "manage": "admins"})
)
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with an administrator, an operator, a viewer and somebody without roles."""
    config = tmp_path_factory.mktemp("secured") / "broker.xml"
    config.write_text(broker_xml(secure=True, permissions=PERMISSIONS), encoding="utf-8")
    for user, role in (("anna", "admins"), ("otto", "operators"), ("vera", "viewers")):
        add(config, user, role)
    add(config, "nobody")
    with BrokerProcess(config) as broker:
        client = StompClient(broker.port)
        client.connect({"login": "anna", "passcode": "anna"})
        client.put("/queue/orders.new", "one", "two", persistent="true")
        client.close()
        yield broker


@pytest.fixture
def login(tabs, secured):
    """Opens a page as a user, whose password is the name."""

    def enter(user, route):
        console = tabs.get(secured.http_port, user)
        new = console.page.url == "about:blank"
        page = console.go(route)
        if new:
            console.allow("401")
            page.get_by_label("User").fill(user)
            page.get_by_label("Password").fill(user)
            page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        return console

    return enter


def in_dialog(page, label):
    """Press a button of the open dialog."""
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


# ---- users


def test_users_are_added_changed_and_deleted(login, axe, secured):
    console = login("anna", "#/admin/users")
    page = console.page
    expect(
        page.get_by_role("button", name="Change anna")
    ).to_be_visible()  # the dialog offers the roles read so far
    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("zoë")
    dialog.get_by_label("Password *").fill("a long password")
    dialog.get_by_label("Password again").fill("another")
    expect(dialog.get_by_text("The passwords differ.")).to_be_visible()
    expect(dialog.get_by_role("button", name="Add")).to_be_disabled()
    dialog.get_by_label("Password again").fill("a long password")
    dialog.get_by_role("checkbox", name="viewers").check()
    dialog.get_by_label("More roles").fill("night-shift, backup")
    in_dialog(page, "Add")
    row = page.get_by_role("group", name="Users", exact=True).locator("tbody tr", has_text="zoë")
    expect(row).to_contain_text("night-shift")
    page.get_by_role("button", name="Change zoë").click()
    page.get_by_role("dialog").get_by_role("checkbox", name="viewers").uncheck()
    in_dialog(page, "Save")
    expect(row).not_to_contain_text("viewers")
    client = StompClient(secured.port)
    client.connect({"login": "zoë", "passcode": "a long password"})
    client.close()
    page.get_by_role("button", name="Delete zoë").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    page.keyboard.type("zoë")
    in_dialog(page, "Delete")
    expect(row).to_have_count(0)
    assert axe(console) == []


def test_what_the_broker_refuses_of_a_user_is_shown(login):
    console = login("anna", "#/admin/users")
    console.allow("400|409")
    page = console.page
    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("anna")
    dialog.get_by_label("Password *").fill("x")
    dialog.get_by_label("Password again").fill("x")
    in_dialog(page, "Add")
    expect(dialog.get_by_role("alert")).to_contain_text("anna")


# ---- permissions


def test_may_x_do_y_on_z_and_by_which_rule(login, axe):
    console = login("anna", "#/admin/permissions")
    page = console.page
    page.get_by_label("User", exact=True).fill("vera")
    page.get_by_label("Address", exact=True).fill("orders.new")
    page.get_by_role("button", name="Show").click()
    answers = page.locator(".answers li")
    send = answers.filter(has_text="send messages")
    expect(send).to_contain_text("may not")
    expect(send).to_contain_text('match="orders.#"')
    expect(answers.filter(has_text="see messages")).not_to_contain_text("may not")
    expect(page.locator(".answer-head")).to_contain_text("viewers")
    matrix = page.get_by_role("group", name="Security-settings")
    expect(matrix.locator("tbody tr", has_text="orders.#")).to_contain_text("operators")
    assert axe(console) == []


def test_a_user_who_does_not_exist(login):
    console = login("anna", "#/admin/permissions?user=nobody-here")
    console.allow("404")
    expect(console.page.get_by_text("User nobody-here does not exist")).to_be_visible()


def test_everybody_may_ask_about_themselves(login):
    console = login("nobody", "#/admin/permissions?address=orders.new")
    page = console.page
    expect(page.get_by_label("User", exact=True)).to_be_disabled()
    expect(page.locator(".answers li").first).to_contain_text("may not")
    expect(page.get_by_text("Matrix")).to_have_count(0)


# ---- what a user may not do is not offered

OFFERS = {
    "vera": {"Copy"},  # may browse, not edit
    "otto": {"Move", "Copy", "Expire", "Delete"},
    "anna": {"Move", "Copy", "Expire", "Delete"},
}


@pytest.mark.parametrize("user", OFFERS)
def test_messages_offer_what_the_user_may_do(login, user):
    page = login(user, "#/queues/orders.new/messages").page
    expect(page.get_by_text("All 2 messages")).to_be_visible()
    group = page.get_by_role("group", name="Actions", exact=True)
    expect(group.get_by_role("button")).to_have_count(len(OFFERS[user]))
    assert set(group.get_by_role("button").all_inner_texts()) == OFFERS[user]
    expect(page.get_by_role("button", name="Upload")).to_have_count(int(user == "anna"))


#: Labels of the navigation that a user does not see, and buttons that a page does not have.
HIDDEN = {
    "vera": (
        ["Users"],
        {"#/admin/configuration": ["Show what would change", "Drain"], "#/connections": ["Close"]},
    ),
    "otto": (["Users"], {}),
    "nobody": (
        ["Users", "Queues", "Connections", "Events", "Plugins", "Configuration", "Dead letters", "Logging"],
        {},
    ),
}


@pytest.mark.parametrize("user", HIDDEN)
def test_pages_and_actions_without_permission_are_not_offered(login, user):
    console = login(user, "#/admin/permissions")
    page = console.page
    labels, pages = HIDDEN[user]
    shown = page.locator("nav a span").all_inner_texts()
    assert "Permissions" in shown and not set(labels) & set(shown)
    for route, buttons in pages.items():
        console.go(route)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_load_state("networkidle")
        for button in buttons:
            expect(page.get_by_role("button", name=button, exact=True)).to_have_count(0)


def test_a_live_subscription_uses_the_login_of_the_page(login, secured):
    page = login("anna", "#/live").page
    page.get_by_label("Destination").fill("/topic/orders.live")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    client = StompClient(secured.port)
    client.connect({"login": "anna", "passcode": "anna"})
    client.put("/topic/orders.live", "hello")
    expect(page.get_by_role("group", name="Received messages")).to_contain_text("hello")
    client.close()


def test_a_live_subscription_without_permission_is_refused(login):
    page = login("vera", "#/live").page
    page.get_by_label("Destination").fill("/queue/orders.new")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("CONSUME")


# ---- configuration


def test_a_reload_shows_what_it_would_change_before_it_is_applied(open_console, start_broker, axe):
    broker = start_broker()
    broker.config.write_text(
        broker.config.read_text().replace(
            "<address-settings>",
            '<address-settings><address-setting match="a.#"><default-ring-size>7</default-ring-size></address-setting>',
        )
    )
    console = open_console(broker.http_port)
    page = console.open("#/admin/configuration")
    page.get_by_role("button", name="Show what would change").click()
    table = page.get_by_role("group", name="Differences")
    expect(table).to_contain_text("default-ring-size")
    expect(table).to_contain_text("7")
    assert axe(console) == []
    assert Management(broker.http_port).ask("POST", "/reload", {"dryRun": True})["applied"], (
        "nothing is applied yet"
    )
    page.get_by_role("button", name="Reload now").click()
    expect(page.get_by_role("heading", name="Applied")).to_be_visible()
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_text("a reload changes nothing")).to_be_visible()
    console.allow("409")
    broker.config.write_text(
        broker.config.read_text().replace("<default-ring-size>7<", "<default-ring-size>many<")
    )
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("alert")).to_contain_text("default-ring-size")


def test_drain_and_undrain(open_console, start_broker):
    broker = start_broker()
    before = StompClient(broker.port)
    before.connect()
    console = open_console(broker.http_port)
    console.allow("503")  # /health/ready
    page = console.open("#/admin/configuration")
    page.get_by_role("button", name="Drain", exact=True).click()
    in_dialog(page, "Drain")
    expect(page.get_by_text("Draining since")).to_be_visible()
    expect(page.get_by_text("1 connection left.")).to_be_visible()
    expect(page.locator(".brand .health")).to_contain_text("draining")
    refused = StompClient(broker.port)
    refused.send("CONNECT", {"accept-version": "1.2", "host": "h"})
    refused.expect("ERROR")
    before.put("/queue/still", "works")
    before.close()
    expect(page.get_by_text("the broker can be stopped")).to_be_visible()
    page.get_by_role("button", name="Accept connections again").click()
    expect(page.get_by_text("The broker accepts connections.")).to_be_visible()
    after = StompClient(broker.port)
    after.connect()
    after.close()


# ---- plugins, retention, logging


def test_plugins_show_parameters_uses_and_faults(open_console, start_broker):
    broker = start_broker(
        core='<broker-plugins><broker-plugin name="stamp"/></broker-plugins>',
        settings={
            "orders.#": {
                "address-policy": '<address-policy name="stamp">'
                '<property key="user-header" value="sent-by"/></address-policy>'
            }
        },
    )
    console = open_console(broker.http_port)
    page = console.open("#/admin/plugins")
    expect(page.get_by_role("group", name="Uses of stamp")).to_contain_text("orders.#")
    expect(page.get_by_role("group", name="Uses of stamp")).to_contain_text("user-header=sent-by")
    expect(page.get_by_role("group", name="Parameters of stamp")).to_contain_text("peer-header")
    expect(page.get_by_role("group", name="Hooks of stamp")).to_contain_text("admit")


def test_retention_that_is_off_says_how_to_enable_it(console):
    expect(console.open("#/admin/retention").get_by_text("journal-retention-directory")).to_be_visible()


def test_without_a_replicated_log_the_page_says_what_it_is_for(console):
    expect(console.open("#/admin/ha").get_by_text("another broker takes over")).to_be_visible()


def test_retention_shows_its_files(open_console, start_broker):
    broker = start_broker(core="<journal-retention-directory>retention</journal-retention-directory>")
    page = open_console(broker.http_port).open("#/admin/retention")
    expect(page.locator(".values")).to_contain_text("retention")
    expect(page.get_by_text("Retained", exact=True)).to_be_visible()


def test_log_levels_change_at_once(open_console, start_broker):
    broker = start_broker()
    console = open_console(broker.http_port)
    page = console.open("#/admin/logging")
    page.get_by_label("Search loggers").fill("stompring")
    page.get_by_role("group", name="Level of stompring", exact=True).get_by_role(
        "button", name="debug"
    ).click()
    expect(page.locator(".notes")).to_contain_text("Logger stompring logs from debug on")
    row = page.get_by_role("group", name="Loggers").locator("tbody tr").first
    expect(row).to_contain_text("set at run time")
    found = Management(broker.http_port).ask("GET", "/loggers", search="stompring")["data"]
    assert next(each for each in found if each["name"] == "stompring")["level"] == "debug"
