"""A broker with pages, and two queues of its address."""

import pytest

from .paged_broker import PagedBroker
from .writer_fixture import WriterFixture


@pytest.fixture
def world():
    """The broker; modules may have another one."""
    return PagedBroker()


@pytest.fixture
def q(world):
    """The first queue."""
    return world.queues("q", "r")[0]


@pytest.fixture
def r(world):
    """The second queue."""
    return world.queues("q", "r")[1]


@pytest.fixture
def desk():
    """A writer with its disk and files."""
    return WriterFixture()
