"""A directory on any file system that Arrow knows: this machine's, or ``s3://``, ``gs://``, ``abfss://``, ``hdfs://``.

A folder is sent to Spark's executors, so it is no more than its address until it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyarrow import fs

from stompring.pipeline.object_store import SCHEME, Objects, S3Config, check_url

#: What a URL may begin with, beside ``file:``.
SCHEMES = (SCHEME, "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


class Entry(NamedTuple):
    """A file: its path below the folder, with slashes, and how large it is."""

    name: str
    size: int


def resolved(text: str) -> str:
    """A path made absolute, or a URL as it is (``s3a:`` as ``s3:``). Raises `ValueError` for what is neither."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    if "://" not in text:
        return str(Path(text).absolute())
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise ValueError(f"must be a local directory, or a URL that begins with file:, {known}, not {text!r}")
    if parts.scheme in (SCHEME, "s3a"):
        return check_url(text)
    return text.rstrip("/")


class Folder:
    """See the module. Methods raise `OSError`."""

    def __init__(self, where: str) -> None:
        """``where`` as `resolved` gives it."""
        self.where = where

    def __repr__(self) -> str:
        return f"Folder({self.where!r})"

    def __str__(self) -> str:
        return self.where

    def __getstate__(self) -> dict[str, str]:
        return {"where": self.where}

    @property
    def local(self) -> Path | None:
        """Where it is on this machine's disks, None where it is elsewhere."""
        return None if "://" in self.where else Path(self.where)

    @cached_property
    def _config(self) -> S3Config | None:
        if not self.where.startswith(f"{SCHEME}://"):
            return None
        return S3Config.of().in_region(self.where.partition("://")[2].partition("/")[0])

    @cached_property
    def objects(self) -> Objects | None:
        """The objects of it, where it is on S3. Arrow would write an empty one for each directory beside them."""
        return None if self._config is None else Objects(self.where, self._config)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What delta-rs needs to reach it, beside its URL."""
        return None if self._config is None else self._config.for_delta()

    @cached_property
    def _found(self) -> tuple[Any, str]:
        if self.local is not None:
            return fs.LocalFileSystem(), self.where
        if self._config is not None:
            return self._config.for_arrow(), self.where.partition("://")[2]
        system, path = fs.FileSystem.from_uri(self.where)
        return system, path

    @property
    def system(self) -> Any:
        """The file system of Arrow."""
        return self._found[0]

    def path(self, name: str = "") -> str:
        """The path of a file within that file system."""
        return f"{self._found[1]}/{name}" if name else self._found[1]

    def folder(self, name: str) -> Folder:
        """One within this one."""
        return Folder(f"{self.where}/{name}")

    def exists(self, name: str = "") -> bool:
        """Whether there is something of this name."""
        if self.objects is not None:
            return self.objects.head(name) is not None or any(self.objects.listed(name))
        return bool(self.system.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def is_directory(self) -> bool:
        """Whether there is such a directory. Object stores have one where there is something in it."""
        if self.objects is not None:
            return any(self.objects.listed())
        return bool(self.system.get_file_info(self.path()).type == fs.FileType.Directory)

    def entries(self, name: str = "", *, deep: bool = False) -> Iterator[Entry]:
        """The files in one directory below it, none where there is no such directory; ``deep``: and in all below."""
        if self.objects is not None:
            yield from (Entry(one.name, one.size) for one in self.objects.listed(name, deep=deep))
            return
        base = self.path(name)
        found = self.system.get_file_info(fs.FileSelector(base, recursive=deep, allow_not_found=True))
        for info in found:
            if info.type == fs.FileType.File:
                below = info.path[len(base) :].lstrip("/")
                yield Entry(f"{name}/{below}" if name else below, info.size)

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        if self.objects is not None:
            found = self.objects.head(name)
            return None if found is None else found.size
        info = self.system.get_file_info(self.path(name))
        return None if info.type == fs.FileType.NotFound else int(info.size)

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """A file from some byte on, to its end or so many bytes. Raises `FileNotFoundError` too."""
        if self.local is not None:
            with open(self.local / name, "rb") as file:
                file.seek(start)
                return file.read(size)
        if self.objects is not None:
            return self.objects.read_from(name, start, size)
        with self.system.open_input_file(self.path(name)) as remote:
            remote.seek(start)
            return bytes(remote.read(size))

    def write(self, name: str, data: bytes) -> None:
        """A whole file, in place of what there was: never half of it, and on this machine's disks when this returns."""
        if self.objects is not None:
            self.objects.write(name, data)
            return
        target = self.path(name)
        self.make_directory(name.rpartition("/")[0])
        if self.local is None:
            with self.system.open_output_stream(target) as remote:  # it appears whole, when it is closed
                remote.write(data)
            return
        os.replace(_draft(target, data), target)
        sync_directory(Path(target).parent)

    def create(self, name: str, data: bytes) -> None:
        """The same for a new file: of two processes that make it at once one does. Raises `FileExistsError`.

        Where there are neither links nor conditional writes, that is seen only if the other one was a little earlier.
        """
        if self.objects is not None:
            try:
                self.objects.create(name, data)
            except FileExistsError:
                if self.objects.read(name)[0] != data:  # else it was we, and the answer was lost on its way
                    raise
            return
        if self.local is None:
            if self.exists(name):
                raise FileExistsError(f"{self.where}/{name} was written by somebody else")
            self.write(name, data)
            return
        target = self.path(name)
        self.make_directory(name.rpartition("/")[0])
        draft = _draft(target, data)
        try:
            os.link(draft, target)
        except FileExistsError:
            raise FileExistsError(f"{target} was written by somebody else") from None
        except OSError:  # there are no links
            if os.path.exists(target):
                raise FileExistsError(f"{target} was written by somebody else") from None
            os.replace(draft, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
        sync_directory(Path(target).parent)

    def make_directory(self, name: str = "") -> None:
        """One, with those above it; object stores need none."""
        if self.objects is None:
            self.system.create_dir(self.path(name))

    def remove(self, name: str) -> None:
        """A file, if it is there."""
        if self.objects is not None:
            self.objects.remove(name)
        elif self.exists(name):
            self.system.delete_file(self.path(name))

    def remove_all(self, name: str) -> None:
        """A directory and all in it, if it is there."""
        if self.objects is not None:
            self.objects.remove(*(one.name for one in self.objects.listed(name)))
        elif self.exists(name):
            self.system.delete_dir(self.path(name))

    def sync(self, name: str) -> None:
        """Let what can be read of a file now be safe from a power cut; only files of this machine need that."""
        if self.local is not None:
            sync_file(self.local / name)


def _draft(target: str, data: bytes) -> str:
    """A file beside another one, with what that is going to have."""
    draft = f"{target}.{uuid4().hex}.new"
    with open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return draft


def sync_file(path: Path) -> None:
    """Let what can be read of a file be safe from a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Let the names in a directory be safe from a power cut."""
    sync_file(path)
