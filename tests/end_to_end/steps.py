"""What clients do again and again."""

import pytest

from ..broker_document import broker_xml
from ..stomp_client import spelled


def written(directory, name="broker.xml", **document):
    """A configuration file; takes what `broker_xml` takes."""
    config = directory / name
    config.write_text(broker_xml(**document))
    return config


def connected(broker, version="1.2", **headers):
    """A client of a broker, which is connected."""
    client = broker.client(version)
    client.connect(spelled(headers))
    return client


def say(client, destination, body=b"", **headers):
    """SEND, and wait for nothing. Headers by `spelled`."""
    client.send("SEND", {"destination": destination, **spelled(headers)}, body)


def refused(client, destination, body, *words, **headers):
    """SEND with a receipt is answered by an ERROR with these words, the last frame."""
    say(client, destination, body, receipt="refused", **headers)
    client.error(*words, receipt="refused")


def receive(client, destination, *bodies, **headers):
    """Subscribe without acknowledgements, and get these messages first."""
    client.subscribe(destination, "auto", **headers)  # type: ignore[arg-type]
    client.messages(*bodies)


def several(client, number):
    """The next messages, whatever they are."""
    return [client.message() for _ in range(number)]


def leave(client, subscription="s"):
    """UNSUBSCRIBE, and wait for the receipt."""
    client.ask("UNSUBSCRIBE", {"id": subscription})


def silent(client):
    """Nothing comes for a while. (A blocked connection answers nothing, so `Dialogue.nothing` is of no use.)"""
    with pytest.raises(TimeoutError):
        client.frame(patience=0.3)


def begin(client, transaction="t"):
    """BEGIN, and wait for the receipt."""
    client.ask("BEGIN", {"transaction": transaction})


def commit(client, transaction="t"):
    """COMMIT, and wait for the receipt."""
    client.ask("COMMIT", {"transaction": transaction})


def abort(client, transaction="t"):
    """ABORT, and wait for the receipt."""
    client.ask("ABORT", {"transaction": transaction})


def make_queue(management, name, **attributes):
    """A queue, made by management."""
    return management.ask("POST", "/queues", {"name": name, **attributes})
