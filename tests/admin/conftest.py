"""A broker service in memory, and a client of it."""

import pytest

from stompring.broker.queue import Queue

from .admin_server import AdminServer, Stomp


@pytest.fixture
def server() -> AdminServer:
    """A service without queues."""
    return AdminServer()


@pytest.fixture
def client(server: AdminServer) -> Stomp:
    """A client that is connected."""
    return server.stomp()


@pytest.fixture
def queue(server: AdminServer) -> Queue:
    """A queue of the service: ``q``, of the address of that name."""
    return server.queue()
