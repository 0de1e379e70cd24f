"""``stompring user add|rm|list``: who may log in when security is on.

A running broker reads the users file again by itself at the next login; no reload is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stompring.cli import config_option
from stompring.errors import ConfigurationError
from stompring.security.passwords import check_password
from stompring.security.users import Users
from stompring.security.users_file import check_name, edit_users
from stompring.settings.broker_xml import read_broker_xml


@click.group()
def user() -> None:
    """Add, remove and list the users of the broker.

    They are kept in the users file that the broker.xml names, with argon2 hashes in place of passwords. Changes
    count from the next login on; who is connected stays so.
    """


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """The two options that say which users file is meant."""
    config = click.option(
        "--config",
        metavar="FILE",
        help=f"The broker.xml that names the users file.  [default: {config_option.DEFAULT}]",
    )
    users = click.option("--users", metavar="FILE", help="The users file itself, in place of --config.")
    return config(users(command))


def _name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return name


@user.command()
@click.argument("name", callback=_name)
@click.option(
    "--password-stdin", is_flag=True, help="Take the password from standard input instead of asking."
)
@click.option("--replace", is_flag=True, help="Give a new password to a user who is already there.")
@_where
def add(name: str, password_stdin: bool, replace: bool, config: str | None, users: str | None) -> None:
    """Add the user NAME, with a password that is asked for and never shown.

    The users file is made when there is none, readable by its owner alone.
    """
    file = _users_file(config, users)
    # Before the question and not only at the end: nobody should think of a password for nothing.
    if file.exists() and name in Users(file).names() and not replace:
        raise click.ClickException(f"user {name!r} is already in {file}; --replace gives them a new password")
    password = _password_from_stdin() if password_stdin else _asked_password(name)
    with edit_users(file) as edit:
        if name in edit and not replace:
            raise click.ClickException(
                f"user {name!r} is already in {file}; --replace gives them a new password"
            )
        edit.put(name, password)
    click.echo(f"user {name!r} is in {file}")


@user.command()
@click.argument("name", callback=_name)
@_where
def rm(name: str, config: str | None, users: str | None) -> None:
    """Remove the user NAME."""
    file = _users_file(config, users)
    Users(file)  # a missing file is an error here, where add would begin one
    with edit_users(file) as edit:
        try:
            edit.remove(name)
        except KeyError:
            raise click.ClickException(f"there is no user {name!r} in {file}") from None
    click.echo(f"user {name!r} is no longer in {file}")


@user.command("list")
@_where
def list_users(config: str | None, users: str | None) -> None:
    """Print the names of all users, one per line."""
    file = _users_file(config, users)
    known = Users(file)
    for name in known.names():
        click.echo(name)
    for name in filter(known.needs_rehash, known.names()):
        click.echo(
            f"the hash of {name!r} is not of today's strength; renew it with: stompring user add --replace {name}",
            err=True,
        )


def _users_file(config: str | None, users: str | None) -> Path:
    """The users file that the options name, directly or by way of a broker.xml."""
    if config is not None and users is not None:
        raise click.UsageError("--config and --users exclude each other: give the one or the other")
    if users is not None:
        return Path(users)
    configuration = read_broker_xml(config_option.existing(config))
    if configuration.users_file is None:
        raise ConfigurationError(
            "it switches security off and names no users file: set <security-enabled> to true, "
            "add <users-file>, or name a file with --users FILE",
            configuration.file,
        )
    if not configuration.security_enabled:
        click.echo(f"security is off in {configuration.file}: its users are not asked for yet", err=True)
    return Path(configuration.users_file)


def _asked_password(name: str) -> str:
    return str(
        click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, value_proc=_checked)
    )


def _password_from_stdin() -> str:
    """All of standard input but the line end that ``echo`` leaves there."""
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise click.ClickException("the password on standard input is not UTF-8 text") from None
    try:
        return _checked(text.removesuffix("\n").removesuffix("\r"))
    except click.UsageError as error:
        raise click.ClickException(f"on standard input: {error.message}") from None


def _checked(password: str) -> str:
    try:
        check_password(password)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return password
