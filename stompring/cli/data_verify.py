"""``stompring data verify``: whether a data directory is in order."""

from __future__ import annotations

import json

import click

from stompring.cli.data_option import located, where
from stompring.cli.data_progress import progress
from stompring.errors import StoreError


@click.command()
@where
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of lines.")
@click.pass_context
def verify(context: click.Context, config: str | None, data: str | None, as_json: bool) -> None:
    """Look for damage in a data directory.

    Every record, block and reference from one record to another is checked, and nothing is changed. Each finding is
    one line, FILE:POSITION: what. The exit status is 1 where there is any.

    A broker may be running on it. What it is just writing is no finding then; without one, a record that is cut off
    at the end of the newest file is: the broker was killed, and its next start cuts that off.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.store.inspection_files import Snapshot
    from stompring.store.verification import Verification

    try:
        with Snapshot(located(config, data)) as snapshot, progress("verifying", 2 * snapshot.bytes) as step:
            found = Verification(snapshot, step)
    except StoreError as fault:
        raise click.ClickException(str(fault)) from None
    if as_json:
        click.echo(json.dumps(found.fields(), indent=2))
    else:
        for finding in found.findings:
            click.echo(str(finding))
        for note in (*found.notes, found.summary()):
            click.echo(note, err=True)
    if found.findings:
        context.exit(1)
