"""Lists of a broker: options common to all list commands, and the list itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from stompring.cli.output import Column, echo_json, print_table
from stompring.cli.remote import Remote
from stompring.cli.terminal import one_line as printable


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options that all list commands have."""

    key: str
    search: str | None
    where: tuple[str, ...]
    sort: str | None
    limit: int | None
    columns: str | None
    quiet: bool

    def filters(self) -> dict[str, str]:
        """The fields and values of ``--where``. Raises `click.UsageError`."""
        found: dict[str, str] = {}
        for each in self.where:
            field, equals, value = each.partition("=")
            if not equals or field in ("page", "size", "search", "sort"):
                raise click.UsageError(f"--where must be FIELD=VALUE, such as paused=true, not {each!r}")
            if field in found:
                raise click.UsageError(f"--where has {field} more than once")
            found[field] = value
        return found


def list_options(key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--search``, ``--sort``, ``--where``, ``--limit``, ``--columns``, ``--quiet``; ``key`` names an item.

    The command is called with ``options``, a `ListOptions`, in their place.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def called(
            search: str | None,
            where: tuple[str, ...],
            sort: str | None,
            limit: int | None,
            columns: str | None,
            quiet: bool,
            **others: Any,
        ) -> Any:
            return command(options=ListOptions(key, search, where, sort, limit, columns, quiet), **others)

        options = (
            click.option(
                "--search", metavar="TEXT", help=f"Only items whose {key} contains this text, ignoring case."
            ),
            click.option(
                "--where",
                metavar="FIELD=VALUE",
                multiple=True,
                help="Only items with this value of a field, such as paused=true. Can be given several times.",
            ),
            click.option(
                "--sort",
                metavar="FIELD",
                help="Sort by this field; with a leading - descending: --sort=-FIELD.",
            ),
            click.option(
                "--limit", metavar="N", type=click.IntRange(min=1), help="Show the first N items only."
            ),
            click.option(
                "--columns", metavar="FIELD,…", help="Show these fields of the API (docs/http-api.md)."
            ),
            click.option("-q", "--quiet", is_flag=True, help=f"Print the {key} only, one per line."),
        )
        for option in reversed(options):
            called = option(called)
        return called

    return decorate


def run_list(
    remote: Remote, path: Sequence[str], options: ListOptions, columns: Sequence[Column], empty: str
) -> None:
    """Fetch a list and print it."""
    filters: dict[str, Any] = options.filters()
    answer = remote.pages(*path, limit=options.limit, search=options.search, sort=options.sort, **filters)
    if remote.json:
        echo_json(answer)
    elif options.quiet:
        for row in answer["data"]:
            click.echo(printable(str(row[options.key])))
    else:
        names = None if options.columns is None else [each.strip() for each in options.columns.split(",")]
        print_table(answer["data"], columns, names, empty)
        left = answer["count"] - len(answer["data"])
        if left > 0:
            click.echo(f"{left} more (--limit)", err=True)
