"""A broker whose page files are damaged, missing, or cannot be made (the PD rows of paging)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .lasting import DURABLE, LastingBroker, numbers, padded, take

#: Always paging, also when nothing is left in the pages.
SETTINGS = {"q": {"max-size-messages": 0, "page-size-bytes": "2K"}}


def filled(lasting: LastingBroker, last: int = 40) -> list[Path]:
    """A queue that is paged, and its files."""
    client = lasting.start(settings=SETTINGS).connect()
    client.put("q", *padded(1, last, 300), **DURABLE)
    pages = lasting.pages()
    assert len(pages) > 6
    return pages


def test_pd_1_it_goes_on_paging(lasting: LastingBroker, how: str) -> None:
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
def test_pd_2_a_file_is_no_page_any_more(lasting: LastingBroker, damage: bytes) -> None:
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
    assert any(pages[4].name in line for line in lasting.process.log)
    assert lasting.management.ask("GET", "/broker")["damagedPages"] >= 1


def test_pd_3_a_damaged_record_in_the_middle(lasting: LastingBroker) -> None:
    pages = filled(lasting)
    lasting.kill()
    data = bytearray(pages[2].read_bytes())
    at = data.index(b"\n", len(data) // 2)
    data[at : at + 20] = bytes(20)
    pages[2].write_bytes(bytes(data))
    got = lasting.start().drain("q")
    lost = set(numbers(1, 40)) - set(got)
    assert 1 <= len(lost) <= 5 and got == sorted(got, key=int)
    assert any(pages[2].name in line for line in lasting.process.log)
    lasting.management.expect_address("q", numberOfPages=0)
    aside = [path for path in lasting.data.rglob("*.invalidPage*")]
    assert len(aside) == 1 and aside[0].read_bytes() == bytes(data)
    assert lasting.again().management.queue("q")["messageCount"] == 0


def test_pd_4_an_unfinished_last_page(lasting: LastingBroker) -> None:
    pages = filled(lasting)
    lasting.kill()
    pages[-1].write_bytes(pages[-1].read_bytes()[:-7])
    lasting.start().connect().put("q", "new", **DURABLE)
    assert lasting.drain("q") == [*numbers(1, 39), "new"]


def test_pd_5_all_pages_are_deleted(lasting: LastingBroker) -> None:
    filled(lasting)
    lasting.stop()
    shutil.rmtree(lasting.data / "paging")
    lasting.start()
    lasting.management.expect("q", messageCount=0)
    lasting.connect().put("q", *padded(1, 30, 300), **DURABLE)
    assert lasting.again().drain("q") == numbers(1, 30)


def test_pd_5_the_first_page_is_missing(lasting: LastingBroker) -> None:
    pages = filled(lasting)
    lasting.kill()
    pages[0].unlink()
    got = lasting.start().drain("q")
    assert got == numbers(41 - len(got), 40) and len(got) >= 30


def test_pd_6_the_paging_directory_cannot_be_made(lasting: LastingBroker) -> None:
    lasting.data.mkdir()
    (lasting.data / "paging").write_text("no directory", encoding="utf-8")
    with pytest.raises(AssertionError, match="paging"):
        lasting.start(settings=SETTINGS)


def test_pd_7_messages_that_are_not_durable_page_and_do_not_survive(lasting: LastingBroker, how: str) -> None:
    client = lasting.start(settings=SETTINGS).connect()
    client.put("q", *padded(1, 20, 300))
    client.put("q", *padded(21, 30, 300), **DURABLE)
    lasting.management.expect("q", messageCount=30)
    assert len(lasting.pages()) > 3
    lasting.again(how)
    lasting.management.expect("q", messageCount=10)
    assert lasting.drain("q") == numbers(21, 30)
    lasting.management.expect_address("q", numberOfPages=0)
