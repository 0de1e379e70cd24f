"""What a scrape says, read back by prometheus_client's own parsers."""

import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from stompring.settings.match import SettingsRepository
from stompring.settings.model import AddressSettingEntry, FullPolicy, RingPolicy

from ..docs.pages import text_of
from .admin_server import MULTICAST, AdminServer
from .test_request_handler import step

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: The metrics of each queue, as documented.
QUEUE_METRICS = set(re.findall(r"`(stompring_queue_\w+)` \|", text_of("docs/metrics.md")))

#: Names that can be written but are hard to write down.
AWKWARD = [
    'say "hi"',
    "back\\slash",
    "ends\\",
    "a/b::".rstrip(":"),
    "ünï.✓.名",
    "{a=b},c d",
    "\u2028two\u0085lines",
    "#",
]


def scrape(server, openmetrics=False, query=""):
    reply = server.ask("GET", f"/metrics{query}", headers={"Accept": OPENMETRICS} if openmetrics else {})
    assert reply.status == 200
    return reply.text


def samples(text, openmetrics=False):
    found = {}
    for family in (read_openmetrics if openmetrics else read_text)(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def of_queue(text, address, queue, routing_type="ANYCAST"):
    labels = frozenset({("address", address), ("queue", queue), ("routing_type", routing_type)})
    return {name: value for (name, have), value in samples(text).items() if have == labels}


def of_address(text, address):
    return {name: value for (name, have), value in samples(text).items() if have == {("address", address)}}


def types(text):
    lines = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len({line[2] for line in lines}) == len(lines), "a family comes twice"
    return {line[2]: line[3] for line in lines}


def test_every_family_has_help(queue, server):
    text = scrape(server)
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")}
    assert helped == types(text).keys()


#: Where there is a store: those of `StoreFigures`.
OF_STORE = {
    "stompring_store_failing": 1,
    "stompring_store_failures_total": 1,
    "stompring_store_waiting_bytes": 2,
    "stompring_store_batches_total": 3,
    "stompring_store_written_bytes_total": 4,
    "stompring_store_disk_seconds_total": pytest.approx(0.005),
    "stompring_journal_segments": 6,
    "stompring_journal_size_bytes": 7,
    "stompring_journal_live_bytes": 8,
    "stompring_journal_compactions_total": 24,
    "stompring_journal_rewritten_bytes_total": 9,
    "stompring_journal_lost_bytes_total": 23,
    "stompring_retention_files": 25,
    "stompring_retention_bytes": 26,
    "stompring_retention_deleted_files_total": 27,
    "stompring_retention_deleted_not_ingested_files_total": 28,
    "stompring_pages_read_bytes_total": 10,
    "stompring_pages_damaged_total": 11,
    "stompring_messages_lost_total": 12,
    "stompring_dispatch_budget_bytes": 13,
    "stompring_dispatch_used_bytes": 14,
    "stompring_dispatch_pending_cache_bytes": 15,
    "stompring_dispatch_head_cache_bytes": 16,
    "stompring_dispatch_watermark_lag": 19,
    "stompring_dispatch_blocks_read_total": 20,
    "stompring_disk_usage_ratio": pytest.approx(0.21),
    "stompring_disk_free_bytes": 22,
    "stompring_disk_full": 0,
}


def test_families_of_the_store_are_absent_without_persistence(server):
    text = scrape(server)
    assert not [name for name in OF_STORE if name in text]


@pytest.mark.parametrize("openmetrics", [False, True])
def test_counters_of_the_store(server, openmetrics):
    server.set_store_figures()
    found = samples(scrape(server, openmetrics), openmetrics)
    assert {name: found[(name, frozenset())] for name in OF_STORE} == OF_STORE


def test_entries_of_target_lists_by_kind(server):
    server.set_store_figures()
    found = samples(scrape(server))
    name = "stompring_dispatch_target_entries"
    assert found[(name, frozenset({("kind", "direct")}))] == 17
    assert found[(name, frozenset({("kind", "reference")}))] == 18


def test_counters_of_a_queue(server):
    server.queue("jobs", "work", ring_size=3, ring_policy=RingPolicy.DISCARD)
    client = server.stomp()
    for _ in range(5):
        client.put(to="work", destination_type="ANYCAST")
    client.put(to="work", destination_type="ANYCAST", AMQ_SCHEDULED_DELAY="60000")
    server.advance(2.5)
    client.subscribe("work::jobs", ack="client-individual", prefetch_count="1")
    server.advance(1)
    found = of_queue(scrape(server), "work", "jobs")
    size = found.pop("stompring_queue_persistent_size_bytes")
    assert size == server.directory.queue("jobs").persistent_size > 0
    assert found == {
        "stompring_queue_messages": 4,
        "stompring_queue_delivering_messages": 1,
        "stompring_queue_scheduled_messages": 1,
        "stompring_queue_consumers": 1,
        "stompring_queue_ring_size": 3,
        "stompring_queue_messages_added_total": 6,
        "stompring_queue_messages_acknowledged_total": 0,
        "stompring_queue_messages_expired_total": 0,
        "stompring_queue_messages_killed_total": 0,
        "stompring_queue_messages_replaced_total": 2,
        "stompring_queue_groups": 0,
        "stompring_queue_keys": 0,
        "stompring_queue_paged_messages": 0,
        "stompring_queue_oldest_message_age_seconds": 3.5,
    }


def test_counters_of_an_address():
    server = AdminServer({"full": {"max_size_messages": 4, "address_full_policy": FullPolicy.DROP}})
    server.queue("full")
    client = server.stomp()
    for _ in range(6):
        client.put(to="/queue/full")
    client.put(to="nobody", destination_type="MULTICAST")
    text = scrape(server)
    full = of_address(text, "full")
    assert full.pop("stompring_address_size_bytes") == server.directory.address("full").memory_limit.bytes > 0
    assert full == {
        "stompring_address_retroactive_messages": 0,
        "stompring_address_pages": 0,
        "stompring_address_pages_bytes": 0,
        "stompring_address_paging": 0,
        "stompring_address_times_paged_total": 0,
        "stompring_address_blocked_producers": 0,
        "stompring_address_limit_percent": 100,
        "stompring_address_routed_messages_total": 4,
        "stompring_address_unrouted_messages_total": 0,
        "stompring_address_dropped_messages_total": 2,
        "stompring_address_duplicate_messages_total": 0,
    }
    assert of_address(text, "nobody")["stompring_address_unrouted_messages_total"] == 1


def test_counters_of_the_broker():
    server = AdminServer(global_max_size=10_000)
    server.queue("one")
    server.queue("two", "one")
    server.stomp().protocol.connectionLost()
    server.stomp().put(to="/queue/one")
    server.advance(7)
    server.stomp()
    found = samples(scrape(server))
    expected = {
        "stompring_connections": 2,
        "stompring_connections_opened_total": 3,
        "stompring_addresses": 1,
        "stompring_queues": 2,
        "stompring_messages": 1,
        "stompring_address_memory_usage_bytes": server.broker.memory.bytes,
        "stompring_address_memory_limit_bytes": 10_000,
        "stompring_uptime_seconds": 7,
    }
    assert {name: found[(name, frozenset())] for name in expected} == expected
    assert found[("process_resident_memory_bytes", frozenset())] > 1_000_000


def test_build_info(server):
    import stompring

    build = {("version", stompring.__version__), ("build", stompring.build())}
    (labels,) = [labels for name, labels in samples(scrape(server)) if name == "stompring_build_info"]
    assert build <= labels


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("name", AWKWARD)
def test_special_characters_in_names_round_trip(server, name, openmetrics):
    server.queue(f"q {name}", f"a {name}", MULTICAST)
    found = samples(scrape(server, openmetrics), openmetrics)
    labels = {("address", f"a {name}"), ("queue", f"q {name}"), ("routing_type", "MULTICAST")}
    assert found[("stompring_queue_ring_size", frozenset(labels))] == -1
    assert found[("stompring_address_pages", frozenset({("address", f"a {name}")}))] == 0


def test_accept_header_selects_openmetrics(queue, server):
    plain, asked = (
        server.ask("GET", "/metrics", headers={"Accept": accept}) for accept in ("text/plain", OPENMETRICS)
    )
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n") and asked.text.count("# EOF") == 1
    assert "# EOF" not in plain.text
    found = samples(asked.text, openmetrics=True)
    assert found[("stompring_connections_opened_total", frozenset())] == 0
    assert {name for name, _ in found} >= QUEUE_METRICS


def test_families_stay_together(server):
    for number in range(1200):  # more than one piece
        server.queue(f"q{number}")
    names = [
        line.partition("{")[0] for line in scrape(server).splitlines() if line.startswith("stompring_queue_")
    ]
    changes = [name for before, name in zip([None, *names], names, strict=False) if name != before]
    assert len(changes) == len(set(changes)) == len(QUEUE_METRICS)
    assert len(names) == 1200 * len(changes)


def test_enable_metrics_false_hides_an_address_and_its_queues():
    server = AdminServer({"quiet.#": {"enable_metrics": False}})
    server.queue("q", "quiet.one")
    server.queue("loud")
    text = scrape(server)
    assert "quiet.one" not in text
    assert of_queue(text, "loud", "loud") and of_address(text, "loud")


def test_name_parameter_selects_families(queue, server):
    text = scrape(server, query="?name%5B%5D=stompring_queue_ring_size&name[]=stompring_connections")
    assert set(types(text)) == {"stompring_queue_ring_size", "stompring_connections"}


def test_head_renders_no_metrics(server):
    reply = server.ask("HEAD", "/metrics")
    assert reply.status == 200 and reply.body == b""
    assert reply.headers["content-type"].startswith("text/plain")


def read_in_pieces(server, between):
    """A scrape during which ``between`` is called after each call of the reactor."""
    _, wire = server.begin("GET", "/metrics")
    calls = 0
    while not wire.disconnecting:
        step(server)
        between(calls)
        calls += 1
        assert calls < 10_000
    assert calls > 3
    return AdminServer.parse(wire.value()).text


@pytest.mark.parametrize("openmetrics", [False, True])
def test_queues_created_and_deleted_during_a_scrape(monkeypatch, openmetrics):
    monkeypatch.setattr("stompring.admin.context.TIME_SLICE", 0)  # every step is a slice of its own
    server = AdminServer()
    for number in range(300):
        server.queue(f"old{number}")

    def change(call):
        names = [name for name in server.directory.queues if name.startswith("old")]
        for name in names[:20]:
            server.directory.delete_queue(name)
        server.queue(f"new{call}")

    found = samples(read_in_pieces(server, change))
    rows = {}
    for name, labels in found:
        if name.startswith("stompring_queue_"):
            rows.setdefault(name, set()).add(dict(labels)["queue"])
    assert len({frozenset(queues) for queues in rows.values()}) == 1, "all families show the same queues"
    assert len(rows) == len(QUEUE_METRICS)


def test_counters_of_one_queue_are_consistent(monkeypatch):
    monkeypatch.setattr("stompring.admin.context.TIME_SLICE", 0)
    server = AdminServer()
    for number in range(200):
        server.queue(f"q{number}")
    client = server.stomp()

    def send(call):
        client.protocol.dataReceived(f"SEND\ndestination:/queue/q{call % 200}\n\nx\0".encode())

    text = read_in_pieces(server, send)
    for number in range(200):
        found = of_queue_quick(text, f"q{number}")
        assert found["stompring_queue_messages"] == found["stompring_queue_messages_added_total"]


def of_queue_quick(text, queue):
    lines = [line for line in text.splitlines() if f'queue="{queue}"' in line]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_enable_metrics_applies_at_the_next_scrape(server):
    server.queue("q")
    assert of_queue(scrape(server), "q", "q")
    entry = AddressSettingEntry("q", {"enable_metrics": False})
    server.directory.address("q").apply(SettingsRepository([entry]).lookup("q"))
    assert not of_queue(scrape(server), "q", "q")
