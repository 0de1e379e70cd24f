"""What destinations name."""

import pytest

from stompring.errors import Refused
from stompring.session.destination import Destination, Destinations, remote_form
from stompring.settings.model import RoutingType, StompAcceptor

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST
PREFIXES = Destinations(
    StompAcceptor(
        "a",
        "h",
        1,
        anycast_prefix=("/queue/", "queue/", "jms.queue."),
        multicast_prefix=("/topic/", "/queue/news/"),
    )
)


@pytest.mark.parametrize(
    "text, asked, destination",
    [
        ("a", None, Destination("a")),
        ("/queue/a", None, Destination("a", None, ANYCAST)),
        ("queue/a", None, Destination("a", None, ANYCAST)),
        ("jms.queue.a.b", None, Destination("a.b", None, ANYCAST)),
        ("/topic/a/b", None, Destination("a/b", None, MULTICAST)),
        ("/queue/news/a", None, Destination("a", None, MULTICAST)),
        ("/queue/a", "MULTICAST", Destination("a", None, MULTICAST)),
        ("/other/a", None, Destination("/other/a")),
        ("a::q", None, Destination("a", "q")),
        ("/topic/a::q", None, Destination("a", "q", MULTICAST)),
        ("::q", "ANYCAST", Destination("", "q", ANYCAST)),
        ("a.#", None, Destination("a.#")),
        ("/temp-queue/x", None, Destination("temp-queue.7.x", "temp-queue.7.x", ANYCAST, True)),
        ("/remote-temp-queue/3.x", None, Destination("temp-queue.3.x", "temp-queue.3.x", ANYCAST, True)),
        ("/temp-topic/x", None, Destination("temp-topic.7.x", None, MULTICAST, True)),
        ("/remote-temp-topic/3.x", None, Destination("temp-topic.3.x", None, MULTICAST, True)),
    ],
)
def test_table(text, asked, destination):
    assert PREFIXES.parse(text, asked, "7") == destination


@pytest.mark.parametrize(
    "text, asked",
    [
        ("", None),
        ("/queue/", None),
        ("a::", None),
        ("::", None),
        ("a::b::c", None),
        ("a", "anycast"),
        ("/temp-queue/", None),
        ("/temp-topic/", None),
        ("/remote-temp-topic/", None),
    ],
)
def test_what_names_nothing(text, asked):
    with pytest.raises(Refused):
        PREFIXES.parse(text, asked, "7")


@pytest.mark.parametrize("text", ["/temp-queue/x", "/temp-topic/x"])
def test_the_form_by_which_others_reach_a_temporary_destination(text):
    there = PREFIXES.parse(text, None, "7")
    assert PREFIXES.parse(remote_form(text, "7"), None, "9") == there
    assert remote_form("/queue/x", "7") == "/queue/x"
