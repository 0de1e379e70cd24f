"""The command ``stompring``: imports a command when it is called, and sets the exit status."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from stompring import __version__, build
from stompring.errors import ConfigurationError, StoreError

from .context import context_names
from .output import CommandFailed, Interrupted, one_line, to_json

#: Sections of the help with their commands, and a line of help for each. Only the called command is imported, to start
#: fast. A test compares the lines with the commands.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Broker on this machine": {
        "run": "Start the broker.",
        "init": "Create an instance in DIR: configuration, users, data directory, systemd unit.",
        "doctor": "Check configuration, files, permissions and machine before or while a broker runs.",
        "check-config": "Check each FILE: print its faults, or a summary of the configuration.",
        "settings": "List the settings of broker.xml, or show what NAME means.",
        "user": "Add, remove and list users, and grant them roles.",
        "data": "Inspect, export and import the data directory of a broker.",
        "ha": "Create a replicated log, show it, and change which broker is active.",
        "plugins": "List address policies, and create new ones.",
        "example": "List, show and copy examples: configurations, alerts, dashboards, unit files, clients.",
        "lake": "Delta tables, reports and replays of the messages that a broker retained.",
    },
    "Running broker": {
        "status": "Show whether the broker is ready and why not, with its totals and problems.",
        "top": "Show queues, connections, consumers or addresses as a live table with sparklines.",
        "events": "Show events of the broker as they happen.",
        "queue": "List, create, change, purge and delete queues; move messages.",
        "address": "List, create, change, pause and delete addresses.",
        "message": "Browse, show, send, delete, expire, download and upload messages.",
        "dead-letters": "List dead letters and expired messages by origin and reason, and send them back.",
        "divert": "List, create, change and delete diverts, which copy the messages of one address to others.",
        "bridge": "List, create, pause and delete bridges, which forward the messages of a queue to another broker.",
        "address-setting": "List, set and unset address-settings, the rules of addresses.",
        "security-setting": "List, set and unset security-settings: which roles may do what on which addresses.",
        "config": "Export the configuration of a running broker.",
        "connection": "List, show and close connections.",
        "consumer": "List consumers: whose they are, what they have not acknowledged, who is slow.",
        "task": "List, show, follow and cancel tasks: moves, copies, retries, removals and purges of many messages.",
        "permission": "Show what a user may do on an address or a queue, and by which rule.",
        "logger": "List loggers and change their levels while the broker runs.",
        "reload": "Reload broker.xml, as SIGHUP does.",
        "drain": "Refuse new STOMP connections and report not ready, while existing clients continue.",
        "undrain": "Accept connections again after a drain.",
    },
    "Any STOMP broker": {
        "send": "Send messages to DEST, with the body BODY, from files, or from standard input.",
        "subscribe": "Print the messages of DEST as they come, until Ctrl-C, --count or --timeout.",
        "transfer": "Transfer the messages of the queue SOURCE to another broker, or to another queue.",
        "bench": "Measure throughput and latency of a STOMP broker.",
    },
    "This command": {
        "context": "Remember brokers: their URLs, users and certificates.",
        "completion": "Print the completion script of a shell.",
    },
}

#: Commands that share the module of another command.
_MODULES = {
    "events": "status",
    "address": "resources",
    "dead-letters": "resources",
    **dict.fromkeys(("divert", "bridge", "address-setting", "security-setting", "config"), "run_time"),
    "connection": "resources",
    "consumer": "resources",
    "task": "resources",
    "permission": "resources",
    "logger": "resources",
    "reload": "status",
    "drain": "status",
    "undrain": "status",
    "completion": "context",
}

_COMMANDS = [name for commands in COMMANDS.values() for name in commands]


class _Main(click.Group):
    """The group of all commands. Imports only the called command; the help of the group imports no command.

    Only this class converts faults to a message and an exit status, without a traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys([*_COMMANDS, *self.commands]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in _COMMANDS:
            attribute = cmd_name.replace("-", "_")
            module = import_module(f"stompring.cli.{_MODULES.get(cmd_name, attribute)}")
            self.add_command(getattr(module, attribute), cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([*commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word. Suggests a similar command for an unknown one."""
        word, known = args[0], self.list_commands(ctx)
        if word not in known and not word.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(word, known, 1)
            ctx.fail(
                f"there is no command {one_line(word)!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = "--json" in args  # the option may be before or after the name of the command
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            fault = error
        except ConfigurationError as error:
            fault = CommandFailed("\n".join(map(one_line, error.lines())))
        except StoreError as error:
            fault = click.ClickException(str(error))
        except (KeyboardInterrupt, click.Abort):
            fault = Interrupted()
        if not ctx.obj:
            raise fault
        # standard output has the result alone
        click.echo(to_json({"error": fault.format_message(), "exitStatus": fault.exit_code}), err=True)
        ctx.exit(fault.exit_code)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--server",
    metavar="URL",
    help="Management API of the broker, as after the command; so are the next five.",
)
@click.option(
    "--context",
    metavar="NAME",
    shell_complete=context_names,
    help="Context of the broker (stompring context).",
)
@click.option("--user", metavar="NAME", help="User to log in as.")
@click.option("--password-file", metavar="FILE", help="File with the password.")
@click.option("--ca", metavar="FILE", help="Trusted CA certificates (PEM).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, errors too.")
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
    130 interrupted. With --json an error is {"error": TEXT, "exitStatus": N} on standard error.
    """
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
