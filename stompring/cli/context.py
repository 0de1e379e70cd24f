"""``stompring context``: brokers by name, and ``stompring completion bash|zsh|fish``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from .contexts import Context, Contexts, check_name, context_names, directory, write_private
from .options import JSON, YES, argument, command, option
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
)


@command()
def completion(shell: str = argument(type=click.Choice(("bash", "zsh", "fish")))) -> None:
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
        from .remote import parse_server  # here: it imports TLS

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
        password_file = directory() / f"{name}.password"
        write_private(password_file, _new_password(owner) + "\n")
    files = {"password_file": password_file, "ca": ca}
    paths = {key: str(file.absolute()) for key, file in files.items() if file is not None}
    with _changing() as contexts:
        contexts.contexts[name] = replace(existing, **Context(server, broker, user, **paths).given())
        if use or contexts.current is None:
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
    if as_json:
        echo_json({"current": name})
        return
    done("no current context" if name is None else f"current context: {name}")


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
    if as_json:
        echo_json({"deleted": name})
    else:
        done(f"context {name} deleted")
