"""A store of the S3 protocol for lakes."""

import os

import pytest

from .s3_server import ObjectServer


@pytest.fixture(scope="session")
def object_server():
    """A server, on the loopback interface."""
    for library in ("moto", "flask", "obstore"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[test]'")
    server = ObjectServer()
    yield server
    server.stop()


@pytest.fixture
def bucket(object_server, monkeypatch):
    """The URL of a new bucket, that the environment says how to reach."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{object_server.bucket()}"
