"""Who may log in, with which password: the users of one users file."""

from __future__ import annotations

import os

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError, VerifyMismatchError

from stompring.errors import ConfigurationError
from stompring.security.followed_file import FollowedFile
from stompring.security.passwords import HASHER, unmatchable
from stompring.security.users_file import USERS, parse_users


class Users:
    """The users of one file. Every login follows its changes; `refresh` does so without one.

    `verify`, `refresh` and `follow` are plain calls for a thread pool, as those of `FollowedFile`.
    """

    def __init__(self, path: str | os.PathLike[str], hasher: PasswordHasher = HASHER) -> None:
        """Read the file at ``path``.

        Raises ConfigurationError, with file and line, for a file that is missing or says what cannot be.
        """
        self._file = FollowedFile(path, USERS, parse_users)
        self.path = self._file.path
        self._hasher = hasher

    @property
    def generation(self) -> int:
        """Goes up when the file was read again."""
        return self._file.generation

    def names(self) -> list[str]:
        """All user names, in the order of the file."""
        return list(self._file.content)

    def verify(self, name: str, password: str) -> bool:
        """Whether ``password`` is that of the user ``name``, by the file as it is now.

        Takes as long for a user who does not exist. A changed file that cannot be used is logged, and the users
        read before stay in force.
        Raises ConfigurationError when the hash cannot be computed here (for example for lack of memory).
        """
        self._file.follow()
        hashed = self._file.content.get(name)
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
        return self._hasher.check_needs_rehash(self._file.content[name])

    def refresh(self) -> bool:
        """See `FollowedFile.refresh`."""
        return self._file.refresh()

    def follow(self) -> None:
        """See `FollowedFile.follow`."""
        self._file.follow()
