"""``stompring context``, and ``stompring completion bash|zsh|fish``.

The file contexts.json stores brokers by name: their URLs, users and certificates.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from .options import JSON, YES, argument, command, option
from .output import (
    NOT_FOUND,
    CommandFailed,
    ask_password,
    bracketed,
    columns,
    confirm,
    echo_json,
    every,
    human_text,
    print_fields,
    print_table,
    report,
    without_none,
)


def context_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of contexts that begin with ``incomplete``, for the shell."""

    try:
        return [name for name in sorted(Contexts.read().contexts) if name.startswith(incomplete)]
    except click.ClickException:
        return []


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Raise ValueError unless ``name`` can be the name of a context or a broker."""
    if not NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits, '.', '_' and '-'")


class Context(NamedTuple):
    """One broker. A field that is None is not set: its default applies."""

    server: str | None = None
    broker: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None

    def given(self) -> dict[str, str]:
        """The fields that are set, by name."""
        return without_none(self._asdict())


def directory() -> Path:
    """The directory of contexts.json: ``$XDG_CONFIG_HOME/stompring``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "stompring")


def contexts_file() -> Path:
    """The path of contexts.json."""
    return directory() / "contexts.json"


@dataclass
class Contexts:
    """The file contexts.json."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Contexts:
        """Read the file; a missing file counts as empty. Raises `CommandFailed`."""
        file = contexts_file()
        try:
            text = file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        except (OSError, UnicodeDecodeError) as fault:
            raise CommandFailed(f"cannot read the contexts in {file}: {fault}") from None
        try:
            found = json.loads(text)
            contexts = {name: _context(name, each) for name, each in found.get("contexts", {}).items()}
            current = found.get("current")
        except (ValueError, AttributeError, RecursionError) as fault:
            raise CommandFailed(f"{file} is not a valid contexts file: {fault}") from None
        if current is not None and current not in contexts:
            current = None
        return cls(current, contexts)

    def get(self, name: str) -> Context:
        """A context by name. Raises `CommandFailed`."""
        if name not in self.contexts:
            known = (
                ", ".join(sorted(self.contexts))
                or "none; add one with: stompring context add NAME --server URL"
            )
            raise CommandFailed(f"there is no context {name!r}; contexts: {known}", NOT_FOUND)
        return self.contexts[name]

    def write(self) -> None:
        """Replace the file atomically, readable by its owner only."""
        contexts = {name: each.given() for name, each in sorted(self.contexts.items())}
        text = json.dumps({"current": self.current, "contexts": contexts}, indent=2, ensure_ascii=False)
        write_private(contexts_file(), f"{text}\n")


def _context(name: str, found: Any) -> Context:
    if not isinstance(found, dict):
        raise ValueError(f"context {name!r} is not an object")
    for key, value in found.items():
        if key not in Context._fields:
            raise ValueError(f"context {name!r} has the unknown member {key!r}")
        if not isinstance(value, str):
            raise ValueError(f"{key} of context {name!r} is not a string")
    return Context(**found)


def write_private(file: Path, text: str) -> None:
    """Write a file with mode 0600, atomically. Raises `CommandFailed`."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as fault:
        raise CommandFailed(f"cannot write {file}: {fault.strerror}") from None


def selected(name: str | None, address: str, given: str | None) -> Context:
    """Return the context called ``name``. Without a name, return the current context, or an empty one.

    ``address``: the field ``server`` or ``broker``. ``given``: value for this field from an option or the environment.
    If ``given`` differs from the field of the current context, the result is an empty context: the password of the
    current context must not be sent elsewhere.
    """
    contexts = Contexts.read()
    if name is not None:
        return contexts.get(name)
    found = contexts.contexts.get(contexts.current or "", Context())
    return found if given in (None, getattr(found, address)) else Context()


PASSWORD_VARIABLE = "STOMPRING_PASSWORD"  # nosec B105 - the name of a variable


def password_for(
    user: str, found: Context, prompt: bool = True, variable: str = PASSWORD_VARIABLE
) -> str | None:
    """The password of a user: from the environment variable, the password file of the user's context, or a prompt.

    None if none of these has a password; there is no prompt without a terminal, or if ``prompt`` is false. Raises
    `CommandFailed` for an unreadable file.
    """
    password = os.environ.get(variable)
    if password is not None:
        return password
    if found.password_file is not None and found.user == user:
        return read_password(Path(found.password_file).expanduser())
    if prompt and sys.stdin.isatty():
        return ask_password(f"Password of {human_text(user)}", default="", show_default=False)
    return None


def read_password(file: Path) -> str:
    """Read a password file without the final line end. Raises `CommandFailed`."""
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as fault:
        raise CommandFailed(f"cannot read the password file {file}: {fault}") from None


DEFAULT_SERVER = "http://127.0.0.1:8161"


def parse_server(url: str) -> str:
    """The URL of a management API with its port; ``HOST`` and ``HOST:PORT`` mean http. Raises `click.UsageError`."""
    example = f"such as {DEFAULT_SERVER} or https://broker.example.com:8161"
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as fault:
        raise click.UsageError(f"--server {url!r} is not a URL: {fault}") from None
    if parts.scheme in ("stomp", "stomp+ssl", "tcp", "ssl"):
        raise click.UsageError(
            f"--server {url!r}: this is a STOMP acceptor; name the management API, {example}"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise click.UsageError(f"--server must be a URL {example}, not {url!r}")
    if parts.username is not None or parts.password is not None:
        raise click.UsageError("--server must not contain a login: use --user NAME and STOMPRING_PASSWORD")
    if port is None:
        port = 8161 if "://" not in url else 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{bracketed(parts.hostname)}:{port}{parts.path.rstrip('/')}"


# ---- commands


@command()
def completion(shell: str = argument(exact=("bash", "zsh", "fish"))) -> None:
    """Print the completion script of a shell.

    Commands, options, and names of queues, addresses and contexts are completed. Names come from the broker of the
    options on the line, the environment or the current context, without a prompt for a password.

    \b
    Examples:
      eval "$(stompring completion bash)"                                     # in ~/.bashrc
      eval "$(stompring completion zsh)"                                      # in ~/.zshrc
      stompring completion fish > ~/.config/fish/completions/stompring.fish
    """
    # imported here to start the other commands faster
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    try:
        click.echo(kind(root, {}, "stompring", "_STOMPRING_COMPLETE").source())
    except RuntimeError as fault:  # bash older than 4.4
        raise CommandFailed(str(fault)) from None


@click.group()
def context() -> None:
    """Remember brokers: their URLs, users and certificates.

    A context is used with --context NAME or STOMPRING_CONTEXT; the current one is used without. An option or an
    environment variable overrides a single value. With --server the current context is ignored, unless it has the same
    server: its password is not sent elsewhere.

    Contexts are in $XDG_CONFIG_HOME/stompring/contexts.json (mode 0600), by default in ~/.config. Passwords are in
    files of their own, or in STOMPRING_PASSWORD.

    \b
    Examples:
      stompring context add prod --server https://broker.example.com:8161 --user ada --save-password
      stompring context use prod
      stompring --help
    """


@contextmanager
def _changing() -> Iterator[Contexts]:
    contexts = Contexts.read()
    yield contexts
    contexts.write()


@command(context)
def add(
    name: str = argument(check=check_name),
    server: str | None = option("URL", "Management API: http://HOST:8161 or https://HOST:8161."),
    broker: str | None = option("URL", "STOMP: stomp://HOST:61613 or stomp+ssl://HOST:61614."),
    user: str | None = option("NAME", "User to log in as."),
    password_file: Path | None = option("FILE", "File with the password."),
    save_password: bool = option(
        "Read the password from a prompt, or from standard input without a terminal, and write it to a file of mode "
        "0600 beside the contexts."
    ),
    ca: Path | None = option("FILE", "Trusted CA certificates (PEM) for TLS."),
    replacing: bool = option("--replace", "Change the values given of an existing context."),
    use: bool = option("Make it the current context."),
    as_json: bool = JSON,
) -> None:
    """Add the context NAME. The first one becomes the current one.

    \b
    Examples:
      stompring context add local --server http://127.0.0.1:8161
      stompring context add prod --server https://broker.example.com:8161 --ca ca.pem --user ada --save-password
      stompring context add prod --replace --broker stomp+ssl://broker.example.com:61614
    """
    if server is not None:
        parse_server(server)
    contexts = Contexts.read()
    if name in contexts.contexts and not replacing:
        raise CommandFailed(f"context {name!r} exists already; change it with --replace")
    existing = contexts.contexts.get(name, Context())
    if save_password:
        if password_file:
            raise click.UsageError("--save-password and --password-file are mutually exclusive")
        owner = user or existing.user
        if owner is None:
            raise click.UsageError("--save-password needs --user NAME")
        if sys.stdin.isatty():
            password = ask_password(f"Password of {human_text(owner)}")
        else:
            password = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
        password_file = directory() / f"{name}.password"
        write_private(password_file, f"{password}\n")
    files = {"password_file": password_file, "ca": ca}
    paths = {key: str(file.absolute()) for key, file in files.items() if file}
    with _changing() as contexts:
        contexts.contexts[name] = existing._replace(**Context(server, broker, user, **paths).given())
        if use or contexts.current is None:
            contexts.current = name
    current = contexts.current == name
    lines = [f"context {name} saved in {contexts_file()}"]
    lines += [f"current context: {name}"] if current else []
    report(as_json, {"name": name, "current": current, **contexts.contexts[name].given()}, *lines)


@command(context, "list")
def list_contexts(as_json: bool = JSON) -> None:
    """List the contexts.

    \b
    Examples:
      stompring context list
      stompring context list --json
    """
    contexts = Contexts.read()
    rows = [
        {"current": name == contexts.current, "name": name, **each.given()}
        for name, each in sorted(contexts.contexts.items())
    ]
    if as_json:
        echo_json(rows)
        return
    print_table(
        rows,
        columns(
            current=(0, "", lambda current: "*" if current else " "),
            name=0,
            server=1,
            user=2,
            broker=3,
            ca=4,
        ),
        empty="no contexts; add one with: stompring context add NAME --server URL",
    )


@command(context)
def show(name: str | None = argument(shell_complete=context_names), as_json: bool = JSON) -> None:
    """Show the context NAME, or the current one.

    \b
    Examples:
      stompring context show
      stompring context show prod --json
    """
    contexts = Contexts.read()
    name = name or contexts.current
    if name is None:
        raise CommandFailed(
            "there is no current context; select one with: stompring context use NAME", NOT_FOUND
        )
    record = {"name": name, "current": name == contexts.current, **contexts.get(name).given()}
    if as_json:
        echo_json(record)
    else:
        print_fields(record, {"Context": every(record)})


@command(context)
def use(
    name: str | None = argument(shell_complete=context_names),
    none: bool = option("Have no current context: commands use the broker on this machine."),
    as_json: bool = JSON,
) -> None:
    """Make NAME the current context.

    \b
    Examples:
      stompring context use prod
      stompring context use --none
    """
    if (name is None) is not none:
        raise click.UsageError("name a context, or use --none")
    with _changing() as contexts:
        if name is not None:
            contexts.get(name)
        contexts.current = name
    report(
        as_json,
        {"current": name},
        "no current context" if name is None else f"current context: {name}",
    )


@command(context)
def delete(name: str = argument(shell_complete=context_names), yes: bool = YES, as_json: bool = JSON) -> None:
    """Delete the context NAME, with the password file that --save-password wrote.

    \b
    Examples:
      stompring context delete prod
      stompring context delete prod --yes
    """
    found = Contexts.read().get(name)
    confirm(f"Delete the context {name}?", yes)
    with _changing() as contexts:
        contexts.contexts.pop(name, None)
        if contexts.current == name:
            contexts.current = None
    saved = directory() / f"{name}.password"
    if found.password_file == str(saved):
        saved.unlink(missing_ok=True)
    report(as_json, {"deleted": name}, f"context {name} deleted")
