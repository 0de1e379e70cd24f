"""What every request has in common: paths, methods, queries, bodies, and the shape of errors."""

import json
from urllib.parse import quote

import pytest

from stompring.admin.api import BODY_LIMIT, DISCARD_LIMIT, Problem, Query
from stompring.admin.http import admin_routes
from stompring.settings.model import AddressSettingEntry, BridgeConfiguration, Connector, DivertConfiguration

from .admin_server import AdminServer, path

NAMES = [
    "a/b",
    "ünïcode ✓",
    "per%cent",
    "que?stion",
    "sp ace",
    "dot.dot",
    "..",
    "#",
    "+",
    "a&b=c",
    "%2F",
    "[x]",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_round_trips_in_a_path(server, name):
    server.queue(name)
    assert server.shown(name)["name"] == name
    assert server.get(path("addresses", name))["name"] == name
    assert server.get(path("queues", name, "messages"))["count"] == 0
    server.done("DELETE", path("queues", name))
    assert name not in server.directory.queues


@pytest.mark.parametrize(
    "path",
    [
        "/api", "/api/v1", "/api/v1/queue", "/api/v1/queues/", "/api/v1/queues//messages",
        "/api/v1/queues/none", "/api/v1/queues/none/nothing", "/api/v2/queues", "/metrics/", "/health", "//",
        "/api/v1/addresses/none", "/api/v1/connections/none", "/api/v1/queues/a/b",
    ],
)  # fmt: skip
def test_unknown_path_gets_404(path):
    problem = AdminServer().refused(404, "GET", path)
    assert problem["title"] == "Not Found" and problem["type"] == "about:blank" and problem["detail"]


def test_path_that_is_not_utf8_gets_400():
    AdminServer().refused(400, "GET", "/api/v1/queues/%ff")


@pytest.mark.parametrize(
    "method, path, allowed",
    [
        ("POST", "/metrics", "GET, HEAD"),
        ("PUT", "/api/v1/queues", "GET, HEAD, POST"),
        ("POST", "/api/v1/queues/x", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/api/v1/queues/x/purge", "POST"),
        ("HEAD", "/api/v1/queues/x/purge", "POST"),
        ("OPTIONS", "/api/v1/broker", "GET, HEAD"),
        ("DELETE", "/health/live", "GET, HEAD"),
        ("BREW", "/api/v1/queues", "GET, HEAD, POST"),
    ],
)
def test_unsupported_method_gets_405(method, path, allowed):
    reply = AdminServer().ask(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, allowed)


def get_paths():
    """Of users and roles there are none without security, and no configuration without broker.xml."""
    paths = (route.path.replace("{name}", "q") for route in admin_routes().all if route.method == "GET")
    return sorted(
        path
        for path in paths
        if not path.startswith(("/api/v1/users", "/api/v1/roles", "/api/v1/configuration"))
    )


@pytest.mark.parametrize("path", [path for path in get_paths() if "{" not in path])
def test_head_has_the_headers_of_get(path):
    server = AdminServer(
        bridges=(BridgeConfiguration("q", (Connector("c", "127.0.0.1", 1),), "q"),),
        diverts=(DivertConfiguration("q", "from", ("to",)),),
        address_settings=(AddressSettingEntry("q"),),
    )
    server.queue()
    got, head = server.ask("GET", path), server.ask("HEAD", path)
    assert head.body == b"" and head.status == got.status == 200
    differ = {"transfer-encoding", "date"}
    assert head.headers.keys() - differ == got.headers.keys() - differ
    assert head.headers.get("content-length") == got.headers.get("content-length")


def test_server_header_hides_the_implementation():
    for place in ("/health/live", "/nothing", "/metrics"):
        reply = AdminServer().ask("GET", place)
        assert reply.headers["server"] == "stompring"
        assert reply.headers["cache-control"] == "no-store"
        assert b"wisted" not in reply.body.replace(b"twisted=", b"")


def test_internal_error_is_logged_and_gets_500_without_details(queue, server, monkeypatch, caplog):

    def fail(*_):
        raise ZeroDivisionError("secret")

    for place, ask in (
        ("stompring.admin.queues.detailed", "/api/v1/queues/q"),
        ("stompring.broker.reference.PendingList.snapshot", "/api/v1/queues/q/messages"),
    ):
        monkeypatch.setattr(place, fail)
        assert "secret" not in json.dumps(server.refused(500, "GET", ask))
        assert "ZeroDivisionError: secret" in caplog.text
        caplog.clear()


# ---- queries


@pytest.mark.parametrize(
    "query, parameter",
    [
        ("pgae=1", "pgae"),
        ("page=0", "page"),
        ("page=-1", "page"),
        ("page=x", "page"),
        ("page=", "page"),
        ("page=1&page=2", "page"),
        ("size=0", "size"),
        ("size=1001", "size"),
        ("size=1.5", "size"),
        ("size=99999999999999999999", "size"),
        ("size=%D9%A3", "size"),  # an Arabic three
        ("sort=colour", "sort"),
        ("sort=-", "sort"),
    ],
)
def test_invalid_query_gets_400(query, parameter):
    assert AdminServer().refused(400, "GET", f"/api/v1/queues?{query}")["parameter"] == parameter


def test_misspelt_parameter_gets_a_suggestion():
    assert (
        "did you mean 'routingType'"
        in AdminServer().refused(400, "GET", "/api/v1/queues?routingtype=x")["detail"]
    )


def test_force_is_true_or_false(queue, client, server):
    client.subscribe()
    assert server.refused(400, "DELETE", "/api/v1/queues/q?force=yes")["parameter"] == "force"
    server.refused(409, "DELETE", "/api/v1/queues/q?force=false")


@pytest.mark.parametrize("query", ["name=%ff", "&".join(f"a{n}=1" for n in range(200))])
def test_unreadable_query_gets_400(query):
    with pytest.raises(Problem) as refused:
        Query(query)
    assert refused.value.status == 400


# ---- bodies


@pytest.mark.parametrize(
    "raw, says",
    [
        (b'{"name": }', "line 1 column 10"),
        (b'{"name": "x",\n "x"}', "line 2 column 5"),
        (b'{"name": "\xff"}', "byte 10"),
        (b"[]", "object"),
        (b'"x"', "object"),
        (b'{"name":"x","name":"y"}', "duplicate member"),
        (b'{"name":"x","ringSize":NaN}', "NaN"),
        (b'{"name":"x","ringSize":' + b"9" * 5000 + b"}", "a whole number has more than 40 characters"),
        (b'{"name":"x","ringSize":-' + b"9" * 4200 + b"}", "a whole number has more than 40 characters"),
        (b'{"name":"x","ringSize":' + b"9" * 40 + b"}", "-1 or a whole number"),
        (b'{"name":"x","ringSize":1e999}', "-1 or a whole number"),
        (b'{"name":"x","ringSize":-1e999}', "-1 or a whole number"),
        (b'{"name":"x","ringSize":1e2}', "-1 or a whole number"),
        (b'{"name":"x","ringSize":1_0}', "line 1 column"),
        ('{"name":"x","ringSize":\u0661}'.encode(), "line 1 column"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"nmae":"x"}', "did you mean 'name'"),
    ],
)
def test_invalid_body_gets_400(server, raw, says):
    problem = server.refused(
        400, "POST", "/api/v1/queues", raw=raw, headers={"Content-Type": "application/json"}
    )
    assert says in problem["detail"]
    assert not server.directory.queues


def test_invalid_json_error_has_line_and_column():
    headers = {"Content-Type": "application/json"}
    problem = AdminServer().refused(400, "POST", "/api/v1/queues", raw=b'{\n"name"}', headers=headers)
    assert (problem["line"], problem["column"]) == (2, 7)


@pytest.mark.parametrize(
    "content_type, status",
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ('Application/JSON; charset="UTF-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("application/xml", 415),
        ("text/json", 415),
        ("", 415),
        (None, 415),
    ],
)
def test_content_type_of_a_body(content_type, status):
    reply = AdminServer().ask(
        "POST", "/api/v1/queues", raw=b'{"name":"x"}', headers={"Content-Type": content_type}
    )
    assert reply.status == status


def padded(length):
    body = b'{"name":"x"}'
    return body + b" " * (length - len(body))


@pytest.mark.parametrize("length, status", [(BODY_LIMIT, 201), (BODY_LIMIT + 1, 413), (5 * BODY_LIMIT, 413)])
def test_length_of_a_body(server, length, status):
    reply = server.ask(
        "POST", "/api/v1/queues", raw=padded(length), headers={"Content-Type": "application/json"}
    )
    assert reply.status == status
    assert ("x" in server.directory.queues) is (status == 201)


def send_chunks(server, chunk, times):
    channel, wire = server.channel()
    head = "POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    channel.dataReceived(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(times):
        if wire.disconnecting:
            return wire
        channel.dataReceived(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    channel.dataReceived(b"0\r\n\r\n")
    return wire


@pytest.mark.parametrize(
    "length, status",
    [
        ("9" * 5001, 413),
        (str(DISCARD_LIMIT + 1), 413),
        ("0" * 5000 + "2", 200),
        ("1_0", 400),
        ("+2", 400),
        ("-2", 400),
        ("\u0662", 400),
        ("1e1", 400),
        ("", 400),
        (f"{'0' * 5001}x", 400),
    ],
)
def test_content_length_limits(queue, server, length, status):
    """It is read before anybody has logged in."""
    channel, wire = server.channel()
    head = (
        "POST /api/v1/queues/q/trim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {length}\r\n\r\n{{}}"
    )
    channel.dataReceived(head.encode())
    server.advance()
    assert wire.value().startswith(f"HTTP/1.1 {status} ".encode()), wire.value()
    assert wire.disconnecting
    assert server.broker.rejections.counts["http-body"] == (status == 413)


@pytest.mark.parametrize("size", ["9" * 5001, "1_0", "+1", "\u0661", "", "-1", "g"])
def test_chunk_length_limits(size):
    channel, wire = AdminServer().channel()
    head = (
        "POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n{size}\r\n{{}}\r\n0\r\n\r\n"
    )
    channel.dataReceived(head.encode())
    assert wire.value().startswith(b"HTTP/1.1 400 ") and wire.disconnecting


NO_NUMBERS = ["9" * 5001, "1_0", "+1", "\u0661", "\u00b2", " 1", "1 ", "-1", "1e3", "1.0", "nan", ""]


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_numbers_in_a_query(number):
    problem = AdminServer().refused(400, "GET", f"/api/v1/queues?page={quote(number)}")
    assert problem["parameter"] == "page" and "must be a whole number" in problem["detail"]


@pytest.mark.parametrize("number", NO_NUMBERS[:-1])
def test_numbers_in_a_path(queue, server, number):
    for where in (f"/api/v1/queues/q/messages/{quote(number)}", f"/api/v1/connections/{quote(number)}"):
        server.refused(404, "DELETE", where)


def test_chunked_body_has_the_same_limit(server):
    assert AdminServer.parse(send_chunks(server, b'{"name":"x"}', 1).value()).status == 201
    assert AdminServer.parse(send_chunks(server, b" " * 65536, 20).value()).status == 413


def test_endless_body_closes_the_connection():
    wire = send_chunks(AdminServer(), b" " * 65536, 2 * DISCARD_LIMIT // 65536)
    assert wire.disconnecting
    assert wire.value() == b""


def test_several_requests_on_one_connection(queue, server):
    channel, wire = server.channel()
    channel.dataReceived(b"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    server.advance()
    assert wire.value().count(b"HTTP/1.1 200 OK") == 3
    assert wire.value().count(b'"count":1') == 3
