"""``stompring lake …``: what the broker kept as tables, reports and replays, with Spark."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import Any

import click

from stompring.cli.lake_history import history, restore
from stompring.cli.lake_ingest import ingest
from stompring.cli.lake_replay import replay
from stompring.cli.lake_report import report
from stompring.cli.lake_sql import sql, tables
from stompring.cli.lake_upkeep import compact, vacuum
from stompring.cli.lake_view import view, views
from stompring.cli.lake_warm import warm

#: What the extra brings, by the names under which it is imported.
NEEDED = (
    "pyspark",
    "pyarrow",
    "numpy",
    "deltalake",
    "duckdb",
    "fastavro",
    "obstore",
    "jinja2",
    "matplotlib",
)


class _Commands(click.Group):
    """Faults that a user can do something about become a message and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        if any(word in ctx.help_option_names for word in ctx.args) or "--help" in sys.argv:
            return super().invoke(ctx)
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise click.ClickException(
                f"lake needs {', '.join(missing)}, which is not installed: pip install 'stompring[spark]'"
            )
        logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO, stream=sys.stderr)
        logging.getLogger("py4j").setLevel(logging.ERROR)
        try:
            return super().invoke(ctx)
        except click.ClickException:
            raise
        except Exception as fault:
            text = _told(fault)
            if text is None:
                raise
            raise click.ClickException(text) from None


def _told(fault: Exception) -> str | None:
    """What to tell of a fault without a traceback; None where that is a mistake of ours."""
    from stompring.errors import StoreError
    from stompring.pipeline.backlog import DataLoss, Replaced
    from stompring.pipeline.faults import sentence
    from stompring.pipeline.java import NoJava
    from stompring.pipeline.lake import delta
    from stompring.pipeline.lake.chosen import BadCondition
    from stompring.pipeline.lake.duck import QueryError
    from stompring.pipeline.lake.history import NoVersion
    from stompring.pipeline.lake.lake import NoLake
    from stompring.pipeline.lake.schemas import BadSchema
    from stompring.pipeline.lake.views import ViewError
    from stompring.pipeline.options import OptionError
    from stompring.pipeline.s3a import NoConnector
    from stompring.pipeline.session import is_of_spark
    from stompring.store.ingested import Busy

    ours = (NoJava, NoConnector, NoLake, NoVersion, BadCondition, OptionError, DataLoss, Replaced, Busy)
    of_views = (QueryError, BadSchema, ViewError)
    if isinstance(fault, (*ours, *of_views, StoreError, OSError)):
        return str(fault)
    if delta.is_fault(fault):
        return f"a table of the lake cannot be read or written: {fault}"
    if is_of_spark(fault):
        return sentence(str(fault)) or _cause(str(fault))
    return None


def _cause(text: str) -> str:
    """Of what Spark says when a task fails, the line of the exception that the task raised."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last):" in text:
        tail = text.rpartition("Traceback (most recent call last):")[2].splitlines()
        raised = [line for line in tail if line and not line[0].isspace()]
        if raised:
            return raised[0]
    return lines[0].removeprefix("An exception was thrown from the Python worker. ")


@click.group(cls=_Commands)
def lake() -> None:
    """Tables, reports and replays of what the broker kept, with Spark.

    The broker keeps what goes through it where its broker.xml has journal-retention-directory. 'lake ingest' puts that
    into a lake: Delta tables 'messages', 'events' and 'samples' that Spark, DuckDB, Polars and pandas read.

    Needs pip install 'stompring[spark]'.
    """


for command in (ingest, tables, sql, report, replay, compact, vacuum, history, restore, view, views, warm):
    lake.add_command(command)
