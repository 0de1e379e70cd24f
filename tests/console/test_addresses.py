"""Addresses: the list, one address with its queues and limits, and every action on it."""

import re

import pytest
from playwright.sync_api import expect

from .test_queues import choose, names, stat


def test_list_searches_sorts_and_filters(console, management, connect, name):
    for address in ("b", "a"):
        management.ask("POST", "/addresses", {"name": f"{name}.{address}", "routingTypes": ["MULTICAST"]})
    management.ask("POST", "/queues", {"name": f"{name}.c", "routingType": "ANYCAST"})
    connect().put(f"/queue/{name}.c", "x")
    page = console.go(f"#/addresses?search={name}")
    expect(names(page)).to_have_text([f"{name}.{address}" for address in "abc"])
    page.get_by_role("button", name="Messages").click()
    expect(names(page).first).to_have_text(f"{name}.c")
    page.get_by_label("Routing type").select_option("ANYCAST")
    expect(names(page)).to_have_text([f"{name}.c"])
    page.get_by_label("Routing type").select_option("MULTICAST")
    page.get_by_label("State").select_option("Without queues")
    expect(names(page)).to_have_count(2)
    page.get_by_label("State").select_option("Paging")
    expect(page.get_by_text("No address matches")).to_be_visible()
    page.get_by_role("button", name="Clear filters").first.click()
    expect(page.get_by_label("Search addresses by name")).to_have_value("")


def test_address_page_shows_queues_counts_and_limits(console, management, connect, name):
    for queue in ("all", "red"):
        management.ask(
            "POST",
            "/queues",
            {
                "name": f"{name}.{queue}",
                "address": name,
                "routingType": "MULTICAST",
                "filter": "colour = 'red'" if queue == "red" else None,
            },
        )
    client = connect()
    client.put(f"/topic/{name}", "x", "x", colour="red")
    client.put(f"/topic/{name}", "x", colour="blue")
    page = console.go(f"#/addresses/{name}")
    expect(stat(page, "Messages")).to_have_text("5")
    expect(stat(page, "Queues")).to_have_text("2")
    expect(stat(page, "Routed")).to_have_text("3")
    queues = page.get_by_role("region", name="Queues", exact=True)
    expect(queues.get_by_role("row").nth(1)).to_contain_text(f"{name}.all")
    expect(queues.get_by_role("row").nth(2)).to_contain_text("colour = 'red'")
    expect(page.get_by_role("meter", name="Memory of messages")).to_be_visible()
    expect(page.get_by_role("region", name="Rates").get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("in ")
    )
    queues.get_by_role("link", name="In the list of queues").click()
    expect(names(page)).to_have_text([f"{name}.all", f"{name}.red"])


@pytest.mark.broker(
    settings={"full.#": {"max-size-bytes": 5000, "page-size-bytes": 2000, "address-full-policy": "PAGE"}}
)
def test_paging_address_says_so(console, management, connect, name):
    address = f"full.{name}"
    connect().put(f"/queue/{address}", *["x" * 1000] * 20, persistent="true")
    management.expect_address(address, paging=True)
    page = console.go(f"#/addresses/{address}")
    expect(page.locator(".page-head").get_by_text("paging", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Memory and pages")).to_contain_text("PAGE")
    console.go(f"#/queues/{address}")
    expect(stat(page, "Paged")).not_to_have_text("0")
    console.go("#/addresses?state=paging")
    expect(names(page).filter(has_text=address)).to_be_visible()


def test_create_change_pause_and_delete(console, management, name):
    page = console.go("#/addresses")
    page.get_by_role("button", name="Create an address").click()
    dialog = page.get_by_role("dialog", name="Create an address")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("ANYCAST").check()
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    assert management.address(name)["routingTypes"] == ["ANYCAST"]

    choose(page, "Change").get_by_label("MULTICAST").check()
    page.get_by_role("button", name="Apply").click()
    management.expect_address(name, routingTypes=["ANYCAST", "MULTICAST"])

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    management.expect_address(name, paused=True)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()

    dialog = choose(page, "Create a queue")
    expect(dialog.get_by_label("Address")).to_have_value(name)
    dialog.get_by_label("Name").fill(f"{name}.queue")
    dialog.get_by_label("Routing type").select_option("ANYCAST")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{name}.queue")

    console.go(f"#/addresses/{name}")
    expect(stat(page, "Queues")).to_have_text("1")
    dialog = choose(page, "Delete")
    expect(dialog).to_contain_text("with 1 queue")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    dialog.get_by_label("to confirm").fill(name)
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Addresses")
    management.gone(f"{name}.queue")


def test_forget_duplicates(console, management, connect, name):
    connect().put(f"/queue/{name}", "x", _AMQ_DUPL_ID="one")
    page = console.go(f"#/addresses/{name}")
    dialog = choose(page, "Forget")
    dialog.get_by_label("to confirm").fill(name)
    dialog.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("1 duplicate id forgotten")).to_be_visible()
