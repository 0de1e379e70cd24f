"""A listener whose process may open no more files: on a real socket, with faults where the system would have them."""

import errno
import os
import socket

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from stompring.settings.model import StompAcceptor

from .test_listeners import service_of

#: Connections that are closed in one go, and seconds until a listener that could not close any is read again.
MAX_CLOSED_AT_ONCE, RETRY_DELAY = 200, 0.1


class Scarce:
    """A listening socket that has so many descriptors left for connections; closing one gives one back."""

    def __init__(self, listening, left):
        self._listening = listening
        self.left = left
        self.asked = 0

    def __getattr__(self, name):
        return getattr(self._listening, name)

    def accept(self):
        self.asked += 1
        if self.left <= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        connection, address = self._listening.accept()
        self.left -= 1
        return Counted(connection, self), address


class Counted:
    def __init__(self, connection, scarce):
        self._connection = connection
        self._scarce = scarce

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def close(self):
        self._connection.close()
        self._scarce.left += 1


class Reactor(MemoryReactorClock):
    """Listens on a real socket, which has so many descriptors left."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def listenTCP(self, port, factory, backlog=50, interface=""):
        """See IReactorTCP."""
        self.port = Port(port, factory, backlog, interface, self)
        self.port.startListening()
        self.scarce = self.port.socket = Scarce(self.port.socket, self.left)
        return self.port


class House:
    """A broker on loopback, whose reactor asks its listener when told to."""

    def __init__(self, left, monkeypatch):
        self.reactor = Reactor(left)
        self.service = service_of(StompAcceptor("s", "127.0.0.1", 0), self.reactor)
        self._close_really = os.close
        monkeypatch.setattr(os, "open", self._open)
        monkeypatch.setattr(os, "close", self._close)
        self.thief = False  # another thread, which opens a file whenever a descriptor is given back
        self.service.start_listening()
        self.port, self.scarce = self.reactor.port, self.reactor.scarce
        self.clients = []

    def _open(self, path, flags):
        assert path == os.devnull and flags & os.O_CLOEXEC
        if self.reactor.scarce.left <= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        self.reactor.scarce.left -= 1
        return -1

    def _close(self, descriptor):
        if descriptor >= 0:
            self._close_really(descriptor)
        elif not self.thief:
            self.scarce.left += 1

    def knock(self, number):
        """So many clients come, and the reactor has seen them."""
        host, port = self.scarce.getsockname()
        new = [socket.create_connection((host, port)) for _ in range(number)]
        self.clients += new
        self.port.doRead()
        return new

    @property
    def made(self):
        """How many connections there are."""
        return len(self.service.connections)

    @property
    def turned_away(self):
        """How many were closed at once, since the start."""
        return self.service.broker.rejections.counts["open-files"]

    @property
    def reading(self):
        return self.port in self.reactor.getReaders()


@pytest.fixture
def house(request, monkeypatch):
    house = House(getattr(request, "param", 3), monkeypatch)
    yield house
    for client in house.clients:
        client.close()
    for each in house.reactor.removeAll():
        each.connectionLost(Failure(ConnectionDone()))


def ended(client):
    client.settimeout(0.2)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_while_there_are_descriptors_all_come_in(house):
    house.knock(2)
    assert house.made == 2 and not house.turned_away and house.reading


def test_those_beyond_are_closed_at_once_and_counted(house):
    clients = house.knock(5)
    assert house.made == 2  # the third descriptor is the spare
    assert [ended(client) for client in clients] == [False, False, True, True, True]
    assert house.turned_away == 3 and house.reading
    house.knock(1)
    assert house.turned_away == 4, "the spare is there again"


def test_a_thread_that_takes_the_spare_leaves_others_waiting_and_nothing_turns(house):
    house.thief = True
    clients = house.knock(4)
    assert house.made == 2 and not house.turned_away
    assert not house.reading, "asked again at once it would say the same"
    asked = house.scarce.asked
    house.reactor.advance(RETRY_DELAY)
    assert house.reading
    house.port.doRead()
    assert house.scarce.asked <= asked + 3 and not house.reading
    house.thief = False
    house.scarce.left = 1  # the thread has closed its file
    house.reactor.advance(RETRY_DELAY)
    house.port.doRead()
    assert house.turned_away == 2 and [ended(client) for client in clients] == [False, False, True, True]
    house.scarce.left = 2
    house.knock(1)
    assert house.made == 3 and house.reading


def test_others_have_their_turn_while_many_are_sent_away(house):
    house.scarce.left = 0
    house.knock(MAX_CLOSED_AT_ONCE + 10)
    assert house.turned_away == MAX_CLOSED_AT_ONCE and house.reading
    house.port.doRead()
    assert house.turned_away == MAX_CLOSED_AT_ONCE + 10


@pytest.mark.parametrize(
    "fault", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM], ids=errno.errorcode.get
)
def test_each_fault_of_want_rests(house, fault, monkeypatch):
    def fail():
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(house.scarce, "accept", fail)
    with pytest.raises(BlockingIOError):
        house.port.socket.accept()
    assert not house.reading
    house.reactor.advance(RETRY_DELAY)
    assert house.reading


def test_other_faults_are_told(house, monkeypatch):
    def fail():
        raise OSError(errno.EPERM, "netfilter")

    monkeypatch.setattr(house.scarce, "accept", fail)
    with pytest.raises(PermissionError):
        house.port.socket.accept()
    assert house.reading


def test_closed_while_it_rests_it_stays_closed(house):
    house.thief = True
    house.scarce.left = 0
    house.knock(1)
    assert not house.reading
    house.port.stopListening()
    house.reactor.advance(RETRY_DELAY)
    assert not house.reading and house.scarce.fileno() == -1
    assert not house.reactor.getDelayedCalls()
