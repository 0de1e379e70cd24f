"""A whole report from tables in Spark, beside what plain Python counts."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import math
import os
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

from stompring.pipeline.report import Lake, findings, write_report
from stompring.pipeline.report.findings import ReportRequest, gather
from stompring.pipeline.report.page import HEADLINE, page, page_sections
from stompring.pipeline.report.plots import MAX_LINES
from stompring.pipeline.report.queries import Period

from .browser import Browser, chromium
from .reference_broker import HOSTILE, RESTART, SECONDS, T0, PlainBroker, emptied, simulated

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker():
    return PlainBroker()


@pytest.fixture(scope="module")
def lake(spark, broker, tmp_path_factory):
    """The tables as Parquet files, as they are in a lake."""

    directory = tmp_path_factory.mktemp("lake")
    time = pa.timestamp("us", "UTC")
    types = {"timestamp": time, "time": time, "due": time, "body": pa.binary(), "durable": pa.bool_()}
    types |= dict.fromkeys(("address", "queue", "event", "consumer", "user"), pa.string()) | {
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
def found(lake):

    return gather(lake, ReportRequest(Period(), (), 90.0, 75.0), lambda stage: None)


def expected_ages(ages):
    """Percentiles of whole seconds, in bins as the report has them."""
    ranks = [max(1, math.ceil(len(ages) * each / 100 - 1e-9)) for each in (50, 90, 99, 99.9)]
    chosen = [sorted(ages)[rank - 1] for rank in ranks]
    bins = [math.floor(math.log(each * 1e6) * 50) if each else -1 for each in chosen]
    middles = [math.exp((each + 0.5) / 50) / 1e6 if each >= 0 else 0.0 for each in bins]
    return [min(each, max(ages)) for each in middles]


def are_of(told, ages):
    assert (told.count, told.longest) == (len(ages), max(ages))
    assert told.percentiles == pytest.approx(expected_ages(ages))


def test_counters_lose_nothing_at_a_restart(found, broker):
    truth = Counter((queue, event) for _, queue, event, *_ in broker.happened)
    for queue in found.traffic:
        told = {name: getattr(queue, name) for name in ("added", "acknowledged", "killed", "replaced")}
        assert told == {name: truth[queue.queue, name] for name in told}
    assert sum(found.totals["added"]) == sum(count for (_, event), count in truth.items() if event == "added")
    assert min(found.totals["added"]) >= 0


def test_rates_are_in_their_steps(found, broker):
    def step(second):
        """Of the sample that saw it."""
        seen = RESTART if second < RESTART <= second // 10 * 10 + 10 else second // 10 * 10 + 10
        return int(min(seen, SECONDS) // found.grid.seconds)

    expected = Counter(step(second) for second, _, event, *_ in broker.happened if event == "added")
    assert found.totals["added"].tolist() == [expected[at] for at in range(found.grid.count)]


@pytest.mark.parametrize("queue", ["orders", HOSTILE, "metrics", "bulk", "late"])
def test_depth(found, broker, queue):
    samples = list(broker.depths(queue))
    assert found.series[queue].depth.tolist() == pytest.approx(most_of_steps(found, samples), nan_ok=True)


def most_of_steps(found, samples):
    """The most in each step, which begins with the last sample before it."""
    most = []
    for at in range(found.grid.count):
        begin, end = at * found.grid.seconds, (at + 1) * found.grid.seconds
        before = [number for time, number in samples if time < begin][-1:]
        within = [number for time, number in samples if begin <= time < end]
        most.append(max(before + within, default=math.nan))
    return most


@pytest.mark.parametrize("queue", ["orders", HOSTILE, "bulk", "late"])
def test_latencies(found, broker, queue):
    ages = broker.of("acknowledged", queue)
    are_of(found.latencies[queue], [age for _, age in ages])
    steps = {}
    for second, age in ages:
        steps.setdefault(int(second // found.hours.seconds), []).append(age)
    assert found.latency_steps[queue].keys() == steps.keys()
    for step, one in found.latency_steps[queue].items():
        are_of(one, steps[step])


def test_ages_of_what_was_thrown_away(found, broker):
    ages = [age for _, age in broker.of("replaced", HOSTILE)]
    assert list(found.evicted) == ["alone", HOSTILE]  # of `metrics`, which is not durable, nobody knows them
    assert len(ages) > 10
    are_of(found.evicted[HOSTILE], ages)


def test_hot_spots(found, broker):
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


def test_a_queue_that_nobody_reads_gets_no_advice_for_a_larger_ring(found, broker):
    came = {queue: len(broker.of("added", queue)) for queue in ("alone", "unread")}
    assert [(one.queue, one.added) for one in found.unread] == [
        ("alone", came["alone"]),
        ("unread", came["unread"]),
    ]
    alone = found.unread[0]
    assert alone.replaced == len(broker.of("replaced", "alone")) == came["alone"] - 4 > 1000
    assert {one.ring.queue for one in found.rings} == {HOSTILE, "metrics"}


def test_what_the_lake_does_not_have_is_counted_over_a_restart(found, broker):
    came = Counter(queue for _, queue, event, *_ in broker.happened if event == "added")
    covered = Counter(row["queue"] for row in broker.events if row["event"] == "added")
    assert {one.queue: (one.came, one.covered) for one in found.coverage.queues} == {
        queue: (count, covered[queue]) for queue, count in came.items()
    }
    assert covered["metrics"] == 0 < covered["unread"] < came["unread"]
    missing = came["metrics"] + came["unread"] - covered["unread"]
    assert found.coverage.missing == missing
    assert found.coverage.share == missing / sum(came.values())


def test_rates_of_the_end_and_time_to_drain(found, broker):
    assert found.tail == SECONDS / 10
    gone = ("acknowledged", "expired", "killed", "replaced")
    for one in found.traffic:
        last = [
            event for at, queue, event, *_ in broker.happened if queue == one.queue and at >= SECONDS * 0.9
        ]
        rates = last.count("added") / found.tail, sum(map(last.count, gone)) / found.tail
        assert (one.rate_in, one.rate_out) == pytest.approx(rates)
        if one.depth:
            falls = rates[1] - rates[0]
            assert one.drain == pytest.approx(one.depth / falls if falls > 0 else math.inf)
        else:
            assert one.drain == 0.0
        assert (one.begin, one.growth) == (0, one.depth)
    unread = next(one for one in found.traffic if one.queue == "unread")
    assert (unread.drain, unread.rate_in - unread.rate_out) == (math.inf, pytest.approx(103 / 720))


def test_consumers_over_time(found, broker):
    rows = [
        ((row["time"] - T0).total_seconds(), row["consumers"])
        for row in broker.samples
        if row["queue"] == "orders"
    ]
    expected = most_of_steps(found, rows)
    assert found.series["orders"].consumers.tolist() == expected
    assert {one.queue: one.consumers for one in found.traffic}["orders"] == 3 == max(expected)
    assert {one.queue for one in found.traffic if not one.consumers} == {"alone", "unread"}


def test_who_sent_and_who_acknowledged_how_much_and_how_late(found, broker):
    ages = {}
    for at, queue, event, number, sent in broker.happened:
        if (queue, event) == ("orders", "acknowledged"):
            ages.setdefault(f"shop-{number % 3}/s", []).append(max(0, at - sent))
    expected = sorted(((-len(each), name) for name, each in ages.items()))
    assert [(-one.count, one.consumer) for one in found.consumer_counts] == expected
    assert (found.consumer_total, found.consumer_acknowledged) == (3, sum(map(len, ages.values())))
    for name, each in ages.items():
        are_of(found.stays["orders", name], each)
    assert len(found.stays) == 3
    sent = Counter((row["queue"], row["user"] or "") for row in broker.messages)
    assert {(one.queue, one.user): (one.count, one.durable) for one in found.sent} == {
        key: (count, count) for key, count in sent.items()
    }


def test_advice_for_a_ring_of_durable_messages_is_that_of_a_simulation(found, broker):
    advice = next(one for one in found.rings if one.ring.queue == HOSTILE)
    flow = broker.flow(HOSTILE)
    clear = emptied(flow, 3)
    lost = simulated(flow, 3, 0)
    assert advice.by_events
    assert advice.modelled == lost > 10
    allowed = math.floor(lost * 0.1 + 1e-9)
    assert simulated(flow, advice.size, 0, clear) <= allowed < simulated(flow, advice.size - 1, 0, clear)
    assert simulated(flow, advice.enough, 0, clear) == 0 < simulated(flow, advice.enough - 1, 0, clear)
    for size, retained in zip(advice.sizes.tolist(), advice.retained.tolist(), strict=True):
        assert retained == pytest.approx(1 - simulated(flow, size, 0, clear) / lost)


def test_advice_for_a_ring_of_others_is_from_its_samples(found, broker):
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


def test_advice_for_an_address_that_paged(found, broker):
    rows = [row for row in broker.samples if row["queue"] == "bulk"]
    average = sum(row["size"] for row in rows) / sum(row["messages"] - row["paged"] for row in rows)
    seconds = [(row["time"] - T0).total_seconds() for row in rows]
    lasted = [b - a for a, b in zip(seconds, [*seconds[1:], SECONDS], strict=True)]
    demand = [row["size"] + row["paged"] * average for row in rows]
    (advice,) = found.addresses
    assert advice.demand.address == "bulk.in"
    assert advice.demand.average == pytest.approx(average)
    assert advice.enough == math.ceil(max(demand))
    share = sum(time for time, each in zip(lasted, demand, strict=True) if each <= advice.size) / sum(lasted)
    less = sum(time for time, each in zip(lasted, demand, strict=True) if each < advice.size - 1) / sum(
        lasted
    )
    assert less < 0.752 and share > 0.748  # buckets are a third of a second long
    paging = sum(time for time, row in zip(lasted, rows, strict=True) if row["paged"]) / sum(lasted)
    assert advice.paging == pytest.approx(paging, abs=0.002)


@pytest.mark.long
def test_of_two_brokers_each_has_its_own_queues(lake, found):
    """Both did the same, but one of them read back a page before a sample was taken."""

    def both(table):
        return table.withColumn("broker", F.explode(F.array(F.lit("east"), F.lit("west"))))

    paged = {one.demand.address for one in found.addresses}
    queue = next(one for one in found.traffic if one.address not in paged and one.queue in found.counts)
    read_back = (F.col("queue") == queue.queue) & (F.col("broker") == "west")
    page = F.when(read_back, F.lit(7)).cast("bigint")
    events = both(lake.events).withColumn("page", page)
    told = Lake(both(lake.messages), events, both(lake.samples))
    again = gather(told, ReportRequest(Period()), lambda stage: None)
    assert again.brokers == ["east", "west"]
    pages = {one.demand.address for one in again.addresses}
    assert pages == {f"{name}/{address}" for name in again.brokers for address in paged} | {
        f"west/{queue.address}"
    }

    def figures(told):
        each = [
            (one.queue, one.added, one.counted, one.rate_in, one.begin, one.depth) for one in told.traffic
        ]
        ages = {queue: ages.count for queue, ages in told.latencies.items()}
        return {queue: (*numbers, ages.get(queue)) for queue, *numbers in each}

    once = figures(found)
    assert figures(again) == {
        f"{name}/{queue}": each for name in again.brokers for queue, each in once.items()
    }
    assert (again.coverage.came, again.coverage.missing) == (
        2 * found.coverage.came,
        2 * found.coverage.missing,
    )
    assert again.total("redelivered") == 2 * found.total("redelivered")
    assert set(again.hot_steps["redelivered"]) == {"east/orders", "west/orders"}
    # More queues than there may be lines: the last line is the rest.
    assert len(again.series) >= MAX_LINES - 1
    deepest = sorted(again.traffic, key=lambda one: (-one.most, one.queue))
    remainder = [
        found.series[one.queue.partition("/")[2]].depth for one in deepest[MAX_LINES - 1 :] if one.most
    ]
    some = ~np.isnan(remainder).all(axis=0)
    assert again.remainder.depth[some].tolist() == np.nansum(remainder, axis=0)[some].tolist()
    assert np.isnan(again.remainder.depth[~some]).all()
    assert gather(told, ReportRequest(Period(), brokers=["north"]), lambda stage: None) is None


def test_a_period_and_addresses(lake, broker, monkeypatch):

    since, until = T0 + timedelta(seconds=3000), T0 + timedelta(seconds=6000)
    monkeypatch.setattr(findings, "MAX_LINES", 1)  # so that both queues are the rest
    found = gather(lake, ReportRequest(Period(since, until), ("bulk.#", "late")), lambda stage: None)
    assert {one.queue for one in found.traffic} == {"bulk", "late"} == set(found.latencies)
    bulk = next(one for one in found.traffic if one.queue == "bulk")
    # Of the sample at 3000 s on: it tells of the ten seconds before it.
    assert bulk.added == sum(2990 <= second < 5990 for second, _ in broker.of("added", "bulk"))
    ages = [age for second, age in broker.of("acknowledged", "bulk") if 3000 <= second < 6000]
    are_of(found.latencies["bulk"], ages)
    assert not found.rings
    # Both together, in one line.
    steps = {}
    for second, age in broker.of("acknowledged", "bulk") + broker.of("acknowledged", "late"):
        if 3000 <= second < 6000:
            step = (second + 0.5) // found.hours.seconds - 3000 // found.hours.seconds
            steps.setdefault(int(step), []).append(age)
    assert found.remainder.latency.keys() == steps.keys()
    for step, one in found.remainder.latency.items():
        are_of(one, steps[step])
    assert sum(found.remainder.added) == sum(one.added for one in found.traffic)
    # From the first sample of the period, at 3000 s, to the last one, at 5990 s.
    assert {one.queue: (one.came, one.covered) for one in found.coverage.queues} == {
        queue: (count, count)
        for queue in ("bulk", "late")
        for count in [sum(3000 <= second < 5990 for second, _ in broker.of("added", queue))]
    }
    # The period before is as long, from 0 to 3000 s. Its last sample was at 2990 s.
    before = found.comparison
    assert (before.begin, before.end) == tuple(
        int((T0 + timedelta(seconds=second)).timestamp() * 1e6) for second in (0, 3000)
    )
    sent = len([row for row in broker.messages if row["queue"] == "bulk" and row["timestamp"] < since])
    into, out = (
        sum(second < 2990 for second, _ in broker.of(event, "bulk")) for event in ("added", "acknowledged")
    )
    expected = {"in": into, "out": out, "sent": sent, "durable": sent, "queues": 1}
    assert before.figures == dict.fromkeys(HEADLINE, 0) | expected


def test_a_file_is_written_whole_or_not_at_all(lake, tmp_path, monkeypatch):

    out = tmp_path / "report.html"
    stages = []
    none = Period(T0 + timedelta(days=400))
    assert not write_report(lake, out, none, progress=stages.append)
    assert "The lake has no data for this selection" in out.read_text()
    assert stages[0] == "reading the period" and stages[-1] == "page"
    before = out.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_report(lake, out, none)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert out.read_bytes() == before


@pytest.mark.parametrize("wrong", [{"keep": 0.0}, {"keep": 101.0}, {"unpaged": -1.0}])
def test_shares_that_cannot_be(lake, tmp_path, wrong):

    with pytest.raises(ValueError, match=next(iter(wrong))):
        write_report(lake, tmp_path / "report.html", **wrong)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):

    out = tmp_path_factory.mktemp("page") / "report.html"
    out.write_text(page(found, found.request, T0))
    return out


def test_nothing_is_empty_that_is_not_and_it_needs_no_other_file(written):
    text = written.read_text()
    assert 'class="empty"' not in text
    assert text.count("<svg viewBox") > 10
    assert "<script" not in text
    assert not re.findall(r"\b(?:src|srcset|poster)=|@import|url\((?!#)", text)


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width, height", [(390, 844), (1280, 900)])
def test_a_browser_shows_it(written, tmp_path, width, height):
    seen = Browser(tmp_path).seen(written, width, height)
    assert seen["width"] <= width  # nothing is wider than the screen
    assert seen["scripts"] == seen["interactive"] == 0
    assert seen["plots"] == seen["shown"] == seen["alternatives"] > 10
    assert seen["wide"] == []
    assert seen["title"] == "stompring report, 2026-07-01 to 2026-07-01"
    assert HOSTILE in seen["text"]
    assert seen["letters"] > 7.5  # px of the smallest text in a plot
    assert seen["faults"] == []


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
def test_a_browser_shows_interactive_plots_without_a_network(found, tmp_path):

    # Each plot takes a browser a second on a small machine: some of them will do.
    few = replace(
        found,
        rings=found.rings[:1],
        latency_steps={"orders": found.latency_steps["orders"]},
        hot_steps={event: {} for event in found.hot_steps},
    )
    out = tmp_path / "report.html"
    out.write_text(page(few, few.request, T0, "both"))
    drawn = [plot for section in page_sections(few) for plot in section.plots]
    seen = Browser(tmp_path).seen(out, 390, 844)
    assert seen["width"] <= 390
    assert seen["wide"] == []
    assert seen["scripts"] == 3  # plotly's, ours, and the data
    assert seen["interactive"] == seen["alternatives"] == seen["plots"] == len(drawn) > 5
    assert seen["shown"] == 0  # the static ones are for paper,
    assert seen["toggled"] == len(drawn)  # and for those who ask for them
    assert seen["lines"] == [len(plot.chart.lines) for plot in drawn if plot.chart is not None]
    assert seen["faults"] == []  # no script was refused, and nothing was asked for
    assert seen["requests"] == 0


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
def test_it_can_be_printed(written, tmp_path):
    pdf = Browser(tmp_path).printed(written)
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 3 < pages < 40
