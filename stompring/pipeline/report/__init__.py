"""The report on a lake: one HTML page with plots and advice (docs/report.md). `write_report` is all that others need.

It brings matplotlib and jinja2 along: import it where it is used.
"""

from stompring.pipeline.report.period import Period as Period
from stompring.pipeline.report.tables import Lake as Lake
from stompring.pipeline.report.write import write_report as write_report
