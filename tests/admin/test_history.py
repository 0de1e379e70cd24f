"""``/history`` and the rates of lists: what the sampler makes of real traffic, with a clock turned by hand."""

from itertools import count

import pytest

from .admin_server import BEGIN, MULTICAST, AdminServer, TestReactor, path, pick

#: Milliseconds at which the sampler begins.
START = BEGIN * 1000


@pytest.fixture
def server():
    server = AdminServer()
    server.service.sampler.start()
    return server


def seconds(server, number=1):
    for _ in range(number):
        server.advance(1)
        server.advance()


def send(client, number=1, destination="/queue/q", **headers):
    for _ in range(number):
        client.put(to=destination, **headers)


def history(server, *names, query="", last=0):
    shown = server.get(path(*names, "history") + query)
    assert shown["start"] % shown["resolution"] == 0
    return {name: points[-last:] for name, points in shown["series"].items()}


def test_points_of_a_queue(queue, client, server):
    send(client, 3)
    seconds(server)
    client.subscribe(id="s", ack="client-individual")
    send(client, 2)
    seconds(server)
    for ack in client.acks[:2]:
        client.send("ACK", id=ack)
    seconds(server, 2)
    shown = server.get("/api/v1/queues/q/history")
    assert pick(shown, "resolution", "start") == (1000, START + 4000 - 300_000)
    series = {name: points[-4:] for name, points in shown["series"].items()}
    assert {len(points) for points in shown["series"].values()} == {300}
    assert series["added"] == [3, 2, 0, 0]
    assert series["delivered"] == [0, 5, 0, 0]
    assert series["acknowledged"] == [0, 0, 2, 0]
    assert series["messageCount"] == [3, 5, 3, 3]
    assert series["deliveringCount"] == [0, 5, 3, 3]
    assert shown["series"]["added"][-5] is None  # before the sampler began


def test_rejected_evicted_expired_and_removed_messages(server):
    server.queue(ring_size=2)
    client = server.stomp()
    send(client, 5)
    seconds(server)
    client.subscribe(id="s", ack="client-individual", prefetch_count="1")
    (ack,) = client.acks
    client.send("NACK", id=ack)
    seconds(server)
    client.send("UNSUBSCRIBE", id="s")
    seconds(server)
    (first, *_) = server.messages()
    server.done("DELETE", path("queues", "q", "messages", first["messageID"]))
    server.done("POST", "/api/v1/queues/q/purge")
    seconds(server)
    series = history(server, "queues", "q", last=4)
    assert series["evicted"] == [3, 0, 0, 0]
    assert series["redelivered"] == [0, 1, 1, 0]
    assert series["delivered"] == [0, 2, 0, 0]
    assert series["acknowledged"] == [0, 0, 0, 1]
    assert series["killed"] == [0, 0, 0, 1]
    assert series["messageCount"] == [2, 2, 2, 0]


def test_a_scheduled_message_that_falls_due_changes_the_gauges(queue, server):
    send(server.stomp(), AMQ_SCHEDULED_DELAY="1500")
    seconds(server, 3)
    series = history(server, "queues", "q")
    assert series["scheduledCount"][-3:] == [1, 0, 0]
    assert series["messageCount"][-3:] == [1, 1, 1]


def test_an_address_has_the_sum_of_its_queues_and_what_was_sent_to_it(server):
    for name in ("a", "b"):
        server.queue(name, "news", MULTICAST)
    client = server.stomp()
    send(client, 3, "news")
    send(client, 1, "nowhere")
    seconds(server, 2)
    series = history(server, "addresses", "news", last=2)
    assert pick(series, "added", "messageCount") == ([3, 0], [6, 6])
    listed = {each["name"]: each for each in server.get("/api/v1/addresses")["data"]}
    assert listed["news"]["addedRate"] == 1.5


def test_the_broker_counts_queues_that_are_gone(client, server):
    send(client, 4, "/queue/short")
    server.done("DELETE", "/api/v1/queues/short")  # before it was ever sampled
    send(client, 2)
    seconds(server)
    server.ask("DELETE", "/api/v1/queues/q")
    seconds(server)
    series = history(server, "broker", last=2)
    assert series["added"] == [6, 0]
    assert series["messageCount"] == [2, 0]
    assert series["connectionCount"] == [1, 1]
    assert series["memoryUsage"][0] > 0 and series["diskUsage"] == [0, 0]


def test_a_queue_that_is_created_again_begins_anew(queue, client, server):
    send(client, 3)
    seconds(server, 2)
    server.ask("DELETE", "/api/v1/queues/q")
    server.queue()
    seconds(server)
    send(client)
    seconds(server)
    assert history(server, "queues", "q")["added"][-4:] == [None, None, 0, 1]


def test_what_is_there_at_the_start_is_no_traffic(server):
    other = AdminServer()
    other.queue()
    send(other.stomp(), 5)
    other.service.sampler.start()
    seconds(other, 2)
    assert history(other, "queues", "q")["added"][-2:] == [0, 0]
    assert history(other, "queues", "q")["messageCount"][-2:] == [5, 5]
    assert history(other, "broker")["messageCount"][-1] == 5


def test_connections_and_consumers(queue, client, server):
    client.subscribe(id="s", ack="client-individual")
    send(client, 4)
    seconds(server)
    (ack, *_) = client.acks
    client.send("ACK", id=ack)
    seconds(server)
    number = client.session.number
    series = history(server, "connections", number, last=2)
    assert pick(series, "sent", "delivered", "acknowledged") == ([4, 0], [4, 0], [0, 1])
    assert series["deliveringCount"] == [4, 3]
    (shown,) = server.get("/api/v1/connections")["data"]
    assert pick(shown, "sentRate", "deliveredRate", "acknowledgedRate") == (2.0, 2.0, 0.5)
    (consumer,) = server.get("/api/v1/consumers")["data"]
    assert pick(consumer, "deliveredRate", "acknowledgedRate") == (2.0, 0.5)
    seconds(server, 10)
    (consumer,) = server.get("/api/v1/consumers")["data"]
    assert pick(consumer, "deliveredRate", "acknowledgedRate") == (0.0, 0.0)
    client.send("UNSUBSCRIBE", id="s")
    seconds(server)
    assert history(server, "connections", number)["delivered"][-1] == 0
    assert history(server, "connections", number)["deliveringCount"][-2:] == [3, 0]


def test_rates_in_lists_can_be_sorted_and_are_null_before_anything_is_known():
    server = AdminServer()
    for name in ("a", "b", "c"):
        server.queue(name)
    assert server.shown("a")["addedRate"] is None
    server.service.sampler.start()
    client = server.stomp()
    send(client, 1, "/queue/a")
    send(client, 4, "/queue/c")
    seconds(server, 2)
    listed = server.get("/api/v1/queues?sort=-addedRate")["data"]
    assert [pick(each, "name", "addedRate") for each in listed] == [("c", 2.0), ("a", 0.5), ("b", 0.0)]


def test_resolutions_and_since(queue, client, server):
    for _ in range(70):
        send(client)
        seconds(server)
    ten = server.get(f"/api/v1/queues/q/history?resolution=10s&since={START}")
    assert pick(ten, "resolution", "start") == (10_000, START)
    assert ten["series"]["added"] == [1.0] * 7
    minute = server.get("/api/v1/queues/q/history?resolution=1m")
    assert len(minute["series"]["added"]) == 1440
    assert (minute["resolution"], minute["start"] % 60_000) == (60_000, 0)
    late = server.get(f"/api/v1/queues/q/history?since={START + 67_500}")
    assert (late["start"], late["series"]["added"]) == (START + 68_000, [1.0, 1.0])
    assert history(server, "queues", "q", query=f"?since={START * 2}")["added"] == []


def test_oldest_age_is_of_any_priority(queue, client, server):
    assert pick(server.shown(), "oldestAge", "oldestMessageAge") == (None, None)
    send(client, priority="1")
    seconds(server, 3)
    send(client, priority="9")
    seconds(server)
    shown = server.shown()
    assert pick(shown, "oldestAge", "oldestMessageAge", "pendingCount") == (4000, 1000, 2)


@pytest.mark.parametrize("query", ["resolution=5s", "resolution=", "since=-1", "since=x", "until=1"])
def test_invalid_parameters_get_400(server, query):
    server.refused(400, "GET", f"/api/v1/broker/history?{query}")


def test_rounds_are_made_in_slices(client, server):
    queues, sampled = [], []

    def look():
        sampled.append(sum(queue.history is not None for queue in queues))
        return float(len(sampled))  # each look ends a slice

    server.service.sampler.seconds = look
    queues += [server.queue(f"q{number}") for number in range(300)]
    send(client, 1, "/queue/q299")
    seconds(server)
    assert list(dict.fromkeys(sampled)) == [*range(0, 300, 20), 300]
    assert history(server, "queues", "q299")["added"][-1] == 1


def test_the_memory_of_all_histories_is_limited(server):
    queues = [server.queue(f"q{number}") for number in range(30)]
    memory = server.service.sampler.memory
    memory.max_bytes = 30 * 4000
    used = []
    for _ in range(900):
        for queue in queues:
            queue.messages_added += 1
        seconds(server)
        used.append(sum(each.history.sweep() for each in queues if each.history is not None))
    assert 0.4 * memory.max_bytes < max(used[-100:]) < memory.max_bytes
    assert history(server, "queues", "q7")["added"][-60:] == [1] * 60


def test_rounds_that_take_long_are_made_less_often(client, server):
    now = count()
    server.service.sampler.seconds = lambda: next(now) / 50  # a look at the clock takes 20 ms
    for number in range(100):
        server.queue(f"q{number}")
    sampled = []
    for _ in range(12):
        send(client, 2, "/queue/q99")
        seconds(server)
        sampled.append(server.service.sampler.memory.second - BEGIN)
    assert sampled == [1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 11, 11]
    assert history(server, "queues", "q99")["added"][-10:] == [2] * 10


def test_what_is_old_is_swept(queue, server):
    send(server.stomp())
    seconds(server)
    assert queue.history.series[0] is not None
    seconds(server, 400)
    assert queue.history.series[0] is None and queue.history.series[1] is not None


def test_a_wall_clock_that_is_set_moves_the_times_and_not_the_points(monkeypatch):
    jump = [0]
    monkeypatch.setattr(
        TestReactor, "wall_seconds", lambda reactor: reactor.seconds() + jump[0], raising=False
    )
    server = AdminServer()
    server.queue()
    server.service.sampler.start()
    client = server.stomp()
    for jumped in (0, -86_400, 3600):
        jump[0] = jumped
        send(client, 2)
        seconds(server)
    shown = server.get("/api/v1/queues/q/history")
    assert shown["series"]["added"][-3:] == [2, 2, 2]
    assert shown["start"] == (BEGIN + 3600 + 3 - 300) * 1000
    since = (BEGIN + 3600 + 1) * 1000
    assert history(server, "queues", "q", query=f"?since={since}")["added"] == [2, 2]


def test_without_an_http_acceptor_nothing_is_sampled():
    server = AdminServer(http_acceptors=())
    server.service.start_listening()
    server.queue()
    seconds(server, 3)
    assert server.service.sampler.history is None
    server.service.stop_listening()


def test_a_stop_ends_it(server):
    server.service.sampler.stop()
    queue = server.queue()
    seconds(server, 3)
    assert queue.history is None


def test_a_round_that_fails_leaves_a_gap_and_is_logged(client, server, caplog):
    looks = []

    def look():
        looks.append(0)
        assert len(looks) != 2, "the first within a round"
        return 0.0

    server.queue()
    seconds(server)
    looks += [0, 0]
    server.service.sampler.seconds = look
    seconds(server)
    looks.clear()
    send(client, 2)
    seconds(server)
    assert "sampling of counters failed" in caplog.text
    seconds(server)
    assert sum(history(server, "queues", "q")["added"][-2:]) == 2
