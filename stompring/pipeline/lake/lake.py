"""A lake: its tables, and the folder with what an ingest and a replay must remember."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from uuid import uuid4

from stompring.pipeline.folder import Folder
from stompring.pipeline.lake.delta import BUCKETS, LakeTable
from stompring.pipeline.schema import TABLES
from stompring.store.ingested import ingesting

#: Below a lake, beside its tables.
STATE = "_stompring"

_ABOUT = "lake.json"


class NoLake(ValueError):
    """There is none where one was looked for."""


class Lake:
    """See the module. Opens nothing until it is asked."""

    def __init__(self, where: str) -> None:
        """``where`` as `folder.resolved` gives it."""
        self.folder = Folder(where)
        self.state = self.folder.folder(STATE)
        self.tables: Mapping[str, LakeTable] = {name: LakeTable(self.folder, name) for name in TABLES}

    def __str__(self) -> str:
        return self.folder.where

    def create(self, buckets: int = BUCKETS) -> None:
        """Make what is not there of it."""
        for table in self.tables.values():
            if not table.exists():
                table.create(buckets)
        if not self.state.exists(_ABOUT):
            self.state.write(_ABOUT, json.dumps({"version": 1, "id": uuid4().hex}).encode())

    def require(self) -> None:
        """Raises `NoLake` where there is none."""
        if not self.state.exists(_ABOUT):
            raise NoLake(f"{self} is no lake: stompring lake ingest makes one")

    @cached_property
    def id(self) -> str:
        """What names it to the broker."""
        return str(json.loads(self.state.read(_ABOUT))["id"])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While one process writes to it no other does, as far as that can be seen from here: a lake of this machine.

        Of two elsewhere the tables take the commits of one. Raises `Busy`.
        """
        directory = self.state.local
        if directory is None:
            yield
            return
        with ingesting(directory, "lake"):
            yield

    def losses(self) -> list[str]:
        """What could not be ingested, told once for each batch."""
        names = sorted(one.name for one in self.state.entries("losses"))
        return [line for name in names for line in json.loads(self.state.read(name))]

    def frames(self, spark: Any) -> dict[str, Any]:
        """A DataFrame for each table, as it is at this moment. Raises `NoLake`."""
        self.require()
        return {name: table.frame(spark) for name, table in self.tables.items()}

    def register(self, spark: Any) -> None:
        """Let SQL know the tables by their names."""
        for name, frame in self.frames(spark).items():
            frame.createOrReplaceTempView(name)
