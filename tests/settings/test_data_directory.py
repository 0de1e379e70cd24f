"""Where the store is, by what broker.xml and --data say."""

from pathlib import Path

import pytest

from stompring.settings.machine import DataDirectory, data_directory
from stompring.settings.model import BrokerConfiguration

CASES = [
    # file, journal-directory, paging-directory, --data: root, journal, paging
    (
        "/srv/b/config/broker.xml",
        None,
        None,
        None,
        "/srv/b/data",
        "/srv/b/data/journal",
        "/srv/b/data/paging",
    ),
    ("/srv/b/etc/x.xml", None, None, None, "/srv/b/data", "/srv/b/data/journal", "/srv/b/data/paging"),
    ("/srv/b/conf/x.xml", None, None, None, "/srv/b/data", "/srv/b/data/journal", "/srv/b/data/paging"),
    ("/srv/b/broker.xml", None, None, None, "/srv/b/data", "/srv/b/data/journal", "/srv/b/data/paging"),
    ("/srv/b/etc/x.xml", "kept/log", None, None, "/srv/b/kept", "/srv/b/kept/log", "/srv/b/data/paging"),
    ("/srv/b/etc/x.xml", "/fast/journal", "/big/pages", None, "/fast", "/fast/journal", "/big/pages"),
    ("/srv/b/etc/x.xml", None, None, "/elsewhere", "/elsewhere", "/elsewhere/journal", "/elsewhere/paging"),
    ("/srv/b/etc/x.xml", "/fast/j", "/big/p", "/else", "/else", "/else/journal", "/else/paging"),
]


@pytest.mark.parametrize(("file", "journal", "paging", "override", *"rjp"), CASES)
def test_directories(file, journal, paging, override, r, j, p):
    declared = {"journal_directory": journal, "paging_directory": paging}
    configuration = BrokerConfiguration(file=file, **{name: text for name, text in declared.items() if text})
    assert data_directory(configuration, override) == DataDirectory(Path(r), Path(j), Path(p))


def test_relative_paths_begin_where_the_process_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert data_directory(BrokerConfiguration(file="config/broker.xml")).root == tmp_path / "data"
    assert data_directory(BrokerConfiguration(file="broker.xml")).root == tmp_path / "data"
    assert data_directory(BrokerConfiguration()).root == tmp_path / "data"
    assert data_directory(BrokerConfiguration(), "here").paging == tmp_path / "here" / "paging"
