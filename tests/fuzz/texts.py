"""Small languages: destinations, names, acceptors' URLs, wildcards, users files, cron expressions, numbers with units.

The first byte of an input chooses the language, the rest is its text in UTF-8.
"""

import re

from stompring.broker.clock import Recurrence
from stompring.broker.directory import check_name
from stompring.errors import ConfigurationError, Refused
from stompring.security.accounts import parse_users
from stompring.session.destination import Destinations, remote_form
from stompring.settings.match import Pattern
from stompring.settings.model import StompAcceptor
from stompring.settings.urls import PARAMETER_TYPES, parse_acceptor

from .oracle import expect

LONGEST = 1024
MODULES = [
    "stompring.settings",
    "stompring.session.destination",
    "stompring.security",
    "cronsim",
    "stompring.broker.clock",
    "stompring.broker.directory",
]
TOKENS = [
    b"/queue/",
    b"/topic/",
    b"/temp-queue/",
    b"/remote-temp-queue/",
    b"::",
    b"tcp://",
    b"http://",
    b"[::1]",
    b"anycastPrefix=",
    b"maxHeaders=",
    b"handshake-timeout=",
    b";",
    b"%2f",
    b"\0",
    b"#",
    b"*",
    b".",
    b"$argon2id$v=19$m=65536,t=3,p=4$",
    b"* * * * *",
    b"*/5",
    b"MON#2",
    b"L",
    b"LW",
    b"1-7",
    b"10MiB",
    b"-1",
]

#: Any time that a schedule may have: the year 9999 and what lies before.
TIMES = (0, 1_700_000_000_000, 253_402_300_799_000)


def _destination(text):
    destination = Destinations(StompAcceptor("a", "", 0, ("/queue/", "q/"), ("/topic/",))).parse(
        text, None, "s"
    )
    expect(destination.address in text or destination.temporary, f"{text!r} names {destination}")
    remote_form(text, "s")


def _name(text):
    check_name("a queue", text)
    expect("\n" not in text and "\0" not in text and len(text.encode()) <= 2048, f"{text!r} is a name")


def _acceptor(text):
    acceptor = parse_acceptor("a", text)
    expect(0 <= acceptor.port <= 65535, f"{text!r} is port {acceptor.port}")


def _pattern(text):
    written, _, address = text.partition("\n")
    pattern = Pattern(written)
    expect(
        pattern.matches(address) == _glob(written.split("."), address.split(".")), f"{written!r}: {address!r}"
    )


def _glob(words, address):
    """By the book: which lengths of the address the words so far can stand for."""
    reached = {0}
    for word in words:
        if word == "#":
            reached = set(range(min(reached), len(address) + 1)) if reached else reached
        else:
            fits = [word == "*" or word == each for each in address]
            reached = {at + 1 for at in reached if at < len(address) and fits[at]}
    return len(address) in reached


def _users(text):
    for name, hashed in parse_users(text.split("\n"), "users").items():
        expect(name == name.strip() and "=" not in name and hashed.startswith("$argon2"), f"user {name!r}")


def _cron(text):
    recurrence = Recurrence(cron=text)
    for now in TIMES:
        due = recurrence.next_cron(now)
        expect(due is None or due > now, f"{text!r} is due at {due}, which is not after {now}")


def _number(text):
    for kind in ("bytesOrNoLimit", "milliseconds", "count", "boolean", "positiveSeconds"):
        try:
            PARAMETER_TYPES[kind].read(text)
        except ValueError as refusal:
            expect(0 < len(str(refusal)) < 1000, f"{text!r}: {refusal}")
    PARAMETER_TYPES["retryMultiplier"].read(text)


LANGUAGES = (
    (_destination, Refused),
    (_name, Refused),
    (_acceptor, ValueError),
    (_pattern, ValueError),
    (_users, ConfigurationError),
    (_cron, Refused),
    (_number, ValueError),
)


def check(data):
    """See the module."""
    if not data:
        return
    language, refusal = LANGUAGES[data[0] % len(LANGUAGES)]
    text = data[1:].decode("utf-8", "ignore")
    try:
        language(text)
    except refusal as refused:
        expect(type(refused) is refusal, f"{text!r}: {type(refused).__name__} {refused}")
        expect(0 < len(str(refused)) <= 500 + 20 * len(text), f"{text!r}: {refused}")
        expect(re.search("Traceback|object at 0x", str(refused)) is None, str(refused))
