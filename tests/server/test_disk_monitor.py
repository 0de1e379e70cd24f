"""When the disk counts as full, who is told, and that it is noticed in time."""

import os
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from stompring.broker.broker import Broker
from stompring.policy.hooks import Policies
from stompring.server.disk import (
    DiskMonitor,
    DiskUsage,
    LogUsage,
    disk_full_reason,
    disk_usage,
    log_full_reason,
)
from stompring.server.reload import apply
from stompring.settings.model import BrokerConfiguration

GB = 1024**3

JUDGED = [
    # max-disk-usage, min-disk-free, free of 100 GB, full
    (90, -1, 10.1, False),
    (90, -1, 10, True),
    (90, -1, 0, True),
    (100, -1, 0.1, False),
    (100, -1, 0, True),
    (0, -1, 100, True),
    (-1, -1, 0, False),
    (-1, 5, 5, False),
    (-1, 5, 4.9, True),
    (90, 5, 6, False),  # min-disk-free alone counts where it is set
    (90, 0, 0, False),
]


@pytest.mark.parametrize("usage, least, free, full", JUDGED)
def test_when_a_disk_is_full(usage, least, free, full):
    configuration = BrokerConfiguration(
        max_disk_usage=usage, min_disk_free=least * GB if least > 0 else least
    )
    fault = disk_full_reason(DiskUsage(Path("/d"), 100 * GB, int(free * GB)), configuration)
    assert (fault is not None) == full
    if fault is not None:
        assert "the disk of /d is full" in fault
        assert ("min-disk-free" in fault) == (least >= 0)


def test_a_disk_without_a_size_is_not_full():
    assert disk_full_reason(DiskUsage(Path("/proc"), 0, 0), BrokerConfiguration()) is None


def test_reading_a_real_disk(tmp_path):
    here, there = disk_usage(tmp_path), disk_usage(tmp_path / "not" / "there" / "yet")
    assert here.total == there.total == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert 0 <= here.usage <= 1 and 0 <= here.free <= here.total


class SlowDisk:
    """Answers when it is told to."""

    def __init__(self):
        self.jobs = []

    def run(self, job, done):
        self.jobs.append((job, done))

    def finish(self):
        while self.jobs:
            job, done = self.jobs.pop(0)
            done(job())


class Watch:
    """A monitor of two disks whose fill is said by the test."""

    def __init__(self, **configuration):
        self.clock = Clock()
        self.broker = Broker(BrokerConfiguration(**configuration), self.clock, Policies())
        self.used = {Path("/journal"): 50, Path("/pages"): 20}
        self.broken = None
        self.disk = SlowDisk()
        self.monitor = DiskMonitor(self.broker, self.disk, self.used, self._read)

    def _read(self, path):
        if self.broken is not None:
            raise self.broken
        return DiskUsage(path, 100 * GB, (100 - self.used[path]) * GB)

    def pass_time(self, seconds):
        self.clock.advance(seconds)
        self.disk.finish()


def test_the_first_look_is_before_the_first_message():
    watch = Watch()
    watch.used[Path("/pages")] = 95
    watch.monitor.start()
    assert watch.broker.disk.full


def test_full_and_free_again(caplog):
    caplog.set_level("INFO", logger="stompring.server.disk")
    watch = Watch()
    watch.monitor.start()
    room = watch.broker.disk
    assert not room.full and not caplog.records
    resumed = []
    for used, full in [(80, False), (91, True), (95, True), (90, True), (89, False), (10, False)]:
        watch.used[Path("/journal")] = used
        room.waiting.append(lambda: resumed.append(1))
        watch.pass_time(5)
        assert room.full is full
        assert (watch.monitor.reading or disk_usage(Path())).usage == pytest.approx(max(used, 20) / 100)
        room.waiting.clear()
        room._resuming = False
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2, "said once each way"
    assert messages[0].startswith("the disk of /journal is full: usage 91.0 %, max-disk-usage 90 %: durable")
    assert messages[1] == "disk no longer full: usage 89.0 %"
    assert [event.type for event in watch.broker.notifications.events] == ["DISK_FULL", "DISK_NOT_FULL"]
    assert resumed


def test_it_looks_every_period_and_not_while_it_looks():
    watch = Watch(disk_scan_period=2000)
    watch.monitor.start()
    watch.clock.advance(1.9)
    assert not watch.disk.jobs
    watch.clock.advance(0.2)
    assert len(watch.disk.jobs) == 1
    watch.clock.advance(60)
    watch.monitor.measure_now()
    assert len(watch.disk.jobs) == 1, "the disk takes its time"
    watch.disk.finish()
    watch.clock.advance(2)
    assert len(watch.disk.jobs) == 1


def test_a_reload_counts_at_once():
    watch = Watch()
    watch.monitor.start()
    apply(watch.broker, BrokerConfiguration(max_disk_usage=40, disk_scan_period=100))
    watch.monitor.measure_now()
    watch.disk.finish()
    assert watch.broker.disk.full
    apply(watch.broker, BrokerConfiguration(max_disk_usage=60, disk_scan_period=100))
    watch.pass_time(0.1)
    assert not watch.broker.disk.full, "and the new period"


def test_a_disk_that_cannot_be_asked_stays_as_it_was(caplog):
    watch = Watch(max_disk_usage=40)
    watch.monitor.start()
    caplog.clear()
    watch.broken = PermissionError(13, "Permission denied", "/journal")
    watch.pass_time(5)
    watch.pass_time(5)
    assert watch.broker.disk.full
    assert [record.getMessage() for record in caplog.records] == [
        "cannot read disk usage: [Errno 13] Permission denied: '/journal'"
    ]
    watch.broken = None
    watch.used[Path("/journal")] = 10
    watch.pass_time(5)
    assert not watch.broker.disk.full


def test_stopping_leaves_nothing_behind():
    watch = Watch()
    watch.monitor.start()
    watch.clock.advance(5)
    watch.used[Path("/journal")] = 99
    watch.monitor.stop()
    watch.disk.finish()
    assert not watch.broker.disk.full and not watch.clock.getDelayedCalls()
    watch.monitor.measure_now()
    assert not watch.disk.jobs


def test_space_is_freed_while_a_disk_is_full():
    freed = []
    watch = Watch(disk_scan_period=1000)
    watch.monitor = DiskMonitor(
        watch.broker, watch.disk, watch.used, watch._read, free=lambda: freed.append(1)
    )
    watch.monitor.start()
    watch.pass_time(1)
    assert not freed
    watch.used[Path("/journal")] = 95
    watch.pass_time(1)
    watch.pass_time(1)
    assert len(freed) == 2
    watch.used[Path("/journal")] = 50
    watch.pass_time(1)
    assert len(freed) == 2


def test_replicated_log_counts_as_a_disk_and_leaves_room_for_acknowledgements():
    used = [0]
    broker = Broker(BrokerConfiguration(max_disk_usage=90), Clock(), Policies())
    empty = DiskUsage(Path("/d"), 100 * GB, 100 * GB)
    monitor = DiskMonitor(
        broker, SlowDisk(), [Path("/d")], lambda path: empty, log_usage=lambda: LogUsage(used[0], 1000)
    )
    monitor.check_log()  # before the first measurement: nothing is known
    monitor.start()
    assert not broker.disk.full
    used[0] = 900
    monitor.check_log()
    assert (
        broker.disk.fault is not None and "the replicated log is full: 900 of 1000 bytes" in broker.disk.fault
    )
    used[0] = 890
    monitor.check_log()
    assert broker.disk.full, "a little more must be free, or removals and messages would take turns"
    used[0] = 870
    monitor.check_log()
    assert not broker.disk.full
    monitor.stop()
    used[0] = 1000
    monitor.check_log()
    assert not broker.disk.full


@pytest.mark.parametrize("limit, most", [(-1, 90), (0, 90), (1000, -1)])
def test_log_without_a_limit_is_never_full(limit, most):
    assert log_full_reason(LogUsage(10_000, limit), BrokerConfiguration(max_disk_usage=most)) is None
