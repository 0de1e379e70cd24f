"""A small DataFrame as columns of numpy, through Arrow: no Python object for each row."""

from __future__ import annotations

from typing import Any

import numpy as np


def columns(frame: Any) -> dict[str, Any]:
    """Its columns by name: arrays of numpy, texts as arrays of objects. Nulls of numbers are 0."""
    table = frame.toArrow().combine_chunks()
    found = {}
    for name in table.column_names:
        column = table.column(name)
        if str(column.type) in ("string", "large_string"):
            found[name] = np.array(column.to_pylist(), object)
        else:
            found[name] = column.fill_null(0).to_numpy()
    return found


def groups(keys: Any) -> list[tuple[Any, Any]]:
    """Each key that is there, sorted, with the places where it is."""
    unique, which = np.unique(keys, return_inverse=True)
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(unique)))
    return list(zip(unique.tolist(), np.split(order, ends[:-1]), strict=True)) if len(unique) else []
