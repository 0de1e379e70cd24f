"""The report on a lake: one HTML page with plots and advice (docs/report.md). `write_report` is all that others need.

It brings matplotlib and jinja2 along: import it where it is used.
"""

from .page import write_report
from .queries import Lake, Period

__all__ = ["Lake", "Period", "write_report"]
