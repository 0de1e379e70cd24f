"""Our lines are written as prometheus_client writes its own."""

import re
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from stompring.admin.counters import ADDRESS, BROKER, COUNTER, GAUGE, QUEUE, Counter
from stompring.admin.metrics import LINES_PER_PIECE, escape_label, families, help_and_type_lines, help_text

COUNTERS = [
    Counter("ups", "x_ups_total", COUNTER, "How often it went up.", lambda thing: thing),
    Counter("now", "x_now", GAUGE, "How much there is.", lambda thing: thing * 2),
]


def labels(thing):
    return f'{{a="{escape_label(chr(thing))}"}}'


class Same(Collector):
    """The same samples, for prometheus_client to write."""

    def __init__(self, things):
        self.things = things

    def collect(self):
        up = CounterMetricFamily("x_ups_total", "How often it went up.", labels=["a"])
        now = GaugeMetricFamily("x_now", "How much there is.", labels=["a"])
        for thing in self.things:
            up.add_metric([chr(thing)], thing)
            now.add_metric([chr(thing)], thing * 2)
        return [up, now]


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("count", [1, 30, 90])
def test_output_equals_prometheus_client(openmetrics, count):
    things = list(range(32, 32 + count))  # quotes and backslashes among them
    registry = CollectorRegistry()
    registry.register(Same(things))
    theirs = (
        (generate_openmetrics if openmetrics else generate_latest)(registry).decode().removesuffix("# EOF\n")
    )
    ours = re.sub(" JSON: .*", "", b"".join(families(COUNTERS, things, labels, openmetrics)).decode())
    # the library writes whole numbers as floats
    assert ours == theirs.replace(".0\n", "\n")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_labels_round_trip(value):
    (family,) = text_string_to_metric_families(f'# TYPE x gauge\nx{{a="{escape_label(value)}"}} 1\n')
    assert family.samples[0].labels == {"a": value}


def test_pieces_have_at_most_500_lines():
    pieces = list(families(COUNTERS, range(65, 65 + 2 * LINES_PER_PIECE + 1), labels, False))
    assert max(piece.count(b"\n") for piece in pieces) == LINES_PER_PIECE
    assert pieces.count(b"") > 1, "reading has pauses"


def test_no_counters_read_nothing():
    def fail(_):
        raise AssertionError("read")

    assert list(families([], [1], fail, False)) == []


def test_scaled_values_have_three_decimals_and_none_is_zero():
    age = Counter("age", "x_age_seconds", GAUGE, "Age.", lambda thing: thing, scale=0.001)
    text = b"".join(families([age], [1234, None, 0], lambda thing: f'{{a="{thing}"}}', False)).decode()
    assert 'x_age_seconds{a="1234"} 1.234\n' in text
    assert 'x_age_seconds{a="None"} 0.000\n' in text


def test_each_name_is_used_once():
    for counters in (QUEUE, ADDRESS, BROKER):
        names = [counter.json for counter in counters]
        assert len(set(names)) == len(names)
        series = [(counter.metric, *counter.labels.items()) for counter in counters]
        assert len(set(series)) == len(series)
        families = [metric for metric, _ in groupby(counters, key=lambda counter: counter.metric)]
        assert len(set(families)) == len(families), "those of one family stand together"
    assert all(
        counter.metric.endswith("_total") is (counter.kind == COUNTER)
        for counter in (*QUEUE, *ADDRESS, *BROKER)
    )


def test_no_counter_has_the_name_of_a_gauge_with_total():
    """OpenMetrics names the family of a counter without ``_total``."""
    names = {counter.metric for counter in (*QUEUE, *ADDRESS, *BROKER)}
    assert not {name for name in names if f"{name}_total" in names}
    gauges = [counter.metric for counter in (*QUEUE, *ADDRESS, *BROKER) if counter.kind == GAUGE]
    assert not [name for name in gauges if name.endswith(("_count", "_total"))]


def test_help_names_the_counters_in_json():
    (messages, *_) = QUEUE
    assert help_and_type_lines(messages, False).startswith(
        f"# HELP stompring_queue_messages {messages.help} JSON: messageCount."
    )
    same = [counter for counter in BROKER if counter.metric == "stompring_dispatch_target_entries"]
    assert help_text(*same).endswith("JSON: dispatchDirectReferences, dispatchCacheReferences.")
