"""``/api/v1/drain``: no new connections, while those that are open continue; ``/health/ready`` says so."""

from stompring.server.disk import REASON

from .admin_server import BEGIN, STOMP_PORT, Wire


def refused(server):
    """What a new client gets."""
    protocol, wire = server._stomp.buildProtocol(None), Wire(STOMP_PORT)
    protocol.makeConnection(wire)
    assert wire.disconnecting
    return wire.value()


def test_new_connections_are_refused_and_open_ones_continue(client, server):
    client.subscribe(id="s", ack="client")
    answer = server.ask("POST", "/api/v1/drain")
    assert answer.status == 200
    assert answer.json == {
        "draining": True,
        "since": BEGIN * 1000,
        "connections": 1,
        "deliveringCount": 0,
        "messageCount": 0,
    }
    assert REASON.encode() in refused(server) and refused(server).startswith(b"ERROR\n")
    client.put()
    assert b"MESSAGE\n" in client.received
    assert server.get("/api/v1/drain")["deliveringCount"] == 1
    client.protocol.connectionLost()
    assert server.get("/api/v1/drain")["connections"] == 0


def test_readiness_and_the_broker_tell_and_undrain_ends_it(server):
    assert server.get("/health/ready")["draining"] is False
    server.ask("POST", "/api/v1/drain")
    ready = server.ask("GET", "/health/ready")
    assert (ready.status, ready.json["status"], ready.json["draining"]) == (503, "DOWN", True)
    shown = server.get("/api/v1/broker")
    assert shown["draining"] is True
    assert [problem["text"] for problem in shown["problems"]] == [
        "the broker is draining: it refuses new connections"
    ]
    assert server.ask("POST", "/api/v1/undrain").json["since"] is None
    server.done("GET", "/health/ready")
    assert b"CONNECTED" in server.stomp().received


def test_a_second_drain_changes_nothing(server):
    server.ask("POST", "/api/v1/drain")
    server.advance(5)
    assert server.ask("POST", "/api/v1/drain").json["since"] == BEGIN * 1000
    for _ in range(2):
        server.ask("POST", "/api/v1/undrain")
    types = [event["type"] for event in server.get("/api/v1/events?type[]=DRAIN&type[]=UNDRAIN")["data"]]
    assert types == ["DRAIN", "UNDRAIN"]
