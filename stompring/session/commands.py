"""The frames of one client: the session reads and processes them one after the other.

A `ProtocolError` or `Refused` becomes an ERROR frame with its text, and the connection closes (STOMP 1.2, "ERROR").
Any other exception is a bug: the session logs it with its traceback, and the ERROR frame refers to the log.

CONNECT, STOMP and DISCONNECT: version, login, and CONNECTED (STOMP 1.2, "Connecting").
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from stompring.broker.broker import Broker
from stompring.broker.clock import Timer, cancel
from stompring.broker.limits import UNCOUNTED, MemoryLimit
from stompring.errors import ProtocolError, Refused
from stompring.settings.model import StompAcceptor
from stompring.stomp.frames import Head
from stompring.stomp.parser import Parser

from .connect import SERVER, Authenticator, Credentials, Login, negotiate
from .destination import Destinations
from .outbox import Blocked, InProgress, Outgoing, Wire, agree, printable, shortened, text_of
from .send import HEADER_USE, SendEvaluation, on_SEND, resume_SEND
from .session import Session
from .subscribe import on_SUBSCRIBE, on_UNSUBSCRIBE
from .transact import SETTLING, on_ABORT, on_ACK, on_BEGIN, on_COMMIT, on_NACK

log = logging.getLogger(__name__)

#: Steps (`Effort`) that the frames of one client may cost before other clients are served: some milliseconds. A SEND
#: costs as much only with many similar wildcard addresses, wildcards chosen to be slow, or many consumers with
#: selectors. The creation of twenty addresses costs as much, too.
STEPS: Final = 2_000

#: Numbers of frames of one read that are neither SEND nor ACK: each of them may take long. After `OTHERS_AT_ONCE` of
#: them each further one reads the clock; `OTHERS_ALWAYS` are processed in an exhausted time slice, too (for BEGIN and
#: COMMIT).
OTHERS_AT_ONCE, OTHERS_ALWAYS = 4, 2

#: Number of frames of one read that are processed before the clock is read. A read of ordinary SENDs has a few
#: more than that.
FRAMES_AT_ONCE: Final = 256

#: Seconds of work on the frames of one read after which other clients are served.
READ_SLICE: Final = 0.002

Frame = tuple[Head, bytes]


class StompSession(Session):
    """A connection from its first byte to its last."""

    def __init__(
        self,
        broker: Broker,
        acceptor: StompAcceptor,
        destinations: Destinations,
        authenticator: Authenticator,
        wire: Wire,
        outgoing: Outgoing,
        number: str,
    ) -> None:
        super().__init__(broker, acceptor, destinations, wire, outgoing, number)
        limits = acceptor.limits
        self.authenticator = authenticator
        self._parser = Parser(
            limits.max_body_length, limits.max_headers, limits.max_header_length, HEADER_USE
        )
        self.unfinished = 0  # bytes of the unfinished frame that the parser holds
        self.carried = 0  # bytes of an unfinished WebSocket frame, which the parser does not have yet
        self._holds = False  # whether `UnfinishedFrames` of the broker counts the unfinished frame
        self._deferred_frames: list[Frame] = []  # frames that were received while the session waits
        self.awaiting_login = False
        #: the blocked SEND, with the answers of policies so far
        self._offered: SendEvaluation | None = None
        self._resumed_by: MemoryLimit | None = None  # the limit that is resuming this blocked producer
        self._pause: Timer | None = None  # end of the delay that a policy demands

    def receive(self, data: bytes) -> None:
        """Process bytes from the client. Frames that must wait are deferred."""
        self.heartbeat.last_read = self.steady.now
        if self.closed or self.leaving:
            return
        frames = self._parser.feed(data)
        self.unfinished = held = self._parser.held
        if held + self.carried > UNCOUNTED or self._holds:
            self._holds = self.broker.unfinished.hold(self, held + self.carried)
        if self.blocked:
            self._deferred_frames += frames
            return
        was_connected = self.connected
        if len(frames) > FRAMES_AT_ONCE:
            self._process_in_slices(frames)
        else:
            self._process(frames)
        if self.connected and not was_connected and not self.closed:
            # the parser defers the bytes after CONNECT until the version is known
            self.receive(b"")
            return
        error = self._parser.error
        if error is not None and not (self._deferred_frames or self.closed or self.leaving):
            self.fail(error, None)

    def _process_in_slices(self, frames: list[Frame], offered: SendEvaluation | None = None) -> None:
        """Process frames until `READ_SLICE` is over. Then defer the remaining frames, and serve other clients first."""
        now = self.broker.background.now
        end = now() + READ_SLICE
        while True:
            self._process(frames[:FRAMES_AT_ONCE], offered)
            frames, offered = frames[FRAMES_AT_ONCE:], None
            if not frames or self.closed or self.leaving:
                return
            if self.blocked or self.awaiting_login:
                self._deferred_frames += frames
                if self.blocked_by is not None:
                    self._process_settlements()
                return
            if now() >= end:
                self._deferred_frames = frames
                self._defer_to_next_slice()
                return

    def _process(self, frames: list[Frame], offered: SendEvaluation | None = None) -> None:
        """Process frames. ``offered``: evaluation of the first frame, if that is a SEND that was blocked."""
        head = None
        taken = 0
        # whether ACKs may overtake a blocked SEND; they never overtake work on their messages
        may_pass = True
        paging = self.broker.paging
        effort, slices = self.broker.effort, self.broker.frame_slices
        enough = effort.steps + STEPS
        others = 0
        try:
            try:
                if paging is not None:
                    paging.gathering = True  # append the messages of these SENDs to a page together
                if offered is not None:
                    head = offered.head
                    resume_SEND(self, offered)
                    taken = 1
                for head, body in frames[taken:] if taken else frames:
                    command = head.command
                    if command == b"SEND" and self.connected:
                        on_SEND(self, head, body)
                    else:
                        if paging is not None and paging.gathered:
                            paging.write_gathered()
                        if command == b"ACK" and self.connected:
                            on_ACK(self, head, body)
                        else:
                            verb = VERBS.get(command)
                            if verb is None or not self.connected:
                                verb = opening_command(head, self.connected)
                            verb(self, head, body)
                            others += 1
                            if others >= OTHERS_ALWAYS and (
                                slices.exhausted or (others > OTHERS_AT_ONCE and slices.is_over())
                            ):
                                enough = -1
                    taken += 1
                    if self.closed or self.awaiting_login or self.leaving:
                        break
                    if effort.steps > enough:
                        break
            finally:  # write the gathered messages before an exception is handled
                if paging is not None:
                    paging.gathering = False
                    if paging.gathered:
                        paging.write_gathered()
        except Blocked as wait:
            self._wait_for(wait)
        except InProgress:
            taken += 1
            may_pass = False
        except (ProtocolError, Refused) as error:
            self.fail(error, head)
        except Exception:
            log.exception(
                "session %s: %s failed", self.number, head.command if head else b"", extra=self.log_fields()
            )
            self.fail(Refused("Internal error; see the broker's log"), head)
        if self.credit_freed is not None:
            subscription, self.credit_freed = self.credit_freed, None
            if not subscription.ended:
                subscription.on_writable()
        if taken < len(frames) and not (self.closed or self.leaving):
            self._deferred_frames = frames[taken:] + self._deferred_frames
            if self.blocked:
                if may_pass:
                    self._process_settlements()
            elif not self.awaiting_login:
                self._defer_to_next_slice()

    def discard_input(self) -> None:
        self._parser.discard()
        self.broker.unfinished.forget(self)
        self._deferred_frames.clear()
        self._unblock()
        if self._offered is not None:
            self._offered.refused("the connection was closed")
            self._offered = None

    def await_login(self) -> None:
        """Pause reading until `go_on`: the check of the login must end before the negotiated version applies."""
        self.awaiting_login = True
        self.outbox.reading.pause()

    def speak(self, version: bytes) -> None:
        """Read and write further frames in the version that CONNECT has negotiated."""
        self.version = version
        self.connected = True
        self._parser.negotiated(version)

    # ---- waiting

    def _wait_for(self, wait: Blocked) -> None:
        """Pause reading until the limit is no longer full (BLOCK), or for the delay that a policy demands."""
        self._offered = wait.offered
        self.blocked_by = wait.address
        wait.address.block(wait.limit)
        self.block()
        if wait.limit is not None:
            wait.limit.waiting.append(partial(self._on_limit_freed, wait.limit))
        else:
            clock = self.steady
            self._pause = clock.call_at(clock.refresh() + wait.milliseconds, self.go_on)

    def _defer_to_next_slice(self) -> None:
        """Process the deferred frames after other clients were served."""
        self.block()
        self.broker.frame_slices.defer(self._resume_in_slice)

    def _resume_in_slice(self) -> None:
        self.go_on()
        self.broker.frame_slices.is_over()

    def _on_limit_freed(self, limit: MemoryLimit) -> None:
        self._resumed_by = limit
        self.broker.clock.soon(self.go_on)

    def _unblock(self) -> None:
        if self.blocked_by is not None:
            self.blocked_by.blocked_producers -= 1
            self.blocked_by = None
        cancel(self._pause)
        self._pause = None
        self.blocked = self.heartbeat.suspended = False

    def _process_settlements(self) -> None:
        """Process the ACKs and NACKs received after a blocked SEND: they may free the memory that it waits for."""
        passing: list[Frame] = []
        held: list[Frame] = []
        for frame in self._deferred_frames:
            head, _ = frame
            passes = head.command in SETTLING and b"transaction" not in head.headers
            (passing if passes else held).append(frame)
        self._deferred_frames = held
        if passing:
            self._process(passing)

    def go_on(self) -> None:
        limit, self._resumed_by = self._resumed_by, None
        try:
            if not self.closed:
                self._unblock()
                held, self._deferred_frames = self._deferred_frames, []
                self.broker.clock.refresh()
                offered, self._offered = self._offered, None
                self._process_in_slices(held, offered)
                if not self.blocked and not self.closed:
                    self.receive(b"")
                if not self.blocked and not self.closed:
                    self.outbox.reading.resume()
        finally:
            if limit is not None:
                limit.resumed()


def on_CONNECT(session: StompSession, head: Head, body: bytes) -> None:
    """Process CONNECT or STOMP: negotiate version and heart-beats, check the login."""
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
        if waited:  # process the input received during the check of the login
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


def _welcome(session: StompSession, head: Head, version: bytes, login: Login) -> None:
    headers = head.headers
    pace = agree(
        text_of(headers.get(b"heart-beat")),
        session.acceptor,
        session.broker.configuration.connection_ttl_override,
    )
    session.broker.directory.resource_limits.enter(login.user)
    authorizer = login.authorizer.on_connection(session.number)
    session.login = login if authorizer is login.authorizer else replace(login, authorizer=authorizer)
    session.client_id = text_of(headers.get(b"client-id"))
    session.speak(version)
    answer = [
        (b"version", version),
        (b"session", session.number.encode()),
        (b"heart-beat", b"%d,%d" % (pace.send, pace.expect)),
    ]
    if not session.acceptor.disable_stomp_server_header:
        answer.append((b"server", SERVER))
    if b"request-id" in headers:
        answer.append((b"response-id", headers[b"request-id"]))
    _log_connected(session)
    session.send(b"CONNECTED", answer)
    session.receipt(head)
    session.heartbeat.start(pace)
    session.check_expiry()


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
    """Close the connection after a last receipt, which follows the receipts of all earlier frames."""

    def end() -> None:
        if not session.closed:
            session.receipt(head)
            session.close("DISCONNECT")

    session.leaving = session.heartbeat.suspended = True
    session.broker.storage.when_synced(end)  # the answer comes when all changes of this client are stored


Verb = Callable[[StompSession, Head, bytes], None]

VERBS: dict[bytes, Verb] = {
    b"SEND": on_SEND,
    b"ACK": on_ACK,
    b"NACK": on_NACK,
    b"SUBSCRIBE": on_SUBSCRIBE,
    b"UNSUBSCRIBE": on_UNSUBSCRIBE,
    b"BEGIN": on_BEGIN,
    b"COMMIT": on_COMMIT,
    b"ABORT": on_ABORT,
    b"DISCONNECT": on_DISCONNECT,
}


def opening_command(head: Head, connected: bool) -> Verb:
    """Return the handler of the first frame of a connection, which must be CONNECT or STOMP.

    Raises `ProtocolError` for other first frames, a second CONNECT, and unknown commands.
    """
    command = shortened(head.command)
    if head.command in (b"CONNECT", b"STOMP"):
        if connected:
            raise ProtocolError(f"{command} on a connection that is already connected")
        return on_CONNECT
    if not connected:
        raise ProtocolError(f"Connection has not been established: the first frame is {command}, not CONNECT")
    raise ProtocolError(f"Unknown command {command!r}")
