"""Sizing advice on the page."""

from __future__ import annotations

from dataclasses import replace

from stompring.pipeline.report import units
from stompring.pipeline.report.advice import AddressAdvice, RingAdvice
from stompring.pipeline.report.event_sections import NOBODY
from stompring.pipeline.report.findings import ADVISED, Findings
from stompring.pipeline.report.parts import Rows, Section, Table, limited, name_cell, queue_cell
from stompring.pipeline.report.plots import Axis, Line, Plot, curve
from stompring.pipeline.report.traffic import QueueTraffic

#: Curves of each kind that are drawn; of others there is the row in the table.
CURVES = 12


def rings(found: Findings) -> Section:
    """Ring sizes."""
    keep = units.percent(found.wish.keep)
    fine = units.span(max((found.end - found.begin) / 20_000 / 1e6, 1e-6))
    section = Section(
        "ring-sizes",
        "Advice: ring-size",
        [
            f"The ring-size that would have kept {keep} of what each ring threw away, and for other sizes the share "
            "that would have been kept.",
            f"It comes from a simulation: what came to a ring and what was acknowledged, expired or killed, in buckets "
            f"of {fine}, passes through rings of other sizes. In a bucket those that go are spread evenly between "
            "those that come. Consumers take what they took, at the same times; those that emptied the ring would have "
            "emptied a larger one too. A message counts "
            "until it is acknowledged, though one that is with a consumer does not fill a real ring. “By the model” "
            "says what the simulation loses with the size that the ring has: the closer that is to what was thrown "
            "away, the better is the advice.",
        ],
        empty="No ring threw anything away, so no ring was too small.",
    )
    unread = [one for one in found.unread if one.ring_size and one.replaced]
    if unread:
        section = replace(
            section, empty="No ring that is read threw anything away.", tables=[_unread(unread)]
        )
    if not found.rings:
        return section
    rows: Rows = []
    for one in found.rings:
        ring = one.ring
        told = (
            [units.whole(one.size), _bytes(one, one.size), units.whole(one.enough)]
            if one.modelled
            else ["none"] + ["–"] * 2
        )
        source = "events" if one.by_events else "samples"
        rows.append(
            [
                queue_cell(ring.queue, ring.address),
                units.whole(ring.ring_size),
                units.whole(ring.replaced),
                units.whole(one.modelled),
                *told,
                source,
            ]
        )
    headings = [
        "ring",
        "size now",
        "thrown away",
        "by the model",
        f"size for {keep}",
        "memory",
        "size for all",
        "from",
    ]
    note = "Memory is the size times the mean of what messages of the queue took."
    if len(found.rings) == ADVISED:
        note += f" There is advice for the {ADVISED} rings that threw away most."
    plots = [
        _ring_plot(f"ring-{at}", one, keep) for at, one in enumerate(found.rings[:CURVES]) if one.modelled
    ]
    table = Table("Sizes", headings, rows, frozenset({0, 7}), note)
    return replace(section, plots=plots, tables=[table, *section.tables])


def _unread(rings: list[QueueTraffic]) -> Table:
    rows: Rows = [
        [
            queue_cell(one.queue, one.address),
            units.whole(one.ring_size),
            units.whole(one.replaced),
            f"none: {NOBODY}",
        ]
        for one in rings
    ]
    note = "A ring that nobody reads throws away what comes, however large it is."
    headings = ["ring", "size now", "thrown away", "advice"]
    return limited(Table("Rings that nobody reads", headings, rows, frozenset({0, 3}), note))


def _bytes(one: RingAdvice, size: int) -> str:
    return units.size(one.bytes(size)) if one.ring.average else "unknown"


def _ring_plot(name: str, one: RingAdvice, keep: str) -> Plot:
    line = Line("kept of what was thrown away", 100 * one.kept)
    axes = Axis("ring-size (messages)"), Axis("% kept", percent=True)
    label = f"{keep}: ring-size {units.whole(one.size)}"
    if one.ring.average:
        label += f", about {units.size(one.bytes(one.size))}"
    return curve(name, one.ring.queue, one.sizes, line, axes, one.size, label)


def addresses(found: Findings) -> Section:
    """Limits of addresses."""
    share = units.percent(found.wish.unpaged)
    section = Section(
        "address-sizes",
        "Advice: max-size-bytes",
        [
            f"The max-size-bytes with which each address that paged would have had all its messages in memory {share} "
            "of the time, and for other limits the share of the time.",
            "Messages in pages may be in memory too, as long as there is room for what was read back. "
            "It comes from samples: at each time the bytes in memory, and the messages on disk only times the mean "
            "size of those in memory. A message that is in several queues of its address counts in each, though it is "
            "in memory once: for topics that is an upper bound. Consumers go on as they did.",
        ],
        empty="No address paged: nothing is told of messages in pages in this period.",
    )
    if not found.addresses:
        if any(one.paged for one in found.traffic):
            unknown = (
                "Addresses paged, but no sample has any of their messages in memory: their size is not known."
            )
            return Section(section.anchor, section.title, section.lead, empty=unknown)
        return section
    rows: Rows = [
        [
            name_cell(one.held.address),
            units.share(one.paging),
            units.size(one.held.average),
            units.whole(one.size),
            units.size(one.size),
            units.size(one.enough),
        ]
        for one in found.addresses
    ]
    headings = [
        "address",
        "on disk only, of the time",
        "mean message",
        f"bytes for {share}",
        "that is",
        "for all the time",
    ]
    plots = [_address_plot(f"address-{at}", one, share) for at, one in enumerate(found.addresses[:CURVES])]
    return Section(section.anchor, section.title, section.lead, plots, [Table("Limits", headings, rows)])


def _address_plot(name: str, one: AddressAdvice, share: str) -> Plot:
    line = Line("time with all messages in memory", 100 * one.unpaged)
    axes = Axis("max-size-bytes", units.size), Axis("% of the time", percent=True)
    label = f"{share}: {units.whole(one.size)} bytes, {units.size(one.size)}"
    return curve(name, one.held.address, one.sizes, line, axes, one.size, label)
