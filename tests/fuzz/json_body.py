"""The HTTP API: whatever body or query comes to a route is answered, or refused with a status that is documented.

The first byte of an input chooses the route, the rest is the body, or the query of a GET.
"""

import json
from functools import cache

from stompring.admin.api import Call, Problem, Query, read_object
from stompring.admin.http import admin_routes
from stompring.errors import Refused

from ..admin.admin_server import AdminServer
from .oracle import Broken, expect

LONGEST = 4096
MODULES = ["stompring.admin", "stompring.broker.queue", "stompring.broker.directory"]
TOKENS = [
    b'{"name": "',
    b'", "address": "',
    b'"ringSize": ',
    b'"filter": "',
    b'"routingType": "ANYCAST"',
    b'"paused": true',
    b'"routingTypes": ["MULTICAST"]',
    b"\\ud800",
    b"\\u0000",
    b"1e999",
    b"-1",
    b"9" * 30,
    b"null",
    b"NaN",
    b"[[[[",
    b"page=",
    b"&size=",
    b"&sort=-",
    b"&search=",
    b"&filter=",
    b"%00",
    b"%ff",
    b"&bodyLimit=",
    b"force=true",
    b"[]=",
]

#: What docs/http-api.md lists; 404 is answered before there is a body, and 500 is a fault.
STATUSES = {200, 201, 202, 204, 400, 404, 409}


@cache
def routes():
    """All that answer with JSON and touch nothing but the broker."""
    left_out = ("/metrics", "/api/v1/reload", "/health")
    return [route for route in admin_routes().all if not route.path.startswith(left_out)]


class _Houses:
    """A broker that is as new for each input; one is made anew now and then, for what adds up."""

    uses = 0
    house: AdminServer | None = None

    @classmethod
    def get(cls):
        cls.uses += 1
        if cls.house is None or cls.uses % 500 == 0:
            cls.house = AdminServer()
        house = cls.house
        directory = house.directory
        for name in list(directory.addresses):
            directory.delete_address(name, force=True)
        house.queue("q")
        return house


def check(data):
    """See the module."""
    if not data:
        return
    route, rest = routes()[data[0] % len(routes())], data[1:]
    try:
        body = {} if route.method == "GET" else read_object(rest)
        query = Query(rest.decode("latin-1") if route.method in ("GET", "DELETE") else "")
    except Problem as problem:
        expect(problem.status == 400, f"{problem.status}: {problem}")
        _said(problem)
        return
    if body:
        expect(body == json.loads(rest), "the body is read as something else")
    call = Call(_Houses.get().service, {"name": "q", "id": "1"}, query, body)
    try:
        route.check(call)
        outcome = route.answer(call)
        while hasattr(outcome, "send"):
            try:
                next(outcome)
            except StopIteration as done:
                outcome = done.value
    except Refused as refused:
        expect(refused.status in STATUSES, f"{route.method} {route.path}: {refused.status}")
        _said(refused)
        return
    expect(outcome.status in STATUSES, f"{route.method} {route.path}: {outcome.status}")
    answer = outcome.body if isinstance(outcome.body, bytes) else b"".join(outcome.body)
    if answer:
        try:
            json.loads(answer, parse_constant=_not_json)
        except ValueError as fault:
            raise Broken(f"{route.method} {route.path} answers what is no JSON: {fault}") from fault


def _said(refused):
    expect(0 < len(str(refused)) < 10_000, f"a refusal of {len(str(refused))} characters")


def _not_json(name):
    raise ValueError(f"{name} is no JSON")
