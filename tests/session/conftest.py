"""A broker in memory that keeps its queues, and a client of it."""

import pytest

from .session_fixture import Server


@pytest.fixture
def server():
    """A broker with one acceptor; it keeps queues that nobody uses."""
    return Server({"#": {"auto_delete_queues": False}})


@pytest.fixture
def client(server):
    """A client that is connected."""
    return server.client()
