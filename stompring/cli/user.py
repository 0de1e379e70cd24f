"""``stompring user add|rm|list|grant|revoke``: users in the files of this machine, or of a running broker over HTTP.

A running broker reads changed files without a reload.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from stompring.errors import ConfigurationError
from stompring.security.accounts import (
    Roles,
    Users,
    check_member,
    check_name,
    check_password,
    edit_roles,
    edit_users,
)
from stompring.settings.broker_xml import read_broker_xml

from .options import JSON, argument, command, option, provided
from .output import (
    DEFAULT,
    NOT_FOUND,
    CommandFailed,
    JsonObject,
    columns,
    echo_json,
    existing,
    print_table,
    report,
    warn,
)
from .remote import ApiError, Remote, ServerOptions, server_options


@click.group()
def user() -> None:
    """Add, remove and list users, and grant them roles.

    Users are stored in the users file of broker.xml with argon2 hashes of their passwords, roles in its roles file.
    Permissions of roles are set by <security-settings> in broker.xml. A running broker applies changes without a
    reload: a new password from the next login on, new roles within seconds, also to open connections. It closes no
    connection.

    With --server or --context, or STOMPRING_SERVER or STOMPRING_CONTEXT without --config, --users and --roles, the
    commands change the users of a running broker over HTTP, which needs the permission manage. The current context
    alone does not select a running broker.

    \b
    Examples:
      stompring user add ada --role admins
      stompring user list --config /etc/stompring/broker.xml
      stompring user grant bob viewers --context prod
    """


class FileAccounts:
    """The users file and the roles file. ``roles`` is None if only --users is given."""

    def __init__(self, users: Path, roles: Path | None) -> None:
        self.place = str(users)
        self.where = f"in {users}"
        self._users = users
        self._roles = roles

    @property
    def _roles_file(self) -> Path:
        """The roles file. Raises UsageError without one."""
        if self._roles is None:
            raise click.UsageError("no roles file: with --users, name it with --roles FILE, or use --config")
        return self._roles

    def knows(self, name: str, roles: Sequence[str]) -> bool:
        """Return whether a user exists. A missing file counts as empty: `save` creates it.

        Raises `click.UsageError`, `ConfigurationError` if `save` could not grant ``roles``.
        """
        if roles:
            _check_member(name)
            Roles(self._roles_file)
        return self._users.exists() and name in Users(self._users).names()

    def save(self, name: str, password: str, roles: Sequence[str], replace: bool) -> None:
        """Add a user, or replace the password of an existing user. Raises `CommandFailed`."""
        with edit_users(self._users) as edit:
            if name in edit and not replace:
                raise _exists(name, self.where)
            edit.put(name, password)
        if roles:
            self.grant(name, roles)

    def remove(self, name: str) -> list[str]:
        """Remove a user. Returns the revoked roles; raises `CommandFailed`."""
        Users(self._users)  # fails if the file is missing: only `save` creates it
        revoked = []
        if self._roles and self._roles.exists():
            with edit_roles(self._roles) as roles:
                revoked = list(roles.revoke_all(name))
        with edit_users(self._users) as users:
            try:
                users.remove(name)
            except KeyError:
                raise CommandFailed(f"no user {name!r} {self.where}") from None
        return revoked

    def grant(self, name: str, roles: Sequence[str]) -> None:
        """Grant roles to a user. Raises `CommandFailed`."""
        _check_member(name)
        if name not in Users(self._users).names():
            raise CommandFailed(f"no user {name!r} {self.where}")
        with edit_roles(self._roles_file) as edit:
            for role in roles:
                edit.grant(role, name)

    def revoke(self, name: str, roles: Sequence[str]) -> None:
        """Revoke roles from a user. Raises `CommandFailed`."""
        with edit_roles(self._roles_file) as edit:
            for role in roles:
                if not edit.revoke(role, name):
                    raise _lacks(name, role)

    def show(self, as_json: bool) -> None:
        """Print all users with their roles."""
        known = Users(self._users)
        roles = None if self._roles is None else Roles(self._roles)
        granted = {name: [] if roles is None else sorted(roles.of(name)) for name in known.names()}
        if as_json:
            echo_json([{"name": name, "roles": its} for name, its in granted.items()])
            return
        for name, its in granted.items():
            click.echo("\t".join(filter(None, (name, ", ".join(its)))))
        for name in filter(known.needs_rehash, known.names()):
            warn(
                f"password hash of {name!r} has outdated parameters; renew it with: "
                f"stompring user add --replace {name}"
            )


class RemoteAccounts:
    """The users of a running broker, with the methods of `FileAccounts`."""

    def __init__(self, remote: Remote) -> None:
        self.place = remote.server
        self.where = f"on {remote.server}"
        self._remote = remote

    def _find(self, name: str) -> set[str] | None:
        try:
            return set(self._remote.get("users", name)["roles"])
        except ApiError as fault:
            if fault.http != 404:
                raise
            return None

    def knows(self, name: str, roles: Sequence[str]) -> bool:
        """Return whether a user exists. Ignores ``roles``: the broker checks roles when they are granted."""
        return self._find(name) is not None

    def save(self, name: str, password: str, roles: Sequence[str], replace: bool) -> None:
        """Add a user, or replace the password of an existing user."""
        found = self._find(name)
        body: JsonObject = {"password": password}
        if roles or found is None:
            body["roles"] = sorted({*(found or ()), *roles})
        if found is None:
            self._remote.post("users", body={"name": name, **body})
        else:
            self._remote.patch("users", name, body=body)

    def remove(self, name: str) -> list[str]:
        """Remove a user."""
        self._remote.delete("users", name)
        return []

    def _roles_of(self, name: str) -> set[str]:
        found = self._find(name)
        if found is None:
            raise CommandFailed(f"no user {name!r} {self.where}", NOT_FOUND)
        return found

    def grant(self, name: str, roles: Sequence[str]) -> None:
        """Grant roles to a user. Raises `CommandFailed`."""
        self._remote.patch("users", name, body={"roles": sorted(self._roles_of(name).union(roles))})

    def revoke(self, name: str, roles: Sequence[str]) -> None:
        """Revoke roles from a user. Raises `CommandFailed`."""
        found = self._roles_of(name)
        for role in roles:
            if role not in found:
                raise _lacks(name, role)
        self._remote.patch("users", name, body={"roles": sorted(found.difference(roles))})

    def show(self, as_json: bool) -> None:
        """Print all users with their roles."""
        answer = self._remote.pages("users")
        if as_json:
            echo_json(answer)
        else:
            print_table(answer["data"], columns(name=0, roles=0))


Accounts = FileAccounts | RemoteAccounts


def _exists(name: str, where: str) -> CommandFailed:
    return CommandFailed(f"user {name!r} exists already {where}; replace the password with --replace")


def _lacks(name: str, role: str) -> CommandFailed:
    return CommandFailed(f"user {name!r} does not have the role {role!r}; no change was made")


def _check_member(name: str) -> None:
    try:
        check_member(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@provided
def the_accounts(
    config: str | None = option(
        "FILE", f"The broker.xml that names the users file and the roles file.  [default: {DEFAULT}]"
    ),
    users: str | None = option("FILE", "The users file itself, in place of --config."),
    roles: str | None = option("FILE", "The roles file itself."),
    broker: ServerOptions = server_options,
) -> Iterator[Accounts]:
    """The users that the options select: those of a running broker, or those in files."""
    local = (config, users, roles) != (None, None, None)
    given = (broker.server, broker.context) != (None, None)
    if local and given:
        raise click.UsageError("--server and --context exclude --config, --users and --roles")
    environment = os.environ.get("STOMPRING_SERVER") or os.environ.get("STOMPRING_CONTEXT")
    if not given and (local or not environment):
        yield _files(config, users, roles)
        return
    with closing(broker.remote()) as remote:
        yield RemoteAccounts(remote)


def _check_role(role: str) -> None:
    check_name(role, "role")


NAME = argument(check=check_name)
ROLES = argument("ROLE...", check=_check_role)


@command(user)
def add(
    name: str = NAME,
    password_stdin: bool = option("Read the password from standard input instead of a prompt."),
    replace: bool = option("Replace the password of an existing user."),
    granted: tuple[str, ...] = option(
        "--role", "ROLE", "A role to grant. Can be given several times.", check=_check_role
    ),
    accounts: Accounts = the_accounts,
    as_json: bool = JSON,
) -> None:
    """Add the user NAME with a password from a prompt.

    The users file is created if there is none, with mode 0600.

    \b
    Examples:
      stompring user add ada --role admins
      stompring user add ada --password-stdin --replace < password
      stompring user add bob --role viewers --context prod
    """
    # refuse an existing user before the password is read: `save` checks again
    if accounts.knows(name, granted) and not replace:
        raise _exists(name, accounts.where)
    if password_stdin:
        password = password_from_stdin()
    else:
        password = str(
            click.prompt(
                f"Password of {name}", hide_input=True, confirmation_prompt=True, value_proc=_checked
            )
        )
    accounts.save(name, password, granted, replace)
    record = {"name": name, "saved": accounts.place, "rolesGranted": list(granted)}
    saved = f"user {name!r} saved {accounts.where}"
    report(as_json, record, saved, *_role_lines(name, "granted to", granted))


@command(user)
def rm(name: str = NAME, accounts: Accounts = the_accounts, as_json: bool = JSON) -> None:
    """Remove the user NAME, and revoke all roles of the user.

    \b
    Examples:
      stompring user rm ada
      stompring user rm ada --server https://broker.example.com:8161 --user root
    """
    revoked = accounts.remove(name)
    removed = f"user {name!r} removed from {accounts.place}"
    record = {"name": name, "removed": accounts.place}
    report(as_json, record, *_role_lines(name, "revoked from", revoked), removed)


@command(user)
def grant(
    name: str = NAME,
    granted: tuple[str, ...] = ROLES,
    accounts: Accounts = the_accounts,
    as_json: bool = JSON,
) -> None:
    """Grant each ROLE to the user NAME. The roles file is created if there is none.

    \b
    Examples:
      stompring user grant ada admins viewers
      stompring user grant ada viewers --context prod
    """
    accounts.grant(name, granted)
    lines = _role_lines(name, "granted to", granted)
    report(as_json, {"name": name, "rolesGranted": list(granted)}, *lines)


@command(user)
def revoke(
    name: str = NAME,
    revoked: tuple[str, ...] = ROLES,
    accounts: Accounts = the_accounts,
    as_json: bool = JSON,
) -> None:
    """Revoke each ROLE from the user NAME.

    \b
    Examples:
      stompring user revoke ada admins viewers
      stompring user revoke ada viewers --context prod
    """
    accounts.revoke(name, revoked)
    record = {"name": name, "rolesRevoked": list(revoked)}
    report(as_json, record, *_role_lines(name, "revoked from", revoked))


@command(user, "list")
def list_users(accounts: Accounts = the_accounts, as_json: bool = JSON) -> None:
    """List all users. Users in files are shown one per line: name, tab, roles separated by commas.

    \b
    Examples:
      stompring user list
      stompring user list --context prod --json
    """
    accounts.show(as_json)


def _role_lines(name: str, verb: str, roles: Sequence[str]) -> list[str]:
    return [f"role {role!r} {verb} user {name!r}" for role in roles]


def _files(config: str | None, users: str | None, roles: str | None) -> FileAccounts:
    """The files named by the options, directly or by a broker.xml."""
    if config is not None and users is not None:
        raise click.UsageError("--config and --users are mutually exclusive")
    if users is not None:
        return FileAccounts(Path(users), None if roles is None else Path(roles))
    configuration = read_broker_xml(existing(config), _unrelated)
    if configuration.users_file is None:
        raise ConfigurationError(
            "security is disabled and there is no <users-file>: set <security-enabled> to true, "
            "add <users-file>, or name a file with --users FILE",
            configuration.file,
        )
    if not configuration.security_enabled:
        warn(f"security is disabled in {configuration.file}: the broker does not use these users yet")
    named = roles or configuration.roles_file or Path(configuration.users_file).with_name("roles.properties")
    return FileAccounts(Path(configuration.users_file), Path(named))


def _unrelated(faults: ConfigurationError) -> bool:
    """Return True, and print a warning, if the faults of a broker.xml do not concern users: the command continues."""
    if any(re.search("users?-file|roles?-file|security|login", text) for _, _, text in faults.faults):
        return False
    warn(f"{faults.lines()[0]} (the broker does not start with this file; users can be changed)")
    return True


def password_from_stdin() -> str:
    """The password: all of standard input, without the line end at its end."""
    try:
        return _checked(sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        raise CommandFailed("the password on standard input is not UTF-8 text") from None
    except click.UsageError as error:
        raise CommandFailed(f"on standard input: {error.message}") from None


def _checked(password: str) -> str:
    try:
        check_password(password)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return password
