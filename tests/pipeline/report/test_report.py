"""A whole report from tables in Spark, beside what plain Python counts."""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from .browser import Browser, chromium
from .plain import HOSTILE, RESTART, SECONDS, T0, PlainBroker, emptied, simulated

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker() -> PlainBroker:
    return PlainBroker()


@pytest.fixture(scope="module")
def lake(spark: Any, broker: PlainBroker, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tables as Parquet files, as they are in a lake."""
    import pyarrow as pa
    from pyarrow import parquet

    from stompring.pipeline.report import Lake

    directory = tmp_path_factory.mktemp("lake")
    time = pa.timestamp("us", "UTC")
    types = {"timestamp": time, "time": time, "due": time, "body": pa.binary(), "durable": pa.bool_()}
    types |= dict.fromkeys(("address", "queue", "event", "consumer"), pa.string()) | {
        "deliveries": pa.int32()
    }
    tables = []
    for name in ("messages", "events", "samples"):
        rows = getattr(broker, name)
        schema = pa.schema([(column, types.get(column, pa.int64())) for column in rows[0]])
        parquet.write_table(pa.Table.from_pylist(rows, schema), directory / f"{name}.parquet")
        tables.append(spark.read.parquet(str(directory / f"{name}.parquet")))
    return Lake(*tables)


@pytest.fixture(scope="module")
def found(lake: Any) -> Any:
    from stompring.pipeline.report.findings import Wish, gather
    from stompring.pipeline.report.period import Period

    return gather(lake, Wish(Period(), (), 90.0, 75.0), lambda stage: None)


def expected_ages(ages: list[int]) -> list[float]:
    """Percentiles of whole seconds, in bins as the report has them."""
    ranks = [max(1, math.ceil(len(ages) * each / 100 - 1e-9)) for each in (50, 90, 99, 99.9)]
    chosen = [sorted(ages)[rank - 1] for rank in ranks]
    bins = [math.floor(math.log(each * 1e6) * 50) if each else -1 for each in chosen]
    middles = [math.exp((each + 0.5) / 50) / 1e6 if each >= 0 else 0.0 for each in bins]
    return [min(each, max(ages)) for each in middles]


def test_counters_lose_nothing_at_a_restart(found: Any, broker: PlainBroker) -> None:
    truth = Counter((queue, event) for _, queue, event, *_ in broker.happened)
    for queue in found.traffic:
        told = {name: getattr(queue, name) for name in ("added", "acknowledged", "killed", "replaced")}
        assert told == {name: truth[queue.queue, name] for name in told}
    assert sum(found.totals["added"]) == sum(count for (_, event), count in truth.items() if event == "added")
    assert min(found.totals["added"]) >= 0


def test_rates_are_in_their_steps(found: Any, broker: PlainBroker) -> None:
    def step(second: int) -> int:
        """Of the sample that saw it."""
        seen = RESTART if second < RESTART <= second // 10 * 10 + 10 else second // 10 * 10 + 10
        return int(min(seen, SECONDS) // found.grid.seconds)

    expected = Counter(step(second) for second, _, event, *_ in broker.happened if event == "added")
    assert found.totals["added"].tolist() == [expected[at] for at in range(found.grid.count)]


@pytest.mark.parametrize("queue", ["orders", HOSTILE, "metrics", "bulk", "late"])
def test_depth(found: Any, broker: PlainBroker, queue: str) -> None:
    samples = list(broker.depths(queue))
    expected = []
    for at in range(found.grid.count):
        begin, end = at * found.grid.seconds, (at + 1) * found.grid.seconds
        before = [messages for time, messages in samples if time < begin][-1:]
        expected.append(
            max(before + [messages for time, messages in samples if begin <= time < end], default=math.nan)
        )
    assert found.series[queue].depth.tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("queue", ["orders", HOSTILE, "bulk", "late"])
def test_latencies(found: Any, broker: PlainBroker, queue: str) -> None:
    ages = broker.of("acknowledged", queue)
    told = found.latencies[queue]
    assert (told.count, told.longest) == (len(ages), max(age for _, age in ages))
    assert told.percentiles == pytest.approx(expected_ages([age for _, age in ages]))
    steps: dict[int, list[int]] = {}
    for second, age in ages:
        steps.setdefault(int(second // found.hours.seconds), []).append(age)
    assert {step: one.count for step, one in found.latency_steps[queue].items()} == {
        step: len(each) for step, each in steps.items()
    }
    for step, one in found.latency_steps[queue].items():
        assert one.percentiles == pytest.approx(expected_ages(steps[step]))


def test_ages_of_what_was_thrown_away(found: Any, broker: PlainBroker) -> None:
    ages = [age for _, age in broker.of("replaced", HOSTILE)]
    assert list(found.evicted) == [HOSTILE]  # of `metrics`, which is not durable, nobody knows them
    assert found.evicted[HOSTILE].count == len(ages) > 10
    assert found.evicted[HOSTILE].percentiles == pytest.approx(expected_ages(ages))


def test_hot_spots(found: Any, broker: PlainBroker) -> None:
    events = [(row["queue"], row["event"]) for row in broker.events]
    assert {
        (queue, event): n for queue, kinds in found.counts.items() for event, n in kinds.items()
    } == Counter(events)
    assert found.deliveries == {"orders": 4}
    again = Counter(number for _, _, event, number, _ in broker.happened if event == "redelivered")
    best = sorted(((-n, number) for number, n in again.items() if n > 1))[:15]
    assert [(-one.redelivered, one.message_id) for one in found.hottest] == best
    for event in ("redelivered", "dead-lettered"):
        expected = Counter(second // found.grid.seconds for second, _ in broker.of(event, "orders"))
        assert found.hot_steps[event]["orders"].tolist() == [expected[at] for at in range(found.grid.count)]


def test_what_may_never_have_come_back_is_not_counted(spark: Any, lake: Any) -> None:
    from stompring.pipeline.report import Lake
    from stompring.pipeline.report.period import Period
    from stompring.pipeline.report.tables import select

    rows = [("redelivered", True), ("redelivered", False), ("redelivered", None), ("acknowledged", True)]
    others = ("timestamp'2026-01-01' as time", "'q' as queue", "1L as message_id", "null as page")
    events = spark.createDataFrame(rows, "event string, certain boolean").selectExpr(
        "*", *others, "1 as deliveries"
    )

    def counted(events: Any) -> list[str]:
        return sorted(
            row.event
            for row in select(Lake(lake.messages, events, lake.samples), Period(), []).events.collect()
        )

    assert counted(events) == ["acknowledged", "redelivered"]
    assert counted(events.drop("certain")) == ["acknowledged"] + ["redelivered"] * 3


def test_advice_for_a_ring_of_durable_messages_is_that_of_a_simulation(
    found: Any, broker: PlainBroker
) -> None:
    advice = next(one for one in found.rings if one.ring.queue == HOSTILE)
    flow = broker.flow(HOSTILE)
    clear = emptied(flow, 3)
    lost = simulated(flow, 3, 0)
    assert advice.by_events
    assert advice.modelled == lost > 10
    allowed = math.floor(lost * 0.1 + 1e-9)
    assert simulated(flow, advice.size, 0, clear) <= allowed < simulated(flow, advice.size - 1, 0, clear)
    assert simulated(flow, advice.enough, 0, clear) == 0 < simulated(flow, advice.enough - 1, 0, clear)
    for size, kept in zip(advice.sizes.tolist(), advice.kept.tolist(), strict=True):
        assert kept == pytest.approx(1 - simulated(flow, size, 0, clear) / lost)


def test_advice_for_a_ring_of_others_is_from_its_samples(found: Any, broker: PlainBroker) -> None:
    advice = next(one for one in found.rings if one.ring.queue == "metrics")
    assert not advice.by_events
    flow = broker.flow("metrics")
    ends = [*range(0, SECONDS + 1, 10)]
    sampled = [tuple(map(sum, zip(*flow[a:b], strict=True))) for a, b in zip(ends, ends[1:], strict=False)]
    pairs = [(came, went) for came, went in sampled]
    clear = emptied(pairs, 5)
    assert advice.modelled == simulated(pairs, 5, 0)
    allowed = math.floor(advice.modelled * 0.1 + 1e-9)
    assert simulated(pairs, advice.size, 0, clear) <= allowed
    assert advice.size == 5 or simulated(pairs, advice.size - 1, 0, clear) > allowed


def test_advice_for_an_address_that_paged(found: Any, broker: PlainBroker) -> None:
    rows = [row for row in broker.samples if row["queue"] == "bulk"]
    average = sum(row["size"] for row in rows) / sum(row["messages"] - row["paged"] for row in rows)
    seconds = [(row["time"] - T0).total_seconds() for row in rows]
    lasted = [b - a for a, b in zip(seconds, [*seconds[1:], SECONDS], strict=True)]
    held = [row["size"] + row["paged"] * average for row in rows]
    (advice,) = found.addresses
    assert advice.held.address == "bulk.in"
    assert advice.held.average == pytest.approx(average)
    assert advice.enough == math.ceil(max(held))
    share = sum(time for time, each in zip(lasted, held, strict=True) if each <= advice.size) / sum(lasted)
    less = sum(time for time, each in zip(lasted, held, strict=True) if each < advice.size - 1) / sum(lasted)
    assert less < 0.752 and share > 0.748  # buckets are a third of a second long
    paging = sum(time for time, row in zip(lasted, rows, strict=True) if row["paged"]) / sum(lasted)
    assert advice.paging == pytest.approx(paging, abs=0.002)


def test_an_address_whose_pages_were_read_back_before_a_sample_has_paged(lake: Any, found: Any) -> None:
    from pyspark.sql import functions as F

    from stompring.pipeline.report import Lake
    from stompring.pipeline.report.findings import Wish, gather
    from stompring.pipeline.report.period import Period

    paged = {one.held.address for one in found.addresses}
    queue = next(one for one in found.traffic if one.address not in paged and one.queue in found.counts)
    page = F.when(F.col("queue") == queue.queue, F.lit(7)).cast("bigint")
    told = Lake(lake.messages, lake.events.withColumn("page", page), lake.samples)
    again = gather(told, Wish(Period()), lambda stage: None)
    assert again is not None
    assert {one.held.address for one in again.addresses} == paged | {queue.address}


def test_a_period_and_addresses(lake: Any, broker: PlainBroker, tmp_path: Path) -> None:
    from stompring.pipeline.report.findings import Wish, gather
    from stompring.pipeline.report.period import Period

    since, until = T0 + timedelta(seconds=3000), T0 + timedelta(seconds=6000)
    found = gather(lake, Wish(Period(since, until), ("bulk.#", "late")), lambda stage: None)
    assert found is not None
    assert {one.queue for one in found.traffic} == {"bulk", "late"} == set(found.latencies)
    bulk = next(one for one in found.traffic if one.queue == "bulk")
    # Of the sample at 3000 s on: it tells of the ten seconds before it.
    assert bulk.added == sum(2990 <= second < 5990 for second, _ in broker.of("added", "bulk"))
    ages = [age for second, age in broker.of("acknowledged", "bulk") if 3000 <= second < 6000]
    assert found.latencies["bulk"].count == len(ages)
    assert found.latencies["bulk"].longest == max(ages)
    assert not found.rings


def test_a_file_is_written_whole_or_not_at_all(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stompring.pipeline.report import Period, write, write_report

    out = tmp_path / "report.html"
    stages: list[str] = []
    none = Period(T0 + timedelta(days=400))
    assert not write_report(lake, out, none, progress=stages.append)
    assert "There is nothing in the lake" in out.read_text(encoding="utf-8")
    assert stages[0] == "reading the period" and stages[-1] == "page"
    before = out.read_bytes()
    monkeypatch.setattr(write.os, "replace", lambda *names: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_report(lake, out, none)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert out.read_bytes() == before


@pytest.mark.parametrize("wrong", [{"keep": 0.0}, {"keep": 101.0}, {"unpaged": -1.0}])
def test_shares_that_cannot_be(lake: Any, tmp_path: Path, wrong: dict[str, float]) -> None:
    from stompring.pipeline.report import write_report

    with pytest.raises(ValueError, match=next(iter(wrong))):
        write_report(lake, tmp_path / "report.html", **wrong)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def written(found: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from stompring.pipeline.report.page import page

    out = tmp_path_factory.mktemp("page") / "report.html"
    out.write_text(page(found, found.wish, T0), encoding="utf-8")
    return out


def test_nothing_is_empty_that_is_not(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert 'class="empty"' not in text
    assert text.count("<svg viewBox") > 10
    assert "<script" not in text


def test_it_needs_no_other_file(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert not re.findall(r"\b(?:src|srcset|poster)=|@import|url\((?!#)", text)
    assert set(re.findall(r'\bhref="([^"]*)"', text)) <= {"data:,"} | {
        f"#{anchor}" for anchor in re.findall(r'\bid="([^"]*)"', text)
    }


@pytest.mark.skipif(chromium() is None, reason="there is no chromium")
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_a_browser_shows_it(written: Path, tmp_path: Path, width: int, height: int) -> None:
    seen = Browser(tmp_path).seen(written, width, height)
    assert seen["width"] <= width  # nothing is wider than the screen
    assert seen["scripts"] == 0
    assert seen["plots"] > 10
    assert seen["wide"] == []
    assert seen["title"] == "stompring report, 2026-07-01 to 2026-07-01"
    assert HOSTILE in seen["text"]
    assert seen["letters"] > 7.5  # px of the smallest text in a plot


@pytest.mark.skipif(chromium() is None, reason="there is no chromium")
def test_it_can_be_printed(written: Path, tmp_path: Path) -> None:
    pdf = Browser(tmp_path).printed(written)
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 3 < pages < 40
