"""What is common to all ways that an import can go: the file from its first line to its last."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import click

from stompring.cli.data import progress
from stompring.errors import ProtocolError
from stompring.stomp.client import StompClient
from stompring.stomp.frames import encode_frame
from stompring.store.export import (
    DeclaredQueue,
    Entry,
    InvalidExport,
    PortableAddress,
    PortableMessage,
    PortableQueue,
)


class ImportTarget(Protocol):
    """Where an import goes."""

    most_messages: int  # that may count together
    most_bytes: int  # of their bodies

    def begin(self, marker: str) -> int:
        """How many messages of this file have come already; ``marker`` is the queue that remembers it."""

    def address(self, address: PortableAddress) -> None:
        """An address is to be there."""

    def queue(self, queue: PortableQueue) -> None:
        """A queue is to be there, as it is told here."""

    def declare(self, queue: DeclaredQueue) -> None:
        """A queue is to be there, with the attributes that the broker gives it; one that is there keeps its own."""

    def message(self, message: PortableMessage) -> None:
        """A message comes."""

    def commit(self, done: int) -> None:
        """Everything since the last time counts, and with it that ``done`` messages of the file have come."""

    def settle(self) -> None:
        """Wait until all of it is safe."""

    def finish(self) -> None:
        """The import is complete and reported."""


class ImportFile(Protocol):
    """A file that can be imported."""

    size: int  # in bytes

    @property
    def position(self) -> int:
        """Bytes that were read."""

    def identify(self) -> str:
        """What tells this file from others. Raises `InvalidExport` where its end is missing."""

    def entries(self) -> Iterator[Entry]:
        """All that is in it. Raises `InvalidExport` with file and line."""

    def wrong(self, text: str) -> InvalidExport:
        """A fault in the line read last."""


def transfer(file: ImportFile, receiver: ImportTarget) -> tuple[int, int]:
    """Bring in all that is in a file; returns how many messages it has, and how many of them had come before.

    Raises `InvalidExport` with file and line.
    """
    identity = file.identify()
    with progress("importing", file.size) as step:
        before = receiver.begin(f"stompring.import.{identity}")
        count = waiting = size = position = 0
        for entry in file.entries():
            if not isinstance(entry, PortableMessage):
                _prepare(file, receiver, entry)
                continue
            count += 1
            if count <= before:
                continue
            receiver.message(entry)
            waiting, size = waiting + 1, size + len(entry.body)
            if waiting >= receiver.most_messages or size >= receiver.most_bytes:
                receiver.commit(count)
                waiting = size = 0
                step(file.position - position)
                position = file.position
        if waiting:
            receiver.commit(count)
        receiver.settle()
        step(file.size - position)
    return count, min(before, count)


def _prepare(
    file: ImportFile, receiver: ImportTarget, entry: PortableAddress | PortableQueue | DeclaredQueue
) -> None:
    try:
        if isinstance(entry, PortableAddress):
            receiver.address(entry)
        elif isinstance(entry, PortableQueue):
            receiver.queue(entry)
        else:
            receiver.declare(entry)
    except click.ClickException as fault:
        raise file.wrong(fault.message) from None


def check_declared(queue: DeclaredQueue, address: str, routing_type: str) -> None:
    """Whether a queue of the broker can take the messages of one in a file. Raises `click.ClickException`."""
    if address != queue.address:
        raise click.ClickException(
            f"queue {queue.name} is bound to address {address} in the broker, not to {queue.address}"
        )
    if routing_type != queue.routing_type:
        raise click.ClickException(
            f"queue {queue.name}: routing-type is {routing_type} in the broker and {queue.routing_type} in the file"
        )


#: Seconds that the broker may take for anything. A full address may hold an import up, but not for ever.
TIMEOUT = 300.0
CHUNK = 64 * 1024

Headers = Iterable[tuple[bytes, bytes]]


class StompConnection:
    """Speaks STOMP 1.2. Every fault becomes a `click.ClickException` with the broker's own words."""

    def __init__(
        self,
        host: str,
        port: int,
        client: str,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``client`` is the client-id; ``tls`` is given where the broker's certificate is to be verified."""
        self._name = f"{host}:{port}"
        self._client = StompClient()
        user, passcode = login or (None, None)
        self._out: list[bytes] = [self._client.connect(host, user, passcode, client)]
        try:
            self._socket = socket.create_connection((host, port), timeout=TIMEOUT)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as fault:
            raise click.ClickException(
                f"cannot connect to the broker's STOMP at {self._name}: {fault}"
            ) from None
        self.flush()
        self._receive_until(lambda: self._client.connected is not None)

    def close(self) -> None:
        """Close the socket. What was not committed does not count."""
        self._socket.close()

    def add(self, command: bytes, headers: Headers, body: bytes = b"") -> None:
        """A frame to be sent with the next `flush`."""
        self._out.append(encode_frame(command, headers, body))

    def next_receipt(self) -> bytes:
        """The ``receipt`` header of a frame that is added next."""
        return self._client.next_receipt().encode()

    def flush(self) -> None:
        """Send what was added."""
        data = b"".join(self._out)
        self._out.clear()
        try:
            self._socket.sendall(data)
        except OSError as fault:
            self._socket.settimeout(1.0)
            self._receive_until(lambda: False, fault)  # an ERROR from before says more than the fault

    def await_receipts(self, most: int = 0) -> None:
        """Wait until at most ``most`` of the receipts that were asked for are still to come."""
        self._receive_until(lambda: self._client.unconfirmed <= most)

    def _receive_until(self, done: Callable[[], bool], fault: object = None) -> None:
        """Read until ``done``, an ERROR, or the end; ``fault`` is why the connection is lost in any case."""
        client = self._client
        while client.error is None and not done():
            try:
                data = self._socket.recv(CHUNK)
            except OSError as failed:
                raise self._lost(fault or failed) from None
            if not data:
                raise self._lost(fault or "closed by the broker")
            try:
                client.receive(data)
            except ProtocolError as invalid:
                raise click.ClickException(
                    f"the broker at {self._name} sent invalid STOMP: {invalid}"
                ) from None
        if client.error is not None:
            raise click.ClickException(f"the broker at {self._name} sent an ERROR: {client.error_text}")

    def _lost(self, fault: object) -> click.ClickException:
        return click.ClickException(f"connection to the broker at {self._name} lost: {fault}")
