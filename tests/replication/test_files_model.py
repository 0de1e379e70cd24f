"""Random changes of files through a replicated log that fails: the local copy, a follower and a rebuild are equal to
a directory that plain files have written.
"""

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stompring.replication.copy import LocalCopy
from stompring.replication.log import MAX_ENTRY_DATA
from stompring.store.files import Files

from ..property.profile import examples
from .directories import ActiveBroker, contents, data_directory, follow, rebuilt
from .memory_log import DELAYED, FULL, LOST, UNANSWERED, MemoryEngine, MemoryLog

NAMES = st.sampled_from(
    [
        "journal/1.journal",
        "journal/2.journal",
        "paging/1/1.page",
        "paging/1/2.page",
        "paging/2/1.page",
        "identity",
    ]
)
SIZES = st.sampled_from([0, 1, 7, 100, 1000, MAX_ENTRY_DATA - 1, MAX_ENTRY_DATA, 2 * MAX_ENTRY_DATA + 5])
FAULTS = st.lists(st.sampled_from([None, None, None, LOST, UNANSWERED, DELAYED, FULL]), max_size=4)


def _data(size, byte):
    return bytes([byte]) * size


def _task(kind, name, other, size, byte):
    def move(files, root):
        if name != "identity":
            files.move(root / name, root / "retention" / name)

    def remove_directory(files, root):
        files.remove_directory(root / "paging/1")

    def rename(files, root):
        if name != "identity":
            files.rename(root / name, (root / name).with_name(Path(other).name))

    tasks = {
        "remove": lambda files, root: files.remove(root / name),
        "rename": rename,
        "replace": lambda files, root: files.replace(root / name, _data(size, byte)),
        "truncate": lambda files, root: files.truncate(root / name, size // 2),
        "move": move,
        "expire": lambda files, root: files.remove(root / "retention" / name),
        "remove directory": remove_directory,
        "read": lambda files, root: files.read(root / name),
        "names": lambda files, root: files.names((root / name).parent) if name != "identity" else None,
        "size": lambda files, root: files.size(root / name),
        "open": lambda files, root: files.close(files.open(root / name)),
    }
    return tasks[kind]


TASKS = st.builds(
    _task,
    st.sampled_from(
        [
            "remove", "remove", "rename", "replace", "truncate", "move", "expire", "remove directory",
            "read", "names", "size", "open",
        ]
    ),
    NAMES,
    NAMES,
    SIZES,
    st.integers(1, 255),
)  # fmt: skip

WRITES = st.tuples(NAMES, st.integers(0, 3000), st.lists(SIZES, min_size=1, max_size=3), st.integers(1, 255))

BATCHES = st.lists(
    st.tuples(
        st.lists(TASKS, max_size=3),
        st.lists(WRITES, max_size=3),
        FAULTS,
        st.sampled_from(["", "", "follow", "follow a bit", "trim", "restart follower", "alone", "restart"]),
    ),
    min_size=1,
    max_size=12,
)


def _result(task, files, root):
    """What a task returns, or which of its own faults it raises."""
    try:
        return task(files, root)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as fault:
        return type(fault)


def _write(files, root, write):
    name, at, sizes, byte = write
    descriptor = files.open(root / name)
    for size in sizes:
        assert files.write(descriptor, memoryview(_data(size, byte)), at) == size or not size
        at += size
    files.sync(descriptor)
    files.close(descriptor)


class Pair:
    """The same changes for an active broker and for plain files; ``follower`` reads the log."""

    def __init__(self, root):
        self.root = root
        self.engine = MemoryEngine()
        self.plain = root / "plain"
        self.active = ActiveBroker(self.engine, root / "active")
        self.log = MemoryLog(self.engine)
        self.log.connect()
        self.follower = LocalCopy(data_directory(root / "follower"), boot_id="boot")
        self.follower.open(self.log)

    def batch(self, tasks, writes, faults):
        """As `WriteBatch.write`, until it succeeds."""
        expected = [_result(task, Files(), self.plain) for task in tasks]
        for write in writes:
            _write(Files(), self.plain, write)
        results = []
        self.active.log.faults.extend(faults)
        for _ in range(len(faults) + 2):
            if self._try(tasks, writes, results):
                break
            self.engine.deliver_delayed()
        else:
            raise AssertionError("never written")
        assert results == expected
        self.active.log.faults.clear()

    def _try(self, tasks, writes, results):
        files, done = self.active.files, True
        files.begin_batch()
        try:
            while len(results) < len(tasks):
                results.append(_result(tasks[len(results)], files, self.active.root))
            for write in writes:
                _write(files, self.active.root, write)
        except OSError:
            done = False
        try:
            files.flush()
        except OSError:
            done = False
        return done

    def alone(self, tasks):
        """Changes outside a batch, as during start."""
        for task in tasks:
            assert _result(task, self.active.files, self.active.root) == _result(task, Files(), self.plain)

    def close(self):
        """Close all files."""
        self.active.copy.close_files()
        self.follower.close_files()

    def step(self, what):
        if what == "follow":
            follow(self.follower, self.log)
        elif what == "follow a bit":
            follow(self.follower, self.log, most=2)
        elif what == "trim":
            while self.active.files.trim():
                pass
        elif what == "restart follower":  # killed: the marker lags
            self.follower.close_files()
            self.follower = LocalCopy(self.follower.directory, boot_id="boot")
            self.follower.open(self.log)
        elif what == "restart":
            self.active.copy.close(clean=False)
            self.active = ActiveBroker(self.engine, self.root / "active")


@given(BATCHES)
@settings(examples(30), report_multiple_bugs=False, phases=[Phase.explicit, Phase.generate])
def test_copy_follower_and_rebuild_are_equal_to_plain_files(batches):
    with TemporaryDirectory() as name, closing(Pair(Path(name))) as pair:
        for tasks, writes, faults, then in batches:
            if then == "alone":
                pair.alone(tasks)
            else:
                pair.batch(tasks, writes, faults)
                pair.step(then)
            assert contents(pair.active.root, retention=True) == contents(pair.plain, retention=True)
        expected = contents(pair.plain)
        follow(pair.follower, pair.log)
        assert pair.follower.missing == 0
        assert contents(pair.follower.directory.root) == expected
        assert rebuilt(pair.engine, pair.root / "rebuilt") == expected
        assert not pair.active.lost
