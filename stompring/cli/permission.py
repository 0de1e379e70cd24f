"""``stompring permission``: what a user of a running broker may do, and by which rule."""

from __future__ import annotations

import click

from stompring.cli.completion import names_of
from stompring.cli.listing import ListOptions, list_options, run_list
from stompring.cli.output import Column, echo_json, human_text, print_fields, print_table
from stompring.cli.remote import Remote, remote_command

ANSWERS = (
    Column("permission", "PERMISSION", rank=0),
    Column("allowed", "ALLOWED", rank=0, style=lambda value: "green" if value else "red"),
    Column("allowedOverHTTP", "OVER HTTP", rank=3),
    Column("match", "BY RULE", rank=1),
    Column("roles", "ROLES", rank=2),
    Column("reason", "REASON", rank=2),
)

MATRIX = (
    Column("match", "MATCH", rank=0),
    Column("permission", "PERMISSION", rank=0),
    Column("roles", "ROLES", rank=0),
    Column("line", "LINE", rank=1),
)


@click.group()
def permission() -> None:
    """Show what a user may do on an address or a queue, and by which rule.

    \b
    Examples:
      stompring permission check --of bob --address orders
      stompring permission list
      stompring permission whoami
    """


@permission.command()
@click.option(
    "--of", "who", metavar="NAME", help="The user asked about; needs the permission manage.  [default: you]"
)
@click.option("--address", metavar="NAME", shell_complete=names_of("addresses"), help="On this address.")
@click.option("--queue", metavar="NAME", shell_complete=names_of("queues"), help="On this queue.")
@remote_command
def check(remote: Remote, who: str | None, address: str | None, queue: str | None) -> None:
    """Show for each permission whether a user has it on an address or a queue, and which security-setting decides.

    Without --address and --queue: on activemq.management, which the HTTP API asks for.

    \b
    Examples:
      stompring permission check --of bob --address orders
      stompring permission check --queue orders
    """
    answer = remote.get("permissions", user=who, address=address, queue=queue)
    if remote.json:
        echo_json(answer)
    else:
        print_table(answer["data"], ANSWERS)


@permission.command("list")
@list_options("match")
@remote_command
def list_permissions(remote: Remote, options: ListOptions) -> None:
    """List the security-settings: which roles have which permission.

    \b
    Examples:
      stompring permission list
      stompring permission list --where permission=send
    """
    run_list(
        remote, ["security-settings"], options, MATRIX, "no security-settings: no user has any permission"
    )


@permission.command()
@remote_command
def whoami(remote: Remote) -> None:
    """Show the user, the roles, and the permissions for the HTTP API.

    \b
    Examples:
      stompring permission whoami
      stompring permission whoami --context prod
    """
    found = remote.get("whoami")
    if remote.json:
        echo_json(found)
        return
    flat = {name: value for name, value in found.items() if name != "permissions"}
    permissions = {f"may {name}": value for name, value in found["permissions"].items()}
    fields = {"User": flat, "Permissions": permissions}
    print_fields(
        {**flat, **permissions},
        {title: {name: (name, human_text) for name in part} for title, part in fields.items()},
    )
