"""Who a client certificate is: a certificate users file, one user per line, ``user = CN=…, O=…``, as Artemis's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from stompring.errors import ConfigurationError
from stompring.security.followed_file import FollowedFile
from stompring.security.lines_file import check_name, name_of

CERTIFICATE_USERS = "certificate users file"

_COMMA = re.compile(r"(?<!\\),")


class CertificateUsers:
    """The users of one file by the subject of their certificate. The file is followed as the users file is."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file at ``path``. Raises ConfigurationError, with file and line, for what cannot be."""
        self._file = FollowedFile(path, CERTIFICATE_USERS, parse_certificate_users)
        self.path = self._file.path

    def user_of(self, subject: str) -> str | None:
        """Whose certificate that is. None where the file does not know it."""
        return self._file.content.get(normalized(subject))

    def refresh(self) -> bool:
        """See `FollowedFile.refresh`."""
        return self._file.refresh()

    def follow(self) -> None:
        """See `FollowedFile.follow`."""
        self._file.follow()


def parse_certificate_users(lines: list[str], file: str) -> Mapping[str, str]:
    """Subject to user. Raises ConfigurationError with the line that is wrong."""
    users: dict[str, str] = {}
    lines_of_users: dict[str, int] = {}
    lines_of_subjects: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = name_of(line)
        if name is None:
            continue
        try:
            subject = _subject_of(line, name)
            if name in lines_of_users:
                raise ValueError(f"user {name!r} is already in line {lines_of_users[name]}")
            if subject in users:
                raise ValueError(
                    f"the certificate {subject!r} is already in line {lines_of_subjects[subject]}"
                )
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        users[subject] = name
        lines_of_users[name] = lines_of_subjects[subject] = number
    return users


def _subject_of(line: str, name: str) -> str:
    check_name(name)
    subject = line.partition("=")[2].strip()
    if subject.startswith("/"):
        raise ValueError(
            f"user {name!r}: write the subject itself, as CN=name, O=company; patterns are not taken"
        )
    if "=" not in subject:
        raise ValueError("a line must be 'user = subject of the certificate', or begin with '#'")
    return normalized(subject)


def normalized(subject: str) -> str:
    """A subject (RFC 4514) in one spelling: no blanks around commas and equals signs, types in capitals."""
    parts = []
    for part in _COMMA.split(subject):
        kind, equals, value = part.partition("=")
        parts.append(f"{kind.strip().upper()}{equals}{value.strip()}")
    return ",".join(parts)
