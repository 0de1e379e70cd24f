"""Everything that is wrong with one file, told together."""

from __future__ import annotations

from stompring.errors import ConfigurationError


class Faults:
    """Collects what is wrong with ``file``, so that its author need not find it error by error."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: set[tuple[int, str]] = set()

    def add(self, line: int, text: str) -> None:
        """Note that ``text`` is wrong at ``line``. What was noted already is not noted twice."""
        self._found.add((line, text))

    def raise_if_any(self) -> None:
        """Raise one `ConfigurationError` at the first fault; its text lists all, a line each."""
        if not self._found:
            return
        (line, first), *others = sorted(self._found)
        more = "".join(f"\n{self.file}:{line}: {text}" for line, text in others)
        raise ConfigurationError(first + more, self.file, line)
