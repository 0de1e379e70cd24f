"""Everything that is wrong with one file, told together."""

from __future__ import annotations

from stompring.errors import ConfigurationError

SHORTEST = 4
"""Characters of a value that is looked for in texts: one that is shorter stands there by chance."""
#: Faults after which the rest of a file is not looked at: to find what each unknown name may have meant takes time.
MOST = 200


class Faults:
    """Collects what is wrong with ``file``, so that its author need not find it error by error."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: set[tuple[int, str]] = set()
        self._hidden: dict[str, str] = {}
        self._added = 0

    def add(self, line: int, text: str) -> None:
        """Note that ``text`` is wrong at ``line``. What was noted already is not noted twice.

        Raises `ConfigurationError` where there are so many that nobody reads them all.
        """
        for value, reference in self._hidden.items():
            text = text.replace(value, reference)
        self._found.add((line, text))
        self._added += 1
        if self._added >= MOST:
            self._found.add((line, f"that makes {MOST} faults; what follows was not looked at"))
            self.raise_if_any()

    def hide(self, value: str, reference: str) -> None:
        """From now on ``reference`` stands where a text shows ``value``. Shorter ones are no secret and no loss."""
        if len(value) >= SHORTEST:
            self._hidden[value] = reference

    def raise_if_any(self) -> None:
        """Raise one `ConfigurationError` at the first fault; its text lists all, a line each."""
        if not self._found:
            return
        (line, first), *others = sorted(self._found)
        more = "".join(f"\n{self.file}:{line}: {text}" for line, text in others)
        raise ConfigurationError(first + more, self.file, line)
