"""The ``<replicated-log>`` element in ``<ha-policy>``."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

from stompring.settings.document import Faults, Node, snake
from stompring.settings.log_url import NATS, POSTGRESQL, scheme_of
from stompring.settings.model import ReplicatedLogSettings
from stompring.settings.references import Secret, revealed

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.@:-]+")

#: Attributes that are paths of files.
FILES = ("credentials", "ca", "certificate", "key")

#: Elements of core without which a RECEIPT would not mean that the message is in the log.
_NEEDED = ("persistence-enabled", "journal-sync-transactional", "journal-sync-non-transactional")


def read_replicated_log(core: Node, name: str, faults: Faults) -> ReplicatedLogSettings | None:
    """The settings of the log, of a broker called ``name``; None without a log, or with a fault in it."""
    policy = core.first("ha-policy")
    node = None if policy is None else policy.first("replicated-log")
    if node is None:
        return None
    for needed in _NEEDED:
        element = core.first(needed)
        if element is not None and element.value is False:
            faults.add(
                element.line,
                f"<{needed}> is false: with <replicated-log> (line {int(node.line)}) it must be true, else a message "
                "with a RECEIPT may be lost at a takeover",
            )
    values: dict[str, Any] = {snake(key): value for key, value in node.attributes.items()}
    for text in _contradictions(values):
        faults.add(node.line, f"<replicated-log>: {text}")
    if "url" not in values or "stream" not in values:
        return None  # there is a fault
    folder = Path(faults.file).parent
    for each in FILES:
        if values.get(each) is not None:
            values[each] = str(folder / values[each])
    if values.get("password") is not None:
        values["password"] = Secret(revealed(values["password"]))
    values.setdefault("broker", default_member(name))
    return ReplicatedLogSettings(**values)


def default_member(name: str) -> str:
    """The name of a broker in the log: its own, ``@`` and the name of the machine."""
    return _NOT_IN_A_NAME.sub("-", f"{name}@{socket.gethostname()}")[:200]


def _contradictions(values: dict[str, Any]) -> list[str]:
    found: list[str] = []
    password = values.get("password")
    if password is not None and "credentials" in values:
        found.append("it has password and credentials: keep one of them")
    elif "user" in values and "credentials" in values:
        found.append("it has user and credentials: keep one of them")
    if password is not None and "user" not in values and "credentials" not in values:
        found.append("it has a password and no user")
    if password is not None and revealed(password).startswith("ENC("):
        found.append(
            "password is encoded, and the key is Artemis's; write a reference, ${file:PATH} or ${env:NAME}"
        )
    if "key" in values and "certificate" not in values:
        found.append("it has a key and no certificate")
    scheme = scheme_of(values.get("url", ""))
    if scheme in POSTGRESQL:
        found += (
            f"{each} is of NATS, and the url is of PostgreSQL; remove it"
            for each in ("credentials", "monitor")
            if each in values
        )
    given = [each for each in ("ca", "certificate", "key") if each in values]
    if scheme in NATS and scheme != "tls" and given:
        found.append(f"{given[0]} has no effect without TLS: write tls:// in the url")
    return found
