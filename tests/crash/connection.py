"""A STOMP 1.2 connection on asyncio that may be cut off at any moment, and tells what it was promised before."""

import asyncio
import re
import socket
import struct
from dataclasses import dataclass

#: Seconds that anything may take which a living broker answers at once.
PATIENCE = 30.0

_CODES = {r"\n": "\n", r"\r": "\r", r"\c": ":", r"\\": "\\"}
_ESCAPES = {meaning: code for code, meaning in _CODES.items()}


async def within(promise, seconds=PATIENCE):
    """Wait for something, but not for ever. Raises `TimeoutError`."""
    async with asyncio.timeout(seconds):  # asyncio.wait_for may swallow a cancellation
        await promise


class ConnectionBroken(Exception):
    """The connection is gone, whoever closed it."""


class Refused(AssertionError):
    """The broker sent an ERROR, which nothing in these loads deserves."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came."""

    command: str
    headers: dict[str, str]
    body: bytes


def frame_bytes(command, headers, body=b""):
    """One frame, with its content-length where it has a body."""
    if body:
        headers = {**headers, "content-length": len(body)}
    lines = "".join(f"{_escaped(name)}:{_escaped(value)}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def _escaped(value):
    return re.sub(r"[\n\r:\\]", lambda found: _ESCAPES[found[0]], str(value))


def _plain(text):
    return re.sub(r"\\.", lambda found: _CODES[found[0]], text) if "\\" in text else text


class Connection(asyncio.Protocol):
    """One connection. Messages go to whoever has their subscription; receipts end the futures of `ask`."""

    def __init__(self):
        self.lost = False
        self.refused = None
        self.may_refuse = False  # an ERROR is as good as a lost connection
        self.receivers = {}
        self.on_lost = []
        self._buffer = bytearray()
        self._waiting = {}
        self._next_receipt = 1
        self._connected = asyncio.get_running_loop().create_future()
        self._flowing = asyncio.Event()
        self._transport = None

    @classmethod
    async def open(cls, port, client_id=None, address="127.0.0.1", **more):
        """Connect and log in. Raises `Lost`."""
        try:
            _, wire = await asyncio.get_running_loop().create_connection(cls, address, port)
        except OSError as fault:
            raise ConnectionBroken(str(fault)) from None
        headers = {"accept-version": "1.2", "host": "localhost", **more}
        if client_id is not None:
            headers["client-id"] = client_id
        try:
            wire.send("CONNECT", headers)
            await within(wire._connected)
        except BaseException:  # an actor that is cancelled, too, leaves no connection behind
            wire.drop()
            raise
        return wire

    # ---- saying

    def send(self, command, headers, body=b""):
        """Write a frame. Raises `Lost`."""
        if self.lost or self._transport is None or self._transport.is_closing():
            raise ConnectionBroken
        self._transport.write(frame_bytes(command, headers, body))

    def ask(self, command, headers, body=b""):
        """Write a frame with a receipt; the future ends when that has come, with `Lost` where it never will."""
        receipt = f"r{self._next_receipt}"
        self._next_receipt += 1
        self.send(command, {**headers, "receipt": receipt}, body)
        promise = asyncio.get_running_loop().create_future()
        promise.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody need look at it
        self._waiting[receipt] = promise
        return promise

    async def flowing(self):
        """Wait while the broker does not read."""
        await within(self._flowing.wait())
        if self.lost:
            raise ConnectionBroken

    async def leave(self):
        """DISCONNECT in good order."""
        await within(self.ask("DISCONNECT", {}))
        self.drop()

    def drop(self):
        """Hang up without a word."""
        if self._transport is not None and not self.lost:
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
            self.connection_lost(None)

    # ---- hearing

    def connection_made(self, transport):
        """asyncio: the connection is there."""
        self._transport = transport
        self._flowing.set()

    def pause_writing(self):
        """asyncio: the socket takes no more."""
        self._flowing.clear()

    def resume_writing(self):
        """asyncio: the socket takes more."""
        self._flowing.set()

    def data_received(self, data):
        """asyncio: bytes have come."""
        self._buffer += data
        while (frame := self._cut()) is not None:
            self._take(frame)

    def connection_lost(self, exc):
        """asyncio: it is over. What was not promised by now never will be."""
        if self.lost:
            return
        self.lost = True
        self._flowing.set()
        for promise in [self._connected, *self._waiting.values()]:
            if not promise.done():
                promise.set_exception((not self.may_refuse and self.refused) or ConnectionBroken())
        self._waiting.clear()
        for call in self.on_lost:
            call()

    def _cut(self):
        buffer = self._buffer
        while buffer[:1] == b"\n":
            del buffer[:1]
        end = buffer.find(b"\n\n")
        if end < 0:
            return None
        command, *lines = buffer[:end].decode().split("\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(_plain(name), _plain(value))
        start = end + 2
        length = headers.get("content-length")
        stop = buffer.find(b"\0", start) if length is None else start + int(length)
        if stop < 0 or stop >= len(buffer):
            return None
        assert buffer[stop] == 0, f"no NUL after the body: {bytes(buffer[: stop + 1])!r}"
        frame = Frame(command, headers, bytes(buffer[start:stop]))
        del buffer[: stop + 1]
        return frame

    def _take(self, frame):
        if frame.command == "MESSAGE":
            receiver = self.receivers.get(frame.headers["subscription"])
            if receiver is not None:
                receiver(frame)
        elif frame.command == "RECEIPT":
            promise = self._waiting.pop(frame.headers["receipt-id"])
            if not promise.done():
                promise.set_result(None)
        elif frame.command == "CONNECTED":
            self._connected.set_result(None)
        elif "shutting down" not in frame.headers.get("message", ""):
            self.refused = Refused(f"the broker refuses: {frame.headers.get('message')}")
