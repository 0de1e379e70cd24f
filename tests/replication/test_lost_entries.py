"""A log that has lost entries which it had confirmed: who notices, and how the log gets them back."""

import logging
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stompring.replication.copy import REMEMBERED_REMOVALS, LocalCopy
from stompring.replication.log import (
    BEATS,
    CONTROL,
    Contents,
    FileChange,
    Operation,
    Summary,
    count,
    decode_beat,
    difference,
    weight,
    weights,
)

from ..property.profile import ends, examples
from .directories import ActiveBroker, contents, follow, rebuild, rebuilt
from .memory_log import MemoryLog
from .test_files_model import BATCHES, Pair

# ---- digests


@pytest.mark.parametrize(
    "changes, files",
    [
        ([(Operation.WRITE, "a"), (Operation.WRITE, "a"), (Operation.WHOLE, "b")], {"a": [1, 2], "b": [3]}),
        ([(Operation.WRITE, "a"), (Operation.TRUNCATE, "a"), (Operation.REMOVE, "a")], {}),
        ([(Operation.WRITE, "a"), (Operation.MOVE, "a"), (Operation.WRITE, "a")], {"a": [3]}),
        ([(Operation.REMOVE, "a"), (Operation.BEAT, ""), (Operation.CLAIM, "")], {}),
        (
            [*[(Operation.WRITE, "a")] * 2, (Operation.REWRITE, "a"), (Operation.WRITE, "a")],
            {"a": [1, 2, 3, 4]},
        ),
        (
            [(Operation.WRITE, "a")] * 2
            + [(Operation.REWRITE, "a"), (Operation.WRITE, "a"), (Operation.REWRITTEN, "a")],
            {"a": [3, 4, 5]},
        ),
        ([(Operation.WRITE, "a"), (Operation.REWRITTEN, "a"), (Operation.WRITE, "a")], {"a": [3]}),
        ([(Operation.REWRITE, "a"), (Operation.REWRITE, "a"), (Operation.REWRITTEN, "a")], {"a": [2, 3]}),
    ],
)
def test_a_digest_has_the_entries_of_a_file(changes, files):
    found = Contents()
    for serial, (operation, path) in enumerate(changes, 1):
        found.add(FileChange(operation, path, serial=serial))
    expected = {path: weights(serials) for path, serials in files.items()}
    total = weights(serial for serials in files.values() for serial in serials)
    for each in (found, found.copy()):
        assert (each.digests, each.total, each.serial) == (expected, total, len(changes))
        assert {path: count(digest) for path, digest in each.digests.items()} == {
            path: len(serials) for path, serials in files.items()
        }


@pytest.mark.parametrize(
    "one, other, least",
    [([1, 2], [2, 1], 0), ([1, 2, 3], [2], 2), ([], [1, 2, 3], 3), ([1], [2], 1), ([1, 2], [3, 4], 1)],
)
def test_digests_say_by_how_many_entries_they_differ_at_least(one, other, least):
    assert difference(weights(one), weights(other)) == least


def test_weights_are_different_and_have_all_bits():
    found = [weight(serial) >> 32 for serial in range(20_000)]
    assert len(set(found)) == len(found)
    for bit in range(64):
        assert 0.4 < sum(each >> bit & 1 for each in found) / len(found) < 0.6


@pytest.mark.parametrize(
    "change, dropped",
    [
        (FileChange(Operation.REMOVE, "a", 1, b"12"), 12),
        (FileChange(Operation.REMOVE, "a", 1), None),
        (FileChange(Operation.MOVE, "a", 1, b"4096 12"), 12),
        (FileChange(Operation.MOVE, "a", 1, b"4096"), None),
        (FileChange(Operation.REWRITTEN, "a", 1, b"0"), 0),
        (FileChange(Operation.REMOVE, "a", 1, b"x"), None),
        (FileChange(Operation.WRITE, "a", 1, b"12"), None),
    ],
)
def test_an_entry_says_what_it_makes_unneeded(change, dropped):
    assert change.dropped == dropped


# ---- who notices


@pytest.mark.parametrize("place", [1, 3, 5])
def test_a_copy_that_begins_from_nothing_knows_what_the_log_has_lost(active, place):
    for number in range(5):
        active.write("journal/1.journal", b"x", number)
    active.engine.lose([active.engine.under("journal/1.journal")[place]])
    active.beat()
    assert active.rebuild("rebuilt").missing == 1


def test_what_is_lost_behind_the_newest_beat_is_noticed(active):
    active.beat()
    for number in range(5):
        active.write("journal/1.journal", b"x", number)
    active.lose("journal/1.journal", slice(3))
    assert active.rebuild("rebuilt").missing == 3


def lost_write_and_removal(active):
    active.replace("journal/1.journal", b"one")
    active.replace("journal/2.journal", b"two")
    active.remove("journal/2.journal")
    return active.engine.under("journal/1.journal") + active.engine.under(CONTROL)[-1:]


def lost_removal_and_what_was_written_after_it(active):
    active.replace("journal/1.journal", b"old")
    active.remove("journal/1.journal")
    active.replace("journal/1.journal", b"new")
    return active.engine.under(CONTROL) + active.engine.under("journal/1.journal")[-1:]


def lost_truncation_and_end_of_a_rewrite(active):
    active.replace("journal/1.journal", b"longer")
    active.files.truncate(active.root / "journal/1.journal", 4)
    assert active.files.check(everything=True)
    _, truncation, _, _, end = active.engine.under("journal/1.journal")
    return [truncation, end]


def lost_write_and_removal_with_the_newest_beat_before_them(active):
    active.beat()
    lost = lost_write_and_removal(active)
    active.replace("journal/3.journal", b"three")
    return lost


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lost_write_and_removal,
        lost_removal_and_what_was_written_after_it,
        lost_truncation_and_end_of_a_rewrite,
        lost_write_and_removal_with_the_newest_beat_before_them,
    ],
)
def test_losses_do_not_hide_each_other(active, tmp_path, change, beats):
    lost = change(active)
    if beats:
        active.beat()
    else:
        active.replace("journal/9.journal", b"nine")
    active.engine.lose(lost)
    copy = active.rebuild("rebuilt")
    assert contents(tmp_path / "rebuilt") != active.contents
    assert copy.missing >= 1
    active.check(everything=True)
    active.beat()
    assert active.rebuilt() == active.contents


def test_entries_of_removed_files_are_not_missing(active):
    for number in range(5):
        active.write(f"journal/{number}.journal", b"x")
    active.beat()
    for number in range(4):
        active.remove(f"journal/{number}.journal")
        active.write(f"journal/{number}.journal", b"y")
        active.remove(f"journal/{number}.journal")
        active.files.trim()
    active.lose(BEATS, slice(-1))
    assert active.rebuilt() == {"journal/4.journal": b"x"}


def test_a_copy_knows_what_it_lacks_after_a_restart(active):
    for number in range(5):
        active.write("journal/1.journal", b"x", number)
    active.lose("journal/1.journal", slice(2))
    active.beat()
    active.rebuild("rebuilt")
    again = active.follower("rebuilt")
    assert again.missing == 2
    active.write("journal/1.journal", b"x", 5)
    follow(again, active.log)
    assert again.missing == 2
    active.remove("journal/1.journal")
    follow(again, active.log)
    assert again.missing == 0, "nothing is missing of a file that is not there any more"


def test_beats_say_what_the_log_holds(active):
    active.write("journal/1.journal", b"x")
    active.beat()
    active.write("journal/2.journal", b"x")
    active.remove("journal/1.journal")
    active.beat()
    found = [active.engine.entry(sequence) for sequence in active.engine.under(BEATS)]
    assert [decode_beat(entry.change.data).contents for entry in found if entry] == [
        Summary(),
        Summary(2, 0, weights([1, 2])),
        Summary(5, 1, weights([3, 4])),
    ]


@pytest.mark.parametrize("lost", [[1, 3], [0, 2, 4], [2, 3]])
@pytest.mark.parametrize("purged", [0, 1])
def test_a_copy_that_lacks_several_removals_is_finished(active, tmp_path, lost, purged):
    """It starts again if the first ones are purged, not if one is lost."""
    for number in range(6):
        active.write(f"journal/{number}.journal", b"x")
    follower = active.follower("follower")
    for number in range(5):
        active.remove(f"journal/{number}.journal")
    controls = active.engine.under(CONTROL)
    active.engine.purge(CONTROL, controls[purged] if purged else 0)
    active.engine.lose([controls[place] for place in lost])
    active.write("journal/6.journal", b"x")
    active.beat()
    with patch.object(LocalCopy, "restart", autospec=True, side_effect=LocalCopy.restart) as restart:
        follow(follower, active.log)
        active.rebuild("rebuilt")
    assert restart.call_count <= 1
    assert follower.missing
    active.check()
    follower.restart(active.log, "")
    follow(follower, active.log)
    assert contents(tmp_path / "follower") == active.contents


# ---- how the log gets them back


def test_a_file_of_which_entries_are_lost_is_written_again(active, tmp_path, caplog):
    for number in range(50):
        active.write("journal/1.journal", b"%02d" % number, 2 * number)
    active.write("journal/2.journal", b"whole")
    active.lose("journal/1.journal", slice(10, 20))
    follower = active.rebuild("follower")
    assert follower.missing == 0 or follower.missing == 10
    with caplog.at_level(logging.INFO):
        active.check()
    assert "has lost 10 entries of 1 files" in caplog.text
    assert "has all files again: 1 were written" in caplog.text
    assert active.operations("journal/1.journal") == [
        Operation.REWRITE,
        Operation.WRITE,
        Operation.REWRITTEN,
    ]
    assert active.operations("journal/2.journal") == [Operation.WRITE, Operation.WRITE]
    active.beat()
    assert active.rebuilt() == active.contents
    assert active.follower("follower").missing == 0
    assert contents(tmp_path / "follower") == active.contents
    before = active.engine.last
    active.check()
    assert active.engine.last == before, "nothing is written again that the log has"


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("successor", [False, True])
def test_replaced_entries_are_not_counted_in_the_place_of_lost_ones(active, tmp_path, rewritten, successor):
    """Also by a broker that has read of many removals since."""
    path = active.root / "journal/1.journal"
    for data in (b"one", b"two", b"six"):
        active.files.replace(path, data)
    if rewritten:
        assert active.files.check(everything=True)
    else:
        active.files.remove(path)
        for data in (b"new", b"newer", b"newest"):
            active.files.replace(path, data)
    other = active.follower("other")
    active.lose("journal/1.journal", slice(3, None))
    if successor:
        for number in range(2 * REMEMBERED_REMOVALS + 1):
            active.replace(f"journal/{number + 10}.journal", b"x")
            active.remove(f"journal/{number + 10}.journal")
        follow(other, active.log)
        other.close(clean=False)
        active = ActiveBroker(active.engine, tmp_path / "other")
    before = active.files.rewritten
    active.check()
    assert active.files.rewritten == before + 1
    active.beat()
    assert active.rebuilt() == active.contents


def test_all_files_are_written_again_where_a_standby_asks_for_it(active):
    active.write("journal/1.journal", b"one")
    active.write("journal/empty.journal", b"")
    active.check(everything=True)
    assert active.files.rewritten == 2
    assert active.rebuilt() == active.contents


@contextmanager
def in_parts(active):
    """Files are written again in parts of four bytes, and a step of a check ends when the log has more entries."""
    with (
        patch("stompring.replication.files.REWRITE_BYTES", 4),
        patch("stompring.replication.files.monotonic", lambda: active.engine.last),
    ):
        assert not active.files.check()
        yield


def test_all_files_are_written_again_also_where_that_is_asked_for_during_a_check(active, caplog):
    for number in range(3):
        active.write(f"journal/{number}.journal", b"%d" % number * 10)
    active.lose("journal/2.journal")
    with in_parts(active):
        active.check(everything=True)
    assert "all 3 files are written to the log again" in caplog.text
    assert active.files.rewritten == 3
    active.beat()
    assert active.rebuilt() == active.contents


def test_a_file_is_written_again_in_parts_between_which_it_changes(active):
    active.write("journal/1.journal", b"a" * 10)
    active.lose("journal/1.journal")
    with in_parts(active):
        assert Operation.REWRITTEN not in active.operations("journal/1.journal")
        active.write("journal/1.journal", b"b" * 6, 8)
        active.files.truncate(active.root / "journal/1.journal", 13)
        active.check()
    found = active.operations("journal/1.journal")
    assert (found[0], found[-1], Operation.TRUNCATE in found) == (
        Operation.REWRITE,
        Operation.REWRITTEN,
        True,
    )
    active.beat()
    expected = {"journal/1.journal": b"a" * 8 + b"b" * 5}
    assert active.contents == expected
    assert active.rebuilt() == expected


def test_the_next_active_broker_ends_what_the_one_before_had_begun(active, tmp_path):
    active.write("journal/1.journal", b"a" * 10)
    active.follower("other").close(clean=False)
    active.lose("journal/1.journal")
    with in_parts(active):
        assert active.operations("journal/1.journal")[0] is Operation.REWRITE
        following = ActiveBroker(active.engine, tmp_path / "other")
        assert active.rebuild("incomplete").missing
        following.check()
    following.beat()
    assert active.rebuilt() == {"journal/1.journal": b"a" * 10}


def test_lost_removals_do_not_leave_files_in_a_new_copy(active, tmp_path):
    for number in range(6):
        active.write(f"journal/{number}.journal", b"x")
    for number in range(4):
        active.remove(f"journal/{number}.journal")
    active.lose(CONTROL, slice(1, 3))
    active.beat()
    follower = active.rebuild("follower")
    assert follower.missing
    follower.restart(active.log, "")
    follow(follower, active.log)
    assert follower.missing, "the log has not been repaired"
    active.check()
    follower.restart(active.log, "")
    follow(follower, active.log)
    assert follower.missing == 0
    assert contents(tmp_path / "follower") == active.contents
    assert active.rebuilt() == active.contents


def test_a_log_whose_entries_are_too_many_to_be_counted_is_written_again_only_where_a_standby_asks(
    active, monkeypatch
):
    active.write("journal/1.journal", b"x")
    active.lose("journal/1.journal")
    monkeypatch.setattr(active.log, "counts", lambda: None)
    active.check()
    assert active.files.rewritten == 0
    active.check(everything=True)
    assert active.files.rewritten == 1


def test_nothing_is_checked_while_the_log_does_not_answer(active):
    active.write("journal/1.journal", b"x")
    active.lose("journal/1.journal")
    active.log.connected = False
    assert not active.files.check()
    active.log.connected = True
    active.check()
    assert active.files.rewritten == 1


@ends()
@given(BATCHES, st.randoms(use_true_random=False), st.floats(0, 1))
@settings(examples(25), report_multiple_bugs=False, phases=[Phase.explicit, Phase.generate])
def test_no_loss_goes_unnoticed_and_every_one_is_repaired(batches, random, share):
    with (
        TemporaryDirectory() as name,
        patch("stompring.replication.files.REWRITE_BYTES", 50_000),
        closing(Pair(Path(name))) as pair,
    ):
        for tasks, writes, faults, then in batches:
            pair.batch(tasks, writes, faults)
            if then != "alone":
                pair.step(then)
            if random.random() < 0.3:
                pair.active.beat()
        engine, active, root = pair.engine, pair.active, Path(name)
        if random.random() < 0.7:  # else what is lost may be behind the newest beat
            active.beat()
        live = [entry.sequence for entry in engine.entries()][:-1]
        lost = random.sample(live, round(share * share * len(live)))
        controls = [sequence for sequence in engine.under(CONTROL) if sequence in live]
        if controls and random.random() < 0.5:  # few, so that their counts may cancel
            lost = list({random.choice(controls), *random.sample(live, min(len(live), random.randint(1, 4)))})
        engine.lose(lost)
        incomplete = rebuild(engine, root / "incomplete")
        expected = contents(pair.plain)
        assert incomplete.missing or contents(root / "incomplete") == expected
        if not lost:
            assert not incomplete.missing
        active.check()
        active.beat()
        for copy in (incomplete, pair.follower):
            follow(copy, active.log)
            if copy.missing:  # what a standby does then, in this order
                copy.restart(active.log, "")
                follow(copy, active.log)
            if copy.missing:
                active.check(everything=True)
                active.beat()
                follow(copy, active.log)
            if copy.missing:
                copy.restart(active.log, "")
                follow(copy, active.log)
            assert copy.missing == 0
            assert contents(copy.directory.root) == expected
            copy.close_files()
        assert rebuilt(engine, root / "rebuilt") == expected


def test_counts_are_those_of_the_log(active):
    active.write("journal/1.journal", b"x")
    assert MemoryLog(active.engine).counts() == {BEATS: 1, "journal/1.journal": 2}
