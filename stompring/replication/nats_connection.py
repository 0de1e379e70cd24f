"""A connection to one of several NATS servers. It is made again for ever, to the next server that answers.

nats-py speaks the protocol. Its own reconnecting is off: it buffers what is published meanwhile, waits seconds between
attempts, and stays with a server that answers pings while its JetStream does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from ..settings.model import ReplicatedLogSettings
from ..settings.references import revealed
from .log import LogUnavailable, UnsafeLog

DEFAULT_PORT, DEFAULT_MONITOR_PORT = 4222, 8222

#: Seconds. Attempts to connect start one after the other, the first that succeeds is used.
STAGGER, CONNECT_TIMEOUT = 0.25, 2.0
#: A request without an answer for as long: does the server answer at all?
STALL = 0.5
PING_INTERVAL = 2

Callback = Callable[[Msg], Awaitable[None]]


class NoAnswer(Exception):
    """A request has no answer: time is up, the connection is lost, or nobody listens. Its effect is unknown."""


class NoListener(NoAnswer):
    """The server says that nobody listens on the subject now: no leader, or no stream."""


@dataclass(frozen=True, slots=True)
class NatsUrl:
    """``nats://host:port,host:port?monitor=…``: the servers, and the addresses of their monitors."""

    servers: tuple[str, ...]
    monitors: tuple[str, ...]
    is_tls: bool

    @classmethod
    def parse(cls, url: str, monitor: str | None = None) -> NatsUrl:
        """Raises `UnsafeLog` for one that cannot be used.

        ``monitor``, here or in the URL, is a port (of every server), a list of addresses ``http://host:port``, or
        empty: there is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.netloc:
            raise UnsafeLog(f"url {url!r}: expected nats://host:port,… or tls://host:port,…")
        if "@" in parts.netloc:
            raise UnsafeLog("url: write the user and the password as attributes, not into the url")
        options = parse_qs(parts.query, keep_blank_values=True)
        if unknown := set(options) - {"monitor"}:
            raise UnsafeLog(f"url: unknown option {sorted(unknown)[0]!r}; known: monitor")
        servers, hosts = [], []
        for one in parts.netloc.split(","):
            try:
                server = urlsplit(f"nats://{one.strip()}")
                host, port = server.hostname, server.port or DEFAULT_PORT
            except ValueError:
                host = None
            if not host:
                raise UnsafeLog(f"url: {one!r} is not a host and port")
            host = f"[{host}]" if ":" in host else host
            servers.append(f"{parts.scheme}://{host}:{port}")
            hosts.append(host)
        if monitor is None:
            monitor = ",".join(options.get("monitor", [str(DEFAULT_MONITOR_PORT)]))
        if monitor.isdigit():
            monitors = [f"http://{host}:{monitor}" for host in hosts]
        else:
            monitors = [one.strip().rstrip("/") for one in monitor.split(",") if one.strip()]
            for one in monitors:
                if not one.startswith(("http://", "https://")):
                    raise UnsafeLog(f"url: monitor {one!r} is not a port and not http://host:port")
        return cls(tuple(servers), tuple(monitors), parts.scheme == "tls")


def tls_context(settings: ReplicatedLogSettings, is_tls: bool) -> ssl.SSLContext | None:
    """The context for the files of the settings; None where neither they nor the URL demand TLS."""
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
    """nats-py connects in the clear, password included, where the server does not ask for TLS."""

    demands_tls = False

    @property
    def is_greeted(self) -> bool:
        """The server has introduced itself."""
        return bool(self._server_info)

    def _connect_command(self) -> bytes:
        if self.demands_tls and not self._server_info.get("tls_required"):
            raise NatsError("the server does not offer TLS")
        return super()._connect_command()


@dataclass(eq=False, slots=True)
class Link:
    """One connection to one server, until it is lost."""

    client: Client
    server: str
    inbox: str
    lost: asyncio.Event = field(default_factory=asyncio.Event)
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

    async def send(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[Msg]:
        """Publish; the answer comes with the future, or `NoAnswer`."""
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        if self.lost.is_set():
            raise NoAnswer("connection lost")
        self._tokens += 1
        token = str(self._tokens)
        self._waiting[token] = future
        future.add_done_callback(lambda done: self._waiting.pop(token, None) and None)
        try:
            await self.client.publish(
                subject, payload, reply=f"{self.inbox}.{token}", headers=dict(headers) if headers else None
            )
        except (NatsError, OSError) as fault:
            future.cancel()
            self.drop()
            raise NoAnswer(f"connection lost: {fault}") from None
        return future

    async def wait(self, future: asyncio.Future[Msg], timeout: float) -> Msg:
        """The answer. Raises `NoAnswer`, after which it is not awaited any more."""
        stall = min(timeout, STALL)
        done, _ = await asyncio.wait((future,), timeout=stall)
        if not done and timeout > stall:
            self.check()
            done, _ = await asyncio.wait((future,), timeout=timeout - stall)
        if not done:
            future.cancel()
            raise NoAnswer(f"no answer for {timeout:.1f} s")
        return future.result()

    def check(self) -> None:
        """Drop the link unless the server answers a ping soon."""
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(self._ping())

    async def _ping(self) -> None:
        try:
            await asyncio.wait_for(self.client.flush(timeout=1), STALL)
        except (NatsError, OSError, TimeoutError):
            self.drop()

    def drop(self) -> None:
        """Give the link up: requests under way fail, another is made."""
        if self.lost.is_set():
            return
        self.lost.set()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(NoAnswer("connection lost"))
                future.exception()  # not all are awaited
        self._waiting.clear()


class NatsConnection:
    """Runs on one event loop; every coroutine of it does."""

    def __init__(self, settings: ReplicatedLogSettings) -> None:
        self.url = NatsUrl.parse(settings.url, settings.monitor)
        self._settings = settings
        self._tls = tls_context(settings, self.url.is_tls)
        self._next = 0
        self._link: Link | None = None
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._subscriptions: dict[str, tuple[Callback, Subscription | None]] = {}
        #: Why the last attempt to connect failed, or what the server has against this connection.
        self.fault = ""

    def start(self) -> None:
        """Connect, and stay connected until `close`."""
        if self._task is None:
            self._task = asyncio.create_task(self._stay_connected())

    async def link(self, timeout: float) -> Link:
        """The link in use. Raises `LogUnavailable` without one."""
        if self._link is None or self._link.lost.is_set():
            try:
                await asyncio.wait_for(self._wait_connected(), max(timeout, 0.001))
            except TimeoutError:
                servers = ", ".join(self.url.servers)
                raise LogUnavailable(
                    f"no NATS server of {servers} answers" + (f": {self.fault}" if self.fault else "")
                ) from None
        assert self._link is not None
        return self._link

    async def _wait_connected(self) -> None:
        while self._link is None or self._link.lost.is_set():
            await self._connected.wait()
            await asyncio.sleep(0)

    def rotate(self) -> None:
        """Go to the next server."""
        if self._link is not None:
            self._link.drop()

    async def request(
        self, subject: str, payload: bytes, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """One request over the link in use. Raises `NoAnswer`, `LogUnavailable`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        link = await self.link(timeout)
        future = await link.send(subject, payload, headers)
        return await link.wait(future, max(end - loop.time(), 0.001))

    async def subscribe(self, subject: str, callback: Callback) -> None:
        """Subscribe on this and every later link."""
        self._subscriptions[subject] = (callback, None)
        if self._link is not None and not self._link.lost.is_set():
            await self._subscribe(self._link)

    async def unsubscribe(self, subject: str) -> None:
        _, subscription = self._subscriptions.pop(subject, (None, None))
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()

    async def _subscribe(self, link: Link) -> None:
        for subject, (callback, subscription) in list(self._subscriptions.items()):
            if subscription is None:
                subscription = await link.client.subscribe(subject, cb=callback)
                self._subscriptions[subject] = (callback, subscription)

    async def _stay_connected(self) -> None:
        while True:
            link = await self._connect()
            self.fault = ""
            try:
                await self._subscribe(link)
            except (NatsError, OSError) as fault:
                self.fault = str(fault)
                link.drop()
            self._link = link
            self._connected.set()
            await link.lost.wait()
            self._connected.clear()
            self._link = None
            for subject, (callback, _) in list(self._subscriptions.items()):
                self._subscriptions[subject] = (callback, None)
            self._dispose(link.client)

    async def _connect(self) -> Link:
        """Try the servers, each a moment after the one before, for ever."""
        while True:
            attempts: set[asyncio.Task[Link]] = set()
            try:
                for at in range(len(self.url.servers)):
                    server = self.url.servers[(self._next + at) % len(self.url.servers)]
                    attempts.add(asyncio.create_task(self._attempt(server)))
                    if link := await self._first(attempts, STAGGER):
                        return link
                if link := await self._first(attempts, CONNECT_TIMEOUT + STAGGER, every=True):
                    return link
            finally:
                for attempt in attempts:
                    attempt.cancel()
                    attempt.add_done_callback(self._dispose_late)
            await asyncio.sleep(STAGGER)

    async def _first(
        self, attempts: set[asyncio.Task[Link]], timeout: float, every: bool = False
    ) -> Link | None:
        """The first link that was made within a time; None as soon as no attempt is under way."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while attempts and (left := end - loop.time()) > 0:
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
        """Connect to one server."""
        client = _Client()
        client.demands_tls = self._tls is not None
        settings = self._settings
        links: list[Link] = []

        async def closed() -> None:
            for link in links:
                link.drop()

        async def on_error(fault: Exception) -> None:
            if not links:  # otherwise nats-py waits and tries again
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
            if isinstance(fault, ConnectionError) and client.is_greeted:
                raise NatsError(
                    f"{server} refuses the authorization: check user, password, credentials, certificate"
                ) from None
            raise

    def _dispose(self, client: Client) -> None:
        task = asyncio.create_task(_close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._link is not None:
            link, self._link = self._link, None
            link.drop()
            self._dispose(link.client)
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=1)


def _check_credentials(path: str | None) -> None:
    """nats-py reads a file without these lines for ever."""
    if path is not None:
        text = Path(path).read_bytes()
        if b"BEGIN NATS USER JWT" not in text or b"BEGIN USER NKEY SEED" not in text:
            raise OSError(f"{path} is not a credentials file of NATS")


async def _close(client: Client) -> None:
    """Close a client. A server that is stopped must not keep the socket open."""
    transport = getattr(getattr(client, "_transport", None), "_io_writer", None)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.close(), 0.5)
    with contextlib.suppress(Exception):
        if transport is not None:
            transport.transport.abort()
