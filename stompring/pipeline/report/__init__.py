"""The report on a lake: one HTML page with plots and advice (docs/report.md). `write_report` is all that others need.

It brings matplotlib and jinja2 along: import it where it is used.
"""

from stompring.pipeline.report.page import write_report
from stompring.pipeline.report.period import Period
from stompring.pipeline.report.tables import Lake

__all__ = ["Lake", "Period", "write_report"]
