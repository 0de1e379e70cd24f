"""The part of a URL after the question mark."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl

from .answer import Problem


class Query:
    """Parameters by name. One that comes twice is refused, unless its name ends in ``[]``."""

    def __init__(self, text: str) -> None:
        try:
            self._pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
        except UnicodeDecodeError:
            raise Problem(400, "The query is not UTF-8") from None
        except ValueError:
            raise Problem(400, "The query has more than 100 parameters") from None
        self.names = [name for name, _ in self._pairs]
        for name in self.names:
            if self.names.count(name) > 1 and not name.endswith("[]"):
                raise Problem(400, f"Parameter {name!r} is given more than once", parameter=name)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def text(self, name: str) -> str | None:
        """The value of a parameter, ``None`` where it is not given."""
        return next((value for key, value in self._pairs if key == name), None)

    def all(self, name: str) -> list[str]:
        """The values of a parameter that may come several times."""
        return [value for key, value in self._pairs if key == name]

    def number(self, name: str, default: int, least: int, most: int | None = None) -> int:
        """A whole number within its bounds. Raises 400."""
        text = self.text(name)
        if text is None:
            return default
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise Problem(400, f"{name} must be a whole number {bounds}, not {text!r}", parameter=name)
        return value

    def flag(self, name: str) -> bool:
        """``true`` or ``false``, which is the default. Raises 400."""
        text = self.text(name)
        if text not in (None, "true", "false"):
            raise Problem(400, f"{name} must be true or false, not {text!r}", parameter=name)
        return text == "true"
