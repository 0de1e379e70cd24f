"""A broker whose page files are damaged, missing, or cannot be made (the PD rows of paging)."""

import shutil

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


@pytest.mark.parametrize("damage", [b"", b"ten bytes!"], ids=["empty", "garbage"])
def test_pd_2_a_file_is_no_page_any_more(lasting, damage):
    pages = filled(lasting)
    assert take(lasting.connect(), "q", 2) == numbers(1, 2)  # facts that refer to the first file
    lasting.kill()
    (pages[0] if pages[0].exists() else pages[1]).write_bytes(damage)
    pages[4].write_bytes(damage)
    got = lasting.start().drain("q")
    assert got == sorted(got, key=int) and set(got) < set(numbers(3, 40)) and len(got) > 20
    assert "40" in got
    lasting.management.expect("q", messageCount=0)
    lasting.management.expect_address("q", numberOfPages=0)
    assert any(pages[4].name in line for line in lasting.running.log)
    assert lasting.management.ask("GET", "/broker")["damagedPages"] >= 1


def test_pd_3_a_damaged_record_in_the_middle(lasting):
    pages = filled(lasting)
    lasting.kill()
    data = bytearray(pages[2].read_bytes())
    at = data.index(b"\n", len(data) // 2)
    data[at : at + 20] = bytes(20)
    pages[2].write_bytes(bytes(data))
    got = lasting.start().drain("q")
    lost = set(numbers(1, 40)) - set(got)
    assert 1 <= len(lost) <= 5 and got == sorted(got, key=int)
    assert any(pages[2].name in line for line in lasting.running.log)
    lasting.management.expect_address("q", numberOfPages=0)
    aside = [path for path in lasting.data.rglob("*.invalidPage*")]
    assert len(aside) == 1 and aside[0].read_bytes() == bytes(data)
    assert lasting.again().management.queue("q")["messageCount"] == 0


def test_pd_4_an_unfinished_last_page(lasting):
    pages = filled(lasting)
    lasting.kill()
    pages[-1].write_bytes(pages[-1].read_bytes()[:-7])
    lasting.start().connect().put("q", "new", **DURABLE)
    assert lasting.drain("q") == [*numbers(1, 39), "new"]


def test_pd_5_all_pages_are_deleted(lasting):
    filled(lasting)
    lasting.stop()
    shutil.rmtree(lasting.data / "paging")
    lasting.start()
    reports = [line for line in lasting.running.log if "the file is missing" in line]
    assert sum(int(line.split("messages lost: ")[1].split()[0]) for line in reports) == 40
    lasting.management.expect("q", messageCount=0)
    lasting.connect().put("q", *padded(1, 30, 300), **DURABLE)
    assert lasting.again().drain("q") == numbers(1, 30)


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


def test_a_page_over_another(lasting):
    pages = filled(lasting)
    lasting.kill()
    pages[3].write_bytes(pages[1].read_bytes())
    got = lasting.start().drain("q")
    assert len(set(got)) == len(got) and got == sorted(got, key=int)
    assert lasting.running.wait_for_log(
        rf"{pages[3].name} is not page .* copy of file number {int(pages[1].stem)}"
    )
    lost = lasting.running.wait_for_log("the file is missing")
    assert pages[3].name in lost and lost.endswith(f"messages lost: {40 - len(got)} of queue q")
    assert lasting.again().drain("q") == []


def test_a_page_copied_to_a_new_number(lasting, how):
    pages = filled(lasting)
    (lasting.kill if how == "kill" else lasting.stop)()
    copy = pages[-1].with_name(f"{int(pages[-1].stem) + 1:09d}.page")
    copy.write_bytes(pages[1].read_bytes())
    assert lasting.start().drain("q") == numbers(1, 40)
    assert lasting.running.wait_for_log(f"{copy.name} is not page .* set aside")
    assert not [line for line in lasting.running.log if "messages lost" in line]


def test_a_page_that_was_removed_long_ago_comes_back(lasting):
    pages = filled(lasting)
    old = pages[0].read_bytes()
    assert take(lasting.connect(), "q", 20) == numbers(1, 20)
    lasting.stop()
    assert not pages[0].exists()
    pages[0].write_bytes(old)
    assert lasting.start().drain("q") == numbers(21, 40)
    pages[0].parent.mkdir(exist_ok=True)
    pages[0].write_bytes(old)
    lasting.again()
    lasting.management.expect("q", messageCount=0)


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


@pytest.mark.parametrize("onto", ["the middle", "the last", "a new number"])
def test_a_segment_over_another(lasting, onto):
    segments = journal(lasting)
    number = int(segments[-1].stem)
    target = {
        "the middle": segments[2],
        "the last": segments[-1],
        "a new number": segments[0].with_name(f"{number + 1:09d}.journal"),
    }[onto]
    target.write_bytes(segments[1].read_bytes())
    lasting.start()
    assert lasting.running.wait_for_log(f"{target.name} is not segment .* it is a copy of file number")
    if onto != "a new number":
        assert lasting.running.wait_for_log(
            f"segment {int(target.stem)} of .* missing; number of lost messages unknown"
        )
    got = lasting.drain("q")
    assert len(set(got)) == len(got) and (len(got) == 60) is (onto == "a new number")
    assert list(target.parent.glob("*.damaged"))
    lasting.connect().put("q", "new", **DURABLE)
    assert lasting.again().drain("q") == ["new"]


def test_the_last_segment_is_missing(lasting):
    segments = journal(lasting)
    segments[-1].unlink()
    lasting.start()
    assert lasting.running.wait_for_log(f"segment {int(segments[-1].stem)} of .* is missing")


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


@pytest.mark.process
def test_pd_6_the_paging_directory_cannot_be_made(lasting):
    lasting.data.mkdir()
    (lasting.data / "paging").write_text("no directory", encoding="utf-8")
    with pytest.raises(AssertionError, match="paging"):
        lasting.start(settings=SETTINGS)


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
