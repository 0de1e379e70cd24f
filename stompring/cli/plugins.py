"""``stompring plugins list|new``: lists and creates address policies."""

from __future__ import annotations

import click

from stompring.cli.plugins_list import list_plugins
from stompring.cli.plugins_new import new


@click.group()
def plugins() -> None:
    """List address policies, and create new ones.

    Policies are modules in a directory 'plugins' beside broker.xml or beside its directory, and entry points of
    installed packages. The broker loads the policies that broker.xml names as <broker-plugin>.
    """


plugins.add_command(list_plugins)
plugins.add_command(new)
