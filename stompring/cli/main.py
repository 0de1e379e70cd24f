"""The command ``stompring`` and what is common to all that it can do."""

from __future__ import annotations

from typing import Any

import click

from stompring import __version__
from stompring.cli.check_config import check_config
from stompring.cli.data import data
from stompring.cli.lake import lake
from stompring.cli.plugins import plugins
from stompring.cli.run import run
from stompring.cli.user import user
from stompring.errors import ConfigurationError


class _Commands(click.Group):
    """The one place where a wrong configuration becomes a message and exit status 1, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stompring")
def main() -> None:
    """A STOMP message broker with ring queues and scheduled messages.

    \b
    stompring run             start the broker that config/broker.xml describes
    stompring check-config    look for mistakes in a broker.xml without starting
    stompring user add NAME   let somebody log in
    stompring data print      show what the broker keeps on disk
    stompring plugins list    show the policies that a broker.xml may name
    stompring lake ingest     put what the broker kept into tables, with Spark
    """


main.add_command(run)
main.add_command(check_config)
main.add_command(user)
main.add_command(data)
main.add_command(plugins)
main.add_command(lake)
