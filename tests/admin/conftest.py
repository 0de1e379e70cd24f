"""A broker service in memory, and a client of it."""

import pytest

from .admin_server import AdminServer


@pytest.fixture
def server():
    """A service without queues."""
    return AdminServer()


@pytest.fixture
def client(server):
    """A client that is connected."""
    return server.stomp()


@pytest.fixture
def queue(server):
    """A queue of the service: ``q``, of the address of that name."""
    return server.queue()
