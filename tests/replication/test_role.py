"""The role of a broker in a replicated log, step by step on a simulated clock."""

import logging
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from stompring.replication.log import (
    BEATS,
    Beat,
    Fenced,
    FileChange,
    LogFull,
    LogUnavailable,
    Operation,
    Summary,
    decode_beat,
    encode_beat,
    weight,
)
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


@pytest.fixture
def cluster():
    """Its broker ``a`` is active."""
    cluster = Cluster("a")
    cluster.until_active("a")
    return cluster


@pytest.fixture
def a(cluster):
    return cluster.brokers["a"]


@pytest.fixture
def b(cluster):
    """A standby."""
    standby = cluster.start("b")
    cluster.run(1)
    return standby


@pytest.fixture
def checks(a):
    """What is asked for of each check of the log."""
    checks = []
    a.node.check_log = lambda everything: not checks.append(everything)
    return checks


def test_the_first_broker_of_an_empty_log_is_active_at_once():
    cluster = Cluster("a")
    assert cluster.until_active("a") < 0.5
    assert cluster.brokers["a"].callbacks.events == ["active"]
    assert cluster.brokers["a"].node.is_fresh()


def test_a_stopped_active_is_fenced_when_it_goes_on(cluster, a, b):
    a.paused = True
    cluster.until_active("b")
    assert not a.node.is_fresh()
    a.paused = False
    cluster.run(1)
    assert a.role is Role.FENCED
    assert a.callbacks.events[-1] == f"lost {EXIT_NOT_ACTIVE}"
    assert a.node.status().fenced == 1
    assert cluster.active() == ["b"]


def test_active_without_the_engine_is_suspended_before_a_standby_may_take_over(cluster, a):
    a.connection.cut = True
    cut_at = a.node.log.stored_at
    cluster.run(20, until=lambda: not a.node.is_fresh())
    assert cluster.clock.now - cut_at < TIMEOUT
    cluster.run(3)
    assert a.role is Role.SUSPENDED
    a.connection.cut = False
    cluster.run(3)
    assert a.callbacks.events == ["active", "suspended", "resumed"]
    assert a.node.is_fresh()


def test_no_takeover_during_an_outage_or_within_three_beats_after_it(cluster, b):
    cluster.kill("a")
    cluster.run(2.5)
    cluster.engine.set_down(True)
    cluster.run(60)
    assert cluster.active() == []
    cluster.engine.set_down(False)
    cluster.run(5, until=lambda: not b.node.status().fault)
    assert AFTER_OUTAGE - 0.2 <= cluster.until_active("b") <= AFTER_OUTAGE + 0.2


def test_active_stays_after_an_outage(cluster, b):
    for _ in range(5):
        cluster.engine.set_down(True)
        cluster.run(9)
        cluster.engine.set_down(False)
        cluster.run(6)
    assert cluster.active() == ["a"]


@pytest.mark.parametrize("successor", ["", "c"])
def test_release_leads_to_a_takeover_at_once_by_the_standby_it_names(cluster, a, successor):
    cluster.start("b")
    cluster.start("c")
    cluster.run(1)
    assert a.node.release("promote", successor)
    assert not a.node.is_fresh()
    assert cluster.until_one(5) < 0.5
    assert cluster.active() == ["c"] if successor else cluster.active()[0] in "bc"


def test_release_to_a_standby_that_is_gone_leads_to_a_takeover_by_another(cluster, a, b):
    a.node.release("promote", "gone")
    assert cluster.until_active("b") < 2.5


def test_a_released_broker_appends_nothing_more(cluster, a):
    a.node.release()
    with pytest.raises(Exception, match="released"):
        cluster.write("a")
    assert a.callbacks.events == ["active"]


def test_a_broker_that_was_asked_to_release_leaves_the_log_to_others_when_it_comes_back(cluster):
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


def test_brokers_that_all_fail_to_start_take_over_more_and_more_slowly(cluster, a, b, caplog):
    a.node.release(START_FAILED)
    cluster.start("a")
    waits = []
    for _ in range(7):
        waits.append(cluster.until_one(60))
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


def test_requests_reach_the_active_broker(cluster, a, b):
    b.connection.request("release b", "")
    b.connection.request("leave", "b")
    cluster.run(2)
    assert a.callbacks.requests == [StepDown("release", "b")]
    assert b.callbacks.requests == [StepDown("leave")]
    assert StepDown("leave").exit_code == 0 and StepDown("release").exit_code == EXIT_NOT_ACTIVE


def test_standby_of_a_busy_broker_is_up_to_date_and_answers_requests(cluster, monkeypatch):
    """There is a new entry at every look: the standby never reads nothing."""
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


def test_a_stalled_reactor_ends_the_beats_once_the_broker_is_ready(cluster, a, b):
    cluster.run(30)
    assert cluster.active() == ["a"], "a long recovery keeps the role"
    a.node.mark_ready()
    assert cluster.until_active("b") < 5 + TIMEOUT + 1
    assert a.role in (Role.SUSPENDED, Role.FENCED)


def test_beats_beyond_the_latest_are_purged(cluster):
    cluster.run(300)
    assert KEPT_BEATS <= len(cluster.engine.live) <= KEPT_BEATS + PURGED_BEATS + 5


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


def test_a_standby_that_cannot_write_its_copy_does_not_take_over(cluster, b, caplog):
    b.copy.fault = OSError(28, "No space left on device")
    cluster.run(1)
    cluster.kill("a")
    cluster.run(200)
    assert b.role is Role.STANDBY
    assert "No space left" in b.node.status().fault
    assert len([each for each in caplog.messages if "No space left" in each]) in (3, 4), "once a minute"
    b.copy.fault = None
    cluster.until_active("b")
    assert b.node.status().fault == ""


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


def test_status_of_a_standby_knows_the_active_broker_and_the_lag(cluster, b):
    cluster.run(2)
    b.paused = True
    cluster.write("a", data=bytes(1000))
    cluster.run(2)
    node = b.node
    node._status_tried_at = 0
    node._measure_lag()
    status = node.status()
    assert status.active.broker == "a"
    assert status.lag_entries >= 4 and status.lag_bytes >= 1000 and 1 <= status.lag_seconds <= 3
    b.paused = False
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
    broker = Broker(SimulatedEngine(SimulatedClock()), "a", SimulatedCopy())
    thread = NodeThread(broker.node)
    thread.start()
    deadline = time.monotonic() + 60
    while broker.role is not Role.ACTIVE and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    assert broker.callbacks.events == ["active"]


def test_beats_do_not_pile_up_during_an_outage(cluster):
    cluster.engine.set_down(True)
    cluster.run(600)
    last = cluster.engine.last
    cluster.engine.set_down(False)
    cluster.run(3)
    assert cluster.engine.last - last < 10


@pytest.mark.parametrize("call", ["append", "appended"])
def test_active_that_was_stopped_in_an_append_is_not_fresh_when_it_goes_on(cluster, b, a, call):

    def stop(reached):
        if reached == call:
            a.connection.interrupt = lambda call: None
            a.paused = True
            cluster.until_active("b")

    a.connection.interrupt = stop
    with suppress(Fenced):
        cluster.write("a")
    assert b.node.is_fresh()
    assert not a.node.is_fresh()


def test_active_that_settles_an_old_append_is_not_fresh_by_that(cluster, a, b):
    a.connection.lost_answers = 1
    with pytest.raises(LogUnavailable):
        cluster.write("a")
    a.paused = True
    cluster.run(2.6)
    a.node.log.append([])
    assert not a.node.is_fresh()


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


def test_a_standby_that_was_stopped_does_not_count_the_time_as_silence(cluster, b):
    cluster.kill("a")
    cluster.run(1)
    b.paused = True
    cluster.run(20)
    b.paused = False
    assert cluster.until_active("b") >= AFTER_OUTAGE - 0.1


def test_a_copy_that_begins_anew_is_rebuilt_before_the_takeover(cluster, b):
    cluster.write("a", data=b"kept")
    b.copy.gap = True
    cluster.run(1)
    cluster.kill("a")
    cluster.until_active("b")
    assert b.copy.files == {"journal/1": b"kept"}
    assert b.node.status().last_takeover.reason.startswith("no entry for 3.")


def test_a_rebuild_reports_its_progress(cluster, a, caplog):
    data = bytes(1_000_000)
    for number in range(800):
        cluster.write("a", f"journal/{number}", data)
    standby = cluster.start("b")
    seen = []
    with caplog.at_level(logging.INFO, "stompring.replication.role"):
        for _ in range(100):
            cluster.run(0.001)
            cluster.clock.now += 1
            a.node.step()
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


def test_a_full_log_is_taken_over_when_its_beats_make_room_and_waited_for_else(cluster, caplog):
    cluster.run(5)
    cluster.write("a")
    cluster.kill("a")
    cluster.copies["a"].apply(cluster.engine.entries)
    cluster.engine.max_bytes = cluster.engine.bytes
    cluster.start("a")
    assert cluster.until_active("a") < 6
    cluster.kill("a")
    cluster.engine.purge(cluster.engine.live)
    cluster.engine.max_bytes = 0
    standby = cluster.start("a")
    caplog.clear()
    cluster.run(120)
    assert standby.role is Role.STANDBY
    assert len([each for each in caplog.messages if each.endswith(": full")]) == 2, "once a minute"
    assert standby.node.status().fault == "full"
    cluster.engine.max_bytes = 1000
    cluster.until_active("a")


def test_requests_are_served_while_the_disk_thread_appends_without_a_pause(cluster, a):
    a.node.log._appending = True
    a.connection.request("leave", "")
    cluster.run(3)
    assert a.callbacks.requests == [StepDown("leave")]


# ---- entries that the log has lost


def test_an_incomplete_copy_does_not_take_over_and_has_the_active_broker_check_the_log(
    cluster, checks, b, caplog
):
    assert checks == [False], "once after the takeover"
    b.copy.missing = 7
    cluster.run(9)
    assert "7 or more are missing in the local copy" in caplog.text
    assert b.node.status().missing_entries == 7
    assert checks == [False, False]
    cluster.kill("a")
    cluster.engine.listens = False
    cluster.run(30)
    assert b.role is Role.STANDBY
    b.copy.missing = 0
    cluster.until_active("b")
    assert b.node.status().missing_entries == 0


def test_a_copy_that_stays_incomplete_begins_anew_and_has_all_files_written_again(cluster, checks, b):
    b.copy.missing = 7
    restarts = []

    def restart(log, reason, /):
        restarts.append(cluster.clock.now)
        b.copy.sequence = 0

    b.copy.restart = restart
    cluster.run(60)
    assert checks[:3] == [False, False, True]
    assert len(restarts) == 2
    b.copy.missing = 0
    cluster.run(5)
    assert b.node.status().missing_entries == 0


def test_entries_that_are_missing_for_a_moment_are_not_lost(cluster, b, caplog):
    for number in range(1, 10):
        b.copy.missing = number
        cluster.run(2)
    b.copy.missing = 0
    cluster.run(2)
    assert "missing" not in caplog.text


def test_a_log_whose_last_entries_are_lost_is_not_taken_over_in_silence(cluster, b, caplog):
    b.paused = True
    cluster.write("a")
    cluster.kill("a")
    cluster.engine.listens = False
    cluster.engine.purge(cluster.engine.entries[-1:])
    b.paused = False
    b.due = cluster.clock.now
    cluster.run(30)
    assert b.role is Role.STANDBY
    assert "has lost entries" in caplog.text
    assert b.node.status().missing_entries > 0


def test_a_new_leader_of_the_engine_has_the_log_checked(cluster, checks):
    cluster.run(5)
    assert checks == [False]
    cluster.engine.leader = "n2"
    cluster.run(5)
    assert checks == [False, False]


def test_beats_and_releases_say_what_the_log_holds(cluster, a):
    log = a.node.log
    for serial in (1, 2):
        log.append([FileChange(Operation.WHOLE, f"journal/{serial}", serial=serial)])
    log.append([FileChange(Operation.REMOVE, "journal/1", 1, b"%d" % weight(1), serial=3)])
    cluster.run(1)
    a.node.release()
    found = [decode_beat(each.change.data) for each in cluster.engine.entries if each.change.key == BEATS]
    assert [beat.contents for beat in found] == [Summary(), *[Summary(3, 1, weight(2))] * (len(found) - 1)]
    assert len(found) > 2


def test_the_newest_beat_stays_when_others_make_room(cluster, caplog):
    cluster.run(5)
    newest = cluster.engine.last
    cluster.engine.max_bytes = cluster.engine.bytes
    cluster.run(0.6)
    assert newest not in cluster.engine.purged
    assert len(cluster.engine.purged) >= newest - 2
