"""``stompring init DIR``: creates an instance, as Artemis's ``create`` does."""

from __future__ import annotations

import getpass
import re
import secrets
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import dropwhile
from pathlib import Path
from string import Template
from typing import NamedTuple
from xml.sax.saxutils import escape  # nosec B406 - only writes XML

import click

from stompring.errors import ConfigurationError
from stompring.settings.machine import shipped_file

from .context import check_name
from .options import JSON, argument, command, option
from .output import CommandFailed, bracketed, echo_json, reachable

TEMPLATE = Path(__file__).parent / "templates" / "instance.xml.txt"

PREFIXES = "anycastPrefix=/queue/,queue/;multicastPrefix=/topic/,topic/"

#: Ports of STOMP without TLS, of STOMP with TLS, and of HTTP.
STOMP, STOMP_TLS, HTTP = 61613, 61612, 8161

#: Days that a self-signed certificate is valid.
DAYS = 825

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class Instance(NamedTuple):
    """The instance to create. ``certificate``, ``key``: files of the user, or None.

    If ``tls`` is set without a certificate, `create` writes a self-signed one.
    """

    directory: Path
    name: str
    host: str
    http_host: str
    stomp_port: int
    http_port: int
    tls: bool
    certificate: Path | None
    key: Path | None
    service_user: str

    @property
    def broker_url(self) -> str:
        """The URL of STOMP, for clients on this machine."""
        return f"{'stomp+ssl' if self.tls else 'stomp'}://{bracketed(reachable(self.host))}:{self.stomp_port}"

    @property
    def server_url(self) -> str:
        """The URL of the management API, for clients on this machine."""
        return f"{'https' if self.tls else 'http'}://{bracketed(reachable(self.http_host))}:{self.http_port}"

    @property
    def trusted(self) -> Path | None:
        """The self-signed certificate, which clients must trust; None without one."""
        return (
            self.directory / "etc" / "tls" / "broker.pem" if self.tls and self.certificate is None else None
        )


def _check_host(host: str) -> None:
    try:
        ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ValueError("must be a host name or an IP address") from None


def _check_user(name: str) -> None:
    from stompring.security.accounts import check_member, check_name

    check_name(name)
    check_member(name)


ANY_PATH = click.Path(path_type=Path)  # `create` reports an invalid path


@command()
def init(
    directory: Path = argument("DIR", type=ANY_PATH),
    name: str | None = option("Name of the broker.  [default: the name of DIR]", check=check_name),
    user: str = option("User with all permissions.", default="admin", check=_check_user),
    password_stdin: bool = option("Read the password from standard input instead of generating one."),
    host: str = option("Address of the STOMP listener.", default="127.0.0.1", check=_check_host),
    http_host: str = option("Address of the HTTP listener.", default="127.0.0.1", check=_check_host),
    stomp_port: int | None = option(
        f"Port of STOMP.  [default: {STOMP}, {STOMP_TLS} with TLS]", min=1, max=65535
    ),
    http_port: int = option("Port of HTTP.", default=HTTP, min=1, max=65535),
    tls: bool = option("TLS with a self-signed certificate, on both listeners."),
    cert: Path | None = option(
        "FILE",
        "TLS with this certificate and its chain (PEM). The file is used where it is, and reloaded when it changes.",
        exists=True,
    ),
    key: Path | None = option("FILE", "The private key of --cert (PEM).", exists=True),
    service_user: str | None = option("User of the systemd unit.  [default: you, or stompring for root]"),
    as_json: bool = JSON,
) -> None:
    """Create an instance in DIR: configuration, users, data directory, systemd unit.

    Security is on, with one user whose generated password is shown once. Nothing is overwritten: DIR must be new or
    empty. The files of users, roles and keys are readable by their owner only.

    \b
    Examples:
      stompring init /srv/orders
      stompring init ./test --stomp-port 7613 --http-port 7161
      stompring init /srv/orders --tls --host 0.0.0.0
      stompring init /srv/orders --cert fullchain.pem --key privkey.pem --host 0.0.0.0
    """
    if key and cert is None:
        raise click.UsageError("--key is the key of --cert: specify both")
    if cert and tls:
        raise click.UsageError("--tls makes a self-signed certificate: use it or --cert")
    for file in (cert, key):
        if file and re.search("[,\x00-\x1f]", str(file.absolute())):
            raise click.UsageError(f"{str(file)!r}: a path with a comma cannot be written into an acceptor")
    path = directory.absolute()
    if re.search("[\x00-\x1f]", str(path)):
        raise click.UsageError("DIR contains a control character")
    if not path.name:
        raise click.UsageError("DIR must have a name")
    _check_absent(path)
    encrypted = tls or cert is not None
    instance = Instance(
        path,
        name or re.sub(r"[^A-Za-z0-9._-]", "-", path.name)[:64].strip("-._") or "stompring",
        host,
        http_host,
        stomp_port or (STOMP_TLS if encrypted else STOMP),
        http_port,
        encrypted,
        cert and cert.absolute(),
        key and key.absolute(),
        service_user or _default_service_user(),
    )
    if instance.stomp_port == http_port and (host == http_host or "0.0.0.0" in (host, http_host)):  # nosec B104
        raise click.UsageError(f"STOMP and HTTP cannot share port {http_port}")
    if password_stdin:
        from .user import password_from_stdin  # not at the top: `user` imports argon2, which is slow

        password = password_from_stdin()
    else:
        password = secrets.token_urlsafe(18)
    try:
        create(instance, user, password)
    except OSError as fault:
        raise CommandFailed(f"cannot create {fault.filename or path}: {fault.strerror}") from None
    shown = None if password_stdin else password
    if as_json:
        document = {
            "directory": str(path),
            "configuration": str(path / "etc" / "broker.xml"),
            "user": user,
            "password": shown,
            "broker": instance.broker_url,
            "server": instance.server_url,
            "ca": instance.trusted and str(instance.trusted),
            "next": next_commands(instance, user),
        }
        echo_json(document, ascii=True)
        return
    click.echo(f"created the instance {instance.name} in {path}")
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        click.echo(f"  {file.relative_to(path)}")
    click.echo()
    if shown is not None:
        click.echo(f"user {user}, password {shown}")
        click.echo("(shown only now; 'stompring user add --replace' sets another one)")
        click.echo()
    click.echo("next:")
    for line in next_commands(instance, user):
        click.echo(f"  {line}")


def next_commands(instance: Instance, user: str) -> list[str]:
    """The commands to start the instance, to add its context, and to show its status."""
    config = shlex.quote(str(instance.directory / "etc" / "broker.xml"))
    context = ["stompring context add", instance.name, "--server", instance.server_url]
    context += ["--broker", instance.broker_url, "--user", shlex.quote(user), "--save-password --use"]
    if instance.trusted:
        context += ["--ca", shlex.quote(str(instance.trusted))]
    return [f"stompring run --config {config}", " ".join(context), "stompring status"]


def create(instance: Instance, user: str, password: str) -> None:
    """Write all files, or none. Raises OSError, `ConfigurationError` for an invalid certificate."""
    from stompring.security.accounts import edit_roles, edit_users
    from stompring.settings.broker_xml import read_broker_xml

    from .check_config import read_certificates  # not at the top: `check_config` imports TLS, which is slow

    directory = instance.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    # the temporary directory has mode 0700: no other user can read it
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as name:
        building = Path(name)
        try:
            etc = building / "etc"
            etc.mkdir(mode=0o700)
            (building / "data").mkdir(mode=0o700)
            if instance.tls and instance.certificate is None:
                _write_certificate(etc / "tls", instance)
            _write(etc / "broker.xml", _document(instance), 0o640)
            with edit_users(etc / "users.properties") as users:
                users.put(user, password)
            with edit_roles(etc / "roles.properties") as roles:
                roles.grant("admins", user)
            _write(building / "stompring.service", "\n".join((*_unit_lines(instance), "")), 0o644)
            list(read_certificates(read_broker_xml(str(etc / "broker.xml"))))
            _check_absent(directory)
            building.replace(directory)  # also replaces an empty directory
        except ConfigurationError as fault:
            raise CommandFailed(str(fault).replace(name, str(directory)) + "; nothing was created") from None


def _check_absent(directory: Path) -> None:
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise CommandFailed(f"{directory} exists and is not a directory: nothing was created")
    if directory.is_dir() and any(directory.iterdir()):
        raise CommandFailed(
            f"{directory} is not empty: nothing was created or changed; choose another directory"
        )


def _write(file: Path, text: str | bytes, mode: int) -> None:
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)


def _write_certificate(directory: Path, instance: Instance) -> None:
    from stompring.security.certificates import self_signed

    names = socket.gethostname(), instance.host, instance.http_host, "localhost", "127.0.0.1", "::1"
    usable = [
        name
        for name in dict.fromkeys(names)
        if name not in ("0.0.0.0", "::") and (_HOST.fullmatch(name) or ":" in name)  # nosec B104
    ]
    certificate, key = self_signed(usable, DAYS)
    directory.mkdir(mode=0o755)
    _write(directory / "broker.pem", certificate, 0o644)
    _write(directory / "broker.key", key, 0o600)


def _document(instance: Instance) -> str:
    tls = ""
    if instance.tls:
        files = f"keyStorePath={_parameter(instance.certificate or 'tls/broker.pem')}"
        if instance.key:
            files += f";keyPath={_parameter(instance.key)}"
        tls = f"{files};sslAutoReload=true"
    stomp = f"{'ssl' if tls else 'tcp'}://{bracketed(instance.host)}:{instance.stomp_port}?{PREFIXES}"
    http = f"{'https' if tls else 'http'}://{bracketed(instance.http_host)}:{instance.http_port}"
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=escape(instance.name),
        stomp=escape(f"{stomp};{tls}" if tls else stomp),
        http=escape(f"{http}?{tls}" if tls else http),
    )


def _parameter(path: Path | str) -> str:
    """Encode a path for the URL of an acceptor: a comma that is not encoded would separate two files."""
    from urllib.parse import quote

    return quote(str(path), safe="/._-~ ")


def _default_service_user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return "stompring"
    return "stompring" if name == "root" else name


def _unit_lines(instance: Instance) -> Iterator[str]:
    """Yield the lines of the systemd unit: the unit of the package, with the paths and the user of the instance."""
    directory, user = instance.directory, instance.service_user
    place = str(directory).replace("%", "%%")
    config, data = _unit_word(str(directory / "etc" / "broker.xml")), _unit_word(str(directory / "data"))
    command = " ".join(map(_unit_word, _command()))
    yield f"# The instance {instance.name} as a systemd service in a sandbox (docs/security.md)."
    yield "#"
    if user == "stompring":
        yield "#   useradd --system --shell /usr/sbin/nologin stompring"
    yield f"#   chown -R {shlex.quote(user)} {shlex.quote(str(directory))}"
    yield f"#   cp {shlex.quote(str(directory / 'stompring.service'))} /etc/systemd/system/{instance.name}.service"
    yield f"#   systemctl daemon-reload && systemctl enable --now {instance.name}"
    replaced = {
        "ExecStartPre": f"{command} check-config --data {data} {config}",
        "ExecStart": f"{command} run --config {config} --data {data}",
        "User": user,
        "Group": None,
        "StateDirectory": None,
        "StateDirectoryMode": None,
        "ConfigurationDirectory": None,
        "ConfigurationDirectoryMode": None,
        "WorkingDirectory": place,
    }
    if str(directory).startswith(("/home/", "/root/", "/run/user/")):
        replaced["ProtectHome"] = "no"
    unit = shipped_file("config", "stompring.service").read_text(encoding="utf-8")
    for line in dropwhile(lambda line: line.startswith("#"), unit.splitlines()):
        name = line.partition("=")[0]
        if name not in replaced:
            yield line
        elif replaced[name] is not None:
            yield f"{name}={replaced[name]}"
        if line.startswith("ProtectSystem="):
            yield f"ReadWritePaths={_quoted(place)}"


def _command() -> list[str]:
    beside = Path(sys.executable).parent / "stompring"
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "stompring"]


def _unit_word(text: str) -> str:
    """A word of a command line in a unit (systemd.service, "COMMAND LINES"), with % and $ escaped."""
    doubled = text.replace("%", "%%").replace("$", "$$")
    return doubled if re.fullmatch(r"[\w@%+=:,./$-]+", text) else _quoted(doubled)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
