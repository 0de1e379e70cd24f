"""A file system in memory, in which a computer may crash and a disk may fail."""

import errno
import os

from stompring.store.files import Files


class Content:
    """One file: all that was written, and what of that would survive a crash of the computer."""

    def __init__(self, data=b""):
        self.data = bytearray(data)
        self.safe = bytes(data)
        self.writes = []  # since the last sync

    def write(self, data, at):
        if at > len(self.data):
            self.data += bytes(at - len(self.data))
        self.data[at : at + len(data)] = data
        self.writes.append((at, bytes(data)))

    def sync(self):
        self.safe = bytes(self.data)
        self.writes.clear()

    def after_crash(self, random):
        """What was safe, and any part of what was not: whole writes, torn ones, and holes full of zeros."""
        data = bytearray(self.safe)
        for at, written in self.writes:
            part = written[: random.choice((0, random.randrange(len(written) + 1), len(written)))]
            if part:
                data += bytes(max(0, at - len(data)))
                data[at : at + len(part)] = part
        return bytes(data)


class MemoryFiles(Files):
    """All files by path. ``fault`` is asked before each operation, by its name and path, and may raise."""

    def __init__(self, contents=None):
        self.contents = {path: Content(data) for path, data in (contents or {}).items()}
        self.fault = lambda operation, path: None
        self.most_per_write = None  # bytes that one write takes
        self.operations = []  # with names of files
        self._descriptors = {}
        self._next = 100

    def fail(self, operations="", ending="", make=None):
        """From now on these operations fail, or all, on files whose path ends so."""

        def fault(operation, path):
            if operation in (operations.split() or [operation]) and str(path).endswith(ending):
                raise (make or broken)(path)

        self.fault = fault

    def heal(self):
        """Nothing fails any more."""
        self.fault = lambda operation, path: None

    def _begin(self, operation, path):
        self.operations.append((operation, path.name))
        self.fault(operation, path)

    def _content(self, path):
        content = self.contents.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return content

    def crash(self, random):
        """The file system as it is after the computer has crashed now."""
        return MemoryFiles({path: content.after_crash(random) for path, content in self.contents.items()})

    def kill(self):
        """The file system after only the process has died: what was written is there."""
        return MemoryFiles({path: bytes(content.data) for path, content in self.contents.items()})

    def crash_free(self, path):
        """What of a file would be there after any crash."""
        return self.contents[path].safe if path in self.contents else b""

    @property
    def data(self):
        """The bytes of all files."""
        return {path: bytes(content.data) for path, content in self.contents.items()}

    # ---- see Files

    def open(self, path):
        self._begin("open", path)
        self.contents.setdefault(path, Content())
        self._next += 1
        self._descriptors[self._next] = path
        return self._next

    def write(self, descriptor, data, at):
        path = self._descriptors[descriptor]
        self._begin("write", path)
        taken = bytes(data)[: self.most_per_write]
        self._content(path).write(taken, at)
        return len(taken)

    def sync(self, descriptor):
        path = self._descriptors[descriptor]
        self._begin("sync", path)
        self._content(path).sync()

    def close(self, descriptor):
        del self._descriptors[descriptor]

    def truncate(self, path, size):
        self._begin("truncate", path)
        content = self._content(path)
        del content.data[size:]
        content.sync()

    def remove(self, path):
        self._begin("remove", path)
        self.contents.pop(path, None)

    def rename(self, path, target):
        self._begin("rename", path)
        self.contents[target] = self._content(path)
        del self.contents[path]

    def move(self, path, target):
        self._begin("move", path)
        if path in self.contents:
            self.contents[target] = self.contents.pop(path)

    def status(self, path):
        return len(self._content(path).data), 0

    def make_directory(self, path):
        self._begin("make_directory", path)

    def remove_directory(self, path):
        self._begin("remove_directory", path)
        for below in [other for other in self.contents if other.is_relative_to(path)]:
            del self.contents[below]

    def sync_directory(self, path):
        self._begin("sync_directory", path)

    def names(self, path):
        below = {other.relative_to(path).parts[0] for other in self.contents if other.is_relative_to(path)}
        return sorted(below)

    def size(self, path):
        return len(self._content(path).data)

    def read(self, path, start=0, stop=-1):
        self._begin("read", path)
        data = bytes(self._content(path).data)
        return data[start:] if stop < 0 else data[start:stop]

    def replace(self, path, data):
        self._begin("replace", path)
        self.contents[path] = Content(data)

    @property
    def open_files(self):
        """Descriptors that are not closed."""
        return len(self._descriptors)


def out_of_space(path):
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def broken(path):
    return OSError(errno.EIO, os.strerror(errno.EIO), str(path))
