"""What a user does on a page or in a part of it, and sees there."""

from playwright.sync_api import Locator, Page, expect

Part = Page | Locator


def button(part, name, **more):
    """The buttons of that name, which may go on unless it is ``exact``."""
    return part.get_by_role("button", name=name, **more)


def link(part, name, **more):
    """The links of that name."""
    return part.get_by_role("link", name=name, **more)


def group(part, name, **more):
    """The group of that name: a table, or what belongs together."""
    return part.get_by_role("group", name=name, **more)


def region(part, name, **more):
    """The part of a page under that heading."""
    return part.get_by_role("region", name=name, **more)


def press(part, name, **more):
    """Press a button."""
    button(part, name, **more).click()


def in_dialog(page, name):
    """Press a button of the open dialog."""
    press(page.get_by_role("dialog"), name, exact=True)


def fill(part, label, value, **more):
    """Fill a field."""
    part.get_by_label(label, **more).fill(value)


def select(part, label, value, **more):
    """Select an option of a field."""
    part.get_by_label(label, **more).select_option(value)


def visible(part):
    """It is there to be seen."""
    expect(part).to_be_visible()


def has(part, text):
    """That text is in it, or these texts in all of them."""
    expect(part).to_contain_text(text)


def reads(part, text):
    """That text is all that is in it, or these texts in all of them."""
    expect(part).to_have_text(text)


def gone(part):
    """Nothing of it is there."""
    expect(part).to_have_count(0)


def shown(part, text, **more):
    """That text is shown."""
    visible(part.get_by_text(text, **more))


def heading(page, text):
    """The page has this heading."""
    reads(page.get_by_role("heading", level=1), text)


def alert(part, text):
    """An alert says so."""
    has(part.get_by_role("alert"), text)


def note(page, text):
    """A note says so, perhaps beside others."""
    has(page.locator(".notes"), text)


def make_queue(management, name, **attributes):
    """A queue, made by management."""
    management.ask("POST", "/queues", {"name": name, **attributes})


def stat(page, label):
    """The value of a tile."""
    return page.locator(".stat").filter(has=page.get_by_text(label, exact=True)).locator(".stat-value")
