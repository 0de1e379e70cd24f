"""Lists in pages: what to leave out, in which order, and how much of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .answer import Answer, Problem, Steps, encode
from .query import Query
from .slices import STEP

Thing = TypeVar("Thing")

#: What is shown of a thing, each with how it is read.
Fields = Mapping[str, Callable[[Thing], Any]]

#: Parameters of every list besides its fields.
PAGING = frozenset({"page", "size"})
LISTING = PAGING | {"sort", "search"}

#: Items of a page, unless said otherwise, and at most.
SIZE = 200
MOST = 1000


def view(thing: Thing, fields: Fields[Thing]) -> dict[str, Any]:
    """All fields of a thing."""
    return {name: read(thing) for name, read in fields.items()}


def paging(query: Query, size: int = SIZE, most: int = MOST) -> tuple[int, int]:
    """``page``, from 1, and ``size``. Raises 400."""
    return query.number("page", 1, 1), query.number("size", size, 1, most)


def page_answer(items: list[bytes], count: int, page: int, size: int) -> Answer:
    """One page of encoded items; ``count`` is how many there are on all pages together."""
    return Answer(b'{"data":[%b],"count":%d,"page":%d,"size":%d}' % (b",".join(items), count, page, size))


def paged(query: Query, things: Sequence[Thing], fields: Fields[Thing], searched: str) -> Steps:
    """A page of things, in the order given.

    ``search`` keeps those whose field ``searched`` contains a text, whatever its case; a parameter named as a field
    keeps those that have the value. ``sort`` is a field, with ``-`` before it for the other direction. Raises 400.
    """
    page, size = paging(query)
    keep, key, backwards = _filter(query, fields, searched), *_order(query, fields)
    chosen = things
    if keep is not None or key is not None:
        found: list[tuple[Any, Thing]] = []
        for place, thing in enumerate(things):
            if keep is None or keep(thing):
                found.append((None if key is None else key(thing), thing))
            if place % STEP == STEP - 1:
                yield
        if key is not None:
            found.sort(key=lambda pair: pair[0], reverse=backwards)
        chosen = [thing for _, thing in found]
    items = []
    for place, thing in enumerate(chosen[(page - 1) * size : page * size]):
        items.append(encode(view(thing, fields)))
        if place % STEP == STEP - 1:
            yield
    return page_answer(items, len(chosen), page, size)


def _filter(query: Query, fields: Fields[Thing], searched: str) -> Callable[[Thing], bool] | None:
    wanted = [(fields[name], value) for name, value in query if name in fields]
    text = (query.text("search") or "").lower()
    if not wanted and not text:
        return None
    name_of = fields[searched]

    def keep(thing: Thing) -> bool:
        return (not text or text in name_of(thing).lower()) and all(
            _has(read(thing), want) for read, want in wanted
        )

    return keep


def _has(value: object, want: str) -> bool:
    """Whether a value is written so in JSON, quotes aside; a list has what one of its items is."""
    if isinstance(value, str):
        return value == want
    if isinstance(value, list):
        return want in value
    return json.dumps(value) == want


def _order(query: Query, fields: Fields[Thing]) -> tuple[Callable[[Thing], Any] | None, bool]:
    sort = query.text("sort")
    if not sort:
        return None, False
    read = fields.get(sort.removeprefix("-"))
    if read is None:
        raise Problem(400, f"sort: there is no field {sort.removeprefix('-')!r}", parameter="sort")

    def key(thing: Thing) -> tuple[bool, Any]:
        value = read(thing)
        return value is not None, value

    return key, sort.startswith("-")
