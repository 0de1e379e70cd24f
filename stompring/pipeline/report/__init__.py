"""The report on a lake: one HTML page with plots and advice (docs/report.md), written by `write_report`.

The package imports matplotlib and jinja2: import it only in functions that use it.
"""

from .page import write_report
from .queries import Lake, Period

__all__ = ["Lake", "Period", "write_report"]
