"""The command ``stompring``: its commands, imported when they are called, and its exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

import click

from stompring import __version__, build
from stompring.errors import ConfigurationError

from .contexts import context_names
from .output import CommandFailed, Interrupted
from .output import one_line as printable

#: Sections of the help with their commands: ``module:attribute`` and a line of help. A command is imported when it is
#: called, so that each starts fast; a test compares the lines with the commands.
COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Broker on this machine": {
        "run": ("stompring.cli.run:run", "Start the broker."),
        "init": (
            "stompring.cli.init:init",
            "Create an instance in DIR: configuration, users, data directory, systemd unit.",
        ),
        "doctor": (
            "stompring.cli.doctor:doctor",
            "Check configuration, files, permissions and machine before or while a broker runs.",
        ),
        "check-config": (
            "stompring.cli.check_config:check_config",
            "Check each FILE: print its faults, or a summary of the configuration.",
        ),
        "user": ("stompring.cli.user:user", "Add, remove and list users, and grant them roles."),
        "data": ("stompring.cli.data:data", "Inspect, export and import the data directory of a broker."),
        "ha": (
            "stompring.cli.ha:ha",
            "Create a replicated log, show it, and change which broker is active.",
        ),
        "plugins": ("stompring.cli.plugins:plugins", "List address policies, and create new ones."),
        "lake": (
            "stompring.cli.lake:lake",
            "Delta tables, reports and replays of the messages that a broker retained.",
        ),
    },
    "Running broker": {
        "status": (
            "stompring.cli.status:status",
            "Show whether the broker is ready and why not, with its totals and problems.",
        ),
        "top": (
            "stompring.cli.top:top",
            "Show queues, connections, consumers or addresses as a live table with sparklines.",
        ),
        "events": (
            "stompring.cli.events:events",
            "Show events of the broker as they happen.",
        ),
        "queue": (
            "stompring.cli.queue:queue",
            "List, create, change, purge and delete queues; move messages.",
        ),
        "address": ("stompring.cli.resources:address", "List, create, change, pause and delete addresses."),
        "message": (
            "stompring.cli.message:message",
            "Browse, show, send, delete, expire, download and upload messages.",
        ),
        "dead-letters": (
            "stompring.cli.resources:dead_letters",
            "List dead letters and expired messages by origin and reason, and send them back.",
        ),
        "connection": ("stompring.cli.resources:connection", "List, show and close connections."),
        "consumer": (
            "stompring.cli.resources:consumer",
            "List consumers: whose they are, what they have not acknowledged, who is slow.",
        ),
        "task": (
            "stompring.cli.resources:task",
            "List, show, follow and cancel tasks: moves, copies, retries, removals and purges of many messages.",
        ),
        "permission": (
            "stompring.cli.resources:permission",
            "Show what a user may do on an address or a queue, and by which rule.",
        ),
        "logger": (
            "stompring.cli.resources:logger",
            "List loggers and change their levels while the broker runs.",
        ),
        "reload": ("stompring.cli.status:reload", "Reload broker.xml, as SIGHUP does."),
        "drain": (
            "stompring.cli.status:drain",
            "Refuse new STOMP connections and report not ready, while existing clients continue.",
        ),
        "undrain": ("stompring.cli.status:undrain", "Accept connections again after a drain."),
    },
    "Any STOMP broker": {
        "send": (
            "stompring.cli.send:send",
            "Send messages to DEST, with the body BODY, from files, or from standard input.",
        ),
        "subscribe": (
            "stompring.cli.subscribe:subscribe",
            "Print the messages of DEST as they come, until Ctrl-C, --count or --timeout.",
        ),
        "transfer": (
            "stompring.cli.transfer:transfer",
            "Transfer the messages of the queue SOURCE to another broker, or to another queue.",
        ),
        "bench": ("stompring.cli.bench:bench", "Measure throughput and latency of a STOMP broker."),
    },
    "This command": {
        "context": ("stompring.cli.context:context", "Remember brokers: their URLs, users and certificates."),
        "completion": (
            "stompring.cli.context:completion",
            "Print the completion script of a shell.",
        ),
    },
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; its help needs none of them."""

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections = sections
        self._lazy = {name: found for commands in sections.values() for name, found in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported."""
        if cmd_name not in self.commands and cmd_name in self._lazy:
            module, attribute = self._lazy[cmd_name][0].split(":")
            self.add_command(getattr(import_module(module), attribute), cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; an unknown one gets the nearest as a suggestion."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1)
            ctx.fail(
                f"there is no command {printable(name)!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section."""
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


#: Options that are also accepted before the command: name and option.
LEADING_OPTIONS: Mapping[str, str] = {
    "server": "--server",
    "context": "--context",
    "user": "--user",
    "password_file": "--password-file",  # nosec B105 - the name of an option
    "ca": "--ca",
    "as_json": "--json",
}


class _Main(LazyGroup):
    """The one place where faults become a message and an exit status, without a traceback.

    Options before the command become options of the command, in front of its own.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word, and its words with the options that were given before it."""
        name, command, rest = super().resolve_command(ctx, args)
        leading = list(_leading_options(ctx.params))
        if command is None or not leading:
            return name, command, rest
        path, at = [name or ""], 0
        while isinstance(command, click.Group):
            found = command.get_command(ctx, rest[at]) if at < len(rest) else None
            if found is None:
                default = getattr(command, "default_command", None)
                if default is None:  # a question for help, or a mistake that the group reports
                    return name, self.get_command(ctx, path[0]), rest
                command = command.get_command(ctx, default)
                break
            path.append(rest[at])
            command, at = found, at + 1
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        for option, _ in leading:
            if option not in known and not ctx.resilient_parsing:
                ctx.fail(f"stompring {' '.join(path)} has no option {option}")
        rest[at:at] = [word for option, word in leading if option in known]
        return name, self.get_command(ctx, path[0]), rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise CommandFailed("\n".join(map(printable, error.lines()))) from None
        except (KeyboardInterrupt, click.Abort):
            raise Interrupted() from None


def _leading_options(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each option that was given before the command, and its word."""
    for name, option in LEADING_OPTIONS.items():
        value = given.get(name)
        if value is True:
            yield option, option
        elif isinstance(value, str):
            yield option, f"{option}={value}"


Function = TypeVar("Function", bound=Callable[..., Any])


def _leading(name: str, metavar: str, text: str) -> Callable[[Function], Function]:
    return click.option(LEADING_OPTIONS[name], name, metavar=metavar, help=text)


@click.group(cls=_Main, sections=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@_leading("server", "URL", "Management API of the broker, as after the command; so are the next five.")
@click.option(
    "--context",
    metavar="NAME",
    shell_complete=context_names,
    help="Context of the broker (stompring context).",
)
@_leading("user", "NAME", "User to log in as.")
@_leading("password_file", "FILE", "File with the password.")
@_leading("ca", "FILE", "Trusted CA certificates (PEM).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.version_option(
    __version__, prog_name="stompring", message=f"%(prog)s, version %(version)s ({build()})"
)
def main(**leading_options: str | bool | None) -> None:
    """A STOMP message broker with ring queues and scheduled messages.

    \b
    Examples:
      stompring run                      start the broker
      stompring check-config FILE        look for mistakes in a broker.xml
      stompring queue list               the queues of the broker on this machine
      stompring queue list --json        the same as JSON
      stompring --server http://broker.example.com:8161 queue list
      stompring context add prod --server https://broker.example.com:8161 --user ada

    \b
    Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 no permission or login, 5 cannot connect,
    130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
