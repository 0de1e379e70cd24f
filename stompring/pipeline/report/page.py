"""The page: one HTML file that needs no other file and no network, and no script without interactive plots."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import markupsafe

from stompring.pipeline.report import (
    event_sections,
    interactive,
    reading_sections,
    sizing_sections,
    summary,
    traffic_sections,
    units,
)
from stompring.pipeline.report.findings import Findings, Wish
from stompring.pipeline.report.parts import Section

#: Kinds of plots: pictures, plots that answer to a pointer, or both.
PLOTS = ("static", "interactive", "both")


def page(found: Findings | None, wish: Wish, made: datetime, plots: str = "static") -> str:
    """The HTML of a report; ``found`` is None where there is nothing to report, ``plots`` one of `PLOTS`."""
    # Names of queues are whatever clients make them: everything is escaped but what this package wrote itself.
    environment = Environment(
        loader=PackageLoader("stompring.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["trusted"] = markupsafe.Markup
    parts = [] if found is None else sections(found)
    return str(
        environment.get_template("report.html").render(
            made=made.strftime("%Y-%m-%d %H:%M"),
            wish=wish,
            asked=_asked(wish),
            period=None if found is None else _period(found),
            numbers=[] if found is None else summary.numbers(found),
            sentences=[] if found is None else list(summary.sentences(found)),
            sections=parts,
            compared="" if found is None else summary.compared(found),
            plots=plots,
            scripts=interactive.scripts(parts) if plots != "static" and parts else None,
        )
    )


def sections(found: Findings) -> list[Section]:
    """All parts, in their order on the page."""
    return [
        traffic_sections.depth(found),
        traffic_sections.rates(found),
        reading_sections.unread(found),
        reading_sections.drain(found),
        reading_sections.consumers(found),
        event_sections.latency(found),
        event_sections.evictions(found),
        event_sections.hot_spots(found),
        traffic_sections.queues(found),
        reading_sections.coverage(found),
        sizing_sections.rings(found),
        sizing_sections.addresses(found),
    ]


def _period(found: Findings) -> dict[str, Any]:
    return {
        "begin": units.date(found.begin),
        "end": units.date(found.end),
        "length": units.span((found.end - found.begin) / 1e6),
    }


def _asked(wish: Wish) -> str:
    """What was asked for, in words."""
    since, until = wish.period.begin, wish.period.end
    parts = [
        "" if since is None else f"since {units.date(since)}",
        "" if until is None else f"until {units.date(until)}",
        f"of the addresses {', '.join(wish.addresses)}" if wish.addresses else "",
        f"of the brokers {', '.join(wish.brokers)}" if wish.brokers else "",
    ]
    return ", ".join(filter(None, parts)) or "everything in the lake"
