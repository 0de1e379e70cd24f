"""Directories of files: on this machine, on S3, and on other file systems of Arrow (``gs:``, ``hdfs:``).

Three libraries reach S3: delta-rs for the tables, Arrow for Parquet files, Hadoop's s3a for queries. `S3Config` is
read from the environment once and gives each of them the same endpoint, region and credentials. A `Folder` is sent to
Spark's executors, so it is no more than its address until it is used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyarrow import fs

#: The scheme of URLs as Arrow and delta-rs have it. Hadoop's ``s3a`` is taken for the same.
SCHEME = "s3"

#: The region of stores that have none.
REGION = "us-east-1"

#: Seconds: after that a request is given up, with its retries.
CONNECT_TIMEOUT, REQUEST_TIMEOUT, RETRY_TIMEOUT = 5, 60, 30

#: The libraries escape other characters of a URL each in its own way.
_URL = re.compile(r"s3://[A-Za-z0-9._-]+(?:/[A-Za-z0-9._=@+-]+)*")


class ObjectStoreError(OSError):
    """A store, or how it is to be reached, is wrong; the text says what to do."""


@dataclass(frozen=True)
class S3Config:
    """How a store is reached. Without keys each library looks for a role of the machine, as its SDK does."""

    endpoint: str | None
    region: str | None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str] = os.environ) -> S3Config:
        """From the variables of AWS, and behind them its files of profiles. Raises `ObjectStoreError`."""
        profile = _aws_profile(given)
        endpoint = _endpoint(
            given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL") or profile.get("endpoint_url")
        )
        keys = given if given.get("AWS_ACCESS_KEY_ID") or given.get("AWS_SECRET_ACCESS_KEY") else profile
        access, secret, token = (
            keys.get(name) or keys.get(name.lower()) or None
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        )
        if (access is None) != (secret is None):
            missing = "AWS_SECRET_ACCESS_KEY" if secret is None else "AWS_ACCESS_KEY_ID"
            raise ObjectStoreError(f"{missing} is not set: an S3 key has an id and a secret")
        region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or profile.get("region")
        region = region or (REGION if endpoint else None)
        virtual = given.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in ("1", "true")
        return cls(endpoint, region, access, secret, token, bool(endpoint) and not virtual)

    @property
    def allow_http(self) -> bool:
        """Whether it is reached without TLS: only where the endpoint says so."""
        return (self.endpoint or "").startswith("http:")

    def in_region(self, bucket: str) -> S3Config:
        """The same with a region: where none is given the store of AWS is asked where the bucket is."""
        return self if self.region else replace(self, region=_region_of(bucket))

    def environment(self) -> dict[str, str]:
        """As variables, for other processes."""
        found = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if self.path_style else "true",
        }
        return {name: value for name, value in found.items() if value}

    def for_delta(self) -> dict[str, str]:
        """Storage options of delta-rs. Commits are conditional writes: of two of one version one fails."""
        found = {name.lower(): value for name, value in self.environment().items()}
        found |= {
            "aws_conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(not self.path_style).lower(),
        }
        return found | {"aws_allow_http": "true"} if self.allow_http else found

    @lru_cache(maxsize=4)  # noqa: B019 - there is one configuration for each bucket
    def for_arrow(self) -> Any:
        """Arrow's file system."""
        scheme, _, host = (self.endpoint or "https://").partition("://")
        return fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            region=self.region,
            scheme=scheme,
            endpoint_override=host or None,
            force_virtual_addressing=not self.path_style,
            connect_timeout=CONNECT_TIMEOUT,
            request_timeout=REQUEST_TIMEOUT,
        )

    def for_hadoop(self) -> dict[str, str]:
        """Settings of Spark for ``s3a:``, and the variables for the processes of tasks."""
        provider = "Temporary" if self.session_token else "Simple"
        settings = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": str(self.path_style).lower(),
            "access.key": self.access_key,
            "secret.key": self.secret_key,
            "session.token": self.session_token,
            "connection.ssl.enabled": "false" if self.allow_http else None,
            "aws.credentials.provider": self.access_key
            and f"org.apache.hadoop.fs.s3a.{provider}AWSCredentialsProvider",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items() if value} | {
            f"spark.executorEnv.{name}": value for name, value in self.environment().items()
        }


def _endpoint(text: str | None) -> str | None:
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ObjectStoreError(
            f"AWS_ENDPOINT_URL must be http://HOST:PORT or https://HOST[:PORT], not {text!r}"
        )
    return text.rstrip("/")


def _aws_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """What AWS's two files say of the profile. Where they want more than keys, an SDK has to do that itself."""
    name = environment.get("AWS_PROFILE") or "default"
    home = Path(environment.get("HOME") or Path.home()) / ".aws"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(environment.get(variable) or home / file)
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (ConfigError, OSError, UnicodeDecodeError) as fault:
            raise ObjectStoreError(f"cannot read {path}: {str(fault).partition(chr(10))[0]}") from None
        if parser.has_section(section):
            found |= dict(parser.items(section))
    return found


@lru_cache(maxsize=8)
def _region_of(bucket: str) -> str:
    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError as fault:
        raise ObjectStoreError(
            f"AWS_REGION is not set and the region of bucket {bucket} is unknown: {fault}"
        ) from None


class Entry(NamedTuple):
    """A file: its path below the folder, with slashes, its size in bytes, and of an object the tag of its version."""

    name: str
    size: int
    tag: str = ""


class ObjectStore:
    """The objects below ``s3://BUCKET/PATH``. Methods raise `OSError`.

    A write is there whole or not at all, and what is written is listed from then on.
    """

    def __init__(self, url: str, config: S3Config) -> None:
        self.url = url
        bucket, _, self._prefix = url.removeprefix(f"{SCHEME}://").partition("/")
        self._store = _store(bucket, config)

    def _key(self, name: str) -> str:
        return "/".join(filter(None, (self._prefix, name)))

    def head(self, name: str) -> Entry | None:
        """An object, None where there is none of this name."""
        with suppress(FileNotFoundError), self._faults(name):
            found = self._store.head(self._key(name))
            return Entry(name, found["size"], str(found["e_tag"]))
        return None

    def listed(self, name: str = "", *, deep: bool = True) -> Iterator[Entry]:
        """The objects below a name, as below a directory; not ``deep``: without those in directories in it."""
        base = self._key(name)
        with self._faults(name):
            lists = self._store.list(base) if deep else [self._store.list_with_delimiter(base)["objects"]]
            for one in chain.from_iterable(lists):
                yield Entry(one["path"][len(self._prefix) :].lstrip("/"), one["size"])

    def read(self, name: str) -> tuple[bytes, str]:
        """An object, and the tag of its version. Raises `FileNotFoundError` too."""
        with self._faults(name):
            result = self._store.get(self._key(name))
            return bytes(result.bytes()), str(result.meta["e_tag"])

    def read_from(self, name: str, start: int, size: int | None) -> bytes:
        """Bytes of an object from one on, so many or all, nothing behind its end. Raises `FileNotFoundError` too."""
        if not start and size is None:
            return self.read(name)[0]
        found = self.head(name)
        if found is None:
            raise FileNotFoundError(f"{self.url}/{name} does not exist")
        end = found.size if size is None else min(start + size, found.size)
        if start >= end:
            return b""
        with self._faults(name):
            return bytes(self._store.get_range(self._key(name), start=start, end=end))

    def create(self, name: str, data: bytes) -> str:
        """A new one; its tag. Raises `FileExistsError`, then nothing is written."""
        return self.put(name, data, "create")

    def replace(self, name: str, data: bytes, tag: str) -> str:
        """In place of the version with a tag; the new tag. Raises `FileExistsError` where it is another one now."""
        return self.put(name, data, {"e_tag": tag})

    def put(self, name: str, data: bytes, mode: Any = "overwrite") -> str:
        """Write an object, by default in place of what there was; its tag."""
        with self._faults(name):
            return str(self._store.put(self._key(name), data, mode=mode)["e_tag"])

    def remove(self, *names: str) -> None:
        """Those of them that are there."""
        if names:
            with self._faults(names[0]):
                self._store.delete([self._key(name) for name in names])

    @contextmanager
    def _faults(self, name: str) -> Iterator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        location = f"{self.url}/{name}" if name else self.url
        try:
            yield
        except FileNotFoundError as fault:
            if "NoSuchBucket" in str(fault):
                raise ObjectStoreError(f"{location}: the bucket does not exist") from None
            raise FileNotFoundError(f"{location} does not exist") from None
        except (AlreadyExistsError, PreconditionError):
            raise FileExistsError(f"{location} was written by another process") from None
        except BaseError as fault:
            raise ObjectStoreError(f"{location}: {_store_message(str(fault))}") from None


def _store_message(text: str) -> str:
    """What a store answered, without the layers that passed it on."""
    code, message = (re.search(rf"<{tag}>([^<]*)</{tag}>", text) for tag in ("Code", "Message"))
    if code is not None:
        return f"{code[1]}: {message[1]}" if message is not None else code[1]
    first = text.partition("\n")[0]
    for mark in ("Generic S3 error: ", "Error performing "):
        first = first.replace(mark, "")
    if "error sending request" in first or "onnection" in first or "dns" in first:
        return f"cannot reach the object store (AWS_ENDPOINT_URL): {first}"
    return first


@lru_cache(maxsize=8)
def _store(bucket: str, config: S3Config) -> Any:
    from obstore.store import S3Store

    return S3Store(
        bucket,
        config=config.environment(),
        client_options={
            "allow_http": config.allow_http,
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT),
            "timeout": timedelta(seconds=REQUEST_TIMEOUT),
        },
        retry_config={"max_retries": 6, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT)},
    )


#: What a URL may begin with, beside ``file:``.
SCHEMES = (SCHEME, "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def local_path(text: str) -> str | None:
    """A path made absolute, or that of a ``file:`` URL; None for another URL."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return None if "://" in text else str(Path(text).absolute())


def resolve_location(text: str) -> str:
    """A path made absolute, or a URL as it is (``s3a:`` as ``s3:``). Raises `ValueError` for what is neither."""
    local = local_path(text)
    if local is not None:
        return local
    scheme = urlsplit(text).scheme
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}:" for each in SCHEMES)
        raise ValueError(f"must be a local directory, or a URL that begins with file:, {known}, not {text!r}")
    url = text.rstrip("/")
    if scheme not in (SCHEME, "s3a"):
        return url
    url = f"{SCHEME}://{url.partition('://')[2]}"
    if not _URL.fullmatch(url):
        raise ValueError(
            f"must be s3://BUCKET/PATH, with letters, digits and ._=@+- in the names, not {text!r}"
        )
    return url


@dataclass
class Folder:
    """See the module. ``where`` as `resolve_location` gives it. Methods raise `OSError`."""

    where: str

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
    def objects(self) -> ObjectStore | None:
        """The objects of it, where it is on S3. Arrow would write an empty one for each directory beside them."""
        return None if self._config is None else ObjectStore(self.where, self._config)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What delta-rs needs to reach it, beside its URL."""
        return None if self._config is None else self._config.for_delta()

    @cached_property
    def _found(self) -> tuple[Any, str]:
        if self._config is not None:
            return self._config.for_arrow(), self.where.partition("://")[2]
        found: tuple[Any, str] = fs.FileSystem.from_uri(self.where)
        return found

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
        return bool(self._info(name).type != fs.FileType.NotFound)

    def is_directory(self) -> bool:
        """Whether there is such a directory. Object stores have one where there is something in it."""
        if self.objects is not None:
            return any(self.objects.listed())
        return bool(self._info().type == fs.FileType.Directory)

    def _info(self, name: str = "") -> Any:
        """What the file system of Arrow has of a name."""
        return self.system.get_file_info(self.path(name))

    def entries(self, name: str = "", *, deep: bool = False) -> Iterator[Entry]:
        """The files in one directory below it, none where there is no such directory; ``deep``: and in all below."""
        if self.objects is not None:
            yield from self.objects.listed(name, deep=deep)
            return
        base = self.path(name)
        for info in self.system.get_file_info(fs.FileSelector(base, recursive=deep, allow_not_found=True)):
            if info.type == fs.FileType.File:
                below = info.path[len(base) :].lstrip("/")
                yield Entry(f"{name}/{below}" if name else below, info.size)

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        found = self._info(name) if self.objects is None else self.objects.head(name)
        return None if found is None else found.size

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

    def load(self, name: str) -> Any:
        """What a file of JSON has, None where there is no such file. Raises `ValueError` too."""
        try:
            return json.loads(self.read(name))
        except FileNotFoundError:
            return None

    def save(self, name: str, document: Any) -> None:
        """Write a file of JSON, as `write` does."""
        self.write(name, json.dumps(document, indent=1).encode())

    def write(self, name: str, data: bytes) -> None:
        """A whole file, in place of what there was: never half of it, and on this machine's disks when this returns."""
        if self.objects is not None:
            self.objects.put(name, data)
            return
        self.make_parent(name)
        if self.local is None:
            with self.system.open_output_stream(
                self.path(name)
            ) as remote:  # it appears whole, when it is closed
                remote.write(data)
            return
        replace_file(self.local / name, data)

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
        other = FileExistsError(f"{self.where}/{name} was written by another process")
        if self.local is None:
            if self.exists(name):
                raise other
            self.write(name, data)
            return
        target = self.local / name
        self.make_parent(name)
        with _draft_of(target, data) as draft:
            try:
                os.link(draft, target)
            except FileExistsError:
                raise other from None
            except OSError:  # there are no links
                if target.exists():
                    raise other from None
                os.replace(draft, target)
        sync_path(target.parent)

    def make_parent(self, name: str) -> None:
        """The directory of a file, with those above it; object stores need none."""
        if self.objects is None:
            self.system.create_dir(self.path(name.rpartition("/")[0]))

    def remove(self, name: str) -> None:
        """A file, if it is there."""
        if self.objects is not None:
            self.objects.remove(name)
        elif self.exists(name):
            self.system.delete_file(self.path(name))

    def remove_all(self, name: str = "") -> None:
        """A directory and all in it, if it is there."""
        if self.objects is not None:
            self.objects.remove(*(one.name for one in self.objects.listed(name)))
        elif self.exists(name):
            self.system.delete_dir(self.path(name))

    def sync(self, name: str) -> None:
        """Let what can be read of a file now be safe from a power cut; only files of this machine need that."""
        if self.local is not None:
            sync_path(self.local / name)


def replace_file(target: Path, data: bytes) -> None:
    """Write a whole file, in place of what there was. It is safe from a power cut when this returns."""
    with _draft_of(target, data) as draft:
        os.replace(draft, target)
    sync_path(target.parent)


@contextmanager
def _draft_of(target: Path, data: bytes) -> Iterator[Path]:
    """A file beside another one, with what that is going to have. It does not stay."""
    draft = target.with_name(f"{target.name}.{uuid4().hex}.new")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Let what can be read of a file, or the names in a directory, be safe from a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
