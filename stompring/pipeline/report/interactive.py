"""Plots that answer to a pointer, by plotly: its script once in the page, and what is drawn as JSON beside it.

The page needs no network for that: its Content-Security-Policy allows the scripts that it has, by their hashes, and
nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from stompring.pipeline.report import units
from stompring.pipeline.report.parts import Section
from stompring.pipeline.report.plots import Chart, Plot, style


@dataclass(frozen=True, slots=True)
class Scripts:
    """What goes into a page: scripts, in their order, and data as JSON that no HTML ends."""

    sources: Sequence[str]
    data: str

    @property
    def policy(self) -> str:
        """For `script-src`: their hashes."""
        hashes = (hashlib.sha256(source.encode()).digest() for source in self.sources)
        return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in hashes)


def scripts(sections: Sequence[Section]) -> Scripts:
    """For all plots of the sections. It brings plotly's script, of 5 MB."""
    from plotly.offline import get_plotlyjs

    own = files("stompring.pipeline.report").joinpath("templates/interactive.js").read_text(encoding="utf-8")
    plots = [described(plot) for section in sections for plot in section.plots if plot.chart is not None]
    data = json.dumps(plots, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return Scripts([get_plotlyjs(), own], data)


def described(plot: Plot) -> dict[str, Any]:
    """A plot as `interactive.js` wants it. Its dates are milliseconds since the epoch."""
    chart = plot.chart
    assert chart is not None
    time = chart.level is None
    return {
        "name": plot.name,
        "x": [value // 1000 for value in chart.across.tolist()] if time else _numbers(chart.across),
        "time": time,
        "xlabel": "" if chart.level is None else chart.level.label,
        "ylabel": chart.upright.label,
        "logx": chart.logarithmic,
        "logy": bool(plot.scale),
        "percent": chart.upright.percent,
        "mark": chart.mark,
        "lines": [
            _line(chart, line, key.colour, key.dash)
            for line, key in zip(chart.lines, style(chart.lines), strict=True)
        ],
        "ticks": _ticks(plot),
    }


def _line(chart: Chart, line: Any, colour: str, dash: str) -> dict[str, Any]:
    values = _numbers(line.values)
    found = {"label": line.label, "whole": line.whole or line.label, "colour": colour, "y": values}
    found["dash"] = {"none": "solid", "1 2": "dot"}.get(dash, "dash")
    # Numbers are told as elsewhere on the page: a script would have to know durations and bytes.
    if not chart.upright.percent and chart.upright.text is not units.count:
        found["text"] = [None if value is None else chart.upright.text(value) for value in values]
    return found


def _ticks(plot: Plot) -> dict[str, Any] | None:
    """Places and texts on an axis of bytes or durations."""
    chart = plot.chart
    assert chart is not None
    from stompring.pipeline.report.plots import marks

    if chart.upright.text is not units.span:
        return None
    known = [value for line in chart.lines for value in np.asarray(line.values).tolist() if value > 0]
    places = marks(min(known) / 2, max(known) * 2) if known else []
    return {"places": places, "texts": [units.span(each) for each in places]}


def _numbers(values: Any) -> list[float | None]:
    """Six digits that count; None for what is not known."""
    return [
        float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, float).tolist()
    ]
