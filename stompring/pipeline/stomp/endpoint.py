"""Where a broker is, and as whom to log in there."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

#: What stands for a user or a password in texts for people.
HIDDEN = "***"


#: What may stand before the address, and whether it means TLS.
SCHEMES = {"tcp": False, "stomp": False, "ssl": True, "stomp+ssl": True}


def parse_address(text: str) -> tuple[str, int, bool]:
    """Host and port of ``HOST:PORT``, ``[::1]:61613`` for IPv6, and whether ``ssl://`` before it asks for TLS.

    Raises `ValueError`.
    """
    place = text.strip()
    scheme, separator, rest = place.partition("://")
    tls = bool(separator) and SCHEMES.get(scheme, False)
    if separator and scheme in SCHEMES:
        place = rest
    host, colon, port = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host:
        raise ValueError(f"must be HOST:PORT, an IPv6 address in brackets, not {_shown(text)!r}")
    if not colon or not host or "/" in host or "@" in host:
        raise ValueError(f"must be HOST:PORT, as localhost:61613, not {_shown(text)!r}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise ValueError(f"must end in a port from 1 to 65535, not {_shown(text)!r}")
    return host, int(port), tls


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """What certificates are checked with: those of a file, or what the system trusts. Raises `OSError`."""
    return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))


def _shown(text: str) -> str:
    """Without what may be a login before the host."""
    before, sign, behind = text.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme + separator if separator else ''}{HIDDEN}@{behind}" if sign else text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker. ``timeout`` is seconds: for connecting, and for any step of the conversation in which nothing comes.

    ``heart_beat`` is milliseconds between the line ends by which both sides show that they are there, 0 for none.
    ``password_file`` is read where the connection is made: its first line is the password.
    """

    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    virtual_host: str | None = None
    client_id: str | None = None
    timeout: float = 30.0
    heart_beat: int = 0
    tls: bool = False
    ca_file: Path | None = None

    @property
    def address(self) -> str:
        """``HOST:PORT``, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def passcode(self) -> str | None:
        """The password, from its file where it is in one. Raises `OSError`."""
        if self.password_file is None:
            return self.password
        return self.password_file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")

    def without_secrets(self, text: str, passcode: str | None) -> str:
        """``text`` with signs in the places of user and password: brokers repeat them in what they say."""
        for secret in filter(None, (passcode, self.user)):
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
        return text
