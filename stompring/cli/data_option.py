"""The options ``--data`` and ``--config`` of the data commands: which data directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stompring.cli import config_option
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.data_directory import DataDirectory, data_directory
from stompring.settings.model import BrokerConfiguration


def where(command: Callable[..., Any]) -> Callable[..., Any]:
    """The two options."""
    config = click.option(
        "--config",
        metavar="FILE",
        help=f"The broker.xml that says where the data is.  [default: {config_option.DEFAULT}]",
    )
    data = click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="The data directory itself, as for 'stompring run'.",
    )
    return data(config(command))


def configuration(config: str | None, data: str | None) -> BrokerConfiguration:
    """The configuration that is meant; an empty one where a data directory is named and no broker.xml."""
    if config is None and data is not None:
        return BrokerConfiguration()
    return read_broker_xml(config_option.existing(config))


def located(config: str | None, data: str | None) -> DataDirectory:
    """The data directory that the options name."""
    return data_directory(configuration(config, data), data)
