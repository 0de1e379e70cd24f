"""Errors

The error families of the house. Each is caught in exactly one place.

``ProtocolError`` and ``Refused`` become an ERROR frame in ``session``; ``ConfigurationError`` stops a start or a
reload in ``cli``; ``StoreError`` belongs to the store. Anything else that escapes is a bug of ours, is logged with
its traceback and closes only the connection it happened on.

The base of expected errors, in a module without the libraries of the extra ``spark``.
"""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr


class ProtocolError(Exception):
    """The peer broke a rule of STOMP. The text names the rule, the header and the limit.

    ``receipt`` is the receipt that the faulty frame asked for, where that could be read in spite of the fault;
    ``limit`` the limit that was passed, by the name of its setting.
    """

    def __init__(self, text: str, receipt: bytes | None = None, limit: str | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt
        self.limit = limit


class Refused(Exception):
    """A well-formed request that the broker will not do. The text is the reason, fit to be shown to a user.

    ``status`` is the HTTP status with which the management API answers the same refusal.
    """

    def __init__(self, reason: str, status: int = 409, limit: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.limit = limit


class LimitReached(Refused):
    """Something is refused because there is too much of it already. ``limit`` is the name of the setting."""

    def __init__(self, reason: str, limit: str, status: int = 409) -> None:
        super().__init__(reason, status, limit)


class NotFound(Refused):
    """The named address, queue, message or subscription does not exist."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, status=404)


@mypyc_attr(native_class=False)
class Line(int):
    """A line of a file that broker.xml includes. A fault at it is shown with ``file``, as text it names that file."""

    file: str

    def __new__(cls, number: int, file: str) -> Line:
        line = int.__new__(cls, number)
        line.file = file
        return line

    def __str__(self) -> str:
        return f"{int(self)} of {self.file}"

    def __format__(self, form: str) -> str:
        return format(str(self), form)


class ConfigurationError(Exception):
    """broker.xml says something that cannot be. ``str()`` gives ``file:line: text``.

    ``faults`` has line, column and text of each fault; the lines and columns are None where unknown. A `Line` is one
    of another file than ``file``. ``files`` are those that were read until then, where a file includes others.
    """

    def __init__(
        self,
        text: str,
        file: str | None = None,
        line: int | None = None,
        *,
        column: int | None = None,
        faults: Iterable[tuple[int, str]] = (),
    ) -> None:
        self.text = text
        self.files: tuple[str, ...] = ()
        file = line.file if isinstance(line, Line) else file
        self.file = file
        self.line = line
        self.faults: list[tuple[int | None, int | None, str]] = [(at, None, each) for at, each in faults]
        if not self.faults:
            self.faults.append((line, column, text))
        number = None if line is None else int(line)
        place = "".join(f"{part}:" for part in (file, number) if part is not None)
        super().__init__(f"{place} {text}" if place else text)

    def lines(self) -> list[str]:
        """``file:line: text`` of each fault."""
        found = []
        for line, _, text in self.faults:
            file = line.file if isinstance(line, Line) else self.file
            place = "".join(
                f"{part}:" for part in (file, None if line is None else int(line)) if part is not None
            )
            found.append(f"{place} {text}" if place else text)
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreError(Exception):
    """A file of the store could not be read or written."""

    def __init__(self, text: str, path: object, position: int = 0) -> None:
        super().__init__(f"{path} at {position}: {text}")
        self.path = str(path)
        self.position = position

    @classmethod
    def of(cls, fault: OSError, path: object = None) -> StoreError:
        """The error of a file operation; ``path`` is for an error that names no file."""
        return cls(fault.strerror or str(fault), fault.filename or path)


class PipelineError(Exception):
    """Base of expected errors that have no other class. They are shown by their message alone."""
