"""Logins, the negotiation of the STOMP version (STOMP 1.2, "Connecting"), and management requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stompring import __version__
from stompring.broker.publish import ReplyTo
from stompring.errors import ProtocolError
from stompring.stomp.frames import Head, encode_frame

from .destination import ALLOW_ALL, Authorizer
from .outbox import shortened, text_of

#: Supported versions, best first.
VERSIONS = (b"1.2", b"1.1", b"1.0")

#: The server header of CONNECTED. Clients search it for "ActiveMQ" to decide which extensions they use.
SERVER = f"stompring/{__version__} (ActiveMQ Artemis compatible)".encode()


@dataclass(frozen=True, slots=True)
class Login:
    """The user of a connection and the permissions of the user. ``user`` is None for an anonymous client. ``verified``:
    the login was by password or certificate, or is that of the guest. If False, ``user`` is an unverified name.
    """

    user: str | None = None
    authorizer: Authorizer = field(default=ALLOW_ALL, compare=False, repr=False)
    verified: bool = field(default=False, compare=False)
    expires: int | None = field(default=None, compare=False)  # epoch ms, None if the login does not expire


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials in a CONNECT frame, and data of the connection."""

    login: str | None
    passcode: str | None = field(repr=False)
    host: str = ""  # host of the client
    certificate: str | None = None  # subject of the verified client certificate (RFC 4514)


class Authenticator(Protocol):
    """Checks logins. The answer may come later; until then the session reads nothing."""

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        """Call ``answer`` with a login and an empty text, or with None and the reason of the refusal."""


class Anonymous:
    """Accepts every login (security-enabled false)."""

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        answer(Login(credentials.login), "")


@dataclass(frozen=True, slots=True)
class ManagementRequest:
    """A management request. ``done`` is called when the request is complete. Its argument is whether the request has
    changed anything.
    """

    headers: Mapping[bytes, bytes]
    body: bytes
    login: Login
    connection: str
    peer: str
    reply_to: ReplyTo | None  # None: no reply is requested
    done: Callable[[bool], None]

    def text(self, name: bytes) -> str | None:
        """Return the text of a header, None if it is absent."""
        return text_of(self.headers.get(name))


class RequestHandler(Protocol):
    """Carries out management requests, those of one connection in order."""

    def handle(self, request: ManagementRequest) -> None:
        """Start or queue the request. Raises `Refused` if too many requests of its connection wait."""


class UnsupportedVersion(ProtocolError):
    """The broker supports no version that the client offers."""


def negotiate(head: Head) -> bytes:
    """Return the best common version; 1.0 if the client names none. Ignores blanks around the numbers.

    Raises `UnsupportedVersion`.
    """
    requested = head.headers.get(b"accept-version")
    if requested is None:
        return b"1.0"
    offered = {part.strip() for part in requested.split(b",")}
    for version in VERSIONS:
        if version in offered:
            return version
    raise UnsupportedVersion(
        f"Stomp versions not supported: {shortened(requested)}. Supported protocol versions are 1.0, 1.1 and 1.2"
    )


def error_frame(text: str) -> bytes:
    """Encode an ERROR frame that clients of all versions can read."""
    headers = [(b"message", text.encode()), (b"content-type", b"text/plain")]
    return encode_frame(b"ERROR", headers, text.encode() + b"\n", b"1.0")
