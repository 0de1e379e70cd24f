"""``stompring check-config FILE…``: the faults of a broker.xml, or a summary of it."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from stompring.errors import ConfigurationError, Line, Refused, StoreError
from stompring.security.access import CLOSE_MANAGEMENT, open_management
from stompring.settings.artemis import describe_ignored
from stompring.settings.broker_xml import FILES, read_broker_xml
from stompring.settings.document import Faults
from stompring.settings.machine import data_directory
from stompring.settings.match import SettingsRepository
from stompring.settings.model import BrokerConfiguration, HttpAcceptor, LoginModule, StompAcceptor, TokenLogin
from stompring.settings.network import POSTGRESQL, scheme_of
from stompring.store.datadir import IDENTITY, LOCK, VERSION, check_version, is_locked, read_identity
from stompring.store.files import Files

from .options import JSON_FOR_TEXT, argument, command, option
from .output import bracketed, counted, echo_json


@command()
def check_config(
    files: tuple[str, ...] = argument("FILE...", type=click.Path()),
    data: str | None = option("DIR", "Data directory, as for stompring run."),
    strict: bool = option("Refuse settings of Artemis that have no effect here, too."),
    as_json: bool = JSON_FOR_TEXT,
) -> None:
    """Check each FILE: print its faults, or a summary of the configuration.

    All faults of a file are reported together, as FILE:LINE: fault. The exit status is 1 if any file has a fault. The
    command loads plugins and certificates, reads the files of users and roles, checks the data directory, creates the
    addresses and queues in memory and tries to listen, as a start of the broker does: run it as the user of the broker.
    The summary reports ports that are in use, and a broker that runs with the data directory.

    \b
    Examples:
      stompring check-config etc/broker.xml
      stompring check-config /etc/stompring/broker.xml --data /var/lib/stompring/data
      stompring check-config --strict artemis/etc/broker.xml
      stompring check-config etc/broker.xml --json | jq '.files[].faults[]'
    """
    documents = []
    for file in files:
        found: dict[str, Any]
        found = dict.fromkeys(("faults", "warnings", "ignored", "summary", "certificates"), ())
        try:
            found |= _examine(file, data, strict)
        except ConfigurationError as error:
            found["faults"] = [
                {
                    "file": line.file if isinstance(line, Line) else error.file,
                    "line": None if line is None else int(line),
                    "column": column,
                    "text": text,
                }
                for line, column, text in error.faults
            ]
            if not as_json:
                click.echo(str(error), err=True)
        else:
            if not as_json:
                for warning in found["warnings"]:
                    click.echo(f"{warning} (warning)", err=True)
                click.echo(f"{file}: ok")
                for line in found["summary"]:
                    click.echo(f"  {line}")
                for each in found["certificates"]:
                    click.echo(f"  acceptor {each['acceptor']}: {each['certificate']}")
        documents.append({"file": file, "valid": not found["faults"], **found})
    valid = all(each["valid"] for each in documents)
    if as_json:
        echo_json({"valid": valid, "files": documents})
    if not valid:
        raise SystemExit(1)


def _examine(file: str, data: str | None, strict: bool) -> dict[str, list[Any]]:
    """Return warnings, ignored settings, summary and certificates of a file. Raises `ConfigurationError`."""
    configuration = read_broker_xml(file)
    if strict:
        refuse_ignored(configuration)
    certificates = list(read_certificates(configuration))
    read_security_files(configuration)
    check_replicated_log(configuration)
    check_data(configuration, data)
    check_queues(configuration)
    in_use = [] if is_in_use(configuration, data) else check_ports(configuration)
    warnings = [*configuration.warnings, *(warning for _, _, warning in certificates if warning)]
    warnings += rings_by_default(configuration)
    if configuration.security_enabled:
        warnings += [f"{each}; {CLOSE_MANAGEMENT}" for each in open_management(configuration)]
    return {
        "warnings": warnings,
        "ignored": [
            {
                "file": each.line.file if isinstance(each.line, Line) else file,
                "line": int(each.line),
                "name": each.name,
                "reason": each.reason,
            }
            for each in configuration.ignored
        ],
        "summary": [*summary(configuration, data), *in_use],
        "certificates": [{"acceptor": name, "certificate": shown} for name, shown, _ in certificates],
    }


def refuse_ignored(configuration: BrokerConfiguration) -> None:
    """Raise `ConfigurationError` with the settings of Artemis that have no effect here."""
    assert configuration.file is not None
    faults = Faults(configuration.file)
    for each in configuration.ignored:
        # the reason of a warning already says what the broker does with the setting
        what = each.name if each.is_warning else f"{each.name} has no effect here"
        faults.add(each.line, f"{what}: {each.reason}")
    faults.raise_if_any()


def acceptors(configuration: BrokerConfiguration) -> list[StompAcceptor | HttpAcceptor]:
    """All acceptors, STOMP acceptors first."""
    return [*configuration.stomp_acceptors, *configuration.http_acceptors]


def read_certificates(configuration: BrokerConfiguration) -> Iterator[tuple[str, str, str | None]]:
    """Yield the acceptor, the description, and the expiry warning (or None) of each certificate.

    Raises `ConfigurationError` if a certificate cannot be read.
    """
    if not any(acceptor.tls for acceptor in acceptors(configuration)):
        return
    # imported here to start the other commands faster: TLS imports Twisted
    from stompring.server.listeners import EXPIRY_WARNING, read_tls_contexts

    for name, context in read_tls_contexts(configuration).items():
        for identity in context.identities:
            warning = identity.expiry_warning(time.time(), EXPIRY_WARNING)
            yield name, identity.describe(), warning and f"acceptor '{name}': {warning}"


def read_security_files(configuration: BrokerConfiguration) -> None:
    """Read the files of users, roles and certificates. Raises `ConfigurationError`. A roles file may be missing."""
    if not configuration.security_enabled:
        return
    # imported here to start the other commands faster: the module of the users imports argon2
    from stompring.security.accounts import Roles, Users, check_users_file
    from stompring.security.certificates import CertificateUsers
    from stompring.security.sources import open_source

    users, roles = configuration.users_file, configuration.roles_file
    assert users is not None and roles is not None
    check_users_file(configuration)
    Users(users, optional=not configuration.uses_users_file)
    Roles(roles)
    if configuration.certificate_users_file is not None:
        CertificateUsers(configuration.certificate_users_file)
    for module in configuration.login_modules:
        if not isinstance(module, LoginModule):
            open_source(module, time.monotonic, time.time, configuration.file)


def check_replicated_log(configuration: BrokerConfiguration) -> None:
    """Check that the files of the replicated log are readable, and that the client library of its engine is installed.

    Raises `ConfigurationError`. The engine is not contacted: ``stompring ha status`` does that.
    """
    settings = configuration.replicated_log
    if settings is None:
        return
    for name in FILES:
        path = getattr(settings, name)
        if path is not None and not os.access(path, os.R_OK):
            reason = "does not exist" if _is_missing(path) else f"cannot be read by {_whoami()}"
            raise ConfigurationError(f"{name} of <replicated-log>: {path} {reason}", configuration.file)
    library = "psycopg" if scheme_of(settings.url) in POSTGRESQL else "nats"
    if find_spec(library) is None:
        raise ConfigurationError(
            f"<replicated-log> requires the package {library}: pip install 'stompring[ha]'",
            configuration.file,
        )


def check_queues(configuration: BrokerConfiguration) -> None:
    """Load the plugins, and create the addresses and queues in memory. Raises `ConfigurationError`."""
    # imported here to start the other commands faster
    from stompring.broker.broker import Broker
    from stompring.policy.hooks import Policies
    from stompring.policy.load import PluginSources, load
    from stompring.server.reload import apply

    from .data_import import OfflineReactor

    policies = Policies(load(configuration, PluginSources(configuration.file)))
    quiet = replace(configuration, warnings=(), ignored=())
    try:
        apply(Broker(quiet, OfflineReactor(), policies), quiet, starting=True)
    except Refused as fault:
        raise ConfigurationError(str(fault), configuration.file) from None


def rings_by_default(configuration: BrokerConfiguration) -> Iterator[str]:
    """Yield a warning for each declared queue that is a ring here, but not in Artemis.

    Such a queue would lose messages that Artemis keeps.
    """
    repository = SettingsRepository.of(configuration)
    for address in configuration.addresses:
        size = repository.lookup(address.name).default_ring_size
        for queue in address.queues if size >= 0 else ():
            if queue.ring_size is None:
                yield (
                    f"queue '{queue.name}': default-ring-size {size} makes it a ring, which it is not in Artemis: it "
                    f'keeps its newest {size} messages; set ring-size="-1" at the queue to keep all, or '
                    f'ring-size="{size}" to keep the ring'
                )


def check_ports(configuration: BrokerConfiguration) -> list[str]:
    """Try to listen on all acceptors. Returns a line for each port that another program uses.

    Raises `ConfigurationError` if listening fails for another reason.
    """
    in_use: list[str] = []
    used: dict[tuple[str, int], str] = {}
    with ExitStack() as opened:
        for acceptor in acceptors(configuration):
            place = (acceptor.host, acceptor.port)
            cannot = f"acceptor '{acceptor.name}' cannot listen on {acceptor.host}:{acceptor.port}"
            if acceptor.port and place in used:
                raise ConfigurationError(f"{cannot}: acceptor '{used[place]}' does", configuration.file)
            ours = acceptor.port in {port for _, port in used}
            used[place] = acceptor.name
            fault = listen_fault(acceptor, opened)
            if fault is None:
                continue
            if fault.errno != errno.EADDRINUSE:
                advice = "; use an address of this machine"
                if isinstance(fault, PermissionError):
                    advice = "; ports below 1024 need CAP_NET_BIND_SERVICE"
            elif ours:
                advice = ""
            else:
                in_use.append(f"{cannot} now: the port is in use; a start is refused until it is free")
                continue
            raise ConfigurationError(f"{cannot}: {fault.strerror or fault}{advice}", configuration.file)
    return in_use


def listen_fault(acceptor: StompAcceptor | HttpAcceptor, opened: ExitStack) -> OSError | None:
    """Listen on the port of an acceptor until the stack ``opened`` is closed. Returns the error if that fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            acceptor.host, acceptor.port, type=socket.SOCK_STREAM
        )[0]
        tried = opened.enter_context(socket.socket(family, kind, protocol))
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(address)
        tried.listen(1)
    except OSError as fault:
        return fault
    return None


def is_in_use(configuration: BrokerConfiguration, data: str | None) -> bool:
    """Whether a broker runs with the data directory. If so, this broker probably uses the ports."""
    return configuration.persistence_enabled and is_locked(data_directory(configuration, data).root)


def check_data(configuration: BrokerConfiguration, data: str | None) -> None:
    """Check that the data directory is accessible, or can be created. Raises `ConfigurationError`."""
    if not configuration.persistence_enabled:
        return
    found = data_directory(configuration, data)
    for directory in dict.fromkeys((found.root, found.journal, found.paging, found.retention)):
        if directory:
            _check_directory(directory, configuration.file)
    journals = found.journal.iterdir() if found.journal.is_dir() else ()
    for file in (found.root / LOCK, found.root / VERSION, *journals):
        if not _is_missing(file) and not os.access(file, os.R_OK | os.W_OK):
            raise ConfigurationError(f"{_whoami()} cannot read and write {file}", configuration.file)
    try:
        check_version(Files(), found.root / VERSION)
        read_identity(Files(), found.root / IDENTITY)
    except (StoreError, OSError) as fault:
        raise ConfigurationError(f"the data directory cannot be used: {fault}", configuration.file) from None


def _check_directory(directory: Path, file: str | None) -> None:
    existing = directory
    while _is_missing(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise ConfigurationError(f"cannot create directory {directory}: {existing} is not a directory", file)
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        action = "read and write" if existing == directory else "create"
        inside = "" if existing == directory else f" in {existing}"
        raise ConfigurationError(
            f"{_whoami()} cannot {action} directory {directory}{inside}; --data sets another data directory",
            file,
        )


def _is_missing(path: str | Path) -> bool:
    """Whether the file does not exist. An inaccessible file counts as existing: the caller's next check reports it."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _whoami() -> str:
    try:
        return f"user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"the user with the number {os.geteuid()}"


def summary(configuration: BrokerConfiguration, data: str | None = None) -> Iterator[str]:
    """The summary of a configuration, line by line."""
    for stomp in configuration.stomp_acceptors:
        if stomp.websocket.only:
            url = f"{_listener('wss' if stomp.tls else 'ws', stomp)}{stomp.websocket.path}"
            yield f"STOMP over WebSocket on {url}"
        else:
            yield f"STOMP on {_listener('ssl' if stomp.tls else 'tcp', stomp)}"
    for http in configuration.http_acceptors:
        yield f"HTTP on {_listener('https' if http.tls else 'http', http)}"
    if not acceptors(configuration):
        yield "no acceptor"
    users = configuration.users_file if configuration.security_enabled else None
    yield f"security {'off' if users is None else f'on, users in {users}' if configuration.uses_users_file else 'on'}"
    for module in configuration.login_modules if users else ():
        if not isinstance(module, LoginModule):
            name = module.issuer if isinstance(module, TokenLogin) else module.connection_url
            yield f"logins by {name} ({module.flag.lower()})"
    if configuration.security_enabled:
        yield f"permissions: {_permissions(configuration)}"
    yield _data(configuration, data)
    log = configuration.replicated_log
    if log:
        yield f"replicated log {log.stream} at {log.url}, as broker {log.broker}"
    addresses, settings = configuration.addresses, configuration.address_settings
    queues = sum(len(address.queues) for address in addresses)
    yield (
        f"{counted(len(addresses), 'address', str)}, {counted(queues, 'queue', str)}, "
        f"{counted(len(settings), 'address-setting', str)}"
    )
    if configuration.diverts:
        yield f"diverts: {', '.join(divert.name for divert in configuration.diverts)}"
    if configuration.plugins:
        yield f"plugins: {', '.join(plugin.name for plugin in configuration.plugins)}"
    ignored = describe_ignored(configuration.ignored)
    if ignored:
        yield ignored


def _listener(scheme: str, acceptor: StompAcceptor | HttpAcceptor) -> str:
    return f"{scheme}://{bracketed(acceptor.host)}:{acceptor.port or '(any)'}"


def _permissions(configuration: BrokerConfiguration) -> str:
    file = configuration.roles_file
    assert file is not None
    entries = configuration.security_settings
    if not entries:
        return "no security-setting: everything is denied"
    missing = " (missing: create it with 'stompring user grant')" if _is_missing(file) else ""
    return f"{counted(len(entries), 'security-setting', str)}, roles in {file}{missing}"


def _data(configuration: BrokerConfiguration, data: str | None) -> str:
    if not configuration.persistence_enabled:
        return "persistence off: all messages in memory"
    directory = data_directory(configuration, data)
    running = (
        " (in use by a running broker: another start is refused)" if is_in_use(configuration, data) else ""
    )
    return f"journal in {directory.journal}, pages in {directory.paging}{running}"
