"""The replicated log on NATS JetStream: one stream, one subject per file, appended with
``Nats-Expected-Last-Sequence``.

nats-py runs in a thread of its own; the methods of `NatsLog` block the calling thread. docs/high-availability.md
describes the configuration of the servers, and the checks.

`NatsConnection` connects to one of several servers, and after a loss to the next one that answers. The reconnecting of
nats-py is off: nats-py buffers messages while it is disconnected, waits seconds between attempts, and stays with a
server that answers pings while its JetStream does not answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote, unquote, urlsplit
from urllib.request import ProxyHandler, build_opener

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from stompring.settings.document import revealed
from stompring.settings.model import ReplicatedLogSettings
from stompring.settings.network import log_url

from .log import (
    BEATS,
    CONTROL,
    MAX_ENTRY_DATA,
    Fenced,
    FileChange,
    LogEntry,
    LogFull,
    LogMissing,
    LogStatus,
    LogUnavailable,
    UnsafeLog,
    decode_entry,
    encode_entry,
)

DEFAULT_PORT, DEFAULT_MONITOR_PORT = 4222, 8222

#: Seconds between the beginnings of two attempts to connect, and maximum seconds of one. The first to succeed is used.
STAGGER, CONNECT_TIMEOUT = 0.25, 2.0
#: Seconds without an answer to a request after which the server is checked with a ping.
STALL = 0.5
PING_INTERVAL = 2

Callback = Callable[[Msg], Awaitable[None]]


class NoAnswer(Exception):
    """A request has no answer: it timed out, the connection is lost, or no subscriber exists. Its effect is unknown."""


class NoListener(NoAnswer):
    """The server reports that the subject has no subscriber: no leader, or no stream."""


class NatsUrl(NamedTuple):
    """``nats://host:port,host:port?monitor=…``: the servers, and the HTTP addresses of their monitors."""

    servers: tuple[str, ...]
    monitors: tuple[str, ...]
    is_tls: bool

    @classmethod
    def parse(cls, url: str, monitor: str | None = None) -> NatsUrl:
        """Parse a URL. Raises `UnsafeLog` if it is invalid.

        ``monitor``, as an argument or in the URL: a port that all servers use, or addresses ``http://host:port``
        separated by commas; empty: no monitoring.
        """
        try:
            text, mark, parameters = log_url(url).partition("?")
        except ValueError as fault:
            raise UnsafeLog(f"url {fault}") from None
        scheme, _, places = text.partition("://")
        servers, hosts = [], []
        for place in places.split(","):
            server = urlsplit(f"//{place}")
            host = server.hostname or ""
            host = f"[{host}]" if ":" in host else host
            servers.append(f"{scheme}://{host}:{server.port or DEFAULT_PORT}")
            hosts.append(host)
        if monitor is None:
            monitor = parameters.partition("=")[2] if mark else str(DEFAULT_MONITOR_PORT)
        if monitor.isdigit():
            monitors = [f"http://{host}:{monitor}" for host in hosts]
        else:
            monitors = [one.strip().rstrip("/") for one in monitor.split(",") if one.strip()]
        return cls(tuple(servers), tuple(monitors), scheme == "tls")


def tls_context(settings: ReplicatedLogSettings, is_tls: bool) -> ssl.SSLContext | None:
    """Return the TLS context for the files of the settings. None if neither the files nor the URL require TLS."""
    if not (is_tls or settings.ca or settings.certificate):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as fault:
        raise UnsafeLog(f"certificates of the replicated log cannot be read: {fault}") from None
    return context


class _Client(Client):
    """A client that requires TLS if ``demands_tls`` is set; nats-py would send the password to a server without TLS."""

    demands_tls = False

    def _connect_command(self) -> bytes:
        if self.demands_tls and not self._server_info.get("tls_required"):
            raise NatsError("the server does not offer TLS")
        return super()._connect_command()


@dataclass(eq=False, slots=True)
class Link:
    """A connection to one server, until it is lost."""

    client: Client
    server: str
    inbox: str
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)  # set by `NatsConnection.listen`
    _waiting: dict[str, asyncio.Future[Msg]] = field(default_factory=dict)
    _tokens: int = 0
    _check: asyncio.Task[None] | None = None

    async def on_answer(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        future = self._waiting.pop(token, None)
        if future is None or future.done():
            return
        if message.headers and message.headers.get("Status") == "503":
            future.set_exception(NoListener("no listener"))
        else:
            future.set_result(message)

    async def request(
        self, subject: str, payload: bytes, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Publish, and wait for the answer. Raises `NoAnswer`; a later answer is ignored."""
        if self.lost.is_set():
            raise NoAnswer("connection lost")
        self._tokens += 1
        token = str(self._tokens)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Msg] = loop.create_future()
        self._waiting[token] = future
        stalled = loop.call_later(STALL, self.check)
        try:
            await self.client.publish(
                subject, payload, reply=f"{self.inbox}.{token}", headers=dict(headers) if headers else None
            )
            await asyncio.wait((future,), timeout=timeout)
            if not future.done():
                raise NoAnswer(f"no answer for {timeout:.1f} s")
            return future.result()
        except (NatsError, OSError) as fault:
            self.drop()
            raise NoAnswer(f"connection lost: {fault}") from None
        finally:
            stalled.cancel()
            future.cancel()
            self._waiting.pop(token, None)

    def check(self) -> None:
        """Drop the link if the server does not answer a ping within `STALL`."""
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(self._ping())

    async def _ping(self) -> None:
        try:
            await asyncio.wait_for(self.client.flush(timeout=1), STALL)
        except (NatsError, OSError, TimeoutError):
            self.drop()

    def drop(self) -> None:
        """Give up the link: its requests fail, and `NatsConnection` opens another link."""
        if self.lost.is_set():
            return
        self.lost.set()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(NoAnswer("connection lost"))
                future.exception()  # else asyncio would log the exception if no task awaits the future
        self._waiting.clear()


class NatsConnection:
    """The connection to one of the servers. All methods run on one event loop."""

    def __init__(self, settings: ReplicatedLogSettings) -> None:
        self.url = NatsUrl.parse(settings.url, settings.monitor)
        self._settings = settings
        self._tls = tls_context(settings, self.url.is_tls)
        self._next = 0
        self._link: Link | None = None
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._subjects: frozenset[str] = frozenset()
        self._callback: Callback | None = None
        #: Reason why the last attempt to connect failed, or last error reported by the server.
        self.fault = ""

    def start(self) -> None:
        """Connect, and reconnect until `close`."""
        if self._task is None:
            self._task = asyncio.create_task(self._stay_connected())

    async def link(self, timeout: float) -> Link:
        """Return the current link. Raises `LogUnavailable` if there is no link within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(max(timeout, 0.001)):
                while self._link is None or self._link.lost.is_set():
                    await self._connected.wait()
                    await asyncio.sleep(0)
        except TimeoutError:
            servers = ", ".join(self.url.servers)
            raise LogUnavailable(
                f"no NATS server of {servers} answers" + (f": {self.fault}" if self.fault else "")
            ) from None
        return self._link

    def rotate(self) -> None:
        """Drop the link and connect to the next server."""
        if self._link is not None:
            self._link.drop()

    async def request(
        self, subject: str, payload: bytes, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Send a request over the current link. Raises `NoAnswer`, `LogUnavailable`."""
        end = monotonic() + timeout
        link = await self.link(timeout)
        return await link.request(subject, payload, max(end - monotonic(), 0.001), headers)

    async def listen(self, subjects: frozenset[str], callback: Callback) -> None:
        """Subscribe to these subjects and no others, on the current and every later link."""
        self._subjects, self._callback = subjects, callback
        if self._link is not None and not self._link.lost.is_set():
            await self._subscribe(self._link)

    async def _subscribe(self, link: Link) -> None:
        try:
            for subject in link.subscriptions.keys() - self._subjects:
                await link.subscriptions.pop(subject).unsubscribe()
            while missing := self._subjects - link.subscriptions.keys():
                subject = min(missing)
                link.subscriptions[subject] = await link.client.subscribe(subject, cb=self._callback)
        except (NatsError, OSError) as fault:
            self.fault = str(fault)
            link.drop()

    async def _stay_connected(self) -> None:
        while True:
            link = await self._connect()
            self.fault = ""
            await self._subscribe(link)
            self._link = link
            self._connected.set()
            await link.lost.wait()
            self._connected.clear()
            self._link = None
            self._dispose(link.client)

    async def _connect(self) -> Link:
        """Try the servers, `STAGGER` seconds apart, until one accepts."""
        while True:
            attempts: set[asyncio.Task[Link]] = set()
            try:
                for server in self.url.servers[self._next :] + self.url.servers[: self._next]:
                    attempts.add(asyncio.create_task(self._attempt(server)))
                    if link := await self._first(attempts, STAGGER):
                        return link
                if link := await self._first(attempts, CONNECT_TIMEOUT + STAGGER):
                    return link
            finally:
                for attempt in attempts:
                    attempt.cancel()
                    attempt.add_done_callback(self._dispose_late)
            await asyncio.sleep(STAGGER)

    async def _first(self, attempts: set[asyncio.Task[Link]], timeout: float) -> Link | None:
        """Return the first link, None after ``timeout`` seconds or when all attempts have failed."""
        end = monotonic() + timeout
        while attempts and (left := end - monotonic()) > 0:
            done, _ = await asyncio.wait(attempts, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                attempts.discard(attempt)
                fault = attempt.exception()
                if fault is None:
                    link = attempt.result()
                    self._next = (self.url.servers.index(link.server) + 1) % len(self.url.servers)
                    return link
                self.fault = f"{fault}" or type(fault).__name__
        return None

    def _dispose_late(self, attempt: asyncio.Task[Link]) -> None:
        if not attempt.cancelled() and attempt.exception() is None:
            self._dispose(attempt.result().client)

    async def _attempt(self, server: str) -> Link:
        client = _Client()
        client.demands_tls = self._tls is not None
        settings = self._settings
        links: list[Link] = []

        async def closed() -> None:
            for link in links:
                link.drop()

        async def on_error(fault: Exception) -> None:
            if not links:  # not connected yet: raise, because nats-py would wait and try again
                raise fault
            self.fault = str(fault)

        try:
            _check_credentials(settings.credentials)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await client.connect(
                    servers=[server],
                    name=f"stompring {settings.broker}".strip(),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=CONNECT_TIMEOUT,  # type: ignore[arg-type]
                    connect_timeout=CONNECT_TIMEOUT,  # type: ignore[arg-type]
                    ping_interval=PING_INTERVAL,
                    max_outstanding_pings=2,
                    tls=self._tls,
                    user=settings.user,
                    password=None if settings.password is None else revealed(settings.password),
                    user_credentials=settings.credentials,
                    error_cb=on_error,
                    closed_cb=closed,
                    disconnected_cb=closed,
                )
                if not client.is_connected:
                    raise NatsError("the connection was refused")
                link = Link(client, server, client.new_inbox())
                links.append(link)
                await client.subscribe(f"{link.inbox}.*", cb=link.on_answer)
                return link
        except BaseException as fault:
            self._dispose(client)
            if isinstance(fault, TimeoutError):
                raise NatsError(f"{server} does not answer") from None
            # the server has refused the connection
            if isinstance(fault, ConnectionError) and client._server_info:
                raise NatsError(
                    f"{server} refuses the authorization: check user, password, credentials, certificate"
                ) from None
            raise

    def _dispose(self, client: Client) -> None:
        task = asyncio.create_task(_close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        link, self._link = self._link, None
        if link is not None:
            link.drop()
            self._dispose(link.client)
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=1)


def _check_credentials(path: str | None) -> None:
    """Raise `OSError` if the file is not a credentials file: nats-py would read the file in an endless loop."""
    if path is not None:
        text = Path(path).read_bytes()
        if b"BEGIN NATS USER JWT" not in text or b"BEGIN USER NKEY SEED" not in text:
            raise OSError(f"{path} is not a credentials file of NATS")


async def _close(client: Client) -> None:
    """Close a client. Its socket is closed even if the server does not respond."""
    transport = getattr(getattr(client, "_transport", None), "_io_writer", None)
    with suppress(Exception):
        await asyncio.wait_for(client.close(), 0.5)
    with suppress(Exception):
        if transport is not None:
            transport.transport.abort()


log = logging.getLogger(__name__)

ENGINE = "nats"

#: Seconds without progress after which an append, a claim or a request fails.
TIMEOUT = 2.0
#: Seconds without an answer after which the next server is tried.
PATIENCE = 1.0
#: Seconds for which the leader must repeat that the stream is missing, or ends before a confirmed entry. A leader that
#: resumes after a pause, or a cluster that starts, may report that by mistake.
DOUBT = 3.0
#: Seconds between attempts while the stream has no leader.
PAUSE = 0.05
#: Messages of one pull request, and number of concurrent pull requests. Their product is the maximum number of messages
#: that a reader has requested and not received.
PULL, PULLS = 64, 2
PULL_EXPIRES = 20.0
#: Number of entries that are requested together from the leader without a consumer.
GETS = 16
#: Maximum bytes of an entry in addition to its data: head, path and headers of NATS.
OVERHEAD = 4096
#: Minimum seconds between two requests that move the leadership of the stream to another machine.
PLACE_INTERVAL = 60.0
MIN_REPLICAS = 3
#: Minimum version of servers. Earlier ones cannot sync before they confirm, and lose confirmed entries when a leader
#: resumes after a pause (seen with 2.9.10).
MIN_VERSION = (2, 10)
#: Seconds without a message from a node after which it counts as lost. The stream's leader sends to each node every
#: second.
SILENCE = 2.5

_P = ParamSpec("_P")
_T = TypeVar("_T")
Body = Mapping[str, Any]  # a JSON object
_EPOCH = datetime.fromtimestamp(0, UTC)
_STREAM_NAME = re.compile(r"[^\s.*>/\\]{1,255}")

# Codes of JetStream errors (err_code).
_NOT_FOUND, _NO_MESSAGE = 10059, 10037
#: Error codes of JetStream: a limit of account, memory, storage or stream is reached
_FULL = frozenset((10002, 10028, 10047, 10077))
_TOO_LARGE = 10054


class _Answer(NamedTuple):
    """A JSON answer of JetStream."""

    body: Body
    code: int
    text: str


class _Pending(NamedTuple):
    """An entry that is not confirmed: it is stored, is not stored, or will be stored later."""

    number: int
    subject: str
    payload: bytes


@dataclass
class _Reader:
    """A consumer of the stream for `NatsLog.read`, and the messages that it delivered."""

    link: Link
    name: str
    inbox: str
    position: int  # sequence of the last entry returned
    delivered: int = 0  # number of messages received from the consumer
    requested: int = 0  # number of messages requested and not received yet
    is_broken: bool = False
    arrived: deque[Msg] = field(default_factory=deque)
    signal: asyncio.Event = field(default_factory=asyncio.Event)

    async def on_message(self, message: Msg) -> None:
        if message.headers and "Status" in message.headers and not message.data:
            # 100: a heartbeat. Other statuses end a request: it expired, or the consumer no longer exists.
            if message.headers["Status"] != "100":
                self.is_broken = self.is_broken or message.headers["Status"] not in ("408", "404")
                self.requested = 0
                self.signal.set()
            return
        if message.metadata.sequence.consumer != self.delivered + 1:
            self.is_broken = True
        else:
            self.delivered += 1
            self.requested = max(self.requested - 1, 0)
            self.arrived.append(message)
        self.signal.set()


def subject_of(stream: str, key: str) -> str:
    """Return the subject of the entries with this key."""
    if key == CONTROL:
        return f"{stream}.control"
    if key == BEATS:
        return f"{stream}.beats"
    return f"{stream}.file.{_token(key)}"


def key_of(stream: str, subject: str) -> str:
    """Return the key of a subject: the inverse of `subject_of`."""
    kind = subject.removeprefix(f"{stream}.")
    if kind == "control":
        return CONTROL
    return BEATS if kind == "beats" else unquote(kind.removeprefix("file."))


def _token(text: str) -> str:
    """Encode a text as one token of a subject, without dots, blanks and wildcards."""
    return quote(text, safe="").replace(".", "%2E")


def stream_subjects(stream: str) -> list[str]:
    """Return the subjects that a stream stores. Subjects of requests between brokers have the same first token, but the
    stream does not store them.
    """
    return [f"{stream}.file.>", f"{stream}.control", f"{stream}.beats"]


def stream_configuration(stream: str, max_bytes: int) -> dict[str, object]:
    """Return the configuration with which `NatsLog.create` creates a stream."""
    return {
        "name": stream,
        "description": "replicated log of a stompring broker",
        "subjects": stream_subjects(stream),
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": MIN_REPLICAS,
        "max_bytes": max_bytes,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_age": 0,
        "max_consumers": -1,
        "deny_delete": True,
        "deny_purge": False,
        "allow_direct": False,
    }


def unsafe_configuration(stream: str, configuration: Body) -> list[str]:
    """Return the settings of a stream that make it lose entries or refuse them; empty for a safe stream."""
    get = configuration.get
    size = get("max_msg_size", -1)
    least = MAX_ENTRY_DATA + OVERHEAD
    subjects = stream_subjects(stream)
    rows = [
        (
            "num_replicas",
            f"{MIN_REPLICAS} or more",
            get("num_replicas", 1) >= MIN_REPLICAS,
        ),
        ("storage", "'file'", get("storage") == "file"),
        ("discard", "'new'", get("discard") == "new"),
        ("retention", "'limits'", get("retention") == "limits"),
        ("max_age", "no limit", get("max_age", 0) == 0),
        ("max_msgs", "no limit", get("max_msgs", -1) <= 0),
        ("max_msgs_per_subject", "no limit", get("max_msgs_per_subject", -1) <= 0),
        ("max_msg_size", f"{least} or more", size < 0 or size >= least),
        *((name, "none", not get(name)) for name in ("mirror", "sources")),
        *((name, "false", not get(name)) for name in ("no_ack", "sealed", "deny_purge")),
        ("subject_transform", "none", not get("subject_transform")),
        ("persist_mode", "'default'", get("persist_mode") in (None, "", "default")),
        ("subjects", repr(subjects), sorted(get("subjects") or ()) == sorted(subjects)),
    ]
    return [f"{name} is {get(name)!r}, {wanted} is required" for name, wanted, is_so in rows if not is_so]


def _in_thread(
    work: Callable[Concatenate[NatsLog, _P], Coroutine[object, object, _T]],
) -> Callable[Concatenate[NatsLog, _P], _T]:
    """Return a method that runs a coroutine in the log's thread, and waits for it."""

    def call(log: NatsLog, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return log._run(work(log, *arguments, **named))

    return call


class NatsLog:
    """A `ReplicatedLog` on a JetStream stream."""

    def __init__(
        self, settings: ReplicatedLogSettings, is_local: Callable[[str], bool] | None = None
    ) -> None:
        """``is_local``: function that returns whether a ``host:port`` is an address of this machine. Raises `UnsafeLog`
        for an invalid stream name.
        """
        if not _STREAM_NAME.fullmatch(settings.stream):
            raise UnsafeLog(
                f"stream {settings.stream!r}: a name without blanks, dots, slashes, * and > is required"
            )
        self._settings = settings
        self._stream = settings.stream
        self._connection = NatsConnection(settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._identity = ""
        self._doubts: dict[type[UnsafeLog], float] = {}  # time of the first doubtful answer, by kind of error
        self._fatal: Exception | None = None
        # fields of the writer
        self._writer = self._number = self._last = 0
        self._pending: deque[_Pending] = deque()
        self._uncertain = False  # whether some of `_pending` may be stored
        # fields about the machine of the stream's leader
        self._is_local = is_local or is_local_address
        self._local_nodes: frozenset[str] = frozenset()
        self._place_at = 0.0  # earliest time of the next request for another leader
        self._placing: asyncio.Task[None] | None = None
        # fields of the reader
        self._reader: _Reader | None = None
        self._leader_until = 0  # entries up to this sequence are read from the leader
        self._reader_at = 0.0  # earliest time at which another consumer may be created
        # fields of requests between brokers
        self._asked: list[str] = []
        self._subjects: frozenset[str] = frozenset()

    # Threads

    def _run(self, work: Coroutine[object, object, _T]) -> _T:
        """Run a coroutine in the log's thread, and wait for it."""
        if self._is_closed:
            work.close()
            raise LogUnavailable("the replicated log is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="replicated-log", daemon=True)
            self._thread.start()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CancelledError:
            raise LogUnavailable("the replicated log is closed") from None

    # The interface

    def read_from_leader(self) -> None:
        self._leader_until = self._run(self._end())

    def first(self, key: str) -> LogEntry | None:
        return self._run(self._get({"seq": 1, "next_by_subj": subject_of(self._stream, key)}))

    def last(self, key: str) -> LogEntry | None:
        return self._run(self._get({"last_by_subj": subject_of(self._stream, key)}))

    def purge(self, key: str, through: int) -> None:
        # "seq" in the request is the first sequence that stays
        body = {"filter": subject_of(self._stream, key), "seq": through + 1}
        self._run(self._api(f"STREAM.PURGE.{self._stream}", body))

    def requests(self, broker: str, *, active: bool) -> list[str]:
        subjects = frozenset(map(self._request_subject, ("", broker) if active else (broker,)))
        if subjects != self._subjects and self._loop is not None:
            self._subjects = subjects
            listening = self._connection.listen(subjects, self._on_request)
            asyncio.run_coroutine_threadsafe(listening, self._loop)
        asked, self._asked = self._asked, []
        return asked

    def close(self) -> None:
        self._is_closed = True
        if self._loop is None or self._thread is None:
            return
        loop, self._loop = self._loop, None
        with suppress(NatsError, OSError):  # a TimeoutError is an OSError
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(3)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(3)
        if not loop.is_running():
            loop.close()

    # JetStream's requests

    def _begin(self) -> None:
        """Connect. Raises the error that ended the log, if there is one."""
        if self._fatal is not None:
            raise self._fatal
        self._connection.start()

    async def _api(self, subject: str, body: Body | None, timeout: float = TIMEOUT) -> _Answer:
        """Send a request to JetStream until it is answered. Raises `LogUnavailable`, `UnsafeLog`."""
        self._begin()
        end = monotonic() + timeout
        payload = json.dumps(body).encode() if body else b""
        reason = ""
        while (left := end - monotonic()) > 0:
            try:
                message = await self._connection.request(f"$JS.API.{subject}", payload, min(left, PATIENCE))
            except NoListener:
                reason = "JetStream is not available"
                await asyncio.sleep(PAUSE)
                continue
            except NoAnswer as fault:
                reason = str(fault)
                self._connection.rotate()
                continue
            answer = _parse(message.data)
            if answer.code == _NOT_FOUND:
                self._doubt(
                    f"stream {self._stream} does not exist",
                    "make it with 'stompring ha init'; if it existed, its contents are lost",
                    LogMissing,
                )
            if answer.code and answer.code != _NO_MESSAGE:
                reason = answer.text
                await asyncio.sleep(PAUSE)
                continue
            self._doubts.pop(LogMissing, None)
            return answer
        if self._connection.fault:  # NATS does not answer a request without permission, for example
            reason += f"; {self._connection.fault}"
        self._connection.rotate()
        raise LogUnavailable(f"NATS does not answer {subject.removesuffix('.' + self._stream)}: {reason}")

    def _doubt(self, reason: str, advice: str, kind: type[UnsafeLog] = UnsafeLog) -> None:
        """Raise `LogUnavailable` for an answer that may be a mistake of the server, or ``kind`` if the server has
        repeated the answer for `DOUBT` seconds. A different answer ends the doubt.
        """
        now = monotonic()
        if now - self._doubts.setdefault(kind, now) >= DOUBT:
            self._fatal = kind(f"{reason}: {advice}")
            raise self._fatal
        raise LogUnavailable(reason)

    async def _information(self, timeout: float = TIMEOUT) -> Body:
        """Return the information about the stream (STREAM.INFO) from the leader."""
        answer = await self._api(f"STREAM.INFO.{self._stream}", None, timeout)
        created = str(answer.body.get("created", ""))
        if self._identity and created != self._identity:
            self._fatal = UnsafeLog(
                f"stream {self._stream} was deleted and created again at {created}: its earlier entries are lost;"
                " remove the replicated copy of each broker, or restore a backup"
            )
            raise self._fatal
        last: int = answer.body["state"]["last_seq"]
        if last < self._last:
            self._doubt(
                f"stream {self._stream} ends at {last}, but {self._last} was confirmed",
                "NATS has lost confirmed entries; restore a backup of the data directory",
            )
        self._doubts.clear()
        return answer.body

    @_in_thread
    async def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        while True:  # one answer has only some of the subjects: ask until the list is complete
            body = {"subjects_filter": f"{self._stream}.>", "offset": len(found)}
            answer = await self._api(f"STREAM.INFO.{self._stream}", body)
            subjects = answer.body["state"].get("subjects") or {}
            found |= {key_of(self._stream, subject): count for subject, count in subjects.items()}
            if not subjects or len(found) >= answer.body.get("total", 0):
                return found

    @_in_thread
    async def status(self) -> LogStatus:
        body = await self._information()
        if self._writer and (successor := self._better_leader(body)):
            self._placing = asyncio.create_task(self._move_leader(successor))
        return self._status_of(body)

    def _better_leader(self, body: Body) -> str:
        """Return a node on another machine that can lead the stream if its leader is on this machine, else an empty
        name.

        If the machine of the active broker fails, a leader on it fails as well: NATS has to elect another one before a
        standby can take over.
        """
        leader, others = _nodes(body)
        if leader not in self._local_nodes or not _has_majority(body):
            return ""
        now = monotonic()
        remote = [
            str(one.get("name"))
            for one in others
            if one.get("current") and not one.get("offline") and one.get("name") not in self._local_nodes
        ]
        if not remote or now < self._place_at:
            return ""
        self._place_at = now + PLACE_INTERVAL
        return min(remote)

    async def _move_leader(self, successor: str) -> None:
        """Request another leader of the stream, once. If NATS refuses or forbids that, the leader stays."""
        subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{self._stream}"
        body = json.dumps({"placement": {"preferred": successor}}).encode()
        try:
            answer = _parse((await self._connection.request(subject, body, TIMEOUT)).data)
            if answer.code:  # servers before 2.11 choose the node themselves
                answer = _parse((await self._connection.request(subject, b"", TIMEOUT)).data)
            refused = answer.text
        except (NoAnswer, LogUnavailable) as fault:
            refused = str(fault)
        if refused:
            self._place_at = math.inf
            log.warning(
                "the leader of stream %s is on this machine, and cannot be moved: %s", self._stream, refused
            )
        else:
            log.info("the leader of stream %s was on this machine: moved to %s", self._stream, successor)

    def _status_of(self, body: Body) -> LogStatus:
        configuration, state = body["config"], body["state"]
        return LogStatus(
            engine=ENGINE,
            identity=body["created"],
            last=state["last_seq"],
            entries=state["messages"],
            bytes=state["bytes"],
            max_bytes=configuration.get("max_bytes", -1),
            replicas=configuration.get("num_replicas", 1),
            leader=_nodes(body)[0],
            healthy=_has_majority(body),
        )

    async def _get(self, body: Body, timeout: float = TIMEOUT) -> LogEntry | None:
        """Return an entry from the leader, None without one."""
        answer = await self._api(f"STREAM.MSG.GET.{self._stream}", body, timeout)
        if answer.code:
            return None
        message = answer.body["message"]
        payload = base64.b64decode(message.get("data", ""))
        return decode_entry(payload, message["seq"], _milliseconds(datetime.fromisoformat(message["time"])))

    async def _next(self, sequence: int, timeout: float = TIMEOUT) -> LogEntry | None:
        """Return the first entry at or after a sequence."""
        return await self._get({"seq": sequence, "next_by_subj": f"{self._stream}.>"}, timeout)

    async def _end(self) -> int:
        """Return the sequence of the last entry. Raises `LogUnavailable` if the leader has no majority of the nodes."""
        body = await self._information()
        if not _has_majority(body):
            raise LogUnavailable(f"stream {self._stream} has no majority of its nodes")
        last: int = body["state"]["last_seq"]
        return last

    # Connecting

    @_in_thread
    async def connect(self) -> LogStatus:
        self._begin()
        end = monotonic() + 2 * DOUBT
        while True:
            try:
                body = await self._information()
                break
            except LogUnavailable:
                if not self._doubts or monotonic() > end:
                    raise
                await asyncio.sleep(PAUSE * 4)
        link = await self._connection.link(TIMEOUT)
        _check_version(link.server, _version(link))
        if link.client.max_payload < MAX_ENTRY_DATA + OVERHEAD:
            raise UnsafeLog(
                f"max_payload of {link.server} is {link.client.max_payload}:"
                f" {MAX_ENTRY_DATA + OVERHEAD} or more is required"
            )
        if found := unsafe_configuration(self._stream, body["config"]):
            raise UnsafeLog(f"stream {self._stream} is not safe: {'; '.join(found)}")
        status = self._status_of(body)
        leader, others = _nodes(body)
        await self._check_sync([leader, *(str(one.get("name")) for one in others)])
        self._identity = status.identity
        return status

    async def _check_sync(self, nodes: list[str]) -> None:
        """Check that the nodes of the stream sync before they confirm. Raises `UnsafeLog`."""
        monitors = self._connection.url.monitors
        pages = await asyncio.gather(*(asyncio.to_thread(_varz, monitor) for monitor in monitors))
        synced, local = set(), set()
        for monitor, page in zip(monitors, pages, strict=True):
            name = str(page.get("server_name", ""))
            if name not in nodes:
                continue  # this node is of another cluster
            if await asyncio.to_thread(self._is_local, urlsplit(monitor).netloc):
                local.add(name)
            configuration = page.get("jetstream", {}).get("config") or {}
            _check_version(name, str(page.get("version", "")))
            if "sync_interval" not in configuration:
                continue
            if configuration.get("sync_always") is not True:
                raise UnsafeLog(
                    f"NATS server {name} syncs every {configuration['sync_interval'] // 10**9} s:"
                    " a loss of power loses confirmed entries; set 'sync_interval: always' in its jetstream block"
                )
            synced.add(name)
        self._local_nodes = frozenset(local)
        if not synced and not self._settings.confirmed_sync:
            raise UnsafeLog(
                "no monitor of NATS says whether the servers have 'sync_interval: always'"
                f" ({', '.join(monitors) or 'none'}): open it, name it in the attribute monitor,"
                ' or confirm with confirmed-sync="true"'
            )

    @_in_thread
    async def create(self, max_bytes: int) -> None:
        """Create the stream of a new log. Raises `UnsafeLog` if it exists, or cannot be created."""
        connection, stream = self._connection, self._stream
        self._begin()
        configuration = stream_configuration(stream, max_bytes)
        end = monotonic() + 5 * TIMEOUT
        reason = ""
        is_new = False
        while monotonic() < end:
            subject = f"$JS.API.STREAM.{'CREATE' if is_new else 'INFO'}.{stream}"
            payload = json.dumps(configuration).encode() if is_new else b""
            try:
                link = await connection.link(TIMEOUT)
                _check_version(link.server, _version(link))
                answer = _parse((await connection.request(subject, payload, 2 * TIMEOUT)).data)
            except NoAnswer as fault:
                reason = str(fault)
                await asyncio.sleep(PAUSE)
                continue
            if not is_new and not answer.code:
                raise UnsafeLog(f"stream {stream} exists already; nothing was changed")
            if not is_new and answer.code == _NOT_FOUND:
                is_new = True
            elif is_new and not answer.code:
                return
            elif 400 <= answer.body.get("error", {}).get("code", 0) < 500:
                raise UnsafeLog(f"stream {stream} cannot be made: {answer.text}")
            else:
                reason = answer.text
                await asyncio.sleep(PAUSE * 4)
        raise LogUnavailable(f"stream {stream} cannot be made: {reason}")

    # Reading

    @_in_thread
    async def read(self, after: int, wait: float) -> list[LogEntry]:
        self._begin()
        end = monotonic() + wait
        if after < self._leader_until:  # another node, which a consumer may read from, may lack entries
            await self._drop_reader()
            if found := await self._read_one_by_one(after):
                return found
        reader = self._reader
        if reader is None or reader.position != after or reader.is_broken or reader.link.lost.is_set():
            await self._drop_reader()
            reader = await self._open_reader(after) if monotonic() >= self._reader_at else None
        if reader is not None and (taken := await self._take(reader, wait)):
            return taken
        while await self._end() <= after:
            if reader is not None or monotonic() >= end:
                return []
            await asyncio.sleep(PAUSE)
        # Entries exist, but there is no consumer, or it does not deliver them (yet).
        if reader is not None and not reader.is_broken and (taken := await self._take(reader, 0.1)):
            return taken
        await self._drop_reader()
        return await self._read_one_by_one(after)

    async def _read_one_by_one(self, after: int) -> list[LogEntry]:
        """Return some entries from the leader. Needs no consumer, which the cluster does not create in an election."""
        places = range(after + 1, after + 1 + GETS)
        found = await asyncio.gather(*(self._next(place) for place in places))
        entries: list[LogEntry] = []
        for place, entry in zip(places, found, strict=True):
            if entry is None:
                break
            if not entries or place == entries[-1].sequence + 1:
                # ``entry`` is the first one at or after ``place``: no entry is between it and the previous one
                entries.append(entry)
        return entries

    async def _take(self, reader: _Reader, wait: float) -> list[LogEntry]:
        """Return the received entries. Waits up to ``wait`` seconds for the first one."""
        end = monotonic() + wait
        while not reader.arrived and not reader.is_broken and not reader.link.lost.is_set():
            if reader.requested == 0:
                await self._pull(reader)
            reader.signal.clear()
            try:
                await asyncio.wait_for(reader.signal.wait(), max(end - monotonic(), 0))
            except TimeoutError:
                break
        taken, reader.arrived = reader.arrived, deque()
        if taken:
            reader.position = taken[-1].metadata.sequence.stream
            if reader.requested <= PULL * (PULLS - 1):
                await self._pull(reader)
        return [
            decode_entry(each.data, each.metadata.sequence.stream, _milliseconds(each.metadata.timestamp))
            for each in taken
        ]

    async def _pull(self, reader: _Reader) -> None:
        """Request messages, so that `PULL` times `PULLS` messages are requested."""
        count = PULL * PULLS - reader.requested
        body = {"batch": count, "expires": int(PULL_EXPIRES * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{reader.name}"
        try:
            await reader.link.client.publish(subject, json.dumps(body).encode(), reply=reader.inbox)
            reader.requested += count
        except (NatsError, OSError):
            reader.link.drop()

    async def _open_reader(self, after: int) -> _Reader | None:
        """Create a consumer that starts after a sequence. Returns None if the cluster cannot create one now."""
        body = {
            "stream_name": self._stream,
            "config": {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": after + 1,
                "ack_policy": "none",
                "replay_policy": "instant",
                "inactive_threshold": int(30e9),
                "num_replicas": 1,
                "mem_storage": True,
            },
        }
        link = await self._connection.link(TIMEOUT)
        try:
            subject = f"$JS.API.CONSUMER.CREATE.{self._stream}"
            answer = _parse((await link.request(subject, json.dumps(body).encode(), STALL)).data)
        except NoAnswer:
            answer = None
        if answer is None or answer.code:
            self._reader_at = monotonic() + TIMEOUT
            return None
        reader = _Reader(link, str(answer.body.get("name", "")), link.client.new_inbox(), after)
        try:
            await link.client.subscribe(
                reader.inbox, cb=reader.on_message, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except (NatsError, OSError) as fault:
            raise LogUnavailable(f"NATS: {fault}") from None
        self._reader = reader
        return reader

    async def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.link.lost.is_set():
            try:
                await reader.link.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{reader.name}")
            except (NatsError, OSError):
                reader.link.drop()

    # Writing

    @_in_thread
    async def claim(self, writer: int, after: int, change: FileChange) -> int | None:
        self._begin()
        end = monotonic() + TIMEOUT
        subject = subject_of(self._stream, change.key)
        payload = encode_entry(writer, 0, change)
        headers = {"Nats-Expected-Last-Sequence": str(after)}
        if after == 0:  # servers before 2.10 do not check an expected sequence of 0
            headers["Nats-Expected-Last-Subject-Sequence"] = "0"
        reason = ""
        while True:
            if await self._end() > after:  # the log has another entry, or this claim from an earlier attempt
                entry = await self._next(after + 1)
                is_own = entry is not None and (entry.writer, entry.sequence) == (writer, after + 1)
                return self._claimed(writer, after + 1) if is_own else None
            left = end - monotonic()
            if left <= 0:
                raise LogUnavailable(f"NATS does not confirm the claim: {reason}")
            try:
                message = await self._connection.request(subject, payload, min(left, PATIENCE), headers)
                answer = _parse(message.data)
                if not answer.code:
                    return self._claimed(writer, answer.body["seq"])
                if answer.code in _FULL:
                    raise LogFull(f"stream {self._stream} is full: {answer.text}")
                reason = answer.text
            except NoAnswer as fault:
                reason = str(fault)
                if not isinstance(fault, NoListener):
                    self._connection.rotate()
            await asyncio.sleep(PAUSE)

    def _claimed(self, writer: int, sequence: int) -> int:
        self._writer, self._number, self._last = writer, 0, sequence
        self._pending.clear()
        self._uncertain = False
        return sequence

    @_in_thread
    async def append(self, changes: Sequence[FileChange]) -> int:
        self._begin()
        assert self._writer, "append before claim"
        for change in changes:
            self._number += 1
            payload = encode_entry(self._writer, self._number, change)
            self._pending.append(_Pending(self._number, subject_of(self._stream, change.key), payload))
        await self._store()
        return self._last

    async def _store(self) -> None:
        """Store the pending entries in order. First find out which entries without a known outcome are stored."""
        end = monotonic() + TIMEOUT
        reason = ""
        while self._pending:
            before = self._last
            if self._uncertain:
                await self._settle(end)
            try:
                answer = await self._send(min(PATIENCE, max(end - monotonic(), 0.01)))
            except NoAnswer as fault:
                reason = str(fault)
                if not isinstance(fault, NoListener):
                    self._connection.rotate()
            else:
                if answer is None:
                    return
                reason = answer.text
                if answer.code == _NOT_FOUND:
                    await self._information()
                if answer.code == _TOO_LARGE:
                    self._fatal = UnsafeLog(f"stream {self._stream} refuses an entry: {reason}")
                    raise self._fatal
                if answer.code in _FULL:
                    last = self._last
                    await self._settle(end)
                    if self._last == last:
                        raise LogFull(f"stream {self._stream} is full: {reason}")
            if self._last != before:
                end = monotonic() + TIMEOUT
            elif monotonic() >= end:
                raise LogUnavailable(f"NATS does not confirm entries: {reason}")
            else:
                await asyncio.sleep(PAUSE)

    async def _send(self, patience: float) -> _Answer | None:
        """Send the pending entries one by one. Returns None when all are confirmed, else the answer that refused one.

        Raises `NoAnswer`; some entries may be stored then. An entry is sent only after the previous one is confirmed,
        because the server compares sequences alone. If entries 7 and 8 were sent together and another broker's claim
        took 7, the server would still accept 8.
        """
        link = await self._connection.link(patience)
        self._uncertain = True
        while self._pending:
            _, subject, payload = self._pending[0]
            headers = {"Nats-Expected-Last-Sequence": str(self._last)}
            answer = _parse((await link.request(subject, payload, patience, headers)).data)
            if answer.code or answer.body.get("seq") != self._last + 1:
                return answer
            self._confirm()
        self._uncertain = False
        return None

    def _confirm(self) -> None:
        """Remove the first pending entry, which is stored."""
        self._last += 1
        self._pending.popleft()
        self._doubts.clear()

    async def _settle(self, end: float) -> None:
        """Find out which of the sent entries are stored. Raises `Fenced` if another broker has written."""
        while self._pending:
            entry = await self._next(self._last + 1, max(end - monotonic(), 0.1))
            if entry is None:
                await self._information(max(end - monotonic(), 0.1))
                return
            if entry.sequence != self._last + 1 or entry.writer != self._writer:
                self._fatal = Fenced(
                    f"entry {self._last + 1} of stream {self._stream} was written by another broker"
                    f" (writer {entry.writer:x}, this one is {self._writer:x})"
                )
                raise self._fatal
            if entry.number != self._pending[0].number:
                self._fatal = Fenced(
                    f"entry {entry.sequence} of stream {self._stream} has number {entry.number},"
                    f" {self._pending[0].number} was expected"
                )
                raise self._fatal
            self._confirm()

    # Requests between brokers

    def _request_subject(self, broker: str) -> str:
        return f"{self._stream}.request.{'broker.' + _token(broker) if broker else 'active'}"

    @_in_thread
    async def request(self, command: str, broker: str) -> bool:
        self._connection.start()
        try:
            await self._connection.request(self._request_subject(broker), command.encode(), TIMEOUT)
        except NoAnswer:
            return False
        return True

    async def _on_request(self, message: Msg) -> None:
        self._asked.append(message.data.decode(errors="replace"))
        await message.respond(b"+OK")

    async def _close(self) -> None:
        await self._drop_reader()
        await self._connection.close()
        current = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        for task in tasks:
            task.cancel()  # ends the calls of other threads
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        await asyncio.sleep(0)  # let the tasks handle their cancellation


def _parse(data: bytes) -> _Answer:
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return _Answer({}, -1, f"answer {data[:80]!r} is not JetStream's")
    error = body.get("error")
    if not error:
        return _Answer(body, 0, "")
    return _Answer(body, error.get("err_code") or -1, error.get("description", ""))


def _nodes(body: Body) -> tuple[str, list[Body]]:
    """Return the name of the leader of a stream, empty without one, and its other nodes."""
    cluster = body.get("cluster", {})
    return cluster.get("leader", ""), cluster.get("replicas") or []


def _has_majority(body: Body) -> bool:
    """Return whether the leader that gave this information has recently heard from enough nodes.

    A leader without connection to the others still answers for about 10 s.
    """
    leader, others = _nodes(body)
    answering = [
        one for one in others if not one.get("offline") and 0 <= one.get("active", -1) < SILENCE * 1e9
    ]
    return bool(leader) and 1 + len(answering) > body["config"].get("num_replicas", 1) // 2


def _milliseconds(moment: datetime) -> int:
    """Return a time as epoch ms."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _version(link: Link) -> str:
    version = link.client.connected_server_version
    return f"{version.major}.{version.minor}.{version.patch}"


def _check_version(server: str, version: str) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < MIN_VERSION:
        raise UnsafeLog(
            f"NATS server {server} has version {version}, which loses confirmed entries: 2.10 or later is required"
        )


def is_local_address(address: str) -> bool:
    """Return whether a ``host:port`` is of this machine."""
    parts = urlsplit(f"//{address}")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):
        return False
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind((where[0], 0))
                return True
        except OSError:
            continue
    return False


def _varz(monitor: str) -> Body:
    """Return the page ``/varz`` of a server's monitor, empty if it cannot be read."""
    try:
        with build_opener(ProxyHandler({})).open(f"{monitor}/varz", timeout=1) as answer:
            page = json.load(answer)
    except (OSError, ValueError, HTTPException):
        return {}
    return page if isinstance(page, dict) else {}
