"""The time zone of the machine, with its changes to and from summer time.

``datetime.astimezone()`` gives a zone with the offset of one moment, which is wrong after the next change.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


class LocalZone(tzinfo):
    """Asks the C library, as ``TZ`` or /etc/localtime say."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """See tzinfo; ``fold`` tells the two passes of a repeated hour apart."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Not known apart from `utcoffset`."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """See tzinfo."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """See tzinfo."""
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


LOCAL = LocalZone()
