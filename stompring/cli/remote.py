"""A client of the management API of a running broker: selection of the broker, login, requests, lists and errors.

It uses the standard library's http.client, without proxies. Failures are `CommandFailed` with an exit status by kind:
not found, permission or login missing, cannot connect, failed.
"""

from __future__ import annotations

import base64
import inspect
import json
import os
import re
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from .context import (
    DEFAULT_SERVER,
    Context,
    context_names,
    parse_server,
    password_for,
    read_password,
    selected,
)
from .options import YES, command, option, provided
from .output import (
    DENIED,
    FAILED,
    NOT_FOUND,
    UNREACHABLE,
    USAGE,
    Column,
    CommandFailed,
    Interrupted,
    JsonObject,
    Values,
    confirm,
    counted,
    done,
    echo_json,
    is_terminal,
    one_line,
    print_fields,
    print_table,
    progress,
    report,
    warn,
    without_none,
)

#: Fetches the list at a path of the API and prints it. Further arguments are conditions like those of ``--where``.
Listing = Callable[..., None]


def list_options(key: str) -> Any:
    """A parameter that takes the options of lists (``--search``, ``--sort``, ``--where``, ``--limit`` and so on). Its
    value is a `Listing`. ``key`` is the field that names an item."""

    def options(
        search: str | None = option("TEXT", f"Only items whose {key} contains this text, ignoring case."),
        where: tuple[str, ...] = option(
            "FIELD=VALUE",
            "Only items with this value of a field, such as paused=true. Can be given several times.",
        ),
        sort: str | None = option("FIELD", "Sort by this field; with a leading - descending: --sort=-FIELD."),
        limit: int | None = option("N", "Show the first N items only.", min=1),
        columns: str | None = option("FIELD,…", "Show these fields of the API (docs/http-api.md)."),
        quiet: bool = option("-q", "--quiet", f"Print the {key} only, one per line."),
    ) -> Listing:
        def listing(
            remote: Remote, path: Sequence[str], known: Sequence[Column], empty: str, *more: str
        ) -> None:
            filters: JsonObject = {}
            for each in (*where, *more):
                field, equals, value = each.partition("=")
                if not equals or field in ("page", "size", "search", "sort"):
                    raise click.UsageError(f"--where must be FIELD=VALUE, such as paused=true, not {each!r}")
                if field in filters:
                    raise click.UsageError(f"--where has {field} more than once")
                filters[field] = value
            answer = remote.pages(*path, limit=limit, search=search, sort=sort, **filters)
            if remote.json:
                echo_json(answer)
            elif quiet:
                for row in answer["data"]:
                    click.echo(one_line(str(row[key])))
            else:
                print_table(answer["data"], known, columns, empty)
                if (left := answer["count"] - len(answer["data"])) > 0:
                    warn(f"{left} more (--limit)")

        return listing

    return provided(options)


def list_command(
    group: click.Group, kind: str, key: str, columns: Sequence[Column], empty: str | None = None
) -> Callable[[Callable[[], None]], click.Command]:
    """Decorator: add the command ``list`` to a group. The command prints the list at the path ``kind`` of the API.

    Only the docstring of the decorated function is used: it is the help of the command.
    """

    def decorate(described: Callable[[], None]) -> click.Command:
        def called(listing: Listing = list_options(key), remote: Remote = running) -> None:
            listing(remote, [kind], columns, empty or f"no {kind}")

        called.__doc__ = described.__doc__
        return command(group, "list")(called)

    return decorate


def for_each(
    group: click.Group, names: Any, question: Callable[..., str] | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function of ``remote`` and ``name`` a command that calls it for several names, until the first failure.

    ``names`` is the argument of the command. The command asks all questions before the first call; ``--yes`` answers
    them. The error lists the names that were not tried.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        def own(**given: Any) -> JsonObject:
            return given

        _, _, *options = inspect.signature(function).parameters.values()
        own.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]

        def called(
            names: tuple[str, ...] = names,
            given: JsonObject = provided(own),
            yes: bool = provided(lambda: True) if question is None else YES,
            remote: Remote = running,
        ) -> None:
            if question:
                for text in [question(remote, name, **given) for name in names]:
                    confirm(text, yes)
            for index, name in enumerate(names, 1):
                try:
                    function(remote, name, **given)
                except CommandFailed as fault:
                    left = ", ".join(names[index:])
                    rest = f"; not tried: {left}" if left else ""
                    raise CommandFailed(fault.message + rest, fault.exit_code) from None

        called.__name__, called.__doc__ = function.__name__, function.__doc__
        return command(group)(called)

    return decorate


#: Time limits in seconds: to connect, for an answer, and for the answer to a request that changes many messages.
CONNECT_TIMEOUT, TIMEOUT, LONG_TIMEOUT = 5.0, 60.0, 3600.0

#: Idle time in seconds after which a connection is not used again: the broker closes it after 120.
REUSE = 60.0

#: Items per page of a list, the maximum of the API.
PAGE_SIZE = 1000

#: Seconds between two requests for the progress of a task.
TASK_INTERVAL = 0.2


class ApiError(CommandFailed):
    """The API answered with an error. ``http`` is the status of the answer, ``problem`` its problem+json."""

    def __init__(self, message: str, status: int, http: int, problem: Values) -> None:
        super().__init__(message, status)
        self.http = http
        self.problem = problem


@dataclass(frozen=True)
class Login:
    """A user, and the sources of the password. The password is read before the first request."""

    user: str | None
    context: Context
    prompt: bool = True
    password_file: Path | None = None
    password: str | None = field(default=None, repr=False)

    def header(self) -> str | None:
        """The header ``Authorization``, None without a user. Raises `CommandFailed` if the user has no password."""
        password = self.secret()
        if password is None:
            return None
        return f"Basic {base64.b64encode(f'{self.user}:{password}'.encode()).decode()}"

    def secret(self) -> str | None:
        """The password, None without a user. Raises `CommandFailed` if no source has a password."""
        if self.user is None:
            return None
        if ":" in self.user:
            raise click.UsageError("--user must not contain a colon")
        password = self.password
        if self.password_file:
            password = read_password(self.password_file)
        elif password is None:
            password = password_for(self.user, self.context, self.prompt)
        if password is None:
            raise CommandFailed(
                f"no password for user {self.user!r}: set STOMPRING_PASSWORD, use --password-file FILE, or a context "
                "with a password file",
                DENIED,
            )
        return password


@dataclass
class Remote:
    """A client of the API of one broker. ``json``: whether the command prints the JSON of the API."""

    server: str
    login: Login
    ca: str | Path | None = None
    timeout: float = TIMEOUT
    json: bool = False
    _connection: HTTPConnection | None = None
    _used: float = 0.0

    @cached_property
    def _authorization(self) -> str | None:
        return self.login.header()

    # ---- requests

    def get(self, *path: str, **query: object) -> Any:
        """Send a GET for a path below /api/v1. Omits parameters that are None. Returns the JSON of the answer."""
        return self.call("GET", path, query=query)

    def post(self, *path: str, body: Values | None = None, timeout: float | None = None) -> Any:
        return self.call("POST", path, body or {}, timeout=timeout)

    def patch(self, *path: str, body: Values) -> Any:
        return self.call("PATCH", path, body)

    def delete(self, *path: str, **query: object) -> Any:
        return self.call("DELETE", path, None, query, LONG_TIMEOUT)

    def call(
        self,
        method: str,
        path: tuple[str, ...],
        body: Values | None = None,
        query: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send a request. Returns the JSON of the answer, None without a body. Raises `CommandFailed`."""
        raw = None if body is None else json.dumps(body).encode()
        return self.json_of(self.open(method, path, raw, query, timeout=timeout))

    def json_of(self, answer: HTTPResponse) -> Any:
        """Read the body of an answer. Returns its JSON, None without a body. Raises `CommandFailed`."""
        text = self._read(answer)
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise self._wrong_server(answer) from None

    def stream(self, read: Callable[[], bytes]) -> Iterator[bytes]:
        """Yield the pieces of an answer. ``read`` returns the next. Raises `CommandFailed` for a lost connection."""
        try:
            while piece := read():
                yield piece
        except (HTTPException, OSError, ValueError) as fault:
            raise self._lost(fault) from None
        finally:
            self.close()

    def pages(self, *path: str, limit: int | None = None, sized: bool = True, **query: Any) -> Any:
        """All pages of a list, or its first ``limit`` items, as one page. ``sized``: requests set the page size."""
        found: list[Any] = []
        page = 0
        # all requests need the same size: page n begins at (n - 1) * size
        size = PAGE_SIZE if limit is None else min(limit, PAGE_SIZE)
        while True:
            page += 1
            answer = self.get(*path, page=page, size=size if sized else None, **query)
            found += answer["data"]
            last = len(answer["data"]) < answer["size"] or len(found) >= answer["count"]
            if last or (limit is not None and len(found) >= limit):
                return {**answer, "data": found[:limit], "page": 1, "size": max(len(found[:limit]), 1)}

    def open(
        self,
        method: str,
        path: tuple[str, ...],
        body: bytes | None = None,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        root: str = "/api/v1/",
        accepted: tuple[int, ...] = (),
    ) -> HTTPResponse:
        """Send a request; the caller reads the body. Raises `CommandFailed` for an error other than ``accepted``."""
        if "" in path:
            raise CommandFailed("a name must not be empty", USAGE)
        where = urlsplit(self.server).path + root + "/".join(quote(part, safe="") for part in path)
        if parameters := urlencode(without_none(query or {}), doseq=True):
            where += f"?{parameters}"
        sent = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        if self._authorization is not None:
            sent["Authorization"] = self._authorization
        timeout = timeout or self.timeout
        connection = self._connected()
        assert connection.sock
        connection.sock.settimeout(timeout)
        try:
            connection.request(method, where, body, sent)
            answer = connection.getresponse()
        except BaseException as fault:
            self.close()
            hint = "" if self.server.startswith("https:") else "; if the listener has TLS, use https://"
            match fault:
                case TimeoutError():
                    text = f"{self.server} sent no answer within {timeout:.0f} seconds"
                case RemoteDisconnected():
                    text = f"{self.server} closed the connection without an answer{hint}"
                case OSError():
                    raise self._lost(fault.strerror or fault) from None
                case HTTPException() | ValueError():
                    text = (
                        f"{self.server} is not the management API of a stompring broker: it does not answer in HTTP"
                        f"{hint}"
                    )
                case _:  # not a failed request: a KeyboardInterrupt, for example
                    raise
            raise CommandFailed(text, UNREACHABLE) from None
        self._used = time.monotonic()
        if answer.status >= 400 and answer.status not in accepted:
            raise self._error(answer, method, where)
        return answer

    def _connected(self) -> HTTPConnection:
        if self._connection and time.monotonic() - self._used > REUSE:
            self.close()
        if self._connection and self._connection.sock:
            return self._connection
        server = self.server
        parts = urlsplit(server)
        kind: Callable[..., HTTPConnection] = HTTPConnection
        if parts.scheme == "https":
            try:
                kind = partial(HTTPSConnection, context=ssl.create_default_context(cafile=self.ca))
            except OSError as fault:
                raise CommandFailed(f"--ca {self.ca}: {fault.strerror or fault}") from None
        connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_TIMEOUT)
        try:
            connection.connect()
        except (OSError, ValueError, HTTPException) as fault:
            text = f"cannot connect to {server}: "
            match fault:
                case ssl.SSLCertVerificationError():
                    text = f"certificate of {server} is not trusted: {fault.verify_message}; name its CA with --ca FILE"
                case ssl.SSLError():
                    reason = (fault.reason or str(fault)).lower().replace("_", " ")
                    text = f"no TLS with {server}: {reason}; if the listener has no TLS, use http://"
                case socket.gaierror():
                    text += f"unknown host ({fault.strerror})"
                case TimeoutError():
                    text += f"no answer within {CONNECT_TIMEOUT:.0f} seconds"
                case ConnectionRefusedError():
                    text += (
                        f"{(fault.strerror or str(fault)).lower()}; is the broker running? Name another one with "
                        "--server URL or --context NAME"
                    )
                case OSError():
                    text += (fault.strerror or str(fault)).lower()
                case _:
                    text += str(fault)
            raise CommandFailed(text, UNREACHABLE) from None
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection:
            connection.close()

    def _read(self, answer: HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (HTTPException, OSError) as fault:
            self.close()
            raise self._lost(fault) from None

    # ---- errors

    def _lost(self, why: object) -> CommandFailed:
        return CommandFailed(f"connection to {self.server} lost: {why}", UNREACHABLE)

    def _error(self, answer: HTTPResponse, method: str, where: str) -> CommandFailed:
        try:
            problem = json.loads(self._read(answer))
            # the broker names its query parameter; the user has the option of the command
            detail = str(problem["detail"]).replace("force=true", "--force")
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._wrong_server(answer)
        status = {401: DENIED, 403: DENIED, 404: NOT_FOUND, 429: DENIED}.get(answer.status, FAILED)
        if answer.status == 401:
            user = self.login.user
            detail = (
                f"{self.server} requires a login: use --user NAME or a context"
                if user is None
                else f"{self.server} rejected the login of user {user!r}: {detail}"
            )
        elif answer.status == 404 and detail.startswith("Path /"):
            status = FAILED
            detail = f"the broker at {self.server} does not support this command ({method} {where})"
        return ApiError(detail, status, answer.status, problem)

    def _wrong_server(self, answer: HTTPResponse) -> CommandFailed:
        if answer.status == 426:
            what = f"is a STOMP acceptor; name the management API, such as {DEFAULT_SERVER}"
        else:
            kind = answer.headers.get("Content-Type", "no content type")
            what = f"is not the management API of a stompring broker: status {answer.status}, {kind}"
        return CommandFailed(f"{self.server} {what}", UNREACHABLE)

    # ---- answers and tasks

    def report(self, answer: Any, text: str) -> None:
        """Print the API's JSON with --json, ``{}`` for an answer without a body; otherwise a line for people."""
        report(self.json, {} if answer is None else answer, text)

    def print_table(self, answer: Any, columns: Sequence[Column], empty: str = "nothing found") -> None:
        """Print the API's JSON of a list with --json, otherwise a table."""
        if self.json:
            echo_json(answer)
        else:
            print_table(answer["data"], columns, empty=empty)

    def print_record(
        self,
        record: JsonObject,
        sections: Mapping[str, Iterable[Column]],
        inner: str = "",
        columns: Sequence[Column] = (),
        numbers: Sequence[Column] = (),
    ) -> None:
        """Print the API's JSON of a record with --json, otherwise its fields, and the list in its field ``inner``.

        On a terminal, if ``numbers`` is not empty, the field ``verdict`` is first, then a table with these columns.
        """
        if self.json:
            echo_json(record)
            return
        rows = record.pop(inner, None)
        if numbers and is_terminal():
            done(record.pop("verdict"))
            if next_command := record.pop("nextCommand"):
                done(f"next: {next_command}")
            click.echo()
            print_table([record], numbers)
            click.echo()
            for column in numbers:
                record.pop(column.field, None)
        print_fields(record, sections)
        if rows:
            click.echo()
            print_table(rows, columns)

    def run_task(self, title: str, path: tuple[str, ...], body: Values, detach: bool) -> Any:
        """Start a task, show its progress until it ends, and return it. With ``detach`` return it while it runs.

        Ctrl-C cancels the task; its changes so far remain.
        """
        with _deferred_interrupt() as heed:
            task = self.post(*path, body={**body, "wait": False})
            return task if detach else self.follow_task(title, str(task["taskID"]), heed)

    def cancel_task(self, task_id: str) -> Any:
        """Cancel a task, wait up to `CANCEL_TIMEOUT` for its end, and return it."""
        try:
            self.delete("tasks", task_id)
        except ApiError as fault:
            if fault.http != 409:  # 409: the task has ended
                raise
        deadline = time.monotonic() + CANCEL_TIMEOUT
        while True:
            task = self.get("tasks", task_id)
            if task["state"] != "running" or time.monotonic() > deadline:
                return task
            time.sleep(0.02)

    def follow_task(self, title: str, task_id: str, heed: Callable[[], None] = lambda: None) -> Any:
        """Show the progress of a task until its end, and return the task. Ctrl-C cancels the task.

        ``heed`` is called first: it raises KeyboardInterrupt if Ctrl-C was pressed earlier.
        """
        try:
            heed()
            with progress(title) as step:
                interval = 0.01
                while True:
                    task = self.get("tasks", task_id)
                    step(task.get("done") or 0, task.get("total"))
                    if task["state"] != "running":
                        break
                    time.sleep(interval)
                    interval = min(interval * 2, TASK_INTERVAL)
        except KeyboardInterrupt:
            self.close()
            try:
                task = self.cancel_task(task_id)
            except CommandFailed as fault:
                raise Interrupted(
                    f"interrupted; task {task_id} may still be running: {fault.message}"
                ) from None
            messages = counted(task.get("done") or 0, "message")
            if task["state"] not in ("cancelled", "running"):
                raise Interrupted(f"interrupted; task {task_id} had {task['state']}: {messages}") from None
            raise Interrupted(
                f"interrupted: task {task_id} cancelled after {messages}, which stay "
                f"{_PAST.get(task.get('operation', ''), 'done')}"
            ) from None
        if task["state"] != "completed":
            reason = task.get("error") or task["state"]
            messages = counted(task.get("done") or 0, "message")
            raise CommandFailed(f"task {task_id} {task['state']} after {messages}: {reason}")
        return task


#: Time limit in seconds for the end of a cancelled task. A task ends after its current time slice.
CANCEL_TIMEOUT = 10.0

#: Past participles for messages, by operation of a task.
_PAST = {
    "move": "moved",
    "copy": "copied",
    "retry": "moved",
    "remove": "removed",
    "expire": "expired",
    "purge": "removed",
}


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Context manager: record Ctrl-C while a task starts, so that the task can be cancelled.

    Yields a function that ends the recording, and raises KeyboardInterrupt if Ctrl-C was recorded. A second Ctrl-C
    during the recording raises KeyboardInterrupt immediately.
    """
    interrupts: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)

    def heed() -> None:
        signal.signal(signal.SIGINT, previous)
        if interrupts:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, record)
    try:
        yield heed
    finally:
        signal.signal(signal.SIGINT, previous)


# ---- options


@dataclass(frozen=True)
class ServerOptions:
    """The options that select a broker."""

    server: str | None = option(
        "URL", f"Management API of the broker. Environment: STOMPRING_SERVER.  [default: {DEFAULT_SERVER}]"
    )
    context: str | None = option(
        "NAME",
        "Context of the broker (stompring context). Environment: STOMPRING_CONTEXT.  [default: the current]",
        shell_complete=context_names,
    )
    user: str | None = option(
        "NAME",
        "User to log in as; password from STOMPRING_PASSWORD, the context or a prompt. Environment: STOMPRING_USER.",
    )
    password_file: Path | None = option("FILE", "File with the password.", exists=True)
    ca: Path | None = option(
        "FILE",
        "Trusted CA certificates (PEM) for https. Environment: STOMPRING_CA.  [default: the system's]",
        exists=True,
    )

    def remote(self, as_json: bool = False, prompt: bool = True, timeout: float = TIMEOUT) -> Remote:
        """A client of the selected broker. Options precede environment variables, and these precede contexts."""
        server = self.server or os.environ.get("STOMPRING_SERVER") or None
        found = selected(self.context or os.environ.get("STOMPRING_CONTEXT") or None, "server", server)
        login = Login(
            self.user or os.environ.get("STOMPRING_USER") or found.user, found, prompt, self.password_file
        )
        address = parse_server(server or found.server or DEFAULT_SERVER)
        return Remote(address, login, self.ca or os.environ.get("STOMPRING_CA") or found.ca, timeout, as_json)


server_options = provided(ServerOptions)


@provided
def running(
    options: ServerOptions = server_options, as_json: bool = option("--json", "Print the JSON of the API.")
) -> Iterator[Remote]:
    """A client of the running broker that the options of a command select."""
    with closing(options.remote(as_json)) as remote:
        yield remote


# ---- completion

#: Names without special characters. Completion offers no other names, because shells insert names without quotes.
SAFE = re.compile(r"[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*")

#: Time limit of a completion in seconds, and maximum number of names that it requests.
COMPLETION_TIMEOUT, MOST = 2.0, 200


def _names_of(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            given = ServerOptions(*(context.params.get(each.name) for each in fields(ServerOptions)))
            answer = given.remote(prompt=False, timeout=COMPLETION_TIMEOUT).get(
                kind, search=incomplete, size=MOST
            )
            found = [str(each["name"]) for each in answer["data"]]
        except (click.ClickException, OSError, KeyError, TypeError):
            return []
        return [name for name in found if name.startswith(incomplete) and SAFE.fullmatch(name)]

    return complete


#: Functions that complete the names of queues and of addresses. They ask the broker.
QUEUE_NAMES, ADDRESS_NAMES = _names_of("queues"), _names_of("addresses")
