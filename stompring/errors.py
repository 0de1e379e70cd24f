"""The base classes of expected errors, and the format of counts in their texts.

The session turns ``ProtocolError`` and ``Refused`` into an ERROR frame; ``ConfigurationError`` ends a start or a reload
in ``cli``; the store raises ``StoreError``. Any other exception is a bug: the broker logs it with its traceback, and
closes only the connection on which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mypy_extensions import mypyc_attr


def counted(number: int, noun: str, show: Callable[[int], str] = "{:,}".format) -> str:
    """Format a count with its noun: ``1 message``, ``12,345 messages``, ``2 addresses``."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{show(number)} {noun}{plural}"


class ProtocolError(Exception):
    """The peer broke a rule of STOMP. The text names the rule, the header and the limit.

    ``receipt``: the receipt that the faulty frame requested, None if the frame requested none or is unreadable.
    ``limit``: name of the setting whose limit was exceeded, None for other faults.
    """

    def __init__(self, text: str, receipt: bytes | None = None, limit: str | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt
        self.limit = limit


class Refused(Exception):
    """The broker refuses a well-formed request. The text is the reason, suitable for users.

    ``status`` is the HTTP status with which the management API reports the refusal.
    """

    def __init__(self, reason: str, status: int = 409, limit: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.limit = limit


class LimitReached(Refused):
    """The request would exceed a limit. ``limit`` is the name of its setting."""

    def __init__(self, reason: str, limit: str, status: int = 409) -> None:
        super().__init__(reason, status, limit)


class NotFound(Refused):
    """The named address, queue, message or subscription does not exist."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, status=404)


@mypyc_attr(native_class=False)
class Line(int):
    """A line number in a file that broker.xml includes. ``str()`` is ``NUMBER of FILE``."""

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
    """The configuration is invalid. ``str()`` is ``file:line: text``.

    ``faults`` has line, column and text of each fault; unknown lines and columns are None. A line number that is a
    `Line` belongs to an included file, not to ``file``. ``files``: the files that were read so far, if a file includes
    others.
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
        """Return ``file:line: text`` of each fault."""
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
        """Convert the error of a file operation to a `StoreError`. ``path``: the file, for an error that names none."""
        return cls(fault.strerror or str(fault), fault.filename or path)


class CertificateError(Exception):
    """A certificate or key file cannot be used. It is here because `stompring.security.certificates` needs 20 MB."""


class PipelineError(Exception):
    """Base of expected errors of the pipeline, in a module without the libraries of the extra ``spark``.

    The user sees only the message.
    """
