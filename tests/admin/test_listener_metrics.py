"""Metrics of certificates and of connections that did not get through."""

import re

from .admin_server import BEGIN, AdminServer


def test_no_metrics_without_tls():
    assert not re.search("certificate|tls|proxy", AdminServer().ask("GET", "/metrics").text)


def test_metrics_with_tls(server):
    server.set_listener_figures()
    lines = server.ask("GET", "/metrics").text.splitlines()
    (expiry,) = (line for line in lines if line.startswith("stompring_certificate_"))
    name, _, value = expiry.rpartition(" ")
    labels = '{acceptor="stomp",file="b.pem",subject="CN=broker"}'
    assert name == f"stompring_certificate_expiry_timestamp_seconds{labels}"
    assert float(value) == BEGIN
    assert 'stompring_tls_failures_total{acceptor="stomp"} 29.0' in lines
    assert 'stompring_proxy_failures_total{acceptor="stomp"} 30.0' in lines
