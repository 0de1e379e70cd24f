"""docs/metrics.md and docs/http-api.md name every metric, route, field and parameter there is, and no others."""

import re

import pytest

from stompring.admin.api import message_number
from stompring.settings.model import BridgeConfiguration, Connector, DivertConfiguration

from ..docs.pages import text_of
from .described import JSON, resolved
from .test_ha import ACTIVE, node_with
from .test_openapi import OPERATIONS
from .test_permissions import MANAGEMENT, PermissionType, basic, server_where

METRICS = text_of("docs/metrics.md")
API = text_of("docs/http-api.md")

# ---- metrics


def exposed(directory, accept="text/plain"):
    """The metrics of a broker that has everything."""
    server = server_where(directory, (PermissionType.VIEW, MANAGEMENT))
    server.service.bridges.apply([BridgeConfiguration("b", (Connector("c", "127.0.0.1", 1),), "q")])
    server.set_store_figures()
    server.set_listener_figures()
    server.service.node = node_with(ACTIVE)
    server.broker.diverts.put(DivertConfiguration("d", "a", ("b",)))
    server.broker.policies.errors["rate-limit", "admit"] = 1
    server.broker.policies.slow_hooks["rate-limit", "admit"] = 1
    return server.ask("GET", "/metrics", headers={"Accept": accept, **basic()}).text


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
def test_documented_metrics_equal_exposed_metrics(tmp_path, accept):
    text = exposed(tmp_path, accept)
    # _created: OpenMetrics's own companions of counters
    served = {name for name in re.findall(r"^\w+", text, re.MULTILINE) if not name.endswith("_created")}
    documented = set(re.findall(r"`((?:stompring|process|python)_\w+)`", METRICS))
    assert served == documented
    assert "took longer than 20 ms" in text
    of_ours = {name for name in served if name.startswith("stompring")}
    assert not {name for name in of_ours if f"{name}_total" in of_ours}, "OpenMetrics names counters so"


# ---- the API


def test_every_route_is_documented_once():
    """With its parameters and the fields of its body."""
    found = re.findall(r"^\| `([A-Z]+ /\S+)` \|", API, re.MULTILINE)
    assert sorted(found) == sorted(" ".join(key) for key in OPERATIONS)


@pytest.mark.parametrize("key", OPERATIONS, ids=" ".join)
def test_every_field_of_an_answer_is_documented(key):
    for status, response in OPERATIONS[key][0]["responses"].items():
        schema = resolved(response).get("content", {}).get(JSON, {}).get("schema", {})
        if status < "400":
            names = resolved(schema).get("properties", {})
            assert [name for name in names if not re.search(rf"[`.\"]{name}[`\"]", API)] == []


def test_the_number_of_a_message():
    assert message_number("7-12", 7) == message_number("12", 7) == 12
