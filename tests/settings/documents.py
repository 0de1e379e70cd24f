"""Small broker.xml documents for the tests beside this file."""

import pytest

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import parse_broker_xml

FILE = "etc/broker.xml"
QUIET = "<security-enabled>false</security-enabled>"


def document(*lines):
    """A broker.xml with ``lines`` in its core, the first of them on line 3."""
    return "\n".join(["<configuration>", "<core>", *lines, "</core>", "</configuration>"]).encode()


def parse(*lines):
    """The configuration of a document with ``lines`` in its core."""
    return parse_broker_xml(document(*lines), FILE)


def faults(*lines):
    """What is wrong with a document with ``lines`` in its core; each as ``line: text``."""
    return faults_of(document(*lines))


def faults_of(data):
    """What is wrong with ``data``, which must be something."""
    with pytest.raises(ConfigurationError) as caught:
        parse_broker_xml(data, FILE)
    reported = str(caught.value).splitlines()
    assert all(line.startswith(f"{FILE}:") for line in reported), reported
    assert caught.value.file == FILE
    assert reported[0].startswith(f"{FILE}:{caught.value.line}: ")
    return [line.removeprefix(f"{FILE}:") for line in reported]


def setting(element, text):
    """An address-setting for every address with one element in it."""
    inside = f"<{element}>{text}</{element}>"
    return f'<address-settings><address-setting match="#">{inside}</address-setting></address-settings>'


def queue(attributes="", inside=""):
    """An address ``a`` with one anycast queue ``q``."""
    holds = f'<anycast><queue name="q" {attributes}>{inside}</queue></anycast>'
    return f'<addresses><address name="a">{holds}</address></addresses>'


def acceptor(url, name="x"):
    """One acceptor; ``&`` is written as XML wants it."""
    return f'<acceptors><acceptor name="{name}">{url.replace("&", "&amp;")}</acceptor></acceptors>'


def takes(read, text):
    """Whether a reader takes a text."""
    try:
        read(text)
    except ValueError:
        return False
    return True
