"""A data directory that grows as a broker lets it, one step after the other, and what was written to it."""

import json
import os
from array import array

from stompring.pipeline.files import DataFiles
from stompring.pipeline.storage import Folder
from stompring.store.record import BINDING, NOTE, Kind, framed
from stompring.store.segment import JOURNAL, PAGE, Footer, SegmentScan, pack_header

#: Folders, and how their files end. Pages of all addresses have numbers of one row.
FOLDERS = {"journal": "journal", "paging/1": "page", "paging/2": "page"}


class File:
    """One that is written, and the ids of its records."""

    def __init__(self, folder, number):
        self.folder = folder
        self.number = number
        self.name = f"{folder}/{number:09d}.{FOLDERS[folder]}"
        self.data = bytearray(pack_header(JOURNAL if folder == "journal" else PAGE, 1, 1))
        self.starts = array("I")
        self.ids = []
        self.half = b""  # what is still to come of a record
        self.sealed = self.deleted = False

    @property
    def tail(self):
        """Footer and trailer."""
        return Footer(self.starts).ending(bytes(self.data))


class GrowingDirectory:
    """The directory. Its steps are named, and take no more than a folder of `FOLDERS`."""

    def __init__(self, root):
        self.root = root
        self.files = {folder: [] for folder in FOLDERS}
        self._next = 0
        self._page = 0

    def do(self, step, folder):
        """Any of the steps, where it can be done now."""
        getattr(self, step)(folder)

    def _path(self, file):
        kept = self.root / "retention" / file.name
        return kept if kept.exists() else self.root / file.name

    def _write(self, file, data, *, last=False):
        """A segment of the journal ends with zeros until it is sealed."""
        path = self._path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        file.data += data
        zeros = 0 if last or file.folder != "journal" else 64 + self._next * 97 % 300
        path.write_bytes(file.data + bytes(zeros))

    def append(self, folder, torn=False):
        """A record, or the first part of one; what was left of the last one before."""
        if not self.files[folder] or self.files[folder][-1].sealed or self.files[folder][-1].deleted:
            self.begin(folder)
        file = self.files[folder][-1]
        self._complete(file)
        self._next += 1
        file.starts.append(len(file.data))
        about = json.dumps({"record": self._next, "filled": "x" * (self._next * 37 % 200)}).encode()
        record = framed(BINDING.pack(Kind.BINDING, NOTE, 0, 0, self._next) + about)
        cut = self._next * 13 % len(record) if torn else len(record)
        self._write(file, record[:cut])
        file.half = record[cut:]
        file.ids.append(self._next)

    def tear(self, folder):
        """The first part of a record."""
        self.append(folder, torn=True)

    def _complete(self, file):
        if file.half:
            rest, file.half = file.half, b""
            self._write(file, rest)

    def begin(self, folder):
        """The next file. One of the journal is sealed before that; a page has all its records then."""
        files = self.files[folder]
        if files and not files[-1].sealed:
            self._complete(files[-1])
            if folder == "journal":
                self._seal(files[-1])
        self._page += folder != "journal"
        file = File(folder, len(files) + 1 if folder == "journal" else self._page)
        head, file.data = bytes(file.data), bytearray()
        files.append(file)
        self._write(file, head)

    def seal(self, folder):
        """The first page that another one came after."""
        for file in self.files[folder][:-1]:
            if not file.sealed and not file.deleted:
                self._seal(file)
                return

    def _seal(self, file):
        self._write(file, file.tail, last=True)
        file.sealed = True

    def retire(self, folder):
        """The first file that is sealed goes to where files are kept."""
        for file in self.files[folder][:-1]:
            path = self.root / file.name
            if file.sealed and path.exists():
                target = self.root / "retention" / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(path, target)
                return

    def delete(self, folder):
        """The first file that is sealed."""
        for file in self.files[folder][:-1]:
            if file.sealed and not file.deleted:
                self._path(file).unlink()
                file.deleted = True
                return

    def finish(self):
        """Nothing is left half written."""
        for files in self.files.values():
            for file in files[-1:]:
                self._complete(file)

    def ids(self, folder):
        """All records, deleted ones too."""
        return [each for file in self.files[folder] for each in file.ids]


def records(data, one):
    """The ids of a range."""
    scan = SegmentScan(data if one.stop < 0 else data[: one.stop])
    begins = [begin for begin, _ in scan if begin > one.start]
    assert not scan.faults
    return [BINDING.unpack_from(data, begin)[4] for begin in begins if data[begin] == Kind.BINDING]


class InterferingFolder(Folder):
    """A directory to which something happens whenever it is looked at."""

    def __init__(self, where, world, steps):
        super().__init__(where)
        self.world, self.steps = world, steps

    def _meddle(self):
        for step in self.steps:
            self.world.do(*step)
            break

    def entries(self, name="", *, deep=False):
        """Between two directories."""
        self._meddle()
        yield from super().entries(name, deep=deep)
        self._meddle()

    def size(self, name):
        """Before a size is asked for, and after."""
        self._meddle()
        found = super().size(name)
        self._meddle()
        return found

    def read(self, name, start=0, size=None):
        """Before a file is read."""
        self._meddle()
        return super().read(name, start, size)

    def sync(self, name):
        """Nobody cuts the power: that is quicker."""
        self._meddle()
        if not self.exists(name):
            raise FileNotFoundError(name)


def interfering_files(world, steps):
    """Its files, with steps that are done while one looks."""
    files = DataFiles(str(world.root))
    for name in ("root", "retention"):
        setattr(files, name, InterferingFolder(getattr(files, name).where, world, steps))
    return files
