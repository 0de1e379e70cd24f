"""``/api/v1/loggers``: levels are listed and changed while the broker runs."""

import logging

import pytest

from .admin_server import AdminServer, path

NAME = "stompring.broker.address"


@pytest.fixture
def server():
    server = AdminServer()
    levels = {name: logging.getLogger(name).level for name in listed(server)}
    for name in levels.keys() - {"root"}:  # a broker of this process may have set some
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield server
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def listed(server):
    return {each["name"]: each for each in server.get("/api/v1/loggers?size=1000")["data"]}


def test_loggers_are_those_of_the_broker(server):
    found = listed(server)
    assert {"root", "stompring", "twisted", NAME} <= found.keys()
    assert {name.split(".")[0] for name in found} == {"root", "stompring", "twisted", "websockets"}
    assert found[NAME]["level"] is None and found[NAME]["configured"] is True


def test_a_level_takes_effect_and_can_be_undone(server):
    logging.getLogger("stompring").setLevel(logging.WARNING)
    log = logging.getLogger(NAME)
    assert not log.isEnabledFor(logging.DEBUG)
    changed = server.ask("PATCH", path("loggers", NAME), {"level": "debug"})
    assert changed.json == {"name": NAME, "level": "debug", "effectiveLevel": "debug", "configured": False}
    assert log.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("stompring.broker.queue").isEnabledFor(logging.DEBUG)
    assert server.ask("PATCH", path("loggers", NAME), {"level": None}).json["configured"] is True
    assert listed(server)[NAME]["effectiveLevel"] == "warn"


def test_a_package_and_root_decide_about_those_below(server):
    server.ask("PATCH", "/api/v1/loggers/root", {"level": "error"})
    assert listed(server)[NAME]["effectiveLevel"] == "error"
    server.ask("PATCH", "/api/v1/loggers/stompring", {"level": "info"})
    assert listed(server)[NAME]["effectiveLevel"] == "info"


@pytest.mark.parametrize("body", [{}, {"level": "verbose"}, {"level": 10}, {"level": []}, {"levels": "info"}])
def test_invalid_levels_get_400(server, body):
    server.refused(400, "PATCH", path("loggers", NAME), body)


def test_root_has_no_parent(server):
    server.refused(400, "PATCH", "/api/v1/loggers/root", {"level": None})


@pytest.mark.parametrize("name", ["none", "stompring.none", "asyncio", "roots"])
def test_other_loggers_are_unknown(server, name):
    server.refused(404, "PATCH", path("loggers", name), {"level": "info"})
    assert name not in logging.root.manager.loggerDict or name == "asyncio"
