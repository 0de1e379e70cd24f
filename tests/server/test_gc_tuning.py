"""Pauses for the garbage collector in a broker that holds much."""

import gc
from time import thread_time

import pytest

from ..admin.admin_server import MULTICAST, AdminServer


@pytest.mark.parametrize("setting", ["", "default"])
def test_pythons_own_settings_stay_or_come_back(monkeypatch, setting):
    monkeypatch.setenv("STOMPRING_GC", setting)
    server = AdminServer()
    tuning = server.service.garbage
    before = gc.get_threshold(), len(gc.callbacks)
    tuning.start()
    assert ((gc.get_threshold(), len(gc.callbacks)) == before) is (setting == "default")
    tuning.stop()
    gc.unfreeze()
    assert (gc.get_threshold(), len(gc.callbacks)) == before and not server.reactor.getDelayedCalls()


@pytest.mark.long
def test_a_million_references_make_no_pause(request):
    """Below 50 ms of processor time; Python's own settings make pauses of several hundred."""
    server = AdminServer()
    for number in range(100):
        server.queue(f"q{number}", "t", MULTICAST)
    client = server.stomp()
    pauses, begun = [], [0.0]

    def note(phase, info):
        if phase == "start":
            begun[0] = thread_time()
        else:
            pauses.append(thread_time() - begun[0])

    tuning = server.service.garbage
    request.addfinalizer(gc.unfreeze)
    tuning.start()
    request.addfinalizer(tuning.stop)
    gc.callbacks.append(note)
    request.addfinalizer(lambda: gc.callbacks.remove(note))
    for _ in range(200):
        for _ in range(50):
            client.put(to="t", destination_type="MULTICAST")
        server.advance(1)
    assert sum(queue.message_count for queue in server.directory.queues.values()) == 1_000_000
    assert pauses and max(pauses) < 0.05
