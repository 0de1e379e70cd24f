"""Batches: what goes to the disk together, in which order, and what becomes of what the disk does not take."""

from pathlib import Path

from stompring.store.writer import WRITTEN_AT_ONCE

from .writer_fixture import JOURNAL, PAGE, WriterFixture


def test_one_turn_is_one_batch(desk):
    assert [desk.journal.append(part) for part in (b"one ", b"two ", b"three")] == [0, 4, 8]
    desk.turn()
    assert len(desk.hand.jobs) == 1 and desk.writer.waiting_bytes == 13
    desk.hand.step()
    assert desk.data(JOURNAL) == b"one two three"
    assert desk.files.operations == [("open", "1.journal"), ("write", "1.journal"), ("sync", "1.journal")]
    assert (desk.writer.waiting_bytes, desk.journal.written, desk.writer.idle) == (0, 13, True)


def test_while_one_is_under_way_the_next_gathers(desk):
    desk.journal.append(b"a")
    desk.turn()
    for part in (b"b", b"c"):
        desk.journal.append(part)
        desk.turn()
    assert len(desk.hand.jobs) == 1
    desk.hand.step()
    assert desk.data(JOURNAL) == b"a" and len(desk.hand.jobs) == 1
    desk.hand.step()
    assert desk.data(JOURNAL) == b"abc" and not desk.hand.jobs


def test_pages_are_safe_before_the_journal_speaks_of_them(desk):
    other = desk.writer.open(Path("/data/2.page"))
    desk.journal.append(b"fact")
    desk.page.append(b"message")
    other.append(b"another")
    desk.write()
    done = [each for each in desk.files.operations if each[0] != "open"]
    assert done == [
        ("write", "1.page"),
        ("write", "2.page"),
        ("sync", "1.page"),
        ("sync", "2.page"),
        ("write", "1.journal"),
        ("sync", "1.journal"),
    ]


def test_a_large_batch_of_a_page_is_written_in_pieces_and_in_order(desk):
    parts = [bytes([number]) * (WRITTEN_AT_ONCE // 4 + number) for number in range(10)]
    for part in parts:
        desk.page.append(part)
    desk.write()
    assert desk.data(PAGE) == b"".join(parts)
    assert desk.files.operations.count(("write", "1.page")) == 3


def test_a_segment_is_safe_before_the_next_one_begins(desk):
    second = desk.writer.open(Path("/data/2.journal"), journal=True)
    desk.journal.append(b"end")
    second.append(b"beginning")
    desk.write()
    done = [each for each in desk.files.operations if each[0] != "open"]
    assert done == [
        ("write", "1.journal"),
        ("sync", "1.journal"),
        ("write", "2.journal"),
        ("sync", "2.journal"),
    ]


def test_sync_callbacks_run_after_the_sync(desk):
    desk.writer.when_synced(desk.hear("nothing to wait for"))
    desk.journal.append(b"a")
    desk.writer.when_synced(desk.hear("a"))
    desk.turn()
    desk.writer.when_synced(desk.hear("a, under way"))
    desk.journal.append(b"b")
    desk.writer.when_synced(desk.hear("b"))
    assert desk.heard == ["nothing to wait for"]
    desk.hand.step()
    assert desk.heard == ["nothing to wait for", "a", "a, under way"]
    desk.hand.step()
    assert desk.heard[-1] == "b"


def test_unsynced_appends_delay_no_callback(desk):
    desk.page.append(b"volatile", sync=False)
    desk.writer.when_synced(desk.hear("at once"))
    desk.turn()
    desk.writer.when_synced(desk.hear("at once, too"))
    assert desk.heard == ["at once", "at once, too"]
    desk.hand.step()
    assert ("sync", "1.page") not in desk.files.operations and desk.data(PAGE) == b"volatile"
    assert desk.files.crash_free(PAGE) == b""
    assert desk.writer.drain()
    assert desk.files.crash_free(PAGE) == b"volatile"


def test_failing_sync_callback_does_not_block_others(desk, caplog):

    def fail():
        raise RuntimeError("no")

    desk.journal.append(b"a")
    desk.writer.when_synced(fail)
    desk.writer.when_synced(desk.hear("all the same"))
    desk.write()
    assert desk.heard == ["all the same"] and "RuntimeError: no" in caplog.text


def test_company_is_waited_for():
    desk = WriterFixture(delay=0.5)
    desk.journal.append(b"a")
    desk.turn(0.25)
    desk.journal.append(b"b")
    assert not desk.hand.jobs
    desk.turn(0.25)
    desk.hand.step()
    assert desk.data(JOURNAL) == b"ab"


def test_gather_is_called_before_each_batch(desk):
    asked = []
    desk.writer.gather = lambda: asked.append(desk.journal.append(b"gathered")) is None
    desk.page.append(b"x")
    desk.write()
    assert asked == [0] and desk.data(JOURNAL) == b"gathered"


def test_attend_writes_gathered_records_immediately(desk):
    news = [b"news"]
    desk.writer.gather = lambda: not news or desk.journal.append(news.pop()) >= 0
    desk.writer.after_next_batch(desk.hear("told"))
    desk.writer.end_of_turn()
    assert len(desk.hand.jobs) == 1
    desk.hand.step()
    assert desk.heard == ["told"]
    desk.turn()
    assert not desk.hand.jobs, "what was asked for earlier in the turn is done"


def test_empty_batch_needs_no_disk_job(desk):
    desk.writer.after_next_batch(desk.hear("at once"))
    desk.turn()
    assert desk.heard == ["at once"] and not desk.hand.jobs
