"""``stompring completion bash|zsh|fish``, and names of queues and addresses from the broker."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
from click.shell_completion import get_completion_class

from stompring.cli.output import CommandFailed

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
        from stompring.cli.remote import Remote

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
    from stompring.cli.context import Contexts

    try:
        return [name for name in Contexts.read().names() if name.startswith(incomplete)]
    except click.ClickException:
        return []
