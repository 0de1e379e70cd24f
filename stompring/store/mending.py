"""Segments that are torn or damaged are made fit to go on with; nothing that can be read is touched."""

from __future__ import annotations

import logging

from stompring.errors import StoreError

from .files import Files, free_name
from .kept import DAMAGED
from .replay import ReadSegment
from .segment import Fault, Walk

log = logging.getLogger(__name__)

#: Bytes after a fault in which a whole record is looked for.
SEARCHED = 256 * 1024


class Mending:
    """What was wrong with the journal's segments. ``reports`` are for people."""

    def __init__(self, files: Files) -> None:
        self.reports: list[str] = []
        self.lost_bytes = 0
        self._files = files

    def mend(self, segments: list[ReadSegment]) -> list[ReadSegment]:
        """Those of which something is left, with ``faults`` where they shall be set aside in the end.

        Raises `StoreError` for what a newer version has written, `OSError`.
        """
        segments = self._without_begun(segments)
        followers = [*segments[1:], None] if segments else []
        return [each for each, after in zip(segments, followers, strict=True) if self._mend(each, after)]

    def _without_begun(self, segments: list[ReadSegment]) -> list[ReadSegment]:
        """All but a last one of which nothing can be read, where it was being begun when the broker died.

        The one before it is sealed after that: while it is not, nothing in the last one was ever confirmed.
        """
        if not segments or segments[-1].records or not segments[-1].faults or segments[-1].sealed:
            return segments
        *others, last = segments
        short = last.size <= last.header.size
        if last.faults[0].reason.endswith("is not known here") or not (
            short or (others and not others[-1].sealed)
        ):
            return segments
        log.warning("%s was only begun, and is not used", last.path)
        if not short:
            self._files.rename(last.path, free_name(self._files, last.path, DAMAGED))
        elif not others or not others[-1].sealed:  # else the next segment is written over it
            self._files.remove(last.path)
        return others

    def _mend(self, read: ReadSegment, after: ReadSegment | None) -> bool:
        newest = after is None
        if not read.faults and after is not None and not read.sealed and after.header.previous != read.end:
            read.faults.append(Fault(read.size, "its seal is missing, and what stood before that perhaps"))
        if not read.faults:
            return True
        fault = read.faults[0]
        if fault.reason.endswith("is not known here"):
            raise StoreError(f"{fault.reason}: a newer version has written it", str(read.path), fault.at)
        if newest and not read.sealed and fault.at >= read.header.size:
            self._cut(read, fault)
            return True
        self.reports.append(
            f"{read.path} is damaged at {fault.at} ({fault.reason}): {_extent(read)}; "
            "it will be set aside once what can be read is written anew"
        )
        self.lost_bytes += read.lost
        return True

    def _cut(self, read: ReadSegment, fault: Fault) -> None:
        """The end of the newest segment was being written when the broker died, or is damaged.

        Without a footer nothing leads over damage: what looks like a record behind it may be part of a message.
        """
        data = self._files.read(read.path)
        lost = len(data) - read.good
        if _has_records(data, fault.at):
            aside = read.path.with_name(read.path.name + ".damaged")
            self._files.replace(aside, data)
            self.reports.append(
                f"{read.path} is damaged at {fault.at} ({fault.reason}): the {lost} bytes from there on are "
                f"left out; {aside.name} has all of it"
            )
            self.lost_bytes += lost
        else:
            log.warning("%s: the last %d bytes were not written completely and are cut off", read.path, lost)
        self._files.truncate(read.path, read.good)
        read.size = read.good
        read.faults = []


def _extent(read: ReadSegment) -> str:
    if read.sealed or not read.faults[0].at:
        return f"{len(read.faults)} part{'s' if len(read.faults) > 1 else ''} of it cannot be read"
    return f"the {read.lost} bytes from there on cannot be read"


def _has_records(data: bytes, at: int) -> bool:
    """Whether some whole record begins after ``at``: then what is there is damage, and no end half written."""
    return any(_is_record(data, start) for start in range(at + 1, min(len(data) - 8, at + SEARCHED)))


def _is_record(data: bytes, start: int) -> bool:
    length = int.from_bytes(data[start : start + 4], "little")
    if not 8 <= length <= len(data) - start - 8:
        return False
    return next(iter(Walk(data[start : start + 8 + length], 0)), None) is not None
