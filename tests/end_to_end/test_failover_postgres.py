"""Brokers of a replicated log in PostgreSQL: takeover, fencing, and a database that fails over itself."""

from itertools import count

import pytest

from stompring.replication.engines import create_log, deletion_of, open_log
from stompring.replication.log import LogMissing
from stompring.settings.model import ReplicatedLogSettings

from .. import postgres_server
from ..postgres_server import postgres_pair
from .replicated import (
    PAGES,
    Brokers,
    data_directory_moves_into_the_log,
    killed_broker_is_replaced,
    stopped_broker_exits_with_75,
)
from .steps import receive, say

REASON = postgres_server.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

STREAMS = count(1)


def brokers(database, directory):
    """Brokers whose log is in PostgreSQL."""
    url, stream = database.url().replace("stompring@", ""), f"stream{next(STREAMS)}"
    settings = ReplicatedLogSettings(url, stream, "test", user="stompring")
    return Brokers(settings, directory, "stompring", settings=PAGES)


@pytest.fixture(scope="module")
def database():
    with postgres_pair() as running:
        yield running


@pytest.fixture
def pair(database, tmp_path):
    found = brokers(database, tmp_path)
    found.create()
    try:
        yield found
    finally:
        found.stop()


def test_killed_broker_is_replaced_and_loses_no_receipted_message(pair):
    killed_broker_is_replaced(pair)


def test_broker_that_was_stopped_for_a_while_exits_with_75(pair):
    stopped_broker_exits_with_75(pair)


def test_an_existing_data_directory_moves_into_a_log_without_loss(database, tmp_path):
    pair = brokers(database, tmp_path)
    try:
        data_directory_moves_into_the_log(pair)
    finally:
        pair.stop()


def test_log_is_gone_after_the_command_that_is_shown_for_it(pair, database):
    broker = pair.start("a")
    broker.put("one")
    broker.stop()
    with database.primary.connection() as connection:
        assert connection.execute(deletion_of(pair.settings).encode()).rowcount > 0
    log = open_log(pair.settings)
    with pytest.raises(LogMissing):
        log.connect()
    log.close()
    create_log(pair.settings, -1)


def test_active_broker_stays_when_the_database_fails_over(pair, database):
    active = pair.start("a")
    client = active.client()
    client.put("q", "one", "two", persistent="true")
    database.fail_over()
    say(client, "q", b"three", persistent="true", receipt="r")
    active.wait_for_log("delivery suspended")  # the promoted server has no synchronous standby
    assert client.waiting() == 0
    database.add_standby()
    active.wait_for_log("delivery resumed")
    client.expect("RECEIPT", **{"receipt-id": "r"})
    receive(client, "q", "one", "two", "three")
    active.stop()
    log = open_log(pair.settings)
    assert log.connect().healthy
    log.close()
