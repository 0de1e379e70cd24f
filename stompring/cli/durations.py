"""Durations and rates as options of commands: ``500ms``, ``10s``, ``5m``; a number alone is seconds."""

from __future__ import annotations

import math
import re
from typing import Any

import click

_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|)")


def seconds(text: str) -> float:
    """The seconds of ``500ms``, ``10s``, ``1.5m``, ``2h``, ``7d`` or ``10``. Raises `ValueError`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(
            f"{text!r} is not a duration: write 500ms, 10s, 5m, 2h or 7d; a number alone is seconds"
        )
    return float(found[1]) * _UNITS[found[2]]


class Duration(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.4
    """An option in seconds: a number with a unit, or seconds without one."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType`."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return seconds(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


class Positive(click.FloatRange):
    """A finite number above 0. To click ``nan`` and ``inf`` are in a range without an end."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number
