"""The page of findings that are made by hand: what it says where there is nothing, and what it does not let through."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

np = pytest.importorskip("numpy")
for library in ("pyspark", "pyarrow", "matplotlib", "jinja2"):
    pytest.importorskip(library)

from stompring.pipeline.report.ages import Ages  # noqa: E402
from stompring.pipeline.report.findings import Findings, Wish  # noqa: E402
from stompring.pipeline.report.page import page  # noqa: E402
from stompring.pipeline.report.parts import ROWS, Table, limited  # noqa: E402
from stompring.pipeline.report.period import HOUR, SECOND, Grid, Period  # noqa: E402
from stompring.pipeline.report.tables import COUNTERS  # noqa: E402
from stompring.pipeline.report.traffic import QueueTraffic, Series  # noqa: E402
from stompring.pipeline.report.traffic_sections import lasting, peak  # noqa: E402

from .plain import HOSTILE, T0  # noqa: E402

START = 1_782_864_000 * SECOND
GRID = Grid(START, HOUR, 4)
VOID = {"br", "hr", "img", "input", "link", "meta"}


def queue(**given: Any) -> QueueTraffic:
    names = ("ring_size", "depth", "most", "paged", "size", *COUNTERS)
    return QueueTraffic(
        **{"address": HOSTILE, "queue": HOSTILE, "average": 0.0} | dict.fromkeys(names, 0) | given
    )


def findings(**given: Any) -> Findings:
    nothing: dict[str, Any] = {
        "wish": Wish(Period()),
        "begin": START,
        "end": START + 4 * HOUR - 1,
        "sampled": (START, START + 4 * HOUR),
        "grid": GRID,
        "hours": GRID,
        "sent": [],
        "traffic": [],
        "totals": {name: np.zeros(4) for name in COUNTERS},
        "series": {},
        "latencies": {},
        "latency_steps": {},
        "evicted": {},
        "evicted_steps": {},
        "counts": {},
        "deliveries": {},
        "hot_steps": {"redelivered": {}, "dead-lettered": {}},
        "hottest": [],
        "rings": [],
        "addresses": [],
    }
    return Findings(**nothing | given)


def text_of(found: Findings | None, wish: Wish | None = None) -> str:
    return page(found, wish or Wish(Period()), T0)


class Elements(HTMLParser):
    """What is open when, to see that everything is closed; and which elements there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_where_there_is_nothing_it_says_so() -> None:
    text = text_of(None)
    Elements(text)
    assert "There is nothing in the lake for what was asked for" in text
    assert "<section" not in text


@pytest.mark.parametrize(
    "told",
    [
        "There are no samples in this period",
        "No acknowledgement of a durable message is in the lake",
        "No ring threw anything away: no queue has a ring-size.",
        "No durable message came back",
        "No queue had anything in it",
        "No ring threw anything away, so no ring was too small.",
        "No address paged",
    ],
)
def test_each_section_says_why_it_is_empty(told: str) -> None:
    assert told in text_of(findings())


def test_rings_that_were_never_full() -> None:
    rings = [queue(ring_size=5), queue(ring_size=7), queue()]
    assert "none of the 2 was ever too full" in text_of(findings(traffic=rings))


def test_names_are_no_html() -> None:
    ages = Ages(2, (1.0, 2.0, 3.0, 4.0), 5.0)
    one = queue(most=3, added=4, replaced=2, size=9, ring_size=1)
    found = findings(
        traffic=[one],
        series={HOSTILE: Series(np.arange(4.0), np.arange(4.0), np.arange(4.0))},
        totals={name: np.arange(4.0) for name in COUNTERS},
        latencies={HOSTILE: ages},
        latency_steps={HOSTILE: {1: ages}},
        evicted={HOSTILE: ages},
        evicted_steps={HOSTILE: {1: ages}},
        counts={
            HOSTILE: {"added": 4, "redelivered": 3, "dead-lettered": 1, "acknowledged": 7, "replaced": 2}
        },
        deliveries={HOSTILE: 2},
        hot_steps={"redelivered": {HOSTILE: np.arange(4.0)}, "dead-lettered": {HOSTILE: np.arange(4.0)}},
    )
    text = text_of(found, Wish(Period(), (HOSTILE,)))
    elements = Elements(text)
    assert "script" not in elements.seen
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") > 15
    assert "5 more were acknowledged, of which the lake does not know when they were sent." in text


def test_its_links_lead_somewhere() -> None:
    text = text_of(findings(traffic=[queue(ring_size=5)]))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    links = re.findall(r'href="#([^"]+)"', text)
    assert len(links) >= 8
    assert set(links) <= set(ids)


def test_long_tables_are_cut_and_say_so() -> None:
    cut = limited(Table("t", ["queue"], [[str(number)] for number in range(ROWS + 3)]))
    assert len(cut.rows) == ROWS
    assert cut.note.startswith("3 more are left out")
    assert limited(cut) is cut


def test_rates_are_of_the_time_that_was_sampled() -> None:
    # From 0:30 to 3:03: a half, two hours, and three minutes, which are too few for a rate.
    sampled = (START + HOUR // 2, START + 3 * HOUR + HOUR // 20)
    found = findings(sampled=sampled, totals={"added": np.array([3600, 3600, 0, 3600])})
    assert lasting(found).tolist() == pytest.approx([1800, 3600, 3600, float("nan")], nan_ok=True)
    assert peak(found) == (2.0, START)
    assert peak(replace(found, totals={"added": np.zeros(4)})) is None


def test_what_was_asked_for_is_on_it() -> None:
    wish = Wish(Period(T0), ("a.#", "b"))
    assert "since 2026-07-01 00:00:00, of the addresses a.#, b" in text_of(findings(), wish)
    assert "everything in the lake" in text_of(findings())


def test_what_never_happened_has_no_line() -> None:
    totals = {name: np.full(4, 8.0 * (name in ("added", "killed"))) for name in COUNTERS}
    one = queue(queue="q", added=32, killed=32)
    series = {"q": Series(np.zeros(4), np.full(4, 8.0), np.zeros(4))}
    text = text_of(findings(traffic=[one], totals=totals, series=series, sampled=(START, START + 3 * HOUR)))
    assert "<bdi>expired or killed</bdi>" in text
    assert "<bdi>replaced by rings</bdi>" not in text
