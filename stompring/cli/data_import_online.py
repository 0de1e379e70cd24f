"""Importing into a running broker: queues over HTTP, messages over STOMP.

STOMP cannot carry everything: the time a message was sent and its sender, its delivery count, and that several queues
share one message are lost. An offline import keeps all of it.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import click

from stompring.broker.transfer import BROKERS_OWN, IMPORTED
from stompring.cli.data_transfer import StompConnection, check_declared
from stompring.pipeline.stomp.endpoint import parse_address, trusting
from stompring.settings import options
from stompring.settings.acceptor import HttpAcceptor, StompAcceptor
from stompring.settings.match import is_internal
from stompring.settings.model import BrokerConfiguration, QueueConfiguration
from stompring.store.export import (
    DeclaredQueue,
    PortableAddress,
    PortableMessage,
    PortableQueue,
    QueueEntry,
    header_pairs,
)

#: Seconds that an answer may take.
REQUEST_TIMEOUT = 60.0


class NotFound(Exception):
    """There is no such queue or address."""


class ManagementApi:
    """Asks one broker. Everything that goes wrong becomes a `click.ClickException` with the broker's own words."""

    def __init__(
        self, root: str, login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """``root`` is ``http://HOST:PORT``, or ``https://`` with what its certificate is checked against in ``tls``."""
        self._root = root.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if login is not None:
            secret = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"
        # a broker is not behind the proxy for the web
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=tls))

    def ask(
        self, method: str, path: tuple[str, ...], body: Mapping[str, Any] | None = None, **query: object
    ) -> Any:
        """``/api/v1/`` and the parts of ``path``. Raises `Missing`."""
        where = "/api/v1/" + "/".join(quote(part, safe="") for part in path)
        where += f"?{urlencode(query)}" if query else ""
        data, headers = None, dict(self._headers)
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = Request(self._root + where, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=REQUEST_TIMEOUT) as answer:
                text = answer.read()
        except HTTPError as error:
            if error.code == 404:
                raise NotFound(where) from None
            raise click.ClickException(f"broker rejected {method} {where}: {_reason(error)}") from None
        except (URLError, OSError, HTTPException) as fault:
            reason = getattr(fault, "reason", fault)
            raise click.ClickException(
                f"cannot connect to the management API at {self._root}: {reason}"
            ) from None
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise click.ClickException(
                f"{self._root} is not a management API: the response is not JSON"
            ) from None


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


#: Fields of a queue that the HTTP interface takes in POST and PATCH, and those that it takes in POST only.
CHANGEABLE = (
    *(row.json_name for row in options.options_of(QueueConfiguration) if row.http == options.CHANGEABLE),
    "paused",
)
IMMUTABLE = (
    "routingType",
    *(row.json_name for row in options.options_of(QueueConfiguration) if row.http == options.CREATE_ONLY),
)

#: Headers that a message has of itself, or that mean something else in a SEND.
NOT_SENT = frozenset(
    {
        b"_AMQ_DUPL_ID",
        b"content-length",
        b"destination",
        b"expires",
        b"message-id",
        b"persistent",
        b"priority",
        b"receipt",
        b"transaction",
    }
)

#: Seconds to wait for the end of an earlier import of the same file.
EARLIER_IMPORT_TIMEOUT = 10.0

#: Queues or addresses that are asked for at a time.
PAGE_SIZE = 1000

#: Transactions that may be under way before the first of them is known to be safe.
MAX_UNCONFIRMED = 8


#: What `OnlineImport.commit` writes.
_NUMBER = re.compile(r"[0-9]{1,18}")


class OnlineImport:
    """Takes in what an import finds in its file. ``begin`` first, then everything in the order of the file."""

    most_messages, most_bytes = 500, 1024 * 1024

    def __init__(self, api: ManagementApi, connect: Callable[[str], StompConnection]) -> None:
        """``connect`` opens a connection with a client-id."""
        self._api = api
        self._connect = connect
        self._connection: StompConnection | None = None
        self._marker = ""
        self._addresses: dict[str, Mapping[str, Any]] = {}  # that were there before, as are these
        self._queues: dict[str, Mapping[str, Any]] = {}
        self._types: dict[str, str] = {}  # routing types of queues
        self._transactions = 0
        self._open = False

    def __enter__(self) -> OnlineImport:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def _stomp(self) -> StompConnection:
        assert self._connection is not None, "begin comes first"
        return self._connection

    def begin(self, marker: str) -> int:
        """How many messages of this file have come already: what the queue ``marker`` says, which is made here."""
        self._marker = marker
        self._be_alone()
        self._connection = self._connect(marker)
        self._addresses = dict(self._all("addresses"))
        self._queues = dict(self._all("queues"))
        if marker not in self._queues:
            made = {"name": marker, "routingType": "ANYCAST", "durable": True, "ringSize": 1}
            self._api.ask("POST", ("queues",), made)
            return 0
        found = self._api.ask("GET", ("queues", marker, "messages"))["data"]
        return max((int(each["body"]) for each in found if _NUMBER.fullmatch(each["body"])), default=0)

    def _all(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for page in count(1):
            found = self._api.ask("GET", (kind,), page=page, size=PAGE_SIZE)["data"]
            yield from ((each["name"], each) for each in found)
            if len(found) < PAGE_SIZE:
                return

    def _be_alone(self) -> None:
        """What an earlier import of this file still has under way would come too late to be counted."""
        deadline = time.monotonic() + EARLIER_IMPORT_TIMEOUT
        while self._api.ask("GET", ("connections",), clientID=self._marker)["count"]:
            if time.monotonic() > deadline:
                raise click.ClickException("another import of this file is in progress")
            time.sleep(0.1)

    def address(self, address: PortableAddress) -> None:
        """Make an address, or give one that is there the routing types it lacks."""
        if is_internal(address.name):
            return
        types = {str(each) for each in address.routing_types}
        there = self._addresses.get(address.name)
        if there is None:
            made = {"name": address.name, "routingTypes": sorted(types), "paused": address.paused}
            self._api.ask("POST", ("addresses",), made)
            return
        changed = {"routingTypes": sorted(types.union(there["routingTypes"])), "paused": address.paused}
        if any(value != there[name] for name, value in changed.items()):
            self._api.ask("PATCH", ("addresses", address.name), changed)

    def queue(self, queue: PortableQueue) -> None:
        """Make a queue, or give one that is there the same attributes."""
        if is_internal(queue.name):
            return
        given = queue.fields()
        wanted = {name: given[name] for name in (*IMMUTABLE, *CHANGEABLE)}
        self._types[queue.name] = given["routingType"]
        there = self._queues.get(queue.name)
        if there is None:
            made = {"name": queue.name, "address": queue.address, **wanted}
            self._api.ask("POST", ("queues",), made)
            return
        if there["address"] != queue.address:
            raise click.ClickException(
                f"queue {queue.name} is bound to address {there['address']} in the broker, not to {queue.address}"
            )
        if any(value != there[name] for name, value in wanted.items()):
            self._api.ask("PATCH", ("queues", queue.name), wanted)

    def declare(self, queue: DeclaredQueue) -> None:
        """Make a queue with the defaults of its address; one that is there stays as it is."""
        self._types[queue.name] = queue.routing_type
        there = self._queues.get(queue.name)
        if there is not None:
            check_declared(queue, there["address"], there["routingType"])
            return
        made = {"name": queue.name, "address": queue.address, "routingType": queue.routing_type}
        self._api.ask("POST", ("queues",), {**made, "durable": True, "filter": queue.filter})

    def message(self, message: PortableMessage) -> None:
        """Send a message to each of its queues, in the transaction that is open. Internal queues are left out."""
        for place in message.places:
            if not is_internal(place.queue):
                self._send(self._headers(message, place), message.body)

    def commit(self, done: int) -> None:
        """Everything since the last time counts, and with it that ``done`` messages of the file have come."""
        self._send([(b"destination", b"::" + self._marker.encode()), (b"persistent", b"true")], b"%d" % done)
        name = self._name()
        self._stomp.add(b"COMMIT", [(b"transaction", name), (b"receipt", self._stomp.next_receipt())])
        self._stomp.flush()
        self._open = False
        self._stomp.await_receipts(MAX_UNCONFIRMED)

    def settle(self) -> None:
        """Wait until all of it is safe."""
        self._stomp.await_receipts()

    def finish(self) -> None:
        """The import is complete and reported: the queue that said how far it is may go."""
        with suppress(NotFound):
            self._api.ask("DELETE", ("queues", self._marker))

    def _name(self) -> bytes:
        return b"import-%d" % self._transactions

    def _send(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        if not self._open:
            self._open = True
            self._transactions += 1
            self._stomp.add(b"BEGIN", [(b"transaction", self._name())])
        self._stomp.add(b"SEND", [*headers, (b"transaction", self._name())], body)

    def _headers(self, message: PortableMessage, place: QueueEntry) -> list[tuple[bytes, bytes]]:
        traits = message.traits
        headers = [
            (b"destination", b"::" + place.queue.encode()),
            (b"persistent", b"true" if traits.durable else b"false"),
            (b"priority", b"%d" % traits.priority),
        ]
        if message.expires:
            headers.append((b"expires", b"%d" % message.expires))
        headers += _timing(place)
        if not BROKERS_OWN.isdisjoint(name for name, _ in header_pairs(traits.block)):
            headers.append((IMPORTED, b"true"))
        own = self._types.get(place.queue, "").encode()
        for name, value in header_pairs(traits.block):
            if name not in NOT_SENT and (name != b"destination-type" or value == own):
                headers.append((name, value))
        return headers


def _timing(place: QueueEntry) -> list[tuple[bytes, bytes]]:
    if not place.due:
        return []
    headers = [(b"AMQ_SCHEDULED_TIME", b"%d" % place.due)]
    recurrence = place.recurrence
    if recurrence is not None:
        if recurrence.repeat:
            headers.append((b"AMQ_SCHEDULED_PERIOD", b"%d" % recurrence.period))
            headers.append((b"AMQ_SCHEDULED_REPEAT", b"%d" % recurrence.repeat))
        if recurrence.cron is not None:
            headers.append((b"AMQ_SCHEDULED_CRON", recurrence.cron.encode()))
            headers.append((b"AMQ_SCHEDULED_DELAY", b"%d" % recurrence.delay))
    return headers


@dataclass(frozen=True, slots=True)
class Endpoints:
    """``[ssl://]HOST:PORT`` and ``http[s]://HOST:PORT``, None where nobody has said it."""

    stomp: str | None
    http: str | None
    ca_file: Path | None = None

    def completed(self, meant: BrokerConfiguration) -> Endpoints:
        """With what a broker.xml says where nobody else has. Raises `click.ClickException` where it says nothing."""
        found = replace(self, stomp=self.stomp or _stomp(meant), http=self.http or _http(meant))
        if found.stomp is None or found.http is None:
            option = "--stomp HOST:PORT" if found.stomp is None else "--http URL"
            raise click.ClickException(f"a broker is running on the data directory: specify {option}")
        return found

    def stomp_place(self) -> tuple[str, int, bool]:
        """Host, port, and whether it is TLS. Raises `click.UsageError`."""
        try:
            return parse_address(self.stomp or "")
        except ValueError as reason:
            raise click.UsageError(f"--stomp {reason}") from None

    def http_root(self) -> str:
        """The URL. Raises `click.UsageError`."""
        root = self.http or ""
        if not root.startswith(("http://", "https://")):
            raise click.UsageError(f"--http must be a URL such as http://localhost:8161, not {root!r}")
        return root

    def context(self) -> ssl.SSLContext:
        """What certificates are checked with. Raises `click.ClickException` for a file that has none."""
        try:
            return trusting(self.ca_file)
        except OSError as fault:
            raise click.ClickException(f"--ca-file {self.ca_file}: {fault}") from None


def _stomp(meant: BrokerConfiguration) -> str | None:
    """A listener that takes STOMP as it is."""
    return _first([each for each in meant.stomp_acceptors if not each.websocket.only], "", "ssl://")


def _http(meant: BrokerConfiguration) -> str | None:
    return _first(meant.http_acceptors, "http://", "https://")


def _first(acceptors: Iterable[StompAcceptor | HttpAcceptor], plain: str, secure: str) -> str | None:
    """The first of them that anybody may connect to, one without TLS if there is one."""
    open_ = [each for each in acceptors if each.port and each.proxy is None]
    for each in sorted(open_, key=lambda each: each.tls is not None):
        return f"{secure if each.tls else plain}{_loopback(each.host)}:{each.port}"
    return None


def _loopback(host: str) -> str:
    """An address to connect to where a listener takes all."""
    if host in ("0.0.0.0", "::"):  # nosec B104
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # nosec B104
    return f"[{host}]" if ":" in host else host
