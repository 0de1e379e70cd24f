"""The beginning of the page: a few numbers, and the findings that matter most, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jinja2.utils import markupsafe

from stompring.pipeline.report import units
from stompring.pipeline.report.event_sections import doubts
from stompring.pipeline.report.findings import Findings, best
from stompring.pipeline.report.names import short
from stompring.pipeline.report.traffic_sections import peak

MINUS = "\u2212"


@dataclass(frozen=True, slots=True)
class Number:
    """One of the headline: in short, with all its digits, and how it has changed since the period before."""

    name: str
    short: str
    all: str
    change: str = ""


def figures(found: Findings) -> dict[str, int]:
    """What is counted, by the names that `Comparison` has too."""
    return {
        "in": sum(one.added for one in found.traffic),
        "out": sum(one.out for one in found.traffic),
        "sent": sum(one.count for one in found.sent),
        "durable": sum(one.durable for one in found.sent),
        "queues": len(found.queue_names),
        "replaced": sum(one.replaced for one in found.traffic),
        "redelivered": found.total("redelivered"),
        "dead-lettered": found.total("dead-lettered"),
    }


NAMES = {
    "in": "messages into queues",
    "out": "out of queues",
    "sent": "in the lake, sent in the period",
    "durable": "of these durable",
    "queues": "queues",
    "replaced": "thrown away by rings",
    "redelivered": "came back",
    "dead-lettered": "dead letters",
}


def numbers(found: Findings) -> list[Number]:
    """The headline."""
    before = None if found.comparison is None else found.comparison.figures
    told = [
        Number(
            NAMES[name],
            units.count(number),
            units.whole(number),
            "" if before is None else changed(before[name], number),
        )
        for name, number in figures(found).items()
    ]
    known = found.coverage
    if known is None:
        told.append(Number("of messages not in the lake", "unknown", "there are no samples"))
    else:
        all_ = f"{units.whole(known.missing)} of {units.whole(known.came)}"
        told.append(Number("of messages not in the lake", units.share(known.share), all_))
    without = len(found.unread)
    told.append(Number("queues that nobody reads", units.count(without), units.whole(without)))
    return told


def changed(before: int, now: int) -> str:
    """By how many per cent a number is more or less than before."""
    if not before:
        return "0 before" if now else "as before"
    if now == before:
        return "as before"
    part = 100 * (now - before) / before
    text = f"{abs(part):.0f}" if abs(part) >= 10 else f"{abs(part):.2g}"
    return f"{'+' if part > 0 else MINUS}{text}{units.NEXT}%"


def sentences(found: Findings) -> Iterator[tuple[str, Any]]:
    """The biggest findings, with the section that tells more. Names are escaped."""
    yield from _covered(found)
    deep = best(found.traffic, lambda one: one.most, 1)
    if deep:
        text = markupsafe.Markup("The deepest queue was {}, with {} messages at most and {} at the end.")
        yield (
            "depth",
            text.format(named(deep[0].queue), units.whole(deep[0].most), units.whole(deep[0].depth)),
        )
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
            "The slowest queue was {}: one in a hundred messages was acknowledged later than {} "
            "after it was sent; half of them within {}."
        )
        yield (
            "latency",
            text.format(named(slow), units.span(ages.percentiles[2]), units.span(ages.percentiles[0])),
        )
    yield from _unread(found)
    yield from _growing(found)
    yield from _rings(found)
    yield from _hot(found)
    yield from _doubtful(found)
    if found.addresses:
        one = max(found.addresses, key=lambda one: one.paging)
        text = markupsafe.Markup(
            "{} had messages on disk only {} of the time; with a max-size-bytes of {} ({}) it would "
            "have had all in memory {} of the time."
        )
        yield (
            "address-sizes",
            text.format(
                named(one.held.address),
                units.share(one.paging),
                units.whole(one.size),
                units.size(one.size),
                units.percent(found.wish.unpaged),
            ),
        )


def named(name: str) -> Any:
    """A name in a sentence, escaped; the whole of it in its title if it is shortened."""
    if short(name) == name:
        return markupsafe.Markup("<b><bdi>{}</bdi></b>").format(name)
    return markupsafe.Markup('<b><bdi title="{}">{}</bdi></b>').format(name, short(name))


def compared(found: Findings) -> str:
    """With what the headline is compared, or why it is not."""
    one = found.comparison
    if one is None:
        return ""
    period = f"{units.date(one.begin)} to {units.date(one.end)}"
    if one.figures is not None:
        return f"Changes are from the period before, which is as long: {period}."
    why = f"the lake begins with {units.date(one.first)}" if one.first else "the lake has nothing of it"
    return f"There is no comparison with the period before, {period}: {why}."


def _covered(found: Findings) -> Iterator[tuple[str, Any]]:
    known = found.coverage
    if known is None:
        yield (
            "coverage",
            markupsafe.Markup(
                "There are no samples of this period: how many messages the lake does not have is unknown."
            ),
        )
    elif known.missing:
        text = markupsafe.Markup(
            "{} of the messages that came to queues are not in the lake ({} of {}), for they were not retained: "
            "times, returns and dead letters are told of the others."
        )
        yield (
            "coverage",
            text.format(units.share(known.share), units.whole(known.missing), units.whole(known.came)),
        )


def _doubtful(found: Findings) -> Iterator[tuple[str, Any]]:
    for sentence in doubts(found):
        yield "hot-spots", sentence


def _unread(found: Findings) -> Iterator[tuple[str, Any]]:
    unread = found.unread
    if not unread:
        return
    who = "One queue was read by nobody" if len(unread) == 1 else f"{len(unread)} queues were read by nobody"
    text = markupsafe.Markup("{}: most messages came to {}, {} (no consumer in the period).")
    yield "unread", text.format(who, named(unread[0].queue), units.whole(unread[0].added))


def _growing(found: Findings) -> Iterator[tuple[str, Any]]:
    growing = [one for one in found.traffic if one.depth and one.rate_in > one.rate_out]
    if not growing:
        return
    first = max(growing, key=lambda one: (one.rate_in - one.rate_out, one.queue))
    who = "One queue grew" if len(growing) == 1 else f"{len(growing)} queues grew"
    text = markupsafe.Markup("{} at the end of the period; most of all {}, by {}.")
    yield "drain", text.format(who, named(first.queue), units.rate(first.rate_in - first.rate_out))


def _rings(found: Findings) -> Iterator[tuple[str, Any]]:
    lost = best(found.traffic, lambda one: one.replaced, len(found.traffic))
    if not lost:
        yield "rings", markupsafe.Markup("No ring threw anything away.")
        return
    first, ages = lost[0], found.evicted.get(lost[0].queue)
    text = markupsafe.Markup("{} threw away {} messages; most of them {}, with {}{}.")
    old = "" if ages is None else f", half of which were older than {units.span(ages.percentiles[0])}"
    who = "One ring" if len(lost) == 1 else f"{len(lost)} rings"
    yield (
        "rings",
        text.format(
            who,
            units.whole(sum(one.replaced for one in lost)),
            named(first.queue),
            units.whole(first.replaced),
            old,
        ),
    )
    advised = [one for one in found.rings if one.modelled]
    if advised:
        ring = advised[0]
        text = markupsafe.Markup("A ring-size of {} instead of {} would have kept {} of what {} threw away.")
        yield (
            "ring-sizes",
            text.format(
                units.whole(ring.size),
                units.whole(ring.ring.ring_size),
                units.percent(found.wish.keep),
                named(ring.ring.queue),
            ),
        )


def _hot(found: Findings) -> Iterator[tuple[str, Any]]:
    for event, text in (
        (
            "redelivered",
            "{} times a message came back to its queue; most often to {}, {} times.",
        ),
        (
            "dead-lettered",
            "{} messages went to a dead-letter address; most of them from {}, {}.",
        ),
    ):
        counts = {queue: kinds[event] for queue, kinds in found.counts.items() if kinds.get(event)}
        if counts:
            first = max(sorted(counts), key=lambda queue: counts[queue])
            yield (
                "hot-spots",
                markupsafe.Markup(text).format(
                    units.whole(sum(counts.values())), named(first), units.whole(counts[first])
                ),
            )
