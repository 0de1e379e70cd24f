"""Finds the STOMP broker and the login in the options of a command. Maps failed connections to exit codes."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from urllib.parse import unquote

import click

from stompring.pipeline.stomp.connection import (
    SCHEMES,
    BrokerError,
    Connection,
    ConnectionFailed,
    Endpoint,
    parse_address,
)
from stompring.settings.model import frozen

from .context import PASSWORD_VARIABLE, Context, password_for, selected
from .options import option, provided
from .output import DENIED, FAILED, NOT_FOUND, UNREACHABLE, CommandFailed, Interrupted, ask_password, one_line

DEFAULT_BROKER = "stomp://127.0.0.1:61613"
PORT, TLS_PORT = 61613, 61612

#: Bytes of frames that are joined for one write.
CHUNK = 1 << 16

#: Versions for a command that works with all versions of STOMP.
ANY_VERSION = "1.0,1.1,1.2"

#: Interval of heart-beats in ms. They keep an idle connection open, and detect the loss of the broker.
HEART_BEAT = 10_000

# parts of the error texts of stompring, Artemis, RabbitMQ and ActiveMQ Classic for a login or a missing permission
_LOGIN = re.compile(
    r"security error|does not have permission|not authoriz|access (?:refused|denied)|bad connect|login|passw|passcode"
    r"|authenticat|credential",
    re.IGNORECASE,
)
_ABSENT = re.compile(r"does not exist|not found|no queue|no exchange", re.IGNORECASE)


#: Exceptions of a failed connection or request.
FAILURES = BrokerError, ConnectionFailed


class WaitInterrupted(Exception):
    """SIGINT arrived while the command waited."""


@frozen
class StompEndpoint(Endpoint):
    """Address and login of a broker, from the options of a command. Error texts show the user, not the password."""

    login_option: str = "--user NAME"

    def without_secrets(self, text: str, passcode: str | None) -> str:
        return text if not passcode else text.replace(passcode, "***")


def parse_broker(text: str) -> tuple[str, int, bool, str | None]:
    """Host, port, TLS and user of ``stomp://[USER@]HOST[:PORT]`` or ``stomp+ssl://…``. Raises `ValueError`."""
    scheme, separator, rest = text.strip().rstrip("/").rpartition("://")
    if separator and scheme in ("ws", "wss", "http", "https"):
        raise ValueError(
            f"must be stomp://HOST:PORT or stomp+ssl://HOST:PORT; {scheme}:// is not supported here"
        )
    login, _, place = rest.rpartition("@")
    if ":" in login:
        raise ValueError("must not have a password in it: set STOMPRING_PASSWORD, or use --password-file")
    if separator and scheme not in SCHEMES:
        raise ValueError(f"must begin with stomp:// or stomp+ssl://, not {scheme!r}")
    tls = scheme in ("stomp+ssl", "ssl")
    if place and not re.search(r":[0-9]*$|\]:", place.rpartition("]")[2] or place):
        place = f"{place}:{TLS_PORT if tls else PORT}"
    host, port, _ = parse_address(place)
    return host, port, tls, unquote(login) or None


def resolve(
    end: str | None,
    broker: str | None = option(
        "URL",
        "stomp://[USER@]HOST:PORT, or stomp+ssl:// for TLS. Default: that of the context, "
        f"else {DEFAULT_BROKER}; STOMPRING_BROKER.",
        envvar="STOMPRING_BROKER",
    ),
    user: str | None = option(
        "NAME",
        "Login. The password comes from --password-file, STOMPRING_PASSWORD, the context or a prompt; STOMPRING_USER.",
        envvar="STOMPRING_USER",
    ),
    password_file: Path | None = option("FILE", "File whose first line is the password."),
    ca: Path | None = option(
        "FILE",
        "Certificates (PEM) to check the broker's certificate with; STOMPRING_CA. Default: those of the system.",
        envvar="STOMPRING_CA",
    ),
    context_name: str | None = option("--context", "NAME", "Use this context ('stompring context')."),
    virtual_host: str | None = option("NAME", "The host header of CONNECT. Default: the host."),
    connect_timeout: float = option(
        "DURATION", "Give up after so long without any progress of the connection.", default="30s"
    ),
) -> StompEndpoint:
    """Return the broker that options, environment and context describe. Raises `click.UsageError`.

    ``end``: ``from`` or ``to`` for a command with two brokers, else None. Each of the two brokers has its own
    environment variable for the password: the password of one broker must not be sent to the other.
    """
    context = selected(context_name, "broker", broker)
    try:
        host, port, tls, named = parse_broker(broker or context.broker or DEFAULT_BROKER)
    except ValueError as fault:
        raise click.UsageError(
            f"{'broker of the context' if broker is None else '--' + (end or 'broker')} {fault}"
        ) from None
    login = user or named or context.user
    if ca is None and context.ca is not None:
        ca = Path(context.ca).expanduser()
    return StompEndpoint(
        host,
        port,
        user=login,
        password=None if login is None else _password(login, password_file, context, end),
        virtual_host=virtual_host,
        timeout=max(connect_timeout, 0.1),
        heart_beat=HEART_BEAT,
        tls=tls,
        ca_file=ca,
        login_option="--user NAME" if end is None else f"--{end} stomp://NAME@HOST:PORT",
    )


stomp_broker = provided(partial(resolve, None))


def _password(user: str, file: Path | None, context: Context, end: str | None) -> str:
    variable, option = PASSWORD_VARIABLE, "--password-file"
    if end is not None:
        variable, option = f"STOMPRING_{end.upper()}_PASSWORD", f"--{end}-password-file"
    if file:
        try:
            return file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
        except (OSError, UnicodeDecodeError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
            raise click.UsageError(f"{option} {file} cannot be read: {why}") from None
    password = password_for(user, context, prompt=False, variable=variable)
    if password is not None:
        return password
    try:  # the prompt uses the terminal itself: standard input may contain messages
        with open("/dev/tty", "rb"):
            pass
    except OSError:
        raise click.UsageError(
            f"no password for user {user!r}: set {variable}, or use {option} FILE"
        ) from None
    at = "" if end is None else f" for --{end}"
    return ask_password(f"Password of {one_line(user)}{at}")


class Interrupts:
    """Turns SIGINT into `WaitInterrupted`, but only while a connection waits for its socket.

    A signal at another time takes effect at the next wait, so that it cannot interrupt a change of state.
    """

    def __init__(self) -> None:
        self.requested = False
        self._waiting = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Context manager: install the handler of SIGINT, and restore the previous one at the end."""
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context manager for a wait, which SIGINT may end with `WaitInterrupted`."""
        self._waiting = True
        try:
            self.check()
            yield
        finally:
            self._waiting = False

    def check(self) -> None:
        """Raise `WaitInterrupted` if a signal has arrived."""
        if self.requested:
            self.requested = False
            raise WaitInterrupted

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._waiting:
            self.check()


class CommandConnection(Connection):
    """A connection whose waits SIGINT ends with `WaitInterrupted`."""

    def __init__(
        self,
        endpoint: Endpoint,
        interrupts: Interrupts,
        versions: str = "1.2",
        on_receipt: Callable[[bytes], None] | None = None,
    ) -> None:
        self._interrupts = interrupts
        super().__init__(endpoint, versions, on_receipt)

    def _wait(self, events: int, seconds: float) -> int:
        if seconds <= 0:
            return super()._wait(events, seconds)
        with self._interrupts.waiting():
            return super()._wait(events, seconds)

    def write(self, frames: Iterable[bytes]) -> None:
        """Send frames, joined into writes of about `CHUNK` bytes."""
        parts, size = [], 0
        for each in frames:
            parts.append(each)
            size += len(each)
            if size > CHUNK:
                self.send(b"".join(parts))
                parts, size = [], 0
        if parts:
            self.send(b"".join(parts))


def failure(fault: BrokerError | ConnectionFailed, more: str = "") -> CommandFailed:
    """The error of a command for a failed connection or request, with the exit code for its cause."""
    text = str(fault) + more
    if isinstance(fault, ConnectionFailed):
        return CommandFailed(text, UNREACHABLE)
    if _LOGIN.search(str(fault)):
        return CommandFailed(text, DENIED)
    return CommandFailed(text, NOT_FOUND if _ABSENT.search(str(fault)) else FAILED)


@contextmanager
def connected(
    endpoint: Endpoint,
    interrupts: Interrupts,
    versions: str = "1.2",
    on_receipt: Callable[[bytes], None] | None = None,
    kind: type[CommandConnection] = CommandConnection,
) -> Iterator[CommandConnection]:
    """Context manager: yield an open connection. Raises `CommandFailed` if it cannot be opened."""
    try:
        connection = kind(endpoint, interrupts, versions, on_receipt)
    except FAILURES as fault:
        hint = ""
        if isinstance(fault, BrokerError) and endpoint.user is None and _LOGIN.search(str(fault)):
            hint = f"; log in with {getattr(endpoint, 'login_option', '--user NAME')}"
        raise failure(fault, hint) from None
    except WaitInterrupted:
        raise Interrupted("interrupted before the connection was open") from None
    try:
        yield connection
    finally:
        connection.drop()
