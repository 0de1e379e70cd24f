"""Real files, one operation on which does not go well."""

import errno
import os

from stompring.store.files import Files


def _guarded(name):
    """A method that does what `Files` does, unless it is to fail."""

    def call(files, path, *more):
        if files.due(name, path):
            raise files.fault(path)
        return getattr(Files, name)(files, path, *more)

    return call


class FaultyFiles(Files):
    """Counts what it is asked to do; at number ``at`` it fails, and where ``lasting`` from then on until `heal`.

    ``short``: a write takes a part of its bytes before it fails. Nothing is really synced: the tests do not cut power.
    """

    def __init__(self, at=-1, number=errno.EIO, *, lasting=False, short=False):
        self.at = at
        self.number = number
        self.lasting = lasting
        self.short = short
        self.operations = []
        self.failed = []

    def heal(self):
        """The disk is well again."""
        self.at = -1

    def due(self, operation, path):
        self.operations.append(operation)
        count = len(self.operations) - 1
        if self.at < 0 or not (count >= self.at if self.lasting else count == self.at):
            return False
        self.failed.append(f"{operation} {path}")
        return True

    def fault(self, path):
        return OSError(self.number, os.strerror(self.number), str(path))

    def write(self, descriptor, data, at):
        if self.due("write", descriptor):
            if self.short and len(data) > 1:
                os.pwrite(descriptor, data[: len(data) // 2], at)
            raise self.fault(descriptor)
        return super().write(descriptor, data, at)

    def sync(self, descriptor):
        if self.due("sync", descriptor):
            raise self.fault(descriptor)

    def sync_directory(self, path):
        if self.due("sync_directory", path):
            raise self.fault(path)

    def truncate(self, path, size):
        if self.due("truncate", path):
            raise self.fault(path)
        os.truncate(path, size)

    open = _guarded("open")
    remove = _guarded("remove")
    rename = _guarded("rename")
    make_directory = _guarded("make_directory")
    remove_directory = _guarded("remove_directory")
    replace = _guarded("replace")
