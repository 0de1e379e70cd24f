"""A broker whose page files are damaged, missing, or cannot be made (the PD rows of paging)."""

import pytest

from .lasting import DURABLE, numbers, padded, take

pytestmark = pytest.mark.in_memory


#: Always paging, also when nothing is left in the pages.
SETTINGS = {"q": {"max-size-messages": 0, "page-size-bytes": "2K"}}


def filled(lasting, last=40):
    """A queue that is paged, and its files."""
    client = lasting.start(settings=SETTINGS).connect()
    client.put("q", *padded(1, last, 300), **DURABLE)
    # in the journal: so is by then what it keeps of complete pages
    client.put("elsewhere", "x", **DURABLE)
    pages = lasting.pages()
    assert len(pages) > 6
    return pages


def test_pd_1_it_goes_on_paging(lasting, how):
    filled(lasting)
    lasting.again(how)
    lasting.management.expect_address("q", paging=True)
    client = lasting.connect()
    client.put("q", *padded(41, 50, 300), **DURABLE)
    lasting.management.expect("q", messageCount=50)
    assert take(client, "q", 25) == numbers(1, 25)
    assert lasting.again(how).drain("q") == numbers(26, 50)
    lasting.management.expect_address("q", numberOfPages=0)


@pytest.mark.process
def test_pd_5_the_first_page_is_missing(lasting):
    pages = filled(lasting)
    lasting.kill()
    assert take(lasting.start().connect(), "q", 2) == numbers(1, 2)
    lasting.kill()
    first = next(page for page in pages[1:] if page.exists())  # the one before has been consumed
    first.unlink()
    got = lasting.start().drain("q")
    assert got == numbers(41 - len(got), 40) and len(got) >= 30
    lost = lasting.running.wait_for_log("the file is missing")
    assert first.name in lost and lost.endswith(f"messages lost: {38 - len(got)} of queue q")
    assert lasting.management.ask("GET", "/broker")["damagedPages"] == 1
    lasting.again()
    assert not [line for line in lasting.running.log if "missing" in line]


def test_a_page_of_another_address(lasting):
    lasting.start(settings={"#": SETTINGS["q"]})
    client = lasting.connect()
    for queue in ("a", "b"):
        client.put(queue, *padded(1, 20, 300), **DURABLE)
    lasting.kill()
    a, b = ([path for path in lasting.pages() if path.parent == folder] for folder in lasting.directories())
    a[1].rename(b[0].parent / a[1].name)
    lasting.start()
    lost = 20 - len(lasting.drain("a"))
    assert lost > 0 and lasting.drain("b") == numbers(1, 20)
    assert lasting.running.wait_for_log(f"{a[1].name} is not page .* it belongs to address")
    assert lasting.running.wait_for_log(f"the file is missing; messages lost: {lost} of queue a")


def journal(lasting):
    """Several segments with messages, one at a time in each record."""
    client = lasting.start(core="<journal-file-size>10K</journal-file-size>").connect()
    for body in padded(1, 60, 500):
        client.put("q", body, **DURABLE)
    lasting.kill()
    segments = sorted((lasting.data / "journal").glob("*.journal"))
    assert len(segments) > 3
    return segments


@pytest.mark.process
def test_the_journal_of_another_directory(lasting):
    journal(lasting)
    identity = lasting.data / "identity"
    was = identity.read_text()
    identity.write_text("0123456789abcdef" * 2)
    with pytest.raises(AssertionError, match="belongs to data directory"):
        lasting.start()
    identity.unlink()  # then the journal tells
    assert len(lasting.start().drain("q")) == 60
    assert identity.read_text() == was


def test_pd_7_messages_that_are_not_durable_page_and_do_not_survive(lasting, how):
    client = lasting.start(settings=SETTINGS).connect()
    client.put("q", *padded(1, 20, 300))
    client.put("q", *padded(21, 30, 300), **DURABLE)
    lasting.management.expect("q", messageCount=30)
    assert len(lasting.pages()) > 3
    lasting.again(how)
    lasting.management.expect("q", messageCount=10)
    assert lasting.drain("q") == numbers(21, 30)
    lasting.management.expect_address("q", numberOfPages=0)
