"""``stompring user add|rm|list|grant|revoke``: who may log in when security is on, and which roles they have.

A running broker follows both files by itself; no reload is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from stompring.cli import config_option
from stompring.errors import ConfigurationError
from stompring.security.passwords import check_password
from stompring.security.properties_file import check_name
from stompring.security.roles import Roles, RolesEdit, check_member, edit_roles
from stompring.security.users import Users, edit_users
from stompring.settings.broker_xml import read_broker_xml


@click.group()
def user() -> None:
    """Add, remove and list the users of the broker, and give them roles.

    They are kept in the users file that the broker.xml names, with argon2 hashes in place of passwords, and their
    roles in its roles file. What a role may do is said by its security-settings. A new password counts from the
    next login on, and who is connected stays so; roles count for those who are connected too, a few seconds later.
    """


@dataclass(frozen=True, slots=True)
class _Files:
    """The users file and the roles file. ``roles`` is None where --users named the one and nothing the other."""

    users: Path
    roles: Path | None

    @property
    def needed_roles(self) -> Path:
        """The roles file, for those who cannot do without."""
        if self.roles is None:
            raise click.UsageError("--users names no roles file: name it with --roles FILE, or give --config")
        return self.roles

    def edit_roles(self) -> AbstractContextManager[RolesEdit]:
        """See `edit_roles`."""
        return edit_roles(self.needed_roles)


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which files are meant."""
    config = click.option(
        "--config",
        metavar="FILE",
        help=f"The broker.xml that names the users file and the roles file.  [default: {config_option.DEFAULT}]",
    )
    users = click.option("--users", metavar="FILE", help="The users file itself, in place of --config.")
    roles = click.option("--roles", metavar="FILE", help="The roles file itself.")
    return config(users(roles(command)))


def _name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return name


def _roles(context: click.Context, parameter: click.Parameter, roles: tuple[str, ...]) -> tuple[str, ...]:
    try:
        for role in roles:
            check_name(role, "role")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return roles


@user.command()
@click.argument("name", callback=_name)
@click.option(
    "--password-stdin", is_flag=True, help="Take the password from standard input instead of asking."
)
@click.option("--replace", is_flag=True, help="Give a new password to a user who is already there.")
@click.option(
    "--role", "granted", metavar="ROLE", multiple=True, callback=_roles, help="A role to give them."
)
@_where
def add(
    name: str,
    password_stdin: bool,
    replace: bool,
    granted: tuple[str, ...],
    config: str | None,
    users: str | None,
    roles: str | None,
) -> None:
    """Add the user NAME, with a password that is asked for and never shown.

    The users file is made when there is none, readable by its owner alone.
    """
    files = _files(config, users, roles)
    file = files.users
    if granted:
        _check_member(name)
        Roles(files.needed_roles)  # what is wrong with it is told before the question
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
    _grant(files, name, granted)


@user.command()
@click.argument("name", callback=_name)
@_where
def rm(name: str, config: str | None, users: str | None, roles: str | None) -> None:
    """Remove the user NAME, and take their roles from them."""
    files = _files(config, users, roles)
    file = files.users
    Users(file)  # a missing file is an error here, where add would begin one
    if files.roles is not None and files.roles.exists():
        with files.edit_roles() as roles_edit:
            lost = roles_edit.revoke_all(name)
        for role in lost:
            click.echo(f"user {name!r} no longer has the role {role!r}")
    with edit_users(file) as edit:
        try:
            edit.remove(name)
        except KeyError:
            raise click.ClickException(f"there is no user {name!r} in {file}") from None
    click.echo(f"user {name!r} is no longer in {file}")


@user.command()
@click.argument("name", callback=_name)
@click.argument("granted", metavar="ROLE...", nargs=-1, required=True, callback=_roles)
@_where
def grant(
    name: str, granted: tuple[str, ...], config: str | None, users: str | None, roles: str | None
) -> None:
    """Give the user NAME each ROLE. The roles file is made when there is none."""
    files = _files(config, users, roles)
    _check_member(name)
    if name not in Users(files.users).names():
        raise click.ClickException(f"there is no user {name!r} in {files.users}")
    _grant(files, name, granted)


@user.command()
@click.argument("name", callback=_name)
@click.argument("taken", metavar="ROLE...", nargs=-1, required=True, callback=_roles)
@_where
def revoke(
    name: str, taken: tuple[str, ...], config: str | None, users: str | None, roles: str | None
) -> None:
    """Take each ROLE from the user NAME."""
    files = _files(config, users, roles)
    with files.edit_roles() as edit:
        for role in taken:
            if not edit.revoke(role, name):
                raise click.ClickException(
                    f"user {name!r} does not have the role {role!r}: nothing is changed"
                )
    for role in taken:
        click.echo(f"user {name!r} no longer has the role {role!r}")


@user.command("list")
@_where
def list_users(config: str | None, users: str | None, roles: str | None) -> None:
    """Print all users, one per line: the name, and after a tab the roles with a comma between two."""
    files = _files(config, users, roles)
    known = Users(files.users)
    by_user = None if files.roles is None else Roles(files.roles)
    for name in known.names():
        held = () if by_user is None else sorted(by_user.of(name))
        click.echo("\t".join(filter(None, (name, ", ".join(held)))))
    for name in filter(known.needs_rehash, known.names()):
        click.echo(
            f"the hash of {name!r} is not of today's strength; renew it with: stompring user add --replace {name}",
            err=True,
        )


def _check_member(name: str) -> None:
    try:
        check_member(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _grant(files: _Files, name: str, granted: tuple[str, ...]) -> None:
    if not granted:
        return
    with files.edit_roles() as edit:
        for role in granted:
            edit.grant(role, name)
    for role in granted:
        click.echo(f"user {name!r} has the role {role!r}")


def _files(config: str | None, users: str | None, roles: str | None) -> _Files:
    """The files that the options name, directly or by way of a broker.xml."""
    if config is not None and users is not None:
        raise click.UsageError("--config and --users exclude each other: give the one or the other")
    if users is not None:
        return _Files(Path(users), None if roles is None else Path(roles))
    configuration = read_broker_xml(config_option.existing(config))
    if configuration.users_file is None:
        raise ConfigurationError(
            "it switches security off and names no users file: set <security-enabled> to true, "
            "add <users-file>, or name a file with --users FILE",
            configuration.file,
        )
    if not configuration.security_enabled:
        click.echo(f"security is off in {configuration.file}: its users are not asked for yet", err=True)
    named = roles or configuration.roles_file or Path(configuration.users_file).with_name("roles.properties")
    return _Files(Path(configuration.users_file), Path(named))


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
