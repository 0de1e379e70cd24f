"""The beginning of the page: a few numbers, and the findings that matter most, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2.utils import markupsafe

from stompring.pipeline.report import units
from stompring.pipeline.report.findings import Findings, best
from stompring.pipeline.report.traffic_sections import peak


def numbers(found: Findings) -> list[tuple[str, str, str]]:
    """What is counted: a name, a number in short, and with all its digits."""
    rows = sum(one.count for one in found.sent)
    durable = sum(one.durable for one in found.sent)
    queues = set(found.addresses_of_queues()) | set(found.counts)
    told = [
        ("messages into queues", sum(one.added for one in found.traffic)),
        ("out of queues", sum(one.out for one in found.traffic)),
        ("in the lake, sent in the period", rows),
        ("of these durable", durable),
        ("queues", len(queues)),
        ("thrown away by rings", sum(one.replaced for one in found.traffic)),
        ("came back", found.total("redelivered")),
        ("dead letters", found.total("dead-lettered")),
    ]
    return [(name, units.count(number), units.whole(number)) for name, number in told]


def sentences(found: Findings) -> Iterator[tuple[str, Any]]:
    """The biggest findings, with the section that tells more. Names are escaped."""
    deep = best(found.traffic, lambda one: one.most, 1)
    if deep:
        text = markupsafe.Markup(
            "The deepest queue was <b><bdi>{}</bdi></b>, with {} messages at most and {} at the end."
        )
        yield "depth", text.format(deep[0].queue, units.whole(deep[0].most), units.whole(deep[0].depth))
    high = peak(found)
    if high is not None:
        text = markupsafe.Markup("Most came at {} UTC: {} into all queues, the mean of {}.")
        yield (
            "rates",
            text.format(units.date(high[1])[:16], units.rate(high[0]), units.span(found.grid.seconds)),
        )
    if found.latencies:
        slow = max(sorted(found.latencies), key=lambda queue: found.latencies[queue].percentiles[2])
        ages = found.latencies[slow]
        text = markupsafe.Markup(
            "The slowest queue was <b><bdi>{}</bdi></b>: one in a hundred messages was acknowledged later than {} "
            "after it was sent; half of them within {}."
        )
        yield "latency", text.format(slow, units.span(ages.percentiles[2]), units.span(ages.percentiles[0]))
    yield from _rings(found)
    yield from _hot(found)
    if found.addresses:
        one = max(found.addresses, key=lambda one: one.paging)
        text = markupsafe.Markup(
            "<b><bdi>{}</bdi></b> had messages on disk only {} of the time; with a max-size-bytes of {} ({}) it would "
            "have had all in memory {} of the time."
        )
        yield (
            "address-sizes",
            text.format(
                one.held.address,
                units.share(one.paging),
                units.whole(one.size),
                units.size(one.size),
                units.percent(found.wish.unpaged),
            ),
        )


def _rings(found: Findings) -> Iterator[tuple[str, Any]]:
    lost = best(found.traffic, lambda one: one.replaced, len(found.traffic))
    if not lost:
        yield "rings", markupsafe.Markup("No ring threw anything away.")
        return
    first, ages = lost[0], found.evicted.get(lost[0].queue)
    text = markupsafe.Markup("{} threw away {} messages; most of them <b><bdi>{}</bdi></b>, with {}{}.")
    old = "" if ages is None else f", half of which were older than {units.span(ages.percentiles[0])}"
    who = "One ring" if len(lost) == 1 else f"{len(lost)} rings"
    yield (
        "rings",
        text.format(
            who, units.whole(sum(one.replaced for one in lost)), first.queue, units.whole(first.replaced), old
        ),
    )
    advised = [one for one in found.rings if one.modelled]
    if advised:
        ring = advised[0]
        text = markupsafe.Markup(
            "A ring-size of {} instead of {} would have kept {} of what <b><bdi>{}</bdi></b> threw away."
        )
        yield (
            "ring-sizes",
            text.format(
                units.whole(ring.size),
                units.whole(ring.ring.ring_size),
                units.percent(found.wish.keep),
                ring.ring.queue,
            ),
        )


def _hot(found: Findings) -> Iterator[tuple[str, Any]]:
    for event, text in (
        (
            "redelivered",
            "{} times a message came back to its queue; most often to <b><bdi>{}</bdi></b>, {} times.",
        ),
        (
            "dead-lettered",
            "{} messages went to a dead-letter address; most of them from <b><bdi>{}</bdi></b>, {}.",
        ),
    ):
        counts = {queue: kinds[event] for queue, kinds in found.counts.items() if kinds.get(event)}
        if counts:
            first = max(sorted(counts), key=lambda queue: counts[queue])
            yield (
                "hot-spots",
                markupsafe.Markup(text).format(
                    units.whole(sum(counts.values())), first, units.whole(counts[first])
                ),
            )
