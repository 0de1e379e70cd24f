"""What the programs make of their measurements."""

import pytest

from benchmarks import before_after, deep_queue, disk, whole_broker
from benchmarks.brokers import BROKERS, FLOORS
from benchmarks.cases import CASES
from benchmarks.parts import PARTS
from benchmarks.results import Results, Run
from benchmarks.targets import TARGETS, Target, verdict


def numbers(rate, cpu, sent=1000, received=1000):
    return {"msgs_per_s": rate, "broker_cpu_s": cpu, "sent": sent, "received": received}


def measured(*runs, **more):
    return Results(runs=[Run(*run) for run in runs], **more)


def rates(case, brokers, rates):
    """Rounds with the rate of each broker."""
    return measured(
        *(
            (case, broker, at, numbers(rate, 1))
            for at, both in enumerate(rates, 1)
            for broker, rate in zip(brokers, both, strict=True)
        )
    )


@pytest.mark.parametrize(
    "found, limit, below, expected",
    [
        (0.95, 0.95, False, "reached: 0.95"),
        (0.94, 0.95, False, "MISSED: 0.94"),
        (1.3, 1.3, True, "reached: 1.30"),
        (1.31, 1.3, True, "MISSED: 1.31"),
    ],
)
def test_a_verdict(found, limit, below, expected):
    assert verdict(found, limit, below) == expected


def test_a_target_compares_medians():
    results = rates("auto", ("stompring", "rabbitmq"), [(10, 3), (30, 1), (20, 2)])
    assert Target("auto", "rabbitmq", 10).verdict(results) == "reached: 10.00"
    assert Target("auto", "activemq", 10).verdict(results) == "not measured: auto was not run on activemq"


def test_a_target_without_a_peer_limits_the_figure_itself():
    results = measured(("start", "stompring", 1, {"start_s": 1.5}))
    assert Target("start", None, 2, field="start_s", below=True).verdict(results) == "reached: 1.50"
    assert Target("start", None, 1, field="start_s", below=True).verdict(results) == "MISSED: 1.50"


@pytest.mark.parametrize(
    "target, reason",
    [
        (Target("auto", "rabbitmq", 1), "rabbitmq: not installed"),
        (Target("drain", None, 1, field="p99_us"), "left out by --only"),
        (Target("fan-out", "rabbitmq", 1), "fan-out on stompring failed: lost"),
    ],
)
def test_a_target_that_was_not_measured_has_the_reason(target, reason):
    results = measured(
        ("auto", "stompring", 1, numbers(1, 1)),
        ("fan-out", "stompring", 1, {}, "lost\nits connection"),
        skipped={"rabbitmq": "not installed"},
        left_out={"drain": "left out by --only"},
    )
    assert target.verdict(results) == f"not measured: {reason}"


def test_every_target_names_a_case_and_a_broker():
    assert {target.case for target in TARGETS} <= {*CASES, *PARTS, "held-memory"}
    assert {target.peer for target in TARGETS} <= {None, *BROKERS, *FLOORS}


def test_results_are_read_as_they_were_written(tmp_path):
    results = measured(
        ("auto", "stompring", 1, numbers(10, 1)),
        ("tls", "stompring", 1, {}, "no TLS"),
        left_out={"drain": "no time"},
    )
    results.save(tmp_path / "deeper/bench.json")
    assert Results.load(tmp_path / "deeper/bench.json") == results


def test_results_of_another_format_are_refused(tmp_path):
    (tmp_path / "old.json").write_text('{"format": 1, "runs": []}')
    with pytest.raises(ValueError, match="format 1 is not 2"):
        Results.load(tmp_path / "old.json")


def test_the_plan_shares_what_the_parts_leave():
    plan = whole_broker.Plan(runs=100, warm=60.0, parts=120.0)
    assert plan.minutes(plan.seconds_of_a_run(10)) == pytest.approx(10)
    assert plan.seconds_of_a_run(1) == whole_broker.SHORTEST


def test_a_case_runs_only_where_it_can():
    def of(case):
        kinds = BROKERS | FLOORS
        return [name for name, kind in kinds.items() if whole_broker.runs_on(CASES[case], name, kind)]

    assert of("auto") == ["stompring", "rabbitmq", "activemq", "artemis", "relay", "nats-server"]
    assert of("websocket") == ["stompring"]
    assert of("tls") == ["stompring", "relay"]
    assert of("selector") == ["stompring", "activemq", "artemis"]
    assert of("receipts") == ["stompring", "rabbitmq", "activemq", "artemis"]


def test_what_a_message_costs_counts_those_sent_where_nobody_consumes():
    results = measured(
        ("durable-held", "stompring", 1, numbers(1, 0.5, received=0)),
        ("fan-out", "stompring", 1, numbers(1, 0.5, sent=100)),
    )
    assert results.costs("durable-held", "stompring") == [500.0]
    assert results.costs("fan-out", "stompring") == [500.0]


def test_before_and_after_are_compared_within_a_round():
    found = rates("auto", (before_after.BEFORE, before_after.AFTER), [(100, 90), (200, 180), (50, 50)])
    assert found.paired("auto", before_after.BEFORE, before_after.AFTER) == pytest.approx((0.9, 1.0))
    assert "MISSED" in before_after.table(found, [CASES["auto"]])


def test_a_failed_run_is_no_comparison():
    results = measured(
        ("auto", before_after.BEFORE, 1, numbers(1, 1)), ("auto", before_after.AFTER, 1, {}, "lost")
    )
    assert results.paired("auto", before_after.BEFORE, before_after.AFTER) is None
    assert "not measured" in before_after.table(results, [CASES["auto"]])


def passage(**found):
    steps = [deep_queue.Step(10 * n, rate, 0, 0) for n, rate in enumerate((100.0, 80.0, 90.0), 1)]
    return deep_queue.Passage(found, steps)


def test_flatness_is_that_of_the_slowest_step():
    assert passage().flatness == pytest.approx(0.8)


def test_what_came_out_wrong_is_named():
    good = passage(sent=5, received=5, distinct=5, repeated=0, disordered=0)
    assert deep_queue.faults(5, good, good) == []
    bad = passage(sent=5, received=5, distinct=4, repeated=1, disordered=2)
    found = deep_queue.faults(5, good, bad)
    assert found == ["distinct is 4 and not 5", "repeated is 1 and not 0", "disordered is 2 and not 0"]


def test_what_a_directory_takes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.page").write_bytes(b"x" * 100_000)
    (tmp_path / "sparse").write_bytes(b"")
    with (tmp_path / "sparse").open("r+b") as file:
        file.truncate(10_000_000)
    assert 100_000 <= disk.used(tmp_path) < 1_000_000
    assert [path.name for path in disk.files(tmp_path, "*.page")] == ["1.page"]
    disk.forget(tmp_path)
    assert (tmp_path / "a/1.page").read_bytes() == b"x" * 100_000


def test_the_disk_alone(tmp_path):
    found = disk.sync_time(tmp_path, 0.05)
    assert found.count >= 1 and found.mean > 0 and found.median > 0
    assert list(tmp_path.iterdir()) == []
