"""What a standby of a replicated log says of itself and of its clock."""

from dataclasses import replace

import pytest
from twisted.internet.task import Clock

from stompring.replication.log import Beat
from stompring.replication.role import Role
from stompring.server.standby import MAX_SKEW, NAMESAKE_BEATS, Liveness, Namesake, clock_skew, standby_reason

from ..admin.test_ha import STANDBY
from .test_disk_monitor import SlowDisk

STATUS = replace(STANDBY, rebuilding=False, lag_entries=0, active=Beat("a"), active_time=1_000_000)


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"role": Role.CONNECTING}, "connecting to the replicated log s"),
        (
            {"missing_entries": 7},
            "following the replicated log s, which has lost 7 or more entries that are missing here: no takeover until "
            "they are written again",
        ),
        ({"role": Role.CONNECTING, "fault": "no answer"}, "connecting to the replicated log s: no answer"),
        ({"fault": "no majority"}, "waiting for the replicated log s: no majority"),
        ({"rebuilding": True}, "reading the replicated log s"),
        ({"active": None}, "following the replicated log s, which has no active broker"),
        ({}, "following the replicated log s, whose active broker is a"),
    ],
)
def test_standby_says_what_it_waits_for(changes, reason):
    assert standby_reason(replace(STATUS, **changes), "s") == reason


@pytest.mark.parametrize(
    "changes, wall, skew",
    [
        ({}, 1000.0, None),
        ({}, 1000.0 + MAX_SKEW, None),
        ({}, 1060.0, 60.0),
        ({}, 940.0, -60.0),
        ({"rebuilding": True}, 1060.0, None),
        ({"lag_entries": 3}, 1060.0, None),
        ({"fault": "no majority"}, 1060.0, None),  # the beat is old, not the clock wrong
        ({"active": None}, 1060.0, None),
    ],
)
def test_clock_that_differs_from_the_one_of_the_log_is_noticed(changes, wall, skew):
    assert clock_skew(replace(STATUS, **changes), wall) == skew


OWN = Beat("b", "node1", 100, 5_000)


def warnings_of_beats(caplog, active, **changes):
    """What a standby logs that sees so many beats of ``active`` come."""
    namesake = Namesake(OWN, "s")
    for number in range(NAMESAKE_BEATS * 3):
        status = replace(STATUS, active=active, active_time=1_000 + number, **changes)
        namesake.check(status)
        namesake.check(status)
    return [each.getMessage() for each in caplog.records]


@pytest.mark.parametrize(
    "other", [Beat("b", "node2", 100, 5_000), Beat("b", "node1", 101, 5_000), Beat("b", "node1", 100, 6_000)]
)
def test_active_broker_with_the_name_of_the_standby_is_reported_once(caplog, other):
    (text,) = warnings_of_beats(caplog, other)
    assert text.startswith("two brokers of the replicated log s have the name b: ")
    assert f"process {other.pid} on {other.host}" in text and "process 100 on node1" in text


@pytest.mark.parametrize(
    "active, changes",
    [
        (Beat("a", "node2", 7, 7), {}),
        (OWN, {}),
        (None, {}),
        (Beat("b", "node2", 7, 7), {"rebuilding": True}),  # the beats may be old
        (Beat("b", "node2", 7, 7), {"role": Role.CONNECTING}),
    ],
)
def test_other_names_and_old_beats_are_no_reason_for_a_warning(caplog, active, changes):
    assert warnings_of_beats(caplog, active, **changes) == []


def test_last_beats_of_the_own_predecessor_are_no_reason_for_a_warning(caplog):
    namesake = Namesake(OWN, "s")
    for number in range(NAMESAKE_BEATS):
        namesake.check(replace(STATUS, active=Beat("b", "node1", 99, 1), active_time=1_000 + number))
    assert not caplog.records


def test_node_is_touched_only_while_the_disk_completes_jobs():
    clock, disk = Clock(), SlowDisk()
    touched = []
    checked = []
    liveness = Liveness(
        clock, disk, lambda: touched.append(clock.seconds()), lambda: checked.append(clock.seconds())
    )

    def run(seconds, hangs=False):
        for _ in range(seconds * 2):
            if not hangs:
                disk.finish()
            clock.advance(0.5)

    liveness.start()
    run(5)
    assert len(touched) == 10
    run(20, hangs=True)
    assert len(touched) == 10 and len(checked) == 51
    run(5)
    assert len(touched) == 20, "one job waited, not forty"
    liveness.stop()
    assert not clock.getDelayedCalls()
