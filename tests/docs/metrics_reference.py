"""The tables of docs/metrics.md and docs/lake.md, made from the counters."""

import re
from itertools import groupby

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

from stompring.admin import counters, ha

from .generated import table
from .source import PACKAGE

#: The counters of the broker that have tables of their own.
OTHERS = counters.LIMITS + counters.PERSISTENCE + counters.SECURITY


def metrics(name):
    """The metrics of a group of counters of `counters` or `ha`, each with the names of its counters in JSON."""
    found = [
        each
        for each in getattr(counters, name, None) or getattr(ha, name)
        if name != "BROKER" or each not in OTHERS
    ]
    rows = []
    for metric, alike in groupby(found, key=lambda each: each.metric):
        group = list(alike)
        kind = "counter" if metric.endswith("_total") else "gauge"
        names = ", ".join(f"`{each.json}`" for each in group)
        rows.append((names, f"`{metric}`", kind, group[0].help))
    return table("JSON, Prometheus, kind, meaning", rows)


def process():
    """The metrics of prometheus_client."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    rows = [
        (f"`{each.name}{'_total' if each.type == 'counter' else ''}`", each.type, each.documentation)
        for each in registry.collect()
    ]
    return table("Prometheus, kind, meaning", rows)


def lake():
    """The metrics of ``stompring lake ingest --follow``, from the source: its libraries may be missing."""
    source = (PACKAGE / "pipeline" / "lake" / "ingest.py").read_text()
    found = re.findall(r' (gauge|counter)\(\s*"(\w+)", "([^"]+)"(, \["table"\])?', source)
    rows = [
        (
            f"`stompring_lake_{name}{'_total' * (kind == 'counter')}`",
            kind,
            text + " By `table`." * bool(label),
        )
        for kind, name, text, label in found
    ]
    return table("metric, kind, meaning", rows)
