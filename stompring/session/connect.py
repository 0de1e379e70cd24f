"""Who connects, in which version of STOMP (STOMP 1.2, "Connecting"), and what it asks management for."""

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

#: The versions spoken, the best first.
VERSIONS = (b"1.2", b"1.1", b"1.0")

#: Clients look for "ActiveMQ" in it to know which extensions they may use.
SERVER = f"stompring/{__version__} (ActiveMQ Artemis compatible)".encode()


@dataclass(frozen=True, slots=True)
class Login:
    """Who connected, and what they may do. ``user`` is None for an anonymous client.

    ``verified``: a login by password or certificate, or the guest; else ``user`` is only what the client says.
    """

    user: str | None = None
    authorizer: Authorizer = field(default=ALLOW_ALL, compare=False, repr=False)
    verified: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client says it is, and what its connection shows of it."""

    login: str | None
    passcode: str | None = field(repr=False)
    host: str = ""  # where it is
    certificate: str | None = None  # the subject of the one that it showed, if that was verified (RFC 4514)


class Authenticator(Protocol):
    """Checks a login. The answer may come later; until then the session reads nothing."""

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        """Call ``answer`` with a login, or with None and the reason for the refusal."""


class Anonymous:
    """Lets everybody in (security-enabled false)."""

    def authenticate(self, credentials: Credentials, answer: Callable[[Login | None, str], None]) -> None:
        """At once."""
        answer(Login(credentials.login), "")


@dataclass(frozen=True, slots=True)
class ManagementRequest:
    """One request. ``done`` is called once it has been carried out, with whether it was a change."""

    headers: Mapping[bytes, bytes]
    body: bytes
    login: Login
    connection: str
    peer: str
    reply_to: ReplyTo | None  # None: nobody asked for a reply
    done: Callable[[bool], None]

    def text(self, name: bytes) -> str | None:
        """A header, None where it is absent."""
        return text_of(self.headers.get(name))


class RequestHandler(Protocol):
    """Carries out requests: those of one connection in order."""

    def handle(self, request: ManagementRequest) -> None:
        """Begin, or queue the request. Raises `Refused` while too many of its connection wait."""


class UnsupportedVersion(ProtocolError):
    """None of the client's versions is spoken here."""


def negotiate(head: Head) -> bytes:
    """The best common version; 1.0 where the client names none. Blanks around the numbers are ignored."""
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
    """An ERROR in the form that clients of all versions read."""
    headers = [(b"message", text.encode()), (b"content-type", b"text/plain")]
    return encode_frame(b"ERROR", headers, text.encode() + b"\n", b"1.0")
