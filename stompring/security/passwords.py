"""Password hashes: argon2 with the default parameters of argon2-cffi.

Those are of RFC 9106, "low memory": 64 MiB, 3 passes, 4 lanes. One verification takes tens of milliseconds
of processor time, so it must never run on the reactor's thread.
"""

from __future__ import annotations

import base64
import binascii
import secrets

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError

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
    """Whether ``text`` is an argon2 hash in the format ``$argon2id$…``, with any parameters."""
    try:
        extract_parameters(text)
        for part in text.split("$")[-2:]:
            base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
    except (InvalidHashError, binascii.Error, ValueError):
        return False
    return True


def dummy_hash(hasher: PasswordHasher) -> str:
    """A hash that no password matches and that takes as long to verify: random bytes in place of a digest."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(length)).rstrip(b"=").decode()
        for length in (hasher.salt_len, hasher.hash_len)
    )
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${costs}${salt}${digest}"
