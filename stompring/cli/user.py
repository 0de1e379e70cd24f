"""``stompring user add|rm|list|grant|revoke``: users in the files of this machine, or of a running broker over HTTP.

A running broker reads changed files by itself; no reload is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from stompring.errors import ConfigurationError
from stompring.security.accounts import (
    Roles,
    RolesEdit,
    Users,
    check_member,
    check_name,
    check_password,
    edit_roles,
    edit_users,
)
from stompring.settings.broker_xml import read_broker_xml

from . import output
from .output import NOT_FOUND, Column, CommandFailed, echo_json, print_table
from .remote import ApiError, Remote, server_options


@click.group()
def user() -> None:
    """Add, remove and list users, and grant them roles.

    Users are stored in the users file of broker.xml with argon2 hashes of their passwords, roles in its roles file.
    Permissions of roles are set by <security-settings> in broker.xml. A running broker applies changes by itself: a
    password from the next login on, roles within seconds also for open connections. Open connections stay open.

    With --server or --context, or STOMPRING_SERVER or STOMPRING_CONTEXT without --config, --users and --roles, the
    commands change the users of a running broker over HTTP, which needs the permission manage. The current context
    alone does not make them remote.

    \b
    Examples:
      stompring user add ada --role admins
      stompring user list --config /etc/stompring/broker.xml
      stompring user grant bob viewers --context prod
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
    """The options --config, --users and --roles, and those of a running broker: ``remote`` is None without them."""

    @wraps(command)
    def called(
        server: str | None,
        context: str | None,
        user: str | None,
        password_file: str | None,
        ca: str | None,
        as_json: bool,
        **others: Any,
    ) -> Any:
        click.get_current_context().obj = as_json
        local = any(others[name] is not None for name in ("config", "users", "roles"))
        given = server is not None or context is not None
        if local and given:
            raise click.UsageError("--server and --context exclude --config, --users and --roles")
        environment = bool(os.environ.get("STOMPRING_SERVER") or os.environ.get("STOMPRING_CONTEXT"))
        if not given and (local or not environment):
            return command(remote=None, **others)
        remote = Remote.selected(server, context, user, ca, password_file)
        try:
            return command(remote=remote, **others)
        finally:
            remote.close()

    config = click.option(
        "--config",
        metavar="FILE",
        help=f"The broker.xml that names the users file and the roles file.  [default: {output.DEFAULT}]",
    )
    users = click.option("--users", metavar="FILE", help="The users file itself, in place of --config.")
    roles = click.option("--roles", metavar="FILE", help="The roles file itself.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return config(users(roles(server_options(as_json(called)))))


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
    remote: Remote | None,
) -> None:
    """Add the user NAME with a password from a prompt.

    The users file is created if there is none, with mode 0600.

    \b
    Examples:
      stompring user add ada --role admins
      stompring user add ada --password-stdin --replace < password
      stompring user add bob --role viewers --context prod
    """
    if remote is not None:
        _add_remote(remote, name, password_stdin, replace, granted)
        return
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
    _report(f"user {name!r} saved in {file}", name=name, saved=str(file), rolesGranted=list(granted))
    _grant(files, name, granted, report=not _wants_json())


@user.command()
@click.argument("name", callback=_name)
@_where
def rm(name: str, config: str | None, users: str | None, roles: str | None, remote: Remote | None) -> None:
    """Remove the user NAME, and revoke all roles of the user.

    \b
    Examples:
      stompring user rm ada
      stompring user rm ada --server https://broker.example.com:8161 --user root
    """
    if remote is not None:
        remote.delete("users", name)
        _report(f"user {name!r} removed from {remote.server}", name=name, removed=str(remote.server))
        return
    files = _files(config, users, roles)
    file = files.users
    Users(file)  # a missing file is an error; only add creates one
    if files.roles is not None and files.roles.exists():
        with files.edit_roles() as roles_edit:
            revoked = roles_edit.revoke_all(name)
        for role in revoked:
            if not _wants_json():
                click.echo(f"role {role!r} revoked from user {name!r}")
    with edit_users(file) as edit:
        try:
            edit.remove(name)
        except KeyError:
            raise click.ClickException(f"no user {name!r} in {file}") from None
    _report(f"user {name!r} removed from {file}", name=name, removed=str(file))


@user.command()
@click.argument("name", callback=_name)
@click.argument("granted", metavar="ROLE...", nargs=-1, required=True, callback=_roles)
@_where
def grant(
    name: str,
    granted: tuple[str, ...],
    config: str | None,
    users: str | None,
    roles: str | None,
    remote: Remote | None,
) -> None:
    """Grant each ROLE to the user NAME. The roles file is created if there is none.

    \b
    Examples:
      stompring user grant ada admins viewers
      stompring user grant ada viewers --context prod
    """
    if remote is not None:
        _grant_remote(remote, name, granted)
        return
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
    name: str,
    revoked: tuple[str, ...],
    config: str | None,
    users: str | None,
    roles: str | None,
    remote: Remote | None,
) -> None:
    """Revoke each ROLE from the user NAME.

    \b
    Examples:
      stompring user revoke ada admins viewers
      stompring user revoke ada viewers --context prod
    """
    if remote is not None:
        _revoke_remote(remote, name, revoked)
        return
    files = _files(config, users, roles)
    with files.edit_roles() as edit:
        for role in revoked:
            if not edit.revoke(role, name):
                raise click.ClickException(
                    f"user {name!r} does not have the role {role!r}; no change was made"
                )
    _changed_roles(name, "revoked from", revoked)


@user.command("list")
@_where
def list_users(config: str | None, users: str | None, roles: str | None, remote: Remote | None) -> None:
    """List all users. Of files one per line: name, tab, roles separated by commas.

    \b
    Examples:
      stompring user list
      stompring user list --context prod --json
    """
    if remote is not None:
        _list_remote(remote)
        return
    files = _files(config, users, roles)
    known = Users(files.users)
    by_user = None if files.roles is None else Roles(files.roles)
    if _wants_json():
        echo_json(
            [
                {"name": name, "roles": [] if by_user is None else sorted(by_user.of(name))}
                for name in known.names()
            ]
        )
        return
    for name in known.names():
        assigned = () if by_user is None else sorted(by_user.of(name))
        click.echo("\t".join(filter(None, (name, ", ".join(assigned)))))
    for name in filter(known.needs_rehash, known.names()):
        click.echo(
            f"password hash of {name!r} has outdated parameters; renew it with: stompring user add --replace {name}",
            err=True,
        )


def _wants_json() -> bool:
    return click.get_current_context().obj is True


def _report(text: str, **record: object) -> None:
    """What has changed: a line for people, or a JSON object."""
    if _wants_json():
        echo_json(record)
    else:
        click.echo(text)


def _changed_roles(name: str, verb: str, roles: tuple[str, ...]) -> None:
    if _wants_json():
        echo_json({"name": name, f"roles{verb.split()[0].capitalize()}": list(roles)})
        return
    for role in roles:
        click.echo(f"role {role!r} {verb} user {name!r}")


# ---- users of a running broker


def _add_remote(
    remote: Remote, name: str, password_stdin: bool, replacing: bool, granted: tuple[str, ...]
) -> None:
    known = _remote_user(remote, name)
    if known is not None and not replacing:
        raise click.ClickException(
            f"user {name!r} exists already on {remote.server}; replace the password with --replace"
        )
    password = _password_from_stdin() if password_stdin else _prompted_password(name)
    if known is None:
        remote.post("users", body={"name": name, "password": password, "roles": sorted(set(granted))})
    else:
        changes: dict[str, Any] = {"password": password}
        if granted:
            changes["roles"] = sorted({*known["roles"], *granted})
        remote.patch("users", name, body=changes)
    _report(
        f"user {name!r} saved on {remote.server}",
        name=name,
        saved=str(remote.server),
        rolesGranted=list(granted),
    )
    if not _wants_json():
        _changed_roles(name, "granted to", granted)


def _remote_user(remote: Remote, name: str) -> Any:
    try:
        return remote.get("users", name)
    except ApiError as fault:
        if fault.http != 404:
            raise
        return None


def _known_remote_user(remote: Remote, name: str) -> Any:
    found = _remote_user(remote, name)
    if found is None:
        raise CommandFailed(f"no user {name!r} on {remote.server}", NOT_FOUND)
    return found


def _grant_remote(remote: Remote, name: str, granted: tuple[str, ...]) -> None:
    found = _known_remote_user(remote, name)
    remote.patch("users", name, body={"roles": sorted({*found["roles"], *granted})})
    _changed_roles(name, "granted to", granted)


def _revoke_remote(remote: Remote, name: str, revoked: tuple[str, ...]) -> None:
    found = _known_remote_user(remote, name)
    for role in revoked:
        if role not in found["roles"]:
            raise click.ClickException(f"user {name!r} does not have the role {role!r}; no change was made")
    remote.patch("users", name, body={"roles": sorted(set(found["roles"]) - set(revoked))})
    _changed_roles(name, "revoked from", revoked)


def _list_remote(remote: Remote) -> None:
    answer = remote.pages("users")
    if _wants_json():
        echo_json(answer)
    else:
        print_table(answer["data"], (Column("name", rank=0), Column("roles", rank=0)))


def _check_member(name: str) -> None:
    try:
        check_member(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _grant(files: _Files, name: str, granted: tuple[str, ...], report: bool = True) -> None:
    if not granted:
        return
    with files.edit_roles() as edit:
        for role in granted:
            edit.grant(role, name)
    if report:
        _changed_roles(name, "granted to", granted)


def _files(config: str | None, users: str | None, roles: str | None) -> _Files:
    """The files named by the options, directly or by a broker.xml."""
    if config is not None and users is not None:
        raise click.UsageError("--config and --users are mutually exclusive")
    if users is not None:
        return _Files(Path(users), None if roles is None else Path(roles))
    configuration = read_broker_xml(output.existing(config))
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
