"""Which brokers a benchmark runs on, as its command line says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from benchmarks.brokers import BROKERS, FLOORS, Broker


def names_of(brokers: str | None, floors: bool = False) -> list[str]:
    """The names in a comma-separated list, all when there is none; a name that is not known is refused.

    With ``floors`` what is no STOMP broker counts too.
    """
    known = list(BROKERS | FLOORS) if floors else list(BROKERS)
    names = known if brokers is None else brokers.split(",")
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--brokers")
    return names


def each_broker(brokers: str | None, env: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Starts the brokers one after the other, a fresh one for each step; says which are skipped and why."""
    for name in names_of(brokers):
        reason = BROKERS[name].missing()
        if reason is not None:
            click.echo(f"{name}: skipped, {reason}")
            continue
        with BROKERS[name](env) as broker:
            yield broker
