"""The OpenAPI document that the routes generate, and the check of an answer by it."""

import json
import re
from functools import cache
from typing import Any, Protocol

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from stompring.admin.api import JSON, PROBLEM

from ..docs.http_reference import DOCUMENT, resolved

REGISTRY = Registry().with_resource(
    "urn:doc", Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
)
PATHS = {path: re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))) for path in DOCUMENT["paths"]}


class Answer(Protocol):
    """An answer over HTTP."""

    status: int
    headers: Any
    body: bytes


@cache
def _validator(path, method, status, media_type):
    """Of the schema of one answer; ``#`` in it is the whole document."""
    schema = resolved(DOCUMENT["paths"][path][method]["responses"][str(status)])["content"][media_type][
        "schema"
    ]
    text = json.dumps(schema).replace('"$ref": "#', '"$ref": "urn:doc#')
    return Draft202012Validator(json.loads(text), registry=REGISTRY)


def check(method, where, answer):
    """An answer to a request of a route is one of those described, and looks as described."""
    where = where.partition("?")[0]
    path = next((path for path, pattern in PATHS.items() if pattern.fullmatch(where)), None)
    described = DOCUMENT["paths"].get(path, {}).get("get" if method == "HEAD" else method.lower())
    if path is None or described is None or answer.status == 500:
        return
    assert str(answer.status) in described["responses"], (
        f"{method} {path} is not said to answer {answer.status}"
    )
    response = resolved(described["responses"][str(answer.status)])
    for name in response.get("headers", {}):
        assert name.lower() in answer.headers, (method, path, name)
    if method == "HEAD" or (answer.status == 400 and not answer.body):  # the latter is of twisted.web itself
        return
    if "content" not in response:
        assert answer.body == b"" and "content-type" not in answer.headers, (method, path)
        return
    media_type = answer.headers["content-type"].partition(";")[0]
    validator = _validator(path, method.lower(), answer.status, media_type)
    if media_type not in (JSON, PROBLEM):
        assert validator.schema == {"type": "string"}, (method, path)
        return
    faults = [
        f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(json.loads(answer.body))
    ]
    assert not faults, (method, path, faults)
