"""Logins that a directory checks (LDAP), with the options of Artemis's LDAPLoginModule.

A login is a search for the entry of the user, a bind as that entry with the password, and a search for the roles. All
calls may block for several timeouts: call them in a thread. Referrals are never followed, and the login is escaped
in every filter. An empty password is refused, because a directory accepts it as an anonymous bind.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import ldap3
from cryptography.hazmat.primitives.serialization import Encoding
from ldap3.core.exceptions import LDAPException
from ldap3.protocol.sasl.sasl import validate_simple_password
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import parse_dn

from stompring.settings.document import revealed
from stompring.settings.model import LdapAuthentication, LdapLogin

from .access import Identity, LoginSource
from .certificates import read_certificates

log = logging.getLogger(__name__)

#: Result codes of LDAP (RFC 4511).
SUCCESS, SIZE_LIMIT_EXCEEDED = 0, 4
#: Result codes of a bind for a wrong or locked login: no such object, invalid DN, inappropriate authentication, invalid
#: credentials, insufficient access, unwilling to perform.
REFUSING = frozenset((32, 34, 48, 49, 50, 53))

#: Maximum number of roles of one user, including the roles that contain another role of the user.
MAX_ROLES = 1000

_LOGIN_ATTRIBUTE = re.compile(r"\(([A-Za-z][\w.;-]*)=\{0\}\)")
_PLACEHOLDER = re.compile(r"\{([01])\}|''")
_ESCAPED = re.compile(r"\\([0-9A-Fa-f]{2})|\\(.)")


class Directory(LoginSource):
    """Checks logins with one LDAP directory."""

    def __init__(self, settings: LdapLogin) -> None:
        """Raises `CertificateError` if the file of CA certificates cannot be read."""
        super().__init__(f"directory {settings.connection_url}")
        self._settings = settings
        self._urls = [urlsplit(url) for url in settings.connection_url.split()]
        self._suffix = unquote(self._urls[0].path.strip("/"))
        path = settings.trust_store_path
        found = [] if path is None else read_certificates(path)
        self._authorities = "".join(each.public_bytes(Encoding.PEM).decode() for each in found) or None
        self.cache_time, self.authenticates = settings.cache_time, settings.authenticate_user

    def check(self, name: str, password: str) -> Identity | None:
        if not self.authenticates:
            found = self._ask(name, None)
            return found and found._replace(user=name)
        try:
            validate_simple_password(password)
            name.encode()
        except (LDAPException, ValueError):
            return None  # the password is empty, or the password or the name has invalid characters
        return self._ask(name, password) if name else None

    def _identity(self, connection: ldap3.Connection, login: str, password: str | None) -> Identity | None:
        found = self._user(connection, login)
        if found is None:
            return None if password else Identity(login, frozenset())
        dn, user, roles = found
        if password:
            own = self._connection(connection.server, dn, password)
            try:
                if not own.bind():
                    if own.result["result"] in REFUSING:
                        return None
                    raise _error("refuses the login of a user", own)
            finally:
                _close(own)
        return Identity(user, roles | self._searched_roles(connection, dn, user))

    # ---- connections

    def _ask(self, login: str, password: str | None) -> Identity | None:
        """Check a login over a connection with the broker's own login, and update `fault`.

        If ``password`` is None, only the roles of the user are searched.
        """
        try:
            connection = self._connected()
            try:
                answer = self._identity(connection, login, password)
            finally:
                _close(connection)
        except (LDAPException, OSError) as error:
            self.report(str(error))
            raise self.refused() from None
        self.report(None)
        return answer

    def _connected(self) -> ldap3.Connection:
        """Return a connection with the broker's own login, to the first server that answers."""
        settings = self._settings
        login: tuple[str | None, str | None] = None, None
        if settings.connection_password and settings.authentication is not LdapAuthentication.NONE:
            login = settings.connection_username, revealed(settings.connection_password)
        tls = settings.connection_protocol.lower() == "ssl"
        for index, url in enumerate(self._urls):
            secure = tls or url.scheme.lower() == "ldaps"
            host = url.hostname or ""
            server = ldap3.Server(
                host,
                url.port or (636 if secure else 389),
                use_ssl=secure,
                get_info=ldap3.NONE,
                connect_timeout=settings.connection_timeout / 1000,
                tls=ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_data=self._authorities, sni=host),
            )
            try:
                connection = self._connection(server, *login)
                if connection.bind():
                    return connection
                _close(connection)
                raise _error("refuses the broker's own login", connection)
            except (LDAPException, OSError):
                if index + 1 == len(self._urls):
                    raise
        raise AssertionError("a directory has a URL")

    def _connection(self, server: ldap3.Server, user: str | None, password: str | None) -> ldap3.Connection:
        """Return an open connection that has not sent its login yet.

        With TLS or StartTLS in the settings, the connection is encrypted already.
        """
        connection = ldap3.Connection(
            server,
            user,
            password,
            authentication=ldap3.ANONYMOUS if user is None else ldap3.SIMPLE,
            auto_referrals=False,
            check_names=False,
            receive_timeout=-(-self._settings.read_timeout // 1000),
        )
        try:
            connection.open(read_server_info=False)
            if self._settings.start_tls:
                connection.start_tls(read_server_info=False)
        except BaseException:
            _close(connection)
            raise
        return connection

    # ---- searches

    def _user(self, connection: ldap3.Connection, login: str) -> tuple[str, str, frozenset[str]] | None:
        """Return DN, name and roles in the entry of a user. None if no entry, or more than one, matches the login.

        The name is spelled as in the entry: the directory ignores case and some characters when it matches a login.
        """
        settings, matching = self._settings, self._settings.user_search_matching
        if matching is None:
            return login, login, frozenset()
        named = _LOGIN_ATTRIBUTE.search(matching)
        entries = list(
            self._search(
                connection,
                settings.user_base,
                matching,
                settings.user_search_subtree,
                [settings.user_role_name, named and named[1]],
                login,
            )
        )
        if len(entries) != 1:
            if entries:
                log.warning("login %r is refused: %d entries of the directory match", login, len(entries))
            return None
        dn, values = entries[0]
        names = values.get(named[1].lower(), []) if named else []
        user = next((name for name in names if name.casefold() == login.casefold()), None)
        roles = values.get((settings.user_role_name or "").lower(), [])
        found = frozenset(role for value in roles for role in self._role_names(value))
        return dn, user or (names[0] if len(names) == 1 else login), found

    def _role_names(self, dn: str) -> Iterator[str]:
        """Yield the name of the role with this DN: the part of the DN that ``role_name`` selects, else the whole DN."""
        name = self._settings.role_name
        if name is None:
            yield dn
            return
        for kind, value, _ in parse_dn(dn):
            if kind.lower() == name.lower():
                yield _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], value)

    def _searched_roles(self, connection: ldap3.Connection, dn: str, user: str) -> frozenset[str]:
        settings = self._settings
        roles: dict[str, str] = {}  # by DN
        attribute, matching = settings.role_name, settings.role_search_matching
        questions = [] if matching is None else [(matching, dn, user)]
        while questions and len(roles) < MAX_ROLES:
            question, *names = questions.pop(0)
            for found, values in self._search(
                connection, settings.role_base, question, settings.role_search_subtree, [attribute], *names
            ):
                if found not in roles:
                    role = found if attribute is None else next(iter(values.get(attribute.lower(), ())), "")
                    roles[found] = role
                    if settings.expand_roles and settings.expand_roles_matching is not None:
                        questions.append((settings.expand_roles_matching, found, user))
        return frozenset(filter(None, roles.values()))

    def _search(
        self,
        connection: ldap3.Connection,
        base: str,
        matching: str,
        subtree: bool,
        attributes: list[str | None],
        *values: str,
    ) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """Yield DN and attributes of each entry that matches a filter. ``values`` fill its placeholders, escaped."""

        connection.search(
            ",".join(filter(None, (base, self._suffix))),
            _PLACEHOLDER.sub(
                lambda found: escape_filter_chars(values[int(found[1])]) if found[1] else "'", matching
            ),
            ldap3.SUBTREE if subtree else ldap3.LEVEL,
            attributes=[*filter(None, attributes)] or [ldap3.NO_ATTRIBUTES],
            size_limit=MAX_ROLES,
            time_limit=-(-self._settings.read_timeout // 1000),
        )
        if connection.result["result"] not in (SUCCESS, SIZE_LIMIT_EXCEEDED):
            raise _error("answers a search", connection)
        for entry in connection.response or []:
            if entry["type"] == "searchResEntry":
                yield (
                    entry["dn"],
                    {
                        name.lower(): [value.decode("utf-8", "replace") for value in found]
                        for name, found in entry["raw_attributes"].items()
                    },
                )


def _error(what: str, connection: ldap3.Connection) -> OSError:
    result = connection.result
    return OSError(f"it {what} with {result['description']} {result['message']}".strip())


def _close(connection: ldap3.Connection) -> None:
    with suppress(LDAPException, OSError):
        connection.unbind()
