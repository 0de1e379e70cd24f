"""Access control: permissions of roles on addresses and queues, and limits on logins.

The ``<security-setting>`` entries of broker.xml grant permissions. Entries are not merged: only the most specific entry
that matches an address decides, so it can revoke permissions that a wider entry grants. An entry for ``address::queue``
applies to that queue and precedes the entries for its address. If no entry matches, every operation is refused. These
rules are those of Artemis. stompring adds three:

A subscription to a wildcard address reads many addresses. It needs the permission in each entry that decides about one
of them, and an entry must cover all of them.

Names of queues are unique in the broker, and an address creates its anycast queue under its own name. Creating a queue
with another name than its address therefore also needs the permission on the address of that name: else a user with
permissions only below ``mal.#`` could take the name of a future queue of the address ``pay``. An entry for
``address::queue`` is sufficient.

An internal address stores messages of another address: the entries for that address decide. (For temporary queues and
topics see `stompring.session.destination`.)

Limits on logins: delays for hosts with failed logins, a fair queue of verifications, and a cache of verified logins.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from stompring.errors import Line, Refused
from stompring.settings.broker_xml import QUEUE_SEPARATOR
from stompring.settings.match import (
    DEFAULT_SYNTAX,
    Pattern,
    covers,
    is_internal,
    literal_name,
    overlaps,
    owner_of,
)
from stompring.settings.model import (
    BrokerConfiguration,
    PermissionType,
    SecuritySettingEntry,
    WildcardSyntax,
    frozen,
)
from stompring.settings.network import source_network

from .accounts import NO_ROLES, Roles

log = logging.getLogger(__name__)

CACHE_SIZE = 16_384
"""Addresses and queues whose deciding entries are cached."""

CREATE_QUEUE = frozenset(
    (PermissionType.CREATE_DURABLE_QUEUE, PermissionType.CREATE_NON_DURABLE_QUEUE),
)


@frozen
class Decision:
    """The result of a permission check, with the security-settings that decide: for a wildcard address maybe several,
    else one or none.
    """

    allowed: bool
    #: the address whose security-settings decide; for a new queue maybe the address with the queue's name
    address: str
    entries: tuple[SecuritySettingEntry, ...]

    def refusing(self, roles: frozenset[str], permission: PermissionType) -> SecuritySettingEntry | None:
        """Return the first security-setting that grants the permission to none of these roles, None without one."""
        granted = (entry for entry in self.entries if roles.isdisjoint(entry.roles.get(permission, NO_ROLES)))
        return next(granted, None)


class Permissions:
    """The ``<security-setting>`` entries of one configuration. Immutable: a reload creates another object."""

    def __init__(
        self,
        entries: Iterable[SecuritySettingEntry] = (),
        wildcard: WildcardSyntax = DEFAULT_SYNTAX,
        literal_match_markers: str | None = None,
    ) -> None:
        self._syntax = wildcard
        self._named: dict[str, SecuritySettingEntry] = {}
        self._queues: dict[str, SecuritySettingEntry] = {}
        self._literal: dict[str, SecuritySettingEntry] = {}
        patterns: list[tuple[Pattern, SecuritySettingEntry]] = []
        for entry in entries:
            literal = literal_name(entry.match, literal_match_markers)
            pattern = Pattern(entry.match, wildcard)
            if literal is not None:
                self._literal[literal] = entry
            elif QUEUE_SEPARATOR in entry.match:
                self._queues[entry.match] = entry
            elif pattern.is_wildcard:
                patterns.append((pattern, entry))
            else:
                self._named[entry.match] = entry
        self._patterns = sorted(patterns, key=lambda pair: pair[0].specificity)
        self._deciding = lru_cache(CACHE_SIZE)(self._look_up)

    @classmethod
    def of(cls, configuration: BrokerConfiguration) -> Permissions:
        """Create the permissions of a broker.xml."""
        return cls(
            configuration.security_settings, configuration.wildcard, configuration.literal_match_markers
        )

    @property
    def grants_anything(self) -> bool:
        """Whether the configuration has any security-setting."""
        return bool(self._named or self._queues or self._literal or self._patterns)

    def allows(
        self, roles: frozenset[str], permission: PermissionType, address: str, queue: str | None = None
    ) -> bool:
        """Return whether a user with these roles has a permission on an address, or on its queue ``queue``."""
        return self.decide(roles, permission, address, queue).allowed

    def decide(
        self, roles: frozenset[str], permission: PermissionType, address: str, queue: str | None = None
    ) -> Decision:
        """Return whether a user with these roles has a permission, and the security-settings that decide."""
        if is_internal(address):
            address, queue = owner_of(address), None
            if is_internal(address):
                return Decision(False, address, ())
        if queue is not None and permission in CREATE_QUEUE and queue != address:
            if f"{address}{QUEUE_SEPARATOR}{queue}" not in self._queues:
                of_name = self.decide(roles, permission, queue)
                if not of_name.allowed:
                    return of_name
        entries = self._deciding(address, queue)
        allowed = bool(entries) and all(
            not roles.isdisjoint(entry.roles.get(permission, NO_ROLES)) for entry in entries
        )
        return Decision(allowed, address, entries)

    def _look_up(self, address: str, queue: str | None) -> tuple[SecuritySettingEntry, ...]:
        """Return the security-settings that decide about an address or queue. Each of them must grant the permission;
        if there is none, the operation is refused.
        """
        if queue is not None:
            of_queue = self._queues.get(f"{address}{QUEUE_SEPARATOR}{queue}")
            if of_queue is not None:
                return (of_queue,)
        named = self._literal.get(address)
        if self._syntax.routing_enabled and Pattern(address, self._syntax).is_wildcard:
            return (named,) if named is not None else self._of_all(address)
        named = self._named.get(address) or named
        if named is not None:
            return (named,)
        words = address.split(self._syntax.delimiter)
        return next(((entry,) for pattern, entry in self._patterns if pattern.matches_words(words)), ())

    def _of_all(self, wildcard: str) -> tuple[SecuritySettingEntry, ...]:
        """Return the security-settings that decide about the addresses that match a wildcard address. Empty if none of
        them covers all of these addresses.
        """
        addresses = Pattern(wildcard, self._syntax)
        names = (*self._named.items(), *self._literal.items())
        deciding = [entry for name, entry in names if addresses.matches(name)]
        for pattern, entry in self._patterns:
            if overlaps(pattern.text, wildcard, self._syntax):
                deciding.append(entry)
                if covers(pattern.text, wildcard, self._syntax):
                    return tuple(deciding)  # this one covers all addresses that the earlier ones do not cover
        return ()


#: Advice that follows a warning of `open_management`.
CLOSE_MANAGEMENT = (
    'add an entry for administrators, as <security-setting match="activemq.#"> of the example security.xml; it decides '
    "alone, so that it must grant manage and view too"
)


def open_management(configuration: BrokerConfiguration) -> Iterator[str]:
    """Return a warning with file and line for each pattern that opens a management address to ordinary roles.

    Ordinary roles lack `manage` on the management-address. A security-setting for the exact address is deliberate, and
    causes no warning.
    """
    rules = Permissions.of(configuration)
    management, notifications = (
        configuration.management_address,
        configuration.management_notification_address,
    )
    deciding = rules.decide(NO_ROLES, PermissionType.MANAGE, management).entries
    managers = NO_ROLES.union(*(entry.roles.get(PermissionType.MANAGE, NO_ROLES) for entry in deciding))
    for address, permissions, reason in (
        (notifications, _READ_AND_SEND, "its messages show users, hosts and names of temporary queues"),
        (management, _READ_AND_CREATE, "it is for management requests alone"),
    ):
        for entry in rules.decide(NO_ROLES, PermissionType.CONSUME, address).entries:
            granted = [each for each in permissions if entry.roles.get(each, NO_ROLES) - managers]
            roles = sorted(frozenset().union(*(entry.roles[each] for each in granted)) - managers)
            if granted and Pattern(entry.match, configuration.wildcard).is_wildcard:
                file = entry.line.file if isinstance(entry.line, Line) else configuration.file
                yield (
                    f'{file}:{int(entry.line or 0)}: <security-setting match="{entry.match}"> grants '
                    f"{', '.join(granted)} on {address} to {', '.join(roles)}: {reason}"
                )


_READ_AND_SEND = (PermissionType.SEND, PermissionType.CONSUME, PermissionType.BROWSE)
_READ_AND_CREATE = (
    PermissionType.CONSUME,
    PermissionType.BROWSE,
    PermissionType.CREATE_DURABLE_QUEUE,
    PermissionType.CREATE_NON_DURABLE_QUEUE,
)


class AccessControl:
    """The current permissions of roles, and roles of users. ``rejections`` counts rejections since the start."""

    _reloads = 0

    def __init__(self, permissions: Permissions, roles: Roles) -> None:
        self.rejections: Counter[PermissionType] = Counter()
        self.permissions = permissions  # permissions of the current configuration
        self._roles = roles

    @property
    def generation(self) -> tuple[int, int]:
        """A value that changes whenever a decision may have changed: decisions can be cached until then."""
        return self._reloads, self._roles.generation

    def roles_of(self, user: str) -> frozenset[str]:
        """Return the roles of a user."""
        return self._roles.of(user)

    def use(self, permissions: Permissions) -> None:
        """Replace the permissions after a reload."""
        self.permissions = permissions
        self._reloads += 1

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Return whether ``user`` has a permission on an address, or on its queue ``queue``."""
        return self.permissions.allows(self._roles.of(user), permission, address, queue)


FREE_FAILURES = 10
"""Failed logins of a host before further ones are delayed."""

FIRST_DELAY, LONGEST_DELAY = 0.25, 5.0
"""Seconds of the first delay, which each failure doubles, and of the longest: below any handshake-timeout."""

FORGET_AFTER = 300.0
"""Seconds without a failure after which the failures of a host are forgotten."""

MAX_HOSTS = 10_000
"""Maximum number of hosts with recorded failures; beyond it the host with the oldest last failure is removed."""

MAX_DELAYED = 16
"""Maximum number of delayed logins of one host at a time. Further logins are refused at once."""


class LoginThrottle:
    """Delays logins of hosts with failed logins. ``now`` returns seconds. IPv6 hosts count by their /64 network."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: OrderedDict[str, tuple[int, float]] = (
            OrderedDict()
        )  # by host: number of failures, time of the last one (seconds)
        self._delayed: Counter[str] = Counter()

    def failed(self, host: str) -> bool:
        """Record a failed login. Returns True for the failure after which logins of the host are delayed."""
        key = source_network(host)
        failures = self._of(key) + 1
        self._failures[key] = (failures, self._now())
        self._failures.move_to_end(key)
        if len(self._failures) > MAX_HOSTS:
            self._failures.popitem(last=False)
        return failures == FREE_FAILURES

    def delay(self, host: str) -> float:
        """Return the seconds by which the next login of a host is delayed."""
        beyond = self._of(source_network(host)) - FREE_FAILURES
        return 0.0 if beyond < 0 else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(beyond, 16))

    def begin_delay(self, host: str) -> bool:
        """Count a delayed login. Returns False if the host has too many."""
        key = source_network(host)
        if self._delayed[key] >= MAX_DELAYED:
            return False
        self._delayed[key] += 1
        return True

    def end_delay(self, host: str) -> None:
        """Stop counting a delayed login."""
        key = source_network(host)
        self._delayed[key] -= 1
        if not self._delayed[key]:
            del self._delayed[key]

    def _of(self, key: str) -> int:
        found = self._failures.get(key)
        if found is None:
            return 0
        failures, last = found
        if self._now() - last >= FORGET_AFTER:
            del self._failures[key]
            return 0
        return failures


Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A round-robin queue over hosts, of at most ``maximum`` items. Beyond the maximum the host with the most items
    loses its last one: a host that sends many items delays only itself.
    """

    _length = 0

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        # items by host; the next host to serve is first
        self._by_host: OrderedDict[str, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return self._length

    def put(self, host: str, item: Item) -> Item | None:
        """Append an item. Returns the item that is dropped because the queue is full (maybe this one), or None."""
        self._by_host.setdefault(host, deque()).append(item)
        self._length += 1
        if self._length <= self._maximum:
            return None
        # among hosts with equally many items ``host`` loses one, so that no other host does
        longest = max(self._by_host, key=lambda one: (len(self._by_host[one]), one == host))
        dropped = self._by_host[longest].pop()
        self._removed(longest)
        return dropped

    def get(self) -> Item:
        """Remove and return the next item, one of each host in turn. Raises `KeyError` if the queue is empty."""
        host = next(iter(self._by_host), None)
        if host is None:
            raise KeyError("the queue is empty")
        item = self._by_host[host].popleft()
        self._by_host.move_to_end(host)
        self._removed(host)
        return item

    def _removed(self, host: str) -> None:
        self._length -= 1
        if not self._by_host[host]:
            del self._by_host[host]


_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
MAX_TOKEN = 16 * 1024


def is_token(passcode: str) -> bool:
    """Return whether a passcode has the form of a signed JWT."""
    return len(passcode) <= MAX_TOKEN and _TOKEN.fullmatch(passcode) is not None


class LoginSource:
    """A server that checks logins. ``fault`` is the reason why the last check failed, None if it did not."""

    fault: str | None = None
    cache_time = 10_000  # milliseconds for which a login is not checked again
    takes_tokens = False
    authenticates = True  # False: the source only adds roles to logins that other modules check

    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, name: str, password: str) -> Identity | None:
        """Return the user of a login, None for a wrong one. The call blocks: use a thread.

        Raises `Refused`, with status 500 if the source cannot check the login.
        """
        raise AssertionError("a derived class has it")

    def report(self, reason: str | None) -> None:
        """Set the fault, or None if the server has answered. Each change is logged."""
        text = None if reason is None else f"{self._name}: {reason}"
        if text is not None and text != self.fault:
            log.warning("logins cannot be checked: %s", text)
        elif text is None and self.fault is not None:
            log.info("logins can be checked again: %s", self._name)
        self.fault = text

    def refused(self) -> Refused:
        """Return the refusal of a login because of the fault."""
        return Refused(f"Security Error occurred: the login cannot be checked: {self.fault}", status=502)


class Identity(NamedTuple):
    """The user of a login. ``roles`` is None for the roles of the roles file."""

    user: str
    roles: frozenset[str] | None = None
    expires: float | None = None  # epoch seconds, None if the login does not expire


MAX_VERIFIED_LOGINS = 1000
"""Size of the cache of verified logins (Artemis, ``authentication-cache-size``)."""


class VerifiedLogins:
    """A cache of logins that were verified less than ``seconds`` ago or, if ``prolong``, used.

    It stores keyed digests. The key is random and exists only in this process, so that passwords cannot be recovered
    from the digests. ``now`` returns seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float], prolong: bool = True) -> None:
        self._seconds = seconds
        self._now = now
        self._prolong = prolong
        self._key = secrets.token_bytes(32)
        self._expiry: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    def digest(self, generation: int, name: str, password: str) -> bytes:
        """Return the keyed digest of a login. It also depends on ``generation``, which changes with the users file."""
        parts = [str(generation).encode(), name.encode("utf-8", "surrogatepass")]
        message = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        message += password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256")

    def get(self, digest: bytes) -> Identity | None:
        """Return the user of a login that counts as verified, else None. The call counts as a use."""
        end, identity = self._expiry.get(digest, (0.0, None))
        if identity is None or self._now() >= end:
            return None
        if self._prolong:
            self.add(digest, identity)
        return identity

    def add(self, digest: bytes, identity: Identity) -> None:
        """Add a login that was just verified or used."""
        if self._seconds <= 0:
            return
        self._expiry[digest] = (self._now() + self._seconds, identity)
        self._expiry.move_to_end(digest)
        while len(self._expiry) > MAX_VERIFIED_LOGINS:
            self._expiry.popitem(last=False)

    def clear(self) -> None:
        """Remove all logins."""
        self._expiry.clear()
