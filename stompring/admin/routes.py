"""Which function answers which method on which path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stompring.errors import NotFound
from stompring.settings.suggestions import with_suggestion

from .answer import Answer, Problem, Steps
from .query import Query
from .served import Served

if TYPE_CHECKING:
    from .needs import Need


@dataclass(frozen=True, slots=True)
class Call:
    """A request that a route answers: everything about it that is not HTTP."""

    served: Served
    names: dict[str, str]  # the parts of the path that are names, decoded
    query: Query
    body: dict[str, Any]
    accept: str = ""
    user: str | None = None  # who asks; None while security is off


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. ``{name}`` in the path stands for any text."""

    method: str
    path: str
    answer: Callable[[Call], Answer | Steps]
    needs: Need  # where security is on
    parameters: frozenset[str] = frozenset()  # of the query
    fields: frozenset[str] = frozenset()  # of the body
    public: bool = False  # answered without a login, where security is on

    def check(self, call: Call) -> None:
        """Raise 400 for parameters and fields that mean nothing here: a misspelt one must not be ignored."""
        for name in call.query.names:
            if name not in self.parameters:
                raise Problem(
                    400, with_suggestion(f"Unknown parameter {name!r}", name, self.parameters), parameter=name
                )
        for name in call.body:
            if name not in self.fields:
                raise Problem(400, with_suggestion(f"Unknown field {name!r}", name, self.fields), field=name)


@dataclass(slots=True)
class _Place:
    """What there is at one path and below it."""

    methods: dict[str, Route] = field(default_factory=dict)
    below: dict[str, _Place] = field(default_factory=dict)
    any_name: _Place | None = None


class Routes:
    """All routes, found by walking the path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all = tuple(routes)
        self._root = _Place()
        for route in self.all:
            self._add(route)

    def find(self, method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
        """The route and the names in its path. Raises 404, and 405 with what is allowed. HEAD finds GET."""
        place, names = self._root, []
        for segment in segments:
            following = place.below.get(segment)
            if following is None and segment:
                following = place.any_name
                names.append(segment)
            if following is None:
                raise NotFound(f"There is nothing at /{'/'.join(segments)}")
            place = following
        if not place.methods:
            raise NotFound(f"There is nothing at /{'/'.join(segments)}")
        route = place.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*place.methods, *(["HEAD"] if "GET" in place.methods else [])}))
            raise Problem(405, f"{method} is not possible here, but {allowed} is", {"Allow": allowed})
        keys = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
        return route, dict(zip(keys, names, strict=True))

    def _add(self, route: Route) -> None:
        place = self._root
        for part in route.path[1:].split("/"):
            if part.startswith("{"):
                place.any_name = place = place.any_name or _Place()
            else:
                place = place.below.setdefault(part, _Place())
        place.methods[route.method] = route
