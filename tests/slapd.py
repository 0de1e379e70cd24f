"""A directory of OpenLDAP (``slapd``) for the tests that use it, in a temporary folder, with people and groups."""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from .certificates import Authority
from .ports import free_ports
from .tools import need
from .waiting import until

BASE = "dc=example,dc=org"
ADMIN, SECRET = f"cn=admin,{BASE}", "s3cret-of-the-broker"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"

CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile {folder}/authority.pem
TLSCertificateFile {folder}/slapd.pem
TLSCertificateKeyFile {folder}/slapd.key
database mdb
directory {folder}/data
suffix "{base}"
rootdn "{admin}"
rootpw {secret}
"""

USERS = {"ada": "lovelace", "grace": "hopper", "o)(uid=*": "parentheses"}
#: Members of groups. The members of a group may be groups.
MEMBERS = {
    "clerks": (f"uid=ada,{PEOPLE}",),
    "staff": (f"cn=clerks,{GROUPS}",),
    "everyone": (f"cn=staff,{GROUPS}", f"cn=everyone,{GROUPS}"),
    "admins": (f"uid=grace,{PEOPLE}",),
}


def _entries() -> str:
    found = [f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n"]
    for unit in ("people", "groups", "elsewhere"):
        found.append(f"dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}\n")
    for name, password in USERS.items():
        found.append(
            f"dn: uid={name},{PEOPLE}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n"
            f"userPassword: {password}\nseeAlso: cn=writers,{GROUPS}\nmail: all@example.org\n"
        )
    for name, members in MEMBERS.items():
        listed = "".join(f"member: {each}\n" for each in members)
        found.append(f"dn: cn={name},{GROUPS}\nobjectClass: groupOfNames\ncn: {name}\n{listed}")
    found.append(
        f"dn: ou=far,ou=elsewhere,{BASE}\nobjectClass: referral\nobjectClass: extensibleObject\nou: far\n"
        f"ref: ldap://127.0.0.1:9/{BASE}\n"
    )
    return "\n".join(found)


class Slapd:
    """The running server. ``port`` is for ldap://, ``tls_port`` for ldaps://."""

    def __init__(self, folder: Path) -> None:
        self._program = need("slapd")
        (folder / "data").mkdir()
        self.authority = Authority(folder)
        self.authority.issue("slapd.pem", key_apart=True)
        self._file = folder / "slapd.conf"
        self._file.write_text(CONFIGURATION.format(folder=folder, base=BASE, admin=ADMIN, secret=SECRET))
        words = [self._program, "-T", "add", "-f", str(self._file)]
        subprocess.run(words, input=_entries(), text=True, check=True, capture_output=True, timeout=60)
        self.port, self.tls_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """For logins without TLS."""
        return f"ldap://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        urls = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        words = [self._program, "-f", str(self._file), "-h", urls, "-d", "0"]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._listens, "slapd listens")

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def freeze(self, still: bool = True) -> None:
        """Lets it answer nothing, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None
