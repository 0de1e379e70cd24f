"""The console's files over HTTP: paths, types, caching, compression, security headers, the challenge of a 401."""

import gzip
import os
from dataclasses import replace

import pytest

from stompring.admin.http import admin_site
from stompring.settings.model import PermissionType, StompAcceptor, Tls, WebSocketSettings

from ..broker_process import ROOT
from .admin_server import AdminServer
from .test_permissions import basic, server_where

PAGE = b"<!doctype html><title>stompring</title>" + b"<p></p>" * 100
SCRIPT = b"export const name = 'stompring';\n" * 50


@pytest.fixture
def directory(tmp_path):
    """A console of a few files, beside a file that must never be served."""
    top = tmp_path / "console"
    (top / "app" / "pages").mkdir(parents=True)
    (top / "index.html").write_bytes(PAGE)
    (top / "app" / "main.js").write_bytes(SCRIPT)
    (top / "app" / "pages" / "queue.js").write_bytes(SCRIPT)
    (top / "icon.png").write_bytes(b"\x89PNG")
    (top / "__init__.py").write_text("secret = 1")
    (top / ".hidden.js").write_text("secret")
    (top / "app" / "linked.js").symlink_to(tmp_path / "secret.js")
    (tmp_path / "secret.js").write_text("secret")
    return top


@pytest.fixture
def server(directory):
    return serving(AdminServer(), directory)


def serving(server, directory):
    """This server, with the files of that console."""
    server.serve(admin_site(server.service, directory))
    return server


@pytest.mark.parametrize(
    "path, content, content_type",
    [
        ("/", PAGE, "text/html; charset=utf-8"),
        ("/?from=bookmark", PAGE, "text/html; charset=utf-8"),
        ("/console/app/main.js", SCRIPT, "text/javascript; charset=utf-8"),
        ("/console/app/pages/queue.js", SCRIPT, "text/javascript; charset=utf-8"),
        ("/console/icon.png", b"\x89PNG", "image/png"),
    ],
)
def test_files_are_served(server, path, content, content_type):
    reply = server.ask("GET", path)
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, content, content_type)
    head = server.ask("HEAD", path)
    assert (head.status, head.body, {**head.headers, "date": ""}) == (200, b"", {**reply.headers, "date": ""})


@pytest.mark.parametrize(
    "path",
    [
        "/console/none.js",
        "/console/app",
        "/console/app/",
        "/console//app/main.js",
        "/console/__init__.py",
        "/console/.hidden.js",
        "/console/../secret.js",
        "/console/%2e%2e/secret.js",
        "/console/..%2fsecret.js",
        "/console/app/..%2f..%2f..%2fsecret.js",
        "/console/%2e%2e%2fsecret.js",
        "/console/app/linked.js",
        "/console/app/main.js%00.png",
        "/console/app/main.js%0d%0aX-Evil:%201",
        "/console/app%5cmain.js",
        "/console/%2fetc%2fpasswd.txt",
        "/console/" + "a/" * 300 + "x.js",
        "/console/" + "a" * 3000 + ".js",
        "/console/%3Cscript%3Ealert(1)%3C%2Fscript%3E.js",
        "/index.html",
        "/consoleapp/main.js",
        "/docs/none",
        "/docs/runbook/",
        "/docs/../README",
        "/docs/%2e%2e%2fREADME",
        "/docs//runbook",
        "/docs/site_hooks.py",
        "/docs/run%00book",
    ],
)
def test_nothing_else_is_served(server, path):
    assert "does not exist" in server.refused(404, "GET", path)["detail"]


def test_path_that_is_not_utf8_gets_400(server):
    assert server.ask("GET", "/console/%ff.js").status == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_console_is_read_only(server, method):
    reply = server.ask(method, "/")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path, page",
    [("", "index"), ("runbook", "runbook"), ("tutorials/first-ring", "tutorials/first-ring")],
)
def test_the_documentation_is_served_without_a_login(directory, tmp_path, path, page):
    """A checkout has no HTML. tests/shipping looks at the pages of a wheel."""
    reply = serving(server_where(tmp_path), directory).ask("GET", f"/docs/{path}")
    assert reply.status == 200 and reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.body == (ROOT / "docs" / f"{page}.md").read_bytes()


@pytest.mark.parametrize("path, location", [("/console", "./"), ("/console/", "../"), ("/docs", "docs/")])
def test_directory_redirects_to_the_page(server, path, location):
    reply = server.ask("GET", path)
    assert (reply.status, reply.headers["location"]) == (308, location)


def test_missing_console_is_explained(server, directory):
    (directory / "index.html").unlink()
    assert "console is not installed" in server.refused(404, "GET", "/")["detail"]


def test_changed_file_is_read_again(server, directory):
    first = server.ask("GET", "/")
    (directory / "index.html").write_bytes(b"another")
    second = server.ask("GET", "/")
    assert (second.body, first.headers["etag"] != second.headers["etag"]) == (b"another", True)


def test_oversized_file_gets_404(server, directory):
    with (directory / "large.js").open("wb") as file:
        os.ftruncate(file.fileno(), 4 * 1024**2 + 1)
    server.refused(404, "GET", "/console/large.js")


# ---- caching and compression


def test_unchanged_file_gets_304(server):
    for encoding in ({}, {"Accept-Encoding": "gzip"}):
        reply = server.ask("GET", "/", headers=encoding)
        assert reply.headers["cache-control"] == "no-cache"
        again = server.ask("GET", "/", headers={**encoding, "If-None-Match": reply.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == reply.headers["etag"]
        assert "content-type" not in again.headers and "content-security-policy" in again.headers
    server.done("GET", "/", headers={"If-None-Match": '"other"'})


def test_gzip_where_accepted(server):
    plain, zipped = server.ask("GET", "/"), server.ask("GET", "/", headers={"Accept-Encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip" and gzip.decompress(zipped.body) == PAGE
    assert len(zipped.body) < len(PAGE)
    assert plain.headers["etag"] != zipped.headers["etag"], "two representations have two tags"
    assert plain.headers["vary"] == zipped.headers["vary"] == "Accept-Encoding"
    icon = server.ask("GET", "/console/icon.png", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in icon.headers


@pytest.mark.parametrize(
    "header, accepted",
    [
        (None, False),
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("br;q=1.0, gzip;q=0.8", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("identity", False),
        ("x-gzipped", False),
    ],
)
def test_accept_encoding(server, header, accepted):
    headers = server.ask("GET", "/", headers={"Accept-Encoding": header}).headers
    assert ("content-encoding" in headers) is accepted


@pytest.mark.parametrize(
    "header, matched",
    [
        (None, False),
        ('"{}"', True),
        ('W/"{}"', True),
        ('"b", "{}"', True),
        ("*", True),
        ('"b"', False),
        ("{}", False),
        ("", False),
    ],
)
def test_if_none_match(server, header, matched):
    tag = server.ask("GET", "/").headers["etag"].strip('"')
    header = header and header.format(tag)
    assert server.ask("GET", "/", headers={"If-None-Match": header}).status == (304 if matched else 200)


# ---- what protects the page


def test_security_headers(server):
    headers = server.ask("GET", "/console/app/main.js").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert "camera=()" in headers["permissions-policy"]
    assert "access-control-allow-origin" not in headers and "set-cookie" not in headers


def directives(reply):
    parts = (part.strip().partition(" ") for part in reply.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


def test_content_security_policy(server):
    assert directives(server.ask("GET", "/")) == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": "'self' ws://localhost:61613",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


@pytest.mark.parametrize(
    "host, sources",
    [
        ("localhost:8161", "'self' ws://localhost:61613"),
        ("127.0.0.1:8161", "'self' ws://127.0.0.1:61613"),
        ("BROKER.localhost", "'self' ws://broker.localhost:61613"),
        ("[::1]:8161", "'self' ws://*:61613"),  # a source cannot be an IPv6 address
        (None, "'self'"),
    ],
)
def test_web_sockets_of_the_host_may_be_opened(server, host, sources):
    assert directives(server.ask("GET", "/", headers={"Host": host}))["connect-src"] == sources


@pytest.mark.parametrize(
    "host", ["a;script-src *", "a b", "a,b", "'unsafe-inline'", "a\tb", "*", "a_b", "ü", "-a"]
)
def test_host_header_never_extends_the_policy(server, host):
    server.service.listening[:] = [("stomp", "0.0.0.0", 61613), ("http", "0.0.0.0", 8161)]
    reply = server.ask("GET", "/", headers={"Host": host})
    if reply.status == 200:
        found = directives(reply)
        assert len(found) == 11 and found["script-src"] == "'self'"
        # urlsplit drops a tab
        assert found["connect-src"] == ("'self' ws://ab:61613" if "\t" in host else "'self'")


def test_acceptors_with_web_socket_are_listed(server):
    server.service.configuration = replace(
        server.service.configuration,
        stomp_acceptors=(
            StompAcceptor("tls", "0.0.0.0", 61614, tls=Tls()),
            StompAcceptor("browser", "0.0.0.0", 0, websocket=WebSocketSettings(only=True)),
            StompAcceptor("plain", "0.0.0.0", 61616, websocket=WebSocketSettings(web_socket_upgrade=False)),
            StompAcceptor("closed", "0.0.0.0", 61617),
        ),
    )
    server.service.listening[:] = [
        ("tls", "0.0.0.0", 61614),
        ("browser", "0.0.0.0", 40001),
        ("plain", "0.0.0.0", 61616),
        ("http", "127.0.0.1", 8161),
    ]
    assert (
        directives(server.ask("GET", "/"))["connect-src"]
        == "'self' wss://localhost:61614 ws://localhost:40001"
    )


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_pages_and_names_of_other_sites_get_403(server, headers):
    for path in ("/", "/console/app/main.js"):
        assert server.ask("GET", path, headers=headers).status == 403


# ---- logins


def test_console_needs_no_login_and_its_requests_do(tmp_path, directory):
    server = serving(server_where(tmp_path, (PermissionType.VIEW, "activemq.management")), directory)
    assert server.ask("GET", "/").status == server.ask("GET", "/console/app/main.js").status == 200
    assert server.ask("GET", "/api/v1/broker").status == 401


@pytest.mark.parametrize("authorization", [{}, basic("anna:wrong"), {"Authorization": "Bearer x"}])
def test_401_to_the_console_opens_no_dialog_of_the_browser(tmp_path, authorization):
    server = server_where(tmp_path, (PermissionType.VIEW, "activemq.management"))
    marked = {**authorization, "X-Requested-With": "stompring-console"}
    reply = server.ask("GET", "/api/v1/broker", headers=marked)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == 'Stompring-Basic realm="stompring", charset="UTF-8"'
    other = server.ask(
        "GET", "/api/v1/broker", headers={**authorization, "X-Requested-With": "XMLHttpRequest"}
    )
    assert other.headers["www-authenticate"].startswith("Basic ")
    server.done("GET", "/api/v1/broker", headers={**marked, **basic()})
