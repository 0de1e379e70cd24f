"""``stompring data export FILE``: what a data directory holds, to take elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import click

from stompring.cli.data_option import located, where
from stompring.cli.data_progress import progress
from stompring.errors import StoreError


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@where
@click.option("--replace", is_flag=True, help="Write FILE even where it exists already.")
@click.pass_context
def export_data(
    context: click.Context, file: Path, config: str | None, data: str | None, replace: bool
) -> None:
    """Write addresses, queues and messages of a data directory to FILE.

    FILE has one JSON object a line, and is gzipped where its name ends in .gz. Messages come with all their headers,
    delivery counts and due times. What is exported is what a broker finds when it starts: durable messages in durable
    queues. A broker may be running on the directory; it goes on undisturbed, and the file shows one moment of it.

    Where something cannot be read the rest is exported, each finding is told, and the exit status is 1.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.store.export import export
    from stompring.store.inspection_contents import Contents
    from stompring.store.inspection_files import Snapshot

    if file.exists() and not replace:
        raise click.ClickException(f"{file} exists already; --replace writes over it")
    findings: list[str] = []

    def found(damaged: Path, position: int, text: str) -> None:
        findings.append(f"{damaged}:{position}: {text}")

    try:
        with Snapshot(located(config, data)) as snapshot, progress("exporting", snapshot.bytes) as step:
            counts = export(Contents(snapshot, found, step), file, int(time.time() * 1000), found)
    except StoreError as fault:
        raise click.ClickException(str(fault)) from None
    except OSError as fault:
        raise click.ClickException(f"cannot write {fault.filename or file}: {fault.strerror}") from None
    for finding in findings:
        click.echo(finding, err=True)
    running = ", of a running broker" if snapshot.running else ""
    click.echo(
        f"messages {counts['message']}, queues {counts['queue']}, addresses {counts['address']}{running}: "
        f"all in {file}"
    )
    if findings:
        context.exit(1)
