"""The state of retained files and lakes over HTTP."""

from types import SimpleNamespace

import pytest

from stompring.settings.model import Retention
from stompring.store.datadir import INGESTED, Position, record_ingested

from .admin_server import BEGIN, AdminServer, pick

NOW = BEGIN * 1000


class Retained:
    """A broker with retained files of 100 bytes, one each minute."""

    def __init__(self, directory, numbers):
        self.directory = directory
        (directory / "journal").mkdir(parents=True)
        files = []
        for number in numbers:
            path = directory / "journal" / f"{number:09}.journal"
            path.write_bytes(b"x" * 100)
            since = NOW - (numbers.stop - number) * 60_000
            files.append(SimpleNamespace(since=since, path=path, size=100))
        self.server = AdminServer()
        retention = SimpleNamespace(
            directory=directory,
            settings=Retention(str(directory), 3_600_000, 5000),
            retained=tuple(files),
            files=len(files),
            bytes=100 * len(files),
            deleted=2,
            deleted_not_ingested=1,
        )
        service = self.server.service
        service.store = SimpleNamespace(retention=retention)

    def get(self):
        return self.server.get("/api/v1/retention")


def test_without_retention_it_is_disabled():
    found = AdminServer().get("/api/v1/retention")
    assert pick(found, "enabled", "lakes", "files", "directory") == (False, [], None, None)


def test_files_and_limits(tmp_path):
    found = Retained(tmp_path / "kept", range(1, 4)).get()
    assert found == {
        "enabled": True,
        "directory": str(tmp_path / "kept"),
        "bytes": 300,
        "files": 3,
        "oldest": NOW - 180_000,
        "newest": NOW - 60_000,
        "deleted": 2,
        "deletedNotIngested": 1,
        "period": 3_600_000,
        "storageLimit": 5000,
        "fault": None,
        "lakes": [],
    }


@pytest.mark.parametrize(
    "positions, files, bytes_, lag",
    [
        ({}, 3, 300, 180_000),
        ({"journal": Position(1, 0)}, 3, 300, 180_000),
        ({"journal": Position(2, 0)}, 2, 200, 120_000),
        ({"journal": Position(2, 30)}, 2, 170, 120_000),
        ({"journal": Position(3, 100)}, 0, 0, 0),
        ({"journal": Position(9, 0)}, 0, 0, 0),
        ({"paging/000000001": Position(9, 0)}, 3, 300, 180_000),
    ],
)
def test_what_a_lake_lacks(tmp_path, positions, files, bytes_, lag):
    broker = Retained(tmp_path / "kept", range(1, 4))
    record_ingested(broker.directory, "lake-1", "s3://bucket/<b>lake</b>", positions, when=NOW - 5)
    assert broker.get()["lakes"] == [
        {
            "lakeID": "lake-1",
            "path": "s3://bucket/<b>lake</b>",
            "ingestedUpTo": NOW - 5,
            "filesNotIngested": files,
            "bytesNotIngested": bytes_,
            "lag": lag,
        }
    ]


def test_damaged_state_of_lakes_is_a_fault(tmp_path):
    broker = Retained(tmp_path / "kept", range(1, 2))
    (broker.directory / INGESTED).write_text("[]")
    found = broker.get()
    assert pick(found, "files", "lakes") == (1, [])
    assert found["fault"].startswith(f"{broker.directory}: ")


def test_file_that_is_deleted_meanwhile_is_no_fault(tmp_path):
    broker = Retained(tmp_path / "kept", range(1, 4))
    record_ingested(broker.directory, "lake", "lake", {"journal": Position(1, 10)})
    (broker.directory / "journal" / "000000001.journal").unlink()
    assert (broker.get()["fault"], broker.get()["lakes"][0]["filesNotIngested"]) == (None, 2)
