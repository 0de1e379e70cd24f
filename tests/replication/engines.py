"""What the tests of all engines of the log say and ask."""

from stompring.replication.log import FileChange, LogUnavailable, Operation

from ..waiting import Deadline

CLAIM = FileChange(Operation.CLAIM, data=b"{}")

#: Seconds that a cluster may take to elect leaders, on a busy machine too.
PATIENCE = 90.0


def retried(call, *arguments):
    """What the engine answers, once it can."""
    deadline = Deadline(PATIENCE)
    while True:
        try:
            return call(*arguments)
        except LogUnavailable:
            assert not deadline.passed()
            deadline.pause()


def append(log, *changes):
    """Append, and try again while the engine does not answer, as the disk thread does."""
    try:
        return log.append(changes)
    except LogUnavailable:
        return int(retried(log.append, ()))


def read_all(log):
    """All entries, once the engine answers."""
    entries = []
    while found := retried(log.read, entries[-1].sequence if entries else 0, 0):
        entries += found
    return entries
