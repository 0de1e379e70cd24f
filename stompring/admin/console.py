"""The console at ``/``: static files of the package, their caching, and the headers that keep other content out.

Files are found by their name below one directory, never by a path that a client composed: each segment of the path is
checked before the file system sees it, and only files with a known type are served.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import stompring
from stompring.errors import NotFound
from stompring.settings.network import host_name

from .api import Answer, Problem
from .context import AdminContext

#: The directory of the console's files.
DIRECTORY = Path(stompring.__file__).with_name("console")

#: The page itself, and the first segment of the paths of all other files.
PAGE, PREFIX = "index.html", "console"

#: Content types by suffix; a file with another suffix is not served.
CONTENT_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}

#: Types that are compressed already.
COMPRESSED = frozenset((".ico", ".png", ".woff2"))

#: One segment of a path: no hidden file, no separator, no control character.
SEGMENT = re.compile(r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*")

#: Segments of the longest path.
MAX_DEPTH = 8

#: Maximum size of a file in bytes: files stay in memory.
MAX_FILE = 4 * 1024 * 1024

#: Headers of every file, besides the Content-Security-Policy.
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
    "magnetometer=(), microphone=(), midi=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

#: The Content-Security-Policy; the WebSocket listeners are added to connect-src.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

#: A host name or an IPv4 address as a Content-Security-Policy may have it.
POLICY_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")

#: The header by which the console marks its requests, so that a failed login does not open the browser's own dialog.
REQUESTED_WITH = "stompring-console"

#: The challenge of a 401 to the console: no browser has a dialog for this scheme.
CHALLENGE = 'Stompring-Basic realm="stompring", charset="UTF-8"'


class StaticFile(NamedTuple):
    """One file of the console, as it is sent. ``version`` is inode, time of change and size."""

    version: tuple[int, int, int]
    content: bytes
    compressed: bytes | None  # None where that saves nothing
    tag: str  # of the content, without quotes
    content_type: str

    @classmethod
    def read(cls, path: Path, version: tuple[int, int, int]) -> StaticFile:
        """The file at a path. Raises OSError."""
        content = path.read_bytes()
        compressed = None if path.suffix in COMPRESSED else gzip.compress(content, 6, mtime=0)
        if compressed is not None and len(compressed) >= len(content):
            compressed = None
        tag = hashlib.sha256(content).hexdigest()[:32]
        return cls(version, content, compressed, tag, CONTENT_TYPES[path.suffix])


class ConsoleFiles:
    """The files below one directory. A file stays in memory until it changes on disk."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._directory = directory
        self._files: dict[tuple[str, ...], StaticFile] = {}

    def find(self, segments: Sequence[str]) -> StaticFile | None:
        """The file with this path below the directory, None without one."""
        if not 0 < len(segments) <= MAX_DEPTH or not all(map(SEGMENT.fullmatch, segments)):
            return None
        path = self._directory.joinpath(*segments)
        if path.suffix not in CONTENT_TYPES:
            return None
        try:
            status = path.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            key = tuple(segments)
            known = self._files.get(key)
            if known is None or known.version != version:
                inside = path.resolve().is_relative_to(self._directory.resolve())
                if not inside or not path.is_file() or status.st_size > MAX_FILE:
                    return None
                known = self._files[key] = StaticFile.read(path, version)
        except OSError:
            return None
        return known


def is_console(segments: list[str]) -> bool:
    """Whether a path, in its segments, is one of the console: ``/``, ``/console/…``."""
    return segments == [""] or segments[:1] == [PREFIX]


def console_answer(
    context: AdminContext,
    files: ConsoleFiles,
    method: str,
    segments: list[str],
    header: Callable[[str], str | None],
) -> Answer:
    """A file of the console for a request with these headers.

    Raises `NotFound` for a file that does not exist, `Problem` for a method that changes something.
    """
    if method not in ("GET", "HEAD"):
        raise Problem(
            405,
            f"Method {method} is not supported by this path; supported: GET, HEAD",
            {"Allow": "GET, HEAD"},
        )
    if segments in ([PREFIX], [PREFIX, ""]):
        return Answer(
            status=308, content_type=None, headers={"Location": "./" if len(segments) == 1 else "../"}
        )
    page = segments == [""]
    file = files.find((PAGE,) if page else segments[1:])
    if file is None:
        raise NotFound(
            "The console is not installed: the package has no console/index.html. The API is below /api/v1"
            if page
            else f"Path /{'/'.join(segments)} does not exist"
        )
    zipped = file.compressed if accepts_gzip(header("accept-encoding")) else None
    tag = f'"{file.tag}"' if zipped is None else f'"{file.tag}-gzip"'
    sources = " ".join(("'self'", *web_sockets(context, header("host"))))
    sent = {
        **HEADERS,
        "Content-Security-Policy": POLICY.format(sources),
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if matches(header("if-none-match"), tag):
        return Answer(status=304, content_type=None, headers=sent)
    if zipped is None:
        return Answer(file.content, 200, file.content_type, sent)
    return Answer(zipped, 200, file.content_type, {**sent, "Content-Encoding": "gzip"})


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in (accept_encoding or "").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether an If-None-Match header names an entity tag."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in (if_none_match or "").split(","))


def web_sockets(context: AdminContext, host: str | None) -> Iterator[str]:
    """The WebSocket listeners as sources of a Content-Security-Policy, by the name in the Host header.

    The grammar of sources has no IPv6 addresses: for one the port alone restricts.
    """
    name = host_name(host or "")
    if not POLICY_HOST.fullmatch(name):
        if ":" not in name:
            return
        name = "*"
    bound = {acceptor: port for acceptor, _, port in context.listening}
    for acceptor in context.configuration.stomp_acceptors:
        web_socket = acceptor.websocket
        if acceptor.name in bound and (web_socket.only or web_socket.web_socket_upgrade):
            scheme = "ws" if acceptor.tls is None else "wss"
            yield f"{scheme}://{name}:{bound[acceptor.name]}"
