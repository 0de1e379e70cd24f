"""Which entry decides, and what it gives to whom."""

import pytest

from stompring.security.access import Permissions, open_management
from stompring.settings.model import BrokerConfiguration, PermissionType, SecuritySettingEntry, WildcardSyntax

SEND, CONSUME = PermissionType.SEND, PermissionType.CONSUME


def permissions(entries, markers=None, **syntax):
    """Entries that each give ``send`` to some roles."""
    return Permissions(
        [
            SecuritySettingEntry(match, {SEND: frozenset(roles.split())} if roles else {})
            for match, roles in entries.items()
        ],
        WildcardSyntax(**syntax),
        markers,
    )


def who(found, address, queue=None):
    """The roles, each a letter, that may."""
    return "".join(role for role in "abcd" if found.allows(frozenset(role), SEND, address, queue))


ENTRIES = {
    "#": "a",
    "orders.#": "a b",
    "orders.*": "b",
    "orders.eu": "c",
    "orders.secret": "",
    "orders.eu::q": "d",
    "orders.us::q": "",
    "news.*.sport": "b",
    "news.#": "a",
}


@pytest.mark.parametrize(
    "address, queue, roles",
    [
        ("anything", None, "a"),
        ("orders.us", None, "b"),  # not merged: a has lost it
        ("orders.us.new", None, "ab"),
        ("orders", None, "ab"),
        ("orders.eu", None, "c"),
        ("orders.secret", None, ""),
        ("orders.eu", "q", "d"),  # the queue's own entry stands above its address's
        ("orders.eu", "other", "c"),
        ("orders.us", "q", ""),
        ("orders.us", "other", "b"),
        ("news.eu.sport", None, "b"),
        ("news.eu.weather", None, "a"),
        ("orders.eu::q", None, "b"),  # no queue, but an odd address
    ],
)
def test_the_most_specific_entry_decides(address, queue, roles):
    assert who(permissions(ENTRIES), address, queue) == roles


def test_without_an_entry_every_operation_is_refused():
    assert who(permissions({}), "a") == who(permissions({"b": "a"}), "a") == ""
    assert not permissions({}).grants_anything and permissions({"b": ""}).grants_anything


def test_each_permission_on_its_own():
    found = permissions({"#": "a"})
    assert not found.allows(frozenset("a"), CONSUME, "x")
    assert found.allows(frozenset("xyza"), SEND, "x") and not found.allows(frozenset(), SEND, "x")


@pytest.mark.parametrize(
    "entries, address, roles",
    [
        ({"#": "a"}, "#", "a"),
        ({"#": "a b", "secret.#": "a"}, "#", "a"),  # b would read what is secret
        ({"#": "a b", "secret.#": "a"}, "news.*", "ab"),
        ({"#": "a b", "secret.#": "a"}, "*", "a"),  # secret itself
        ({"#": "a b", "secret.x": "a"}, "*.x", "a"),
        ({"#": "a b", "secret.x": "a"}, "*.y", "ab"),
        ({"#": "a", "orders.#": "b"}, "orders.*", "b"),  # whoever covers it all decides, and no wider one
        ({"#": "a", "orders.#": "b"}, "#", ""),
        ({"#": "a", "orders.#": "a b", "orders.*": "b c"}, "orders.#", "b"),
        ({"#": "a", "orders.#": "a b", "orders.*": "b c"}, "orders.*", "bc"),
        ({"orders.eu": "a", "orders.us": "a"}, "orders.*", ""),  # and orders.asia?
        ({"#": "a", "x::q": "b"}, "#", "a"),  # a queue's entry says nothing of its address
        ({"#": "a", "*.secret": ""}, "x.#", ""),
        ({"#": "a", "*.secret": ""}, "x.y.#", "a"),
    ],
)
def test_wildcard_addresses_need_it_everywhere(entries, address, roles):
    assert who(permissions(entries), address) == roles


def test_a_literal_entry_is_for_that_name():
    found = permissions({"#": "a", "orders.#": "b", "(#)": "c", "(plain)": "d"}, markers="()")
    assert who(found, "#") == "c", "the last word about the wildcard address itself"
    assert who(found, "plain") == "d"
    assert who(found, "orders.#") == "b"
    assert who(found, "*") == "", "which is where plain is"
    assert who(permissions({"#": "a", "(#)": "c"}), "x") == "a"


def test_another_syntax():
    found = permissions({">": "a", "x/+": "b"}, delimiter="/", any_words=">", single_word="+")
    assert (who(found, "x/y"), who(found, "x.#"), who(found, "x/>")) == ("b", "a", "")


def test_where_wildcards_do_not_route_their_names_are_names():
    found = permissions({"#": "a b", "secret": "a"}, routing_enabled=False)
    assert who(found, "#") == "ab"


def test_every_permission_is_known_by_its_name_in_capitals():
    assert [permission.name for permission in PermissionType][3] == "CREATE_ADDRESS"
    assert PermissionType("deleteNonDurableQueue").name == "DELETE_NON_DURABLE_QUEUE"


# ---- creating queues

DURABLE, NON_DURABLE = PermissionType.CREATE_DURABLE_QUEUE, PermissionType.CREATE_NON_DURABLE_QUEUE


@pytest.mark.parametrize("permission", [DURABLE, NON_DURABLE])
@pytest.mark.parametrize(
    "address, queue, roles",
    [
        ("mal.x", None, "a"),
        ("mal.x", "mal.x", "a"),
        ("mal.x", "mal.y", "a"),  # a name of its own
        ("mal.x", "pay", ""),  # on the address it may, but the name is another's
        ("pay", "mal.y", ""),
        ("pay", "pay", "b"),
        ("pay", "pay.more", "b"),
        ("pay", "nowhere", ""),  # no entry is for such an address
        ("mal.#", "mal.y", "a"),
        ("mal.x", "#", ""),  # as an address it stands for all, and there is no entry for all of them
        ("mal.x", "mal.#", "a"),
        ("news", "ada.alerts", "c"),  # the entry names address and queue
        ("news", "ada.others", ""),
    ],
)
def test_a_queue_is_created_with_the_permission_on_the_address_of_its_name(permission, address, queue, roles):
    entries = {"mal.#": "a", "pay.#": "b", "news::ada.alerts": "c", "news": "c"}
    found = Permissions(
        [SecuritySettingEntry(match, {permission: frozenset(who)}) for match, who in entries.items()]
    )
    assert "".join(r for r in "abc" if found.allows(frozenset(r), permission, address, queue)) == roles


def test_other_permissions_go_by_the_address_alone():
    found = permissions({"mal.#": "a"})
    assert found.allows(frozenset("a"), SEND, "mal.x", "pay")


def granting(**granted):
    return {PermissionType(name): frozenset(names.split()) for name, names in granted.items()}


@pytest.mark.parametrize(
    "match, granted, warned",
    [
        (
            "#",
            granting(consume="amq", send="amq", manage="amq"),
            [],
        ),  # as Artemis creates it: one role, which manages
        ("#", granting(consume="a b", manage="b"), ["consume on n to a:", "consume on m to a:"]),
        ("#", granting(send="a", manage="b"), ["send on n to a:"]),  # to m it needs manage in any case
        (
            "*",
            granting(send="a", createDurableQueue="b"),
            ["send on n to a:", "createDurableQueue on m to b:"],
        ),
        ("n", granting(consume="a"), []),  # meant so
        ("other.#", granting(consume="a"), []),
    ],
)
def test_patterns_that_open_the_management_are_found(match, granted, warned):
    configuration = BrokerConfiguration(
        file="b.xml",
        management_address="m",
        management_notification_address="n",
        security_settings=(SecuritySettingEntry(match, granted, 7),),
    )
    found = list(open_management(configuration))
    assert len(found) == len(warned)
    for line, text in zip(found, warned, strict=True):
        assert line.startswith(f'b.xml:7: <security-setting match="{match}"> grants ') and text in line
