"""``stompring plugins list|new``: the policies that broker.xml may name."""

from __future__ import annotations

import click

from stompring.cli.plugins_list import list_plugins
from stompring.cli.plugins_new import new


@click.group()
def plugins() -> None:
    """List the policies that there are, and begin new ones.

    Policies are modules in a directory 'plugins' beside broker.xml, or beside the directory that it is in, and what
    installed packages offer. A broker loads those that its broker.xml names as <broker-plugin>.
    """


plugins.add_command(list_plugins)
plugins.add_command(new)
