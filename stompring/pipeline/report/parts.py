"""What a page is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stompring.pipeline.report.names import short
from stompring.pipeline.report.plots import Plot


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and a lesser one below it; ``whole`` is the name that the text is short for."""

    text: str
    below: str = ""
    whole: str = ""


Rows = list[list[Cell | str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; the first cell of each row is its heading. Those of ``words`` are no numbers."""

    title: str
    headings: Sequence[str]
    rows: Rows
    words: frozenset[int] = frozenset({0})
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. ``lead`` says what is shown and where it is from, ``empty`` why there is nothing to show."""

    anchor: str
    title: str
    lead: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    empty: str = ""
    after: Sequence[str] = field(default=())


#: Rows of a table; the ones after them are counted.
ROWS = 25


def limited(table: Table, most: int = ROWS) -> Table:
    """The table, with no more rows than anybody reads."""
    rest = len(table.rows) - most
    if rest <= 0:
        return table
    note = f"{table.note} {rest} more are left out: the table has the first {most}.".strip()
    return Table(table.title, table.headings, table.rows[:most], table.words, note)


def queue_cell(queue: str, address: str) -> Cell:
    """The name of a queue, and its address where that is another."""
    if queue == address or not address:
        return name_cell(queue)
    whole = f"{queue} of {address}" if (short(queue), short(address)) != (queue, address) else ""
    return Cell(short(queue), f"of {short(address)}", whole)


def name_cell(name: str) -> Cell:
    """A name, shortened if it must be."""
    return Cell(short(name), whole=name if short(name) != name else "")
