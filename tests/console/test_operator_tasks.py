"""The ten tasks of the command line's test with the console alone: 44 clicks and fields in all."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from ..cli.test_operator_tasks import broker_with_work
from ..management import Management


class Operator:
    """Uses a page; each click, field and file is a step of the task at hand."""

    def __init__(self, page):
        self.page = page
        self.steps: dict[str, int] = {}

    def begin(self, task):
        """The next steps are those of this task."""
        self.task = task
        self.steps[task] = 0

    def click(self, target):
        target.click()
        self.steps[self.task] += 1

    def fill(self, label, value):
        self.page.get_by_label(label).last.fill(value)
        self.steps[self.task] += 1

    def menu(self, name):
        """A page of the navigation."""
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True).first)

    def queue(self, name):
        """The page of a queue, by the list of queues."""
        self.menu("Queues")
        self.click(self.page.get_by_role("link", name=name, exact=True))
        expect(self.page.get_by_role("heading", level=1)).to_contain_text(name)

    def button(self, name):
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def confirm(self, name):
        """The button of the open dialog."""
        self.click(self.page.get_by_role("dialog").get_by_role("button", name=name, exact=True))

    def action(self, name):
        """An entry of the menu of a queue."""
        self.button("More")
        self.click(self.page.get_by_role("menuitem").filter(has_text=re.compile(f"^{name}")))


@pytest.fixture
def worked(tmp_path):
    with broker_with_work(tmp_path / "broker.xml") as process:
        yield process


@pytest.mark.long
def test_ten_tasks_of_an_operator(open_console, worked, tmp_path):
    management = Management(worked.http_port)
    page = open_console(worked.http_port).open()
    operator = Operator(page)
    notes = page.locator(".notes")

    operator.begin("is the broker healthy")
    expect(page.get_by_role("main")).to_contain_text("Healthy")

    operator.begin("which queue is the fullest")
    top = page.get_by_role("region", name="Top queues").locator("tbody tr").first
    expect(top).to_contain_text("orders")

    operator.begin("who holds unacknowledged messages")
    operator.menu("Consumers")
    holder = page.get_by_role("group", name="Consumers").locator("tbody tr").first
    expect(holder).to_contain_text("held")

    operator.begin("retry the dead letters of a queue")
    operator.menu("Dead letters")
    groups = page.get_by_role("group", name="Dead letters by origin and reason")
    operator.click(groups.locator("tr", has_text="orders").get_by_role("button", name="Retry the messages"))
    management.expect("orders", messageCount=10)
    management.expect("DLQ", messageCount=0)

    operator.begin("move what matches to another queue")
    operator.queue("orders")
    operator.action("Move")
    # an address is created where it does not exist
    page.get_by_role("dialog").get_by_label("To", exact=True).select_option("address")
    operator.steps[operator.task] += 1
    operator.fill("Address", "parked")
    operator.fill("Only messages that match", "colour = 'red'")
    operator.confirm("Move")
    expect(page.get_by_text("8 messages moved")).to_be_visible()
    management.expect("parked", messageCount=8)

    operator.begin("save a queue, empty it, and load it again")
    operator.queue("parked")
    operator.click(page.get_by_role("link", name="Browse messages"))
    file = tmp_path / "saved.ndjson"
    with page.expect_download() as download:
        operator.button("Download")
    download.value.save_as(file)
    operator.button("Delete")
    operator.fill("to confirm", "parked")
    operator.confirm("Delete")
    management.expect("parked", messageCount=0)
    operator.click(page.get_by_role("button", name="Upload", exact=True))
    page.get_by_label("File of JSON lines").set_input_files(file)
    operator.steps[operator.task] += 1
    operator.confirm("Upload")
    expect(notes).to_contain_text("8 messages uploaded.")
    management.expect("parked", messageCount=8)

    operator.begin("make a queue a ring and evict what is too much")
    operator.queue("parked")
    operator.button("Change")
    operator.fill("Ring size", "5")
    operator.confirm("Apply")
    operator.action("Trim")
    operator.fill("to confirm", "parked")
    operator.confirm("Trim")
    management.expect("parked", messageCount=5)

    operator.begin("send a message for later and see it")
    operator.menu("Send")
    operator.fill("Address *", "orders")
    page.get_by_label("Body", exact=True).fill("reminder")
    operator.steps[operator.task] += 1
    operator.button("After")
    operator.fill("Seconds from now", "3600")
    operator.click(page.get_by_role("main").get_by_role("button", name="Send", exact=True))
    management.expect("orders", scheduledCount=1)
    operator.menu("Schedules")
    expect(page.get_by_role("group", name="Scheduled messages")).to_contain_text("reminder")

    operator.begin("pause a queue during a repair")
    operator.queue("orders")
    operator.button("Pause")
    management.expect("orders", paused=True)
    operator.button("Resume")
    management.expect("orders", paused=False)

    operator.begin("close the connection of a stuck client")
    operator.menu("Consumers")
    holder = page.get_by_role("group", name="Consumers").locator("tbody tr").first
    operator.click(holder.get_by_role("button", name="Close"))
    operator.confirm("Close the connection")
    management.expect("held", consumerCount=0, deliveringCount=0)

    assert len(operator.steps) == 10
    assert sum(operator.steps.values()) == 44, operator.steps
