"""A file that is read again when it changes, and stays as it was read when the new one cannot be used."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from stompring.errors import ConfigurationError
from stompring.security.lines_file import Version, read_lines, unreadable, version_of

log = logging.getLogger(__name__)

Content = TypeVar("Content")


class FollowedFile(Generic[Content]):
    """What is in one file, as ``parse`` reads its lines.

    No Twisted here: `refresh` and `follow` are plain calls for a thread pool, safe to make from several threads at
    once, because what was read is replaced as a whole and never changed in place. ``generation`` goes up with it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str,
        parse: Callable[[list[str], str], Content],
        *,
        may_lack: bool = False,
    ) -> None:
        """Read the file at ``path``, which ``what`` is the kind of; ``may_lack``: no file is an empty one.

        Raises ConfigurationError, with file and line, for a file that is missing or says what cannot be.
        """
        self.path = Path(path)
        self.generation = 0
        self._what, self._parse, self._may_lack = what, parse, may_lack
        self._version: Version | str = ""  # of no file
        self._told = ""
        self.content = parse([], str(self.path))
        self.refresh()

    def refresh(self) -> bool:
        """Read the file again if it has changed since it was last taken; True if it had.

        Raises ConfigurationError when the changed file cannot be used; what was read before stays in force.
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
        self._told = ""
        return changed

    def follow(self) -> None:
        """`refresh` for those who cannot help it: what is wrong with the file is for the log, once."""
        try:
            self.refresh()
        except ConfigurationError as fault:
            if str(fault) != self._told:
                log.error("%s (the %s read before stay in force)", fault, self._what.removesuffix(" file"))
            self._told = str(fault)
