"""Metrics of certificates and of connections that did not get through."""

import re

from stompring.admin.metrics import (
    EXPIRY,
    EXPIRY_HELP,
    PROXY_FAILURES,
    PROXY_FAILURES_HELP,
    TLS_FAILURES,
    TLS_FAILURES_HELP,
)

from .admin_server import BEGIN, AdminServer
from .test_documentation import METRICS, rows, section


def test_no_metrics_without_tls():
    text = AdminServer().ask("GET", "/metrics").text
    assert not re.search("certificate|tls|proxy", text)


def test_metrics_with_tls(server):
    server.set_listener_figures()
    lines = server.ask("GET", "/metrics").text.splitlines()
    (expiry,) = (line for line in lines if line.startswith(EXPIRY))
    name, _, value = expiry.rpartition(" ")
    assert name == f'{EXPIRY}{{acceptor="stomp",file="b.pem",subject="CN=broker"}}'
    assert float(value) == BEGIN
    assert f'{TLS_FAILURES}{{acceptor="stomp"}} 29.0' in lines
    assert f'{PROXY_FAILURES}{{acceptor="stomp"}} 30.0' in lines


def test_metrics_are_documented():
    documented = [(row[0].strip("`"), row[3]) for row in rows(section(METRICS, "Certificates and proxies"))]
    assert documented == [
        (EXPIRY, EXPIRY_HELP),
        (TLS_FAILURES, TLS_FAILURES_HELP),
        (PROXY_FAILURES, PROXY_FAILURES_HELP),
    ]
