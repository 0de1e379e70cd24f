"""``configuration-file-refresh-period``: changed files are found and reloaded once each."""

import os

import pytest
from twisted.internet.task import Clock

from stompring.server.reload import ConfigurationWatch


class Reactor(Clock):
    """A clock whose threads have done their work at once, or when `release` is called."""

    def __init__(self):
        super().__init__()
        self.held = None

    def getThreadPool(self):
        return self

    def callFromThread(self, call, *arguments):
        call(*arguments)

    def callInThreadWithCallback(self, done, call, *arguments, **named):
        def run():
            done(True, call(*arguments, **named))

        run() if self.held is None else self.held.append(run)

    def release(self):
        held, self.held = self.held or [], None
        for run in held:
            run()


class Watched:
    """A watch of two files; ``period`` in ms."""

    def __init__(self, folder, period=1000):
        self.reactor = Reactor()
        self.files = [folder / "broker.xml", folder / "part.xml"]
        for file in self.files:
            file.write_text("1")
        self.reloads = 0
        self.watch = ConfigurationWatch(map(str, self.files), period, self.reload, self.reactor)

    def reload(self):
        self.reloads += 1

    def change(self, number=0):
        before = self.files[number].stat()
        self.files[number].write_text("2")
        os.utime(self.files[number], ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))

    def pass_periods(self, count=3):
        self.reactor.pump([1.0] * count)
        return self.reloads


@pytest.fixture
def watched(tmp_path):
    watched = Watched(tmp_path)
    watched.watch.start()
    return watched


def test_unchanged_files_are_not_reloaded(watched):
    assert watched.pass_periods() == 0 and watched.reactor.getDelayedCalls()


@pytest.mark.parametrize("number", [0, 1])
def test_a_changed_file_is_reloaded_once(watched, number):
    watched.change(number)
    assert watched.pass_periods() == 1
    watched.change(number)
    assert watched.pass_periods() == 2


def test_a_change_between_reading_and_start_is_found(tmp_path):
    watched = Watched(tmp_path)
    watched.change()
    watched.watch.start()
    assert watched.pass_periods() == 1


def test_a_removed_file_is_reloaded_once_and_again_when_it_is_back(watched):
    text = watched.files[1].read_text()
    watched.files[1].unlink()
    assert watched.pass_periods() == 1
    watched.files[1].write_text(text)
    assert watched.pass_periods() == 2


@pytest.mark.parametrize("period", [-1, 0])
def test_without_a_period_nothing_is_checked_until_a_reload_sets_one(tmp_path, period):
    watched = Watched(tmp_path, period)
    watched.watch.start()
    assert not watched.reactor.getDelayedCalls()
    before = watched.watch.current()
    watched.change()
    watched.watch.use(map(str, watched.files), 1000, before)
    assert watched.pass_periods() == 1, "what changed while the files were read is not missed"
    watched.watch.use(map(str, watched.files), -1, watched.watch.current())
    assert not watched.reactor.getDelayedCalls()


def test_files_that_a_reload_adds_are_watched_and_others_are_forgotten(watched, tmp_path):
    new = tmp_path / "new.xml"
    new.write_text("1")
    watched.watch.use([str(watched.files[0]), str(new)], 1000, watched.watch.current())
    watched.change(1)
    assert watched.pass_periods() == 0
    new.write_text("22")
    assert watched.pass_periods() == 1


def test_a_reload_during_a_check_is_not_repeated(watched):
    watched.reactor.held = []
    watched.change()
    watched.reactor.advance(1)
    watched.watch.use(map(str, watched.files), 1000, watched.watch.current())
    watched.reactor.release()
    assert watched.pass_periods() == 0


def test_a_stopped_watch_does_nothing(watched):
    watched.change()
    watched.reactor.held = []
    watched.reactor.advance(1)
    watched.watch.stop()
    watched.reactor.release()
    assert watched.pass_periods() == 0 and not watched.reactor.getDelayedCalls()
