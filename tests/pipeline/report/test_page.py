"""The page of findings that are made by hand: what it says where there is nothing, and what it does not let through."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import base64
import hashlib
import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

from stompring.pipeline.report.findings import (
    Comparison,
    Coverage,
    Findings,
    QueueCoverage,
    ReportRequest,
    Sent,
    coverage,
)
from stompring.pipeline.report.page import (
    HEADLINE,
    MAX_ROWS,
    PLOTS,
    Table,
    change_text,
    page,
    page_sections,
    peak,
    step_durations,
    truncated,
)
from stompring.pipeline.report.queries import (
    COUNTERS,
    HOUR,
    SECOND,
    ConsumerCount,
    Durations,
    Grid,
    Period,
    QueueTraffic,
    Series,
)

from .reference_broker import HOSTILE, T0

START = 1_782_864_000 * SECOND
GRID = Grid(START, HOUR, 4)
VOID = {"br", "hr", "img", "input", "link", "meta"}


def queue(**given):
    names = ("ring_size", "depth", "most", "paged", "size", *COUNTERS)
    return QueueTraffic(
        **{"address": HOSTILE, "queue": HOSTILE, "average": 0.0} | dict.fromkeys(names, 0) | given
    )


def findings(**given):
    nothing = {
        "request": ReportRequest(Period()),
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


def text_of(found, request=None):
    return page(found, request or ReportRequest(Period()), T0)


class Elements(HTMLParser):
    """What is open when, to see that everything is closed; and which elements there are."""

    def __init__(self, text):
        super().__init__()
        self.seen = []
        self._open = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def test_where_there_is_nothing_it_says_so():
    text = text_of(None)
    Elements(text)
    assert "The lake has no data for this selection" in text
    assert "<section" not in text
    request = ReportRequest(Period(T0), ("a.#", "b"))
    assert "since 2026-07-01 00:00:00, of the addresses a.#, b" in text_of(findings(), request)
    rings = [queue(ring_size=5), queue(ring_size=7), queue()]
    assert "none of the 2 rings was full" in text_of(findings(traffic=rings))


@pytest.mark.parametrize(
    "told",
    [
        "everything in the lake",
        "There are no samples in this period",
        "No acknowledgement of a durable message is in the lake",
        "No ring replaced a message: no queue has a ring-size.",
        "No durable message was redelivered",
        "No queue had a message in this period.",
        "No ring replaced a message, so no ring was too small.",
        "No address paged",
    ],
)
def test_each_section_says_why_it_is_empty(told):
    assert told in text_of(findings())


def counted(known):
    return Coverage([QueueCoverage("", queue, *pair) for queue, pair in known.items()])


def plain_text(text):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text)))


def busy(**numbers):
    """What there is of a queue to which 32 messages came."""
    one = queue(queue="q", added=32, **numbers)
    series = Series(np.zeros(4), np.full(4, 8.0), np.zeros(4), np.full(4, one.consumers))
    totals = {name: np.full(4, getattr(one, name) / 4) for name in COUNTERS}
    return {"traffic": [one], "series": {"q": series}, "totals": totals}


def told(**given):
    """The text of a page."""
    return plain_text(text_of(findings(**given)))


def test_a_queue_without_consumers_is_reported():
    ring = queue(queue="deaf", ring_size=5, added=105, replaced=100, most=5, depth=5)
    series = {"deaf": Series(np.full(4, 5.0), np.full(4, 26.0), np.full(4, 25.0), np.zeros(4))}
    text = told(traffic=[ring], series=series)
    assert "One queue had no consumer in the period; deaf received most messages, 105." in text
    assert "100 none: no consumer in the period" in text  # instead of advice
    assert "ring-size of" not in text
    read = replace(ring, consumers=1)
    text = told(traffic=[read], series=series)
    assert "no consumer in the period" not in text
    assert "Every queue with messages had a consumer." in text
    acknowledged = findings(traffic=[ring], series=series, counts={"deaf": {"delivered": 1}})
    assert acknowledged.unread == []  # a consumer came and went between two samples


def test_time_to_drain_is_told_in_words():
    each = [
        queue(address="", queue="falls", depth=100, begin=500, rate_in=1.0, rate_out=3.0),
        queue(address="", queue="grows", depth=700, begin=100, rate_in=3.0, rate_out=0.5),
        queue(address="", queue="stays", depth=10, begin=10, rate_in=2.0, rate_out=2.0),
        queue(address="", queue="short", depth=1, begin=1),
    ]
    text = told(traffic=each, tail=120.0)
    assert "falls 100 −400 1/s 3/s 50 s" in text
    assert "grows 700 +600 3/s 0.5/s never, it grows by 2.5/s" in text
    assert "stays 10 0 2/s 2/s never, the rates are equal" in text
    assert "short 1 0 – – unknown: too few samples" in text
    assert "at the rates of the last 2 min" in text
    assert "One queue grew at the end of the period; most of all grows , by 2.5/s." in text


def test_what_the_lake_does_not_have_is_told_where_it_matters():
    known = counted({"all": (600, 600), "some": (300, 200), "none": (100, 0)})
    text = told(coverage=known, counts={"all": {"added": 600}})
    assert "20 % of messages not in the lake" in text
    assert "20 % of the messages that entered queues are not in the lake (200 of 1,000)" in text
    assert "none 100 0 100 100 % some 300 200 100 33.33 % all 600 600 0 0 %" in text
    sections_of_events = [
        section
        for section in page_sections(findings(coverage=known))
        if any("have no events" in lead for lead in section.lead)
    ]
    assert [section.anchor for section in sections_of_events] == [
        "consumers",
        "latency",
        "rings",
        "hot-spots",
    ]
    unknown = told()
    assert "unknown of messages not in the lake" in unknown
    assert "the number of messages that are not in the lake is unknown" in unknown
    nothing = told(coverage=counted({"all": (7, 7)}))
    assert "0 % of messages not in the lake" in nothing
    assert "are not in the lake (" not in nothing


def test_counters_that_a_crash_took_are_made_up_for_by_events():
    one = queue(queue="q", counted=90)
    assert counted({"q": (100, 100)}) == coverage([one], {"q": 100}, {})
    assert counted({"q": (90, 80)}) == coverage([one], {"q": 80}, {})
    assert counted({"p": (3, 3)}) == coverage([], {"p": 3}, {})  # it came and went between two samples
    assert counted({}) == coverage([queue()], {}, {})


@pytest.mark.parametrize(
    "before, now, told",
    [
        (200, 250, "+25\u00a0%"),
        (200, 193, "−3.5\u00a0%"),
        (3, 1000, "+33233\u00a0%"),
        (5, 0, "−100\u00a0%"),
        (7, 7, "as before"),
        (0, 0, "as before"),
        (0, 9, "0 before"),
    ],
)
def test_changes_since_the_period_before(before, now, told):
    assert change_text(before, now) == told


def test_the_headline_is_compared():
    figures = dict.fromkeys(HEADLINE, 0) | {"in": 40, "queues": 1}
    text = told(**busy(), comparison=Comparison(START - 4 * HOUR, START, START - 9 * HOUR, figures))
    assert "32 −20 % messages added to queues" in text
    assert "1 as before queues" in text
    assert (
        "Changes are relative to the previous period of the same length: 2026-06-30 20:00:00 to 2026-07-01 00:00:00."
        in text
    )
    part = Comparison(START - 4 * HOUR, START, START - HOUR, None)
    text = told(comparison=part)
    assert "There is no comparison with the previous period" in text
    assert "the lake begins at 2026-06-30 23:00:00." in text
    text = told(comparison=replace(part, first=0))
    assert "the lake has no data of it." in text


def test_who_sent_and_who_acknowledged():
    name = "shop-4f2a9c11-7b3e-4f6a-9d2e-0123456789ab/1"
    ages = Durations(30, (1.0, 2.0, 3.0, 4.0), 5.0)
    found = findings(
        sent=[Sent("a", "q", 30, 20, "alice"), Sent("a", "p", 10, 0, "alice"), Sent("a", "q", 60, 60)],
        counts={"q": {"acknowledged": 40}},
        consumer_counts=[ConsumerCount("q", name, 30)],
        consumer_total=1,
        consumer_acknowledged=30,
        stays={("q", name): ages},
    )
    text = text_of(found)
    assert text.count(f'<bdi title="{name}">shop-4f2a9c…/1</bdi>') == 2
    told = plain_text(text)
    assert "shop-4f2a9c…/1 q 30 75 %" in told
    assert "q shop-4f2a9c…/1 30 1 s 2 s 3 s 4 s 5 s" in told
    assert "10 more messages were acknowledged; the lake does not know by which consumer." in told
    assert "not logged in 60 60 % 60 1 alice 40 40 % 20 2" in told


def test_interactive_plots_are_all_that_needs_scripts():
    found = findings(**busy(consumers=1))
    pages = {plots: page(found, found.request, T0, plots) for plots in PLOTS}
    static, interactive, both = pages.values()
    assert "script-src" not in static and "<script" not in static and len(static) < 10**6
    for text in (interactive, both):
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
        sources = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        hashes = {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in sources}
        assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
        assert policy.startswith("default-src 'none'; ") and "unsafe-eval" not in policy
        assert len(text) < 6 * 10**6
    assert (
        static.count("<svg viewBox") == both.count("<svg viewBox") == 3 and "<svg viewBox" not in interactive
    )
    assert interactive.count("<noscript>") == 3 and 'id="static-plots"' not in interactive
    assert page(None, found.request, T0, "both").count("<script") == 0


def test_names_are_no_html():
    ages = Durations(2, (1.0, 2.0, 3.0, 4.0), 5.0)
    one = queue(most=3, added=4, replaced=2, size=9, ring_size=1)
    found = findings(
        traffic=[one],
        series={HOSTILE: Series(np.arange(4.0), np.arange(4.0), np.arange(4.0), np.arange(4.0))},
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
    text = text_of(found, ReportRequest(Period(), (HOSTILE,)))
    assert "script" not in Elements(text).seen
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") > 15
    assert "5 more were acknowledged; the lake does not have their send times." in text


def test_its_links_lead_somewhere():
    text = text_of(findings(traffic=[queue(ring_size=5)]))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    links = re.findall(r'href="([^"]+)"', text)
    assert len(links) >= 8
    assert {*links} <= {"data:,", *(f"#{each}" for each in ids)}


def test_long_tables_are_cut_and_say_so():
    cut = truncated(Table("t", ["queue"], [[str(number)] for number in range(MAX_ROWS + 3)]))
    assert len(cut.rows) == MAX_ROWS
    assert cut.note.startswith("3 more rows are not shown")
    assert truncated(cut) is cut


def test_rates_are_of_the_time_that_was_sampled():
    # From 0:30 to 3:03: a half, two hours, and three minutes, which are too few for a rate.
    sampled = (START + HOUR // 2, START + 3 * HOUR + HOUR // 20)
    found = findings(sampled=sampled, totals={"added": np.array([3600, 3600, 0, 3600])})
    assert step_durations(found).tolist() == pytest.approx([1800, 3600, 3600, float("nan")], nan_ok=True)
    assert peak(found) == (2.0, START)
    assert peak(replace(found, totals={"added": np.zeros(4)})) is None


def test_what_never_happened_has_no_line():
    text = text_of(findings(**busy(killed=32), sampled=(START, START + 3 * HOUR)))
    assert "<bdi>expired or killed</bdi>" in text
    assert "<bdi>replaced by rings</bdi>" not in text
