"""Administration in the console: users, permissions, plugins, reloads, drain, retention, log levels; who may what."""

import pytest
from playwright.sync_api import expect

from ..broker_document import PERMISSIONS as PERMISSION_TYPES
from ..broker_document import broker_xml, everything, permitted
from ..broker_process import BrokerProcess
from ..end_to_end.test_permissions import add
from ..management import Management
from ..stomp_client import StompClient
from .steps import (
    alert,
    button,
    fill,
    gone,
    group,
    has,
    in_dialog,
    note,
    press,
    reads,
    select,
    shown,
    visible,
)

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
    config.write_text(broker_xml(secure=True, permissions=PERMISSIONS))
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
            fill(page, "User", user)
            fill(page, "Password", user)
            page.keyboard.press("Enter")
        visible(button(page, "Log out"))
        return console

    return enter


# ---- users


def test_users_are_added_changed_and_deleted(login, axe, secured):
    console = login("anna", "#/admin/users")
    page = console.page
    visible(button(page, "Change anna"))  # the dialog offers the roles read so far
    press(page, "Add a user")
    dialog = page.get_by_role("dialog")
    fill(dialog, "Name", "zoë")
    fill(dialog, "Password *", "a long password")
    fill(dialog, "Password again", "another")
    shown(dialog, "The passwords differ.")
    expect(button(dialog, "Add")).to_be_disabled()
    fill(dialog, "Password again", "a long password")
    dialog.get_by_role("checkbox", name="viewers").check()
    fill(dialog, "More roles", "night-shift, backup")
    in_dialog(page, "Add")
    row = group(page, "Users", exact=True).locator("tbody tr", has_text="zoë")
    has(row, "night-shift")
    press(page, "Change zoë")
    page.get_by_role("dialog").get_by_role("checkbox", name="viewers").uncheck()
    in_dialog(page, "Save")
    expect(row).not_to_contain_text("viewers")
    client = StompClient(secured.port)
    client.connect({"login": "zoë", "passcode": "a long password"})
    client.close()
    press(page, "Delete zoë")
    expect(button(page.get_by_role("dialog"), "Delete", exact=True)).to_be_disabled()
    page.keyboard.type("zoë")
    in_dialog(page, "Delete")
    gone(row)
    assert axe(console) == []


def test_what_the_broker_refuses_of_a_user_is_shown(login):
    console = login("anna", "#/admin/users")
    console.allow("400|409")
    page = console.page
    press(page, "Add a user")
    dialog = page.get_by_role("dialog")
    fill(dialog, "Name", "anna")
    fill(dialog, "Password *", "x")
    fill(dialog, "Password again", "x")
    in_dialog(page, "Add")
    alert(dialog, "anna")


# ---- permissions


def test_may_x_do_y_on_z_and_by_which_rule(login, axe):
    console = login("anna", "#/admin/permissions")
    page = console.page
    fill(page, "User", "vera", exact=True)
    fill(page, "Address", "orders.new", exact=True)
    press(page, "Show")
    answers = page.locator(".answers li")
    send = answers.filter(has_text="send messages")
    has(send, "may not")
    has(send, 'match="orders.#"')
    expect(answers.filter(has_text="see messages")).not_to_contain_text("may not")
    has(page.locator(".answer-head"), "viewers")
    matrix = group(page, "Security-settings")
    has(matrix.locator("tbody tr", has_text="orders.#"), "operators")
    assert axe(console) == []


def test_a_user_who_does_not_exist(login):
    console = login("anna", "#/admin/permissions?user=nobody-here")
    console.allow("404")
    shown(console.page, "User nobody-here does not exist")


def test_everybody_may_ask_about_themselves(login):
    console = login("nobody", "#/admin/permissions?address=orders.new")
    page = console.page
    expect(page.get_by_label("User", exact=True)).to_be_disabled()
    has(page.locator(".answers li").first, "may not")
    gone(page.get_by_text("Matrix"))


# ---- diverts and bridges


def test_a_divert_is_created_copies_and_is_deleted(login, axe, secured):
    console = login("anna", "#/routing")
    page = console.page
    press(page, "Create a divert")
    dialog = page.get_by_role("dialog")
    fill(dialog, "Name", "tap")
    fill(dialog, "From address", "orders.tapped")
    fill(dialog, "To addresses", "orders.copies")
    fill(dialog, "Selector", "a = ")
    console.allow("400")
    in_dialog(page, "Create")
    alert(dialog, "a = ")
    fill(dialog, "Selector", "colour = 'red'")
    in_dialog(page, "Create")
    row = group(page, "Diverts").locator("tbody tr", has_text="tap")
    has(row, "run time")
    client = StompClient(secured.port)
    client.connect({"login": "anna", "passcode": "anna"})
    client.put("/queue/orders.copies", "makes the queue")
    client.put("/queue/orders.tapped", "x", colour="red")
    client.put("/queue/orders.tapped", "x", colour="blue")
    client.close()
    reads(row.locator("td.number").first, "1")
    press(page, "Change tap")
    dialog.get_by_role("checkbox", name="Exclusive").check()
    in_dialog(page, "Apply")
    has(row, "exclusive")
    press(page, "Delete tap")
    page.keyboard.type("tap")
    in_dialog(page, "Delete")
    shown(page, "There is no divert.")
    assert axe(console) == []


def test_a_bridge_shows_its_last_error_and_no_password(login, axe):
    console = login("anna", "#/routing")
    page = console.page
    press(page, "Create a bridge")
    dialog = page.get_by_role("dialog")
    for label, value in {
        "Name": "far",
        "Queue": "orders.new",
        "To *": "tcp://127.0.0.1:1",
        "User there": "branch",
    }.items():
        fill(dialog, label, value)
    expect(dialog.get_by_label("Password")).to_have_attribute("type", "password")
    fill(dialog, "Password", "geheim")
    in_dialog(page, "Create")
    row = group(page, "Bridges").locator("tbody tr", has_text="far")
    has(row, "127.0.0.1:1: Connection refused")
    assert "geheim" not in page.content()
    press(page, "Pause far")
    has(row, "paused")
    press(page, "Resume far")
    visible(button(page, "Pause far"))
    assert axe(console) == []
    press(page, "Delete far")
    page.keyboard.type("far")
    in_dialog(page, "Delete")
    shown(page, "There is no bridge.")


# ---- settings and security


def test_a_value_is_set_for_a_wildcard_in_force_and_unset(login, axe):
    console = login("anna", "#/admin/settings?address=orders.new")
    page = console.page
    in_force = group(page, "Settings of the address")
    has(in_force, "auto-delete-queues")
    press(page, "Set a value")
    dialog = page.get_by_role("dialog")
    fill(dialog, "Match", "orders.#")
    fill(dialog, "Setting", "max-size-messages")
    shown(dialog, "In messages")
    console.allow("400")
    fill(dialog, "Value", "many")
    in_dialog(page, "Set")
    alert(dialog, "max-size-messages")
    fill(dialog, "Value", "1000")
    in_dialog(page, "Set")
    row = in_force.locator("tbody tr", has_text="max-size-messages")
    for text in ("1,000", "orders.#", "run time"):
        has(row, text)
    assert axe(console) == []
    press(page, "Unset max-size-messages")
    in_dialog(page, "Unset")
    gone(row)
    press(page, "Unset auto-delete-queues")
    shown(dialog, "broker.xml defines the address-setting.")


def test_a_role_is_forbidden_an_address(login, axe):
    console = login("anna", "#/admin/settings?address=orders.new")
    page = console.page
    row = group(page, "Permissions in force").locator("tbody tr", has_text="browse")
    for text in ("viewers", "orders.#", "broker.xml"):
        has(row, text)
    press(page, "Set permissions")
    dialog = page.get_by_role("dialog")
    shown(dialog, "The fields begin with the roles that are in force for this address.")
    expect(dialog.get_by_label("send")).to_have_value("admins")
    fill(dialog, "browse", "admins, operators")
    assert axe(console) == []
    in_dialog(page, "Set")
    has(row, "run time")
    expect(row).not_to_contain_text("viewers")
    press(page, "Delete the security-setting orders.new")
    page.keyboard.type("orders.new")
    in_dialog(page, "Delete")
    has(row, "viewers")
    console.allow("409")
    press(page, "Change the security-setting activemq.management")
    fill(dialog, "manage", "")
    in_dialog(page, "Set")
    alert(dialog, "anna")


# ---- what a user may not do is not offered

OFFERS = {
    "vera": {"Copy"},  # may browse, not edit
    "otto": {"Move", "Copy", "Expire", "Delete"},
    "anna": {"Move", "Copy", "Expire", "Delete"},
}


@pytest.mark.parametrize("user", OFFERS)
def test_messages_offer_what_the_user_may_do(login, user):
    page = login(user, "#/queues/orders.new/messages").page
    shown(page, "All 2 messages")
    offered = group(page, "Actions", exact=True).get_by_role("button")
    expect(offered).to_have_count(len(OFFERS[user]))
    assert set(offered.all_inner_texts()) == OFFERS[user]
    expect(button(page, "Upload")).to_have_count(int(user == "anna"))


#: Labels of the navigation that a user does not see, and buttons that a page does not have.
HIDDEN = {
    "vera": (
        ["Users"],
        {
            "#/admin/configuration": ["Show what would change", "Drain"],
            "#/connections": ["Close"],
            "#/routing": ["Create a divert", "Create a bridge"],
            "#/admin/settings": ["Set a value", "Set permissions"],
        },
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
    seen = page.locator("nav a span").all_inner_texts()
    assert "Permissions" in seen and not set(labels) & set(seen)
    for route, buttons in pages.items():
        console.go(route)
        visible(page.get_by_role("heading", level=1))
        page.wait_for_load_state("networkidle")
        for label in buttons:
            gone(button(page, label, exact=True))


def test_a_live_subscription_uses_the_login_of_the_page(login, secured):
    page = login("anna", "#/live").page
    fill(page, "Destination", "/topic/orders.live")
    press(page, "Subscribe", exact=True)
    shown(page, "live", exact=True)
    client = StompClient(secured.port)
    client.connect({"login": "anna", "passcode": "anna"})
    client.put("/topic/orders.live", "hello")
    has(group(page, "Received messages"), "hello")
    client.close()


def test_a_live_subscription_without_permission_is_refused(login):
    page = login("vera", "#/live").page
    fill(page, "Destination", "/queue/orders.new")
    select(page, "Messages are", "consume")
    press(page, "Subscribe", exact=True)
    alert(page, "CONSUME")


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
    press(page, "Show what would change")
    table = group(page, "Differences")
    has(table, "default-ring-size")
    has(table, "7")
    assert axe(console) == []
    assert Management(broker.http_port).ask("POST", "/reload", {"dryRun": True})["applied"], (
        "nothing is applied yet"
    )
    press(page, "Reload now")
    visible(page.get_by_role("heading", name="Applied"))
    press(page, "Show what would change")
    shown(page, "a reload changes nothing")
    console.allow("409")
    broker.config.write_text(
        broker.config.read_text().replace("<default-ring-size>7<", "<default-ring-size>many<")
    )
    press(page, "Show what would change")
    alert(page, "default-ring-size")


def test_drain_and_undrain(open_console, start_broker):
    broker = start_broker()
    before = StompClient(broker.port)
    before.connect()
    console = open_console(broker.http_port)
    console.allow("503")  # /health/ready
    page = console.open("#/admin/configuration")
    press(page, "Drain", exact=True)
    in_dialog(page, "Drain")
    shown(page, "Draining since")
    shown(page, "1 connection left.")
    has(page.locator(".brand .health"), "draining")
    refused = StompClient(broker.port)
    refused.send("CONNECT", {"accept-version": "1.2", "host": "h"})
    refused.expect("ERROR")
    before.put("/queue/still", "works")
    before.close()
    shown(page, "the broker can be stopped")
    press(page, "Accept connections again")
    shown(page, "The broker accepts connections.")
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
    has(group(page, "Uses of stamp"), "orders.#")
    has(group(page, "Uses of stamp"), "user-header=sent-by")
    has(group(page, "Parameters of stamp"), "peer-header")
    has(group(page, "Hooks of stamp"), "admit")


def test_retention_that_is_off_says_how_to_enable_it(console):
    shown(console.open("#/admin/retention"), "journal-retention-directory")


def test_without_a_replicated_log_the_page_says_what_it_is_for(console):
    shown(console.open("#/admin/ha"), "another broker takes over")


def test_retention_shows_its_files(open_console, start_broker):
    broker = start_broker(core="<journal-retention-directory>retention</journal-retention-directory>")
    page = open_console(broker.http_port).open("#/admin/retention")
    has(page.locator(".values"), "retention")
    shown(page, "Retained", exact=True)


def test_log_levels_change_at_once(open_console, start_broker):
    broker = start_broker()
    console = open_console(broker.http_port)
    page = console.open("#/admin/logging")
    fill(page, "Search loggers", "stompring")
    press(group(page, "Level of stompring", exact=True), "debug")
    note(page, "Logger stompring logs from debug on")
    has(group(page, "Loggers").locator("tbody tr").first, "set at run time")
    found = Management(broker.http_port).ask("GET", "/loggers", search="stompring")["data"]
    assert next(each for each in found if each["name"] == "stompring")["level"] == "debug"
