"""``stompring user add|rm|list|grant|revoke``: edits the users file and the roles file.

A running broker reads changed files by itself; no reload is needed.
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
from stompring.security.properties_file import check_name
from stompring.security.roles import Roles, RolesEdit, check_member, edit_roles
from stompring.security.users import Users, check_password, edit_users
from stompring.settings.broker_xml import read_broker_xml


@click.group()
def user() -> None:
    """Add, remove and list users, and grant them roles.

    Users are stored in the users file of broker.xml with argon2 hashes of their passwords, roles in its roles file.
    Permissions of roles are set by <security-settings> in broker.xml. A running broker applies changes by itself: a
    password from the next login on, roles within seconds also for open connections. Open connections stay open.
    """


@dataclass(frozen=True, slots=True)
class _Files:
    """The users file and the roles file. ``roles`` is None with --users and without --roles."""

    users: Path
    roles: Path | None

    @property
    def needed_roles(self) -> Path:
        """The roles file. Raises UsageError without one."""
        if self.roles is None:
            raise click.UsageError("no roles file: with --users, name it with --roles FILE, or use --config")
        return self.roles

    def edit_roles(self) -> AbstractContextManager[RolesEdit]:
        """Edit the roles file."""
        return edit_roles(self.needed_roles)


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --config, --users and --roles."""
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
    "--password-stdin", is_flag=True, help="Read the password from standard input instead of a prompt."
)
@click.option("--replace", is_flag=True, help="Replace the password of an existing user.")
@click.option(
    "--role",
    "granted",
    metavar="ROLE",
    multiple=True,
    callback=_roles,
    help="A role to grant. Can be given several times.",
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
    """Add the user NAME with a password from a prompt.

    The users file is created if there is none, with mode 0600.
    """
    files = _files(config, users, roles)
    file = files.users
    if granted:
        _check_member(name)
        Roles(files.needed_roles)  # its errors are shown before the prompt
    # checked before the prompt, and again under the lock
    if file.exists() and name in Users(file).names() and not replace:
        raise click.ClickException(
            f"user {name!r} exists already in {file}; replace the password with --replace"
        )
    password = _password_from_stdin() if password_stdin else _prompted_password(name)
    with edit_users(file) as edit:
        if name in edit and not replace:
            raise click.ClickException(
                f"user {name!r} exists already in {file}; replace the password with --replace"
            )
        edit.put(name, password)
    click.echo(f"user {name!r} saved in {file}")
    _grant(files, name, granted)


@user.command()
@click.argument("name", callback=_name)
@_where
def rm(name: str, config: str | None, users: str | None, roles: str | None) -> None:
    """Remove the user NAME, and revoke all roles of the user."""
    files = _files(config, users, roles)
    file = files.users
    Users(file)  # a missing file is an error; only add creates one
    if files.roles is not None and files.roles.exists():
        with files.edit_roles() as roles_edit:
            revoked = roles_edit.revoke_all(name)
        for role in revoked:
            click.echo(f"role {role!r} revoked from user {name!r}")
    with edit_users(file) as edit:
        try:
            edit.remove(name)
        except KeyError:
            raise click.ClickException(f"no user {name!r} in {file}") from None
    click.echo(f"user {name!r} removed from {file}")


@user.command()
@click.argument("name", callback=_name)
@click.argument("granted", metavar="ROLE...", nargs=-1, required=True, callback=_roles)
@_where
def grant(
    name: str, granted: tuple[str, ...], config: str | None, users: str | None, roles: str | None
) -> None:
    """Grant each ROLE to the user NAME. The roles file is created if there is none."""
    files = _files(config, users, roles)
    _check_member(name)
    if name not in Users(files.users).names():
        raise click.ClickException(f"no user {name!r} in {files.users}")
    _grant(files, name, granted)


@user.command()
@click.argument("name", callback=_name)
@click.argument("revoked", metavar="ROLE...", nargs=-1, required=True, callback=_roles)
@_where
def revoke(
    name: str, revoked: tuple[str, ...], config: str | None, users: str | None, roles: str | None
) -> None:
    """Revoke each ROLE from the user NAME."""
    files = _files(config, users, roles)
    with files.edit_roles() as edit:
        for role in revoked:
            if not edit.revoke(role, name):
                raise click.ClickException(
                    f"user {name!r} does not have the role {role!r}; no change was made"
                )
    for role in revoked:
        click.echo(f"role {role!r} revoked from user {name!r}")


@user.command("list")
@_where
def list_users(config: str | None, users: str | None, roles: str | None) -> None:
    """List all users, one per line: name, tab, roles separated by commas."""
    files = _files(config, users, roles)
    known = Users(files.users)
    by_user = None if files.roles is None else Roles(files.roles)
    for name in known.names():
        assigned = () if by_user is None else sorted(by_user.of(name))
        click.echo("\t".join(filter(None, (name, ", ".join(assigned)))))
    for name in filter(known.needs_rehash, known.names()):
        click.echo(
            f"password hash of {name!r} has outdated parameters; renew it with: stompring user add --replace {name}",
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
        click.echo(f"role {role!r} granted to user {name!r}")


def _files(config: str | None, users: str | None, roles: str | None) -> _Files:
    """The files named by the options, directly or by a broker.xml."""
    if config is not None and users is not None:
        raise click.UsageError("--config and --users are mutually exclusive")
    if users is not None:
        return _Files(Path(users), None if roles is None else Path(roles))
    configuration = read_broker_xml(config_option.existing(config))
    if configuration.users_file is None:
        raise ConfigurationError(
            "security is disabled and there is no <users-file>: set <security-enabled> to true, "
            "add <users-file>, or name a file with --users FILE",
            configuration.file,
        )
    if not configuration.security_enabled:
        click.echo(
            f"security is disabled in {configuration.file}: the broker does not use these users yet", err=True
        )
    named = roles or configuration.roles_file or Path(configuration.users_file).with_name("roles.properties")
    return _Files(Path(configuration.users_file), Path(named))


def _prompted_password(name: str) -> str:
    return str(
        click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, value_proc=_checked)
    )


def _password_from_stdin() -> str:
    """All of standard input without a final line end."""
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
