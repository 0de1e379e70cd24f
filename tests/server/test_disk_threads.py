"""The threads that wait for the disk."""

import sys
import threading

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.trial.unittest import TestCase

from stompring.server.disk import DiskThread, DiskThreads


class Inbox:
    """A reactor of which only `callFromThread` is there, and only when it is asked to deliver."""

    def __init__(self):
        self.calls = []
        self.came = threading.Event()

    def callFromThread(self, call, /, *arguments):
        self.calls.append((call, arguments))
        self.came.set()

    def deliver(self):
        assert self.came.wait(10)
        self.came.clear()
        calls, self.calls = self.calls, []
        for call, arguments in calls:
            call(*arguments)


class OneThread(TestCase):
    """`DiskThread` beside a reactor, and on its own."""

    def setUp(self):
        self.heard = []

    @inlineCallbacks
    def test_jobs_keep_their_order(self):
        thread = DiskThread(reactor, "disk")
        self.addCleanup(thread.stop)
        names = []
        done = Deferred()
        for number in range(100):
            thread.run(lambda n=number: names.append(threading.current_thread().name) or n, self.heard.append)
        thread.run(lambda: None, done.callback)
        assert self.heard == []
        yield done
        assert self.heard == list(range(100))
        assert set(names) == {"disk"}

    @inlineCallbacks
    def test_results_come_through_the_poll_of_the_reactor(self):
        self.patch(reactor, "callFromThread", lambda *arguments: self.fail("another iteration"))
        thread = DiskThread(reactor, "disk")
        done = Deferred()
        thread.run(lambda: None, done.callback)
        (reader,) = [each for each in reactor.getReaders() if each.logPrefix() == "disk"]
        yield done
        thread.stop()
        assert reader not in reactor.getReaders()
        assert reader.fileno() == -1

    @inlineCallbacks
    def test_what_a_job_raises_is_its_result(self):
        thread = DiskThread(reactor, "disk")
        self.addCleanup(thread.stop)
        done = Deferred()

        def fail():
            raise OSError(28, "full")

        thread.run(fail, done.callback)
        self.assertIsInstance((yield done), OSError)

    @inlineCallbacks
    def test_one_that_cannot_deal_with_its_result_is_not_in_the_way(self):
        thread = DiskThread(reactor, "disk")
        self.addCleanup(thread.stop)
        done = Deferred()

        def fail(result):
            raise ZeroDivisionError

        thread.run(lambda: 1, fail)
        thread.run(lambda: 2, done.callback)
        assert (yield done) == 2
        assert len(self.flushLoggedErrors(ZeroDivisionError)) == 1

    def test_finish_waits_without_a_reactor_that_turns(self):
        inbox = Inbox()
        thread = DiskThread(inbox, "disk")
        gate = threading.Event()
        thread.run(gate.wait, self.heard.append)
        thread.run(lambda: "second", lambda result: thread.run(lambda: "third", self.heard.append))
        threading.Timer(0.05, gate.set).start()
        thread.finish()
        assert self.heard == [True, "third"]
        inbox.deliver()  # the wake-up that nobody needs any more
        assert self.heard == [True, "third"]
        thread.stop()

    def test_many_results_cost_one_wake_up(self):
        inbox = Inbox()
        thread = DiskThread(inbox, "disk")
        gate = threading.Event()
        thread.run(lambda: 0, self.heard.append)
        assert inbox.came.wait(10)
        for number in range(1, 50):
            thread.run(lambda n=number: n, self.heard.append)
        thread.run(gate.set, self.heard.append)
        assert gate.wait(10)
        while thread._results.qsize() < 51:  # the last one is on its way
            pass
        assert len(inbox.calls) == 1
        inbox.deliver()
        assert self.heard == [*range(50), None]
        thread.run(lambda: "later", self.heard.append)
        inbox.deliver()
        assert self.heard[-1] == "later"
        thread.stop()

    def test_one_that_was_never_used_stops_too(self):
        DiskThread(Inbox(), "disk").stop()


class BothThreads(TestCase):
    """`DiskPool`."""

    def setUp(self):
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())

    def test_who_comes_back_from_the_disk_waits_less_than_a_sync(self):
        sys.setswitchinterval(0.005)
        DiskThreads(Inbox())
        assert sys.getswitchinterval() < 0.001

    def test_reading_does_not_wait_for_writing(self):
        inbox = Inbox()
        pool = DiskThreads(inbox)
        gate = threading.Event()
        heard = []
        pool.writing.run(gate.wait, heard.append)
        pool.reading.run(lambda: "read", heard.append)
        inbox.deliver()
        assert heard == ["read"]
        gate.set()
        pool.stop()
        assert heard == ["read", True]
