"""Who may log in, with which password: the users of one users file.

No Twisted here: `Users.verify` and `Users.refresh` are plain calls for a thread pool, safe to make from
several threads at once, because what was read is replaced as a whole and never changed in place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError, VerifyMismatchError

from stompring.errors import ConfigurationError
from stompring.security.passwords import HASHER, unmatchable
from stompring.security.users_file import parse_users, read_lines, unreadable

log = logging.getLogger(__name__)


class Users:
    """The users of one file. Every login follows its changes; `refresh` does so without one."""

    def __init__(self, path: str | os.PathLike[str], hasher: PasswordHasher = HASHER) -> None:
        """Read the file at ``path``.

        Raises ConfigurationError, with file and line, for a file that is missing or says what cannot be.
        """
        self.path = Path(path)
        self._hasher = hasher
        self._version: tuple[int, ...] | None = None
        self._hashes: Mapping[str, str] = {}
        self._told = ""
        self.refresh()

    def names(self) -> list[str]:
        """All user names, in the order of the file."""
        return list(self._hashes)

    def verify(self, name: str, password: str) -> bool:
        """Whether ``password`` is that of the user ``name``, by the file as it is now.

        Takes as long for a user who does not exist. A changed file that cannot be used is logged, and the users
        read before stay in force.
        Raises ConfigurationError when the hash cannot be computed here (for example for lack of memory).
        """
        self._follow()
        hashed = self._hashes.get(name)
        try:
            return self._hasher.verify(hashed or unmatchable(self._hasher), password) and hashed is not None
        except VerifyMismatchError:
            return False
        except UnicodeEncodeError:
            return False  # a lone surrogate: in no password that was ever set
        except VerificationError as error:
            text = f"the password of user {name!r} cannot be checked: {error}"
            raise ConfigurationError(text, str(self.path)) from error

    def needs_rehash(self, name: str) -> bool:
        """Whether the hash has other parameters than new ones get, so that the password is better set anew.

        Raises KeyError for a user who does not exist.
        """
        return self._hasher.check_needs_rehash(self._hashes[name])

    def refresh(self) -> bool:
        """Read the file again if it has changed since it was last taken; True if it had.

        Raises ConfigurationError when the changed file cannot be used; the users read before stay in force.
        """
        try:
            status = self.path.stat()
        except OSError as error:
            raise unreadable(self.path, error) from error
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        changed = version != self._version
        if changed:
            self._hashes = parse_users(read_lines(self.path), str(self.path))
            self._version = version
        self._told = ""
        return changed

    def _follow(self) -> None:
        """`refresh` for a login: what is wrong with the file is for the log, once, and not for who logs in."""
        try:
            self.refresh()
        except ConfigurationError as fault:
            if str(fault) != self._told:
                log.error("%s (the users read before stay in force)", fault)
            self._told = str(fault)
