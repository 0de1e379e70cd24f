"""Ingests in this process, commands, what delta-rs reads of a lake, and kills at each thing that is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stompring.cli.lake import lake as command
from stompring.pipeline.backlog import Limit
from stompring.pipeline.files import DataFiles
from stompring.pipeline.lake.ingest import Ingest
from stompring.pipeline.lake.lake import Lake


class Counted:
    """As an accumulator of Spark."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iadd__(self, more: Any) -> Counted:  # noqa: PYI034 - there is no other
        self.value += more
        return self


class InProcess:
    """What an ingest of files without copies needs of Spark, in this process."""

    defaultParallelism = 2

    def __init__(self, items: Any = ()) -> None:
        self._items = items
        self.sparkContext = self

    def setJobDescription(self, text: str) -> None:  # noqa: N802 - Spark's name
        pass

    def accumulator(self, value: Any) -> Counted:
        return Counted(value)

    def parallelize(self, items: Any, count: int) -> InProcess:
        return InProcess(items)

    def map(self, function: Callable[[Any], Any]) -> InProcess:
        return InProcess([function(item) for item in self._items])

    def collect(self) -> Any:
        return self._items


def ingest(data: Path, lake: object, name: str = "main", spark: Any = None, **limit: int) -> int:
    """All that there is, and how many batches that took."""
    target = Lake(str(lake))
    target.create(4)
    work = Ingest(spark or InProcess(), DataFiles(str(data)), target, Limit(**limit), name=name)
    return len(list(work.batches()))


def run(*words: object) -> Result:
    """A command of the lake."""
    return CliRunner().invoke(command, [str(word) for word in words])


def done(*words: object) -> str:
    """What a command says that succeeds."""
    result = run(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def messages(lake: Lake) -> list[dict[str, Any]]:
    """A row of each message and queue, as the files of the broker have it."""
    table = lake.tables["messages"].open().to_pyarrow_dataset().to_table()
    found = table.drop_columns(["date", "bucket", "broker"]).to_pylist()
    return sorted(
        ({**row, "headers": dict(row["headers"])} for row in found),
        key=lambda row: (row["message_id"], row["queue"]),
    )


def events(lake: Lake) -> list[dict[str, Any]]:
    """All events."""
    rows: list[dict[str, Any]] = lake.tables["events"].open().to_pyarrow_dataset().to_table().to_pylist()
    return rows


class Cut(BaseException):
    """As a kill: nothing catches it."""


def cut_anywhere(
    lake: Path, targets: Iterable[tuple[Any, str]], work: Callable[[Path], Any]
) -> Iterator[Path]:
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


def cutting(function: Any, left: list[int], after: bool) -> Any:
    """That function, which is killed when nothing is ``left``, before it has written or after."""

    def called(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == -1 and not after:
            raise Cut
        result = function(*arguments, **named)
        if left[0] == -1:
            raise Cut
        return result

    return called
