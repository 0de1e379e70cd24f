"""Ingests in this process, commands, what delta-rs reads of a lake, and kills at each thing that is written."""

import shutil
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from stompring.cli.main import main
from stompring.pipeline.backlog import Limit
from stompring.pipeline.files import DataFiles
from stompring.pipeline.lake.ingest import Ingest
from stompring.pipeline.lake.lake import Lake

#: By their names.
COMMANDS = main.get_command(click.Context(main), "lake").commands


class Counted:
    """As an accumulator of Spark."""

    def __init__(self, value):
        self.value = value

    def __iadd__(self, more):  # noqa: PYI034 - there is no other
        self.value += more
        return self


class InProcess:
    """What an ingest of files without copies needs of Spark, in this process."""

    defaultParallelism = 2

    def __init__(self, items=()):
        self._items = items
        self.sparkContext = self

    def setJobDescription(self, text):  # noqa: N802 - Spark's name
        pass

    def accumulator(self, value):
        return Counted(value)

    def parallelize(self, items, count):
        return InProcess(items)

    def map(self, function):
        return InProcess([function(item) for item in self._items])

    def collect(self):
        return self._items


def ingest(data, lake, name="main", spark=None, **limit):
    """All that there is, and how many batches that took."""
    target = Lake(str(lake))
    target.create(4)
    work = Ingest(spark or InProcess(), DataFiles(str(data)), target, Limit(**limit), name=name)
    return len(list(work.batches()))


def run(*words):
    """A command of the lake."""
    return CliRunner().invoke(main, ["lake", *map(str, words)])


def done(*words):
    """What a command says that succeeds."""
    result = run(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def messages(lake):
    """A row of each message and queue, as the files of the broker have it."""
    table = lake.tables["messages"].open().to_pyarrow_dataset().to_table()
    found = table.drop_columns(["date", "bucket", "broker"]).to_pylist()
    return sorted(
        ({**row, "headers": dict(row["headers"])} for row in found),
        key=lambda row: (row["message_id"], row["queue"]),
    )


def events(lake):
    """All events."""
    return lake.tables["events"].open().to_pyarrow_dataset().to_table().to_pylist()


class Cut(BaseException):
    """As a kill: nothing catches it."""


def cut_anywhere(lake, targets, work):
    """Copies of a lake at which some ``work`` was killed before or after each call of these functions, and one more."""
    for after in (False, True):
        step, left = 0, [-1]
        while left[0] < 0:
            copy, left = Path(shutil.copytree(lake, lake.with_name(f"{after}{step}"))), [step]
            with pytest.MonkeyPatch.context() as patch, suppress(Cut):
                for owner, name in targets:
                    patch.setattr(owner, name, cutting(getattr(owner, name), left, after))
                work(copy)
            yield copy
            step += 1


def cutting(function, left, after):
    """That function, which is killed when nothing is ``left``, before it has written or after."""

    def called(*arguments, **named):
        left[0] -= 1
        if left[0] == -1 and not after:
            raise Cut
        result = function(*arguments, **named)
        if left[0] == -1:
            raise Cut
        return result

    return called


def rows(lake, table, version=None):
    """What delta-rs reads, in an order that does not depend on that of the columns."""
    found = DeltaTable(str(lake / table), version=version).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: repr(sorted(row.items())))
