"""The role of a broker in a replicated log, step by step on a simulated clock."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from stompring.replication.beat import Beat, decode_beat, encode_beat
from stompring.replication.contents import Summary, weight
from stompring.replication.log import BEATS, Fenced, FileChange, LogFull, LogUnavailable, Operation
from stompring.replication.role import (
    AFTER_OUTAGE,
    EXIT_NOT_ACTIVE,
    JITTER,
    KEPT_BEATS,
    MAX_FAILED_WAIT,
    PURGED_BEATS,
    START_FAILED,
    NodeThread,
    Role,
    StepDown,
    Timing,
    rebuild_text,
)

from .simulated_cluster import TIMEOUT, Broker, Cluster
from .simulated_engine import SimulatedClock, SimulatedCopy, SimulatedEngine


def test_the_first_broker_of_an_empty_log_is_active_at_once():
    cluster = Cluster("a")
    assert cluster.until_active("a") < 0.5
    assert cluster.brokers["a"].callbacks.events == ["active"]
    assert cluster.brokers["a"].node.is_fresh()


def test_one_of_two_that_start_together_is_active():
    cluster = Cluster("a", "b")
    cluster.run(10)
    assert len(cluster.active()) == 1
    assert [each.change.operation for each in cluster.engine.entries].count(Operation.CLAIM) == 1


def test_standby_takes_over_when_the_active_broker_is_killed():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(5)
    cluster.write("a", data=b"kept")
    cluster.kill("a")
    taken = cluster.until_active("b")
    assert TIMEOUT <= taken <= TIMEOUT + 1
    assert cluster.copies["b"].files == {"journal/1": b"kept"}
    takeover = cluster.brokers["b"].node.status().last_takeover
    assert takeover is not None and takeover.reason.startswith("no entry for 3.")


def test_beats_keep_the_role_without_appends():
    cluster = Cluster("a", "b")
    cluster.run(60)
    assert len(cluster.active()) == 1
    assert len([each for each in cluster.engine.entries if each.change.key == BEATS]) >= 100


def test_a_stopped_active_is_fenced_when_it_goes_on():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    old = cluster.brokers["a"]
    old.paused = True
    cluster.until_active("b")
    assert not old.node.is_fresh()
    old.paused = False
    cluster.run(1)
    assert old.role is Role.FENCED
    assert old.callbacks.events[-1] == f"lost {EXIT_NOT_ACTIVE}"
    assert old.node.status().fenced == 1
    assert cluster.active() == ["b"]


def test_active_without_the_engine_is_suspended_before_a_standby_may_take_over():
    cluster = Cluster("a")
    cluster.until_active("a")
    broker = cluster.brokers["a"]
    broker.connection.cut = True
    cut_at = broker.node.log.stored_at
    cluster.run(20, until=lambda: not broker.node.is_fresh())
    assert cluster.clock.now - cut_at < TIMEOUT
    cluster.run(3)
    assert broker.role is Role.SUSPENDED
    broker.connection.cut = False
    cluster.run(3)
    assert broker.callbacks.events == ["active", "suspended", "resumed"]
    assert broker.node.is_fresh()


def test_no_takeover_during_an_outage_or_within_three_beats_after_it():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    cluster.kill("a")
    cluster.run(2.5)
    cluster.engine.set_down(True)
    cluster.run(60)
    assert cluster.active() == []
    cluster.engine.set_down(False)
    cluster.run(5, until=lambda: not cluster.brokers["b"].node.status().fault)
    assert AFTER_OUTAGE - 0.2 <= cluster.until_active("b") <= AFTER_OUTAGE + 0.2


def test_active_stays_after_an_outage():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    for _ in range(5):
        cluster.engine.set_down(True)
        cluster.run(9)
        cluster.engine.set_down(False)
        cluster.run(6)
    assert cluster.active() == ["a"]


@pytest.mark.parametrize("successor", ["", "c"])
def test_release_leads_to_a_takeover_at_once_by_the_standby_it_names(successor):
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.start("c")
    cluster.run(1)
    assert cluster.brokers["a"].node.release("promote", successor)
    assert not cluster.brokers["a"].node.is_fresh()
    taken = cluster.run(5, until=lambda: bool(cluster.active()))
    assert taken < 0.5
    assert cluster.active() == ["c"] if successor else cluster.active()[0] in "bc"


def test_release_to_a_standby_that_is_gone_leads_to_a_takeover_by_another():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    cluster.brokers["a"].node.release("promote", "gone")
    assert cluster.until_active("b") < 2.5


def test_a_released_broker_appends_nothing_more():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.brokers["a"].node.release()
    with pytest.raises(Exception, match="released"):
        cluster.write("a")
    assert cluster.brokers["a"].callbacks.events == ["active"]


def test_a_broker_that_was_asked_to_release_leaves_the_log_to_others_when_it_comes_back():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.brokers["a"].node.release("promote")
    cluster.start("a")
    assert cluster.until_active("a") >= 1.9
    cluster.brokers["a"].node.release("stopped")
    cluster.start("a")
    assert cluster.until_active("a") < 0.5


def fails_to_start(cluster, name):
    """A broker becomes active and cannot start; a supervisor starts it again. Returns when it became active."""
    waited = cluster.until_active(name, 60)
    cluster.brokers[name].node.release(START_FAILED)
    cluster.start(name)
    return waited


def test_start_that_failed_is_left_to_the_standby_at_once():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    fails_to_start(cluster, "a")
    assert cluster.until_active("b") < 0.5
    assert cluster.active() == ["b"]


def test_brokers_that_all_fail_to_start_take_over_more_and_more_slowly(
    caplog,
):
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    cluster.brokers["a"].node.release(START_FAILED)
    cluster.start("a")
    waits = []
    for _ in range(7):
        waits.append(cluster.run(60, until=lambda: bool(cluster.active())))
        fails_to_start(cluster, cluster.active()[0])
    for waited, least in zip(waits, (0, 2, 4, 8, 16, MAX_FAILED_WAIT, MAX_FAILED_WAIT), strict=True):
        assert least <= waited < least + 0.5
    assert "failed to start, 2 in a row, b the last one: the next takeover is 2 s later" in caplog.text
    caplog.clear()
    cluster.run(20)
    assert [each.levelno for each in caplog.records].count(logging.WARNING) == 2, "once per broker"


def test_broker_without_a_standby_tries_again_after_a_failed_start():
    cluster = Cluster("a")
    fails_to_start(cluster, "a")
    waits = [fails_to_start(cluster, "a") for _ in range(3)]
    for waited, least in zip(waits, (2, 2, 4), strict=True):
        assert least <= waited < least + 0.5


def test_start_that_succeeds_ends_the_row_of_failures():
    cluster = Cluster("a")
    for _ in range(4):
        fails_to_start(cluster, "a")
    cluster.until_active("a", 60)
    cluster.run(1)
    cluster.brokers["a"].node.release("stopped")
    cluster.start("a")
    assert cluster.until_active("a") < 0.5
    cluster.kill("a")
    cluster.start("a")
    fails_to_start(cluster, "a")
    assert fails_to_start(cluster, "a") < 2.5


def test_requests_reach_the_active_broker():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.brokers["b"].connection.request("release b", "")
    cluster.brokers["b"].connection.request("leave", "b")
    cluster.run(2)
    assert cluster.brokers["a"].callbacks.requests == [StepDown("release", "b")]
    assert cluster.brokers["b"].callbacks.requests == [StepDown("leave")]
    assert StepDown("leave").exit_code == 0 and StepDown("release").exit_code == EXIT_NOT_ACTIVE


def test_standby_of_a_busy_broker_is_up_to_date_and_answers_requests(monkeypatch):
    """There is a new entry at every look: the standby never reads nothing."""
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.write("a")
    connection = cluster.start("b").connection
    read = connection.read

    def busy(after, wait):
        cluster.write("a")
        return read(after, wait)

    monkeypatch.setattr(connection, "read", busy)
    connection.request("leave", "b")
    cluster.run(2)
    assert cluster.brokers["b"].node.status().rebuilding is False
    assert cluster.brokers["b"].callbacks.requests == [StepDown("leave")]


def test_a_claim_whose_answer_is_lost_is_taken_up():
    cluster = Cluster("a")
    cluster.brokers["a"].connection.lost_answers = 1
    assert cluster.until_active("a") < 3
    cluster.write("a")
    assert [each.change.operation for each in cluster.engine.entries] == [Operation.CLAIM, Operation.WHOLE]


def test_lost_answers_lose_no_entry_and_repeat_none():
    cluster = Cluster("a")
    cluster.until_active("a")
    broker = cluster.brokers["a"]
    for number in range(20):
        broker.connection.lost_answers, broker.connection.partial = 1, number % 4 / 3
        with pytest.raises(OSError):
            broker.node.log.append(
                [FileChange(Operation.WHOLE, f"journal/{number}.{part}") for part in range(3)]
            )
        cluster.run(1)
    paths = [each.change.path for each in cluster.engine.entries if each.change.path]
    assert paths == [f"journal/{number}.{part}" for number in range(20) for part in range(3)]


def test_a_stalled_reactor_ends_the_beats_once_the_broker_is_ready():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(30)
    assert cluster.active() == ["a"], "a long recovery keeps the role"
    cluster.brokers["a"].node.mark_ready()
    assert cluster.until_active("b") < 5 + TIMEOUT + 1
    assert cluster.brokers["a"].role in (Role.SUSPENDED, Role.FENCED)


def test_beats_beyond_the_latest_are_purged():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.run(300)
    live = [each for each in cluster.engine.entries if each.sequence not in cluster.engine.purged]
    assert KEPT_BEATS <= len(live) <= KEPT_BEATS + PURGED_BEATS + 5


def test_beats_and_claims_have_room_in_a_full_log():
    cluster = Cluster("a", max_bytes=100_000)
    cluster.until_active("a")
    cluster.run(3)
    with pytest.raises(LogFull):
        for number in range(1000):
            cluster.write("a", f"journal/{number}", bytes(1000))
    cluster.start("b")
    cluster.run(600)
    assert cluster.active() == ["a"]
    cluster.kill("a")
    cluster.until_active("b")


def test_a_standby_that_cannot_write_its_copy_does_not_take_over(caplog):
    cluster = Cluster("a")
    cluster.until_active("a")
    broker = cluster.start("b")
    cluster.run(1)
    broker.copy.fault = OSError(28, "No space left on device")
    cluster.run(1)
    cluster.kill("a")
    with caplog.at_level(logging.WARNING, "stompring.replication.role"):
        cluster.run(200)
    assert broker.role is Role.STANDBY
    assert "No space left" in broker.node.status().fault
    assert len([each for each in caplog.messages if "No space left" in each]) in (3, 4), "once a minute"
    broker.copy.fault = None
    cluster.until_active("b")
    assert broker.node.status().fault == ""


def test_a_broker_that_starts_without_an_engine_waits_and_says_so(caplog):
    cluster = Cluster()
    cluster.engine.set_down(True)
    cluster.start("a")
    with caplog.at_level(logging.INFO, "stompring.replication.role"):
        cluster.run(130)
        assert cluster.brokers["a"].role is Role.CONNECTING
        assert len(caplog.messages) == 3, "once a minute"
        cluster.engine.set_down(False)
        cluster.until_active("a")
    assert any("answers after" in each for each in caplog.messages)


def test_takeover_timeout_leaves_a_margin_after_the_suspension():
    for seconds in (2.0, 3.0, 3.4, 10.0):
        assert Timing(seconds).freshness <= min(3.0, seconds - 0.5)
    with pytest.raises(ValueError, match="at least 2000 ms"):
        Timing(1.9)
    assert JITTER < 0.5


def test_status_of_a_standby_knows_the_active_broker_and_the_lag():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(3)
    cluster.brokers["b"].paused = True
    cluster.write("a", data=bytes(1000))
    cluster.run(2)
    node = cluster.brokers["b"].node
    node._status_tried_at = 0
    node._measure_lag()
    status = node.status()
    assert status.active is not None and status.active.broker == "a"
    assert status.lag_entries >= 4 and status.lag_bytes >= 1000 and 1 <= status.lag_seconds <= 3
    cluster.brokers["b"].paused = False
    cluster.run(3)
    assert node.status().lag_entries == 0 and node.status().sequence >= cluster.engine.last - 1


def test_beats_survive_what_other_versions_write():
    beat = Beat("a", "host", 7, 8, "1.0", 9, "stopped", "b")
    assert decode_beat(encode_beat(beat)) == beat
    for contents in (None, Summary(), Summary(12, 3, 2**96 - 1)):
        assert decode_beat(encode_beat(replace(beat, contents=contents))).contents == contents
    assert decode_beat(b'{"broker": "a", "contents": {"serial": 1, "control": "x"}}') == Beat("a")
    assert decode_beat(b'{"broker": "a", "later": [1], "pid": "x"}') == Beat("a")
    assert decode_beat(b"\xff") == decode_beat(b"[1]") == Beat("")


def test_the_thread_steps_the_node_until_it_is_stopped():
    engine = SimulatedEngine(SimulatedClock())
    broker = Broker(engine, "a", SimulatedCopy())
    thread = NodeThread(broker.node)
    thread.start()
    deadline = time.monotonic() + 60
    while broker.role is not Role.ACTIVE and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    assert broker.callbacks.events == ["active"]


def test_beats_do_not_pile_up_during_an_outage():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.engine.set_down(True)
    cluster.run(600)
    last = cluster.engine.last
    cluster.engine.set_down(False)
    cluster.run(3)
    assert cluster.engine.last - last < 10


@pytest.mark.parametrize("call", ["append", "appended"])
def test_active_that_was_stopped_in_an_append_is_not_fresh_when_it_goes_on(call):
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    old = cluster.brokers["a"]

    def stop(reached):
        if reached == call:
            old.connection.interrupt = lambda call: None
            old.paused = True
            cluster.until_active("b")

    old.connection.interrupt = stop
    with suppress(Fenced):
        cluster.write("a")
    assert cluster.brokers["b"].node.is_fresh()
    assert not old.node.is_fresh()


def test_active_that_settles_an_old_append_is_not_fresh_by_that():
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(1)
    old = cluster.brokers["a"]
    old.connection.lost_answers = 1
    with pytest.raises(LogUnavailable):
        cluster.write("a")
    old.paused = True
    cluster.run(2.6)
    old.node.log.append([])
    assert not old.node.is_fresh()


def test_a_claim_that_is_taken_up_late_is_not_fresh_by_that():
    cluster = Cluster("a")
    broker = cluster.brokers["a"]
    broker.connection.lost_answers = 1
    cluster.run(1)
    assert cluster.engine.last == 1
    cluster.clock.now += 3
    cluster.run(5, until=lambda: broker.role is not Role.STANDBY)
    assert not broker.node.is_fresh()
    cluster.run(1)
    assert broker.node.is_fresh()


def test_a_standby_that_was_stopped_does_not_count_the_time_as_silence():
    cluster = Cluster("a")
    cluster.until_active("a")
    standby = cluster.start("b")
    cluster.run(1)
    cluster.kill("a")
    cluster.run(1)
    standby.paused = True
    cluster.run(20)
    standby.paused = False
    assert cluster.until_active("b") >= AFTER_OUTAGE - 0.1


def test_a_copy_that_begins_anew_is_rebuilt_before_the_takeover():
    cluster = Cluster("a")
    cluster.until_active("a")
    standby = cluster.start("b")
    cluster.run(1)
    cluster.write("a", data=b"kept")
    standby.copy.gap = True
    cluster.run(1)
    cluster.kill("a")
    cluster.until_active("b")
    assert standby.copy.files == {"journal/1": b"kept"}


def test_a_rebuild_reports_its_progress(caplog):
    cluster = Cluster("a")
    cluster.until_active("a")
    data = bytes(1_000_000)
    for number in range(800):
        cluster.write("a", f"journal/{number}", data)
    standby = cluster.start("b")
    seen = []
    with caplog.at_level(logging.INFO, "stompring.replication.role"):
        for _ in range(100):
            cluster.run(0.001)
            cluster.clock.now += 1
            cluster.brokers["a"].node.step()
            status = standby.node.status()
            seen.append((status.rebuilding, status.rebuilt_bytes, status.rebuild_bytes))
    assert "rebuilding the local copy: 62 %, 500 of 801 entries, 499.0 of about 800.1 MB" in caplog.messages
    assert any(rebuilding and 90e6 < done < total for rebuilding, done, total in seen)
    assert any("up to date at entry" in each for each in caplog.messages)
    assert not seen[-1][0]
    cluster.kill("b")
    for number in range(100):
        cluster.write("a", f"journal/{number}")
    again = cluster.start("b")
    again.node.step()  # connects, with a copy that has a part of the log
    again.node.step()
    status = again.node.status()
    assert (status.rebuilt_entries, status.rebuild_entries, status.rebuild_bytes) == (
        50,
        101,
        0,
    )  # with a beat
    assert rebuild_text(status) == "49 %, 50 of 101 entries, 0.0 MB"


def test_a_broker_that_dies_in_its_recovery_is_replaced():
    cluster = Cluster("a", "b", "c")
    cluster.run(1)
    for left in (2, 1):
        (active,) = cluster.active()
        cluster.kill(active)
        assert TIMEOUT - 0.5 <= cluster.run(20, until=lambda: bool(cluster.active())) <= TIMEOUT + 1
        assert len(cluster.brokers) == left


def test_a_full_log_is_taken_over_when_its_beats_make_room_and_waited_for_else(
    caplog,
):
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.run(5)
    cluster.write("a")
    cluster.kill("a")
    cluster.copies["a"].apply(cluster.engine.entries)
    cluster.engine.max_bytes = cluster.engine.bytes
    cluster.start("a")
    assert cluster.until_active("a") < 6
    cluster.kill("a")
    cluster.engine.purge(
        [each for each in cluster.engine.entries if each.sequence not in cluster.engine.purged]
    )
    cluster.engine.max_bytes = 0
    standby = cluster.start("a")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "stompring.replication.role"):
        cluster.run(120)
    assert standby.role is Role.STANDBY
    assert len([each for each in caplog.messages if each.endswith(": full")]) == 2, "once a minute"
    assert standby.node.status().fault == "full"
    cluster.engine.max_bytes = 1000
    cluster.until_active("a")


def test_requests_are_served_while_the_disk_thread_appends_without_a_pause():
    cluster = Cluster("a")
    cluster.until_active("a")
    node = cluster.brokers["a"].node
    node.log._appending = True
    cluster.brokers["a"].connection.request("leave", "")
    cluster.run(3)
    assert cluster.brokers["a"].callbacks.requests == [StepDown("leave")]


# ---- entries that the log has lost


def test_an_incomplete_copy_does_not_take_over_and_has_the_active_broker_check_the_log(
    caplog,
):
    cluster = Cluster("a")
    cluster.until_active("a")
    checks: list[bool] = []
    cluster.brokers["a"].node.check_log = lambda everything: not checks.append(everything)
    standby = cluster.start("b")
    cluster.run(5)
    assert checks == [False], "once after the takeover"
    cluster.copies["b"].missing = 7
    with caplog.at_level(logging.ERROR):
        cluster.run(9)
    assert "7 or more are missing in the local copy" in caplog.text
    assert standby.node.status().missing_entries == 7
    assert checks == [False, False]
    cluster.kill("a")
    cluster.engine.listens = False
    cluster.run(30)
    assert standby.role is Role.STANDBY
    cluster.copies["b"].missing = 0
    cluster.until_active("b")
    assert standby.node.status().missing_entries == 0


def test_a_copy_that_stays_incomplete_begins_anew_and_has_all_files_written_again():
    cluster = Cluster("a")
    cluster.until_active("a")
    checks: list[bool] = []
    cluster.brokers["a"].node.check_log = lambda everything: not checks.append(everything)
    cluster.start("b")
    cluster.run(5)
    copy = cluster.copies["b"]
    copy.missing = 7
    restarts: list[float] = []

    def restart(log, reason, /):
        restarts.append(cluster.clock.now)
        copy.sequence = 0

    copy.restart = restart
    cluster.run(60)
    assert checks[:3] == [False, False, True]
    assert len(restarts) == 2
    copy.missing = 0
    cluster.run(5)
    assert cluster.brokers["b"].node.status().missing_entries == 0


def test_entries_that_are_missing_for_a_moment_are_not_lost(caplog):
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.start("b")
    cluster.run(5)
    for number in range(1, 10):
        cluster.copies["b"].missing = number
        cluster.run(2)
    cluster.copies["b"].missing = 0
    cluster.run(2)
    assert "missing" not in caplog.text


def test_a_log_whose_last_entries_are_lost_is_not_taken_over_in_silence(
    caplog,
):
    cluster = Cluster("a")
    cluster.until_active("a")
    standby = cluster.start("b")
    cluster.run(5)
    standby.paused = True
    cluster.write("a")
    cluster.kill("a")
    cluster.engine.listens = False
    cluster.engine.purge(cluster.engine.entries[-1:])
    standby.paused = False
    standby.due = cluster.clock.now
    cluster.run(30)
    assert standby.role is Role.STANDBY
    assert "has lost entries" in caplog.text
    assert standby.node.status().missing_entries > 0


def test_a_new_leader_of_the_engine_has_the_log_checked():
    cluster = Cluster("a")
    checks: list[bool] = []
    cluster.brokers["a"].node.check_log = lambda everything: not checks.append(everything)
    cluster.until_active("a")
    cluster.run(5)
    assert checks == [False]
    cluster.engine.leader = "n2"
    cluster.run(5)
    assert checks == [False, False]


def test_beats_and_releases_say_what_the_log_holds():
    cluster = Cluster("a")
    cluster.until_active("a")
    log = cluster.brokers["a"].node.log
    for serial in (1, 2):
        log.append([FileChange(Operation.WHOLE, f"journal/{serial}", serial=serial)])
    log.append([FileChange(Operation.REMOVE, "journal/1", 1, b"%d" % weight(1), serial=3)])
    cluster.run(1)
    cluster.brokers["a"].node.release()
    found = [decode_beat(each.change.data) for each in cluster.engine.entries if each.change.key == BEATS]
    assert [beat.contents for beat in found] == [Summary(), *[Summary(3, 1, weight(2))] * (len(found) - 1)]
    assert len(found) > 2


def test_the_newest_beat_stays_when_others_make_room(caplog):
    cluster = Cluster("a")
    cluster.until_active("a")
    cluster.run(5)
    newest = cluster.engine.last
    cluster.engine.max_bytes = cluster.engine.bytes
    cluster.run(0.6)
    assert newest not in cluster.engine.purged
    assert len(cluster.engine.purged) >= newest - 2
