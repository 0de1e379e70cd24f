"""``/api/v1/loggers``: levels of the log at run time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from stompring.errors import NotFound

from .access import edit_broker, view_broker
from .api import (
    LISTING,
    Answer,
    Body,
    Call,
    Parameter,
    Response,
    Route,
    Steps,
    invalid,
    json_answer,
    paged,
    view,
)
from .json_schema import Component, Field, Fields, boolean, page_of, shown, string, structure

ROOT = "root"

#: Packages whose loggers are listed.
PACKAGES = ("stompring", "twisted", "websockets")

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class LoggerView:
    """A logger by its name."""

    name: str
    logger: logging.Logger


#: Levels before they were changed here, by the name of the logger.
_configured: dict[str, int] = {}


def level_name(level: int) -> str:
    """The least severe of `LEVELS` that a level shows."""
    return next((name for name, value in LEVELS.items() if level <= value), "error")


FIELDS: Fields[LoggerView] = {
    "name": Field(lambda each: each.name, string("Name of the logger: a module or package, or root.")),
    "level": Field(
        lambda each: level_name(each.logger.level) if each.logger.level else None,
        string("Level of the logger; null: that of its parent.", null=True, enum=[*LEVELS, None]),
    ),
    "effectiveLevel": Field(
        lambda each: level_name(each.logger.getEffectiveLevel()),
        string("Lines of this level and above are logged.", enum=list(LEVELS)),
    ),
    "configured": Field(
        lambda each: _configured.get(each.name, each.logger.level) == each.logger.level,
        boolean("Whether the level is that of the start of the broker."),
    ),
}


def loggers() -> dict[str, LoggerView]:
    """The root logger and those of `PACKAGES`, by name."""
    found = {ROOT: LoggerView(ROOT, logging.getLogger())}
    for name in sorted(logging.root.manager.loggerDict):
        if name.partition(".")[0] in PACKAGES:  # also a package that has no lines of its own
            found[name] = LoggerView(name, logging.getLogger(name))
    for package in PACKAGES:
        found.setdefault(package, LoggerView(package, logging.getLogger(package)))
    return found


def list_loggers(call: Call) -> Steps:
    return paged(call.query, list(loggers().values()), FIELDS, "name")


def change(call: Call) -> Answer:
    name = call.names["name"]
    found = loggers().get(name)
    if found is None:
        raise NotFound(f"Logger {name} does not exist")
    if "level" not in call.body:
        raise invalid("level", "is missing")
    level: Any = call.body["level"]
    if level is None and name != ROOT:
        number = logging.NOTSET
    elif isinstance(level, str) and level in LEVELS:
        number = LEVELS[level]
    else:
        null = "" if name == ROOT else " or null"
        raise invalid("level", f"must be {', '.join(LEVELS)}{null}, not {level!r:.50}")
    _configured.setdefault(name, found.logger.level)
    found.logger.setLevel(number)
    return json_answer(view(found, FIELDS))


LOGGER = Component("Logger", structure(shown(FIELDS)))
LOGGER_NAME = Parameter(
    "name",
    "Name of the logger, or root.",
    {"type": "string"},
    "path",
    component="loggerName",
    required=True,
)
LEVEL = string("New level; null: that of its parent.", null=True, enum=[*LEVELS, None])

ROUTES = (
    Route(
        "GET",
        "/api/v1/loggers",
        list_loggers,
        view_broker,
        "listLoggers",
        "List loggers with their levels.",
        {200: Response("One page of loggers.", page_of(LOGGER))},
        parameters=LISTING,
        filters=FIELDS,
    ),
    Route(
        "PATCH",
        "/api/v1/loggers/{name}",
        change,
        edit_broker,
        "changeLogger",
        "Change the level of a logger until the broker stops.",
        {200: Response("The changed logger.", LOGGER)},
        parameters=(LOGGER_NAME,),
        body=Body({"level": LEVEL}, ("level",), "LoggerChange"),
    ),
)
