"""What the garbage collector looks at in a broker that holds much, and what it finds."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest

from stompring.broker.transaction import STEP_OVERHEAD
from stompring.server import gc_tuning
from stompring.server.gc_tuning import FREEZE_THRESHOLD, THRESHOLDS, WINDOW, GcTuning

from ..broker.broker_fixture import BrokerFixture


class Node:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


@pytest.fixture
def world():
    world = BrokerFixture()
    world.connections: list[object] = []
    yield world
    gc.unfreeze()


@pytest.fixture
def collector(world, monkeypatch):
    monkeypatch.delenv("STOMPRING_GC", raising=False)
    collector = GcTuning(world.broker, world.connections)
    collector.start()
    yield collector
    collector.stop()


def hold(world, messages):
    for _ in range(messages):
        world.send()


@pytest.mark.usefixtures("collector")
def test_messages_are_freed_by_their_counts(world):
    queue = world.queue()
    hold(world, 3_000)
    ref = queue.dispatcher.pending.head()
    assert ref is not None
    gone = weakref.ref(ref.message)
    del ref
    gc.disable()
    try:
        queue.purge()
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("collector")
def test_tuples_that_other_threads_are_making_are_left_alone(world):
    """One that a list of all objects refers to cannot be finished: a SystemError in the thread that makes it."""
    errors: list[SystemError] = []
    done = threading.Event()

    def make():
        while not done.is_set():
            try:
                tuple([number] for number in range(3_000))
            except SystemError as error:
                errors.append(error)

    world.queue()
    before, kept = sys.getswitchinterval(), []
    thread = threading.Thread(target=make)
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        for _ in range(200):
            hold(world, 100)
            kept += [[number] for number in range(500)]
            world.clock.advance(gc_tuning.INTERVAL)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)
    assert errors == []


def test_what_is_held_long_is_set_aside_and_no_collection_is_long(world, collector):
    world.queue()
    looked_at: list[int] = []

    def note(phase, info):
        if phase == "start":
            looked_at.append(
                sum(len(gc.get_objects(generation=each)) for each in range(info["generation"] + 1))
            )

    gc.callbacks.append(note)
    try:
        kept = []
        for _ in range(20):
            hold(world, 2_000)
            kept += [[number] for number in range(2_000)]
            world.clock.advance(gc_tuning.INTERVAL)
    finally:
        gc.callbacks.remove(note)
    assert looked_at and max(looked_at) < WINDOW + FREEZE_THRESHOLD
    assert max(looked_at[len(looked_at) // 2 :]) < WINDOW  # much was held by then
    assert gc.get_freeze_count() > 20_000


@pytest.mark.usefixtures("collector")
def test_cycles_are_found_by_their_number_whatever_is_held(world):
    world.queue()
    hold(world, 25_000)
    world.clock.advance(gc_tuning.INTERVAL)
    gone = [weakref.ref(Node()) for _ in range(3 * WINDOW)]
    assert sum(ref() is not None for ref in gone) < WINDOW


def test_a_leak_of_what_was_set_aside_is_found_by_its_growth(world, collector, monkeypatch):
    monkeypatch.setattr(gc_tuning, "MAX_UNEXPLAINED_BLOCKS", 150_000)
    monkeypatch.setattr(gc_tuning, "FREEZE_THRESHOLD", 0)
    leaked = [Node() for _ in range(2_000)]
    first = weakref.ref(leaked[0])
    kept = [[number] for number in range(2 * WINDOW)]  # so that the nodes are old
    world.clock.advance(gc_tuning.INTERVAL)
    leaked.clear()
    gc.collect()
    assert first() is not None, "they are set aside"
    kept += [[number] for number in range(150_000)]
    for _ in range(gc_tuning.SUSPICIOUS_CHECKS - 1):
        world.clock.advance(gc_tuning.INTERVAL)
    assert first() is not None, "it might be a burst"
    world.clock.advance(gc_tuning.INTERVAL)
    assert first() is None


def test_growth_that_connections_explain_is_no_leak(world, collector, monkeypatch):
    monkeypatch.setattr(gc_tuning, "MAX_UNEXPLAINED_BLOCKS", 30_000)
    monkeypatch.setattr(gc_tuning, "FREEZE_THRESHOLD", 0)
    world.connections.extend(range(1_000))
    before = collector._blocks
    kept = [[number] for number in range(100_000)]
    for _ in range(2 * gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert collector._blocks == before
    kept += [[number] for number in range(200_000)]
    for _ in range(gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert collector._blocks > before + 100_000


def test_pythons_own_settings_stay_where_they_are_asked_for(world, monkeypatch):
    monkeypatch.setenv("STOMPRING_GC", "default")
    before = gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()
    collector = GcTuning(world.broker, [])
    collector.freeze()
    collector.start()
    assert (gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()) == before
    collector.stop()


def test_the_end_leaves_pythons_own_settings(world, monkeypatch):
    monkeypatch.delenv("STOMPRING_GC", raising=False)
    before = gc.get_threshold(), len(gc.callbacks)
    collector = GcTuning(world.broker, [])
    collector.start()
    assert gc.get_threshold() == THRESHOLDS
    collector.stop()
    assert (gc.get_threshold(), len(gc.callbacks)) == before
    assert not world.clock.calls


def test_growth_that_is_over_soon_is_no_leak(world, collector, monkeypatch):
    monkeypatch.setattr(gc_tuning, "MAX_UNEXPLAINED_BLOCKS", 30_000)
    monkeypatch.setattr(gc_tuning, "FREEZE_THRESHOLD", 0)
    before = collector._blocks
    kept = [[number] for number in range(200_000)]
    for _ in range(gc_tuning.SUSPICIOUS_CHECKS - 1):
        world.clock.advance(gc_tuning.INTERVAL)
    kept.clear()
    for _ in range(2 * gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert collector._blocks == before


def test_growth_that_open_transactions_explain_is_no_leak(world, collector, monkeypatch):
    monkeypatch.setattr(gc_tuning, "MAX_UNEXPLAINED_BLOCKS", 30_000)
    monkeypatch.setattr(gc_tuning, "FREEZE_THRESHOLD", 0)
    before = collector._blocks
    world.broker.transaction_bytes.reserve(20_000 * STEP_OVERHEAD)
    kept = [[number] for number in range(200_000)]
    for _ in range(2 * gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert collector._blocks == before
    world.broker.transaction_bytes.release(20_000 * STEP_OVERHEAD)
    kept.append([1])


def test_growth_that_messages_explain_is_no_leak(world, collector, monkeypatch):
    monkeypatch.setattr(gc_tuning, "MAX_UNEXPLAINED_BLOCKS", 30_000)
    before = collector._blocks
    queue = world.queue()
    hold(world, 60_000)
    for _ in range(2 * gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert collector._blocks == before
    queue.purge()
    hold(world, 30_000)
    for _ in range(2 * gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert collector._blocks == before


def test_messages_that_go_are_not_what_a_leak_is_measured_by(world, collector, monkeypatch):
    monkeypatch.setattr(gc_tuning, "MAX_UNEXPLAINED_BLOCKS", 30_000)
    queue = world.queue()
    hold(world, 60_000)
    collector._collect_all()
    before = collector._blocks
    queue.purge()
    for _ in range(2 * gc_tuning.SUSPICIOUS_CHECKS):
        world.clock.advance(gc_tuning.INTERVAL)
    assert queue.message_count == 0
    assert collector._blocks == before
