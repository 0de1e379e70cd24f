"""``GET /api/v1/openapi.json``: the description of this API for programs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from .access import no_permission
from .api import Answer, Call, Route


@cache
def document() -> bytes:
    """The OpenAPI document that comes with the package."""
    return files(__package__).joinpath("openapi.json").read_bytes()


def openapi(call: Call) -> Answer:
    """The document as it is."""
    return Answer(document())


ROUTES = (Route("GET", "/api/v1/openapi.json", openapi, no_permission),)
