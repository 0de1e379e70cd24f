"""Users, their roles and their password hashes, in properties files.

Properties files have ``name = value`` on each line, like Artemis's ``.properties`` files. They are replaced atomically
and watched for changes. Lines that begin with ``#`` are comments and survive every change. A file whose name begins
with ``artemis-`` is one of Artemis's and has the syntax of Java (`Syntax`).

The roles file has one role per line, ``role = user, user``, as in Artemis.

The users file has one user per line, ``name = $argon2id$…``. Hashes of Artemis are supported, too,
``ENC(iterations:salt:hash)``: PBKDF2 with HMAC-SHA1 of the UTF-8 password, 64 bytes, salt and hash in hexadecimal
digits; plain passwords only in Artemis's own file. New hashes are argon2.

`UserFiles` changes users and roles for the HTTP API. Each call reads the current files, and replaces each atomically
under the lock that ``stompring user`` uses, too: comments and manual changes are preserved. The calls are slow on
purpose (argon2): call them in a thread.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from argon2 import PasswordHasher as PasswordHasher  # other modules import it from here
from argon2 import extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from stompring.errors import ConfigurationError, NotFound, Refused
from stompring.settings.model import BrokerConfiguration, frozen

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

Content = TypeVar("Content")

Version = tuple[int, ...] | None
"""Inode, time of change and size of a file; None without a file."""

Versions = dict[str, Version]


LOCK_TIME, LOCK_PAUSE = 10.0, 0.02
"""Seconds to wait for the lock of another edit, and between two attempts."""


def version_of(path: Path) -> Version:
    """Return inode, time of change and size of a file; None if it is missing. Raises OSError if it is inaccessible."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def versions_of(files: Iterable[str]) -> Versions:
    """Return the version of each file; None for a file that is missing or inaccessible."""
    found: Versions = {}
    for file in files:
        try:
            found[file] = version_of(Path(file))
        except OSError:
            found[file] = None
    return found


#: The suffix of certificate files in a directory, and of a key file beside its certificate.
SUFFIX, KEY_SUFFIX = ".pem", ".key"


def certificate_files(paths: Sequence[str], keys: Sequence[str]) -> Iterator[Path]:
    """Return all files from which an acceptor may read certificates and keys, and the directories among ``paths``."""
    for path in map(Path, paths):
        if path.is_dir():
            yield path
        for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
            yield file
            yield file.with_suffix(KEY_SUFFIX)
    yield from map(Path, keys)


def subject_of(certificate: x509.Certificate) -> str:
    """Return the subject of a certificate in the format of RFC 4514: ``CN=anna,O=Example``."""
    return certificate.subject.rfc4514_string()


def peer_subject(transport: object) -> str | None:
    """Return the subject (RFC 4514) of the peer's verified certificate on a connection, None without one."""
    shown = getattr(transport, "getPeerCertificate", None)
    certificate = None if shown is None else shown()
    return None if certificate is None else subject_of(certificate.to_cryptography())


def read_lines(path: Path, what: str) -> list[str]:
    """Return the lines of a file without line ends. Raises ConfigurationError if it is not readable or not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, what) from error
    try:
        return content.decode().replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"the {what} must be UTF-8 text", str(path), content.count(b"\n", 0, error.start) + 1
        ) from None


@contextmanager
def edit_lines(path: Path, what: str, parse: Callable[[list[str], str], object]) -> Iterator[list[str]]:
    """Context manager: edit the lines of a file, or create it. Writes the list if the body ends without an exception.

    ``parse`` raises ConfigurationError for invalid lines of the current file. The file is replaced atomically, so that
    a broker reads the old or the new one; a lock on the directory serialises edits. Raises ConfigurationError if the
    file has an invalid line, cannot be read or written, or was changed meanwhile.
    """
    real = Path(os.path.realpath(path))  # resolves a symbolic link, which thus stays
    try:
        directory = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(path, error, what) from error
    try:
        _lock(directory, path, what)
        try:
            version = version_of(real)
        except OSError as error:
            raise unreadable(real, error, what) from error
        before = [] if version is None else read_lines(real, what)
        parse(before, str(path))
        lines = list(before)
        yield lines
        if lines != before:
            try:
                _replace(real, version, what, "".join(f"{line}\n" for line in lines))
                os.fsync(directory)
            except OSError as error:
                raise _unwritable(path, error, what) from error
    finally:
        os.close(directory)


def _lock(directory: int, path: Path, what: str) -> None:
    """Lock a directory. Raises ConfigurationError if another program has the lock for `LOCK_TIME`."""
    end = time.monotonic() + LOCK_TIME
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ConfigurationError(
                    f"another program has locked the {what} for {LOCK_TIME:g} seconds: end it, or try again",
                    str(path),
                ) from None
        time.sleep(LOCK_PAUSE)


def name_of(line: str) -> str | None:
    """Return the name in a line; None for a comment or an empty line."""
    text = line.strip()
    return None if not text or text.startswith("#") else text.partition("=")[0].strip()


Entry = tuple[str, str | None]
"""Name and value of one line of a properties file. The value is None for a line without a separator."""


class Syntax(NamedTuple):
    """The syntax of the lines of a properties file. ``read`` returns the entry in a line, None for a comment or an
    empty line. ``write`` returns the line for an entry.
    """

    read: Callable[[str], Entry | None]
    write: Callable[[str, str], str]


def _read_plain(line: str) -> Entry | None:
    name = name_of(line)
    _, separator, value = line.partition("=")
    return None if name is None else (name, value.strip() if separator else None)


_JAVA_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*[=:]")
_JAVA_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.?)", re.DOTALL)
_JAVA_RESERVED = re.compile(r"[\\\s=:#!]")
_JAVA_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _read_java(line: str) -> Entry | None:
    text = line.strip()
    if not text or text[0] in "#!":
        return None
    separator = _JAVA_SEPARATOR.search(text)
    if separator is None:
        return _unescaped(text), None
    return _unescaped(text[: separator.end() - 1].strip()), _unescaped(text[separator.end() :].strip())


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        return _JAVA_CONTROL.get(found[2], found[2])

    # a character beyond U+FFFF is written as two escapes
    found = _JAVA_ESCAPE.sub(character, text)
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _write_java(name: str, value: str) -> str:
    escaped = _JAVA_RESERVED.sub(lambda found: "\\" + found[0], name)
    return f"{escaped} = {value.replace(chr(92), chr(92) * 2)}"


PLAIN = Syntax(_read_plain, "{} = {}".format)
#: Comments begin with ``#`` or ``!``. The first ``=`` or ``:`` ends the name, ``\\`` escapes. Names may contain blanks.
JAVA = Syntax(_read_java, _write_java)

#: Prefix of the names of Artemis's own files.
ARTEMIS_PREFIX = "artemis-"


def is_artemis_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a users or roles file has the name of a file that Artemis's ``create`` writes."""
    return os.path.basename(path).startswith(ARTEMIS_PREFIX)


def syntax_of(path: str | os.PathLike[str]) -> Syntax:
    """Return the syntax of a properties file, by its name."""
    return JAVA if is_artemis_file(path) else PLAIN


class Edit:
    """An edit of a properties file: its lines, with comments."""

    def __init__(self, lines: list[str], syntax: Syntax = PLAIN) -> None:
        self.lines = lines
        self._syntax = syntax

    def entries(self) -> dict[str, str | None]:
        """Return the values by name."""
        return dict(filter(None, map(self._syntax.read, self.lines)))

    def set(self, name: str, value: str | None) -> None:
        """Add an entry or replace its value; None removes it."""
        new = [] if value is None else [self._syntax.write(name, value)]
        for index, line in enumerate(self.lines):
            entry = self._syntax.read(line)
            if entry is not None and entry[0] == name:
                self.lines[index : index + 1] = new
                return
        self.lines += new


def parse_entries(
    lines: list[str], file: str, kind: str, read: Callable[[str, str | None], Content]
) -> dict[str, Content]:
    """Call ``read`` with name and value of each entry in the lines. Return its results by name. A ValueError of
    ``read`` becomes a ConfigurationError with the line.
    """
    found: dict[str, Content] = {}
    numbers: dict[str, int] = {}
    syntax = syntax_of(file)
    for number, line in enumerate(lines, 1):
        entry = syntax.read(line)
        if entry is None:
            continue
        name, value = entry
        try:
            found[name] = read(name, value)
            if name in numbers:
                raise ValueError(f"{kind} {name!r} is already in line {numbers[name]}")
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        numbers[name] = number
    return found


def check_name(name: str, kind: str = "user") -> None:
    """Raise ValueError for a name that cannot be written in a properties file."""
    if not name:
        raise ValueError(f"a {kind} name cannot be empty")
    if name != name.strip():
        raise ValueError(f"{kind} name {name!r} begins or ends with white space")
    for character in name:
        if character in "=#":
            raise ValueError(
                f"{kind} name {name!r} contains {character!r}, which is reserved in {kind}s files"
            )
        if not character.isprintable():
            raise ValueError(f"{kind} name {name!r} contains the control character {character!r}")


def unreadable(path: Path, error: OSError, what: str) -> ConfigurationError:
    """Return the error for a file that cannot be read."""
    hint = "; create it with: stompring user add NAME" if isinstance(error, FileNotFoundError) else ""
    return ConfigurationError(f"the {what} cannot be read: {error.strerror}{hint}", str(path))


def _unwritable(path: Path, error: OSError, what: str) -> ConfigurationError:
    return ConfigurationError(f"the {what} cannot be written: {error.strerror}", str(path))


def _replace(path: Path, version: Version, what: str, text: str) -> None:
    """Replace a file atomically, if it still has this version. The new file has mode 0600 and the former owner.

    Raises ConfigurationError if a program without the lock, such as an editor, has changed it meanwhile.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            with suppress(
                FileNotFoundError, PermissionError
            ):  # a new file has no owner yet, or the broker may not change the owner
                owner = path.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(file.fileno())
        if version_of(path) != version:
            raise ConfigurationError(f"another program has just changed the {what}: try again", str(path))
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


class WatchedFile(Generic[Content]):
    """A file that is parsed again when it has changed. If it cannot be parsed, the previous content stays in effect.

    `refresh` and `refresh_or_log` may be called by several threads at the same time: the content is replaced as a whole
    and never changed in place. ``generation`` is incremented with each replacement.
    """

    generation = 0
    _version: Version | str = ""  # differs from every version of a file
    _logged = ""

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str,
        parse: Callable[[list[str], str], Content],
        *,
        optional: bool = False,
    ) -> None:
        """Read the file at ``path``. ``what`` is its kind, for errors; ``optional``: a missing file counts as empty.

        Raises ConfigurationError, with file and line, for a missing file or an invalid line.
        """
        self.path = Path(path)
        self._what, self._parse, self._may_lack = what, parse, optional
        self.content = parse([], str(self.path))
        self.refresh()

    def refresh(self) -> bool:
        """Read the file again if it has changed. Returns whether it has changed.

        Raises ConfigurationError if the changed file cannot be used; the previous content stays in effect.
        """
        try:
            version = version_of(self.path)
        except OSError as error:
            raise unreadable(self.path, error, self._what) from error
        changed = version != self._version
        if changed:
            absent = version is None and self._may_lack
            lines = [] if absent else read_lines(self.path, self._what)
            self.content = self._parse(lines, str(self.path))
            self._version = version
            self.generation += 1
        self._logged = ""
        return changed

    def refresh_or_log(self) -> None:
        """Read the file again if it has changed. Log an error instead of raising it; the same text is logged once."""
        try:
            self.refresh()
        except ConfigurationError as fault:
            if str(fault) != self._logged:
                log.error(
                    "%s not reloaded, the previous %s stay in effect: %s",
                    self._what,
                    self._what.removesuffix(" file"),
                    fault,
                )
            self._logged = str(fault)


ROLES_FILE = "roles file"
NO_ROLES: frozenset[str] = frozenset()


class Roles(WatchedFile[Mapping[str, frozenset[str]]]):
    """The roles of one file, which is read again when it has changed. Without a file no user has a role."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file at ``path``. Raises ConfigurationError, with file and line, for an invalid line."""
        super().__init__(path, ROLES_FILE, roles_by_user, optional=True)

    def of(self, user: str) -> frozenset[str]:
        """Return the roles of a user."""
        return self.content.get(user, NO_ROLES)

    def users_by_role(self) -> dict[str, list[str]]:
        """Return the users by role, both sorted, without roles that have no users."""
        found: dict[str, list[str]] = {}
        for user, roles in self.content.items():
            for role in roles:
                found.setdefault(role, []).append(user)
        return {role: sorted(found[role]) for role in sorted(found)}


class RolesEdit(Edit):
    """An edit of a roles file. Created by `edit_roles`."""

    def grant(self, role: str, user: str) -> bool:
        """Grant a role to a user. Returns False if the user has it already. Raises ValueError for an invalid name."""
        check_name(role, "role")
        check_member(user)
        members = self._members(role)
        if user in members:
            return False
        self.set(role, ", ".join([*members, user]))
        return True

    def revoke(self, role: str, user: str) -> bool:
        """Revoke a role from a user. Returns False if the user does not have it. Removes a role without users."""
        members = self._members(role)
        if user not in members:
            return False
        members.remove(user)
        self.set(role, ", ".join(members) or None)
        return True

    def of(self, user: str) -> list[str]:
        """Return the roles of a user."""
        return [role for role in self.entries() if user in self._members(role)]

    def _members(self, role: str) -> list[str]:
        return list(filter(None, map(str.strip, (self.entries().get(role) or "").split(","))))

    def revoke_all(self, user: str) -> list[str]:
        """Revoke all roles from a user. Returns the revoked roles."""
        return [role for role in self.of(user) if self.revoke(role, user)]


@contextmanager
def edit_roles(path: Path) -> Iterator[RolesEdit]:
    """Context manager: edit a roles file, or create it (`edit_lines`)."""
    with edit_lines(path, ROLES_FILE, parse_roles) as lines:
        yield RolesEdit(lines, syntax_of(path))


def parse_roles(lines: list[str], file: str) -> dict[str, tuple[str, ...]]:
    """Return the users by role. Raises ConfigurationError with the invalid line."""
    return parse_entries(lines, file, "role", _checked_members)


def roles_by_user(lines: list[str], file: str) -> Mapping[str, frozenset[str]]:
    """Return the roles by user. Raises ConfigurationError with the invalid line."""
    found: dict[str, set[str]] = {}
    for role, users in parse_roles(lines, file).items():
        for user in users:
            found.setdefault(user, set()).add(role)
    return {user: frozenset(roles) for user, roles in found.items()}


def check_member(user: str) -> None:
    """Raise ValueError for a user name that cannot be written in a list of users."""
    check_name(user)
    if "," in user:
        raise ValueError(f"user name {user!r} contains ',', which is reserved in roles files")


def _checked_members(role: str, value: str | None) -> tuple[str, ...]:
    if value is None:
        raise ValueError("a line must be 'role = user, user', or begin with '#'")
    check_name(role, "role")
    members = [user.strip() for user in value.split(",")]
    if members == [""]:
        return ()
    for user in members:
        if not user:
            raise ValueError(f"role {role!r}: empty user name between commas")
        check_name(user)
        if members.count(user) > 1:
            raise ValueError(f"role {role!r} lists user {user!r} twice")
    return tuple(members)


HASHER = PasswordHasher()


def check_password(password: str) -> None:
    """Raise ValueError for a password that cannot be sent in every CONNECT frame.

    A ``passcode`` header cannot contain NUL, and in STOMP 1.0 no line end.
    """
    if not password:
        raise ValueError("a password cannot be empty")
    if any(character in password for character in "\0\r\n"):
        raise ValueError("a password cannot contain a line end or a NUL character")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise ValueError("a password must be valid UTF-8 text") from None


def is_argon2(text: str) -> bool:
    """Return whether ``text`` is an argon2 hash in the format ``$argon2id$…``, with any parameters."""
    try:
        extract_parameters(text)
        for part in text.split("$")[-2:]:
            base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
    except (InvalidHashError, binascii.Error, ValueError):
        return False
    return True


def dummy_hash(hasher: PasswordHasher) -> str:
    """Return a hash that no password matches: its digest is random. To verify this hash takes as long as a real one."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(length)).rstrip(b"=").decode()
        for length in (hasher.salt_len, hasher.hash_len)
    )
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${costs}${salt}${digest}"


ARGON2 = "$argon2"
"""Prefix of argon2 hashes."""

_PBKDF2 = re.compile(r"ENC\((\d{1,8}):((?:[0-9A-Fa-f]{2})+):((?:[0-9A-Fa-f]{2})+)\)")
PBKDF2_ITERATIONS, PBKDF2_SALT, PBKDF2_LENGTH = 1024, 32, 64
"""The parameters of Artemis 2.44: iterations, and bytes of salt and hash."""


def is_pbkdf2(text: str) -> bool:
    """Return whether ``text`` is a hash of Artemis, ``ENC(1024:salt:hash)``."""
    found = _PBKDF2.fullmatch(text)
    return found is not None and int(found[1]) > 0


def verify_pbkdf2(hashed: str, password: str) -> bool:
    """Return whether ``password`` matches a hash of Artemis. Raises UnicodeEncodeError for a lone surrogate."""
    found = _PBKDF2.fullmatch(hashed)
    assert found is not None
    expected = bytes.fromhex(found[3])
    computed = hashlib.pbkdf2_hmac(
        "sha1", password.encode(), bytes.fromhex(found[2]), int(found[1]), len(expected)
    )
    return hmac.compare_digest(computed, expected)


USERS_FILE = "users file"


class UsersEdit(Edit):
    """An edit of a users file. Created by `edit_users`."""

    def __init__(self, lines: list[str], hasher: PasswordHasher, syntax: Syntax = PLAIN) -> None:
        super().__init__(lines, syntax)
        self._hasher = hasher

    def __contains__(self, name: object) -> bool:
        return name in self.entries()

    def put(self, name: str, password: str) -> None:
        """Add the user ``name``, or replace the password.

        Raises ValueError for an invalid name or password.
        """
        check_name(name)
        check_password(password)
        self.set(name, self._hasher.hash(password))

    def remove(self, name: str) -> None:
        """Remove the user ``name``. Raises KeyError for an unknown user."""
        if name not in self:
            raise KeyError(name)
        self.set(name, None)


@contextmanager
def edit_users(path: Path, hasher: PasswordHasher = HASHER) -> Iterator[UsersEdit]:
    """Context manager: edit a users file, or create it (`edit_lines`)."""
    with edit_lines(path, USERS_FILE, parse_users) as lines:
        yield UsersEdit(lines, hasher, syntax_of(path))


def parse_users(lines: list[str], file: str) -> dict[str, str]:
    """Return the hashes by user name. Raises ConfigurationError with the invalid line."""
    plain = is_artemis_file(file)
    return parse_entries(lines, file, "user", lambda name, hashed: _checked_hash(name, hashed, plain))


def _checked_hash(name: str, hashed: str | None, plain: bool) -> str:
    """Return the hash of a user, or the password if ``plain``. Errors never contain either."""
    if hashed is None:
        raise ValueError("a line must be 'name = hash', or begin with '#'")
    check_name(name)
    if is_argon2(hashed) or is_pbkdf2(hashed):
        return hashed
    if hashed.startswith("ENC("):
        raise ValueError(
            f"user {name!r}: value is not a password hash of Artemis, ENC(iterations:salt:hash), as 'artemis mask "
            f"--hash' prints it; remove the line and set the password with: stompring user add {name}"
        )
    if plain and hashed and not hashed.startswith(ARGON2):
        return hashed
    raise ValueError(
        f"user {name!r}: value is not an argon2 hash; "
        f"remove the line and set a password with: stompring user add {name}"
    )


def check_users_file(configuration: BrokerConfiguration) -> None:
    """Raise ConfigurationError, with advice, if security is enabled and the users file does not exist."""
    if not configuration.security_enabled or not configuration.uses_users_file:
        return
    if configuration.users_file is None:
        return
    if not os.path.lexists(configuration.users_file):
        raise ConfigurationError(
            f"no users are known: there is no users file {configuration.users_file}; create it with: stompring user "
            f"add NAME --role ROLE --config {configuration.file}; or copy Artemis's artemis-users.properties and "
            "artemis-roles.properties beside broker.xml; or set <security-enabled> to false, with acceptors on "
            "127.0.0.1 only",
            configuration.file,
        )


class Users(WatchedFile[dict[str, str]]):
    """The users of one file, which is read again when it has changed, before each login.

    `verify`, `refresh` and `refresh_or_log` may be called in a thread pool.
    """

    def __init__(
        self, path: str | os.PathLike[str], hasher: PasswordHasher = HASHER, *, optional: bool = False
    ) -> None:
        """Read the file at ``path``, which may be missing if ``optional``.

        Raises ConfigurationError, with file and line, for a missing file or an invalid line.
        """
        super().__init__(path, USERS_FILE, parse_users, optional=optional)
        self._hasher = hasher

    def __contains__(self, name: object) -> bool:
        return name in self.content

    def names(self) -> list[str]:
        """Return all user names, in the order of the file."""
        return list(self.content)

    def verify(self, name: str, password: str) -> bool:
        """Return whether ``password`` is the password of the user ``name``, by the current file.

        Takes as long for an unknown user as for the first user in the file. If the changed file cannot be used, an
        error is logged, and the previous users stay in effect.
        Raises ConfigurationError if the hash cannot be computed, for example for lack of memory.
        """
        self.refresh_or_log()
        content = self.content  # read once: another thread may replace it
        hashed = content.get(name) or self._dummy(next(iter(content.values()), ARGON2))
        try:
            return self._matches(hashed, password) and name in content
        except (VerifyMismatchError, UnicodeEncodeError):
            return False  # passwords cannot contain a lone surrogate
        except VerificationError as error:
            raise ConfigurationError(
                f"password of user {name!r} cannot be verified: {error}", str(self.path)
            ) from error

    def _matches(self, hashed: str, password: str) -> bool:
        if hashed.startswith(ARGON2):
            return self._hasher.verify(hashed, password)
        if is_pbkdf2(hashed):
            return verify_pbkdf2(hashed, password)
        return hmac.compare_digest(hashed.encode(), password.encode())

    def _dummy(self, like: str) -> str:
        """Return a hash that no password matches, of the same kind as ``like``."""
        if like.startswith(ARGON2):
            return dummy_hash(self._hasher)
        digest = secrets.token_hex(PBKDF2_LENGTH)
        if is_pbkdf2(like):
            return f"ENC({PBKDF2_ITERATIONS}:{secrets.token_hex(PBKDF2_SALT)}:{digest})"
        return digest

    def plain_passwords(self) -> list[str]:
        """Return the users with a plain password in the file."""
        return [
            name for name, text in self.content.items() if not (text.startswith(ARGON2) or is_pbkdf2(text))
        ]

    def needs_rehash(self, name: str) -> bool:
        """Return whether the hash of a user is not argon2, or has outdated parameters. Set such a password again.

        Raises KeyError for an unknown user.
        """
        hashed = self.content[name]
        return not hashed.startswith(ARGON2) or self._hasher.check_needs_rehash(hashed)


class InvalidUser(Refused):
    """A name, password or role that cannot be stored. ``field`` is ``name``, ``password`` or ``roles``."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason, status=400)
        self.field = field


@frozen
class UserFiles:
    """The users file and the roles file.

    ``manages`` returns whether a user with these roles may manage users. The last user with such a role cannot lose it.
    ``certified`` returns the users who log in by a certificate, whether or not the users file has them. All calls raise
    `Refused` if the change is not possible, and ConfigurationError for a file that cannot be used.
    """

    users: Path
    roles: Path
    manages: Callable[[frozenset[str]], bool]
    certified: Callable[[], Collection[str]] = tuple
    hasher: PasswordHasher = HASHER

    def add(self, name: str, password: str, roles: Iterable[str]) -> None:
        """Add a user. Raises `Refused` if the user exists."""
        wanted = _checked_roles(name, roles)
        with _checking("password"):
            check_password(password)
        Roles(self.roles)  # if the roles file is invalid, do not add a user without roles
        with edit_users(self.users, self.hasher) as edit:
            if name in edit:
                raise Refused(f"User {name} exists already")
            edit.put(name, password)
        # replace roles: the file may still grant roles to an earlier user of that name
        with _after(f"User {name} is saved, but the roles are not"):
            self._set_roles(name, wanted)

    def change(self, name: str, password: str | None = None, roles: Iterable[str] | None = None) -> None:
        """Replace the password, the roles, or both. Raises `NotFound` for an unknown user."""
        certified = name in self.certified()
        if not certified and name not in Users(self.users):
            raise _unknown(name)
        wanted = None if roles is None else _checked_roles(name, roles)
        if password is not None:
            with _checking("password"):
                check_password(password)
        if wanted is not None:
            self._check_managers(name, frozenset(wanted))
        if password is not None:
            with edit_users(self.users, self.hasher) as edit:
                if name not in edit and not certified:
                    raise _unknown(name)
                edit.put(name, password)
        if wanted is not None:
            with _after(
                None if password is None else f"The password of user {name} is saved, but the roles are not"
            ):
                self._set_roles(name, wanted)

    def remove(self, name: str) -> None:
        """Remove a user, and revoke all roles of the user. Raises `NotFound` for an unknown user."""
        if name not in Users(self.users):
            if name not in self.certified():
                raise _unknown(name)
            raise Refused(
                f"User {name} logs in by a certificate: remove the line of the user from the certificate users file"
            )
        self._check_managers(name, NO_ROLES)
        self._set_roles(name, ())
        with _after(f"The roles of user {name} are revoked, but the user is not removed"):
            with edit_users(self.users, self.hasher) as users:
                if name in users:
                    users.remove(name)

    def _set_roles(self, name: str, wanted: tuple[str, ...]) -> None:
        if not wanted and not self.roles.exists():
            return
        with edit_roles(self.roles) as edit:
            for role in edit.of(name):
                if role not in wanted:
                    edit.revoke(role, name)
            for role in wanted:
                edit.grant(role, name)

    def _check_managers(self, name: str, wanted: frozenset[str]) -> None:
        """Raise `Refused` if no user could manage users after ``name`` gets the roles ``wanted``."""
        roles = Roles(self.roles)
        if self.manages(wanted) or not self.manages(roles.of(name)):
            return
        others = {*Users(self.users).content, *self.certified()} - {name}
        if not any(self.manages(roles.of(other)) for other in others):
            raise Refused(
                f"User {name} is the last user with permission='MANAGE' on address activemq.management: no user could "
                "manage users. Grant a role with this permission to another user first"
            )


@contextmanager
def _after(done: str | None) -> Iterator[None]:
    """Context manager: raises an error about a file as `Refused`, after the text ``done`` about the part of the change
    that is complete. None: no part is complete, and the error is raised unchanged.
    """
    try:
        yield
    except ConfigurationError as fault:
        if done is None:
            raise
        raise Refused(f"{done}: {fault}") from None


@contextmanager
def _checking(field: str) -> Iterator[None]:
    """Context manager: converts a ValueError to `InvalidUser`."""
    try:
        yield
    except ValueError as error:
        raise InvalidUser(field, str(error)) from None


def _checked_roles(name: str, roles: Iterable[str]) -> tuple[str, ...]:
    """Return the roles without duplicates. Raises `InvalidUser`."""
    wanted = tuple(dict.fromkeys(roles))
    with _checking("name"):
        check_name(name)
        if wanted:
            check_member(name)
    with _checking("roles"):
        for role in wanted:
            check_name(role, "role")
    return wanted


def _unknown(name: str) -> NotFound:
    return NotFound(f"User {name} does not exist")
