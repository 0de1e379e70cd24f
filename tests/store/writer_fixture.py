"""A writer with its disk, which is told when to work, and its files, which are in memory."""

from pathlib import Path

from twisted.internet.task import Clock as FakeReactor

from stompring.broker.clock import Clock
from stompring.store.files import Files
from stompring.store.writer import Writer

from .disk import ManualDisk
from .memory_files import MemoryFiles

PAGE, JOURNAL = Path("/data/1.page"), Path("/data/1.journal")


class WriterFixture:
    """A writer, its disk and its files."""

    def __init__(self, delay=0.0):
        self.reactor = FakeReactor()
        self.files = MemoryFiles()
        self.hand = ManualDisk()
        self.writer = Writer(self.hand, Clock(self.reactor), self.files, delay)
        self.page = self.writer.open(PAGE)
        self.journal = self.writer.open(JOURNAL, journal=True)
        self.heard = []

    def hear(self, word):
        return lambda: self.heard.append(word)

    def turn(self, seconds=0):
        self.reactor.advance(seconds)

    def write(self, data=b"", seconds=0):
        """A turn, in which something may be appended to the journal, and the disk's work."""
        if data:
            self.journal.append(data)
        self.turn(seconds)
        self.hand.step()

    def retry(self):
        """The next try of what has failed."""
        self.write(seconds=Files.retry_interval)

    def data(self, path):
        return self.files.data.get(path, b"")
