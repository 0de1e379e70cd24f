"""``<diverts>``: what a file may say, and every fault with its line and advice."""

import pytest

from stompring.settings.match import DivertGraph
from stompring.settings.model import (
    ComponentRoutingType,
    DivertConfiguration,
    Property,
    TransformerConfiguration,
    WildcardSyntax,
)

from .documents import QUIET, faults, parse

ADD_HEADERS = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
PLAIN = "<address>a</address><forwarding-address>b</forwarding-address>"


def divert(inside=PLAIN, name="d"):
    return f'<divert name="{name}">{inside}</divert>'


def diverts(*inside):
    """Diverts of a document: the first of them on line 5."""
    return [QUIET, "<diverts>", *inside, "</diverts>"]


def transformer(inside):
    return divert(f"{PLAIN}<transformer>{inside}</transformer>")


def test_a_divert_has_the_defaults_of_artemis():
    (found,) = parse(*diverts(divert())).diverts
    assert found == DivertConfiguration("d", "a", ("b",))
    assert (found.exclusive, found.routing_type, found.filter) == (False, ComponentRoutingType.STRIP, None)
    assert found.line == 5


def test_everything_that_a_divert_may_say():
    text = (
        "<address>a.#</address><forwarding-address> b, c </forwarding-address><filter string=\"k = '1'\"/>"
        "<exclusive>true</exclusive><routing-name>r</routing-name><routing-type>pass</routing-type><transformer>"
        f'<class-name>{ADD_HEADERS}</class-name><property key="x" value="1"/><remove-header name="y"/></transformer>'
    )
    (found,) = parse(*diverts(divert(text))).diverts
    changes = TransformerConfiguration((Property("x", "1"),), ("y",))
    assert found == DivertConfiguration(
        "d", "a.#", ("b", "c"), "k = '1'", True, "r", ComponentRoutingType.PASS, changes
    )


def test_a_policy_may_be_the_transformer():
    plugins = '<broker-plugins><broker-plugin name="mask"/></broker-plugins>'
    inside = '<address-policy name="mask"><property key="header" value="card"/></address-policy>'
    (found,) = parse(*diverts(transformer(inside)), plugins).transformers
    assert found.policy.name == "mask"
    assert found.policy.properties == (Property("header", "card"),)


@pytest.mark.parametrize(
    "text, fault",
    [
        (divert("<address>a</address>"), "<divert> has no <forwarding-address>; it is required"),
        (divert("<forwarding-address>b</forwarding-address>"), "<divert> has no <address>; it is required"),
        (f"<divert>{PLAIN}</divert>", "<divert> has no attribute 'name'; it is required"),
        (
            divert("<address>a</address><forwarding-address>b.#</forwarding-address>"),
            "divert 'd': the forwarding address 'b.#' has wildcards; copies need one address",
        ),
        (
            divert(
                "<address>a</address><forwarding-address>$.artemis.internal.b.address.retro</forwarding-address>"
            ),
            "divert 'd': the forwarding address '$.artemis.internal.b.address.retro' is internal; it is for messages "
            "of a retroactive address",
        ),
        (
            divert("<address>a.b*</address><forwarding-address>b</forwarding-address>"),
            "divert 'd': '*' and '#' are wildcards only as whole words, not in 'b*'",
        ),
        (
            divert("<address>a</address><forwarding-address>b,,c</forwarding-address>"),
            "<forwarding-address> is 'b,,c': must be the name of an address, or several with commas between them",
        ),
        (
            divert("<address>a</address><forwarding-address>b,b</forwarding-address>"),
            "<forwarding-address> is 'b,b': must not contain 'b' twice",
        ),
        (divert(PLAIN + '<filter string="k = "/>'), "string of <filter> is 'k =': "),
        (
            divert(PLAIN + "<routing-type>BOTH</routing-type>"),
            "<routing-type> is 'BOTH': must be one of ANYCAST, MULTICAST, PASS, STRIP",
        ),
        (divert() + divert(), "divert 'd' is already defined at line 5"),
        (
            transformer("<class-name>org.example.Mine</class-name>"),
            "<class-name> is 'org.example.Mine': transformers in Java are not supported. Set headers by "
            '<property key="…" value="…"/> and <remove-header name="…"/>, or name a Python policy: '
            '<address-policy name="…"/>',
        ),
        (transformer(""), "<transformer> changes nothing: add <property"),
        (
            transformer('<property key="destination" value="x"/>'),
            "<transformer> cannot change the header destination: the forwarding address is the destination",
        ),
        (
            transformer('<remove-header name="_AMQ_ORIG_QUEUE"/>'),
            "<transformer> cannot change the header _AMQ_ORIG_QUEUE: the broker sets it",
        ),
        (
            transformer('<remove-header name="x"/><remove-header name="x"/>'),
            "remove-header 'x' is already given at line 5",
        ),
        (
            transformer('<address-policy name="mask"/>'),
            '<address-policy name="mask"> names no <broker-plugin>',
        ),
        (
            divert("<address>a</address><forwarding-address>a</forwarding-address>"),
            "divert 'd' forms a loop: a to a; a message would be copied without end. Remove it",
        ),
    ],
)
def test_faults(text, fault):
    found = faults(*diverts(text))
    assert any(line.startswith(f"5: {fault}") for line in found), found


def test_headers_and_a_policy_exclude_each_other():
    plugins = '<broker-plugins><broker-plugin name="mask"/></broker-plugins>'
    inside = '<address-policy name="mask"/><property key="x" value="1"/>'
    (fault,) = faults(*diverts(transformer(inside)), plugins)
    assert fault.startswith("5: <transformer> has both an <address-policy> and headers")


def test_a_loop_is_shown_with_its_path():
    (fault,) = faults(
        *diverts(
            divert("<address>in</address><forwarding-address>a</forwarding-address>", "first"),
            divert("<address>a</address><forwarding-address>x, b.one</forwarding-address>", "second"),
            divert("<address>b.#</address><forwarding-address>a</forwarding-address>", "third"),
        )
    )
    assert fault == (
        "7: divert 'second' and divert 'third' form a loop: a to b.one to a; a message would be copied without end. "
        "Remove one of them"
    )


def test_no_loop_where_copies_meet_again():
    made = [
        DivertConfiguration(name, address, (target,))
        for name, address, target in [("1", "a", "b"), ("2", "a", "c"), ("3", "b", "d"), ("4", "c", "d")]
    ]
    assert not list(DivertGraph(made, WildcardSyntax()).loops())
    back = DivertConfiguration("5", "d", ("a",))
    assert [len(loop.diverts) for loop in DivertGraph([*made, back], WildcardSyntax()).loops()] == [3, 3]


def test_without_wildcard_routing_a_pattern_is_a_name():
    made = [DivertConfiguration("1", "#", ("b",))]
    assert list(DivertGraph(made, WildcardSyntax()).loops())
    assert not list(DivertGraph(made, WildcardSyntax(routing_enabled=False)).loops())


def test_many_diverts_are_checked_quickly():
    made = [DivertConfiguration(f"{at}", f"a{at}", (f"a{at + 1}",)) for at in range(5000)]
    assert not list(DivertGraph(made, WildcardSyntax()).loops())
