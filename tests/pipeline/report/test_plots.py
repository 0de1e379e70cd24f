"""Plots: SVG that can stand in a page beside others."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import json
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

from stompring.pipeline.report import plots
from stompring.pipeline.report.page import Section, described, scripts
from stompring.pipeline.report.plots import (
    MAX_LINES,
    OTHERS,
    Axis,
    Line,
    curve,
    duration_ticks,
    over_time,
    queue_lines,
)
from stompring.pipeline.report.queries import HOUR, Grid

GRID = Grid(1_782_864_000_000_000, HOUR, 48)
HOSTILE = "</title><script>alert(1)</script>"


def drawn(name="one", *lines):
    lines = lines or (Line("a", np.arange(48.0)), Line("b", np.full(48, np.nan)))
    return over_time(name, HOSTILE, GRID, lines, Axis("messages"))


def test_it_is_well_formed_and_names_are_escaped():
    root = ElementTree.fromstring(drawn().svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
    assert "currentColor" in drawn().svg and "var(--grid)" in drawn().svg
    assert "#000000" not in drawn().svg and "<style" not in drawn().svg
    assert root[0].text == HOSTILE
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] == root[0].attrib["id"]
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}


def test_ids_are_its_own_and_all_that_it_refers_to_is_there():
    assert drawn() == drawn()
    svgs = [drawn("one").svg, drawn("two").svg]
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in svgs]
    assert not ids[0] & ids[1]
    for svg, own in zip(svgs, ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= own


def test_it_has_no_more_lines_than_can_be_told_apart():
    plot = drawn("many", *[Line(str(number), np.arange(48.0)) for number in range(MAX_LINES + 5)])
    assert len({(key.colour, key.dash) for key in plot.keys}) == len(plot.keys) == MAX_LINES


def test_the_rest_of_many_queues_is_one_line():
    each = [(f"queue.{number}", np.full(48, float(number))) for number in range(MAX_LINES - 1)]
    plot = drawn("rest", *queue_lines(each, np.arange(48.0), 5))
    assert [key.label for key in plot.keys] == [*(name for name, _ in each), "5 others"]
    assert (plot.keys[-1].colour, plot.keys[-1].dash) == OTHERS
    assert len({(key.colour, key.dash) for key in plot.keys}) == MAX_LINES
    assert queue_lines(each, np.arange(48.0), 1)[-1].label == "1 other"


def test_a_shortened_name_is_there_as_a_whole():
    name = "sub.4f2a9c11-7b3e-4f6a-9d2e-0123456789ab"
    plot = over_time("short", name, GRID, queue_lines([(name, np.arange(48.0))]), Axis("messages"))
    assert (plot.title, plot.whole) == ("sub.4f2a9c…", name)
    assert (plot.keys[0].label, plot.keys[0].whole) == ("sub.4f2a9c…", name)
    assert described(plot)["lines"][0]["whole"] == name


def test_who_does_not_see_a_plot_has_its_numbers():
    values = np.full(48, np.nan)
    values[[3, 7, 9]] = 4.0, 12_000.0, 5.0
    plot = drawn("told", Line("a", values), Line("none", np.full(48, np.nan)))
    assert plot.summary == [
        ["a", "4", "12\u00a0k", "2026-07-01 07:30:00", "5"],
        ["none", "–", "–", "–", "–"],
    ]


def test_a_pointer_finds_the_same_numbers():
    values = np.array([0.25, np.nan, 1 / 3])
    grid = Grid(GRID.start, HOUR, 3)
    plot = over_time("i", "times", grid, [Line(HOSTILE, values)], Axis("time", plots.span_text))
    told = described(plot)
    middles = [(GRID.start + HOUR * at + HOUR // 2) // 1000 for at in range(3)]
    assert (told["x"], told["time"], told["logy"]) == (middles, True, True)
    (line,) = told["lines"]
    assert (line["y"], line["text"]) == (
        [0.25, None, 0.333333],
        [plots.span_text(0.25), None, plots.span_text(1 / 3)],
    )
    whole = scripts([Section("s", "s", plots=[plot])])
    assert "<" not in whole.data and json.loads(whole.data)[0] == told


def test_the_script_of_plotly_can_stand_in_a_page():
    whole = scripts([])
    assert len(whole.policy.split()) == len(whole.sources) == 2
    for source in whole.sources:
        # Neither ends the element early, nor is changed by who reads it: its hash would be another.
        assert not re.search(r"</script|<!--|\r|\0", source, re.IGNORECASE)


def test_a_pointer_finds_the_advice_of_a_curve():
    sizes = np.array([1, 10, 1000])
    axes = Axis("size", plots.size_text), Axis("%", percent=True)
    told = described(curve("c", "curve", sizes, Line("kept", np.array([0.0, 50.0, 100.0])), axes, 10, "99 %"))
    assert (told["x"], told["time"], told["logx"], told["mark"]) == ([1.0, 10.0, 1000.0], False, True, 10)
    (line,) = told["lines"]
    assert line["y"] == [0.0, 50.0, 100.0]


@pytest.mark.parametrize("axis", [Axis("messages"), Axis("time", plots.span_text)])
def test_there_may_be_nothing_to_draw_and_a_point_alone_is_to_be_seen(axis):
    def drawn_of(*values):
        line = Line("a", np.array([*values, *[np.nan] * (48 - len(values))]))
        return over_time("few", "few", GRID, [line], axis).svg

    assert "<svg" in drawn_of() and "<svg" in drawn_of(*[0.0] * 48)
    assert drawn_of(3.0).count("<use") == drawn_of(3.0, 3.0).count("<use") + 1


@pytest.mark.parametrize("factor, scale", [(2.0, ""), (10_000.0, "logarithmic scale")])
def test_the_scale_lets_every_line_be_seen(factor, scale):
    lines = [Line("a", np.arange(48.0)), Line("b", np.arange(48.0) * factor)]
    assert drawn("scaled", *lines).scale == scale


@pytest.mark.parametrize("sizes", [[10, 11, 12], [1, 2, 3], [100, 10_000, 1_000_000], [5, 5, 5]])
def test_a_curve_marks_the_advice(sizes):
    axes = Axis("size", plots.size_text), Axis("%", percent=True)
    plot = curve(
        "c", "curve", np.array(sizes), Line("kept", np.array([0.0, 50.0, 100.0])), axes, sizes[1], "99 %: 11"
    )
    assert [key.label for key in plot.keys] == ["kept", "99 %: 11"]


@pytest.mark.parametrize("low, high", [(1e-6, 1e7), (0.9, 4.1), (0.001, 60.0), (300.0, 4000.0)])
def test_an_axis_of_durations_has_some_marks_and_not_too_many(low, high):
    found = duration_ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low <= each <= high for each in found)


def test_the_pipeline_does_not_bring_matplotlib():
    code = "import sys, stompring.pipeline; sys.exit('matplotlib' in sys.modules or 'jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
