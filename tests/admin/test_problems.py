"""``problems`` of ``/api/v1/broker``: a table of what can be wrong, and what is said about it."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from stompring.settings.model import HttpAcceptor, StompAcceptor, WebSocketSettings

from .admin_server import BEGIN, HTTP_PORT, STOMP_PORT, AdminServer, pick


def problems(server):
    shown = server.get("/api/v1/broker")["problems"]
    return [pick(problem, "severity", "text") for problem in shown]


def full(policy):
    server = AdminServer({"q": {"max_size_messages": 2, "address_full_policy": policy}})
    server.queue()
    client = server.stomp()
    for _ in range(3):
        client.put()
    return server


def with_disk(usage, fault=None):
    server = AdminServer(max_disk_usage=90)
    monitor = SimpleNamespace(reading=SimpleNamespace(usage=usage, free=10**9))
    server.service.disk_monitor = monitor
    server.broker.disk.set_fault(fault)
    return server


def with_certificate(days):
    server = AdminServer()
    expiry = datetime.fromtimestamp(BEGIN, UTC) + timedelta(days=days)
    certificate = SimpleNamespace(file="b.pem", subject="CN=broker", not_after=expiry)
    stack = SimpleNamespace(tls_failures={}, proxy_failures={}, identities=lambda: [("stomp", certificate)])
    server.service.listener_stack = stack
    return server


def with_closed_listener():
    server = AdminServer()
    server.service.listening.append(("amqp", "0.0.0.0", 5672))
    return server


def with_memory(used):
    server = AdminServer(global_max_size=1000)
    server.broker.memory.bytes = used
    return server


def with_policy_errors():
    server = AdminServer()
    server.broker.policies.errors["rate-limit", "admit"] = 3
    return server


def with_store_fault():
    server = AdminServer()
    server.broker.storage.write_limit.set_fault("journal write failed (ENOSPC)")
    return server


def with_messages_and_no_consumer():
    server = AdminServer()
    server.stomp().put()
    return server


def with_many_connections():
    server = AdminServer()
    server.stomp()
    server.service.connections.global_limit.limit = 1
    return server


def with_consumer(seconds, waiting=1, consumers=1, answer=""):
    """Consumers with a message each, while others wait; one answers every second."""
    server = AdminServer({"q": {"max_delivery_attempts": -1}})
    queue = server.queue()
    server.service.sampler.start()
    clients = [server.stomp() for _ in range(consumers)]
    for client in clients:
        client.subscribe(id="s", ack="client-individual", prefetch_count="1")
    for _ in range(consumers + waiting):
        clients[0].put()
    for _ in range(seconds):
        server.advance(1)
        if answer:
            clients[0].send(answer, id=next(iter(queue.consumers)).first_unsettled.decode())
    return server


def stalled(seconds, others=""):
    text = (
        f"queue q: consumer 18bcfe56800-1/s (127.0.0.1:50000) has held messages unacknowledged for {seconds} seconds "
        "while more wait"
    )
    return [("warning", text + others)]


CASES = [
    (AdminServer, []),
    (with_messages_and_no_consumer, []),
    (lambda: full("BLOCK"), [("error", "address q: 1 producer is blocked")]),
    (
        lambda: full("DROP"),
        [("warning", "Address q is full: max-size-messages 2: messages are dropped")],
    ),
    (
        lambda: full("FAIL"),
        [("warning", "Address q is full: max-size-messages 2: messages are rejected")],
    ),
    (lambda: with_disk(0.5), []),
    (lambda: with_disk(0.86), [("warning", "the disk is 86.0 % full, max-disk-usage is 90 %")]),
    (lambda: with_disk(0.95, "the disk is full"), [("error", "the disk is full")]),
    (with_store_fault, [("error", "journal write failed (ENOSPC)")]),
    (lambda: with_certificate(31), []),
    (
        lambda: with_certificate(3),
        [("warning", "certificate CN=broker of acceptor stomp expires on 2023-11-17 22:13 UTC")],
    ),
    (
        lambda: with_certificate(-1),
        [("error", "certificate CN=broker of acceptor stomp expired on 2023-11-13 22:13 UTC")],
    ),
    (with_closed_listener, [("error", "acceptor amqp does not listen on 0.0.0.0:5672")]),
    (lambda: with_memory(799), []),
    (lambda: with_memory(800), [("warning", "80 % of global-max-size (1000) is in use")]),
    (lambda: with_memory(1000), [("error", "memory is full: 100 % of global-max-size (1000) is in use")]),
    (with_policy_errors, [("warning", "policy rate-limit failed 3 times in admit: see the log")]),
    (lambda: with_consumer(59), []),
    (lambda: with_consumer(75), stalled(74)),
    (lambda: with_consumer(75, consumers=3), stalled(74, ", and 2 other consumers too")),
    (lambda: with_consumer(75, waiting=0), []),
    (lambda: with_consumer(75, waiting=100, answer="ACK"), []),
    (lambda: with_consumer(75, answer="NACK"), []),
    (with_many_connections, [("warning", "1 of 1 connections are open (global-max-connections)")]),
]


@pytest.mark.parametrize("make, expected", CASES)
def test_problems(make, expected):
    assert problems(make()) == expected


def test_a_problem_of_an_address_names_it():
    (problem,) = full("BLOCK").get("/api/v1/broker")["problems"]
    assert problem["address"] == "q"


def test_errors_come_first_and_the_list_is_limited():
    server = AdminServer({"#": {"max_size_messages": 1, "address_full_policy": "DROP"}})
    client = server.stomp()
    for number in range(150):
        for _ in range(2):
            client.put(to=f"/queue/q{number}")
    server.broker.storage.write_limit.set_fault("the store fails")
    found = problems(server)
    assert found[0] == ("error", "the store fails")
    assert len(found) == 101 and found[-1] == ("warning", "51 more problems")


def test_listeners_tell_what_clients_may_speak():
    server = AdminServer(
        stomp_acceptors=(
            StompAcceptor("stomp", "127.0.0.1", STOMP_PORT, websocket=WebSocketSettings(path="/ws")),
        ),
        http_acceptors=(HttpAcceptor("http", "127.0.0.1", HTTP_PORT),),
    )
    stomp, http = server.get("/api/v1/broker")["listeners"]
    assert pick(stomp, "protocols", "tls") == (["STOMP", "WebSocket"], False)
    assert stomp["webSocket"] == "/ws"
    assert pick(http, "protocols", "tls", "webSocket") == (["HTTP"], False, None)
