"""The attributes and operations of management by messages: what is known of them, and what the documentation says."""

import re

import pytest

from stompring.admin.management import (
    ALIASES,
    OPERATIONS,
    attribute_names,
    find_attribute,
    find_operation,
    find_resource,
    read_parameters,
)
from stompring.errors import Refused

from ..docs.pages import text_of

SECTION = text_of("docs/protocol.md").partition("\n## Management by messages\n")[2].partition("\n## ")[0]


def documented(after, kind):
    """The names in the row of a kind of resource, in the table after a text."""
    rows = SECTION.partition(after)[2]
    row = re.search(rf"^\| `{kind}` \| (.*) \|$", rows, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row[1]))


@pytest.mark.parametrize("kind", ["broker", "address", "queue", "bridge"])
def test_every_operation_is_documented(kind):
    assert documented("**Operations**", kind) == set(OPERATIONS[kind])


@pytest.mark.parametrize("kind", ["broker", "address", "queue", "acceptor"])
def test_every_attribute_beyond_the_fields_is_documented(kind):
    assert documented("**Attributes**", kind) == set(ALIASES[kind])


@pytest.mark.parametrize("kind", ["broker", "address", "queue"])
def test_no_two_signatures_take_the_same_values(kind):
    for name, signatures in OPERATIONS[kind].items():
        given = [each.parameters for each in signatures]
        assert len(given) == len(set(given)), name


def test_every_attribute_is_found_with_a_small_first_letter():
    for kind in ("broker", "address", "queue", "acceptor"):
        for name in attribute_names(kind):
            assert find_attribute(kind, name[0].lower() + name[1:]) == name


@pytest.mark.parametrize("text", ["", "brokers", "queue", "queue.", "broker.x", "topic.news"])
def test_a_resource_that_does_not_exist_is_refused(text):
    with pytest.raises(Refused, match="_AMQ_ResourceName"):
        find_resource(text)


def test_the_name_of_a_resource_may_have_dots():
    assert find_resource("queue.orders.eu") == ("queue", "orders.eu")


@pytest.mark.parametrize(
    "name, values, words",
    [
        ("paus", [], "did you mean 'pause'"),
        ("pause", ["x"], "pause()"),
        ("getNothing", [], "getNothing"),
        ("moveMessages", ["a"], "moveMessages(text or null, text)"),
        ("removeMessage", [True], "removeMessage(number)"),
    ],
)
def test_the_refusal_of_an_operation_names_what_there_is(name, values, words):
    with pytest.raises(Refused) as refused:
        find_operation("queue", name, values)
    assert words in str(refused.value)


def test_passwords_are_secret():
    (added,) = {each.secret for each in OPERATIONS["broker"]["addUser"]}
    (sent,) = {each.secret for each in OPERATIONS["queue"]["sendMessage"]}
    assert 1 in added and 5 in sent


def test_an_empty_body_is_an_array_without_elements():
    assert read_parameters(b"") == read_parameters(b" \n") == read_parameters(b"[]") == []
