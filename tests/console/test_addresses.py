"""Addresses: the list, one address with its queues and limits, and every action on it."""

import re

import pytest
from playwright.sync_api import expect

from .steps import button, fill, has, heading, link, make_queue, press, reads, region, select, shown, visible
from .test_queues import choose, names, stat


def test_list_searches_sorts_and_filters(console, management, connect, name):
    for address in ("b", "a"):
        management.ask("POST", "/addresses", {"name": f"{name}.{address}", "routingTypes": ["MULTICAST"]})
    make_queue(management, f"{name}.c", routingType="ANYCAST")
    connect().put(f"/queue/{name}.c", "x")
    page = console.go(f"#/addresses?search={name}")
    reads(names(page), [f"{name}.{address}" for address in "abc"])
    press(page, "Messages")
    reads(names(page).first, f"{name}.c")
    select(page, "Routing type", "ANYCAST")
    reads(names(page), [f"{name}.c"])
    select(page, "Routing type", "MULTICAST")
    select(page, "State", "Without queues")
    expect(names(page)).to_have_count(2)
    select(page, "State", "Paging")
    shown(page, "No address matches")
    button(page, "Clear filters").first.click()
    expect(page.get_by_label("Search addresses by name")).to_have_value("")


def test_address_page_shows_queues_counts_and_limits(console, management, connect, name):
    multicast = {"address": name, "routingType": "MULTICAST"}
    make_queue(management, f"{name}.all", **multicast)
    make_queue(management, f"{name}.red", **multicast, filter="colour = 'red'")
    client = connect()
    client.put(f"/topic/{name}", "x", "x", colour="red")
    client.put(f"/topic/{name}", "x", colour="blue")
    page = console.go(f"#/addresses/{name}")
    reads(stat(page, "Messages"), "5")
    reads(stat(page, "Queues"), "2")
    reads(stat(page, "Routed"), "3")
    queues = region(page, "Queues", exact=True)
    has(queues.get_by_role("row").nth(1), f"{name}.all")
    has(queues.get_by_role("row").nth(2), "colour = 'red'")
    visible(page.get_by_role("meter", name="Memory of messages"))
    expect(region(page, "Rates").get_by_role("img")).to_have_attribute("aria-label", re.compile("in "))
    link(queues, "In the list of queues").click()
    reads(names(page), [f"{name}.all", f"{name}.red"])


@pytest.mark.broker(
    settings={"full.#": {"max-size-bytes": 5000, "page-size-bytes": 2000, "address-full-policy": "PAGE"}}
)
def test_paging_address_says_so(console, management, connect, name):
    address = f"full.{name}"
    connect().put(f"/queue/{address}", *["x" * 1000] * 20, persistent="true")
    management.expect_address(address, paging=True)
    page = console.go(f"#/addresses/{address}")
    shown(page.locator(".page-head"), "paging", exact=True)
    has(region(page, "Memory and pages"), "PAGE")
    console.go(f"#/queues/{address}")
    expect(stat(page, "Paged")).not_to_have_text("0")
    console.go("#/addresses?state=paging")
    visible(names(page).filter(has_text=address))


def test_create_change_pause_and_delete(console, management, name):
    page = console.go("#/addresses")
    press(page, "Create an address")
    dialog = page.get_by_role("dialog", name="Create an address")
    fill(dialog, "Name", name)
    dialog.get_by_label("ANYCAST").check()
    press(dialog, "Create")
    heading(page, name)
    assert management.address(name)["routingTypes"] == ["ANYCAST"]

    choose(page, "Change").get_by_label("MULTICAST").check()
    press(page, "Apply")
    management.expect_address(name, routingTypes=["ANYCAST", "MULTICAST"])

    press(page, "Pause")
    visible(button(page, "Resume"))
    management.expect_address(name, paused=True)
    press(page, "Resume")
    visible(button(page, "Pause"))

    dialog = choose(page, "Create a queue")
    expect(dialog.get_by_label("Address")).to_have_value(name)
    fill(dialog, "Name", f"{name}.queue")
    select(dialog, "Routing type", "ANYCAST")
    press(dialog, "Create")
    heading(page, f"{name}.queue")

    console.go(f"#/addresses/{name}")
    reads(stat(page, "Queues"), "1")
    dialog = choose(page, "Delete")
    has(dialog, "with 1 queue")
    expect(button(dialog, "Delete")).to_be_disabled()
    fill(dialog, "to confirm", name)
    console.allow("status of 404")  # a poll may follow the deletion
    press(dialog, "Delete")
    heading(page, "Addresses")
    management.gone(f"{name}.queue")


def test_forget_duplicates(console, management, connect, name):
    connect().put(f"/queue/{name}", "x", _AMQ_DUPL_ID="one")
    page = console.go(f"#/addresses/{name}")
    dialog = choose(page, "Forget")
    fill(dialog, "to confirm", name)
    press(dialog, "Forget")
    shown(page, "1 duplicate id forgotten")
