"""The shell of the console: navigation, keyboard, theme, search, login, a broker that goes away, hostile names."""

import json
import socket

import pytest
from joserfc.jwk import KeySet
from playwright.sync_api import expect

from ..broker_document import broker_xml, permitted
from ..broker_process import BrokerProcess
from ..end_to_end.test_logins import KEY, token
from ..end_to_end.test_permissions import add
from ..management import Management
from .steps import alert, button, fill, gone, has, heading, link, make_queue, press, reads, shown, visible

HOSTILE = "<img src=x onerror=alert(1)>\"'&/..%2f?#{{7*7}}"

PHONE = {"width": 360, "height": 740}


# ---- keyboard


@pytest.mark.parametrize(
    "key, title", [("q", "Queues"), ("a", "Addresses"), ("o", "Overview")], ids=lambda value: value
)
def test_g_and_a_letter_open_a_page(console, key, title):
    page = console.go("#/queues/none" if key == "o" else "#/addresses/none")
    console.allow("404")
    shown(page, "does not exist")
    page.keyboard.press("g")
    page.keyboard.press(key)
    heading(page, title)
    expect(page).to_have_title(f"{title} · stompring")
    reads(page.locator("nav [aria-current=page] span"), title)


def test_question_mark_lists_the_shortcuts_and_escape_closes_the_list(console):
    page = console.go("#/")
    heading(page, "Overview")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    has(dialog, "Queues")
    page.keyboard.press("Escape")
    gone(dialog)


def test_slash_focuses_the_search_of_the_page_and_typing_in_it_is_no_shortcut(console):
    page = console.go("#/queues")
    heading(page, "Queues")
    page.keyboard.press("/")
    field = page.get_by_label("Search queues by name")
    expect(field).to_be_focused()
    page.keyboard.type("ga?")
    expect(field).to_have_value("ga?")
    heading(page, "Queues")


def test_a_new_page_takes_the_focus_before_a_key_can_reach_it(console):
    page = console.go("#/queues/none")
    console.allow("404")
    shown(page, "does not exist")
    focused = page.evaluate(
        """() => new Promise(resolve => {
            new MutationObserver((changes, observer) => {  // called as soon as the page is in the document
                const field = document.querySelector("main [data-search]");
                if (!field) return;
                observer.disconnect();
                field.focus();
                setTimeout(() => resolve(document.activeElement === field), 500);
            }).observe(document.getElementById("content"), {childList: true, subtree: true});
            location.hash = "#/queues";
        })"""
    )
    assert focused


def test_slow_typing_loses_nothing_and_the_address_of_the_page_fills_the_field(console):
    page = console.go("#/queues?search=first")
    field = page.get_by_label("Search queues by name")
    expect(field).to_have_value("first")
    field.press("End")
    field.press_sequentially(" and more", delay=290)  # the list is searched meanwhile
    expect(field).to_have_value("first and more")
    console.go("#/queues?search=another")
    expect(field).to_have_value("another")
    console.go("#/queues")
    expect(field).to_have_value("")


def test_skip_link_is_first_and_leads_to_the_content(open_console, broker):
    page = open_console(broker.http_port).open("#/queues")
    heading(page, "Queues")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("Tab")
    expect(link(page, "Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_arrows_move_between_rows_and_enter_opens_one(console, management, name):
    for number in range(3):
        make_queue(management, f"{name}.{number}")
    page = console.go(f"#/queues?search={name}")
    rows = link(page, name)
    expect(rows).to_have_count(3)
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    heading(page, f"{name}.1")


# ---- theme and width


def test_theme_switch_changes_colours_and_is_remembered(open_console, broker):
    console = open_console(broker.http_port)
    page = console.open()
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    switch = button(page, "Theme:")
    for theme in ("light", "dark"):
        switch.click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
    dark = page.evaluate(background)
    assert dark != light
    page = console.open()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(background) == dark


def test_system_theme_applies_without_a_choice(open_console, broker):
    colours = set()
    for scheme in ("light", "dark"):
        page = open_console(broker.http_port, color_scheme=scheme).open()
        heading(page, "Overview")
        colours.add(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_navigation_of_a_phone_opens_and_closes(open_console, broker):
    page = open_console(broker.http_port, viewport=PHONE).open()
    queues = link(page.get_by_role("navigation"), "Queues")
    expect(queues).to_be_hidden()
    press(page, "Navigation")
    queues.click()
    heading(page, "Queues")
    expect(queues).to_be_hidden()


# ---- search


def test_header_finds_queues_and_addresses(console, management, name):
    make_queue(management, f"{name}.q", address=f"{name}.a")
    page = console.go("#/")
    field = page.get_by_role("combobox", name="Find a queue or an address")
    field.fill(name.upper())
    reads(page.get_by_role("option"), [f"{name}.qqueue · 0 messages", f"{name}.aaddress · 0 messages"])
    field.press("ArrowDown")
    field.press("ArrowDown")
    field.press("Enter")
    heading(page, f"{name}.a")
    field.fill(f"{name}.q")
    field.press("Enter")
    heading(page, "Queues")
    expect(page.get_by_label("Search queues by name")).to_have_value(f"{name}.q")


# ---- states


def test_pages_that_do_not_exist(console):
    page = console.go("#/no/such/page")
    heading(page, "Not found")
    for route, title in (("#/queues/no%2Fsuch", "no/such"), ("#/addresses/none", "none")):
        console.go(route)
        heading(page, title)
        shown(page, "does not exist")
    console.go("#/queues/..")
    alert(page, "cannot request the names")
    console.allow("status of 404")


def test_hidden_tab_does_not_poll(console, management, name):
    make_queue(management, name)
    page = console.go(f"#/queues?search={name}")
    row = page.get_by_role("row").filter(has_text=name)
    visible(row)
    page.evaluate(
        """() => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => window.isHidden});
        window.isHidden = true; document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    page.wait_for_load_state("networkidle")
    before = len(console.requests)
    page.wait_for_timeout(6000)  # in which a visible tab polls twice
    assert console.requests[before:] == []
    management.update(name, paused=True)
    page.evaluate("() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }")
    has(row, "paused")


def test_broker_that_restarts_beneath_the_page(open_console, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml().replace("http://127.0.0.1:0", f"http://127.0.0.1:{port}"))
    console = open_console(port)
    console.allow("ERR_CONNECTION|ERR_EMPTY_RESPONSE")
    with BrokerProcess(config):
        make_queue(Management(port), "before")
        page = console.go("#/queues")
        visible(link(page, "before"))
    banner = page.get_by_role("alert").filter(has_text="does not answer")
    visible(banner)
    press(banner, "Try now")
    has(banner, "Next attempt")
    visible(link(page, "before"))  # what was last seen stays
    with BrokerProcess(config):
        make_queue(Management(port), "since")
        visible(link(page, "since"))
        gone(banner)


def test_hostile_names_are_text(console, management, name):
    hostile = f"{name}{HOSTILE}"
    make_queue(management, hostile, filter="a = '<script>alert(2)</script>'")
    page = console.go("#/queues")
    fill(page, "Search queues by name", hostile)
    link(page, hostile).first.click()
    heading(page, hostile)
    visible(page.get_by_text("<script>alert(2)</script>").first)
    link(page, hostile).first.click()  # its address
    expect(page).to_have_title(f"{hostile} · Address · stompring")
    press(page, "Pause")
    has(page.get_by_role("status").filter(has_text="is paused"), hostile)
    assert page.locator("img, script:not([src])").count() == 0


# ---- login

PERMISSIONS = permitted(
    "#", {"view": "admin,viewer", "createDurableQueue": "admin", "createAddress": "admin"}
) + permitted("activemq.management", {"view": "admin,viewer", "edit": "admin", "manage": "admin"})


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with an administrator, a user who may only look, and one who may nothing."""
    config = tmp_path_factory.mktemp("secured") / "broker.xml"
    config.with_name("keys.json").write_text(json.dumps(KeySet([KEY]).as_dict()))
    tokens = '<token issuer="https://issuer" audience="b" keys="keys.json" roles-claim="groups"/>'
    core = f"<login-modules><properties/>{tokens}</login-modules>"
    config.write_text(broker_xml(secure=True, permissions=PERMISSIONS, core=core))
    for user, role in (("ada", "admin"), ("vic", "viewer"), ("nil", "nothing")):
        add(config, user, role, password=f"{user}:pässword")
    with BrokerProcess(config) as broker:
        yield broker


def log_in(console, user, password=None):
    """Fill the form of the page that is open."""
    page = console.page
    console.allow("status of 401")  # the browser reports that the first request needs a login
    fill(page, "User", user)
    fill(page, "Password", password or f"{user}:pässword")
    press(page, "Log in", exact=True)
    return page


def test_login_leads_to_the_page_of_the_address_and_stays_in_memory(open_console, secured):
    console = open_console(secured.http_port)
    console.go("#/queues")
    page = log_in(console, "ada", "wrong")
    reads(page.get_by_role("alert"), "User or password is wrong.")
    log_in(console, "ada")
    heading(page, "Queues")
    shown(page, "ada", exact=True)
    stored = "() => JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])"
    assert "ssword" not in page.evaluate(stored) and page.evaluate("() => document.cookie") == ""
    console.open("#/queues")  # nothing remembers the login
    heading(page, "Log in to the broker")


def test_login_by_token(open_console, secured, axe):
    console = open_console(secured.http_port)
    console.allow("status of 401")
    page = console.go("#/queues")
    press(page, "Log in with a token")
    fill(page, "Token", token(60, sub="tara", groups=["viewer"], aud="c"))
    press(page, "Log in", exact=True)
    has(page.get_by_role("alert"), "the token is not accepted")
    assert axe(console) == []
    fill(page, "Token", token(60, sub="tara", groups=["viewer"]))
    press(page, "Log in", exact=True)
    heading(page, "Queues")
    shown(page, "tara", exact=True)
    gone(button(page, "Create a queue"))


def test_logging_out(open_console, secured):
    console = open_console(secured.http_port)
    console.go("#/addresses")
    page = log_in(console, "ada")
    press(page, "Log out")
    heading(page, "Log in to the broker")
    expect(page.get_by_label("Password")).to_have_value("")


def test_login_form_has_no_violations(open_console, secured, axe):
    console = open_console(secured.http_port, viewport=PHONE)
    console.allow("status of 401")
    heading(console.go("#/"), "Log in to the broker")
    assert axe(console) == [] and console.overflow() == 0


def test_what_a_user_may_not_do_is_not_offered(open_console, secured):
    admin = open_console(secured.http_port)
    admin.open("#/queues")
    page = log_in(admin, "ada")
    button(page, "Create a queue").first.click()
    page.get_by_role("textbox", name="Name").fill("guarded")
    press(page, "Create", exact=True)
    heading(page, "guarded")
    visible(button(page, "Pause"))

    viewer = open_console(secured.http_port)
    viewer.open("#/queues/guarded")
    page = log_in(viewer, "vic")
    heading(page, "guarded")
    shown(page, "Depth")
    for action in ("Pause", "Resume", "More"):
        gone(button(page, action))
    for action in ("Browse messages", "Send"):
        gone(link(page.get_by_role("main"), action))
    viewer.go("#/queues")
    visible(link(page, "guarded"))
    gone(button(page, "Create a queue"))


def test_no_permission_at_all_is_said(open_console, secured):
    console = open_console(secured.http_port)
    console.go("#/")
    console.allow("status of 403")
    page = log_in(console, "nil")
    shown(page, "No permission to see the broker")
    console.go("#/queues/guarded")
    alert(page, "No permission")


def test_login_that_ends_meanwhile_is_asked_for_again(open_console, secured):
    admin = secured.management(("ada", "ada:pässword"))
    admin.ask("POST", "/users", {"name": "eve", "password": "eve:pässword", "roles": ["viewer"]})
    console = open_console(secured.http_port)
    console.go("#/queues")
    page = log_in(console, "eve")
    heading(page, "Queues")
    console.allow("status of 403")  # the roles of a deleted user may go first
    admin.ask("DELETE", "/users/eve")
    heading(page, "Log in to the broker")
    shown(page, "no longer accepts this login")
