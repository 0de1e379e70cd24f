"""Points of counters in three resolutions: what is recorded is what is read, in bounded memory."""

import pytest

from ..admin.admin_server import AdminServer

#: Second at which histories begin: a whole minute.
BEGIN = 1_700_000_040

#: Seconds of a point, and points, of each resolution.
RESOLUTIONS = [(1, 300), (10, 360), (60, 1440)]


class Recorder:
    """A history of one counter and one gauge, those of a queue that is not sampled any more, and its clock."""

    def __init__(self, server=None):
        if server is None:
            server = AdminServer()
            server.advance(BEGIN - server.reactor.seconds())
        self.server = server
        queue = server.queue(f"q{len(server.directory.queues)}")
        server.service.sampler.start()
        server.service.sampler.stop()
        self.history = queue.history
        self.memory = self.history.memory
        self.count = self.gauge = 0

    def values(self):
        """Eight counters and four gauges."""
        return (self.count, *[0] * 7, self.gauge, *[0] * 3)

    def second(self, count=0, gauge=None, late=1):
        """``late`` seconds pass, in which the counter rises by ``count``."""
        self.memory.sampling += late
        changed = count or (gauge is not None and gauge != self.gauge)
        self.count += count
        self.gauge = self.gauge if gauge is None else gauge
        if changed:
            self.history.record(self.values(), late)
        self.memory.second = self.memory.sampling

    def idle(self, seconds):
        self.memory.sampling += seconds
        self.memory.second = self.memory.sampling

    def read(self, resolution=0, first=None):
        begin = BEGIN // RESOLUTIONS[resolution][0]
        points = self.history.points(resolution, begin if first is None else begin + first)
        return [points[0], points[8]]


@pytest.mark.parametrize("value", [0, 1, 2047, 2048, 2049, 4095, 4096, 65_535, 10**6, 10**9, 10**12])
def test_a_point_is_exact_up_to_2047_and_near_above(value):
    recorder = Recorder()
    recorder.second(1, value)
    (point,) = recorder.read()[1]
    assert point == value if value < 2048 else abs(point - value) <= value / 2000


def test_each_value_is_packed_in_order():
    recorder = Recorder()
    recorder.memory.limits[0] = 10_000
    for value in [*range(1, 5000), *range(5000, 10**6, 997)]:
        recorder.second(0, value)
    points = recorder.read()[1]
    assert points == sorted(points) and len(points) > 5900


def test_points_of_seconds():
    recorder = Recorder()
    for count, gauge in ((3, 3), (0, 3), (5, 8), (0, 0)):
        recorder.second(count, gauge)
    assert recorder.read() == [[3.0, 0.0, 5.0, 0.0], [3, 3, 8, 0]]


def test_idle_seconds_are_0_and_keep_the_gauge_before_and_after_they_are_recorded():
    recorder = Recorder()
    recorder.idle(2)
    recorder.second(4, 7)
    recorder.idle(3)
    expected = [[0.0, 0.0, 4.0, 0.0, 0.0, 0.0], [0, 0, 7, 7, 7, 7]]
    assert recorder.read() == expected
    recorder.second(1, 8)
    assert recorder.read() == [[*expected[0], 1.0], [*expected[1], 8]]


def test_coarser_points_are_means_of_counters_and_the_last_value_of_gauges():
    recorder = Recorder()
    for second in range(120):
        recorder.second(1 if second < 60 else 2, second)
    assert recorder.read(1) == [[1.0] * 6 + [2.0] * 6, [float(value) for value in range(9, 120, 10)]]
    assert recorder.read(2) == [[1.0, 2.0], [59, 119]]


def test_coarse_points_with_idle_parts_have_every_change_once():
    recorder = Recorder()
    recorder.idle(3)
    recorder.second(10)  # in point 0
    recorder.idle(20)
    recorder.second(30)  # in point 2
    recorder.idle(45)
    assert recorder.read(1)[0] == [1.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]
    assert recorder.read(2)[0] == [pytest.approx(40 / 60, abs=0.001)]


def test_an_incomplete_point_is_not_shown():
    recorder = Recorder()
    for _ in range(15):
        recorder.second(1)
    assert recorder.read(1)[0] == [1.0]
    assert recorder.read(2)[0] == []


def test_a_late_round_spreads_what_happened_over_the_seconds_missed():
    recorder = Recorder()
    recorder.second(4)
    recorder.second(9, late=3)
    recorder.second(2)
    assert recorder.read()[0] == [4.0, 3.0, 3.0, 3.0, 2.0]


def test_a_counter_that_falls_counts_as_nothing():
    recorder = Recorder()
    recorder.second(5)
    recorder.second(-5)
    recorder.second(2)
    assert recorder.read()[0] == [5.0, 0.0, 2.0]


def test_points_before_it_began_are_unknown():
    recorder = Recorder()
    recorder.second(1)
    assert recorder.read(first=-2) == [[None, None, 1.0], [None, None, 0]]
    idle = Recorder()
    idle.idle(2)
    assert idle.read(first=-1) == [[None, 0.0, 0.0], [None, 0, 0]]


def test_more_points_than_the_limit_are_forgotten():
    recorder = Recorder()
    for second in range(1000):
        recorder.second(second % 7 + 1)
    points = recorder.read(first=1000 - 300)[0]
    assert points == [second % 7 + 1.0 for second in range(700, 1000)]
    series = recorder.history.series[0]
    assert series.size <= 300 * 9 / 8
    recorder.history.sweep()
    assert series.size == 300


def test_a_long_pause_fills_no_memory_and_keeps_the_gauge():
    recorder = Recorder()
    recorder.second(1, 5)
    recorder.idle(400)
    assert recorder.history.sweep() > 0  # minutes and an hour
    assert recorder.history.series[0] is None
    assert recorder.read(first=350) == [[0.0] * 51, [5] * 51]
    recorder.second(3, 6)
    assert recorder.read(first=399) == [[0.0, 0.0, 3.0], [5, 5, 6]]
    recorder.idle(2 * 86_400)
    assert recorder.history.sweep() == 0
    assert recorder.history.series == [None] * 3


def test_rates_are_means_of_ten_seconds():
    recorder = Recorder()
    assert recorder.history.rate(0) is None  # nothing is known yet
    recorder.second(6)
    assert recorder.history.rate(0) == 6.0
    recorder.second(2)
    assert recorder.history.rate(0) == 4.0
    for _ in range(20):
        recorder.second(3)
    assert recorder.history.rate(0) == 3.0
    recorder.idle(5)
    assert recorder.history.rate(0) == 1.5
    recorder.idle(5)
    assert recorder.history.rate(0) == 0.0


def test_a_reader_during_a_round_sees_the_seconds_before_it():
    recorder = Recorder()
    for _ in range(10):
        recorder.second(2)
    recorder.memory.sampling += 1
    recorder.count += 50
    recorder.history.record(recorder.values())
    assert recorder.history.rate(0) == 2.0
    assert recorder.read()[0] == [2.0] * 10


def test_while_memory_is_short_the_oldest_minutes_go_first():
    memory = Recorder().memory
    memory.max_bytes = 1000
    memory.review(1001)
    assert memory.limits == [300, 360, 1080]
    for _ in range(100):
        memory.review(1001)
    assert memory.limits == [60] * 3
    for _ in range(100):
        memory.review(400)
    assert memory.limits == [points for _, points in RESOLUTIONS]


def test_trimmed_points_are_unknown_not_0():
    recorder = Recorder()
    for _ in range(200):
        recorder.second(1)
    recorder.memory.limits[0] = 100
    recorder.history.sweep()
    assert recorder.read()[0] == [None] * 100 + [1.0] * 100


def test_nothing_is_stored_beyond_the_memory_and_that_is_unknown():
    first = Recorder()
    second = Recorder(first.server)
    first.memory.max_bytes = 1
    first.second(1)
    assert first.memory.used > 1
    second.second(1)
    assert second.history.series == [None] * 3
    assert second.read()[0] == [None, None] and second.history.rate(0) is None


def test_used_memory_is_counted():
    recorder = Recorder()
    for second in range(4000):
        recorder.second(1, second)
    used = recorder.history.sweep()
    points = 300 + 360 + 4000 // 60
    assert used == pytest.approx(2 * 2 * points, abs=2200)
