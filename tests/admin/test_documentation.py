"""docs/metrics.md and docs/http-api.md name every metric, route, field and parameter there is, and no others."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from stompring.admin import api
from stompring.admin.http import admin_routes
from stompring.settings.model import BridgeConfiguration, Connector, DivertConfiguration

from .described import JSON, ROUTES, resolved
from .test_ha import ACTIVE, node_with
from .test_openapi import OPERATIONS
from .test_permissions import MANAGEMENT, PermissionType, basic, server_where

DOCS = Path(__file__).parents[2] / "docs"
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
API = (DOCS / "http-api.md").read_text(encoding="utf-8")


def section(text, heading):
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text):
    """The cells of all tables, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    ruled = [place for place, line in enumerate(lines) if set(line) <= set("|-")]
    headings = {place for rule in ruled for place in (rule, rule - 1)}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for place, line in enumerate(lines)
        if place not in headings
    ]


def first_cells(text):
    return [row[0].strip("`") for row in rows(text)]


# ---- metrics


def counters(heading):
    """JSON name, metric, kind and meaning of each counter that is documented there."""
    return [tuple(cell.strip("`") for cell in row) for row in rows(section(METRICS, heading))]


def exposed(directory, accept="text/plain"):
    """The metrics of a broker that has everything."""
    server = server_where(directory, (PermissionType.VIEW, MANAGEMENT))
    server.service.bridges.apply([BridgeConfiguration("b", (Connector("c", "127.0.0.1", 1),), "q")])
    server.set_store_figures()
    server.set_listener_figures()
    server.service.node = node_with(ACTIVE)
    server.broker.diverts.add(DivertConfiguration("d", "a", ("b",)))
    server.broker.policies.errors["rate-limit", "admit"] = 1
    server.broker.policies.slow_hooks["rate-limit", "admit"] = 1
    return server.ask("GET", "/metrics", headers={"Accept": accept, **basic()}).text


@pytest.mark.parametrize(
    "heading", ["Queues", "Addresses", "Broker", "Diverts", "Bridges", "The replicated log"]
)
def test_counters(tmp_path, heading):
    documented = counters(heading)
    assert len({name for name, *_ in documented}) == len(documented)
    expected = []
    for (metric, kind, meaning), alike in groupby(documented, key=lambda each: each[1:]):
        names = ", ".join(name for name, *_ in alike)
        expected += [f"# HELP {metric} {meaning} JSON: {names}.", f"# TYPE {metric} {kind}"]
        assert metric.endswith("_total") is (kind == "counter") and not metric.endswith("_count")
    metrics = {metric for _, metric, *_ in documented}
    found = [line for line in exposed(tmp_path).splitlines() if line.startswith("#")]
    assert [line for line in found if line.split()[2] in metrics] == expected


def test_meanings_that_have_no_counter(tmp_path):
    text = exposed(tmp_path)
    for metric, kind, _, meaning in counters("Certificates and proxies"):
        assert f"# HELP {metric} {meaning}\n# TYPE {metric} {kind}\n" in text
    assert re.search("# HELP stompring_policy_slow_hooks_total .* took longer than 20 ms", text)


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
def test_documented_metrics_equal_exposed_metrics(tmp_path, accept):
    text = exposed(tmp_path, accept)
    served = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    served = {
        name for name in served if not name.endswith("_created")
    }  # OpenMetrics's own companions of counters
    documented = set(re.findall(r"`((?:stompring|process|python)_\w+)`", METRICS))
    assert served == documented
    of_ours = {name for name in served if name.startswith("stompring")}
    assert not {name for name in of_ours if f"{name}_total" in of_ours}, "OpenMetrics names counters so"


# ---- the API


def test_every_route_and_status_is_documented():
    everywhere = {"400", "401", "403", "413", "415", "429"}
    rows_of_routes = set(re.findall(r"^(\| `[A-Z]+ /\S+` \|.*\|.*\|)$", API, re.MULTILINE))
    expected = set()
    for (method, path), (described, _) in OPERATIONS.items():
        answers = ", ".join(status for status in described["responses"] if status not in everywhere)
        expected.add(f"| `{method} {path}` | {described['summary']} | {answers} |")
    assert rows_of_routes == expected
    documented = {row[0] for row in rows(section(API, "Rules for every request")) if row[0].isdigit()}
    errors = {
        status for described, _ in OPERATIONS.values() for status in described["responses"] if status >= "400"
    }
    assert documented == errors | {"405", "500"}


def shown(path):
    """The description of each field of what a GET shows, or lists."""
    described, _ = OPERATIONS["GET", path]
    schema = resolved(resolved(described["responses"]["200"])["content"][JSON]["schema"])
    if "data" in schema["properties"]:
        schema = resolved(resolved(schema["properties"]["data"])["items"])
    return {
        name: node.get("description") or resolved(node)["description"]
        for name, node in schema["properties"].items()
    }


@pytest.mark.parametrize(
    ("heading", "path", "counted"),
    [
        ("The broker", "broker", "Broker"),
        ("Queues", "queues", "Queues"),
        ("Consumers", "consumers", ""),
        ("Messages", "queues/{name}/messages", ""),
        ("Tasks", "tasks", ""),
        ("Dead letters", "dead-letters", ""),
        ("Addresses", "addresses", "Addresses"),
        ("Connections", "connections", ""),
        ("Bridges", "bridges", "Bridges"),
        ("Retention and lakes", "retention", ""),
        ("High availability", "ha", ""),
        ("Plugins", "plugins", ""),
        ("Settings and their origin", "queues/{name}/settings", ""),
    ],
)
def test_fields_and_their_meanings(heading, path, counted):
    fields = shown(f"/api/v1/{path}")
    of_metrics = {name for name, *_ in counters(counted)} if counted else set()
    assert of_metrics <= fields.keys()
    text = section(API, heading)
    documented = [row for row in rows(text) if len(row) == 2 and " /" not in row[0]]
    assert documented == [
        [f"`{name}`", meaning] for name, meaning in fields.items() if name not in of_metrics
    ]
    assert not counted or "The counters of `docs/metrics.md`, and:" in text


@pytest.mark.parametrize(("heading", "path"), [("Queues", "queues"), ("Addresses", "addresses")])
def test_fields_of_bodies(heading, path):
    text = re.search(r"\*\*Fields of POST and PATCH\*\*:(.+?)\.\s", section(API, heading), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", text[1])) == ROUTES["POST", f"/api/v1/{path}"].fields.keys()


def test_parameters():
    lists = {row[0].strip("`") for row in rows(section(API, "Rules for every request"))}
    listing = {parameter.name for parameter in api.LISTING}
    assert listing <= lists
    # of a list each field is a parameter too: "any field"
    others = {
        name for route in admin_routes().all for name in route.query_names - listing - route.filters.keys()
    }
    assert {"filter", "bodyLimit", "force", "name[]"} <= others
    for parameter in others - {"name[]"}:
        assert f"`{parameter}`" in API or f"`?{parameter}=" in API, parameter
    assert "`?name[]=`" in METRICS


def test_documented_limits_equal_the_code():
    assert f"{api.PAGE_SIZE}, at most {api.MAX_PAGE_SIZE}" in API
    assert api.message_number("7-12", 7) == api.message_number("12", 7) == 12
