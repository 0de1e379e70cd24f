"""The overview: health with reasons, figures, plots, limits, top queues."""

import re

import pytest
from playwright.sync_api import expect

from ..waiting import Deadline
from .steps import button, has, heading, link, make_queue, press, reads, region, shown, stat, visible


def test_healthy_broker_and_its_figures(console, management, connect, name):
    connect().put(f"/queue/{name}", *["x"] * 300)
    page = console.go("#/")
    has(region(page, "Health"), "Healthy")
    reads(page.locator(".brand .health"), "healthy")
    known = management.ask("GET", "/broker")
    reads(stat(page, "Queues"), f"{known['queueCount']:,}")
    reads(stat(page, "Connections"), f"{known['connectionCount']:,}")
    memory = page.get_by_role("meter", name="Memory of messages")
    expect(memory).to_have_attribute("aria-valuetext", re.compile(r"[KM]iB of [\d.]+ [MG]iB"))
    visible(page.get_by_role("meter", name="Disk"))
    for listener in known["listeners"]:
        has(region(page, "Listeners"), f"{listener['host']}:{listener['port']}")
    row = region(page, "Top queues").get_by_role("row").filter(has_text=name)
    has(row, "300")
    link(row, name).click()
    heading(page, name)


def test_rates_and_depth_are_plotted_live(console, connect, name):
    client = connect()
    page = console.go("#/")
    rates = region(page, "Rates").get_by_role("img")
    expect(rates).to_have_attribute("aria-label", re.compile("Messages per second: in "))
    visible(rates.locator("canvas"))
    depth = region(page, "Messages", exact=True).get_by_role("img")
    expect(depth).to_have_attribute(
        "aria-label", re.compile(r"pending [\d.,]+K?, delivering [\d,]+, scheduled [\d,]+, paged 0")
    )
    before = stat(page, "Messages").inner_text()
    client.put(f"/queue/{name}", *["x"] * 200)
    expect(stat(page, "Messages")).not_to_have_text(before)
    for window, label in (("1 h", "1 h"), ("24 h", "24 h"), ("5 min", "5 min")):
        press(page, window, exact=True)
        expect(button(page, label, exact=True)).to_have_attribute("aria-pressed", "true")
        visible(rates.locator("canvas"))


def test_top_queues_by_another_figure(console, management, connect, name):
    producer, consumer = connect(), connect()
    producer.put(f"/queue/{name}", *["x"] * 50)
    consumer.subscribe(f"/queue/{name}")
    management.expect(name, deliveringCount=50)
    page = console.go("#/")
    top = region(page, "Top queues")
    press(top, "Delivering")
    has(top.get_by_role("row").nth(1), name)
    page = console.go("#/")
    expect(button(top, "Delivering")).to_have_attribute("aria-pressed", "true")


@pytest.mark.broker(
    settings={"full.#": {"max-size-bytes": 5000, "page-size-bytes": 2000, "address-full-policy": "PAGE"}}
)
def test_problem_is_shown_with_its_reason_and_the_way_to_it(console, management, connect, name):
    address = f"full.{name}"
    connect().put(f"/queue/{address}", *["x" * 1000] * 20, persistent="true")
    management.expect_address(address, paging=True)
    page = console.go("#/")
    problem = region(page, "Health").get_by_role("listitem").filter(has_text=address)
    has(problem, "warning")
    has(page.locator(".brand .health"), "warning")
    problem.get_by_role("link").click()
    heading(page, address)


def test_recent_events_are_shown(console, management, name):
    make_queue(management, name)
    page = console.go("#/")
    events = region(page, "Recent events").get_by_role("listitem")
    visible(events.filter(has_text="BINDING_ADDED").filter(has_text=name))


def test_page_polls_with_one_request_at_a_time(open_console, broker):
    console = open_console(broker.http_port)
    running = set()
    together = []
    finished = []

    def begin(request):
        if "/api/v1/" in request.url:
            running.add(request)
            together.append(len(running))

    def end(request):
        if request in running:
            running.discard(request)
            finished.append(request.url.rpartition("/api/v1/")[2].partition("?")[0])

    console.page.on("request", begin)
    console.page.on("requestfinished", end)
    console.page.on("requestfailed", end)
    console.page.clock.install()
    page = console.go("#/")

    def poll(times):
        deadline = Deadline()
        while running or any(
            finished.count(route) < times for route in ("broker", "broker/history", "queues", "events")
        ):
            assert not deadline.passed(), finished
            page.wait_for_timeout(50)

    poll(1)
    # On a busy machine the next poll may be a minute away: one that took long comes less often
    page.clock.fast_forward(60_000)
    poll(2)
    assert max(together) == 1


def test_empty_broker_says_what_comes_next(open_console, empty):
    page = open_console(empty.http_port).open()
    shown(page, "No queues yet")
    link(page, "Create a queue").click()
    visible(page.get_by_role("dialog", name="Create a queue"))
