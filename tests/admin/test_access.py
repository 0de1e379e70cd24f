"""Pages of other sites, names that are not ours, and logins."""

import base64

import pytest

from stompring.admin.api import check_host, check_origin
from stompring.admin.http import admin_routes
from stompring.errors import Refused
from stompring.settings.model import PermissionType

from .admin_server import AdminServer
from .test_ha import standby
from .test_permissions import basic, server_where


def is_answered(check, *given):
    """Whether a request with these headers is not refused."""
    try:
        check(*given)
    except Refused as refused:
        assert refused.status == 403
        return False
    return True


EVERY_METHOD = [
    ("GET", "/api/v1/queues"),
    ("GET", "/metrics"),
    ("GET", "/health/live"),
    ("POST", "/api/v1/queues/q/purge"),
    ("DELETE", "/api/v1/queues/q"),
]


@pytest.mark.parametrize(
    "host, listens_on, answered",
    [
        ("localhost", "127.0.0.1", True),
        ("localhost:8161", "127.0.0.1", True),
        ("LOCALHOST:9999", "127.0.0.1", True),  # a tunnel has a port of its own
        ("stompring.localhost:8161", "127.0.0.1", True),
        ("127.0.0.1:8161", "localhost", True),
        ("127.8.9.1", "127.0.0.1", True),
        ("[::1]:8161", "::1", True),
        (None, "127.0.0.1", True),  # HTTP/1.0; browsers always send it
        ("evil.example", "127.0.0.1", False),
        ("evil.example:8161", "::1", False),
        ("localhost.evil.example", "localhost", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("evil-localhost", "127.0.0.1", False),
        ("10.0.0.1:8161", "127.0.0.1", False),
        ("[::1", "127.0.0.1", False),
        ("broker.example:8161", "0.0.0.0", True),
        ("broker.example", "10.0.0.1", True),
    ],
)
def test_host(host, listens_on, answered):
    assert is_answered(check_host, host, listens_on) == answered


@pytest.mark.parametrize(
    "origin, host, answered",
    [
        (None, "localhost:8161", True),
        ("http://localhost:8161", "localhost:8161", True),
        ("https://broker.example", "broker.example", True),  # behind a TLS proxy
        ("http://LOCALHOST:8161", "localhost:8161", True),
        ("http://localhost:3000", "localhost:8161", False),
        ("http://evil.example", "localhost:8161", False),
        ("null", "localhost:8161", False),
        ("null", "", False),
        ("", "", False),
        ("http://[::1", "localhost:8161", False),
    ],
)
def test_origin(origin, host, answered):
    assert is_answered(check_origin, origin, host) == answered


@pytest.mark.parametrize("method, path", EVERY_METHOD)
def test_page_of_another_site_is_rejected_and_changes_nothing(queue, server, method, path):
    server.stomp().put()
    server.refused(403, method, path, headers={"Origin": "http://evil.example"})
    server.refused(403, method, path, headers={"Host": "evil.example"})
    for site in ("cross-site", "same-site"):
        problem = server.refused(403, method, path, headers={"Sec-Fetch-Site": site})
        assert problem["detail"].startswith(f"Sec-Fetch-Site {site} is not allowed")
    assert server.directory.queue("q").message_count == 1


@pytest.mark.parametrize("path", ["/api/v1/queues/q", "/api/v1/queues/none", "/metrics", "/health/live"])
def test_no_page_of_another_origin_learns_whether_something_exists(queue, server, path):
    for site in (
        None,
        "none",
        "same-origin",
    ):  # programs as curl and Prometheus; a typed address; the console
        reply = server.ask("GET", path, headers={"Sec-Fetch-Site": site})
        assert reply.status == (404 if "none" in path else 200)
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    reply = server.ask("GET", path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"})
    assert reply.status == 403 and reply.headers["cross-origin-resource-policy"] == "same-origin"


def test_link_of_another_site_opens_the_console(server):
    for path in ("/", "/console/app/main.js"):
        server.done("GET", path, headers={"Sec-Fetch-Site": "cross-site"})


@pytest.mark.parametrize(
    "path, site, status",
    [
        ("/health/live", None, 200),
        ("/health/live", "cross-site", 403),
        ("/health/ready", "same-origin", 503),
        ("/metrics", None, 200),
        ("/metrics", "same-site", 403),
        ("/", "cross-site", 503),  # of the console, once this broker is active
    ],
)
def test_standby_has_the_same_rules(tmp_path, path, site, status):
    reply = standby(tmp_path).ask("GET", path, headers={"Sec-Fetch-Site": site})
    assert reply.status == status
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


def test_page_of_the_broker_is_allowed(queue, server):
    reply = server.ask("POST", "/api/v1/queues/q/purge", headers={"Origin": "http://localhost"})
    assert reply.status == 200


@pytest.mark.parametrize(
    "form", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"]
)
def test_html_form_is_rejected(queue, server, form):
    server.refused(415, "POST", "/api/v1/queues/q/purge", headers={"Content-Type": form})
    made = server.ask("POST", "/api/v1/queues", raw=b'{"name":"made"}', headers={"Content-Type": form})
    assert made.status in (400, 415)  # twisted.web itself refuses what is no multipart
    assert "made" not in server.directory.queues


# ---- security on


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("anna:wrong"),
        basic("nobody:sécret:1"),
        {"Authorization": "Basic YW5uYQ=="},  # anna, and no colon
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Bearer " + base64.b64encode(b"anna:s").decode()},
    ],
)
def test_other_credentials_are_rejected(tmp_path, headers):
    server = server_where(tmp_path, (PermissionType.MANAGE, "#"))
    for method, path in (("GET", "/api/v1/queues"), ("GET", "/metrics"), ("DELETE", "/api/v1/queues/q")):
        server.refused(401, method, path, headers=headers)
    reply = server.ask("GET", "/metrics", headers=headers)
    assert reply.headers["www-authenticate"] == 'Basic realm="stompring", charset="UTF-8"'
    assert "q" in server.directory.queues


# ---- CORS stays closed


@pytest.mark.parametrize("route", admin_routes().all, ids=lambda route: route.operation)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9999"])
def test_no_page_of_another_origin_gets_an_answer(server, route, origin):
    where = route.path.replace("{name}", "q").replace("{id}", "1").replace("{taskID}", "1")
    asked = {"Access-Control-Request-Method": route.method, "Access-Control-Request-Headers": "content-type"}
    for method, headers in ((route.method, {}), ("OPTIONS", asked)):
        reply = server.ask(method, where, headers={"Origin": origin, **headers})
        assert reply.status == 403, (method, where)
        assert not [name for name in reply.headers if name.startswith("access-control-")]


def test_preflight_is_never_answered():
    for where in ("/", "/console/app/main.js", "/api/v1/users", "/api/v1/queues"):
        reply = AdminServer().ask("OPTIONS", where, headers={"Origin": "http://localhost"})
        assert reply.status == 405
        assert not [name for name in reply.headers if name.startswith("access-control-")]
