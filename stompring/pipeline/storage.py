"""Directories of files: on this machine, on S3, and on other file systems of Arrow (``gs:``, ``hdfs:``).

Three libraries access S3: delta-rs for the tables, Arrow for Parquet files, Hadoop's s3a for queries. `S3Config` reads
endpoint, region and credentials from the environment, for all of them. Spark sends a `Folder` to its executors, so only
the address of a folder is pickled.
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

#: The URL scheme of S3 in Arrow and delta-rs. Hadoop's ``s3a`` is accepted as an alias.
SCHEME = "s3"

#: The default region if an endpoint is set: most object stores with an own endpoint have no regions.
REGION = "us-east-1"

#: Timeouts in seconds: connecting, one request, and a request with its retries.
CONNECT_TIMEOUT, REQUEST_TIMEOUT, RETRY_TIMEOUT = 5, 60, 30

#: Accepted URLs. Other characters are refused, because each library escapes them in another way.
_URL = re.compile(r"s3://[A-Za-z0-9._-]+(?:/[A-Za-z0-9._=@+-]+)*")


class ObjectStoreError(OSError):
    """An object store cannot be used, or its settings are wrong. The text names the setting or the object."""


@dataclass(frozen=True)
class S3Config:
    """Endpoint, region and credentials of S3. Without keys each library uses the machine's role, as AWS's SDKs do."""

    endpoint: str | None
    region: str | None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str] = os.environ) -> S3Config:
        """Read the ``AWS_`` variables, and AWS's profile files for variables that are not set. Raises
        `ObjectStoreError`."""
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
        """Whether the endpoint is a URL without TLS."""
        return (self.endpoint or "").startswith("http:")

    def in_region(self, bucket: str) -> S3Config:
        """Return the configuration with a region. If it has none, request the region of ``bucket`` from AWS."""
        return self if self.region else replace(self, region=_region_of(bucket))

    def environment(self) -> dict[str, str]:
        """Return the configuration as environment variables of AWS, for other processes."""
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
        """Return the storage options of delta-rs. With these options commits are conditional: if two writers commit the
        same version of a table, the second one fails.
        """
        found = {name.lower(): value for name, value in self.environment().items()}
        found |= {
            "aws_conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(not self.path_style).lower(),
        }
        return found | {"aws_allow_http": "true"} if self.allow_http else found

    @lru_cache(maxsize=4)  # noqa: B019 - there is one configuration for each bucket
    def for_arrow(self) -> Any:
        """Return Arrow's file system for S3."""
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
        """Return Spark's settings for ``s3a:``, and for the environment of its executors."""
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
    """Return the settings of the profile from AWS's two files. If the profile has no keys but a role, for example, the
    libraries resolve it themselves."""
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
    """A file: its path below the folder, with slashes, its size in bytes, and its version tag if it is an object."""

    name: str
    size: int
    tag: str = ""


class ObjectStore:
    """The objects below ``s3://BUCKET/PATH``. Methods raise `OSError`.

    A write is atomic, and a listing contains every object written before it.
    """

    def __init__(self, url: str, config: S3Config) -> None:
        self.url = url
        bucket, _, self._prefix = url.removeprefix(f"{SCHEME}://").partition("/")
        self._store = _store(bucket, config)

    def _key(self, name: str) -> str:
        return "/".join(filter(None, (self._prefix, name)))

    def head(self, name: str) -> Entry | None:
        """Return size and version tag of an object, None if it does not exist."""
        with suppress(FileNotFoundError), self._faults(name):
            found = self._store.head(self._key(name))
            return Entry(name, found["size"], str(found["e_tag"]))
        return None

    def listed(self, name: str = "", *, deep: bool = True) -> Iterator[Entry]:
        """Yield the objects below ``name``, without version tags. ``deep``: include the objects in subdirectories."""
        base = self._key(name)
        with self._faults(name):
            lists = self._store.list(base) if deep else [self._store.list_with_delimiter(base)["objects"]]
            for one in chain.from_iterable(lists):
                yield Entry(one["path"][len(self._prefix) :].lstrip("/"), one["size"])

    def read(self, name: str) -> tuple[bytes, str]:
        """Return contents and version tag of an object. Raises `FileNotFoundError` if the object does not exist."""
        with self._faults(name):
            result = self._store.get(self._key(name))
            return bytes(result.bytes()), str(result.meta["e_tag"])

    def read_from(self, name: str, start: int, size: int | None) -> bytes:
        """Return at most ``size`` bytes of an object (None: to its end) from byte ``start``.

        Empty if ``start`` is behind the end. Raises `FileNotFoundError` if the object does not exist.
        """
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
        """Create an object, and return its version tag. Raises `FileExistsError` if it exists."""
        return self.put(name, data, "create")

    def replace(self, name: str, data: bytes, tag: str) -> str:
        """Replace an object that still has the version ``tag``, and return its new tag. Raises `FileExistsError` if the
        object has another tag."""
        return self.put(name, data, {"e_tag": tag})

    def put(self, name: str, data: bytes, mode: Any = "overwrite") -> str:
        """Write an object, and return its version tag. By default it replaces an existing object."""
        with self._faults(name):
            return str(self._store.put(self._key(name), data, mode=mode)["e_tag"])

    def remove(self, *names: str) -> None:
        """Delete objects. Names that do not exist are ignored."""
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
    """Return the message of the store itself, without the prefixes of the client libraries."""
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


#: Accepted URL schemes, besides ``file``.
SCHEMES = (SCHEME, "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def local_path(text: str) -> str | None:
    """Return the absolute path of a path or a ``file:`` URL, None for another URL."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return None if "://" in text else str(Path(text).absolute())


def resolve_location(text: str) -> str:
    """Return the absolute path for a path or ``file:`` URL, or a normalized URL: ``s3a:`` becomes ``s3:``. Raises
    `ValueError` for an unsupported URL."""
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
    """A directory. ``where`` is a path or URL from `resolve_location`. Methods raise `OSError`."""

    where: str

    def __str__(self) -> str:
        return self.where

    def __getstate__(self) -> dict[str, str]:
        return {"where": self.where}

    @property
    def local(self) -> Path | None:
        """Path of a directory on this machine, None for a URL."""
        return None if "://" in self.where else Path(self.where)

    @cached_property
    def _config(self) -> S3Config | None:
        if not self.where.startswith(f"{SCHEME}://"):
            return None
        return S3Config.of().in_region(self.where.partition("://")[2].partition("/")[0])

    @cached_property
    def objects(self) -> ObjectStore | None:
        """The object store of a directory on S3, else None. It is used instead of Arrow's file system, which would
        write an empty object for each directory."""
        return None if self._config is None else ObjectStore(self.where, self._config)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Storage options of delta-rs for a directory on S3, else None."""
        return None if self._config is None else self._config.for_delta()

    @cached_property
    def _found(self) -> tuple[Any, str]:
        if self._config is not None:
            return self._config.for_arrow(), self.where.partition("://")[2]
        found: tuple[Any, str] = fs.FileSystem.from_uri(self.where)
        return found

    @property
    def system(self) -> Any:
        """Arrow's file system for the directory."""
        return self._found[0]

    def path(self, name: str = "") -> str:
        """Return the path of a file within the file system of Arrow."""
        return f"{self._found[1]}/{name}" if name else self._found[1]

    def folder(self, name: str) -> Folder:
        """Return a subdirectory."""
        return Folder(f"{self.where}/{name}")

    def exists(self, name: str = "") -> bool:
        """Return whether a file or directory exists."""
        if self.objects is not None:
            return self.objects.head(name) is not None or any(self.objects.listed(name))
        return bool(self._info(name).type != fs.FileType.NotFound)

    def is_directory(self) -> bool:
        """Return whether the directory exists. In an object store it exists if it contains an object."""
        if self.objects is not None:
            return any(self.objects.listed())
        return bool(self._info().type == fs.FileType.Directory)

    def _info(self, name: str = "") -> Any:
        return self.system.get_file_info(self.path(name))

    def entries(self, name: str = "", *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a subdirectory, none if it does not exist. ``deep``: include files in its
        subdirectories."""
        if self.objects is not None:
            yield from self.objects.listed(name, deep=deep)
            return
        base = self.path(name)
        for info in self.system.get_file_info(fs.FileSelector(base, recursive=deep, allow_not_found=True)):
            if info.type == fs.FileType.File:
                below = info.path[len(base) :].lstrip("/")
                yield Entry(f"{name}/{below}" if name else below, info.size)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, None if it does not exist."""
        found = self._info(name) if self.objects is None else self.objects.head(name)
        return None if found is None else found.size

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Return ``size`` bytes of a file (None: to its end) from byte ``start``. Raises `FileNotFoundError`."""
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
        """Return the document of a JSON file, None if it does not exist. Raises `ValueError` for invalid JSON."""
        try:
            return json.loads(self.read(name))
        except FileNotFoundError:
            return None

    def save(self, name: str, document: Any) -> None:
        """Write a document to a JSON file with `write`."""
        self.write(name, json.dumps(document, indent=1).encode())

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically. A file of this machine is synced to disk."""
        if self.objects is not None:
            self.objects.put(name, data)
            return
        self.make_parent(name)
        if self.local is None:
            # Arrow makes the file visible when it is closed
            with self.system.open_output_stream(self.path(name)) as remote:
                remote.write(data)
            return
        replace_file(self.local / name, data)

    def create(self, name: str, data: bytes) -> None:
        """Create a file atomically. Raises `FileExistsError` if the file exists, or another process creates it.

        On file systems without hard links and conditional writes, two processes may both create the file: the later
        one replaces it.
        """
        if self.objects is not None:
            try:
                self.objects.create(name, data)
            except FileExistsError:
                # equal data: an earlier try of this request has written the object, and its response was lost
                if self.objects.read(name)[0] != data:
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
            except OSError:  # probably a file system without hard links
                if target.exists():
                    raise other from None
                os.replace(draft, target)
        sync_path(target.parent)

    def make_parent(self, name: str) -> None:
        """Create the directory of a file with its parents. Object stores need no directories."""
        if self.objects is None:
            self.system.create_dir(self.path(name.rpartition("/")[0]))

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        if self.objects is not None:
            self.objects.remove(name)
        elif self.exists(name):
            self.system.delete_file(self.path(name))

    def remove_all(self, name: str = "") -> None:
        """Delete a directory with its contents if it exists."""
        if self.objects is not None:
            self.objects.remove(*(one.name for one in self.objects.listed(name)))
        elif self.exists(name):
            self.system.delete_dir(self.path(name))

    def sync(self, name: str) -> None:
        """Sync the data of a file on this machine to disk. Files elsewhere need no sync."""
        if self.local is not None:
            sync_path(self.local / name)


def replace_file(target: Path, data: bytes) -> None:
    """Replace a file atomically, and sync it to disk."""
    with _draft_of(target, data) as draft:
        os.replace(draft, target)
    sync_path(target.parent)


@contextmanager
def _draft_of(target: Path, data: bytes) -> Iterator[Path]:
    """Context manager: write ``data`` to a temporary file next to ``target``, sync it to disk, and yield its path. The
    file is deleted at the end unless the caller has renamed it."""
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
    """Sync a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
