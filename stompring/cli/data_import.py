"""``stompring data import FILE``: what was exported comes into a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stompring.cli.data_option import configuration, where
from stompring.errors import StoreError
from stompring.settings.data_directory import data_directory
from stompring.settings.model import BrokerConfiguration

if TYPE_CHECKING:
    from stompring.cli.data_doors import Doors
    from stompring.cli.data_running import RunningBroker


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@where
@click.option(
    "--stomp",
    metavar="[ssl://]HOST:PORT",
    help="Where the running broker speaks STOMP, if the broker.xml does not tell.",
)
@click.option("--http", metavar="URL", help="Where its HTTP is.")
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificates (PEM) to check those of the broker against, where it speaks TLS.  [default: the system's]",
)
@click.option(
    "--user", metavar="NAME", help="Who logs in there, where security is on; a password is asked for."
)
@click.option(
    "--password-stdin", is_flag=True, help="Take the password from standard input instead of asking."
)
@click.option(
    "--again", is_flag=True, help="Import FILE once more into a directory that has had all of it before."
)
def import_data(
    file: Path,
    config: str | None,
    data: str | None,
    stomp: str | None,
    http: str | None,
    ca_file: Path | None,
    user: str | None,
    password_stdin: bool,
    again: bool,
) -> None:
    """Bring the addresses, queues and messages of FILE into a broker.

    Where no broker runs on the data directory, they are written there, with everything that FILE says of them. Into
    one that runs they go over HTTP and STOMP: then messages are new ones in a few respects (docs/data.md).

    What is there already stays. A queue that is there gets the attributes that FILE says, and the messages of FILE
    after its own. An import that was interrupted is simply begun again: it goes on where it stopped.
    """
    # Here and not above: the store would make every other command slow to start.
    from stompring.cli.data_doors import Doors
    from stompring.cli.data_stopped import StoppedBroker
    from stompring.cli.data_transfer import carry_over
    from stompring.store.datadir import is_locked
    from stompring.store.portable_fields import Unusable

    meant = BrokerConfiguration() if stomp and http else configuration(config, data)
    directory = data_directory(meant, data)
    try:
        if stomp or http or is_locked(directory.root):
            doors = Doors(stomp, http, ca_file)
            with _running(meant, doors, _login(user, password_stdin)) as running:
                _report(file, *carry_over(file, running))
                running.finish()
            return
        if not meant.persistence_enabled:
            raise click.ClickException(
                f"{meant.file} says that the broker keeps nothing: persistence-enabled is false"
            )
        stopped = StoppedBroker(directory, meant, again=again)
        try:
            _report(file, *carry_over(file, stopped))
            stopped.finish()
        finally:
            stopped.close()
    except (StoreError, Unusable) as fault:
        raise click.ClickException(str(fault)) from None


def _report(file: Path, count: int, before: int) -> None:
    earlier = f", {before} of them by an earlier import that was interrupted" if before else ""
    click.echo(f"all {count} messages of {file} are there{earlier}")


def _running(meant: BrokerConfiguration, doors: Doors, login: tuple[str, str] | None) -> RunningBroker:
    from stompring.cli.data_http import ManagementApi
    from stompring.cli.data_running import RunningBroker
    from stompring.cli.data_stomp import StompConnection

    doors = doors.completed(meant)
    host, port, secure = doors.stomp_place()
    context = doors.context()
    tls = context if secure else None
    api = ManagementApi(doors.http_root(), login, context)
    return RunningBroker(api, lambda client: StompConnection(host, port, client, login, tls))


def _login(user: str | None, password_stdin: bool) -> tuple[str, str] | None:
    if user is None:
        if password_stdin:
            raise click.UsageError("--password-stdin needs --user NAME")
        return None
    if password_stdin:
        return user, sys.stdin.readline().rstrip("\r\n")
    return user, str(click.prompt(f"Password of {user}", hide_input=True, err=True))
