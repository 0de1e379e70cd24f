"""The choice of the brokers on the command line of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from benchmarks.brokers import BROKERS, FLOORS, Broker


def names_of(brokers: str | None, floors: bool = False) -> list[str]:
    """Return the names in a comma-separated list; None: all names. Raises `click.BadParameter` for an unknown one.

    ``floors``: include servers that do not speak STOMP.
    """
    known = list(BROKERS | FLOORS) if floors else list(BROKERS)
    names = known if brokers is None else brokers.split(",")
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--brokers")
    return names


def each_broker(brokers: str | None, env: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Start the named brokers one after the other. Print which are skipped and why."""
    for name in names_of(brokers):
        reason = BROKERS[name].missing()
        if reason is not None:
            click.echo(f"{name}: skipped, {reason}")
            continue
        with BROKERS[name](env) as broker:
            yield broker
