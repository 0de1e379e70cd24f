"""``write_report``: from tables to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from stompring.pipeline.report import units
from stompring.pipeline.report.findings import Wish, gather
from stompring.pipeline.report.page import PLOTS, page
from stompring.pipeline.report.period import Period
from stompring.pipeline.report.tables import Tables


def _silent(stage: str) -> None:
    """Nobody wants to know."""


def write_report(
    tables: Tables,
    out: Path,
    period: Period | None = None,
    addresses: Sequence[str] = (),
    *,
    keep: float = 99.0,
    unpaged: float = 99.0,
    brokers: Sequence[str] = (),
    compare: bool = True,
    plots: str = "static",
    progress: Callable[[str], None] = _silent,
) -> bool:
    """Write the report on a lake to ``out``, an HTML file that needs no other; whether there was anything to report.

    ``tables`` has the DataFrames ``messages``, ``events`` and ``samples`` (`Lake` will do), of one SparkSession; their
    columns are in docs/report.md. Bodies and headers are never read. ``addresses`` are patterns with ``*`` and ``#``,
    none for all. ``keep``: of what a ring threw away so many per cent should have been kept; ``unpaged``: so many per
    cent of the time an address should not have paged. ``brokers`` are those of a lake of several, none for all.
    ``compare``: with the period before, where ``period`` has a beginning. ``plots`` is ``static``, ``interactive`` or
    ``both``. ``progress`` is called with a few words as each part of the work begins.

    The file is there as a whole or not at all; one that was there stays until then. Where there is nothing in the
    period the page says so. Raises ValueError for arguments that cannot be, OSError where the file cannot be written,
    and what Spark raises.
    """
    if plots not in PLOTS:
        raise ValueError(f"plots must be one of {', '.join(PLOTS)}")
    wish = Wish(period or Period(), tuple(addresses), keep, unpaged, tuple(brokers), compare)
    found = gather(tables, wish, progress)
    progress("page")
    _replace(out, page(found, wish, units.now(), plots))
    return found is not None


def _replace(out: Path, text: str) -> None:
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=out.parent, prefix=f".{out.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, out)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise


def _umask() -> int:
    """As a file has it that is simply opened: temporary ones are for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
