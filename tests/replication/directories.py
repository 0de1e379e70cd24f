"""Data directories of tests: what is in them, and brokers that have one."""

from itertools import count

from stompring.replication.copy import LocalCopy
from stompring.replication.files import ReplicatedFiles
from stompring.replication.log import Beat, FileChange, LogEntry, Operation, encode_beat
from stompring.settings.machine import DataDirectory

from .memory_log import MemoryLog

_writers = count(1)

#: Steps of a loop at most: an endless loop fails.
MOST_STEPS = 1000


def data_directory(root, *, retention=True):
    return DataDirectory(root, root / "journal", root / "paging", root / "retention" if retention else None)


def contents(root, *, retention=False):
    """All files that the log keeps, byte for byte; those retained too, where asked for."""
    wanted = ["journal", "paging", *(["retention"] if retention else [])]
    paths = [path for name in wanted for path in (root / name).rglob("*") if path.is_file()]
    paths += [path for path in (root / "identity", root / "schema-version") if path.exists()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


class ActiveBroker:
    """One that has claimed the log and writes to it. ``lost`` has the reason why it must not any more."""

    def __init__(self, engine, root, *, retention=True):
        self.engine = engine
        self.root = root
        self.directory = data_directory(root, retention=retention)
        self.log = MemoryLog(engine)
        self.log.connect()
        self.copy = LocalCopy(self.directory, boot_id="boot")
        self.copy.open(self.log)
        follow(self.copy, self.log)
        writer = next(_writers)
        claim = FileChange(Operation.CLAIM, data=encode_beat(Beat("active", contents=self.copy.summary)))
        claimed = self.log.claim(writer, self.copy.sequence, claim)
        assert claimed is not None
        self.copy.apply([LogEntry(claimed, 0, writer, 0, claim)])
        self.lost = []
        self.files = ReplicatedFiles(self.log, self.copy, self.lost.append, patience=0)

    def beat(self):
        """Say what is in the log. Nothing waits to be stored."""
        beat = FileChange(Operation.BEAT, data=encode_beat(Beat("active", contents=self.copy.summary)))
        self.log.append([beat])

    @property
    def contents(self):
        return contents(self.root)

    def write(self, name, data, at=0):
        descriptor = self.files.open(self.root / name)
        self.files.write(descriptor, data, at)
        self.files.close(descriptor)

    def replace(self, name, data):
        self.files.replace(self.root / name, data)

    def remove(self, name):
        self.files.remove(self.root / name)

    def operations(self, name):
        """What the log has of a file."""
        found = [entry.change for entry in self.engine.entries()]
        return [change.operation for change in found if change.path == name]

    def lose(self, name, which=slice(None)):
        """The log loses entries of a file that it had confirmed."""
        self.engine.lose(self.engine.under(name)[which])

    def follower(self, name):
        """The copy of a standby, beside this one's directory."""
        copy = LocalCopy(data_directory(self.root.parent / name), boot_id="boot")
        copy.open(self.log)
        follow(copy, self.log)
        return copy

    def rebuild(self, name):
        """The copy of a broker that begins with nothing, closed, beside this one's directory."""
        return rebuild(self.engine, self.root.parent / name)

    def rebuilt(self):
        """The directory of a broker that begins with nothing; nothing is missing."""
        return rebuilt(self.engine, self.root.parent / f"rebuilt{next(_writers)}")

    def check(self, everything=False):
        """Compare the log with the files until nothing is left to do."""
        for step in (lambda: self.files.check(everything), lambda: not self.files.trim()):
            for _ in range(MOST_STEPS):
                if step():
                    break
            else:
                raise AssertionError(f"not at the end after {MOST_STEPS} steps")


def follow(copy, log, *, most=None):
    """Apply what the log has, at most so many entries."""
    for _ in range(MOST_STEPS):
        if not (entries := log.read(copy.sequence, 0)):
            return
        copy.apply(entries[:most])
        if most is not None:
            return
    raise AssertionError(f"not at the end of the log after {MOST_STEPS} steps")


def rebuild(engine, root):
    """The copy of a broker that begins with nothing, closed."""
    log, copy = MemoryLog(engine), LocalCopy(data_directory(root), boot_id="boot")
    log.connect()
    copy.open(log)
    follow(copy, log)
    copy.close(clean=False)
    return copy


def rebuilt(engine, root):
    """The directory of a broker that begins with nothing; nothing is missing."""
    assert rebuild(engine, root).missing == 0
    return contents(root)
