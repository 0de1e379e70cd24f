"""Contradictions between elements: names given twice, listeners beyond the machine, settings against each other."""

import pytest

from .documents import QUIET, acceptor, faults, parse

SECURE = "<security-enabled>true</security-enabled>"


@pytest.mark.parametrize(
    "url", ["tcp://0.0.0.0:61613", "tcp://[::]:61613", "tcp://broker:61613", "http://10.0.0.1:8161"]
)
def test_a_listener_beyond_the_machine_needs_security(url):
    (found,) = faults(QUIET, acceptor(url))
    assert found.startswith("4: acceptor 'x' listens on ")
    assert "while <security-enabled> is false" in found
    assert (
        "Set <security-enabled> to true and add users with 'stompring user add', or listen on 127.0.0.1"
        in found
    )
    configuration = parse(SECURE, acceptor(url))
    assert len(configuration.stomp_acceptors + configuration.http_acceptors) == 1
    parse(acceptor(url))  # security is on by default, as in Artemis


@pytest.mark.parametrize(
    "url", ["tcp://127.0.0.1:1", "tcp://127.3.2.1:1", "tcp://[::1]:1", "http://localhost:1"]
)
def test_a_listener_on_the_machine_does_not(url):
    parse(QUIET, acceptor(url))


def test_acceptors_given_twice():
    first = '<acceptors><acceptor name="x">tcp://127.0.0.1:1</acceptor>'
    second = '<acceptor name="{}">{}</acceptor></acceptors>'
    assert faults(first, second.format("x", "tcp://127.0.0.1:2")) == [
        "4: acceptor 'x' is already defined at line 3"
    ]
    assert faults(first, second.format("y", "http://127.0.0.1:1")) == [
        "4: a listener on 127.0.0.1:1 is already defined at line 3"
    ]
    parse(first, second.format("y", "tcp://[::1]:1"))


def test_every_fault_of_an_acceptor_names_it():
    found = faults(acceptor("tcp://127.0.0.1:1?maxHeaders=0&connectionTtl=0", "north"))
    assert [fault.startswith("3: acceptor 'north': parameter ") for fault in found] == [True, True]


def test_addresses_queues_and_settings_given_twice():
    assert faults(
        "<address-settings>",
        '<address-setting match="a.#"/>',
        '<address-setting match="a.#"/>',
        "</address-settings>",
        "<addresses>",
        '<address name="a"><anycast><queue name="q"/></anycast></address>',
        '<address name="a"/>',
        '<address name="b"><multicast><queue name="q"/></multicast></address>',
        '<address name="c"><anycast><queue name="r"/></anycast>',
        '<multicast><queue name="r"/></multicast></address>',
        "</addresses>",
    ) == [
        "5: address-setting 'a.#' is already defined at line 4",
        "9: address 'a' is already defined at line 8",
        "10: queue 'q' is already defined at line 8",
        "12: queue 'r' is already defined at line 11",
    ]


def test_an_address_and_a_queue_may_share_a_name():
    parse('<addresses><address name="a"><anycast><queue name="a"/></anycast></address></addresses>')


@pytest.mark.parametrize("match", ["a.b*", "#a", "news.#x.y", "*b"])
def test_partial_wildcards_are_rejected(match):
    (found,) = faults(f'<address-settings><address-setting match="{match}"/></address-settings>')
    assert found.startswith(f"3: match '{match}': '*' and '#' are wildcards only as whole words")
    literally = f'<address-settings><address-setting match="({match})"/></address-settings>'
    parse("<literal-match-markers>()</literal-match-markers>", literally)


def test_any_words_may_stand_in_the_middle():
    configuration = parse('<address-settings><address-setting match="a.#.z"/></address-settings>')
    assert configuration.address_settings[0].match == "a.#.z"


def test_wildcards_must_differ():
    (found,) = faults("<wildcard-addresses><any-words>*</any-words></wildcard-addresses>")
    assert found == "3: delimiter, any-words and single-word must be three different characters"


def test_expiry_delays_must_not_cross():
    def delays(least, most):
        inside = f"<min-expiry-delay>{least}</min-expiry-delay><max-expiry-delay>{most}</max-expiry-delay>"
        return f'<address-settings><address-setting match="#">{inside}</address-setting></address-settings>'

    assert faults(delays(5, 4)) == ["3: min-expiry-delay (5) is above max-expiry-delay (4)"]
    for least, most in [(5, 5), (5, -1), (-1, 4), (0, 0)]:
        parse(delays(least, most))


def test_a_user_given_twice():
    queue = '<queue name="q" user="a"><user>b</user></queue>'
    (found,) = faults(f'<addresses><address name="a"><anycast>{queue}</anycast></address></addresses>')
    assert found == "3: <queue> has both an attribute user and an element <user>; remove one"
