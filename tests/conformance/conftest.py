"""Fixtures of conversations with a broker."""

import pytest


@pytest.fixture
def client(request, connect):
    """A client that is connected: of the test's ``version`` where it names one, else of the latest."""
    return connect(request.getfixturevalue("version") if "version" in request.fixturenames else "1.2")
