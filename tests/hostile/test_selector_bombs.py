"""Selectors that are made to be dear: to read, to keep, or to test on a message."""

import pytest

from .conftest import HOSTILE

pytestmark = HOSTILE

REFUSED = {
    "parentheses": "(" * 4000 + "a=1" + ")" * 4000,
    "NOT": "NOT " * 2000 + "a",
    "signs": "- " * 4000 + "1=a",
    "a sum": "1" + "+1" * 4000 + "=a",
    "equalities": "a" + "=a" * 4000,
    "comparisons": " OR ".join(["a=1"] * 1100),
    "comments": "/*" * 4000,
    "a string without an end": "a='" + "''" * 4000,
    "digits": "9" * 8000 + "=a",
    "too long": "a IN ('" + "x" * 9000 + "')",
    "XPATHs": " OR ".join(["XPATH '//a'"] * 600),
    "an XPATH in brackets": "XPATH '" + "a[" * 60 + "1" + "]" * 60 + "'",
    "an XPATH that reads a file": "XPATH 'document(\"file:///etc/passwd\")'",
    "an XPATH in a row": "XPATH '" + "1-" * 3900 + "1'",
}


def test_bombs_are_refused(connect, name, other_clients):
    """All of them, one after the other, while others go on."""
    refusals = {}

    def throw():
        for bomb, selector in REFUSED.items():
            client = connect()
            client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "selector": selector})
            refusals[bomb] = client.error("selector")["message"]

    other_clients.beside(throw, kept=0.05)
    assert all(len(text) < 500 for text in refusals.values())


#: Selectors that may be, and messages on which they cost what they can.
DEAR = {
    "LIKE with many wildcards": ("a LIKE '" + "%a" * 2000 + "%b'", {"a": "a" * 60_000}, b""),
    "LIKE with many places": ("a LIKE '%" + "_" * 4000 + "b%'", {"a": "a" * 60_000}, b""),
    "numbers": (" OR ".join(f"a*{number}>1e999" for number in range(300)), {"a": "9" * 90}, b""),
    "joined": (" OR ".join(["a+a+a+a+a=b"] * 100), {"a": "x" * 30_000}, b""),
    "each node with each": ("XPATH '//* < //*'", {}, b"<r>" + b"<a/>" * 20_000 + b"</r>"),
    "many XPATHs": (" OR ".join(["XPATH '//*[//zzz]'"] * 90), {}, b"<r>" + b"<a/>" * 20_000 + b"</r>"),
    "entities": (
        "XPATH '//a'",
        {},
        b"<!DOCTYPE r [<!ENTITY a 'aaaaaaaaaa'>"
        + b"".join(b"<!ENTITY %c '%s'>" % (98 + at, b"&%c;" % (97 + at) * 10) for at in range(9))
        + b"]><r>&j;</r>",
    ),
}


@pytest.mark.parametrize("bomb", DEAR)
def test_what_may_be_is_bounded(bomb, connect, name, other_clients):
    """One message, one selector: half a second or so, and the others go on."""
    selector, headers, body = DEAR[bomb]
    client = connect()
    client.subscribe(f"/queue/{name}", selector=selector)

    def send():
        client.put(f"/queue/{name}", body, **headers)

    other_clients.beside(send)


def test_selectors_that_are_never_alike(connect, name, other_clients):
    """What is kept of selectors has an end. The pair waits for each that is long: a tenth of a second."""
    client = connect()
    number = 0

    def subscribe():
        nonlocal number
        for _ in range(300):
            number += 1
            client.send(
                "SUBSCRIBE", {"destination": f"/queue/{name}", "id": number, "selector": f"a{number} = 1"}
            )
            client.send("UNSUBSCRIBE", {"id": number})
        for _ in range(3):
            number += 1
            terms = " OR ".join(f"b{number}x{term}=1" for term in range(400))
            client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": number, "selector": terms})
            client.ask("UNSUBSCRIBE", {"id": number})

    other_clients.beside(subscribe, memory=48, kept=0.02)
