"""Commands that change a running broker without broker.xml: ``stompring divert``, ``bridge``, ``address-setting``,
``security-setting`` and ``config``.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from stompring.settings.model import (
    BridgeConfiguration,
    DivertConfiguration,
    Option,
    PermissionType,
    options_of,
)

from .context import read_password
from .options import argument, bad_value, command, header_pair, option, pair, provided
from .output import (
    JsonObject,
    age_text,
    columns,
    count_text,
    done,
    echo_json,
    every,
    fields,
    human_text,
    time_text,
    without_none,
)
from .queue import row_options
from .remote import QUEUE_NAMES, Remote, for_each, list_command, running
from .resources import MATRIX

NAME = argument("NAME")
NAMES = argument("NAME...")
MATCH = argument("MATCH")

# ---- diverts

DIVERT_COLUMNS = columns(
    name=(0, "DIVERT"),
    address=0,
    forwardingAddresses=(0, "TO"),
    exclusive=1,
    filter=3,
    copiedMessageCount=(1, "COPIED", count_text),
    unroutedMessageCount=(4, "UNROUTED", count_text),
    droppedMessageCount=(2, "DROPPED", count_text),
    definedIn=(1, "DEFINED IN"),
    routingType=(5, "TYPE"),
)


@click.group()
def divert() -> None:
    """List, create, change and delete diverts, which copy the messages of one address to others.

    \b
    Examples:
      stompring divert create audit --address orders --forwarding-address orders.audit
      stompring divert list
      stompring divert delete audit
    """


@list_command(divert, "diverts", "name", DIVERT_COLUMNS)
def list_diverts() -> None:
    """List diverts with their counters, and where each is defined: in broker.xml or at run time.

    \b
    Examples:
      stompring divert list
      stompring divert list --where address=orders --sort=-copiedMessageCount
    """


@command(divert, "show")
def show_divert(name: str = NAME, remote: Remote = running) -> None:
    """Show one divert.

    \b
    Examples:
      stompring divert show audit
    """
    record = remote.get("diverts", name)
    remote.print_record(record, {"Divert": every(record)})


DIVERT_ROWS = [row for row in options_of(DivertConfiguration) if row.type and row.name != "name"]


def divert_options(
    body: JsonObject = row_options(DIVERT_ROWS),
    added: tuple[str, ...] = option("--set-header", "NAME=VALUE", "Set a header of the copies. Repeatable."),
    removed: tuple[str, ...] = option(
        "--remove-header", "NAME", "Remove a header of the copies. Repeatable."
    ),
) -> JsonObject:
    """The JSON of a request that creates or changes a divert. An empty text removes a filter."""
    if "forwardingAddress" in body:
        body["forwardingAddresses"] = body.pop("forwardingAddress")
    if added or removed:
        headers = [{"name": name, "value": value} for name, value in map(header_pair, added)]
        body["transformer"] = {"addHeaders": headers, "removeHeaders": removed}
    return body


@command(divert, "create")
def create_divert(
    name: str = NAME, body: JsonObject = provided(divert_options), remote: Remote = running
) -> None:
    """Create a divert: messages of --address are copied to each --forwarding-address, or moved with --exclusive.

    \b
    Examples:
      stompring divert create audit --address orders --forwarding-address orders.audit
      stompring divert create big --address orders --forwarding-address big --exclusive --filter "total > 1000"
    """
    answer = remote.post("diverts", body={"name": name, **body})
    remote.report(
        answer, f"divert {name} created: {answer['address']} to {', '.join(answer['forwardingAddresses'])}"
    )


@command(divert, "update")
def update_divert(
    name: str = NAME, body: JsonObject = provided(divert_options), remote: Remote = running
) -> None:
    """Change a divert, also one of broker.xml. An empty text removes a filter.

    \b
    Examples:
      stompring divert update audit --filter "total > 1000"
      stompring divert update audit --filter ""
    """
    if not body:
        raise click.UsageError("nothing to change: give at least one option, such as --filter SELECTOR")
    remote.report(remote.patch("diverts", name, body=body), f"divert {name} changed")


@for_each(divert, NAMES, lambda remote, name: f"Delete divert {remote.get('diverts', name)['name']}?")
def delete(remote: Remote, name: str) -> None:
    """Delete diverts. One of broker.xml stays deleted until its element there changes.

    \b
    Examples:
      stompring divert delete audit
    """
    remote.report(remote.delete("diverts", name), f"divert {name} deleted")


# ---- bridges

BRIDGE_COLUMNS = columns(
    name=(0, "BRIDGE"),
    queue=0,
    state=0,
    paused=1,
    remote=1,
    forwardingAddress=(2, "TO"),
    messagesForwarded=(1, "FORWARDED", count_text),
    inFlight=(3, "IN FLIGHT", count_text),
    errors=3,
    lastError=(2, "LAST ERROR"),
    lastErrorTime=(4, "AGE", age_text),
    definedIn=(3, "DEFINED IN"),
)


@click.group()
def bridge() -> None:
    """List, create, pause and delete bridges, which forward the messages of a queue to another broker.

    \b
    Examples:
      stompring bridge create backup --queue orders --to tcp://backup.example.com:61613
      stompring bridge pause backup
      stompring bridge list
    """


@list_command(bridge, "bridges", "name", BRIDGE_COLUMNS)
def list_bridges() -> None:
    """List bridges with state, counters and last error, and where each is defined: in broker.xml or at run time.

    \b
    Examples:
      stompring bridge list
      stompring bridge list --where state=WAITING
    """


@command(bridge, "show")
def show_bridge(name: str = NAME, remote: Remote = running) -> None:
    """Show one bridge.

    \b
    Examples:
      stompring bridge show backup
    """
    record = remote.get("bridges", name)
    remote.print_record(record, {"Bridge": every(record, fields(lastErrorTime=time_text))})


#: Options of a bridge with another name in the command: ``--user`` is the login of the command itself.
LOGIN = {"user": "--remote-user"}

BRIDGE_ROWS = [
    row for row in options_of(BridgeConfiguration) if row.type and row.name not in ("queue_name", "password")
]


@command(bridge, "create")
def create_bridge(
    name: str = NAME,
    queue: str = option("NAME", "Forward the messages of this queue.", shell_complete=QUEUE_NAMES),
    to: tuple[str, ...] = option(
        "URL",
        "URL of the remote broker: tcp://HOST:PORT, ssl:// for TLS; for RabbitMQ with ?virtualHost=/, its default. "
        "Repeatable; several are tried in this order.",
    ),
    connectors: tuple[str, ...] = option(
        "--connector", "NAME", "Connector of broker.xml, in place of --to. Repeatable."
    ),
    password: Path | None = option(
        "--remote-password-file", "FILE", "File with the password of --remote-user."
    ),
    more: JsonObject = row_options(BRIDGE_ROWS, LOGIN),
    remote: Remote = running,
) -> None:
    """Create a bridge and start it. It forwards each message of the queue at least once.

    \b
    Examples:
      stompring bridge create backup --queue orders --to tcp://backup.example.com:61613
      stompring bridge create far --queue orders --to "ssl://far.example.com:61614" --remote-user ada \\
        --remote-password-file far.password --forwarding-address orders.copy
      stompring bridge create rabbit --queue orders --to "tcp://rabbit.example.com:61613?virtualHost=/" \\
        --remote-user ada --remote-password-file rabbit.password --forwarding-address /queue/orders
    """
    if not to and not connectors:
        raise click.UsageError("name the remote broker with --to URL or --connector NAME")
    body = {
        "name": name,
        "queue": queue,
        "to": to or None,
        "staticConnectors": connectors or None,
        "password": None if password is None else read_password(password),
    }
    answer = remote.post("bridges", body={**without_none(body), **more})
    remote.report(answer, f"bridge {name} created: queue {queue} to {', '.join(answer['connectors'])}")


@for_each(bridge, NAMES)
def pause(remote: Remote, name: str) -> None:
    """Pause bridges: they take no more messages from their queues until they are resumed, also after a restart.

    \b
    Examples:
      stompring bridge pause backup
    """
    remote.report(remote.post("bridges", name, "pause"), f"bridge {name} paused")


@for_each(bridge, NAMES)
def resume(remote: Remote, name: str) -> None:
    """Resume paused bridges.

    \b
    Examples:
      stompring bridge resume backup
    """
    remote.report(remote.post("bridges", name, "resume"), f"bridge {name} resumed")


def _deletion(remote: Remote, name: str) -> str:
    record = remote.get("bridges", name)
    waiting = f" with {human_text(record['inFlight'])} unconfirmed messages" if record["inFlight"] else ""
    return f"Delete bridge {record['name']}{waiting}?"


@for_each(bridge, NAMES, _deletion)  # type: ignore[no-redef]
def delete(remote: Remote, name: str) -> None:  # noqa: F811
    """Delete bridges. Messages stay in their queues.

    \b
    Examples:
      stompring bridge delete backup
    """
    remote.report(remote.delete("bridges", name), f"bridge {name} deleted")


# ---- address-settings and security-settings

ENTRY_COLUMNS = columns(match=0, settings=0, definedIn=(0, "DEFINED IN"), line=1)


@click.group("address-setting")
def address_setting() -> None:
    """List, set and unset address-settings, the rules of addresses.

    \b
    Examples:
      stompring address-setting set "orders.#" max-size-messages=1000 address-full-policy=BLOCK
      stompring address settings orders.eu
      stompring address-setting unset "orders.#"
    """


@list_command(address_setting, "address-settings", "match", ENTRY_COLUMNS)
def list_address_settings() -> None:
    """List address-settings, and where each is defined: in broker.xml or at run time.

    \b
    Examples:
      stompring address-setting list
    """


@command(address_setting, "show")
def show_address_setting(match: str = MATCH, remote: Remote = running) -> None:
    """Show the values that one address-setting sets.

    \b
    Examples:
      stompring address-setting show "orders.#"
    """
    record = remote.get("address-settings", match)
    settings = {} if remote.json else record.pop("settings")
    sections = {"Address-setting": every(record), "Settings": every(settings)}
    remote.print_record({**record, **settings}, sections)


@command(address_setting, "set")
def set_address_setting(
    match: str = MATCH, values: tuple[str, ...] = argument("KEY=VALUE..."), remote: Remote = running
) -> None:
    """Set values of an address-setting, which is created if it does not exist. Other values stay.

    KEY is a name of broker.xml or of the API: 'stompring settings address-setting' lists all. All addresses that match
    have the values at once. A default-… setting, such as default-ring-size, is for new queues: 'stompring queue update'
    changes the others.

    \b
    Examples:
      stompring address-setting set "orders.#" max-size-messages=1000 address-full-policy=BLOCK
      stompring address-setting set "orders.#" default-ring-size=1000
      stompring address-setting set orders max-delivery-attempts=3 dead-letter-address=DLQ
    """
    settings = dict(
        pair(each, "a value must be KEY=VALUE, such as max-size-messages=1000") for each in values
    )
    answer = remote.patch("address-settings", match, body={"settings": settings})
    kept = (
        "; existing queues keep their attributes"
        if any(key.startswith("default") for key in settings)
        else ""
    )
    remote.report(answer, f"address-setting {answer['match']} changed: {', '.join(values)}{kept}")


@command(address_setting, "unset")
def unset_address_setting(
    match: str = MATCH,
    keys: tuple[str, ...] = argument("[KEY]...", required=False),
    remote: Remote = running,
) -> None:
    """Remove values of an address-setting, or without KEY the whole address-setting.

    One of broker.xml stays deleted until its element there changes.

    \b
    Examples:
      stompring address-setting unset "orders.#" max-size-messages
      stompring address-setting unset "orders.#"
    """
    if keys:
        answer = remote.patch("address-settings", match, body={"settings": dict.fromkeys(keys)})
        remote.report(answer, f"address-setting {answer['match']} changed: {', '.join(keys)} removed")
        return
    remote.report(remote.delete("address-settings", match), f"address-setting {match} deleted")


@click.group("security-setting")
def security_setting() -> None:
    """List, set and unset security-settings: which roles may do what on which addresses.

    \b
    Examples:
      stompring security-setting set "orders.#" --send clerks --consume clerks --consume auditors
      stompring permission check --of bob --address orders.eu
      stompring security-setting unset "orders.#"
    """


@list_command(security_setting, "security-settings", "match", MATRIX)
def list_security_settings() -> None:
    """List the roles of each permission, and where each rule is defined: in broker.xml or at run time.

    \b
    Examples:
      stompring security-setting list
      stompring security-setting list --where match=orders
    """


PERMISSION_ROWS = [
    Option(
        kind,
        "roleList",
        None,
        f"Grant {kind} to this role. Repeatable; an empty text removes the permission.",
        element=re.sub("[A-Z]", r"-\g<0>", kind).lower(),
    )
    for kind in PermissionType
]


@command(security_setting, "set")
def set_security_setting(
    match: str = MATCH, permissions: JsonObject = row_options(PERMISSION_ROWS), remote: Remote = running
) -> None:
    """Set the roles of permissions on addresses that match. Permissions that are not named stay.

    The most specific match alone decides about an address: name all roles that shall keep a permission there.
    'stompring permission check' shows the permissions in force.

    \b
    Examples:
      stompring security-setting set "orders.#" --send clerks --consume clerks
      stompring security-setting set "orders.#" --send ""
    """
    answer = remote.patch("security-settings", match, body={"permissions": permissions})
    granted = "; ".join(f"{kind} to {', '.join(roles)}" for kind, roles in answer["permissions"].items())
    remote.report(
        answer,
        f"security-setting {answer['match']} grants {f'{granted}, and nothing else' if granted else 'nothing'}",
    )


@command(security_setting, "unset")
def unset_security_setting(match: str = MATCH, remote: Remote = running) -> None:
    """Delete a security-setting. One of broker.xml stays deleted until its element there changes.

    \b
    Examples:
      stompring security-setting unset "orders.#"
    """
    remote.report(remote.delete("security-settings", match), f"security-setting {match} deleted")


# ---- the configuration


@click.group()
def config() -> None:
    """Export the configuration of a running broker.

    \b
    Examples:
      stompring config export --output broker.xml
    """


@command(config)
def export(
    output: Path | None = option("FILE", "Write to this file in place of standard output."),
    with_secrets: bool = option("Include passwords."),
    remote: Remote = running,
) -> None:
    """Write the broker.xml that gives the configuration in use: that of the last reload with all changes since.

    Included files become part of it, comments are left out. Without --with-secrets, references to the environment
    variables STOMPRING_SECRET_1 and so on replace passwords: a broker does not start while they are not set.

    \b
    Examples:
      stompring config export --output broker.xml
      stompring config export --with-secrets > broker.xml
    """
    answer = remote.get("configuration", secrets="true" if with_secrets else None)
    if output is not None:
        with bad_value("--output", OSError):
            output.touch(0o600)
            output.write_text(answer["document"], encoding="utf-8")
        answer = {"saved": str(output)}
    if remote.json:
        echo_json(answer)
    elif output is None:
        click.echo(answer["document"], nl=False)
    else:
        done(f"configuration written to {output}")
