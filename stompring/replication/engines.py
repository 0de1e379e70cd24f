"""Which engine a URL names. Engines are imported where they are used, never otherwise."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..settings.model import ReplicatedLogSettings
from .log import ReplicatedLog, UnsafeLog

NATS_SCHEMES = ("nats", "tls")
POSTGRESQL_SCHEMES = ("postgresql", "postgres")


def open_log(settings: ReplicatedLogSettings) -> ReplicatedLog:
    """The log of the settings, not connected. Raises `UnsafeLog` for a URL or files that cannot be used."""
    try:
        if _is_nats(settings):
            from .nats_log import NatsLog

            return NatsLog(settings)
        from .postgres_log import PostgresLog

        return PostgresLog(settings)
    except ImportError as fault:
        raise _missing(fault) from None


def create_log(settings: ReplicatedLogSettings, max_bytes: int) -> None:
    """Make a new, empty log of at most ``max_bytes`` (-1: no limit). Raises `UnsafeLog` where it exists."""
    try:
        if _is_nats(settings):
            from .nats_log import create_nats_log

            create_nats_log(settings, max_bytes)
        else:
            from .postgres_log import create_postgres_log

            create_postgres_log(settings, max_bytes)
    except ImportError as fault:
        raise _missing(fault) from None


def deletion_of(settings: ReplicatedLogSettings) -> str:
    """The command of the engine that deletes the log, with all messages in it. Raises `UnsafeLog` for a wrong URL."""
    stream = settings.stream
    if _is_nats(settings):
        return f"nats stream rm {stream}"
    return (
        f"WITH gone AS (DELETE FROM stompring_logs WHERE stream = '{stream}' RETURNING log) "  # nosec B608: shown
        "DELETE FROM stompring_entries WHERE log IN (SELECT log FROM gone)"
    )


def _is_nats(settings: ReplicatedLogSettings) -> bool:
    scheme = urlsplit(settings.url).scheme
    if scheme in NATS_SCHEMES:
        return True
    if scheme in POSTGRESQL_SCHEMES:
        return False
    raise UnsafeLog(f"url of the replicated log: {scheme!r} is not nats, tls or postgresql")


def _missing(fault: ImportError) -> UnsafeLog:
    return UnsafeLog(
        f"the replicated log needs packages that are not installed ({fault}): pip install stompring[ha]"
    )
