"""When messages expire, as a table."""

import pytest

from ..session.session_fixture import Server


@pytest.mark.parametrize(
    "settings, asked, expires",
    [
        ({}, None, None),
        ({}, 5, 5),
        ({"no_expiry": True, "expiry_delay": 10}, 5, None),
        ({"expiry_delay": 10}, None, 10),
        ({"expiry_delay": 10}, 5, 5),
        ({"expiry_delay": 10, "min_expiry_delay": 20, "max_expiry_delay": 30}, None, 10),
        ({"min_expiry_delay": 20}, None, 20),
        ({"max_expiry_delay": 30}, None, 30),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, None, 30),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, 10, 20),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, 25, 25),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, 99, 30),
        ({"min_expiry_delay": 20}, -500, 20),
    ],
)
def test_lifetimes(settings, asked, expires):
    server = Server({"q": settings})
    now = server.world.now
    server.world.queue("q")
    server.client().send(**({} if asked is None else {"expires": now + asked}))
    (ref,) = server.queue().dispatcher.in_order()
    assert ref.message.expires == (0 if expires is None else now + expires)


def test_a_delay_of_0_expires_at_once():
    server = Server({"q": {"expiry_delay": 0}})
    server.world.queue("q")
    server.client().send()
    server.pass_time()
    assert server.queue().messages_expired == 1
