"""Events and problems of a broker in a replicated log: active, suspended, resumed."""

from dataclasses import replace

from ..admin.admin_server import AdminServer
from ..admin.test_ha import ACTIVE, node_with


def events(server):
    return [(each["type"], each["text"]) for each in server.get("/api/v1/events")["data"]]


def test_takeover_is_an_event_with_its_reason_and_duration():
    server = AdminServer()
    server.service.node = node_with(ACTIVE)
    server.service.notify_takeover()
    assert events(server)[-1] == ("TAKEOVER", "this broker is active: b2 is silent, ready after 2.2 s")


def test_without_a_log_there_is_no_takeover():
    server = AdminServer()
    server.service.notify_takeover()
    assert [kind for kind, _ in events(server) if kind == "TAKEOVER"] == []


def test_suspension_is_an_event_and_a_problem():
    server = AdminServer()
    service = server.service
    service.node = node_with(ACTIVE)
    service.replication = type("Suspended", (), {"fault": "no majority"})()
    service.suspend_delivery()
    assert events(server)[-1] == ("SUSPENDED", "delivery suspended: no majority")
    problems = [each["text"] for each in server.get("/api/v1/broker")["problems"]]
    assert "nothing is delivered: no majority" in problems
    service.replication.fault = None
    service.resume_delivery()
    assert events(server)[-1] == ("RESUMED", "delivery resumed: the replicated log stores again")
    assert not [text for text in problems_of(server) if "delivered" in text]


def problems_of(server):
    return [each["text"] for each in server.get("/api/v1/broker")["problems"]]


def test_an_engine_with_too_few_nodes_is_a_problem():
    server = AdminServer()
    assert ACTIVE.log is not None
    server.service.node = node_with(replace(ACTIVE, log=replace(ACTIVE.log, healthy=False)))
    assert [text for text in problems_of(server) if "too few nodes of the replicated log" in text]
