"""Types of the values in broker.xml and in the URLs of acceptors, with a reader for each.

A reader converts a text without surrounding blanks, and raises ``ValueError`` with a message that continues
"… is 'text': ". `VALUE_TYPES` has a reader for each simple type of schema.xsd, by the name of the type.

Byte notation is Artemis's (its ``ByteUtil.convertTextBytes``): a whole number, then ``K``, ``M`` or ``G`` in
upper or lower case, each optionally followed by ``i``, ``b`` or both. They are powers of 1024: ``10MB``, ``10M``
and ``10MiB`` are all 10485760 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from stompring.selector import compile_selector

from .document import with_suggestion
from .model import (
    MIN_TAKEOVER_TIMEOUT,
    ComponentRoutingType,
    DeletionPolicy,
    DiskFullPolicy,
    FullPolicy,
    LdapAuthentication,
    LoginFlag,
    PageFullPolicy,
    PermissionType,
    Retain,
    RingPolicy,
    RoutingType,
    SlowConsumerPolicy,
    ThresholdUnit,
    TimeUnit,
)
from .network import key_source, ldap_urls, log_url, monitor_url

Reader = Callable[[str], object]
Choice = TypeVar("Choice", bound=StrEnum)
Item = TypeVar("Item")

MAX_LONG = 2**63 - 1
"""The largest Java long, Artemis's type of sizes and times; a larger number is a typing error."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_BYTES = re.compile(r"([0-9]+)\s*(?:([kmg])i?)?b?", re.IGNORECASE | re.ASCII)
_SCALE = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def whole_number(text: str) -> int:
    """A plain whole number that fits in 64 bits."""
    if not _WHOLE.fullmatch(text):
        raise ValueError("must be a whole number")
    # A 64-bit number has at most 20 characters. int() of a much longer text would take too long.
    if len(text) > 20 or abs(number := int(text)) > MAX_LONG:
        raise ValueError(f"must not exceed {MAX_LONG}")
    return number


def byte_size(text: str) -> int:
    """A number of bytes in Artemis's notation. A negative number must not have a unit."""
    match = _BYTES.fullmatch(text)
    if match is None:
        if _WHOLE.fullmatch(text):
            return whole_number(text)
        raise ValueError("must be a number of bytes, for example 1048576, 100K, 10MB or 1GB")
    size = whole_number(match[1]) * _SCALE[(match[2] or "").lower()]
    if size > MAX_LONG:
        raise ValueError(f"must not exceed {MAX_LONG} bytes")
    return size


def _time(unit: str) -> Callable[[str], int]:
    """Return a reader of whole numbers. The text has no unit, as in Artemis; ``unit`` is the unit in the error."""

    def reader(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"must be a plain number of {unit}, without a unit")
        return whole_number(text)

    return reader


milliseconds = _time("milliseconds")
nanoseconds = _time("nanoseconds")  # unit of ``journal-buffer-timeout``, as in Artemis
seconds = _time("seconds")  # unit of ``handshake-timeout`` and ``slow-consumer-check-period``, as in Artemis


def comma_list(what: str, read: Callable[[str], Item]) -> Callable[[str], tuple[Item, ...]]:
    """A reader of comma-separated lists; ``read`` reads each item, ``what`` names the items in the error."""

    def reader(text: str) -> tuple[Item, ...]:
        found = [part.strip() for part in text.split(",")]
        if not all(found):
            raise ValueError(f"must be a comma-separated list of {what}")
        return tuple(map(read, found))

    return reader


def _spelled(pattern: str, rule: str) -> Callable[[str], str]:
    """A reader of texts that match a regular expression; ``rule`` describes such texts in the error."""

    def reader(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must consist of {rule}")
        return text

    return reader


def boolean(text: str) -> bool:
    """``true`` or ``false``, in upper or lower case.

    Artemis reads any other text as false, which would hide a typing error.
    """
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


Numeric = TypeVar("Numeric", int, float)


def range_text(least: float, most: float) -> str:
    """Describe a range: ``at least 1``, ``at most 2`` or ``from 1 to 2``. An infinite limit is left out."""
    if most == math.inf:
        return f"at least {least:.15g}"
    if least == -math.inf:
        return f"at most {most:.15g}"
    return f"from {least:.15g} to {most:.15g}"


def bounded(
    read: Callable[[str], Numeric],
    least: float,
    most: float = math.inf,
    unset: str | None = None,
    why: str = "",
) -> Callable[[str], Numeric]:
    """Return a reader of numbers from ``least`` to ``most``, both included.

    ``unset``: the meaning of -1 in words; None: -1 is not accepted as an extra value. ``why``: the reason of the
    limits, with which the error ends.
    """
    rule = range_text(least, most)
    if unset is not None:
        rule = f"-1 ({unset}) or {rule}" if most == math.inf else f"{rule}, or -1 ({unset})"

    def reader(text: str) -> Numeric:
        number = read(text)
        if least <= number <= most or (number == -1 and unset is not None):
            return number
        raise ValueError(f"must be {rule}" + (f"; {why}" if why else ""))

    return reader


def decimal(text: str) -> float:
    """A decimal number, NaN for an invalid text. float() would also accept "nan", "1e3" and "1_0"."""
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return number if math.isfinite(number) else math.nan


def one_of(kind: type[Choice]) -> Callable[[str], Choice]:
    """A reader of the names of an enumeration, in upper or lower case."""

    def reader(text: str) -> Choice:
        try:
            return kind(text.upper())
        except ValueError:
            raise ValueError(f"must be one of {', '.join(kind)}") from None

    return reader


def name(text: str) -> str:
    """A name or a path: not empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def regular_expression(text: str) -> str:
    """A regular expression that Python's `re` accepts."""
    try:
        re.compile(name(text))
    except re.error as fault:
        raise ValueError(f"must be a regular expression: {fault}") from None
    return text


def optional_name(text: str) -> str | None:
    """A name; the empty text undoes the value of a less specific address-setting (``<expiry-address/>``)."""
    return text or None


def resource_name(text: str) -> str:
    """The name of an address or a queue: not empty, without ``::``, the separator of address and queue."""
    if "::" in text:
        raise ValueError("must not contain '::', the separator of address and queue")
    return name(text)


def address_list(text: str) -> tuple[str, ...]:
    """Comma-separated names of addresses, each of them once."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("must be the name of an address, or several with commas between them")
    for one in found:
        resource_name(one)
    twice = [one for at, one in enumerate(found) if one in found[:at]]
    if twice:
        raise ValueError(f"must not contain '{twice[0]}' twice")
    return found


plugin_name = _spelled("[A-Za-z][A-Za-z0-9_-]*", "letters, digits, '-' and '_' and begin with a letter")


def full_policy(text: str) -> str:
    """A `FullPolicy` in upper or lower case, or the name of a broker-plugin."""
    try:
        return FullPolicy(text.upper())
    except ValueError:
        pass
    try:
        return plugin_name(text)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(FullPolicy)}, or the name of a broker-plugin") from None


def selector(text: str) -> str:
    """The filter of a queue: a selector. Raises `InvalidSelector`, a ``ValueError``."""
    compile_selector(name(text))
    return text


#: Headers of MESSAGE that the broker writes itself.
BROKER_HEADERS = frozenset(
    """ack browser content-length destination expires message-id persistent priority receipt-id redelivered subscription
    timestamp""".split()
)


def message_header(text: str) -> str | None:
    """The name of a header that the broker adds to MESSAGE. An empty name undoes a less specific address-setting."""
    if text.lower() in BROKER_HEADERS:
        raise ValueError("must not be a header that every MESSAGE has, such as destination or message-id")
    return _printable(text) or None


def _printable(text: str) -> str:
    if any(ord(character) < 32 for character in text):
        raise ValueError("must not contain control characters")
    return text


#: Headers of SEND that the broker removes: MESSAGE frames do not have them.
HEADERS_OF_SEND = frozenset(
    """_AMQ_ROUTING_TYPE AMQ_SCHEDULED_CRON AMQ_SCHEDULED_DELAY AMQ_SCHEDULED_PERIOD AMQ_SCHEDULED_REPEAT
    AMQ_SCHEDULED_TIME receipt selector stompring-imported transaction""".split()
)


def key_header(text: str) -> str | None:
    """The name of the header with the last-value key. An empty name undoes a less specific address-setting."""
    if text in HEADERS_OF_SEND or text in BROKER_HEADERS:
        raise ValueError(
            f"must be a header that senders add to their messages; the broker itself uses '{text}'"
        )
    return _printable(text) or None


def permission(text: str) -> PermissionType:
    """A permission, spelled as in Artemis."""
    try:
        return PermissionType(text)
    except ValueError:
        raise ValueError(with_suggestion("unknown permission", text, PermissionType)) from None


def character(text: str) -> str:
    """A character with a special meaning (``<wildcard-addresses>``)."""
    if len(text) != 1:
        raise ValueError("must be exactly one character")
    return text


def markers(text: str) -> str:
    """The opening and the closing mark of a literal match (``<literal-match-markers>``)."""
    if len(text) != 2:
        raise ValueError("must be exactly two characters, the opening and the closing mark, for example ()")
    return text


ZERO_ADMITS_NOTHING = "0 would accept no message; use -1 for no limit"
ZERO_RING = "a ring of 0 holds no message; use -1 for no ring"


class ValueType(NamedTuple):
    """A simple type of schema.xsd: its reader, and a description of its values for documentation and other readers."""

    read: Reader
    accepts: str  # description of the values, as in docs/settings.md
    kind: type = str  # type of the value, also in JSON: bool, int, float or str
    least: int = 0  # minimum of a number
    choices: type[StrEnum] | None = None


def number(least: int, read: Callable[[str], int], unset: str | None = None, why: str = "") -> ValueType:
    """Return a type of whole numbers. The arguments are those of `bounded`."""
    accepts = f"≥ {least}" if unset is None else f"-1 or ≥ {least}"
    return ValueType(bounded(read, least, unset=unset, why=why), accepts, int, least)


def _choice(kind: type[StrEnum]) -> ValueType:
    return ValueType(one_of(kind), ", ".join(kind), choices=kind)


VALUE_TYPES: Mapping[str, ValueType] = {
    "text": ValueType(str, "any text"),
    "secretText": ValueType(str, "any text"),
    "roleList": ValueType(comma_list("roles, for example admins, clerks", str), "a comma list"),
    "permission": ValueType(permission, "a permission"),
    "regularExpression": ValueType(regular_expression, "a regular expression"),
    "name": ValueType(name, "a text"),
    "optionalName": ValueType(optional_name, "a name, or empty"),
    "messageHeader": ValueType(message_header, "the name of a header, or empty"),
    "keyHeader": ValueType(key_header, "the name of a header, or empty"),
    "groupBuckets": number(0, whole_number, "an owner for each group"),
    "resourceName": ValueType(resource_name, "a name"),
    "addressList": ValueType(address_list, "names, with commas"),
    "url": ValueType(name, "a text"),
    "filter": ValueType(selector, "a selector"),
    "boolean": ValueType(boolean, "true, false", bool),
    "byteLimit": number(1, byte_size, "no limit", ZERO_ADMITS_NOTHING),
    "bytesOrNoLimit": number(0, byte_size, "no limit"),
    "fileSize": number(1024, byte_size),
    "cacheSize": number(1024 * 1024, byte_size),
    "messageLimit": number(1, whole_number, "no limit", ZERO_ADMITS_NOTHING),
    "positiveOrNoLimit": number(1, whole_number, "no limit"),
    "ringSize": number(1, whole_number, "no ring", ZERO_RING),
    "count": number(0, whole_number),
    "countOrNoLimit": number(0, whole_number, "no limit"),
    "positiveCount": number(1, whole_number),
    "milliseconds": number(0, milliseconds),
    "millisecondsOrUnset": number(0, milliseconds, "not set"),
    "positiveMillisecondsOrUnset": number(1, milliseconds, "not set"),
    "positiveMilliseconds": number(1, milliseconds),
    "positiveSeconds": number(1, seconds),
    "nanoseconds": number(0, nanoseconds),
    "percentage": ValueType(bounded(whole_number, 0, 100), "0 to 100", int),
    "percentageLimit": ValueType(bounded(whole_number, 0, 100, "no limit"), "-1 or 0 to 100", int),
    "multiplier": ValueType(bounded(decimal, 0), "≥ 0", float),
    "retryMultiplier": ValueType(bounded(decimal, 1), "≥ 1", float),
    "positiveBytes": number(1, byte_size),
    "share": ValueType(bounded(decimal, 0, 1), "0 to 1", float),
    "fullPolicy": ValueType(full_policy, "PAGE, BLOCK, DROP, FAIL, a plugin"),
    "pluginName": ValueType(plugin_name, "a plugin"),
    "pageFullPolicy": _choice(PageFullPolicy),
    "diskFullPolicy": _choice(DiskFullPolicy),
    "retain": _choice(Retain),
    "ringPolicy": _choice(RingPolicy),
    "deletionPolicy": _choice(DeletionPolicy),
    "timeUnit": _choice(TimeUnit),
    "thresholdUnit": _choice(ThresholdUnit),
    "slowConsumerPolicy": _choice(SlowConsumerPolicy),
    "routingType": _choice(RoutingType),
    "componentRoutingType": _choice(ComponentRoutingType),
    "loginFlag": _choice(LoginFlag),
    "ldapAuthentication": _choice(LdapAuthentication),
    "ldapUrls": ValueType(ldap_urls, "URLs, with blanks"),
    "keySource": ValueType(key_source, "a URL or a path"),
    "logUrl": ValueType(log_url, "a URL"),
    "monitorUrl": ValueType(monitor_url, "URLs, with commas"),
    "streamName": ValueType(
        _spelled("[A-Za-z0-9_-]{1,48}", "1 to 48 letters, digits, '-' and '_'"),
        "letters, digits, `-`, `_`",
    ),
    "memberName": ValueType(
        _spelled("[A-Za-z0-9_.@:-]{1,200}", "1 to 200 letters, digits and '-', '_', '.', '@', ':'"),
        "letters, digits, `-`, `_`, `.`, `@`, `:`",
    ),
    "takeoverTimeout": number(
        MIN_TAKEOVER_TIMEOUT,
        milliseconds,
        why="with less, one late beat of the active broker would interrupt the deliveries",
    ),
    "character": ValueType(character, "one character"),
    "markers": ValueType(markers, "two characters"),
}
"""By the names of the simple types in schema.xsd."""
