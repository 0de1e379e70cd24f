"""``stompring context``, and the completion of names in a shell.

``stompring completion bash|zsh|fish``, and names of queues and addresses from the broker.

``stompring context``: brokers by name, with their URLs, user, password file and certificates.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from .output import (
    NOT_FOUND,
    Column,
    CommandFailed,
    confirm,
    done,
    echo_json,
    every,
    human_text,
    print_fields,
    print_table,
    yes_option,
)

#: Names that a shell takes as they are: others are not offered, because a shell inserts them without quotes.
SAFE = re.compile(r"[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*")

#: Seconds that a completion may take, and names that it offers.
TIMEOUT, MOST = 2.0, 200


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Commands, options, and names of queues, addresses and contexts are completed. Names come from the broker of the
    options on the line, the environment or the current context, without a prompt for a password.

    \b
    Examples:
      eval "$(stompring completion bash)"                                     # in ~/.bashrc
      eval "$(stompring completion zsh)"                                      # in ~/.zshrc
      stompring completion fish > ~/.config/fish/completions/stompring.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    source = kind(root, {}, "stompring", "_STOMPRING_COMPLETE")
    try:
        click.echo(source.source())
    except RuntimeError as fault:  # bash older than 4.4
        raise CommandFailed(str(fault)) from None


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def names_of(kind: str) -> Completer:
    """Completes names of ``queues`` or ``addresses``."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from .remote import Remote

        try:
            given = context.params
            remote = Remote.selected(
                given.get("server"),
                given.get("context"),
                given.get("user"),
                given.get("ca"),
                given.get("password_file"),
                prompt=False,
                timeout=TIMEOUT,
            )
            answer = remote.get(kind, search=incomplete, size=MOST)
            found = [str(each["name"]) for each in answer["data"]]
        except (click.ClickException, OSError, KeyError, TypeError):
            return []
        return [name for name in found if name.startswith(incomplete) and SAFE.fullmatch(name)]

    return complete


def context_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of contexts."""

    try:
        return [name for name in Contexts.read().names() if name.startswith(incomplete)]
    except click.ClickException:
        return []


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Context:
    """One broker. None: not set, the default holds."""

    server: str | None = None
    broker: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None

    def given(self) -> dict[str, str]:
        """What is set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def directory() -> Path:
    """``$XDG_CONFIG_HOME/stompring``."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "stompring"


@dataclass(slots=True)
class Contexts:
    """The file contexts.json."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)

    @staticmethod
    def file() -> Path:
        """Its path."""
        return directory() / "contexts.json"

    @classmethod
    def read(cls) -> Contexts:
        """The file; empty if there is none. Raises `CommandFailed`."""
        file = cls.file()
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

    def names(self) -> list[str]:
        """Names in alphabetical order."""
        return sorted(self.contexts)

    def get(self, name: str) -> Context:
        """A context by name. Raises `CommandFailed`."""
        if name not in self.contexts:
            known = ", ".join(self.names()) or "none; add one with: stompring context add NAME --server URL"
            raise CommandFailed(f"there is no context {name!r}; contexts: {known}", NOT_FOUND)
        return self.contexts[name]

    def write(self) -> None:
        """Replace the file atomically, readable by its owner only."""
        contents = {
            "current": self.current,
            "contexts": {name: self.contexts[name].given() for name in self.names()},
        }
        write_private(self.file(), json.dumps(contents, indent=2, ensure_ascii=False) + "\n")


def _context(name: str, found: Any) -> Context:
    if not isinstance(found, dict):
        raise ValueError(f"context {name!r} is not an object")
    known = {each.name for each in fields(Context)}
    for key, value in found.items():
        if key not in known:
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
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise CommandFailed(f"cannot write {file}: {fault.strerror}") from None


def selected(name: str | None, address: str, given: str | None) -> Context:
    """The context in use: named, or the current one, or an empty one.

    ``address`` is ``server`` or ``broker``, ``given`` its value from an option or the environment. The current context
    is not used for another address than its own: its password must not be sent elsewhere.
    """
    if name is not None:
        return Contexts.read().get(name)
    contexts = Contexts.read()
    if contexts.current is None:
        return Context()
    found = contexts.get(contexts.current)
    if given is not None and given != getattr(found, address):
        return Context()
    return found


PASSWORD_VARIABLE = "STOMPRING_PASSWORD"  # nosec B105 - the name of a variable


def password_for(
    user: str, found: Context, prompt: bool = True, purpose: str = "", variable: str = PASSWORD_VARIABLE
) -> str | None:
    """The password of a user: the environment variable, the context's file if it is that of this user, or a prompt.

    None where there is none and no terminal, or ``prompt`` is false. Raises `CommandFailed` for an unreadable file.
    """
    password = os.environ.get(variable)
    if password is not None:
        return password
    if found.password_file is not None and found.user == user:
        return read_password(Path(found.password_file).expanduser())
    if prompt and sys.stdin.isatty():
        text = f"Password of {human_text(user)}{purpose}"
        return str(click.prompt(text, hide_input=True, err=True, default="", show_default=False))
    return None


def read_password(file: Path) -> str:
    """A password file: its text without the final line end. Raises `CommandFailed`."""
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as fault:
        raise CommandFailed(f"cannot read the password file {file}: {fault}") from None


# ---- commands


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


@context.command()
@click.argument("name")
@click.option("--server", metavar="URL", help="Management API: http://HOST:8161 or https://HOST:8161.")
@click.option("--broker", metavar="URL", help="STOMP: stomp://HOST:61613 or stomp+ssl://HOST:61614.")
@click.option("--user", metavar="NAME", help="User to log in as.")
@click.option(
    "--password-file", metavar="FILE", type=click.Path(dir_okay=False), help="File with the password."
)
@click.option(
    "--save-password",
    is_flag=True,
    help="Read the password from a prompt, or from standard input without a terminal, and write it to a file of mode "
    "0600 beside the contexts.",
)
@click.option(
    "--ca", metavar="FILE", type=click.Path(dir_okay=False), help="Trusted CA certificates (PEM) for TLS."
)
@click.option("--replace", "replacing", is_flag=True, help="Change the values given of an existing context.")
@click.option("--use", "using", is_flag=True, help="Make it the current context.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def add(
    name: str,
    server: str | None,
    broker: str | None,
    user: str | None,
    password_file: str | None,
    save_password: bool,
    ca: str | None,
    replacing: bool,
    using: bool,
    as_json: bool,
) -> None:
    """Add the context NAME. The first one becomes the current one.

    \b
    Examples:
      stompring context add local --server http://127.0.0.1:8161
      stompring context add prod --server https://broker.example.com:8161 --ca ca.pem --user ada --save-password
      stompring context add prod --replace --broker stomp+ssl://broker.example.com:61614
    """
    from .remote import parse_server

    if not NAME.fullmatch(name):
        raise click.BadParameter("a name has 1 to 64 letters, digits, '.', '_' and '-'", param_hint="NAME")
    if server is not None:
        parse_server(server)
    contexts = Contexts.read()
    if name in contexts.contexts and not replacing:
        raise CommandFailed(f"context {name!r} exists already; change it with --replace")
    existing = contexts.contexts.get(name, Context())
    if save_password:
        if password_file is not None:
            raise click.UsageError("--save-password and --password-file are mutually exclusive")
        owner = user or existing.user
        if owner is None:
            raise click.UsageError("--save-password needs --user NAME")
        password_file = str(directory() / f"{name}.password")
        write_private(Path(password_file), _new_password(owner) + "\n")
    given: Mapping[str, str | None] = {
        "server": server,
        "broker": broker,
        "user": user,
        "password_file": None if password_file is None else str(Path(password_file).absolute()),
        "ca": None if ca is None else str(Path(ca).absolute()),
    }
    with _changing() as contexts:
        contexts.contexts[name] = replace(
            existing, **{key: value for key, value in given.items() if value is not None}
        )
        if using or contexts.current is None:
            contexts.current = name
    if as_json:
        echo_json({"name": name, "current": contexts.current == name, **contexts.contexts[name].given()})
        return
    done(f"context {name} saved in {Contexts.file()}")
    if contexts.current == name:
        done(f"current context: {name}")


def _new_password(user: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(f"Password of {human_text(user)}", hide_input=True, err=True))
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


@context.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_contexts(as_json: bool) -> None:
    """List the contexts.

    \b
    Examples:
      stompring context list
      stompring context list --json
    """
    contexts = Contexts.read()
    rows = [
        {"current": name == contexts.current, "name": name, **contexts.contexts[name].given()}
        for name in contexts.names()
    ]
    if as_json:
        echo_json(rows)
        return
    columns = (
        Column("current", "", lambda current: "*" if current else " ", rank=0),
        Column("name", rank=0),
        Column("server", rank=1),
        Column("user", rank=2),
        Column("broker", rank=3),
        Column("ca", rank=4),
    )
    print_table(rows, columns, empty="no contexts; add one with: stompring context add NAME --server URL")


@context.command()
@click.argument("name", required=False, shell_complete=context_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str | None, as_json: bool) -> None:
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


@context.command()
@click.argument("name", required=False, shell_complete=context_names)
@click.option(
    "--none", is_flag=True, help="Have no current context: commands use the broker on this machine."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def use(name: str | None, none: bool, as_json: bool) -> None:
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
    if as_json:
        echo_json({"current": name})
        return
    done("no current context" if name is None else f"current context: {name}")


@context.command()
@click.argument("name", shell_complete=context_names)
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def delete(name: str, yes: bool, as_json: bool) -> None:
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
    if as_json:
        echo_json({"deleted": name})
    else:
        done(f"context {name} deleted")
