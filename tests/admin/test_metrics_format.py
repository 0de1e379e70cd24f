"""Our lines are written as prometheus_client writes its own."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.registry import Collector

from stompring.errors import Refused

from .admin_server import AdminServer
from .test_metrics import of_queue, samples, scrape

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


class Same(Collector):
    """What was read, for prometheus_client to write."""

    def __init__(self, found):
        self.found = list(found)

    def collect(self):
        return self.found


def comparable(text):
    """The lines; the library writes whole numbers as floats."""
    for line in text.splitlines():
        head, _, value = line.rpartition(" ")
        yield line if line.startswith("#") else (head, float(value))


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("count", [1, 30, 90])
def test_output_equals_prometheus_client(server, openmetrics, count):
    for number in range(32, 32 + count):  # quotes and backslashes among them
        with suppress(Refused):
            server.queue(f"q{chr(number)}")
    ours = scrape(server, openmetrics)
    registry = CollectorRegistry()
    registry.register(Same((read_openmetrics if openmetrics else read_text)(ours)))
    theirs = (generate_openmetrics if openmetrics else generate_latest)(registry).decode()
    assert list(comparable(ours)) == list(comparable(theirs))


@given(st.sets(TEXT, max_size=20))
def test_labels_round_trip(names):
    server, made = AdminServer(), set()
    for name in names:
        with suppress(Refused):
            made.add(server.queue(name).name)
    found = samples(scrape(server, query="?name[]=stompring_queue_ring_size"))
    assert {dict(labels)["queue"] for _, labels in found} == made


def test_pieces_have_at_most_500_lines(server):
    for number in range(1001):
        server.queue(f"q{number}")
    _, wire = server.begin("GET", "/metrics?name[]=stompring_queue_ring_size")
    server.advance(0, 100)
    _, _, left = wire.value().partition(b"\r\n\r\n")
    pieces = []
    while left:
        size, _, left = left.partition(b"\r\n")
        pieces.append(left[: int(size, 16)].count(b"ring_size{"))
        left = left[int(size, 16) + 2 :]
    assert [number for number in pieces if number] == [500, 500, 1]


def test_scaled_values_have_three_decimals_and_none_is_zero(server):
    server.queue("empty")
    server.stomp().put()
    server.advance(1.234)
    text = scrape(server)
    name = "stompring_queue_oldest_message_age_seconds"
    assert [of_queue(text, queue, queue)[name] for queue in ("q", "empty")] == [1.234, 0]
    assert 'queue="q",routing_type="ANYCAST"} 1.234\n' in text
    assert 'queue="empty",routing_type="ANYCAST"} 0.000\n' in text
