"""``stompring data``: look at what a broker keeps on disk, and take it elsewhere."""

from __future__ import annotations

import click

from stompring.cli.data_export import export_data
from stompring.cli.data_import import import_data
from stompring.cli.data_print import print_data
from stompring.cli.data_verify import verify


@click.group()
def data() -> None:
    """Look at the data directory of a broker, and take what is in it elsewhere.

    The directory is the one that the broker.xml names, or --data DIR. docs/data.md tells more.
    """


data.add_command(print_data)
data.add_command(verify)
data.add_command(export_data)
data.add_command(import_data)
