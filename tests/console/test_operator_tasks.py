"""The ten tasks of the command line's test with the console alone: 44 clicks and fields in all."""

import re

import pytest

from ..cli.test_operator_tasks import broker_with_work
from ..management import Management
from .steps import button, fill, group, has, link, region, select, shown


class Operator:
    """Uses a page; each click, field and file is a step of the task at hand."""

    def __init__(self, page):
        self.page = page
        self.steps = {}

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
        self.click(link(self.page.get_by_role("navigation"), name, exact=True).first)

    def queue(self, name):
        """The page of a queue, by the list of queues."""
        self.menu("Queues")
        self.click(link(self.page, name, exact=True))
        has(self.page.get_by_role("heading", level=1), name)

    def button(self, name):
        self.click(button(self.page, name, exact=True))

    def confirm(self, name):
        """The button of the open dialog."""
        self.click(button(self.page.get_by_role("dialog"), name, exact=True))

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
    has(page.get_by_role("main"), "Healthy")

    operator.begin("which queue is the fullest")
    top = region(page, "Top queues").locator("tbody tr").first
    has(top, "orders")

    operator.begin("who holds unacknowledged messages")
    operator.menu("Consumers")
    holder = group(page, "Consumers").locator("tbody tr").first
    has(holder, "held")

    operator.begin("retry the dead letters of a queue")
    operator.menu("Dead letters")
    groups = group(page, "Dead letters by origin and reason")
    operator.click(button(groups.locator("tr", has_text="orders"), "Retry the messages"))
    management.expect("orders", messageCount=10)
    management.expect("DLQ", messageCount=0)

    operator.begin("move what matches to another queue")
    operator.queue("orders")
    operator.action("Move")
    # an address is created where it does not exist
    select(page.get_by_role("dialog"), "To", "address", exact=True)
    operator.steps[operator.task] += 1
    operator.fill("Address", "parked")
    operator.fill("Only messages that match", "colour = 'red'")
    operator.confirm("Move")
    shown(page, "8 messages moved")
    management.expect("parked", messageCount=8)

    operator.begin("save a queue, empty it, and load it again")
    operator.queue("parked")
    operator.click(link(page, "Browse messages"))
    file = tmp_path / "saved.ndjson"
    with page.expect_download() as download:
        operator.button("Download")
    download.value.save_as(file)
    operator.button("Delete")
    operator.fill("to confirm", "parked")
    operator.confirm("Delete")
    management.expect("parked", messageCount=0)
    operator.click(button(page, "Upload", exact=True))
    page.get_by_label("File of JSON lines").set_input_files(file)
    operator.steps[operator.task] += 1
    operator.confirm("Upload")
    has(notes, "8 messages uploaded.")
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
    fill(page, "Body", "reminder", exact=True)
    operator.steps[operator.task] += 1
    operator.button("After")
    operator.fill("Seconds from now", "3600")
    operator.click(button(page.get_by_role("main"), "Send", exact=True))
    management.expect("orders", scheduledCount=1)
    operator.menu("Schedules")
    has(group(page, "Scheduled messages"), "reminder")

    operator.begin("pause a queue during a repair")
    operator.queue("orders")
    operator.button("Pause")
    management.expect("orders", paused=True)
    operator.button("Resume")
    management.expect("orders", paused=False)

    operator.begin("close the connection of a stuck client")
    operator.menu("Consumers")
    holder = group(page, "Consumers").locator("tbody tr").first
    operator.click(button(holder, "Close"))
    operator.confirm("Close the connection")
    management.expect("held", consumerCount=0, deliveringCount=0)

    assert len(operator.steps) == 10
    assert sum(operator.steps.values()) == 44, operator.steps
