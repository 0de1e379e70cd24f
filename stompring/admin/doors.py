"""Metrics of the listeners: expiry of certificates, failures of TLS and of the PROXY protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

EXPIRY = "stompring_certificate_expiry_timestamp_seconds"
EXPIRY_HELP = "Expiry time of the certificate chain of an acceptor."
TLS_FAILURES = "stompring_tls_failures_total"
TLS_FAILURES_HELP = "Connections closed by a TLS error, most of them in the handshake."
PROXY_FAILURES = "stompring_proxy_failures_total"
PROXY_FAILURES_HELP = "Connections closed because their PROXY header is missing, invalid or not allowed."


class Certificate(Protocol):
    """One that an acceptor shows."""

    @property
    def file(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def not_after(self) -> datetime: ...


class Doors(Protocol):
    """Those of all acceptors. Counts by acceptor, of those that have such a door."""

    @property
    def tls_failures(self) -> Mapping[str, int]: ...
    @property
    def proxy_failures(self) -> Mapping[str, int]: ...
    def identities(self) -> Iterable[tuple[str, Certificate]]:
        """By acceptor, the certificates that it shows."""


def door_families(doors: Doors) -> Iterator[Metric]:
    """All that have a sample."""
    expiry = GaugeMetricFamily(EXPIRY, EXPIRY_HELP, labels=("acceptor", "file", "subject"))
    for acceptor, certificate in doors.identities():
        labels = (acceptor, certificate.file, certificate.subject)
        expiry.add_metric(labels, certificate.not_after.timestamp())
    tls = CounterMetricFamily(TLS_FAILURES, TLS_FAILURES_HELP, labels=("acceptor",))
    proxy = CounterMetricFamily(PROXY_FAILURES, PROXY_FAILURES_HELP, labels=("acceptor",))
    for family, failures in ((tls, doors.tls_failures), (proxy, doors.proxy_failures)):
        for acceptor, number in failures.items():
            family.add_metric((acceptor,), number)
    yield from (family for family in (expiry, tls, proxy) if family.samples)
