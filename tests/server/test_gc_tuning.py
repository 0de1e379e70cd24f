"""Pauses for the garbage collector in a broker that holds much."""

import gc
from time import thread_time

import pytest

from stompring.server.gc_tuning import INTERVAL, GcTuning
from stompring.settings.model import RoutingType

from ..broker.broker_fixture import BrokerFixture


@pytest.mark.parametrize("setting", ["", "default"])
def test_pythons_own_settings_stay_or_come_back(monkeypatch, setting):
    monkeypatch.setenv("STOMPRING_GC", setting)
    world = BrokerFixture()
    before = gc.get_threshold(), len(gc.callbacks)
    tuning = GcTuning(world.broker, [])
    tuning.start()
    assert ((gc.get_threshold(), len(gc.callbacks)) == before) is (setting == "default")
    tuning.stop()
    gc.unfreeze()
    assert (gc.get_threshold(), len(gc.callbacks)) == before and not world.clock.calls


@pytest.mark.long
def test_a_million_references_make_no_pause(request):
    """Below 50 ms of processor time; Python's own settings make pauses of several hundred."""
    world = BrokerFixture()
    for number in range(100):
        world.queue(f"q{number}", address="t", routing_type=RoutingType.MULTICAST)
    pauses, begun = [], [0.0]

    def note(phase, info):
        if phase == "start":
            begun[0] = thread_time()
        else:
            pauses.append(thread_time() - begun[0])

    tuning = GcTuning(world.broker, [])
    request.addfinalizer(gc.unfreeze)
    tuning.start()
    request.addfinalizer(tuning.stop)
    gc.callbacks.append(note)
    request.addfinalizer(lambda: gc.callbacks.remove(note))
    for _ in range(200):
        for _ in range(50):
            world.send(address="t")
        world.clock.advance(INTERVAL)
    assert sum(queue.message_count for queue in world.directory.queues.values()) == 1_000_000
    assert pauses and max(pauses) < 0.05
