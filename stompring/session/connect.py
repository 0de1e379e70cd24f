"""CONNECT, STOMP and DISCONNECT: version, login, and the welcome (STOMP 1.2, "Connecting")."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from stompring import __version__
from stompring.errors import ProtocolError, Refused
from stompring.stomp.frames import Head, encode_frame

from .destination import ALLOW_ALL, Authorizer
from .outbox import agree, printable, shortened, text_of

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger(__name__)

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


def on_CONNECT(session: Session, head: Head, body: bytes) -> None:
    """CONNECT or STOMP: agree on a version and a pace, check who it is."""
    headers = head.headers
    version = negotiate(head)
    waited = answered = False

    def answer(login: Login | None, reason: str) -> None:
        nonlocal answered
        answered = True
        if session.closed:
            return
        session.awaiting_login = False
        if login is None:
            session.broker.notifications.notify(
                "SECURITY_AUTHENTICATION_VIOLATION",
                f"login over STOMP failed: {reason}",
                user=printable(credentials.login) if credentials.login is not None else None,
                remoteAddress=session.peer,
            )
            session.fail(Refused(reason), head)
            return
        try:
            _welcome(session, head, version, login)
        except (ProtocolError, Refused) as error:
            session.fail(error, head)
            return
        if waited:  # what came in the meantime is still to be done
            session.go_on()

    credentials = Credentials(
        text_of(headers.get(b"login")),
        text_of(headers.get(b"passcode")),
        session.wire.host,
        session.wire.certificate,
    )
    session.authenticator.authenticate(credentials, answer)
    if not answered:
        waited = True
        session.await_login()


def _welcome(session: Session, head: Head, version: bytes, login: Login) -> None:
    headers = head.headers
    override = session.broker.configuration.connection_ttl_override
    pace = agree(text_of(headers.get(b"heart-beat")), session.acceptor, override)
    session.broker.directory.resource_limits.enter(login.user)
    authorizer = login.authorizer.on_connection(session.number)
    session.login = login if authorizer is login.authorizer else replace(login, authorizer=authorizer)
    session.client_id = text_of(headers.get(b"client-id"))
    session.speak(version)
    answer = [(b"version", version), (b"session", session.number.encode())]
    answer.append((b"heart-beat", b"%d,%d" % (pace.send, pace.expect)))
    if not session.acceptor.disable_stomp_server_header:
        answer.append((b"server", SERVER))
    if b"request-id" in headers:
        answer.append((b"response-id", headers[b"request-id"]))
    _log_connected(session)
    session.send(b"CONNECTED", answer)
    session.receipt(head)
    session.heartbeat.start(pace)


def _log_connected(session: Session) -> None:
    version = session.version.decode()
    user, client_id = session.login.user, session.client_id
    fields: dict[str, object] = {**session.log_fields(), "version": version}
    text = "anonymous" if user is None else f"user {printable(user)}"
    if client_id is not None:
        fields["client_id"] = client_id
        text += f", client-id {printable(client_id)}"
    session.notify(
        "CONNECTION_CREATED",
        f"connection {session.number} logged in: {text}, STOMP {version}",
        clientID=client_id,
    )
    session.notify_session("SESSION_CREATED", f"session of connection {session.number} began")
    session.broker.log_limit.info(
        log,
        "connection logged in",
        "connection %s (%s) logged in: %s, STOMP %s",
        session.number,
        session.peer,
        text,
        version,
        fields=fields,
    )


def on_DISCONNECT(session: Session, head: Head, body: bytes) -> None:
    """The client says good-bye; its receipt is the last frame it gets, after those of all it has sent."""
    session.leave(lambda: session.receipt(head))


def error_frame(text: str) -> bytes:
    """An ERROR in the form that clients of all versions read."""
    headers = [(b"message", text.encode()), (b"content-type", b"text/plain")]
    return encode_frame(b"ERROR", headers, text.encode() + b"\n", b"1.0")
