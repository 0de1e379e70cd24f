"""The users of an Artemis instance: the files that ``login.config`` names, beside broker.xml (`find_logins`).

Artemis's ``create`` writes ``login.config`` with a PropertiesLoginModule, and with a GuestLoginModule for
``--allow-anonymous``. The entry is the one that ``bootstrap.xml`` names, ``activemq`` where it names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stompring.errors import ConfigurationError
from stompring.settings.model import Guest

LOGIN_CONFIG, BOOTSTRAP = "login.config", "bootstrap.xml"
DEFAULT_DOMAIN = "activemq"
ARTEMIS_USERS, ARTEMIS_ROLES = "artemis-users.properties", "artemis-roles.properties"

USERS_OPTION, ROLES_OPTION = (
    "org.apache.activemq.jaas.properties.user",
    "org.apache.activemq.jaas.properties.role",
)
GUEST_USER_OPTION, GUEST_ROLE_OPTION = (
    "org.apache.activemq.jaas.guest.user",
    "org.apache.activemq.jaas.guest.role",
)

CERTIFICATE_USERS_OPTION, CERTIFICATE_ROLES_OPTION = (
    "org.apache.activemq.jaas.textfiledn.user",
    "org.apache.activemq.jaas.textfiledn.role",
)

_TOKEN = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"((?:\\.|[^"\\])*)"|\'((?:\\.|[^\'\\])*)\'|([^\s"\'{};=]+)|([{};=])""", re.DOTALL
)
_JAAS = re.compile(r"<jaas-security\b[^>]*>")
_DOMAIN = re.compile(r"""\s(?P<certificate>certificate-)?domain\s*=\s*["'](?P<name>[^"']*)["']""")
_SECURITY_MANAGER = re.compile(r"""<security-manager\b[^>]*\sclass-name\s*=\s*["']([^"']*)["']""")
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Logins:
    """Where the users of an Artemis instance are. ``warnings`` has login modules that log nobody in here."""

    users: Path
    roles: Path
    guest: Guest | None = None
    warnings: tuple[str, ...] = ()
    certificate_users: Path | None = None


@dataclass(slots=True)
class _Module:
    """One login module: its class, its control flag, and its options."""

    name: str
    flag: str
    line: int
    options: dict[str, str] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


def find_logins(directory: Path) -> Logins | None:
    """The users of the Artemis instance with its broker.xml in ``directory``; None where there are none.

    Raises `ConfigurationError` for a ``login.config`` that cannot be read, and for one that logs users in by other
    means than files.
    """
    file, users = directory / LOGIN_CONFIG, directory / ARTEMIS_USERS
    bootstrap = _without_comments(directory / BOOTSTRAP)
    manager = _SECURITY_MANAGER.search(bootstrap)
    if manager is not None or not file.is_file():
        warnings = () if manager is None else (_unsupported_security(manager[1], directory / BOOTSTRAP),)
        return Logins(users, directory / ARTEMIS_ROLES, warnings=warnings) if users.is_file() else None
    entries = _parse(_text_of(file), file)
    domain, certificate_domain = _domains(bootstrap)
    if domain not in entries:
        raise ConfigurationError(
            f"there is no entry '{domain}', which {BOOTSTRAP} names; set <users-file> in broker.xml, or add the entry",
            str(file),
        )
    logins = _logins(entries[domain], file, directory)
    return _with_certificates(logins, entries.get(certificate_domain or "", []), file, directory)


def _text_of(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", str(file)) from error
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"is longer than {_MAX_BYTES} bytes", str(file))
    return content.decode(errors="replace")


def _without_comments(file: Path) -> str:
    """The text of an XML file; empty without a file."""
    return re.sub(r"<!--.*?-->", "", _text_of(file), flags=re.DOTALL) if file.is_file() else ""


def _unsupported_security(class_name: str, file: Path) -> str:
    """The warning for a security manager that is not JAAS: ``login.config`` has no effect then."""
    name = class_name.rpartition(".")[2]
    return (
        f"{file}: security-manager {name} is not supported: the users are those of {ARTEMIS_USERS}, and others, as "
        "those added while Artemis ran, are unknown"
    )


def _domains(bootstrap: str) -> tuple[str, str | None]:
    """The entry for passwords, and the one for client certificates if there is one."""
    found: dict[bool, str] = {}
    if element := _JAAS.search(bootstrap):
        found = {bool(each["certificate"]): each["name"] for each in _DOMAIN.finditer(element[0])}
    return found.get(False, DEFAULT_DOMAIN), found.get(True)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, before = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", before, found.start())
        before = found.start()
        token = next((group for group in found.groups() if group is not None), None)
        if token is not None:
            yield token, line


def _parse(text: str, file: Path) -> dict[str, list[_Module]]:
    """The modules of each entry (JAAS login configuration syntax)."""
    tokens = list(_tokens(text))
    entries: dict[str, list[_Module]] = {}
    at = 0

    def take(what: str, exactly: str | None = None) -> tuple[str, int]:
        nonlocal at
        if at >= len(tokens):
            line = tokens[-1][1] if tokens else 1
            raise ConfigurationError(f"the file ends where {what} should follow", str(file), line)
        token, line = tokens[at]
        if exactly is not None and token != exactly or exactly is None and token in ("{", "}", ";", "="):
            raise ConfigurationError(f"'{token}' stands where {what} should be", str(file), line)
        at += 1
        return token, line

    def ahead(token: str) -> bool:
        return at < len(tokens) and tokens[at][0] == token

    while at < len(tokens):
        modules = entries.setdefault(take("the name of an entry")[0], [])
        take("'{'", "{")
        while not ahead("}"):
            name, line = take("a login module")
            module = _Module(name, take("required, requisite, sufficient or optional")[0].lower(), line)
            while not ahead(";"):
                option = take("an option or ';'")[0]
                take("'='", "=")
                module.options[option] = take("the value of an option")[0]
            take("';'", ";")
            modules.append(module)
        take("'}'", "}")
        take("';'", ";")
    return entries


def _logins(modules: list[_Module], file: Path, directory: Path) -> Logins:
    files: tuple[Path, Path] | None = None
    guest: Guest | None = None
    warnings: list[str] = []
    for module in modules:
        if module.short_name == "PropertiesLoginModule" and files is None:
            base = directory / module.options.get("baseDir", "")
            files = (
                base / module.options.get(USERS_OPTION, ARTEMIS_USERS),
                base / module.options.get(ROLES_OPTION, ARTEMIS_ROLES),
            )
        elif module.short_name == "GuestLoginModule" and guest is None:
            guest = Guest(
                module.options.get(GUEST_USER_OPTION, "guest"),
                module.options.get(GUEST_ROLE_OPTION, "guests"),
            )
            warnings.append(
                f"{file}:{module.line}: GuestLoginModule: STOMP clients without login and passcode are user "
                f"{guest.user} with role {guest.role}; wrong passwords are refused"
            )
        elif module.flag in ("required", "requisite"):
            raise ConfigurationError(
                f"{module.short_name} is not supported and {module.flag}: nobody could log in; set <users-file> in "
                "broker.xml and add users with: stompring user add NAME",
                str(file),
                module.line,
            )
        else:
            warnings.append(
                f"{file}:{module.line}: {module.short_name} is not supported: it logs nobody in here"
            )
    if files is None and guest is None:
        raise ConfigurationError(
            "there is no PropertiesLoginModule, and other login modules are not supported; set <users-file> in "
            "broker.xml and add users with: stompring user add NAME",
            str(file),
            modules[0].line if modules else None,
        )
    users, roles = files or (directory / ARTEMIS_USERS, directory / ARTEMIS_ROLES)
    return Logins(users, roles, guest, tuple(warnings))


def _with_certificates(logins: Logins, modules: list[_Module], file: Path, directory: Path) -> Logins:
    """With the users of client certificates. Their roles are read where those of all users are."""
    for module in modules:
        if (
            module.short_name != "TextFileCertificateLoginModule"
            or CERTIFICATE_USERS_OPTION not in module.options
        ):
            continue
        base = directory / module.options.get("baseDir", "")
        warnings = logins.warnings
        roles = module.options.get(CERTIFICATE_ROLES_OPTION)
        if roles is not None and base / roles != logins.roles:
            text = f"the roles in {roles} are not read: add its lines to {logins.roles.name}"
            warnings = (*warnings, f"{file}:{module.line}: {module.short_name}: {text}")
        users = base / module.options[CERTIFICATE_USERS_OPTION]
        return replace(logins, certificate_users=users, warnings=warnings)
    return logins
