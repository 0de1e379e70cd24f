"""A STOMP connection that sends and waits for receipts: all that an import needs."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

import click

from stompring.stomp.frames import header_line, unescape

#: Seconds that the broker may take for anything. A full address may hold an import up, but not for ever.
PATIENCE = 300.0
CHUNK = 64 * 1024

Headers = Iterable[tuple[bytes, bytes]]


class StompConnection:
    """Speaks STOMP 1.2. Everything that goes wrong becomes a `click.ClickException` with the broker's own words."""

    def __init__(
        self,
        host: str,
        port: int,
        client: str,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``tls`` where the broker is to show a certificate, and what it is checked against."""
        self._name = f"{host}:{port}"
        self._buffer = b""
        self._out: list[bytes] = []
        try:
            self._socket = socket.create_connection((host, port), timeout=PATIENCE)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as fault:
            raise click.ClickException(f"cannot reach the broker's STOMP at {self._name}: {fault}") from None
        headers = [(b"accept-version", b"1.2"), (b"host", host.encode()), (b"heart-beat", b"0,0")]
        headers.append((b"client-id", client.encode()))
        if login is not None:
            headers += [(b"login", login[0].encode()), (b"passcode", login[1].encode())]
        self.add(b"CONNECT", headers)
        self.flush()
        self._expect(b"CONNECTED")

    def close(self) -> None:
        """Hang up. What was not committed does not count."""
        self._socket.close()

    def add(self, command: bytes, headers: Headers, body: bytes = b"") -> None:
        """A frame to be sent with the next `flush`."""
        version = b"1.0" if command == b"CONNECT" else b"1.2"
        lines = b"".join([header_line(name, value, version) for name, value in headers])
        if body:
            lines += b"content-length:%d\n" % len(body)
        self._out.append(b"%b\n%b\n%b\0\n" % (command, lines, body))

    def flush(self) -> None:
        """Send what was added."""
        data = b"".join(self._out)
        self._out.clear()
        try:
            self._socket.sendall(data)
        except OSError as fault:
            self._say_error()
            raise self._lost(fault) from None

    def receipt(self) -> bytes:
        """Wait for the next RECEIPT and give its id."""
        return self._expect(b"RECEIPT")[b"receipt-id"]

    def _expect(self, command: bytes) -> dict[bytes, bytes]:
        found, headers = self._frame()
        if found == b"ERROR":
            text = headers.get(b"message", b"").decode("utf-8", "replace")
            raise click.ClickException(f"the broker at {self._name} refuses: {text}")
        if found != command:
            raise click.ClickException(f"the broker at {self._name} sent {found!r} instead of {command!r}")
        return headers

    def _frame(self) -> tuple[bytes, dict[bytes, bytes]]:
        # neither of the frames that come here has a body with a NUL in it
        while b"\0" not in self._buffer:
            try:
                data = self._socket.recv(CHUNK)
            except OSError as fault:
                raise self._lost(fault) from None
            if not data:
                raise self._lost("it closed the connection")
            self._buffer += data
        frame, _, self._buffer = self._buffer.partition(b"\0")
        command, *lines = frame.lstrip(b"\r\n").partition(b"\n\n")[0].split(b"\n")
        pairs = (line.partition(b":") for line in lines)
        return command, {name: unescape(value, b"1.2") for name, _, value in pairs}

    def _say_error(self) -> None:
        """An ERROR that came before the connection broke tells more than the breaking."""
        self._socket.settimeout(1.0)
        while True:
            self._expect(b"RECEIPT")

    def _lost(self, fault: object) -> click.ClickException:
        return click.ClickException(f"the connection to the broker at {self._name} is lost: {fault}")
