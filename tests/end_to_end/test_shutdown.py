"""SIGTERM and SIGINT: consumers are told, the exit code is 0, and the port is free again."""

import signal
import socket

import pytest

from ..broker_process import BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from .steps import say, written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_everybody_is_told(start_broker, number):
    broker = start_broker()
    clients = []
    for version in ("1.0", "1.1", "1.2"):
        client = StompClient(broker.port, version)
        client.connect({"heart-beat": "0,0"})
        client.subscribe("/queue/q")
        clients.append(client)
    clients[0].put("/queue/q", "x", "y", AMQ_SCHEDULED_DELAY=60_000)
    broker.terminate(number)
    for client in clients:
        client.error("shutting down")
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port), timeout=5)


def test_what_was_on_its_way_to_a_client_still_arrives(serve):
    broker, _, client = serve()
    client.put("/queue/q", *("x" * 1000 for _ in range(200)))
    client.subscribe("/queue/q", ack="auto")
    Management(broker.http_port).expect("q", messageCount=0)
    broker.terminate()
    for _ in range(200):
        client.message("x" * 1000)
    client.error("shutting down")
    broker.stop()


def test_a_blocked_producer_does_not_hold_it_up(serve):
    broker, _, client = serve(settings={"#": {"max-size-messages": 1, "address-full-policy": "BLOCK"}})
    client.put("q", "1")
    say(client, "q", b"2")
    Management(broker.http_port).expect_address("q", blockedProducers=1)
    broker.stop()


@pytest.mark.parametrize("second_signal", [None, "at once", "later"])
def test_a_client_that_does_not_read_does_not_hold_it_up(start_broker, second_signal):
    broker = start_broker()
    sender, stuck = StompClient(broker.port), StompClient(broker.port)
    sender.connect()
    stuck.connect()
    stuck.send("SUBSCRIBE", {"id": "1", "destination": "/queue/q"})
    sender.put("/queue/q", *(b"x" * 1_000_000 for _ in range(20)))
    if second_signal == "at once":
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            broker.terminate(number)
    elif second_signal:
        broker.terminate()
        broker.wait_for_log("stopping")
        broker.terminate()  # while it waits for the client that does not read
        broker.wait_for_log("SIGTERM received: the broker is stopping already")
    broker.stop()
    assert len([line for line in broker.log if "stopping: closing 2 connections" in line]) == 1
    sender.close()
    stuck.close()


@pytest.mark.parametrize("ended_by", ["client", "second signal"])
def test_a_drain_before_the_stop(tmp_path, ended_by):
    config = written(tmp_path)
    with BrokerProcess(config, options=("--drain-timeout", "3600")) as broker:
        client = StompClient(broker.port)
        client.connect()
        client.subscribe("/queue/q")
        broker.terminate()
        broker.wait_for_log("draining for up to 3600 s")
        client.put("/queue/q", "x")  # who is connected goes on
        client.message("x")
        late = socket.create_connection(("127.0.0.1", broker.port), timeout=30)
        assert late.recv(4096).startswith(b"ERROR\n")
        late.close()
        if ended_by == "client":
            client.close()
            broker.wait_for_log("stopped$")
        else:
            broker.stop()
            client.error("shutting down")
            client.close()
